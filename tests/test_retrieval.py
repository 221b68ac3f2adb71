"""Retrieval: search by blocks against one product, measures against their formulas, an encoder's numbers."""
import math

import numpy as np
import pytest
import torch

from sentnb.corpora import Microworld
from sentnb.evaluation import retrieval
from sentnb.evaluation.nearest import paraphrase_mining
from sentnb.evaluation.retrieval import Collection

pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is a requirement of settings.ini: install it")


class Table:
    "An encoder that knows the vectors of its texts, and what it was asked for."
    def __init__(self, vectors):
        self.vectors = {text: np.array(vector, float) for text, vector in vectors.items()}
        self.asked = []

    def encode(self, texts, **options):
        self.asked.append(list(texts)); self.options = options
        return np.stack([self.vectors[text] for text in texts]).astype(np.float32)


class Letters:
    def encode(self, texts, **options):
        from sklearn.feature_extraction.text import HashingVectorizer
        options = dict(analyzer="char_wb", ngram_range=(2, 3), n_features=256, alternate_sign=False)
        return HashingVectorizer(**options).transform(texts).toarray().astype(np.float32)


@pytest.fixture
def cloud():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 5)).astype(np.float32), rng.normal(size=(41, 5)).astype(np.float32)


@pytest.mark.parametrize("block, rows", [(1, 2), (3, 7), (40, 3), (41, 100)])
@pytest.mark.parametrize("k", [1, 5, 41, 60])
def test_blocks_change_nothing(cloud, block, rows, k):
    queries, documents = cloud
    blocks = (documents[i:i + block] for i in range(0, 41, block))
    scores, places = retrieval.search_blocks(queries, blocks, k, rows)
    exact = queries.astype(np.float64) @ documents.T
    np.testing.assert_array_equal(places, np.argsort(-exact, 1)[:, :k])
    np.testing.assert_allclose(scores, -np.sort(-exact, 1)[:, :k], atol=1e-5)


@pytest.mark.parametrize("block", [1, 2, 5, 9])
def test_of_equal_documents_the_first(block):
    documents = np.array([[0., 1]] + [[1., 0]]*7 + [[2., 0]])
    blocks = (documents[i:i + block] for i in range(0, 9, block))
    _, places = retrieval.search_blocks(np.array([[1., 0]]), blocks, 4)
    np.testing.assert_array_equal(places, [[8, 1, 2, 3]])


def test_faiss_ranks_alike(cloud):
    pytest.importorskip("faiss", reason="the extra `faiss` is not installed")
    queries, documents = cloud
    vectors = {f"q{i}": v for i, v in enumerate(queries)} | {f"d{i}": v for i, v in enumerate(documents)}
    texts, corpus = {f"q{i}": f"q{i}" for i in range(7)}, [(f"d{i}", f"d{i}") for i in range(41)]
    exact, faiss = (retrieval.search(Table(vectors), texts, corpus, k=8, block=10, index=index)
                    for index in retrieval.INDEXES)
    for query in texts:
        assert list(exact[query]) == list(faiss[query]) and len(exact[query]) == 8
        assert list(exact[query].values()) == pytest.approx(list(faiss[query].values()), abs=1e-5)


def test_faiss_missing_says_what_to_install(cloud, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match=r"sentnb\[faiss\]"):
        retrieval.search(Letters(), {"q": "x"}, [("a", "y")], index="faiss")


def test_a_stream_is_read_once_and_in_blocks():
    encoder = Table({"q": [1, 0], "a": [.5, 0], "b": [0, 1], "c": [.7, 0]})
    corpus = iter([("A", "a"), ("B", "b"), ("C", "c")])
    run = retrieval.search(encoder, {"one": "q", "two": "q"}, corpus, k=2, block=2,
                           encode_options=dict(head="keep"), show_progress=False)
    assert {query: list(ranked) for query, ranked in run.items()} == {"one": ["C", "A"], "two": ["C", "A"]}
    assert run["one"]["C"] == pytest.approx(.7)
    assert encoder.asked == [["q"], ["a", "b"], ["c"]] and encoder.options == dict(head="keep")


def test_measures_are_the_formulas():
    run = {"q": {f"d{i}": 10. - i for i in range(10)}}
    relevant = {"q": {"d1": 2, "d3": 1, "d20": 1, "d0": 0}}
    gain = 2/math.log2(3) + 1/math.log2(5)
    ideal = 2/math.log2(2) + 1/math.log2(3) + 1/math.log2(4)
    expected = {"nDCG@1": 0, "nDCG@10": gain/ideal, "recall@1": 0, "recall@3": 1/3, "recall@10": 2/3,
                "precision@2": 1/2, "MAP@10": (1/2 + 2/4)/3}
    scores = retrieval.measure(run, relevant, tuple(expected))
    assert {name: values["q"] for name, values in scores.items()} == pytest.approx(expected)


def test_evaluate_is_the_mean_over_queries():
    vectors = {"q1": [1, 0, 0], "q2": [0, 1, 0], "a": [1, .1, 0], "b": [.9, 0, 0], "c": [0, 0, 1.]}
    corpus = [("A", "a"), ("B", "b"), ("C", "c")]
    queries, relevant = {"1": "q1", "2": "q2", "3": "never judged"}, {"1": {"B": 1}, "2": {"A": 1, "C": 1}}
    scores = retrieval.evaluate(Table(vectors), Collection("tiny", corpus, queries, relevant), block=2)
    ndcg = scores["queries"]["nDCG@10"]
    assert ndcg["1"] == pytest.approx(1/math.log2(3)) and list(ndcg) == ["1", "2"]
    assert scores["recall@1"] == pytest.approx((0 + 1/2)/2) and scores["recall@10"] == 1
    assert (scores["n"], scores["documents"]) == (2, 3)
    assert scores["nDCG@10"] == pytest.approx(np.mean(list(ndcg.values())))
    low, high = scores["intervals"]["recall@1"]
    assert 0 <= low <= scores["recall@1"] <= high <= .5


def test_the_microworld():
    # a fifth are paraphrases; a few of them are word for word the same
    data = retrieval.microworld_collection(Microworld(seed=0), n=200)
    assert data == retrieval.microworld_collection(Microworld(seed=0), n=200)
    scores = retrieval.evaluate(Letters(), data)
    assert len(data.corpus) == 200 and scores["n"] == len(data.relevant) >= 15 and scores["documents"] == 200
    assert scores["recall@10"] > .5 > 10/200
    texts = dict(data.corpus)
    for query, judged in data.relevant.items():
        answer, = judged
        assert data.queries[query] != texts[answer]


@pytest.mark.parametrize("queries, corpus, options, message", [
    ({}, [("a", "x")], {}, "no queries"),
    ({"q": "x"}, [], {}, "no documents"),
    ({"q": "x"}, [("a", "x"), ("a", "y")], {}, "two documents have the id 'a'"),
    ({"q": "x"}, [("a", "x")], dict(k=0), "k=0"),
    ({"q": "x"}, [("a", "x")], dict(block=0), "block=0"),
    ({"q": "x"}, [("a", "x")], dict(index="hnsw"), "index='hnsw'")])
def test_search_refuses(queries, corpus, options, message):
    with pytest.raises(ValueError, match=message): retrieval.search(Letters(), queries, corpus, **options)


@pytest.mark.parametrize("run, relevant, measures, message", [
    ({"q": {}}, {}, ("nDCG@1",), "no query has a judgement"),
    ({}, {"q": {"a": 1}}, ("nDCG@1",), "was not searched for"),
    ({"q": {}}, {"q": {"a": 0}}, ("nDCG@1",), "no relevant document"),
    ({"q": {}}, {"q": {"a": 1}}, ("ndcg@1",), "measure 'ndcg@1'"),
    ({"q": {}}, {"q": {"a": 1}}, ("nDCG@0",), "measure 'nDCG@0'"),
    ({"q": {}}, {"q": {"a": 1, "b": .5}}, ("nDCG@1",), "document 'b': the grade is 0.5; trec_eval expects"),
    ({"q": {}}, {"q": {"a": 1, "b": math.nan}}, ("nDCG@1",), "the grade is nan"),
    ({"q": {}}, {"q": {"a": 1}}, (), "no measures")])
def test_measure_refuses(run, relevant, measures, message):
    with pytest.raises(ValueError, match=message): retrieval.measure(run, relevant, measures)


def test_vectors_that_are_no_numbers():
    encoder = Table({"q": np.ones(2), "a": np.ones(2), "b": [np.nan, 0]})
    with pytest.raises(ValueError, match="documents: 1 vectors are not finite, the first at 1"):
        retrieval.search(encoder, {"q": "q"}, [("a", "a"), ("b", "b")])
    with pytest.raises(ValueError, match="1 vectors that are not finite, the first for 'b'"):
        retrieval.search(encoder, {"q": "b"}, [("a", "a")])
    with pytest.raises(ValueError, match="documents have 3 dimensions, the queries 2"):
        retrieval.search_blocks(np.ones((1, 2)), [np.ones((4, 3))])


def test_collections_of_the_mirror(hub):
    cranfield = retrieval.collection("retrieval/cranfield")
    assert len(cranfield.corpus) == 1400 and len(cranfield.relevant) == len(cranfield.queries) <= 225
    asked_in_german = retrieval.collection("retrieval/xquad", "en", "de")
    assert len(asked_in_german.corpus) == 240 and len(asked_in_german.relevant) == 1190
    assert asked_in_german.name == "retrieval/xquad de-en"
    assert {len(judged) for judged in asked_in_german.relevant.values()} == {1}
    for arguments, message in ((("retrieval/cranfield", "de"), "in one language"),
                               (("retrieval/xquad",), "language=None"),
                               (("retrieval/xquad", "en", "nl"), "language='nl'")):
        with pytest.raises(ValueError, match=message): retrieval.collection(*arguments)


# --- vectors that one has ---

@pytest.mark.parametrize("n, queries, k, block", [(41, 7, 5, 3), (300, 40, 300, 128), (3, 2, 10, 4096)])
def test_semantic_search_is_that_of_sentence_transformers(n, queries, k, block):
    util = pytest.importorskip("sentence_transformers.util", reason="sentence-transformers is an extra")
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(queries, 16)).astype(np.float32), rng.normal(size=(n, 16)).astype(np.float32)
    cosines, rows = retrieval.semantic_search(x, y, k, block)
    for own, values, theirs in zip(rows, cosines, util.semantic_search(x, y, top_k=k)):
        assert own.tolist() == [hit["corpus_id"] for hit in theirs]
        np.testing.assert_allclose(values, [hit["score"] for hit in theirs], atol=1e-6)


@pytest.mark.parametrize("n, pairs, block", [(40, 15, 7), (90, 4005, 2048), (90, 400, 1), (5, 100, 2)])
def test_paraphrase_mining_is_that_of_sentence_transformers(n, pairs, block):
    util = pytest.importorskip("sentence_transformers.util", reason="sentence-transformers is an extra")
    x = np.random.default_rng(n).normal(size=(n, 16)).astype(np.float32)
    cosines, rows = paraphrase_mining(x, pairs, block=block)
    unit = torch.nn.functional.normalize(torch.from_numpy(x), dim=1)
    theirs = util.paraphrase_mining_embeddings(unit, top_k=n, max_pairs=n*n)[:pairs]
    assert rows.tolist() == [sorted(pair) for _, *pair in theirs]
    np.testing.assert_allclose(cosines, [score for score, *_ in theirs], atol=1e-6)


def test_paraphrases_that_are_equal_come_in_their_order():
    x = np.eye(4)[[0, 1, 0, 2, 0, 1]]
    for block in (1, 2, 6):
        cosines, rows = paraphrase_mining(x, pairs=3, threshold=.5, block=block)
        assert rows.tolist() == [[0, 2], [0, 4], [1, 5]] and (cosines == 1).all()
        assert len(paraphrase_mining(x, threshold=.5, block=block)[0]) == 4


def test_opposite_rows_are_pairs_and_no_row_is_paired_with_itself():
    x = np.random.default_rng(0).normal(size=(40, 24)).astype(np.float32)
    x = np.concatenate([x, -x])   # the cosines of opposites are -1, some of them less by rounding
    for options in ({}, dict(threshold=-np.inf), dict(threshold=-np.inf, block=7)):
        cosines, rows = paraphrase_mining(x, pairs=10**6, **options)
        assert len(cosines) == 80*79//2 and np.isfinite(cosines).all() and (rows[:, 0] < rows[:, 1]).all()

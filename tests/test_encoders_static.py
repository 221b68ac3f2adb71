"Static word vectors: the counts and weights against plain loops, what they learn, encoding and saving."
import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sentnb.corpora import Microworld
from sentnb.encoders.adapters import weights_fingerprint
from sentnb.encoders.base import collect_truncations
from sentnb.encoders.features import FeatureStore, base_fingerprint
from sentnb.encoders.static import CharacterNgrams, StaticEncoder, cooccurrence, positive_pmi, static_words


@pytest.fixture(scope="module")
def texts(): return Microworld().documents("en", 600)


@pytest.fixture(scope="module")
def learned(texts): return StaticEncoder.fit(texts, dim=24, min_count=3)


@given(st.lists(st.lists(st.integers(-1, 4), max_size=8), max_size=6), st.integers(1, 4), st.integers(1, 5))
@settings(deadline=None)
def test_cooccurrence_equals_a_plain_loop(documents, window, block):
    expected = np.zeros((5, 5))
    for document in documents:
        for i, a in enumerate(document):
            for j, b in enumerate(document):
                if i != j and abs(i - j) <= window and a >= 0 and b >= 0:
                    expected[a, b] += window + 1 - abs(i - j)
    ids = np.array([word for document in documents for word in document], int)
    where = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    assert (cooccurrence(ids, where, 5, window, block).toarray() == expected).all()


def test_positive_pmi_by_hand():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 5, (6, 6)); counts = counts + counts.T
    from scipy import sparse
    pmi = positive_pmi(sparse.csr_matrix(counts.astype(float)), smoothing=.75).toarray()
    contexts = counts.sum(0)**.75
    for w in range(6):
        for c in range(6):
            share = counts[w, c]/counts[w].sum()
            expected = max(0, math.log(share/(contexts[c]/contexts.sum()))) if share else 0
            assert abs(pmi[w, c] - expected) < 1e-5


def test_words():
    words = static_words("“Hello”, (World)! don't -- e\u0301t\u00e9…")
    assert words == ["hello", "world", "don't", "\u00e9t\u00e9"]
    assert static_words("猫在 Haus。睡觉") == ["猫", "在", "haus", "睡", "觉"]
    assert static_words("\ud800 \0 !?") == []


def test_all_singular_vectors_give_the_matrix_back():
    texts = Microworld().documents("en", 60)
    enc = StaticEncoder.fit(texts, dim=40, min_count=8, power=.5)
    ids = {word: i for i, word in enumerate(enc.words)}
    tokens = [[ids.get(word, -1) for word in static_words(text)] for text in texts]
    where = np.repeat(np.arange(len(texts)), [len(row) for row in tokens])
    matrix = positive_pmi(cooccurrence(np.concatenate(tokens), where, len(ids)))
    u, s, _ = np.linalg.svd(matrix.toarray().astype(float))
    expected = (u[:, :40]*s[:40]) @ u[:, :40].T # no sign, no rotation left
    assert np.abs(enc.vectors @ enc.vectors.T - expected).max() < .02*np.abs(expected).max()
    assert list(enc.counts) == sorted(enc.counts, reverse=True) and min(enc.counts) >= 8


def test_learns_what_stands_together(learned):
    assert {"restaurant", "hotel", "hospital"} & set(learned.neighbours("kitchen", 5))
    x = learned.encode(["A doctor is sleeping in the hospital.", "A physician is sleeping in the clinic.",
                        "Two cows are eating grass."])
    assert x[0] @ x[1] > x[0] @ x[2] + .2


def test_same_text_same_vectors_and_a_stream_is_enough(texts, learned):
    again = StaticEncoder.fit((text for text in texts), dim=24, min_count=3)
    assert again.words == learned.words and (again.vectors == learned.vectors).all()
    assert again.settings() == learned.settings()
    assert json.loads(json.dumps(learned.settings()))["fitted"]["texts"] == 600
    fewer = StaticEncoder.fit(texts, dim=24, min_count=3, max_vocabulary=100)
    assert (fewer.counts == learned.counts[:100]).all()


THREADS = [{f"{name}_NUM_THREADS": count for name in ("OMP", "OPENBLAS", "MKL")} for count in ("1", "2")]


def test_the_threads_of_the_environment_decide_nothing(python):
    code = """
import hashlib
from sentnb.corpora import Microworld
from sentnb.encoders import StaticEncoder
vectors = StaticEncoder.fit(Microworld().documents("en", 1500), dim=100, min_count=2).vectors
print(hashlib.sha256(vectors.tobytes()).hexdigest())
"""
    assert len({python(code, **environment) for environment in THREADS}) == 1


def test_encode_is_the_mean_in_order_whatever_stands_beside(texts, learned):
    some = texts[:30] + ["", "zzzz qqqq", "Zzzz the doctor", "the doctor", "THE, doctor!"]
    x = learned.encode(some, normalize=False)
    assert x.dtype == np.float32 and x.shape == (35, 24)
    number = {word: i for i, word in enumerate(learned.words)}
    for row, text in zip(x[:30], some):
        words = [number[word] for word in static_words(text) if word in number]
        assert np.abs(row - learned.vectors[words].mean(0)).max() < 1e-5
    assert (x[30] == x[31]).all() and (x[32] == x[33]).all() and (x[33] == x[34]).all()
    assert np.abs(x[30] - (learned.counts @ learned.vectors.astype(float))/learned.counts.sum()).max() < 1e-5
    for size in (1, 7, 1000): assert (learned.encode(some, batch_size=size, normalize=False) == x).all()
    assert (np.concatenate(list(learned.encode_batches(iter(some), 10, normalize=False))) == x).all()
    assert np.abs(np.linalg.norm(learned.encode(some), axis=1) - 1).max() < 1e-6


def test_sif_weighs_rare_words_more(learned):
    sif = learned.reweighted("sif")
    number = {word: i for i, word in enumerate(learned.words)}
    a, b = number["the"], number["doctor"]
    weight = 1e-3/(1e-3 + learned.counts/learned.counts.sum())
    expected = (weight[a]*learned.vectors[a] + weight[b]*learned.vectors[b])/(weight[a] + weight[b])
    assert np.abs(sif.encode(["the doctor"], normalize=False)[0] - expected).max() < 1e-5
    assert weight[b] > 2*weight[a]


def test_words_that_cancel_out_still_have_a_direction():
    enc = StaticEncoder(["up", "down", "left"], [[0, 1], [0, -1], [1, 0]], [1, 1, 2])
    assert (enc.encode(["up down", "left"]) == [[1, 0], [1, 0]]).all()


def test_coverage(learned):
    assert learned.coverage(["the doctor", "zzzz"]) == 2/3 and math.isnan(learned.coverage(["..."]))


def test_saves_and_loads(tmp_path, texts, learned):
    folder = learned.reweighted("sif", 1e-2).save_pretrained(tmp_path/"static")
    (folder/"README.md").write_text("card")
    back = StaticEncoder.from_pretrained(folder)
    assert back.settings() == learned.reweighted("sif", 1e-2).settings()
    assert (back.vectors == learned.vectors).all() and back.words == learned.words
    learned.save_pretrained(folder, half=True)
    assert (folder/"README.md").read_text() == "card"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["static"]
    half = StaticEncoder.from_pretrained(folder)
    assert np.abs(half.encode(texts[:20]) - learned.encode(texts[:20])).max() < 1e-3


def test_broken_checkpoints_are_refused(tmp_path, learned):
    folder = learned.save_pretrained(tmp_path/"a")
    (folder/"words.json").write_text(json.dumps(learned.words[:-1]))
    with pytest.raises(ValueError, match="words"): StaticEncoder.from_pretrained(folder)
    (folder/"words.json").unlink()
    with pytest.raises(FileNotFoundError, match="words.json"): StaticEncoder.from_pretrained(folder)
    folder = learned.save_pretrained(tmp_path/"b")
    (folder/"model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="broken"): StaticEncoder.from_pretrained(folder)
    (folder/"config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="bert"): StaticEncoder.from_pretrained(folder)
    with pytest.raises(FileExistsError): learned.save_pretrained(folder)
    (tmp_path/"c").mkdir(); (tmp_path/"c"/"notes.txt").write_text("mine")
    with pytest.raises(FileExistsError): learned.save_pretrained(tmp_path/"c")
    assert (tmp_path/"c"/"notes.txt").read_text() == "mine"


def test_other_words_are_another_encoder(tmp_path):
    one, other = (StaticEncoder(words, np.eye(2), [1, 1]) for words in (["cat", "dog"], ["sun", "moon"]))
    assert base_fingerprint(one) != base_fingerprint(other)
    assert weights_fingerprint(one) != weights_fingerprint(other)
    assert base_fingerprint(StaticEncoder(["cat", "dog"], np.eye(2), [1, 1])) == base_fingerprint(one)
    FeatureStore(one, tmp_path).add(["cat"], show_progress=False)
    assert "cat" in FeatureStore(one, tmp_path) and "cat" not in FeatureStore(other, tmp_path)


def test_collate_counts_truncated_texts_and_refuses_one_str():
    enc = StaticEncoder(["cat", "dog"], np.eye(2), [1, 1])
    with collect_truncations(Counter()) as truncated:
        ids, mask = enc.collate(["cat dog cat", "dog", ""], 2)
    assert truncated == {"at 2 words": 1} and ids.tolist() == [[0, 1], [1, 2], [2, 2]]
    assert mask.sum(1).tolist() == [2, 1, 1] and [tensor.shape for tensor in enc.collate([])] == [(0, 0)]*2
    with pytest.raises(TypeError, match="texts is one str"): enc.collate("cat")
    with pytest.raises(ValueError, match="max_length=0: expected an integer of at least 1"):
        enc.collate(["cat"], 0)


def test_texts_without_words_are_counted():
    assert StaticEncoder.fit(["a b a b", "b a", "...", ""], dim=2, min_count=1).fitted["texts"] == 4


def test_ngrams_need_a_list_of_texts():
    with pytest.raises(TypeError, match="texts is one str"): CharacterNgrams.fit("a text")
    with pytest.raises(TypeError, match=r"texts\[1\] is NoneType"): CharacterNgrams.fit(["a", None])
    with pytest.raises(ValueError, match="head='keep'"):
        CharacterNgrams.fit(["a"], 2).encode(["a"], head="keep")

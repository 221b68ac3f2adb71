"""Bitext: neighbours by tiles, margins and mining against their formulas, thresholds, Tatoeba, BUCC."""
import math
import warnings

import numpy as np
import pytest

from sentnb.corpora import get_script_code, get_script
from sentnb.evaluation import bitext, nearest


@pytest.fixture
def rng(): return np.random.default_rng(0)


class Table:
    "An encoder that knows the vectors of its sentences, and counts what it is asked for."
    def __init__(self, vectors): self.vectors, self.asked = vectors, []

    def encode(self, texts):
        self.asked += list(texts)
        return np.stack([self.vectors[text] for text in texts]).astype(np.float32)


def cosines(x, y):
    return (x/np.linalg.norm(x, axis=1, keepdims=True)) @ (y/np.linalg.norm(y, axis=1, keepdims=True)).T


def naive_margins(x, y, k, margin):
    "The formula, pair by pair, in float64."
    c = cosines(x, y)
    result = np.empty_like(c)
    for i in range(len(x)):
        for j in range(len(y)):
            around = (sum(sorted(c[i])[-k:])/k + sum(sorted(c[:, j])[-k:])/k)/2
            result[i, j] = dict(ratio=c[i, j]/around, distance=c[i, j] - around, absolute=c[i, j])[margin]
    return result


def naive_mine(x, y, k, retrieval):
    "Forward and backward candidates and the greedy choice, in plain loops."
    c, scores = cosines(x, y), naive_margins(x, y, k, "ratio")
    forward = [max(np.argsort(-c[i])[:k], key=lambda j: scores[i, j]) for i in range(len(x))]
    backward = [max(np.argsort(-c[:, j])[:k], key=lambda i: scores[i, j]) for j in range(len(y))]
    pairs = {"forward": [(i, j) for i, j in enumerate(forward)],
             "backward": [(i, j) for j, i in enumerate(backward)],
             "intersect": [(i, j) for i, j in enumerate(forward) if backward[j] == i]}
    if retrieval != "max": return {(int(i), int(j)) for i, j in pairs[retrieval]}
    kept, used_i, used_j = set(), set(), set()
    for i, j in sorted(pairs["forward"] + pairs["backward"], key=lambda pair: -scores[pair]):
        if i in used_i or j in used_j: continue
        kept.add((int(i), int(j))); used_i.add(i); used_j.add(j)
    return kept


@pytest.mark.parametrize("block", [1, 5, 11, 1000])
@pytest.mark.parametrize("k", [1, 3, 11])
def test_neighbours_by_tiles_are_those_of_one_product(rng, block, k):
    x, y = rng.normal(size=(11, 4)), rng.normal(size=(23, 4))
    c = cosines(x, y)
    (near, places), (near_y, places_x) = nearest.neighbours(x, y, k, block)
    np.testing.assert_array_equal(places, np.argsort(-c, 1)[:, :k])
    np.testing.assert_array_equal(places_x, np.argsort(-c.T, 1)[:, :k])
    np.testing.assert_allclose(near, -np.sort(-c, 1)[:, :k], atol=1e-6)
    np.testing.assert_allclose(near_y, -np.sort(-c.T, 1)[:, :k], atol=1e-6)
    assert near.dtype == np.float32 and places.dtype == np.int64


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_of_equal_ones_the_first(block):
    x, y = np.ones((3, 2)), np.vstack([[[1, 0.]], np.ones((6, 2)), [[0, 1.]]])
    (_, places), (_, back) = nearest.neighbours(x, y, 3, block)
    np.testing.assert_array_equal(places, [[1, 2, 3]]*3)
    np.testing.assert_array_equal(back, [[0, 1, 2]]*8)


def test_the_error_of_both_directions():
    x = np.eye(4)
    y = np.eye(4)[[0, 1, 3, 2]]     # the last two are exchanged
    assert bitext.match_errors(x, y) == dict(forward=.5, backward=.5, error=.5)
    assert bitext.match_error(x, y) == .5
    hub = np.eye(4) + .1; hub[3] = 1    # everything's nearest but its own
    errors = bitext.match_errors(np.eye(4)[:, :4], hub)
    assert errors["error"] == (errors["forward"] + errors["backward"])/2
    assert bitext.match_error(x, 7*x) == 0 and bitext.match_error(x, x[::-1]) == 1


def test_directions_differ():
    x = np.array([[1, 0.], [.9, .1], [0, 1]])
    y = np.array([[1, 0.], [0, 1], [.1, 1]])
    assert bitext.match_errors(x, y) == pytest.approx(dict(forward=2/3, backward=1/3, error=.5))


@pytest.mark.parametrize("margin", list(bitext.MARGINS))
@pytest.mark.parametrize("k", [1, 4])
def test_margins_are_the_formula(rng, margin, k):
    x, y = rng.normal(size=(9, 5)) + 1, rng.normal(size=(13, 5)) + 1
    expected = naive_margins(x, y, k, margin)
    np.testing.assert_allclose(bitext.margin_scores(x, y, k, margin), expected, atol=2e-6)
    pairs = [(0, 3), (8, 12), (0, 3)]
    some = bitext.margin_scores(x, y, k, margin, pairs=pairs)
    np.testing.assert_allclose(some, [expected[pair] for pair in pairs], atol=2e-6)


def test_a_ratio_with_a_negative_density_warns(rng):
    x = np.array([[1., 0.], [.9, -.1]])
    y = np.array([[-1., .1], [-.2, 1.], [-.9, -.6]])
    with pytest.warns(UserWarning, match="least similar pairs may get the highest.*use margin='distance'"):
        assert bitext.margin_scores(x, y, k=2).argmax() == 0
    with pytest.warns(UserWarning, match="margin='ratio' expects"): bitext.mine(x, y, k=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for margin in ("distance", "absolute"): bitext.mine(x, y, k=2, margin=margin)
        bitext.mine(rng.normal(size=(9, 5)) + 1, rng.normal(size=(13, 5)) + 1)


@pytest.mark.parametrize("retrieval", bitext.RETRIEVALS)
@pytest.mark.parametrize("seed", range(5))
def test_mining_is_what_plain_loops_find(retrieval, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(17, 6))
    y = np.vstack([x[:8] + .5*rng.normal(size=(8, 6)), rng.normal(size=(12, 6))])
    pairs = bitext.mine(x, y, k=4, retrieval=retrieval, block=6)
    assert {pair[:2] for pair in pairs} == naive_mine(x, y, 4, retrieval)
    assert [score for *_, score in pairs] == sorted((score for *_, score in pairs), reverse=True)
    expected = bitext.margin_scores(x, y, 4)
    for i, j, score in pairs: assert score == pytest.approx(expected[i, j], abs=1e-5)
    if retrieval in ("max", "intersect"):
        assert len({i for i, *_ in pairs}) == len({j for _, j, _ in pairs}) == len(pairs)


def test_a_threshold_keeps_what_is_not_below_it(rng):
    x = rng.normal(size=(20, 6))
    every = bitext.mine(x, x + .1, k=2)
    assert bitext.mine(x, x + .1, k=2, threshold=every[3][2]) == every[:4]
    for wrong in (math.inf, math.nan):
        with pytest.raises(ValueError, match="threshold="): bitext.mine(x, x + .1, k=2, threshold=wrong)


def test_the_best_threshold_lies_halfway_after_the_best_candidate():
    pairs = [("a", 1, .9), ("b", 2, .8), ("x", 9, .7), ("c", 3, .6), ("y", 8, .5), ("z", 7, .4)]
    gold = [("a", 1), ("b", 2), ("c", 3), ("d", 4)]
    best = bitext.best_threshold(pairs, gold)    # 3 of 4 extracted pairs are true: F1 = 6/8
    assert best == pytest.approx(dict(threshold=.55, precision=3/4, recall=3/4, f1=3/4))
    kept = [pair for pair in pairs if pair[2] >= best["threshold"]]
    assert dict(threshold=best["threshold"]) | bitext.mining_scores(kept, gold) == best


def test_a_threshold_cannot_part_equal_scores():
    pairs, gold = [("a", 1, .5), ("x", 9, .5), ("y", 8, .5)], [("a", 1)]
    best = bitext.best_threshold(pairs, gold)
    assert best["precision"] == pytest.approx(1/3) and best["threshold"] == .5


def test_no_pairs_score_nothing():
    assert bitext.mining_scores([], [(1, 1)]) == dict(precision=0, recall=0, f1=0)
    with pytest.raises(ValueError, match="no gold pairs"): bitext.mining_scores([(1, 1)], [])
    with pytest.raises(ValueError, match="no threshold can be chosen"):
        bitext.best_threshold([(1, 2, .5)], [(1, 1)])


def test_tatoeba_counts_each_direction_and_encodes_each_sentence_once():
    vectors = {"eins": [1, 0, 0], "zwei": [0, 1, 0], "drei": [.1, 1, 0], "un": [1, 0, 0], "deux": [0, 1, 0],
               "one": [1, 0, 0], "two": [0, 1, 0], "three": [0, 0, 1]}
    encoder = Table({text: np.array(vector, float) for text, vector in vectors.items()})
    data = {"de": [("eins", "one"), ("zwei", "two"), ("drei", "three")],
            "fr": [("un", "one"), ("deux", "two")]}
    scores = bitext.tatoeba(encoder, data=data)
    assert sorted(encoder.asked) == sorted(vectors), "each once, in all languages together"
    german, french = scores["de"], scores["fr"]
    assert german["accuracy"] == pytest.approx(2/3) and german["n"] == 3
    assert french["accuracy"] == french["back"] == 1
    assert german["error"] == pytest.approx(1 - (german["accuracy"] + german["back"])/2)
    n, p, z = 3, 2/3, 1.959963984540054
    half = z*math.sqrt(p*(1 - p)/n + z*z/(4*n*n))
    bounds = tuple((p + z*z/(2*n) + side*half)/(1 + z*z/n) for side in (-1, 1))
    assert (german["low"], german["high"]) == pytest.approx(bounds)
    assert list(bitext.tatoeba(encoder, ["fr"], data)) == ["fr"]
    with pytest.raises(ValueError, match="'xx'"): bitext.tatoeba(encoder, ["xx"], data)
    with pytest.raises(ValueError, match="no pairs in 'de'"): bitext.tatoeba(encoder, data={"de": []})


def test_bucc_removes_repeated_sentences_first():
    vectors = {"uno": [1., 0, 0], "dos": [0, 1., 0], "otro": [0, .2, 1.],
               "one": [1., .1, 0], "two": [.1, 1., 0], "noise": [.3, .2, 1.]}
    encoder = Table({text: np.array(vector) for text, vector in vectors.items()})
    sources = {"s1": "uno", "s2": "uno", "s3": "dos", "s4": "otro"}
    targets = {"t1": "one", "t2": "two", "t3": "noise"}
    first = bitext.bucc(encoder, (sources, targets, [("s2", "t1"), ("s3", "t2")]), k=2)
    assert (first["n_source"], first["n_target"], first["n_gold"], first["chosen_here"]) == (3, 3, 2, True)
    gold = [("s1", "t1"), ("s3", "t2")]
    again = bitext.bucc(encoder, (sources, targets, gold), k=2, threshold=first["threshold"])
    assert again == first | dict(chosen_here=False)
    assert bitext.bucc(encoder, (sources, targets, gold[:1]), k=2, threshold=1e9)["f1"] == 0
    with pytest.raises(ValueError, match="not among the sentences"):
        bitext.bucc(encoder, (sources, targets, [("s9", "t1")]))


@pytest.mark.parametrize("x, y, k, message", [
    (np.ones((3, 2)), np.ones((3, 3)), 1, "2 dimensions, y 3"),
    (np.ones(3), np.ones((3, 3)), 1, "x has shape"),
    (np.ones((3, 2)), np.zeros((3, 2)), 1, "y: 3 rows are zero"),
    (np.array([[1., np.nan]]), np.ones((1, 2)), 1, "the first at 0"),
    (np.ones((3, 2)), np.ones((5, 2)), 4, "k=4 neighbours among 3 and 5"),
    (np.ones((0, 2)), np.ones((3, 2)), 1, "x has shape")])
def test_refused(x, y, k, message):
    with pytest.raises(ValueError, match=message): nearest.neighbours(x, y, k)
    with pytest.raises(ValueError, match=message): bitext.mine(x, y, k)


def test_refused_names_and_lengths(rng):
    x = rng.normal(size=(5, 3))
    with pytest.raises(ValueError, match="translations row by row"): bitext.match_error(x, x[:4])
    with pytest.raises(ValueError, match="margin='log'"): bitext.margin_scores(x, x, margin="log")
    with pytest.raises(ValueError, match="retrieval='both'"): bitext.mine(x, x, retrieval="both")
    encoder = Table({"a": np.array([1., 0]), "b": np.zeros(2)})
    message = "encode gave 1 vectors that are zero or not finite, the first for 'b'"
    with pytest.raises(ValueError, match=message): bitext.tatoeba(encoder, data={"de": [("a", "b")]})


def test_the_mirror_has_the_languages(hub):
    pairs = bitext.tatoeba_data(["de", "cmn", "ru"])
    assert {language: len(own) for language, own in pairs.items()} == dict(de=1000, cmn=1000, ru=1000)
    with pytest.raises(ValueError, match="Tatoeba has no 'xx'"): bitext.tatoeba_data(["xx"])
    sources, targets, gold = bitext.bucc_data()
    assert (len(sources), len(targets), len(gold)) == (8624, 13589, 257)
    assert all(i in sources and j in targets for i, j in gold)


def test_the_declared_scripts_are_those_of_the_test(hub):
    named = {"Latin": "Latn", "Cyrillic": "Cyrl", "Arabic": "Arab", "Devanagari": "Deva", "Cjk": "Hani",
             "Hebrew": "Hebr", "Armenian": "Armn", "Bengali": "Beng", "Ethiopic": "Ethi", "Georgian": "Geor",
             "Greek": "Grek", "Hangul": "Hang", "Hiragana": "Jpan", "Khmer": "Khmr", "Malayalam": "Mlym",
             "Tamil": "Taml", "Telugu": "Telu", "Thai": "Thai"}
    for code, pairs in bitext.tatoeba_data().items():
        assert get_script_code(code) == named[get_script([sentence for sentence, _ in pairs])], code

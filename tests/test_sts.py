"STS: correlations and aggregations against independent derivations, cosines and their ties, tests, Table 5."
import csv

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from sentnb.core import LANGUAGES, data_dir
from sentnb.corpora import sts_rows
from sentnb.evaluation import sts

real = pytest.mark.usefixtures("hub") # skips, and says so, without a mirror


class Hashed:
    "Bags of letter trigrams: deterministic, knows a little about similarity, counts what it encodes."
    def __init__(self, d=64): self.d, self.seen = d, []
    def encode(self, texts):
        self.seen += texts
        x = np.full((len(texts), self.d), .01, np.float32)
        for row, text in zip(x, texts):
            for i in range(len(text)):
                hashed = sum(ord(c) * 31**k for k, c in enumerate(text[i:i + 3]))
                row[hashed % self.d] += 1
        return x


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=3, max_size=40))
@settings(deadline=None)
def test_correlations_equal_scipys_also_with_ties(pairs):
    x, y = map(list, zip(*pairs))
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert np.isnan(sts.spearman(x, y)) and np.isnan(sts.pearson(x, y))
    else:
        assert abs(sts.spearman(x, y) - stats.spearmanr(x, y).statistic) < 1e-12
        assert abs(sts.pearson(x, y) - stats.pearsonr(x, y).statistic) < 1e-12


def test_aggregations_by_hand():
    rng = np.random.default_rng(1)
    sizes = {"a": 7, "b": 20, "c": 5}
    names = [name for name, n in sizes.items() for _ in range(n)]
    rng.shuffle(names)
    names, x = np.array(names), rng.normal(size=32).round(1)
    y = (x + rng.normal(size=32)).round(0)
    got = sts.aggregate(x, y, names.tolist())
    each = [stats.spearmanr(x[names == name], y[names == name]).statistic for name in sizes]
    assert abs(got["all"]["spearman"] - stats.spearmanr(x, y).statistic) < 1e-12
    assert abs(got["mean"]["spearman"] - np.mean(each)) < 1e-12
    assert abs(got["wmean"]["spearman"] - np.average(each, weights=list(sizes.values()))) < 1e-12
    assert got["n"] == 32 and {name: part["n"] for name, part in got["subsets"].items()} == sizes
    assert len({round(got[key]["spearman"], 6) for key in ("all", "mean", "wmean")}) == 3


def test_aggregations_equal_the_reference(golden):
    with np.load(golden/"losses"/"sts_aggregation.npz", allow_pickle=False) as file: theirs = dict(file)
    for year in ("sts12", "sts13"):
        names = [key[len(year) + 1:-4] for key in theirs if key.startswith(year) and key.endswith("_sys")]
        system, gold = ([theirs[f"{year}_{name}_{side}"] for name in names] for side in ("sys", "gold"))
        subsets = [name for name, part in zip(names, gold) for _ in part]
        ours = sts.aggregate(np.concatenate(system), np.concatenate(gold), subsets)
        for measure in ("spearman", "pearson"):
            for key in ("all", "mean", "wmean"):
                difference = ours[key][measure] - theirs[f"{year}_{measure}_{key}"]
                assert abs(difference) < 1e-12, (year, measure, key)
            for name in names:
                assert abs(ours["subsets"][name][measure] - theirs[f"{year}_{name}_{measure}"]) < 1e-12


def test_each_distinct_sentence_is_encoded_once():
    enc = Hashed()
    sts.cosines(enc, ["a", "bb", "a", "ccc"], ["bb", "a", "a", "dddd"])
    assert enc.seen == ["a", "bb", "ccc", "dddd"]


def test_cosines_are_right_and_ties_are_exact():
    rng = np.random.default_rng(2)
    words = [f"sentence {i}" for i in range(300)]
    vectors = dict(zip(words, rng.normal(size=(300, 48)).astype(np.float32)))
    vectors["the same vector"] = vectors[words[0]].copy()
    class Table:
        def encode(self, texts): return np.stack([vectors[text] for text in texts])
    a, b = words + [words[0], "the same vector"], words[::-1] + ["the same vector", words[0]]
    got = sts.cosines(Table(), a, b)
    for i in range(0, 302, 7):
        u, v = vectors[a[i]].astype(np.float64), vectors[b[i]].astype(np.float64)
        assert abs(got[i] - u @ v / np.sqrt((u @ u) * (v @ v))) < 1e-12
    assert np.array_equal(got[:300], got[:300][::-1]) # (x, y) and (y, x) tie exactly
    assert (sts.cosines(Table(), a, a) == 1).all() and got[300] == got[301] == 1
    order = rng.permutation(302)
    assert np.array_equal(got[order], sts.cosines(Table(), [a[i] for i in order], [b[i] for i in order]))


@pytest.mark.parametrize("bad", [0, np.nan, np.inf])
def test_a_sentence_without_a_direction_is_named(bad):
    class Broken:
        def encode(self, texts):
            return np.array([[bad, bad] if text == "the bad one" else [1, 2] for text in texts], np.float32)
    with pytest.raises(ValueError, match="'the bad one'"):
        sts.score(Broken(), ["good", "the bad one"], ["good", "good"], [1, 2])


def test_wrong_shapes_are_refused():
    class Flat:
        def encode(self, texts): return np.ones(len(texts))
    with pytest.raises(ValueError, match="expected one row per sentence"): sts.cosines(Flat(), ["a"], ["b"])
    with pytest.raises(ValueError, match="expected pairs"): sts.cosines(Hashed(), ["a"], ["b", "c"])
    with pytest.raises(ValueError, match="gold scores"): sts.score(Hashed(), ["a"], ["b"], [1, 2])
    with pytest.raises(ValueError, match="expected one of STS12"): sts.evaluate(Hashed(), "sts12")
    with pytest.raises(ValueError, match="subset 'forum' has 1 pair: a correlation needs at least 2"):
        sts.aggregate([.1, .2, .3], [1, 2, 3], ["news", "news", "forum"])


def test_columns_of_several_tests_are_not_shifted_into_one_another():
    a, b = ["aab", "abc", "bca"], ["abb", "abc", "jjj"]
    for first, second in (((a[:2], b[:2], [1, 2, 3]), (a[1:], b[1:], [1])),   # as many in all
                          ((a[:2], b[:1], [1, 2]), (a[2:], b[1:], [1]))):
        for function in (sts.cosines_by_set, sts.points):
            with pytest.raises(ValueError, match="set 'one' has 2 first sentences.*expected as many of each"):
                function(Hashed(), dict(one=first, two=second))


def test_scores_need_as_many_tests_as_columns_of_gold():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=50)
    near, far = gold + .1*rng.normal(size=50), rng.normal(size=50)
    for cosines, columns in (((near, far), gold), ((near,), (gold, gold)), ((near, far, far), gold)):
        with pytest.raises(ValueError, match="gold the scores of .*: expected as many"):
            sts.scores({("row", 0): cosines}, columns, redraws=20).estimate("row")
    later = sts.scores({}, gold, redraws=20)
    later["row", 0] = near, far
    with pytest.raises(ValueError, match="cosines of 2 tests, gold the scores of 1"): later.estimate("row")
    later["row", 0] = near
    assert later.estimate("row").value == 100*sts.spearman(near, gold)
    with pytest.raises(ValueError, match="3 columns"): sts.mean_spearman(near, far, gold)


def test_collapse_is_not_a_number():
    class Constant:
        def encode(self, texts): return np.ones((len(texts), 4), np.float32)
    assert np.isnan(sts.score(Constant(), list("abc"), list("def"), [1, 2, 3])["all"]["spearman"])


def test_families_and_average_are_those_of_table_5():
    path = data_dir("paper")/"pixel_table5.csv"
    if not path.is_file(): pytest.skip("data/paper holds no pixel_table5.csv")
    columns = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            columns.setdefault((row["row_group"], row["row"]), {})[row["column"]] = float(row["value"])
    assert len(columns) == 16
    differing = []
    for key, printed in columns.items():
        means = sts.add_family_means({language: printed[language] for language in LANGUAGES})
        assert set(means) == set(printed), key
        # each is printed to .005, and so is their mean
        differing += [(key, name) for name in printed if abs(printed[name] - means[name]) > .0101]
    assert differing == []


def test_interval_covers_what_it_should():
    rng, inside = np.random.default_rng(3), 0
    for seed in range(60):
        x = rng.normal(size=150)
        y = .6 * x + .8 * rng.normal(size=150)
        low, high = sts.score_interval(x, y, 200, seed)
        inside += low < 6 / np.pi * np.arcsin(.6 / 2) < high # the rank correlation of a normal pair
        assert low < sts.spearman(x, y) < high
    assert 50 <= inside
    first, again, other = (sts.score_interval(x, y, 200, seed) for seed in (1, 1, 2))
    assert first == again != other
    wide = sts.score_interval(x, y, 200, 1, level=.99)
    narrow = sts.score_interval(x, y, 200, 1, level=.5)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


# Real data

@real
@pytest.mark.parametrize("name, n", [
    ("STS12", 3108), ("STS13", 1500), ("STS14", 3750), ("STS15", 3000), ("STS16", 1186), ("STS-B", 1379),
    ("SICK-R", 4927)])
def test_evaluate(name, n):
    got = sts.evaluate(Hashed(), name)
    assert got["n"] == n == sum(part["n"] for part in got["subsets"].values())
    rows, enc = sts_rows(name), Hashed()
    x, y = (enc.encode([row[side] for row in rows]).astype(np.float64) for side in ("sentence1", "sentence2"))
    plain = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    expected = stats.spearmanr(plain, [row["score"] for row in rows]).statistic
    assert abs(got["all"]["spearman"] - expected) < 2e-3 # apart by ties only
    assert .2 < got["all"]["spearman"] < .9


@real
def test_multilingual_is_each_language_alone():
    enc = Hashed()
    got = sts.evaluate_languages(enc, "dev")
    assert list(got) == list(LANGUAGES) and len(enc.seen) == len(set(enc.seen))
    for language in ("en", "zh"):
        alone = sts.evaluate(Hashed(), "STS-B", "dev", language)
        assert abs(got[language] - 100 * alone["all"]["spearman"]) < 1e-9
    assert len(sts.add_family_means(got)) == 15

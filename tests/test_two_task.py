"What stands beside SimCSE, compared seed by seed: rates by dev alone, leads, and the rule of a t-test."
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind, ttest_ind_from_stats, ttest_rel

from sentnb import recipes, results
from sentnb.encoders.base import SentenceEncoder

TESTS = {name: (["a"], ["b"], [1.]) for name in ("dev", "one", "two")}


def frame(gains) -> pd.DataFrame:
    "SimCSE at 10 and 20, 11 and 21 ...; ours above it by a number per seed, in both tests."
    rows = []
    for seed, gain in enumerate(gains):
        for condition, lead in (("SimCSE", 0.), ("ours", gain)):
            one, two = 10. + seed + lead, 20. + seed + lead
            values = dict(one=one, two=two, dev=99.)
            rows.append(
                dict(base="b", condition=condition, seed=seed, **values) | {"Avg.": np.mean([one, two])}
            )
    return pd.DataFrame(rows)


def test_leads_are_of_one_seed():
    scores = frame([1., 2., 3.])
    assert recipes.scores_by_seed(scores, "b", "SimCSE").tolist() == [15, 16, 17]
    assert recipes.scores_by_seed(scores, "b", "ours", ["one"]).tolist() == [11, 13, 15]
    lead = recipes.estimate_lead(scores, "b", "ours")
    assert lead.value == 2 and lead.by_seed == (1, 2, 3) and lead.quantity == "b: ours minus SimCSE"
    assert recipes.estimate_lead(scores, "b", "ours", test="two").quantity == "b: ours minus SimCSE, two"
    both = recipes.estimate_lead(scores, "b", "SimCSE", "ours", ["one", "two"], "both")
    assert both.quantity == "b: SimCSE minus ours, both"
    with pytest.raises(KeyError, match="images"): recipes.scores_by_seed(scores, "b", "images")


def test_a_metric_counts_for_the_seeds_that_have_it():
    scores = frame([1., 2.])
    scores["extra"] = [1., 2., None, 4.]
    assert recipes.scores_by_seed(scores, "b", "SimCSE", "extra").tolist() == [1.]
    assert recipes.scores_by_seed(scores, "b", "ours", ["extra", "one"]).tolist() == [6.5, 8.5]
    assert not len(recipes.scores_by_seed(scores, "b", "ours", "none"))


def test_seeds_are_paired_by_number_not_by_place():
    scores = frame([1., 2., 3.])
    without_first = scores[(scores["condition"] == "SimCSE") | (scores["seed"] > 0)]
    assert recipes.estimate_lead(without_first, "b", "ours").by_seed == (2, 3)
    assert recipes.estimate_lead(without_first, "b", "SimCSE", "ours").by_seed == (-2, -3)
    scores["extra"] = [1., None, 2., 12., 3., 23.]   # ours has no value of seed 0
    assert recipes.estimate_lead(scores, "b", "ours", test="extra").by_seed == (10, 20)


@pytest.mark.parametrize("gains, verdict", [
    ([6., 6.1, 5.9, 6.05], "holds"), ([-6., -6.1, -5.9, -6.05], "fails"),
    ([2., 2.1, 1.9, 2.05], "inconclusive at this scale"),   # far from 0 in pairs, not unpaired
    ([2., -2., 1.5, -1.4], "inconclusive at this scale"), ([3.], "inconclusive at this scale"),
    ([0., 0., 0.], "inconclusive at this scale")])
def test_significance(gains, verdict):
    scores = frame(gains)
    assert recipes.settle_significance(scores, "b", "ours").verdict == verdict
    if len(gains) > 1 and any(gains):
        first, second = (recipes.scores_by_seed(scores, "b", name) for name in ("ours", "SimCSE"))
        expected = ttest_ind(first, second).pvalue
        assert recipes.unpaired_p_value(scores, "b", "ours") == pytest.approx(expected)
    else: assert recipes.unpaired_p_value(scores, "b", "ours") == 1


def test_the_printed_p_is_an_unpaired_one():
    "Of Table 3: five seeds with the printed means and deviations give the printed p."
    points = results.published("nonling_table3").set_index(["row", "column"])
    def values(row): # five numbers with this mean and this deviation
        shape = np.array([-2., -1., 0., 1., 2.])
        mean, deviation = points.loc[(row, "Avg."), ["value", "std"]]
        return mean + deviation*shape/shape.std(ddof=1)
    rows = [dict(base="b", condition=condition, seed=seed, **{"Avg.": value})
            for condition, row in (("SimCSE", "SimCSE-BERT-base"), ("ours", "VisualCSE-BERT-base"))
            for seed, value in enumerate(values(row))]
    p = recipes.unpaired_p_value(pd.DataFrame(rows), "b", "ours")
    assert p == pytest.approx(points.loc[("SimCSE-BERT-base", "p"), "value"], abs=5e-5)
    welch = ttest_ind_from_stats(75.74, .9, 5, 76.96, .38, 5, equal_var=False).pvalue
    assert abs(welch - p) > .005, "equal variances are assumed"


def test_bases_are_corrected_together():
    clear, weak = (recipes.estimate_lead(frame(gains), "b", "ours")
                   for gains in ([2., 2.1, 1.9, 2.05], [1., .3, .9, .4]))
    alone, = recipes.settle_on_bases([weak])
    assert alone.verdict == "holds" and alone.estimate is weak
    assert alone.low == pytest.approx(ttest_rel([1., .3, .9, .4], [0.]*4).pvalue)
    three = recipes.settle_on_bases([clear, weak, weak])
    assert [part.verdict for part in three] == ["holds"] + 2*["inconclusive at this scale"]
    assert three[1].low == pytest.approx(2*alone.low)
    one_seed, = recipes.settle_on_bases([recipes.estimate_lead(frame([1.]), "b", "ours")])
    assert one_seed.verdict == "inconclusive at this scale"
    mixed = recipes.settle_on_bases([clear, one_seed.estimate, weak, weak])
    assert [mixed[i].low for i in (0, 2, 3)] == [part.low for part in three]
    assert mixed[1].low is None and "one seed" in str(mixed[1]) and mixed[1].estimate is one_seed.estimate


def test_no_similar_pairs_on_dev_is_no_number(monkeypatch):
    class Random(SentenceEncoder):
        width, has_head = 3, False
        def encode_window(self, texts, *options):
            return np.random.default_rng(0).normal(size=(len(texts), 3)).astype(np.float32)
    def measure(highest):
        dev = (["a", "b", "c"], ["d", "e", "f"], [1., 2., highest])
        grid = recipes.ConditionGrid(None, dict(dev=dev), None, None, {}, look_every=1)
        return grid.measure(Random(), ["dev"])
    assert np.isfinite(list(measure(4.).values())).all()
    dissimilar = measure(3.)
    assert np.isnan(dissimilar.pop("alignment")) and np.isfinite(list(dissimilar.values())).all()


def test_a_row_that_the_paper_does_not_print_is_left_out(tmp_path):
    scores, run = frame([1., 2.]), results.Run("beside", "demo", {}, folder=tmp_path)
    rows = {"SimCSE-{}": "SimCSE", "VisualCSE-{}": "ours"}
    both = pd.concat([scores, scores.assign(base="large")])
    bases = {"b": "BERT-base", "large": "RoBERTa-large"}   # Table 3 has no RoBERTa-large
    recipes.add_published_rows(run, "nonling_table3", both, rows, bases, {"Avg.": "Avg."})
    assert set(run.rows("nonling_table3")["row"]) == {"SimCSE-BERT-base", "VisualCSE-BERT-base"}

def test_a_rate_is_chosen_on_dev_with_a_seed_of_its_own(monkeypatch, tmp_path):
    calls = []
    def evaluate(self, base, condition, rate, seed, names=None):
        calls.append((condition, rate, seed, tuple(names)))
        return dict(dev=-abs(rate - 2e-4))
    monkeypatch.setattr(recipes.ConditionGrid, "evaluate", evaluate)
    study = SimpleNamespace(seed=0, run=results.Run("beside", "demo", {}, folder=tmp_path))
    grid = recipes.ConditionGrid(study, TESTS, None, None, {}, look_every=1)
    assert grid.choose_rate("b", "ours", [1e-4, 2e-4, 4e-4], "choices", "b, rate") == 2e-4
    assert {(condition, names) for condition, _, _, names in calls} == {("ours", ("dev",))}
    seeds = {seed for _, _, seed, _ in calls}
    assert len(seeds) == 1 and not seeds & {0, 1}
    assert list(study.run.rows("choices")["column"]) == ["0.0001", "0.0002", "0.0004"]
    del calls[:]
    assert grid.choose_rate("b", "ours", [3e-4], "choices", "b, rate") == 3e-4 and not calls


def test_a_row_for_each_training(monkeypatch):
    def evaluate(self, base, condition, rate, seed, names=None): return dict(one=1. + seed, two=3., dev=9.)
    monkeypatch.setattr(recipes.ConditionGrid, "evaluate", evaluate)
    grid = recipes.ConditionGrid(None, TESTS, None, None, {}, look_every=1)
    scores = grid.evaluate_all({"b": [None, "SimCSE"]}, {}, lambda condition: [0, 1] if condition else [0])
    assert scores["condition"].tolist() == ["before training", "SimCSE", "SimCSE"]
    assert scores["Avg."].tolist() == [2., 2., 2.5], "dev is no part of the mean"


def test_tests_are_drawn_the_same_each_time():
    first, again = (recipes.load_similarity_tests("microworld", 5) for _ in range(2))
    assert first == again and {len(scores) for _, _, scores in first.values()} == {5}
    texts = [tuple(first[name][0]) for name in first]
    assert len(set(texts)) == len(texts) == 8
    assert np.isfinite([score for _, _, scores in first.values() for score in scores]).all()

"What stands beside SimCSE, compared seed by seed: rates by dev alone, leads, and the rule of a t-test."
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from sentnb import recipes, results

TESTS = {name: (["a"], ["b"], [1.]) for name in ("dev", "one", "two")}


def compared(gains, **changes):
    "SimCSE at 10 and 20, 11 and 21 ...; ours above it by a number a seed, in both tests."
    simcse = [dict(one=10. + i, two=20. + i, dev=99.) for i in range(len(gains))]
    ours = [dict(one=of["one"] + gain, two=of["two"] + gain, dev=0.) for of, gain in zip(simcse, gains)]
    run = results.Run("beside", "demo", {})
    study = SimpleNamespace(seeds=list(range(len(gains))), seed=0, run=run)
    return recipes.Beside(study, {}, {}, [], TESTS, lambda *of: None, ours="ours", look_every=1, **changes,
                          trained={("b", "SimCSE"): simcse, ("b", "ours"): ours})


def test_leads_are_of_one_seed():
    of = compared([1., 2., 3.])
    assert of.by_seed("b", "SimCSE").tolist() == [15, 16, 17]   # dev is no part of the mean
    assert of.by_seed("b", "ours", ["one"]).tolist() == [11, 13, 15]
    lead = of.lead("b", "ours")
    assert lead.value == 2 and lead.by_seed == (1, 2, 3) and lead.quantity == "b: ours less SimCSE"
    assert of.lead("b", "ours", test="two").quantity == "b: ours less SimCSE, two"
    assert of.lead("b", "SimCSE", "ours", ["one", "two"], "both").quantity == "b: SimCSE less ours, both"


@pytest.mark.parametrize("gains, verdict", [
    ([2., 2.1, 1.9, 2.05], "holds"), ([-2., -2.1, -1.9, -2.05], "fails"),
    ([2., -2., 1.5, -1.4], "inconclusive at this scale"), ([3.], "inconclusive at this scale"),
    ([0., 0., 0.], "inconclusive at this scale")])
def test_significance(gains, verdict):
    of = compared(gains)
    assert of.significant("b").verdict == verdict
    if len(gains) > 1 and any(gains):
        expected = ttest_rel(of.by_seed("b", "ours"), of.by_seed("b", "SimCSE")).pvalue
        assert of.p_value("b") == pytest.approx(expected)
    else: assert of.p_value("b") == 1


def test_a_rate_is_chosen_on_dev_with_a_seed_of_its_own(monkeypatch):
    asked = []
    def scores(self, base, condition, rate, seed, names=None):
        asked.append((condition, rate, seed, tuple(names)))
        return dict(dev=-abs(rate - 2e-4))
    monkeypatch.setattr(recipes.Beside, "scores", scores)
    of = compared([1., 2.])
    assert of.chosen_rate("b", [1e-4, 2e-4, 4e-4], "choices", "b, rate") == 2e-4
    assert {(condition, names) for condition, _, _, names in asked} == {("ours", ("dev",))}
    seeds = {seed for _, _, seed, _ in asked}
    assert len(seeds) == 1 and not seeds & {0, 1}
    assert list(of.study.run.rows("choices")["column"]) == ["0.0001", "0.0002", "0.0004"]
    del asked[:]
    assert of.chosen_rate("b", [3e-4], "choices", "b, rate") == 3e-4 and not asked


def test_tests_are_drawn_the_same_each_time():
    first, again = (recipes.load_similarity_tests("microworld", 5) for _ in range(2))
    assert first == again and {len(scores) for _, _, scores in first.values()} == {5}
    texts = [tuple(first[name][0]) for name in first]
    assert len(set(texts)) == len(texts) == 8
    assert np.isfinite([score for _, _, scores in first.values() for score in scores]).all()

"""Scores over seeds and items, claims made of comparisons, and the tables that a reader sees."""
import math

import numpy as np
import pytest

from sentnb import results
from sentnb.results import Run, interval, not_run, paired_difference, settle

SEEDS = (0, 1, 2)
GOLD = np.random.default_rng(7).normal(size=120)


def correlation(*columns: np.ndarray) -> float: # tests first, then their gold
    half = len(columns)//2
    return float(np.mean([100*np.corrcoef(x, y)[0, 1] for x, y in zip(columns[:half], columns[half:])]))


def items(row: str, seed: int, tests: int=1) -> tuple:
    noise = dict(base=3, plain=2, better=1)[row]
    rng = np.random.default_rng(5 if row == "base" else 10*seed + noise)  # no seed touches the base
    return tuple(GOLD + noise*rng.normal(size=len(GOLD)) for _ in range(tests))


def scores_of(seeds=SEEDS, tests: int=1, **options) -> results.Scores:
    measured = {(row, seed): items(row, seed, tests) for seed in seeds for row in ("base", "plain", "better")}
    return results.Scores(measured, correlation, [GOLD]*tests, redraws=40, **options)


def test_scores_over_seeds_are_students():
    scores = scores_of()
    each = [[correlation(*items(row, seed), GOLD) for seed in SEEDS] for row in ("better", "plain")]
    row, lead = scores.estimate("better"), scores.lead("better", "plain")
    assert row.bounds == interval(each[0]) and row.value == np.mean(each[0]) and row.n_seeds == 3
    assert lead.bounds == paired_difference(*each) and lead.value == np.mean(np.subtract(*each))
    assert lead.by_seed == tuple(np.subtract(*each))


@pytest.mark.parametrize("tests", [1, 3])
def test_scores_of_one_seed_are_paired_over_items(tests):
    scores = scores_of([1], tests, seed=4)
    better, plain, gold = items("better", 1, tests), items("plain", 1, tests), [GOLD]*tests
    def difference(*columns):
        return correlation(*columns[:tests], *columns[2*tests:]) - correlation(*columns[tests:])
    lead = scores.lead("better", "plain")
    assert lead.bounds == results.bootstrap(difference, *better, *plain, *gold, n=40, seed=4)
    assert lead.n_seeds == 1
    assert scores.estimate("plain").bounds == results.bootstrap(correlation, *plain, *gold, n=40, seed=4)


def test_what_no_seed_has_touched_has_no_interval_over_seeds():
    scores = scores_of()
    assert scores.fixed("base") and not scores.fixed("plain") and not scores_of([0]).fixed("base")
    base = scores.estimate("base")
    assert base.n_seeds == 1 and base.bounds == scores_of([0]).estimate("base").bounds != (
        base.value,
        base.value,
    )
    assert scores.lead("better", "base").n_seeds == 3, "the other row has seeds"


def test_a_lead_over_several_is_over_their_mean():
    scores = scores_of()
    values = [
        np.subtract(scores.by_seed("better"), np.mean([scores.by_seed("base"), scores.by_seed("plain")], 0))
    ]
    lead = scores.lead("better", ["base", "plain"], "both")
    assert np.allclose(lead.by_seed, values) and lead.quantity == "better less both"
    named = scores_of(name="English", label=str.upper)
    assert named.lead("better", ["base", "plain"]).quantity == "English: BETTER less BASE and PLAIN"


def test_means_are_compared_item_by_item():
    x = np.random.default_rng(0).random(50)
    scores = results.Scores({("a", 0): x + 0.25, ("b", 0): x}, redraws=30)
    assert scores.lead("a", "b").bounds == (0.25, 0.25), "what both have cancels exactly"


def test_rows_are_written_with_their_intervals(tmp_path):
    run, scores = Run("03_alignment", "small", {}, folder=tmp_path), scores_of()
    for row in scores.rows: scores.write(run, "t", row, "kept")
    scores.write(run, "t", "another name", "x", scores_row="plain", per_seed=False)
    scores.write(run, "t", "base", "x", interval=False)
    results.Scores({("number", 0): 2.0}).write(run, "t", "number", "x")
    points, lead = run.points("t"), scores.estimate("plain")
    assert points["another name", "x"] == pytest.approx([*lead], rel=1e-5)
    assert points["plain", "kept"] == pytest.approx([*lead], rel=1e-4)
    assert points["base", "x"][1:] == (None, None) == points["number", "x"][1:]
    assert points["base", "kept"] == pytest.approx([*scores.estimate("base")], rel=1e-5)
    assert run.numbers["n_seeds"].tolist() == [1, 3, 3, 3, 1, 1]


def test_draws_are_of_the_stream_that_is_named():
    options = dict(draws=dict(stream="row"), lead_draws=dict(stream="lead", mixed=True))
    scores, plain = scores_of([0], **options), items("plain", 0)
    assert scores.estimate("plain").bounds == results.bootstrap(correlation, *plain, GOLD, n=40, stream="row")
    def lead(x, y, g): return correlation(x, g) - correlation(y, g)
    drawn = results.bootstrap(lead, *items("better", 0), *plain, GOLD, n=40, stream="lead", mixed=True)
    assert scores.lead("better", "plain").bounds == drawn


def test_scores_refuse_what_they_cannot_compare():
    scores = results.Scores({("a", 0): 1.0, ("b", 1): 2.0})
    with pytest.raises(ValueError, match="no seed in common"): scores.lead("a", "b")
    with pytest.raises(ValueError, match="no scores of 'c'; there are 'a', 'b'"): scores.estimate("c")
    with pytest.raises(ValueError, match="has numbers; expected arrays"):
        results.Scores({("a", 0): (1.0, 2.0)})
    assert not results.Scores({("a", 0): math.nan}).defined("a")
    scores = results.Scores({("a", 0): [1., 2., 3.], ("b", 0): [3.]})
    with pytest.raises(ValueError, match="'a' has 3 items and 'b' 1: expected"): scores.lead("a", "b")
    with pytest.raises(ValueError, match="direction='≥'"): scores.settle_family(["a"], ["a"], direction="≥")
    with pytest.raises(ValueError, match="3 redraws of 0 items"): results.redraw_counts(0, 3)


# Claims made of comparisons

def test_a_claim_writes_and_settles_its_parts(tmp_path):
    run, scores = Run("03_alignment", "small", {}, folder=tmp_path), scores_of(name="English")
    parts = [scores.lead("better", over) > 0 for over in ("base", "plain")] + [not_run("another")]
    verdict_text = run.claim("pixel-6", parts, "one", "gains", "{claim}: {row}, {name}", "less {over}")
    assert verdict_text == "inconclusive at this scale"
    written = run.rows("gains")
    assert written[["row", "column"]].to_numpy().tolist() == [["pixel-6: better, English", "less base"],
                                                              ["pixel-6: better, English", "less plain"]]
    rule = run.claims.iloc[0]["rule"]
    assert rule == "all of: English: better less base > 0, whole interval; " \
                   "English: better less plain > 0, whole interval; another"
    one = scores.lead("plain", "better").with_quantity("plain less better")
    assert run.claim("pixel-5", one < -1, table="gains") in results.VERDICTS
    assert run.claims.iloc[1]["rule"] == "plain less better < -1, whole interval"
    assert ("pixel-5", "plain less better") in run.points("gains")


def test_a_comparison_has_no_truth_of_its_own():
    with pytest.raises(TypeError, match="settled by its interval"): bool(results.over_seeds([1, 2]) > 0)


@pytest.mark.parametrize("least, verdict", [(1, "holds"), (2, "inconclusive at this scale"), (3, "fails")])
def test_settle_most_counts(least, verdict):
    parts = [settle((1, 2)), settle((-1, 1)), settle((-2, -1))]
    assert results.settle_most(least, parts, "x > 0").verdict == verdict


def test_a_count_of_parts_that_were_not_measured():
    untested = results.cannot_be_tested("no base")
    assert results.settle_most(2, [not_run()]*3, "x").verdict == "not run"
    for parts in ([untested]*3, [untested, not_run(), not_run()]):
        assert results.settle_most(2, parts, "x").verdict == "cannot be tested here"
    assert results.settle_most(1, [not_run(), settle((1, 2))], "x").verdict == "holds"
    assert results.settle_most(1, [not_run(), settle((-2, -1))], "x").verdict == "inconclusive at this scale"


@pytest.mark.parametrize("p", [math.nan, -.1, 1.1])
@pytest.mark.parametrize("difference", [None, 1., -1.])
def test_what_is_no_probability_settles_nothing(p, difference):
    with pytest.raises(ValueError, match="expected a probability from 0 to 1, or None"):
        results.settle_p_value(p, "gain, t-test:", difference)


# Tables for the reader

def test_a_table_of_the_run_keeps_its_order_and_its_gaps(tmp_path):
    run = Run("03_alignment", "small", {}, folder=tmp_path)
    run.add("t", "b", "y", 1.234, 1, 2)
    run.add("t", "a", "x", -0.5)
    wide = run.table("t", intervals=True)
    assert wide.index.tolist() == ["b", "a"] and wide.columns.tolist() == ["y", "x"]
    assert wide.to_numpy().tolist() == [["1.23 [1.00, 2.00]", ""], ["", "-0.50"]]
    assert run.table("t", ["a", "b"], ["x"], digits=1).to_numpy().tolist() == [["-0.5"], [""]]
    assert run.table("t", across=True).shape == (2, 2) and run.table("t", long=True).loc["b", "low"] == "1.00"

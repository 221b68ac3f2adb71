"Robustness under perturbations: against naive loops, invariances, refusals; and what the two notebooks of it demand of their runs."
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import spearmanr

from sentnb import augmenters, results
from sentnb.evaluation import robustness
from sentnb.evaluation.robustness import PERTURBATIONS, Robustness

WORDS = "the quick brown fox jumps over lazy dogs while seven angry wizards quietly drink cold black coffee near Paris".split()


class Hashed:
    "Sums of vectors of letter trigrams; remembers what it was asked for."
    def __init__(self, sign=1.):
        self.asked, self.sign = [], sign
        self.table = np.random.default_rng(0).normal(size=(997, 24))

    def encode(self, texts):
        self.asked.append(list(texts))
        places = [[(31*31*ord(a) + 31*ord(b) + ord(c)) % 997 for a, b, c in zip(f"  {t}", f" {t} ", f"{t}  ")] for t in texts]
        return self.sign*np.stack([self.table[place].sum(0) for place in places])


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(1)
    first = [" ".join(rng.choice(WORDS, 7, replace=False)) for _ in range(40)]
    kept = rng.integers(0, 8, 40)
    second = [" ".join([*text.split()[:k], *rng.choice(WORDS, 7 - k)]) for text, k in zip(first, kept)]
    return first, second, kept.astype(float)


def cosines(x, y): return 1 - robustness.shifts(x, y)   # checked below; a rounding of its own would break ties otherwise


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize("sides", ["first", "both"])
def test_effect_is_what_a_loop_finds(pairs, name, sides):
    first, second, gold = pairs
    probe = Robustness(Hashed(), *pairs, redraws=60, seed=3)
    effect, plain = probe.effect(name, draws=2, sides=sides), Hashed()
    shift, change = [], []
    for seed in (3, 4):
        x = [augmenters.perturb(text, name, seed) for text in first]
        y = [augmenters.perturb(text, name, seed) for text in second] if sides == "both" else second
        shift.append(1 - cosines(plain.encode(first), plain.encode(x)))
        change.append(100*(spearmanr(cosines(plain.encode(x), plain.encode(y)), gold).statistic - spearmanr(cosines(plain.encode(first), plain.encode(second)), gold).statistic))
    assert effect.shift == pytest.approx(np.mean(shift), abs=1e-9)
    assert effect.change == pytest.approx(np.mean(change), abs=1e-6)
    assert (effect.n, effect.draws, effect.sides, effect.name) == (40, 2, sides, name)
    assert effect.shift_low <= effect.shift <= effect.shift_high and effect.change_low < effect.change_high
    rows = probe._rows[1:]
    before, after = cosines(plain.encode(first), plain.encode(second)), [cosines(plain.encode(x), plain.encode(y)) for x, y in
        (([augmenters.perturb(t, name, s) for t in first], [augmenters.perturb(t, name, s) for t in second] if sides == "both" else second) for s in (3, 4))]
    naive = [100*(np.mean([spearmanr(a[row], gold[row]).statistic for a in after]) - spearmanr(before[row], gold[row]).statistic) for row in rows]
    np.testing.assert_allclose(effect.samples, naive, atol=1e-6)
    assert (effect.change_low, effect.change_high) == pytest.approx(np.quantile(naive, (.025, .975)), abs=1e-6)


def test_score(pairs):
    probe = Robustness(Hashed(), *pairs, redraws=80)
    vectors = [Hashed().encode(side) for side in pairs[:2]]
    assert probe.score == pytest.approx(100*spearmanr(cosines(*vectors), pairs[2]).statistic)
    assert probe.score_interval[0] < probe.score < probe.score_interval[1]


def test_the_pairs_are_encoded_once(pairs):
    encoder = Hashed()
    probe = Robustness(encoder, *pairs, redraws=10)
    clean = [text for asked in encoder.asked for text in asked]
    assert sorted(clean) == sorted({*pairs[0], *pairs[1]})
    encoder.asked.clear()
    probe.table(sides="both")
    assert not {text for asked in encoder.asked for text in asked} & set(clean)
    assert all(len(set(asked)) == len(asked) for asked in encoder.asked)
    encoder.asked.clear()
    effect = probe.effect("word_shuffle", rate=0)
    assert encoder.asked == [] and (effect.shift, effect.change, effect.changed) == (0, 0, 0) and not effect.samples.any()


def test_more_draws_are_averages(pairs):
    one = [Robustness(Hashed(), *pairs, redraws=20, seed=seed).effect("char_delete") for seed in (0, 1, 2)]
    three = Robustness(Hashed(), *pairs, redraws=20, seed=0).effect("char_delete", draws=3)
    assert three.shift == pytest.approx(np.mean([effect.shift for effect in one])) and three.change == pytest.approx(np.mean([effect.change for effect in one]))


def test_the_same_seed_gives_the_same(pairs):
    a, b, c = (Robustness(Hashed(), *pairs, redraws=30, seed=seed).effect("char_insert", rate=0.5) for seed in (0, 0, 1))
    assert a == b and (a.samples == b.samples).all() and a != c


def test_a_mirrored_space_changes_nothing(pairs):
    a, b = (Robustness(Hashed(sign), *pairs, redraws=30).table() for sign in (1, -7.))
    for name in PERTURBATIONS: assert a[name].shift == pytest.approx(b[name].shift) and a[name].change == pytest.approx(b[name].change)


def test_stronger_typos_shift_more(pairs):
    curve = Robustness(Hashed(), *pairs, redraws=10).curve("char_substitute", draws=2)
    assert [effect.settings["rate"] for effect in curve] == [0.1, 0.25, 0.5, 1.0]
    assert [effect.shift for effect in curve] == sorted(effect.shift for effect in curve) and curve[-1].shift > 3*curve[0].shift


def test_difference_is_paired(pairs):
    probe = Robustness(Hashed(), *pairs, redraws=50)
    a, b = probe.effect("char_insert"), probe.effect("word_shuffle")
    assert robustness.difference(a, a) == (0, 0)
    low, high = robustness.difference(a, b)
    assert (low, high) == tuple(-x for x in robustness.difference(b, a)[::-1]) and low < a.change - b.change < high
    assert high - low < (a.change_high - a.change_low) + (b.change_high - b.change_low)
    robustness.difference(a, Robustness(Hashed(-1.), *pairs, redraws=50).effect("char_insert"))
    for other in (Robustness(Hashed(), *pairs, redraws=51), Robustness(Hashed(), *pairs, redraws=50, seed=1), Robustness(Hashed(), *(column[::-1] for column in pairs), redraws=50)):
        with pytest.raises(ValueError, match="not of the same pairs"): robustness.difference(a, other.effect("char_insert"))


@given(st.lists(st.tuples(st.floats(-5, 5, width=16), st.floats(-5, 5, width=16)).filter(lambda v: abs(v[0]) + abs(v[1]) > .01), min_size=1, max_size=8), st.floats(.1, 9))
@settings(deadline=None)
def test_shifts(rows, scale):
    x = np.array(rows)
    turned = x @ np.array([[0, 1], [-1, 0]])
    assert (robustness.shifts(x, x) == 0).all()
    np.testing.assert_allclose(robustness.shifts(x, scale*x), 0, atol=1e-12)
    np.testing.assert_allclose(robustness.shifts(x, turned), 1, atol=1e-12)
    np.testing.assert_allclose(robustness.shifts(x, -x), 2, atol=1e-12)


@pytest.mark.parametrize("call, message", [
    (lambda s, t, g: Robustness(Hashed(), s, t[:-1], g), "as many of each"),
    (lambda s, t, g: Robustness(Hashed(), s[:2], t[:2], g[:2]), "at least 3"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, redraws=1), "redraws=1"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, level=95), "level=95"),
    (lambda s, t, g: Robustness(Hashed(), s, t, 0*g), "are constant"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, redraws=5).effect("typo"), "name='typo': expected one of char_insert"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, redraws=5).effect("char_swap", sides="second"), "sides='second'"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, redraws=5).effect("char_swap", draws=0), "draws=0"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, redraws=5).effect("char_swap", rate=2), "rate=2"),
    (lambda s, t, g: Robustness(Hashed(0.), s, t, g), "no direction"),
    (lambda s, t, g: robustness.shifts(np.ones((2, 3)), np.ones((2, 4))), "expected \\[n, d\\] twice"),
])
def test_refused(pairs, call, message):
    with pytest.raises(ValueError, match=message): call(*pairs)


@given(st.text("abc"), st.text("abc"))
def test_token_overlap(a, b):
    found = robustness.token_overlap(a, b)
    assert 0 <= found <= 1 and found == robustness.token_overlap(b, a) and (found == 1) == (sorted(a) == sorted(b)) and (found == 0) == (bool(a or b) and not set(a) & set(b))


def test_ink_overlap():
    strip = np.full((16, 48), 255, np.uint8)
    strip[4:8, 5:40] = 0
    wider = np.pad(strip, ((0, 0), (0, 32)), constant_values=255)
    half = strip.copy(); half[:, 20:] = 255
    assert robustness.ink_overlap(strip, strip) == robustness.ink_overlap(strip, wider) == 1
    assert robustness.ink_overlap(strip, half) == pytest.approx(15/35) and robustness.ink_overlap(strip, 255*np.ones_like(strip)) == 0
    with pytest.raises(ValueError, match="same height"): robustness.ink_overlap(strip, strip[:8])


@pytest.mark.parametrize("notebook, tables, claims", [("01_robustness", ["pixel_table1"], ["pixel-1", "pixel-2"]), ("02_vanilla_geometry", ["pixel_table2", "pixel_table3", "pixel_table9"], ["pixel-3", "pixel-4"])])
def test_committed_runs_fill_their_tables(root, notebook, tables, claims):
    "What stands in figures/ at small: each printed cell has a number, and each claim a verdict."
    folder = root/"figures"/notebook/"small"
    if not (folder/"run.json").is_file(): pytest.skip(f"{notebook} was not run at small yet: sentnb run {notebook} -p small")
    record = results.load_run(folder)
    for table in tables:
        beside = results.compare(record, table)
        assert not beside["paper"].isna().all() and beside[beside["paper"].notna()]["ours"].notna().all(), table
    assert sorted(record.claims["claim"]) == claims and set(record.claims["verdict"]) <= set(results.VERDICTS)


def test_the_names_of_the_table_are_the_published_ones(root):
    "A row that is spelled otherwise would stand beside the paper's instead of in it."
    source = "".join("".join(cell["source"]) for cell in json.loads((root/"nbs"/"01_robustness.ipynb").read_text(encoding="utf-8"))["cells"])
    theirs = results.published("pixel_table1")
    for row in {results.row_key(*pair) for pair in zip(theirs["row_group"], theirs["row"])}: assert f'"{row}"' in source

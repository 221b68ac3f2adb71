"Robustness under perturbations: against naive loops, invariances, refusals; what its two notebooks demand."
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import spearmanr

from sentnb import augmenters, results
from sentnb.evaluation import robustness
from sentnb.evaluation.robustness import PERTURBATIONS, Robustness

WORDS = ("the quick brown fox jumps over lazy dogs while seven angry wizards quietly drink cold black coffee "
         "near Paris").split()


class Hashed:
    "Sums of vectors of letter trigrams; remembers what it was asked for."
    def __init__(self, sign=1.):
        self.asked, self.sign = [], sign
        self.table = np.random.default_rng(0).normal(size=(997, 24))

    def encode(self, texts):
        self.asked.append(list(texts))
        def places(text):
            trigrams = zip(f"  {text}", f" {text} ", f"{text}  ")
            return [(31*31*ord(a) + 31*ord(b) + ord(c)) % 997 for a, b, c in trigrams]
        return self.sign*np.stack([self.table[places(text)].sum(0) for text in texts])


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(1)
    first = [" ".join(rng.choice(WORDS, 7, replace=False)) for _ in range(40)]
    kept = rng.integers(0, 8, 40)
    second = [" ".join([*text.split()[:k], *rng.choice(WORDS, 7 - k)]) for text, k in zip(first, kept)]
    return first, second, kept.astype(float)


def cosines(x, y): # checked below; a rounding of its own would break ties otherwise
    return 1 - robustness.shifts(x, y)


@pytest.mark.parametrize("name", PERTURBATIONS)
@pytest.mark.parametrize("sides", ["first", "both"])
def test_effect_is_what_a_loop_finds(pairs, name, sides):
    first, second, gold = pairs
    probe = Robustness(Hashed(), *pairs, redraws=60, seed=3)
    effect, encode = probe.effect(name, draws=2, sides=sides), Hashed().encode
    def perturbed(texts, seed): return [augmenters.perturb(text, name, seed) for text in texts]
    before, after, shift = cosines(encode(first), encode(second)), [], []
    for seed in (3, 4):
        x, y = perturbed(first, seed), perturbed(second, seed) if sides == "both" else second
        after.append(cosines(encode(x), encode(y)))
        shift.append(1 - cosines(encode(first), encode(x)))
    def change(rows):
        scores = [spearmanr(values[rows], gold[rows]).statistic for values in after]
        return 100*(np.mean(scores) - spearmanr(before[rows], gold[rows]).statistic)
    assert effect.shift.value == pytest.approx(np.mean(shift), abs=1e-9)
    assert effect.change.value == pytest.approx(change(np.arange(40)), abs=1e-6)
    assert (effect.n, effect.draws, effect.sides, effect.name) == (40, 2, sides, name)
    assert effect.shift.low <= effect.shift.value <= effect.shift.high
    assert effect.change.low < effect.change.high
    naive = [change(rows) for rows in probe._rows[1:]]
    np.testing.assert_allclose(effect.samples, naive, atol=1e-6)
    assert effect.change.bounds == pytest.approx(np.quantile(naive, (.025, .975)), abs=1e-6)


def test_score(pairs):
    probe = Robustness(Hashed(), *pairs, redraws=80)
    vectors = [Hashed().encode(side) for side in pairs[:2]]
    assert probe.score == pytest.approx(100*spearmanr(cosines(*vectors), pairs[2]).statistic)
    assert probe.score_interval[0] < probe.score < probe.score_interval[1]


def test_the_pairs_are_encoded_once(pairs):
    encoder = Hashed()
    probe = Robustness(encoder, *pairs, redraws=10)
    clean = [text for request in encoder.asked for text in request]
    assert sorted(clean) == sorted({*pairs[0], *pairs[1]})
    encoder.asked.clear()
    probe.table(sides="both")
    assert not {text for request in encoder.asked for text in request} & set(clean)
    assert all(len(set(request)) == len(request) for request in encoder.asked)
    encoder.asked.clear()
    effect = probe.effect("word_shuffle", rate=0)
    assert encoder.asked == [] and not effect.samples.any()
    assert (effect.shift.value, effect.change.value, effect.changed) == (0, 0, 0)


def test_more_draws_are_averages(pairs):
    def probe(seed): return Robustness(Hashed(), *pairs, redraws=20, seed=seed)
    single = [probe(seed).effect("char_delete") for seed in (0, 1, 2)]
    three = probe(0).effect("char_delete", draws=3)
    assert three.shift.value == pytest.approx(np.mean([effect.shift.value for effect in single]))
    assert three.change.value == pytest.approx(np.mean([effect.change.value for effect in single]))


def test_the_same_seed_gives_the_same(pairs):
    def numbers(seed):
        effect = Robustness(Hashed(), *pairs, redraws=30, seed=seed).effect("char_insert", rate=0.5)
        return [*effect.shift, *effect.change, effect.changed, *effect.samples]
    assert numbers(0) == numbers(0) != numbers(1)


def test_a_mirrored_space_changes_nothing(pairs):
    a, b = (Robustness(Hashed(sign), *pairs, redraws=30).table() for sign in (1, -7.))
    for name in PERTURBATIONS:
        assert [*a[name].shift] == pytest.approx([*b[name].shift])
        assert [*a[name].change] == pytest.approx([*b[name].change])


def test_stronger_typos_shift_more(pairs):
    curve = Robustness(Hashed(), *pairs, redraws=10).curve("char_substitute", draws=2)
    assert [effect.settings["rate"] for effect in curve] == [0.1, 0.25, 0.5, 1.0]
    shift = [effect.shift.value for effect in curve]
    assert shift == sorted(shift) and shift[-1] > 3*shift[0]


def test_difference_is_paired(pairs):
    probe = Robustness(Hashed(), *pairs, redraws=50)
    a, b = probe.effect("char_insert"), probe.effect("word_shuffle")
    assert robustness.difference(a, a) == (0, 0)
    low, high = robustness.difference(a, b)
    assert (low, high) == tuple(-x for x in robustness.difference(b, a)[::-1])
    assert low < a.change.value - b.change.value < high
    assert high - low < (a.change.high - a.change.low) + (b.change.high - b.change.low)
    robustness.difference(a, Robustness(Hashed(-1.), *pairs, redraws=50).effect("char_insert"))
    backwards = [column[::-1] for column in pairs]
    for other in (Robustness(Hashed(), *pairs, redraws=51), Robustness(Hashed(), *pairs, redraws=50, seed=1),
                  Robustness(Hashed(), *backwards, redraws=50)):
        with pytest.raises(ValueError, match="not of the same pairs"):
            robustness.difference(a, other.effect("char_insert"))


coordinate = st.floats(-5, 5, width=16)
points = st.tuples(coordinate, coordinate).filter(lambda point: abs(point[0]) + abs(point[1]) > .01)


@given(st.lists(points, min_size=1, max_size=8), st.floats(.1, 9))
@settings(deadline=None)
def test_shifts(rows, scale):
    x = np.array(rows)
    turned = x @ np.array([[0, 1], [-1, 0]])
    assert (robustness.shifts(x, x) == 0).all()
    np.testing.assert_allclose(robustness.shifts(x, scale*x), 0, atol=1e-12)
    np.testing.assert_allclose(robustness.shifts(x, turned), 1, atol=1e-12)
    np.testing.assert_allclose(robustness.shifts(x, -x), 2, atol=1e-12)


def effect(pairs, name="char_swap", **options):
    return Robustness(Hashed(), *pairs, redraws=5).effect(name, **options)


@pytest.mark.parametrize("call, message", [
    (lambda s, t, g: Robustness(Hashed(), s, t[:-1], g), "as many of each"),
    (lambda s, t, g: Robustness(Hashed(), s[:2], t[:2], g[:2]), "at least 3"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, redraws=1), "redraws=1"),
    (lambda s, t, g: Robustness(Hashed(), s, t, g, level=95), "level=95"),
    (lambda s, t, g: Robustness(Hashed(), s, t, 0*g), "are constant"),
    (lambda s, t, g: Robustness(Hashed(), s, t, np.where(np.arange(len(g)) == 3, np.nan, g)),
     "gold: 1 scores are not finite, the first of pair 3"),
    (lambda *pairs: effect(pairs, name="typo"), "name='typo': expected one of char_insert"),
    (lambda *pairs: effect(pairs, sides="second"), "sides='second'"),
    (lambda *pairs: effect(pairs, draws=0), "draws=0"),
    (lambda *pairs: effect(pairs, rate=2), "rate=2"),
    (lambda s, t, g: Robustness(Hashed(0.), s, t, g), "zero or not finite, the first for '"),
    (lambda s, t, g: robustness.shifts(np.ones((2, 3)), np.zeros((2, 3))), "no direction"),
    (lambda s, t, g: robustness.shifts(np.ones((2, 3)), np.ones((2, 4))), "expected \\[n, d\\] twice"),
])
def test_refused(pairs, call, message):
    with pytest.raises(ValueError, match=message): call(*pairs)


@given(st.text("abc"), st.text("abc"))
def test_token_overlap(a, b):
    overlap = robustness.token_overlap(a, b)
    assert 0 <= overlap <= 1 and overlap == robustness.token_overlap(b, a)
    assert (overlap == 1) == (sorted(a) == sorted(b))
    assert (overlap == 0) == (bool(a or b) and not set(a) & set(b))


def test_ink_overlap():
    strip = np.full((16, 48), 255, np.uint8)
    strip[4:8, 5:40] = 0
    wider = np.pad(strip, ((0, 0), (0, 32)), constant_values=255)
    half = strip.copy(); half[:, 20:] = 255
    assert robustness.ink_overlap(strip, strip) == robustness.ink_overlap(strip, wider) == 1
    assert robustness.ink_overlap(strip, half) == pytest.approx(15/35)
    assert robustness.ink_overlap(strip, 255*np.ones_like(strip)) == 0
    with pytest.raises(ValueError, match="same height"): robustness.ink_overlap(strip, strip[:8])


@pytest.mark.parametrize("notebook, tables, claims", [
    ("01_robustness", ["pixel_table1"], ["pixel-1", "pixel-2"]),
    ("02_vanilla_geometry", ["pixel_table2", "pixel_table3", "pixel_table9"], ["pixel-3", "pixel-4"])])
def test_committed_runs_fill_their_tables(root, notebook, tables, claims):
    "What stands in figures/ at small: each printed cell has a number, and each claim a verdict."
    folder = root/"figures"/notebook/"small"
    if not (folder/"run.json").is_file():
        pytest.skip(f"{notebook} was not run at small yet: sentnb run {notebook} -p small")
    record = results.load_run(folder)
    for table in tables:
        comparison = results.compare(record, table)
        printed = comparison["paper"].notna()
        assert printed.any() and comparison[printed]["ours"].notna().all(), table
    assert sorted(record.claims["claim"]) == claims and set(record.claims["verdict"]) <= set(results.VERDICTS)


def test_the_names_of_the_table_are_the_published_ones(root):
    "A row that is spelled otherwise would stand beside the paper's instead of in it."
    notebook = json.loads((root/"nbs"/"01_robustness.ipynb").read_text(encoding="utf-8"))
    source = "".join("".join(cell["source"]) for cell in notebook["cells"])
    theirs = results.published("pixel_table1")
    for row in {results.row_key(*pair) for pair in zip(theirs["row_group"], theirs["row"])}:
        assert f'"{row}"' in source

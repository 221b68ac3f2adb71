"Geometry of sentence vectors against independent derivations, invariances, and refusals."
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from sentnb.evaluation import geometry

sizes, entries = st.tuples(st.integers(2, 12), st.integers(1, 6)), st.floats(-9, 9, width=16)
cloud = hnp.arrays(np.float64, sizes, elements=entries).filter(lambda x: (np.abs(x).max(1) > 1e-3).all())


def unit(x): return x / np.linalg.norm(x, axis=1, keepdims=True)


@given(cloud)
@settings(deadline=None)
def test_anisotropy_is_the_mean_of_all_pairs(x):
    u, n = unit(x), len(x)
    pairs = [u[i] @ u[j] for i in range(n) for j in range(n) if i != j]
    assert abs(geometry.anisotropy(x) - np.mean(pairs)) < 1e-9
    assert -1 / (n - 1) - 1e-9 <= geometry.anisotropy(x) <= 1 + 1e-9


@given(cloud, st.integers(1, 5), st.sampled_from([.5, 2, 4]))
@settings(deadline=None)
def test_uniformity_is_the_mean_potential_of_distinct_pairs(x, block, t):
    u, n = unit(x), len(x)
    pairs = [np.exp(-t * ((u[i] - u[j])**2).sum()) for i in range(n) for j in range(i)]
    assert abs(geometry.uniformity(x, t, block) - np.log(np.mean(pairs))) < 1e-9
    assert -4 * t - 1e-9 <= geometry.uniformity(x, t, block) <= 1e-9


@given(cloud, st.sampled_from([1, 2, 3]))
@settings(deadline=None)
def test_alignment_is_the_mean_distance_of_pairs(x, alpha):
    y = x[::-1]
    expected = np.mean([np.sqrt(((a - b)**2).sum())**alpha for a, b in zip(unit(x), unit(y))])
    assert abs(geometry.alignment(x, y, alpha) - expected) < 1e-9
    assert geometry.alignment(x, x, alpha) == 0


def test_lengths_and_rotations_do_not_count():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 8)), rng.normal(size=(40, 8))
    turn = np.linalg.qr(rng.normal(size=(8, 8)))[0]
    length = 10**rng.uniform(-30, 30, size=(40, 1))
    for f in (geometry.anisotropy, geometry.uniformity):
        assert abs(f(x) - f(length * x)) < 1e-12 and abs(f(x) - f(x @ turn)) < 1e-12
    assert abs(geometry.alignment(x, y) - geometry.alignment(length * x, y)) < 1e-12
    assert abs(geometry.alignment(x, y) - geometry.alignment(x @ turn, y @ turn)) < 1e-12
    assert geometry.anisotropy(1e-300 * x) == pytest.approx(geometry.anisotropy(x), abs=1e-12)


def test_uniform_points_on_a_circle_have_the_known_uniformity():
    angles = np.linspace(0, 2 * np.pi, 2001)[:-1]
    x = np.stack([np.cos(angles), np.sin(angles)], 1)
    integral = np.exp(-4) * np.i0(4) # of exp(-4 + 4 cos) over the circle
    assert abs(geometry.uniformity(x) - np.log(integral)) < 2e-3
    assert abs(geometry.anisotropy(x) + 1 / 1999) < 1e-9


@pytest.mark.parametrize("wrong, message", [
    (np.ones(3), "expected"), (np.ones((1, 3)), "at least 2"),
    (np.ones((3, 0)), "expected"), (np.zeros((0, 3)), "at least 2"),
    ([[1., 0], [np.nan, 1]], "the first at 1"), ([[np.inf, 0], [0, 1]], "the first at 0"),
    ([[1., 0], [0, 0]], "the first at 1")])
def test_bad_vectors_are_refused(wrong, message):
    for f in (geometry.anisotropy, geometry.uniformity):
        with pytest.raises(ValueError, match=message): f(wrong)


def test_bad_arguments_are_refused():
    x = np.eye(4)
    for call, message in (
            (lambda: geometry.alignment(x, x[:3]), "same shape"),
            (lambda: geometry.alignment(x, np.eye(4)[:, :3] + 1), "same shape"),
            (lambda: geometry.alignment(x, x, 0), "alpha=0"),
            (lambda: geometry.uniformity(x, 0), "t=0"),
            (lambda: geometry.remove_principal_component(x, ["en"]), "1 languages for 4 vectors"),
            (lambda: geometry.remove_principal_component(x, ["a", "a", "a", "b"]), "only one vector of 'b'"),
            (lambda: geometry.tsne(x, perplexity=4), "perplexity=4"),
            (lambda: geometry.tsne(x[:3]), "at least 4"),
            (lambda: geometry.tsne(x, metric="dot"), "metric='dot'"),
            (lambda: geometry.language_vectors(x, ["a", "a", "a", "b"]), "only one vector of 'b'")):
        with pytest.raises(ValueError, match=message): call()


def test_principal_components_are_those_of_the_uncentred_matrix_language_by_language():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, 10)) + 3 * rng.normal(size=10)
    languages = [["en", "de", "zh"][i % 3] for i in range(60)]
    got = geometry.remove_principal_component(x, languages)
    for language in ("en", "de", "zh"):
        rows = np.array(languages) == language
        v = np.ones(10)
        for _ in range(500): v = x[rows].T @ (x[rows] @ v); v /= np.linalg.norm(v) # power iteration
        assert np.allclose(got[rows], x[rows] - np.outer(x[rows] @ v, v), atol=1e-9)
        before, after = (np.linalg.svd(vectors[rows], compute_uv=False) for vectors in (x, got))
        assert after[0] == pytest.approx(before[1])
    order = rng.permutation(60)
    shuffled = geometry.remove_principal_component(x[order], [languages[i] for i in order])
    assert np.allclose(shuffled, got[order], atol=1e-9)
    kept = geometry.fit_principal_component(x, languages)
    assert np.array_equal(geometry.remove_principal_component(x, languages, kept), got)
    assert geometry.remove_principal_component(x.astype(np.float32), languages).dtype == np.float32
    one = geometry.remove_principal_component(x[:1], languages[:1], kept)
    assert np.allclose(one, got[:1], atol=1e-12), "fitted on other vectors, also for a single one"
    with pytest.raises(ValueError, match="no component for 'fr'"):
        geometry.remove_principal_component(x[:1], ["fr"], kept)


def test_inputs_stay_as_they_were():
    x = np.random.default_rng(2).normal(size=(12, 5))
    before = x.copy()
    for f in (geometry.anisotropy, geometry.uniformity, geometry.tsne): f(x)
    geometry.alignment(x, x)
    for f in (geometry.remove_principal_component, geometry.language_vectors): f(x, ["a"] * 12)
    assert np.array_equal(x, before)


def test_maps_repeat_and_keep_groups_together():
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=(20, 12)) + 8 * rng.normal(size=12) for _ in range(3)])
    drawn = geometry.tsne(x, seed=5)
    assert drawn.shape == (60, 2) and np.array_equal(drawn, geometry.tsne(x, seed=5))
    distance = np.linalg.norm(drawn[:, None] - drawn[None], axis=2) + 1e9 * np.eye(60)
    assert np.mean(distance.argmin(1) // 20 == np.arange(60) // 20) > .95


def test_language_vectors_are_variances_of_unit_vectors():
    rng = np.random.default_rng(4)
    x, languages = rng.normal(size=(30, 6)), ["ru"] * 10 + ["en"] * 20
    names, vectors = geometry.language_vectors(5 * x, languages)
    assert names == ["ru", "en"] and np.allclose(vectors, [unit(x)[:10].var(0), unit(x)[10:].var(0)])


def test_describe_takes_the_first_sentences_for_the_cloud():
    class Table:
        def encode(self, texts): return np.array([[len(t), t.count("a") + 1] for t in texts], np.float32)
    first, second = ["a", "bbb", "aaaa"], ["b", "aa", "abc"]
    x, y = Table().encode(first), Table().encode(second)
    expected = dict(anisotropy=geometry.anisotropy(x), alignment=geometry.alignment(x, y),
                    uniformity=geometry.uniformity(x), n=3)
    assert geometry.describe(Table(), first, second) == expected

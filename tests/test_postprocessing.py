"Whitening and a flow behind an encoder: the moments that they promise, the Jacobian, and what they refuse."
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sentnb.encoders.postprocessing import Flow, FlowStep, Whitening, apply_flow
from sentnb.encoders.base import SentenceEncoder


class Points(SentenceEncoder):
    "Text i is row i."
    def __init__(self, x): self.x, self.width, self.asked = np.asarray(x, np.float64), np.shape(x)[1], []

    def encode_window(self, texts, batch_size=256, normalize=True, head="drop"):
        self.asked.append((len(texts), batch_size, head))
        x = self.x[[int(text) for text in texts]]
        return (x/np.linalg.norm(x, axis=1, keepdims=True) if normalize else x).astype(np.float32)


def names(n): return [str(i) for i in range(n)]


def cloud(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d))@rng.normal(size=(d, d)) + 4*rng.normal(size=d)


@given(st.integers(2, 6), st.integers(0, 10**6))
@settings(deadline=None, max_examples=25)
def test_whitening_gives_mean_0_and_covariance_1(d, seed):
    white = Whitening.fit(Points(cloud(60, d, seed)), names(60))
    x = white.encode(names(60), normalize=False).astype(np.float64)
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-3)
    np.testing.assert_allclose(np.cov(x, rowvar=False, bias=True), np.eye(d), atol=2e-3)
    np.testing.assert_allclose(np.linalg.norm(white.encode(names(60)), axis=1), 1, atol=1e-5)


def test_whitening_by_mahalanobis():
    "Distances after whitening are those of Mahalanobis before it, however the axes are turned."
    points = Points(cloud(50, 4)); white = Whitening.fit(points, names(50))
    x, z = (encoder.encode(names(50), normalize=False).astype(np.float64) for encoder in (points, white))
    inverse = np.linalg.inv(np.cov(x, rowvar=False, bias=True))
    for i, j in ((0, 1), (3, 7), (20, 49)):
        np.testing.assert_allclose(((z[i] - z[j])**2).sum(), (x[i] - x[j])@inverse@(x[i] - x[j]), rtol=1e-4)


def test_k_keeps_the_widest_directions():
    x = np.random.default_rng(0).normal(size=(400, 3))*[1, 10, 3]
    white, all_of_it = (Whitening.fit(Points(x), names(400), k=k) for k in (2, None))
    assert white.width == 2 and all_of_it.width == 3
    np.testing.assert_allclose(np.abs(white.kernel).argmax(0), [1, 2])
    kept, whole = (encoder.encode(names(9), normalize=False) for encoder in (white, all_of_it))
    np.testing.assert_array_equal(kept, whole[:, :2])


def test_directions_without_variance_are_left_out():
    x = cloud(40, 3); flat = np.concatenate([x, x[:, :1] + x[:, 1:2], np.full((40, 1), 7.)], 1)
    white = Whitening.fit(Points(flat), names(40))
    assert 3 <= white.width <= 4 and np.isfinite(white.encode(names(40))).all()
    with pytest.raises(ValueError, match="k=5: expected from 1 to"):
        Whitening.fit(Points(flat), names(40), k=5)


def test_repeated_texts_count_once():
    points = Points(cloud(30, 3))
    once, often = Whitening.fit(points, names(30)), Whitening.fit(points, [*names(30), *["4"]*50])
    np.testing.assert_array_equal(once.kernel, often.kernel)


@pytest.mark.parametrize("kind", [Whitening, Flow])
def test_refused(kind):
    points = Points(cloud(30, 3))
    with pytest.raises(ValueError, match="1 distinct texts"): kind.fit(points, ["3", "3"])
    with pytest.raises(ValueError, match="the same vector"): kind.fit(Points(np.ones((9, 3))), names(9))
    with pytest.raises(TypeError, match="one str"): kind.fit(points, "3")
    with pytest.raises(ValueError, match="not finite"): kind.fit(Points(np.full((9, 3), np.nan)), names(9))


def test_the_options_reach_the_encoder():
    points = Points(cloud(30, 3)); white = Whitening.fit(points, names(30)); points.asked.clear()
    white.encode(names(5), batch_size=2, head="keep")
    assert points.asked == [(5, 2, "keep")]
    assert white.encode([]).shape == (0, 3)


# --- the flow ---

def trained(d=3, **options):
    options = dict(depth=2, hidden=8, updates=30, learning_rate=5e-3) | options
    return Flow.fit(Points(cloud(200, d)), names(200), **options)


def test_log_det_equals_the_jacobian_of_autograd():
    flow = trained()
    for row in torch.randn(3, 3, generator=torch.Generator().manual_seed(0)):
        jacobian = torch.autograd.functional.jacobian(lambda x: apply_flow(flow.steps, x[None])[0][0], row)
        log_det, expected = apply_flow(flow.steps, row[None])[1], torch.linalg.slogdet(jacobian).logabsdet
        np.testing.assert_allclose(log_det, expected, rtol=1e-4, atol=1e-5)


def test_a_step_can_be_undone():
    torch.manual_seed(0)
    step, x = FlowStep(5, 7), torch.randn(20, 5)
    with torch.no_grad():
        for parameter in step.parameters(): parameter.add_(.1*torch.randn_like(parameter))
        z, _ = step(x)
        back = torch.cat([z[:, :2], z[:, 2:] - step.couple(z[:, :2])], 1)@torch.linalg.inv(step.mix)
        np.testing.assert_allclose(back*(-step.log_scale).exp() - step.shift, x, atol=1e-4)


def test_it_begins_at_the_size_of_the_data():
    torch.manual_seed(0)
    step, x = FlowStep(4, 8), torch.from_numpy(cloud(300, 4)).float()
    z = step.initialize(x)
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(z.square().sum(1).mean(), 4, rtol=1e-4)


def test_training_straightens_what_whitening_cannot():
    a, b = np.random.default_rng(0).normal(size=(2, 1000))
    bent = Points(np.stack([5 + 2*a, 3 + .2*b + a*a], 1))
    flow, white = Flow.fit(bent, names(1000), hidden=32, learning_rate=5e-3), Whitening.fit(bent, names(1000))
    def curvature(encoder):
        "How much of one dimension the square of the other explains, at the worst angle."
        z = encoder.encode(names(1000), normalize=False).astype(np.float64)
        turned = ((z*np.cos(t) + z[:, ::-1]*[np.sin(t), -np.sin(t)]) for t in np.linspace(0, np.pi, 24))
        return max(abs(np.corrcoef(u[:, 0]**2, u[:, 1])[0, 1]) for u in turned)
    assert flow.losses[-1] < flow.losses[0] and curvature(flow) < .5*curvature(white)


def test_same_seed_same_flow_and_torch_is_left_alone():
    torch.manual_seed(5); before = torch.random.get_rng_state()
    x, y = (trained().encode(names(20)) for _ in range(2))
    np.testing.assert_allclose(x, y, atol=.01)   # sums of several threads may come in another order
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.abs(x - trained(seed=1).encode(names(20))).max() > .1
    assert not any(p.requires_grad for p in trained(updates=0).steps.parameters())
    with torch.no_grad(): assert len(trained(updates=2).losses) == 2
    with torch.inference_mode(): assert len(trained(updates=2).losses) == 2


def test_half_precision_around_it_changes_nothing():
    x = trained().encode(names(20))
    with torch.autocast("cpu", torch.bfloat16):
        np.testing.assert_allclose(trained().encode(names(20)), x, atol=1e-4)


def test_flow_refuses():
    for wrong in (dict(depth=0), dict(updates=-1)):
        with pytest.raises(ValueError, match="expected at least 1 and 0"):
            Flow.fit(Points(cloud(9, 3)), names(9), **wrong)
    with pytest.raises(ValueError, match="batch_size=0: expected"):
        Flow.fit(Points(cloud(9, 3)), names(9), batch_size=0)
    with pytest.raises(ValueError, match="vectors of one dimension"):
        Flow.fit(Points(np.arange(9.0)[:, None]), names(9))
    with pytest.raises(FloatingPointError, match="not finite at update"):
        trained(learning_rate=1e30, updates=50)

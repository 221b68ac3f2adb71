"losses.margin: golden files, gradients, processes and what is refused."
import numpy as np
import pytest
import torch

from sentnb.losses import additive_margin_softmax, max_hinge, sum_hinge


def draw(n=7, d=5, seed=0):
    return torch.randn(2, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("scale", (1, 20))
@pytest.mark.parametrize("margin", (0., .3))
def test_the_golden_margin_softmax(golden, scale, margin):
    arrays = np.load(golden/"losses"/"additive_margin_softmax.npz", allow_pickle=False)
    x, y = (torch.from_numpy(arrays[name]).requires_grad_() for name in "xy")
    loss = additive_margin_softmax(x, y, margin, scale)
    name = f"s{scale}_m{str(margin).replace('.', 'p')}"
    assert loss.item() == pytest.approx(float(arrays[f"loss_sum_{name}"]), abs=1e-12)
    loss.backward()
    for side, tensor in dict(x=x, y=y).items():
        np.testing.assert_allclose(tensor.grad.numpy(), arrays[f"grad_{side}_sum_{name}"], rtol=0, atol=1e-12)


def test_hinges_by_numpy():
    for seed, (n, d) in enumerate(((2, 3), (9, 4), (40, 16))):
        a, b = draw(n, d, seed)
        x, y = (side.numpy()/np.linalg.norm(side.numpy(), axis=1, keepdims=True) for side in (a, b))
        cosines, hardest, every = x @ y.T, 0., 0.
        for table in (cosines, cosines.T):
            for i, row in enumerate(table):
                lacking = np.maximum(0, .1 - row[i] + np.delete(row, i))
                hardest, every = hardest + lacking.max(), every + lacking.sum()
        assert max_hinge(a, b, .1).item() == pytest.approx(hardest, rel=1e-12)
        assert sum_hinge(a, b, .1).item() == pytest.approx(every, rel=1e-12)


@pytest.mark.parametrize("loss", (additive_margin_softmax, max_hinge, sum_hinge))
def test_gradients_and_what_does_not_change_it(loss):
    a, b = (side.requires_grad_() for side in draw())
    assert torch.autograd.gradcheck(loss, (a, b))
    torch.testing.assert_close(loss(a, b), loss(b, a))
    torch.testing.assert_close(loss(3*a, b/2), loss(a, b))
    order = torch.randperm(len(a), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(loss(a[order], b[order]), loss(a, b))
    assert loss(a, a) < loss(a, b)
    assert loss(a.bfloat16(), b.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("loss", (additive_margin_softmax, max_hinge, sum_hinge))
def test_a_margin_asks_for_more(loss):
    a, b = draw()
    losses = [loss(a, b, margin).item() for margin in (0., .1, .3, .6)]
    assert losses == sorted(losses) and losses[0] < losses[-1]


@pytest.mark.parametrize("loss, change, error, message", [
    (max_hinge, dict(margin=-.1), ValueError, "margin"),
    (additive_margin_softmax, dict(scale=0), ValueError, "scale"),
    (sum_hinge, dict(margin=-.1), ValueError, "margin"),
    (max_hinge, dict(b=torch.ones(3, 5)), ValueError, "b has 3 rows"),
    (additive_margin_softmax, dict(target=torch.ones(7, 4)), ValueError, "target has 4 dimensions"),
    (additive_margin_softmax, dict(target=torch.ones(7, 5)*torch.nan), FloatingPointError, "target, row 0"),
    (max_hinge, dict(a=torch.ones(1, 5), b=torch.ones(1, 5)), ValueError, "expected at least 2")])
def test_refused(loss, change, error, message):
    a, b = draw()
    names = ("source", "target") if loss is additive_margin_softmax else ("a", "b")
    with pytest.raises(error, match=message): loss(**dict(zip(names, (a, b))) | change)

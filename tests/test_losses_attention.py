"losses.mutual_information: a float64 reference of each cell, the published code, properties of Eq. 4."
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from sentnb import losses
from sentnb.losses.mutual_information import attention_mutual_information as ami

few = settings(max_examples=25, deadline=None, derandomize=True)
sizes = given(n=st.integers(1, 3), layers=st.integers(1, 3), heads=st.sampled_from([2, 4]),
              s=st.integers(3, 6), seed=st.integers(0, 2**31))


def draw(n, layers, heads, s, seed, dropout=.1):
    "Two views of attention after dropout [n, layers, heads, s, s], float64, padding's keys 0, and the mask."
    rng = np.random.default_rng(seed)
    mask = np.arange(s) < rng.integers(2, s + 1, size=n)[:, None]
    logits = rng.normal(size=(n, layers, heads, s, s))
    views = []
    for _ in range(2):
        exp = np.exp(logits + .5*rng.normal(size=logits.shape))*mask[:, None, None, None]
        views.append(exp/exp.sum(-1, keepdims=True)*(rng.random(logits.shape) >= dropout)/(1 - dropout))
    return *(torch.from_numpy(view) for view in views), torch.from_numpy(mask)


def correlation(x, y):
    x, y = ([value - sum(values)/len(values) for value in values] for values in (x, y))
    return sum(a*b for a, b in zip(x, y))/math.sqrt(sum(a*a for a in x)*sum(b*b for b in y))


def tile_reference(first, second, real, places):
    "Of one tile of one sentence, [pooled, s, s], value by value, in plain Python floats."
    pairs = [(first[cell].item(), second[cell].item())
             for cell in places if real[cell[1]] and real[cell[2]]]
    logs = [(math.log(a), math.log(b)) for a, b in pairs if a > 0 and b > 0]
    if len(logs) < 3: return 0.
    x, y = zip(*logs)
    if len(set(x)) == 1 or len(set(y)) == 1: return 0.
    return -math.log(max(1 - correlation(x, y)**2, 1e-6))/2


def reference(first, second, mask, cells=None, pooled=2):
    "The mutual information of every tile: of one layer and `pooled` adjacent heads."
    n, layers, heads, s, _ = first.shape
    information = np.zeros((n, layers*heads//pooled))
    places = [(h, q, k) for h in range(pooled) for q in range(s) for k in range(s)]
    for i, r in np.ndindex(*information.shape):
        layer, group = divmod(r, heads//pooled)
        tiles = [view[i, layer, group*pooled:(group + 1)*pooled] for view in (first, second)]
        chosen = places if cells is None else [places[c] for c in cells[i, r].tolist()]
        information[i, r] = tile_reference(*tiles, mask[i], chosen)
    return information


def tiles_of(first, second, *options, **more):
    return [losses.attention_tiles(view, *options, **more) for view in (first, second)]


@few
@sizes
def test_is_the_reference(n, layers, heads, s, seed):
    first, second, mask = draw(n, layers, heads, s, seed)
    expected = reference(first, second, mask)
    np.testing.assert_allclose(ami(first, second, mask, samples=None, reduction="none"), expected, atol=1e-7)
    assert ami(first, second, mask, samples=None).item() == pytest.approx(expected.mean(), abs=1e-7)
    cells = losses.draw_cells(losses.joint_cells(*tiles_of(first, second), mask), 40, generator=seed)
    sampled = ami(first, second, mask, samples=40, generator=seed, reduction="none")
    assert sampled.dtype == torch.float64
    assert torch.equal(sampled, ami(first, second, mask, cells=cells, reduction="none"))
    np.testing.assert_allclose(sampled, reference(first, second, mask, cells), atol=1e-7)


@few
@sizes
def test_only_usable_cells_are_drawn(n, layers, heads, s, seed):
    first, second, mask = draw(n, layers, heads, s, seed, dropout=.3)
    for variant in ("paper", "released"):
        if variant == "released" and layers % 2: continue
        joint = losses.joint_cells(*tiles_of(first, second, variant), mask, variant).flatten(2)
        for replacement, samples in ((True, 17), (False, 5)):
            cells = losses.draw_cells(joint, samples, replacement, seed)
            assert cells.shape == (*joint.shape[:2], samples)
            assert cells.min() >= 0 and cells.max() < joint.shape[2]
            enough = joint.sum(-1) >= (1 if replacement else samples)
            assert (joint.gather(2, cells).all(-1) | ~enough).all()
            if not replacement: assert all(len(set(row.tolist())) == samples for row in cells.flatten(0, 1))


def test_cells_are_drawn_equally_and_apart():
    joint = torch.rand(3, 4, 2, 5, 5, generator=torch.Generator().manual_seed(0)) > .5
    for replacement in (True, False):
        samples = 60_000 if replacement else 10
        seeds = range(1 if replacement else 3000)
        rounds = [losses.draw_cells(joint, samples, replacement, seed) for seed in seeds]
        for i, r in np.ndindex(3, 4):
            usable, drawn = joint[i, r].flatten(), torch.cat([cells[i, r] for cells in rounds])
            counts = torch.bincount(drawn, minlength=50)[usable].double()
            chi_squared = ((counts - counts.mean())**2/counts.mean()).sum()
            assert chi_squared < usable.sum() + 6*math.sqrt(2*usable.sum())
    cells = losses.draw_cells(torch.ones(2, 2, 50, dtype=torch.bool), 20, generator=0)
    assert len({tuple(row.tolist()) for row in cells.flatten(0, 1)}) == 4


def test_seed_and_generator():
    first, second, mask = draw(2, 2, 2, 6, 0)
    seeded = ami(first, second, mask, generator=7)
    assert seeded == ami(first, second, mask, generator=torch.Generator().manual_seed(7))
    assert seeded != ami(first, second, mask, generator=8)
    state = torch.get_rng_state()
    ami(first, second, mask, generator=7)
    assert torch.equal(state, torch.get_rng_state()) # a seeded draw leaves torch's own generator alone
    unseeded = []
    for _ in range(2):
        torch.manual_seed(3)
        unseeded.append(ami(first, second, mask))
    assert unseeded[0] == unseeded[1] != seeded


def test_a_sample_estimates_the_whole():
    first, second, mask = draw(3, 2, 4, 12, 1)
    whole = ami(first, second, mask, samples=None)
    assert ami(first, second, mask, samples=100_000, generator=0) == pytest.approx(whole.item(), rel=.02)
    assert abs(ami(first, second, mask, generator=0) - whole) < .3*whole


@pytest.mark.parametrize("options", [
    dict(samples=None), dict(samples=30, generator=5), dict(samples=30, generator=5, logarithm=False),
    dict(variant="released", samples=6, generator=5), dict(samples=None, pool_heads=4, pool_layers=2),
], ids=str)


def test_gradient(options):
    first, second, mask = draw(2, 2, options.get("pool_heads", 2), 4, 3)
    mask[:] = torch.tensor([True, True, True, False]) # the same usable cells however little a value moves
    moves = [(view > 0).double() for view in (first, second)]
    def information(a, b): return ami(first + a*moves[0], second + b*moves[1], mask, **options)
    still = [torch.zeros_like(first, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(information, still, eps=1e-7, atol=1e-5)


def test_gradient_only_where_it_counts():
    views = draw(2, 2, 2, 6, 4)
    first, second, mask = *(view.requires_grad_() for view in views[:2]), views[2]
    ami(first, second, mask, generator=0).backward()
    real = (mask[:, :, None] & mask[:, None, :])[:, None, None]
    used = real & (first > 0) & (second > 0)
    for view in (first, second):
        assert view.grad.isfinite().all() and (view.grad != 0).any()
        assert (view.grad[~used.expand_as(view)] == 0).all()


def test_nothing_to_learn_gives_no_gradient_and_no_nan():
    first, second, mask = draw(2, 1, 2, 5, 5)
    mask[0] = torch.arange(5) < 1 # one token looks at itself: attention 1, whatever the weights
    constant = torch.full_like(first, .2)
    for a, b in ((first, second), (constant, second), (constant, constant), (first, first)):
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        information = ami(a, b, mask, samples=None, reduction="none")
        information.sum().backward()
        assert a.grad.isfinite().all() and b.grad.isfinite().all()
        assert information[0] == 0 and (a.grad[0] == 0).all()
    np.testing.assert_allclose(information[1].detach(), -math.log(1e-6)/2) # identical views: the floor


def test_identical_up_to_little_in_float32():
    "1 - rho^2 of nearly equal views keeps its digits in float32."
    first, _, mask = draw(2, 2, 2, 8, 6, dropout=0.)
    noise = torch.randn(first.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    second = first*(1 + 1e-3*noise)
    for floor in (0, 1e-9):
        exact = ami(first, second, mask, samples=None, floor=floor)
        single = ami(first.float(), second.float(), mask, samples=None, floor=floor)
        assert exact > 6.5 and single.dtype == torch.float32
        assert single.item() == pytest.approx(exact.item(), abs=1e-3)


@few
@sizes
def test_float32_is_close_to_float64(n, layers, heads, s, seed):
    first, second, mask = draw(n, layers, heads, s, seed)
    exact = ami(first, second, mask, generator=0)
    single = ami(first.float(), second.float(), mask, generator=0)
    assert single.item() == pytest.approx(exact.item(), abs=1e-4)


def test_autocast_does_not_round():
    first, second, mask = draw(2, 2, 2, 6, 7)
    half = [view.bfloat16() for view in (first, second)]
    with torch.autocast("cpu", dtype=torch.bfloat16): information = ami(*half, mask, generator=0)
    assert information.dtype == torch.float32
    assert information == ami(*(view.float() for view in half), mask, generator=0)


def test_what_does_not_change_it():
    first, second, mask = draw(4, 2, 4, 6, 8)
    whole = ami(first, second, mask, samples=None)
    order = torch.tensor([2, 0, 3, 1])
    # of logarithms: scale and shift; the order of sentences and of layers; whatever stands at padding
    padded = [torch.nn.functional.pad(view, (0, 3, 0, 3), value=.3) for view in (first, second)]
    for views in ((second, first, mask), (first*3, second/7, mask), (first**2, second**.5, mask),
                  (first[order], second[order], mask[order]), (first[:, [1, 0]], second[:, [1, 0]], mask),
                  (list(first.unbind(1)), tuple(second.unbind(1)), mask.long()),
                  (*padded, torch.nn.functional.pad(mask, (0, 3)))):
        assert ami(*views, samples=None).item() == pytest.approx(whole.item(), abs=1e-12)
    reversed_layers = ami(first, second, mask, samples=None, layers=[1, 0])
    assert reversed_layers.item() == pytest.approx(whole.item(), abs=1e-12)
    assert ami(first, second.roll(1, 0), mask & mask.roll(1, 0), samples=None) < whole


def test_no_correlation_of_all_with_all():
    "Nothing is larger than the attention that comes in: 150 cells of N tiles never meet as N x N."
    class Largest(TorchDispatchMode):
        size = 0
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            values = result if isinstance(result, (tuple, list)) else [result]
            sizes = [value.numel() for value in values if isinstance(value, torch.Tensor)]
            self.size = max([self.size, *sizes])
            return result
    attention = torch.rand(64, 4, 8, 6, 6)
    attention.requires_grad_()
    for variant in ("paper", "released"):
        with Largest() as largest:
            other = attention.detach()**.5 + .1
            ami(attention, other, torch.ones(64, 6).int(), variant, samples=20).backward()
        assert attention.numel() <= largest.size < (64*16)**2 and largest.size == attention.numel()


@pytest.fixture(scope="module")
def reference_run(golden):
    with np.load(golden/"losses"/"micse_ami.npz") as file:
        return {name: torch.from_numpy(np.asarray(file[name])) for name in file.files}


def released(run, attention, **options):
    "The released code's value on its own cells; tiles that it drops get any."
    n, tiles = 3, 8
    cells = torch.zeros(n*tiles, 150, dtype=torch.int64)
    cells[run["kept_rows"]] = run["index_set"]
    return ami(attention[:, 0], attention[:, 1], run["token_mask"].bool(), "released", layers=range(7, 11),
               cells=cells.view(n, tiles, 150), **options)


def test_golden_released(reference_run):
    run = reference_run
    assert -released(run, run["attention"]).item() == pytest.approx(run["MI_attn"].item(), abs=1e-12)
    each = released(run, run["attention"], reduction="none").flatten()
    assert (~each.isnan()).nonzero().flatten().tolist() == run["kept_rows"].tolist()
    np.testing.assert_allclose(each[run["kept_rows"]], -(1 - run["rho"]**2).log()/2, atol=1e-12)
    assert each.nanmean().item() == pytest.approx(run["mi_mean_log_eq4"].item(), abs=1e-12)
    literal = released(run, run["attention"], reduction="none", logarithm=False)
    assert literal.nanmean().item() == pytest.approx(run["mi_mean_literal_alg1"].item(), abs=1e-12)
    single = run["attention"].float()
    assert -released(run, single).item() == pytest.approx(run["MI_attn"].item(), abs=1e-6)
    tiles = tiles_of(*run["attention"].unbind(1), "released", range(7, 11))
    joint = losses.joint_cells(*tiles, run["token_mask"].bool(), "released").flatten(2)
    assert joint.sum(-1).flatten().tolist() == run["valid_per_row"].tolist()


def test_golden_total_and_gradient(reference_run):
    run = reference_run
    attention = run["attention"].clone().requires_grad_()
    total = losses.simcse(run["z1"], run["z2"], temperature=.05) - 2.5e-3*released(run, attention)
    assert total.item() == pytest.approx(run["total_loss"].item(), abs=1e-12)
    total.backward()
    assert run["grad_attention_of_total"].abs().max() > 1e-4
    np.testing.assert_allclose(attention.grad, run["grad_attention_of_total"], rtol=1e-9, atol=1e-14)


def test_golden_paper_tiles(reference_run):
    run = reference_run
    mask, views = run["token_mask"].bool(), [run["attention"][:, view] for view in (0, 1)]
    tiles = tiles_of(*views, layers=range(8, 12))
    rho = losses.log_correlation(*tiles, losses.joint_cells(*tiles, mask))
    np.testing.assert_allclose(rho.flatten(), run["paper_slicing_rho"], atol=1e-12)
    information = ami(*views, mask, layers=range(8, 12), samples=None)
    assert information.item() == pytest.approx(run["paper_slicing_mi_log"].item(), abs=1e-12)


def test_released_drops_what_is_short():
    first, second, mask = draw(3, 4, 2, 8, 9, dropout=0.)
    first, second = first + .01, second + .01 # nothing is zero yet
    mask[:] = True
    mask[0] = torch.arange(8) < 4 # queries of padding count: 2 layers x 8 x 4 cells are left
    for view in (first, second): view *= mask[:, None, None, None]
    def released(samples, reduction):
        return ami(first, second, mask, "released", samples=samples, generator=0, reduction=reduction)
    each = released(100, "none")
    assert each[0].isnan().all() and not each[1:].isnan().any()
    # the scale is of the tiles that are left, and all their cells are usable
    assert released(100, "mean").item() == pytest.approx((each[1:].mean()*(1 + 1e-6)).item())
    whole = released(64, "none")
    assert not whole.isnan().any()
    assert released(64, "mean").item() == pytest.approx((whole.mean()*((5/6)**2 + 1e-6)).item())
    with pytest.raises(ValueError, match="all 12 tiles have fewer than 129"): released(129, "mean")


@pytest.mark.parametrize("samples", [150, None])
def test_a_token_alone_has_no_information_however_often_its_cells_are_drawn(samples):
    first, second, mask = draw(2, 2, 4, 5, 3, dropout=0.)
    mask[0] = torch.arange(5) < 1   # two cells in a tile of two heads
    mask[1] = torch.arange(5) < 2   # eight
    each = ami(first + .01, second + .01, mask, samples=samples, generator=0, reduction="none")
    assert not each[0].any() and (each[1] > 0).all()
    printed = ami(first + .01, second + .01, mask, samples=samples, generator=0, reduction="none",
                  logarithm=False)
    assert (printed[0] == -.5).all()


ATTENTION = torch.rand(2, 2, 4, 5, 5)


@pytest.mark.parametrize("wrong, error, words", [
    (dict(variant="ours"), ValueError, "paper, released"),
    (dict(reduction="sum"), ValueError, "one of mean, none"),
    (dict(floor=1.), ValueError, "floor=1.0: expected a number from 0 to below 1"),
    (dict(variant="released", samples=None), ValueError, "always samples"),
    (dict(variant="released", pool_heads=4), ValueError, "pool_heads"),
    (dict(pool_heads=3), ValueError, "does not divide the 4 heads: expected one of 1, 2, 4"),
    (dict(pool_layers=3), ValueError, "2 layers"),
    (dict(layers=[2]), ValueError, "no layer 2"),
    (dict(layers=[]), ValueError, "layers is empty"),
    (dict(samples=0), ValueError, "at least 1"),
    (dict(mask=torch.ones(2, 5)), ValueError, "bool or int"),
    (dict(mask=torch.zeros(2, 5).int()), ValueError, "sentence 0"),
    (dict(mask=torch.ones(2, 4).int()), ValueError, r"\[2, 5\]"),
    (dict(attention_2=torch.rand(2, 2, 4, 6, 6)), ValueError, "views have shapes"),
    (dict(attention_1=ATTENTION[:, 0]), ValueError, "expected"),
    (dict(attention_1=[ATTENTION[:, 0], None]), TypeError, "layer 1 is NoneType"),
    (dict(attention_1=[ATTENTION[:, 0], ATTENTION[:1, 1]]), ValueError, "layer 1 has shape.*the first layer"),
    (dict(attention_1=torch.full((2, 2, 4, 5, 5), math.nan)), FloatingPointError, "attention_1"),
    (dict(attention_2=torch.randn(2, 2, 4, 5, 5)), ValueError, "attention_2 has negative"),
    (dict(attention_2=ATTENTION, variant="released", samples=9), FloatingPointError, "identical in both"),
    (dict(cells=torch.zeros(2, 3, 7).long()), ValueError, "cells are"),
    (dict(cells=torch.zeros(2, 4, 7)), ValueError, "cells are"),
], ids=lambda part: " ".join(part) if isinstance(part, dict) else getattr(part, "__name__", part))


def test_refuses(wrong, error, words):
    right = dict(attention_1=ATTENTION, attention_2=torch.rand(2, 2, 4, 5, 5), mask=torch.ones(2, 5).int())
    ami(**right)
    with pytest.raises(error, match=words): ami(**{**right, **wrong})

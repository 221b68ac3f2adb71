"losses.contrastive: an independent float64 reference, what makes it InfoNCE, parity with the papers' code."
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sentnb import losses
from sentnb.core import positive, project_root
from sentnb.losses.checks import gather, validated_floats, validated_vectors

GOLDEN = project_root().parent/"shared"/"golden"/"losses"
few = settings(max_examples=40, deadline=None, derandomize=True)
batches = given(n=st.integers(1, 9), d=st.integers(1, 12), seed=st.integers(0, 2**31),
                temperature=st.floats(.02, 2))


def draw(seed, *shapes):
    "Arrays of float64."
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]


def tensors_of(seed, *shapes): return [torch.from_numpy(array) for array in draw(seed, *shapes)]


def cosine(u, v): return float(np.dot(u, v))/math.sqrt(float(np.dot(u, u))*float(np.dot(v, v)))


def surprise(right, logits):
    highest = max(logits)
    return highest + math.log(sum(math.exp(logit - highest) for logit in logits)) - right


def reference(a, b, temperature, symmetric=True, hard=None, weight=0., queue=None):
    "InfoNCE pair by pair, in plain Python floats."
    n, total = len(a), 0.
    for i in range(n):
        row = [cosine(a[i], b[j])/temperature for j in range(n)]
        right = row[i]
        if hard is not None:
            row += [cosine(a[i], hard[j])/temperature + (weight if i == j else 0.) for j in range(n)]
        if queue is not None: row += [cosine(a[i], old)/temperature for old in queue]
        total += surprise(right, row)/n
    if not symmetric: return total
    for i in range(n):
        column = [cosine(a[j], b[i])/temperature for j in range(n)]
        total += surprise(column[i], column)/n
    return total/2


# what it computes

@few
@batches
def test_is_the_reference(n, d, seed, temperature):
    a, b, c, queue = arrays = draw(seed, (n, d), (n, d), (n, d), (seed % 5, d))
    t = [torch.from_numpy(array) for array in arrays]
    for symmetric in (True, False):
        plain = losses.info_nce(*t[:2], temperature, symmetric)
        assert plain.item() == pytest.approx(reference(a, b, temperature, symmetric), abs=1e-10)
        more = dict(hard_negatives=t[2], hard_negative_weight=1.5, queue=t[3])
        whole = losses.info_nce(*t[:2], temperature, symmetric, **more)
        assert whole.dtype == torch.float64
        expected = reference(a, b, temperature, symmetric, c, 1.5, queue)
        assert whole.item() == pytest.approx(expected, abs=1e-10)
    simcse = losses.simcse(*t[:3], temperature, -.5)
    assert simcse.item() == pytest.approx(reference(a, b, temperature, False, c, -.5), abs=1e-10)


@few
@batches
def test_micse_as_printed_and_as_released(n, d, seed, temperature):
    "Equation 2 with the same view as negatives; positive pairs alone, with the logits of the others at zero."
    a, b = draw(seed, (n + 1, d), (n + 1, d))
    t, rows = [torch.from_numpy(a), torch.from_numpy(b)], range(n + 1)
    right = [cosine(a[i], b[i])/temperature for i in rows]
    same_view = [[cosine(a[i], a[j])/temperature for j in rows if j != i] for i in rows]
    printed = np.mean([surprise(right[i], same_view[i]) for i in rows])
    zeros = np.mean([surprise(right[i], [right[i]] + [0.]*n) for i in rows])
    for loss, expected in ((losses.printed_info_nce, printed), (losses.positive_info_nce, zeros),
                           (losses.positive_attraction, -np.mean(right))):
        assert loss(*t, temperature).item() == pytest.approx(expected, abs=1e-10)


@few
@batches
def test_float32_is_close_to_float64(n, d, seed, temperature):
    a, b = tensors_of(seed, (n, d), (n, d))
    single, double = losses.info_nce(a.float(), b.float(), temperature), losses.info_nce(a, b, temperature)
    assert single.item() == pytest.approx(double.item(), abs=2e-4)


@few
@batches
def test_symmetries(n, d, seed, temperature):
    a, b = tensors_of(seed, (n, d), (n, d))
    loss = losses.info_nce(a, b, temperature)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    scale = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + .1
    rotation = torch.linalg.qr(tensors_of(seed + 1, (d, d))[0])[0]
    for views in ((b, a), (a[order], b[order]), (a*scale, b/scale), (a @ rotation, b @ rotation)):
        assert torch.allclose(losses.info_nce(*views, temperature), loss, atol=1e-9)
    directions = [losses.info_nce(*views, temperature, symmetric=False) for views in ((a, b), (b, a))]
    assert torch.allclose(sum(directions)/2, loss, atol=1e-10)


@few
@batches
def test_negatives_only_add(n, d, seed, temperature):
    a, b, c, queue = tensors_of(seed, (n, d), (n, d), (n, d), (3, d))
    plain, hard = losses.info_nce(a, b, temperature), losses.info_nce(a, b, temperature, hard_negatives=c)
    assert plain < hard < losses.info_nce(a, b, temperature, hard_negatives=c, queue=queue)
    assert losses.info_nce(a, b, temperature, queue=queue[:0]) == plain


@pytest.mark.parametrize("n", [1, 2, 7, 128])
def test_limits(n):
    same = torch.ones(n, 5, dtype=torch.float64)
    for temperature in (.01, 1., 100.):
        assert losses.info_nce(same, 3*same, temperature).item() == pytest.approx(math.log(n), abs=1e-9)
    distinct = tensors_of(0, (n, 64))[0]
    assert losses.info_nce(distinct, distinct, 1e-3).item() < 1e-9
    # at a high temperature all cells are alike
    assert losses.info_nce(distinct, -distinct, 1e9).item() == pytest.approx(math.log(n), abs=1e-6)
    opposed = losses.info_nce(distinct, -distinct, .05).item()
    assert opposed == 0 if n == 1 else opposed > 15


def test_one_matrix_product():
    a, b, c, queue = (torch.randn(8, 4) for _ in range(4))
    with torch.profiler.profile() as profile:
        losses.info_nce(a, b, hard_negatives=c, hard_negative_weight=1., queue=queue)
    assert sum(event.count for event in profile.key_averages() if event.key in ("aten::mm", "aten::bmm")) == 1


# its gradient

def test_gradient_is_numerical():
    views = [view.requires_grad_() for view in tensors_of(3, (3, 4), (3, 4), (3, 4))]
    def loss(a, b, c): return losses.info_nce(a, b, .5, hard_negatives=c, hard_negative_weight=.7)
    assert torch.autograd.gradcheck(loss, views)


def test_queue_has_no_gradient():
    a, b, queue = (view.requires_grad_() for view in tensors_of(4, (3, 4), (3, 4), (5, 4)))
    losses.info_nce(a, b, queue=queue).backward()
    assert queue.grad is None and a.grad.abs().max() > 0 and b.grad.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float32_inside_autocast(dtype):
    a, b = (view.to(dtype).requires_grad_() for view in tensors_of(5, (64, 32), (64, 32)))
    with torch.autocast("cpu", dtype=torch.bfloat16): loss = losses.info_nce(a, b)
    assert loss.dtype == torch.float32
    expected = reference(a.detach().double().numpy(), b.detach().double().numpy(), .05)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert a.grad.dtype == dtype and a.grad.isfinite().all()


def test_gather_is_the_identity_with_one_process():
    x = torch.randn(2, 3)
    assert gather(x) is x
    assert torch.equal(losses.info_nce(x, x + 1, gathered=True), losses.info_nce(x, x + 1))


def test_a_constant_dimension_has_no_correlation():
    x, y = torch.randn(2, 7, 3, generator=torch.Generator().manual_seed(0))
    plain = losses.decorrelation(x, y)
    for constant in torch.linspace(.01, 1, 50):   # the mean of 7 equal numbers is rounded
        column = torch.full((7, 1), constant.item(), requires_grad=True)
        wider = losses.decorrelation(torch.cat([x, column], 1), torch.cat([y, column], 1))
        torch.testing.assert_close(wider, plain + 1)   # (1 - 0)^2 on the diagonal
        wider.backward()
        assert not column.grad.any()


# what it refuses

x = torch.ones(3, 4)


@pytest.mark.parametrize("wrong, error, says", [
    (dict(temperature=0.), ValueError, "temperature=0.0: expected a positive number, such as 0.05"),
    (dict(temperature=-1.), ValueError, "temperature"),
    (dict(temperature=math.nan), ValueError, "temperature"),
    (dict(temperature=math.inf), ValueError, "temperature"),
    (dict(a=x[:0], b=x[:0]), ValueError, "empty"),
    (dict(b=x[:2]), ValueError, "b has 2 rows, a has 3"),
    (dict(b=x[:, :2]), ValueError, "b has 2 dimensions, a has 4"),
    (dict(b=x[0]), ValueError, r"b has shape \[4\]"),
    (dict(a=x.long()), TypeError, "a is torch.int64: expected a floating-point tensor"),
    (dict(b=None), TypeError, "b is NoneType"),
    (dict(a=None), TypeError, "a is NoneType"),
    (dict(hard_negatives=x[:1]), ValueError, "hard_negatives has 1 rows"),
    (dict(hard_negative_weight=1.), ValueError, "without hard_negatives"),
    (dict(queue=x[0]), ValueError, "queue has shape"),
    (dict(queue=x[:, :3]), ValueError, "queue has 3 dimensions, a has 4"),
    (dict(b=x.to("meta")), ValueError, "b is on meta, a is on cpu"),
    (dict(b=-x, temperature=1e-39), FloatingPointError, "all rows here are finite.*overflow"),
])


def test_errors(wrong, error, says):
    with pytest.raises(error, match=says): losses.info_nce(**dict(a=x, b=x) | wrong)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["a", "b", "hard_negatives", "queue"])
def test_not_a_number_is_located(name, bad):
    rows = {key: torch.randn(6, 4) for key in ("a", "b", "hard_negatives", "queue")}
    rows[name][4, 1] = bad
    with pytest.raises(FloatingPointError, match=rf"{name}, row 4 \(of 6\)"): losses.info_nce(**rows)


# the door

def test_validation_gives_one_dtype_outside_autocast_and_keeps_the_signature():
    @validated_vectors("a", "b", unpaired=("queue",), min_rows=2, temperature=positive(0.1))
    def dtypes(a, b, temperature=0.1, queue=None):
        "Record the dtypes."
        seen.append([x.dtype for x in (a, b, queue) if x is not None])
        assert not torch.is_autocast_enabled("cpu")
        return a.sum()
    seen, half = [], torch.ones(2, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16): dtypes(half, b=half)
    dtypes(half, half, queue=torch.ones(1, 3).double())
    assert seen == [[torch.float32]*2, [torch.float64]*3]
    assert dtypes.__doc__ == "Record the dtypes." and dtypes.__name__ == "dtypes"
    with pytest.raises(ValueError, match="a has 1 rows: expected at least 2"): dtypes(half[:1], half[:1])
    with pytest.raises(TypeError, match="missing a required argument: 'b'"): dtypes(half)


def test_floats_of_any_shape():
    @validated_floats("scores")
    def highest(scores, places=None): return scores.max()
    assert highest(torch.ones(2, 3, 4).half()).dtype == torch.float32
    assert highest(torch.ones(()).double()).dtype == torch.float64
    with pytest.raises(TypeError, match="scores is torch.int64: expected a floating-point tensor"):
        highest(torch.ones(2).long())


# parity

@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden losses (../shared/golden/losses) are not here")
@pytest.mark.parametrize("name, arguments, call", [
    ("info_nce_symmetric", ("x", "y"), lambda p, x, y: losses.info_nce(x, y, p["tau"])),
    ("simcse_unsup", ("z1", "z2"), lambda p, *z: losses.simcse(*z, temperature=p["tau"])),
    ("simcse_sup_w1", ("z1", "z2", "z3"), lambda p, *z: losses.simcse(
        *z, temperature=p["tau"], hard_negative_weight=p["hard_negative_weight"])),
])


def test_golden(name, arguments, call):
    parameters = json.loads((GOLDEN/"golden.json").read_text(encoding="utf-8"))[name]["params"]
    golden = np.load(GOLDEN/f"{name}.npz", allow_pickle=False)
    tensors = [torch.from_numpy(golden[key]).requires_grad_() for key in arguments]
    loss = call(parameters, *tensors)
    loss.backward()
    assert loss.item() == pytest.approx(float(golden["loss"]), abs=1e-12)
    for key, tensor in zip(arguments, tensors):
        np.testing.assert_allclose(tensor.grad.numpy(), golden[f"grad_{key}"], rtol=0, atol=1e-12)

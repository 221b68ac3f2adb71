"losses.contrastive: an independent float64 reference, the properties that make it InfoNCE, and parity with the papers' code."
import json, math
import numpy as np, pytest, torch
from hypothesis import given, settings, strategies as st
from sentnb import losses
from sentnb.core import project_root
from sentnb.losses.contrastive import gather

GOLDEN = project_root().parent/"shared"/"golden"/"losses"
few = settings(max_examples=40, deadline=None, derandomize=True)
batches = given(n=st.integers(1, 9), d=st.integers(1, 12), seed=st.integers(0, 2**31), temperature=st.floats(.02, 2))


def draw(seed, *shapes):
    generator = np.random.default_rng(seed)
    return [generator.normal(size=shape) for shape in shapes]

def reference(a, b, temperature, symmetric=True, hard=None, weight=0., queue=None):
    "InfoNCE pair by pair, in plain Python floats."
    def cosine(u, v): return float(np.dot(u, v)) / math.sqrt(float(np.dot(u, u)) * float(np.dot(v, v)))
    def surprise(right, logits): return max(logits) + math.log(sum(math.exp(l - max(logits)) for l in logits)) - right
    n, total = len(a), 0.
    for i in range(n):
        row = [cosine(a[i], b[j])/temperature for j in range(n)]
        right = row[i]
        if hard is not None: row += [cosine(a[i], hard[j])/temperature + (weight if i == j else 0.) for j in range(n)]
        if queue is not None: row += [cosine(a[i], old)/temperature for old in queue]
        total += surprise(right, row) / n
    if not symmetric: return total
    for i in range(n): total += surprise(cosine(a[i], b[i])/temperature, [cosine(a[j], b[i])/temperature for j in range(n)]) / n
    return total / 2


@few
@batches
def test_is_the_reference(n, d, seed, temperature):
    a, b, c, queue = draw(seed, (n, d), (n, d), (n, d), (seed % 5, d))
    t = [torch.from_numpy(x) for x in (a, b, c, queue)]
    for symmetric in (True, False):
        assert losses.info_nce(*t[:2], temperature, symmetric).item() == pytest.approx(reference(a, b, temperature, symmetric), abs=1e-10)
        mine = losses.info_nce(*t[:2], temperature, symmetric, hard_negatives=t[2], hard_negative_weight=1.5, queue=t[3])
        assert mine.dtype == torch.float64
        assert mine.item() == pytest.approx(reference(a, b, temperature, symmetric, c, 1.5, queue), abs=1e-10)
    assert losses.simcse(*t[:3], temperature, -.5).item() == pytest.approx(reference(a, b, temperature, False, c, -.5), abs=1e-10)


@few
@batches
def test_float32_is_close_to_float64(n, d, seed, temperature):
    a, b = (torch.from_numpy(x) for x in draw(seed, (n, d), (n, d)))
    assert losses.info_nce(a.float(), b.float(), temperature).item() == pytest.approx(losses.info_nce(a, b, temperature).item(), abs=2e-4)


@few
@batches
def test_symmetries(n, d, seed, temperature):
    a, b = (torch.from_numpy(x) for x in draw(seed, (n, d), (n, d)))
    loss = losses.info_nce(a, b, temperature)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    scale = torch.rand(n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + .1
    rotation = torch.linalg.qr(torch.from_numpy(draw(seed + 1, (d, d))[0]))[0]
    assert torch.allclose(losses.info_nce(b, a, temperature), loss, atol=1e-10)
    assert torch.allclose(losses.info_nce(a[order], b[order], temperature), loss, atol=1e-10)
    assert torch.allclose(losses.info_nce(a * scale, b / scale, temperature), loss, atol=1e-10)
    assert torch.allclose(losses.info_nce(a @ rotation, b @ rotation, temperature), loss, atol=1e-9)
    directions = [losses.info_nce(*pair, temperature, symmetric=False) for pair in ((a, b), (b, a))]
    assert torch.allclose(sum(directions)/2, loss, atol=1e-10)


@few
@batches
def test_negatives_only_add(n, d, seed, temperature):
    a, b, c, queue = (torch.from_numpy(x) for x in draw(seed, (n, d), (n, d), (n, d), (3, d)))
    losses_ = [losses.info_nce(a, b, temperature), losses.info_nce(a, b, temperature, hard_negatives=c), losses.info_nce(a, b, temperature, hard_negatives=c, queue=queue)]
    assert losses_[0] < losses_[1] < losses_[2]
    assert losses.info_nce(a, b, temperature, queue=queue[:0]) == losses_[0]


@pytest.mark.parametrize("n", [1, 2, 7, 128])
def test_limits(n):
    same = torch.ones(n, 5, dtype=torch.float64)
    for temperature in (.01, 1., 100.): assert losses.info_nce(same, 3 * same, temperature).item() == pytest.approx(math.log(n), abs=1e-9)
    distinct = torch.from_numpy(draw(0, (n, 64))[0])
    assert losses.info_nce(distinct, distinct, 1e-3).item() < 1e-9
    assert losses.info_nce(distinct, -distinct, 1e9).item() == pytest.approx(math.log(n), abs=1e-6) # hot: nothing is told apart
    opposed = losses.info_nce(distinct, -distinct, .05).item()
    assert opposed == 0 if n == 1 else opposed > 15


def test_gradient_is_numerical():
    tensors = [torch.from_numpy(x).requires_grad_() for x in draw(3, (3, 4), (3, 4), (3, 4))]
    assert torch.autograd.gradcheck(lambda a, b, c: losses.info_nce(a, b, .5, hard_negatives=c, hard_negative_weight=.7), tensors)


def test_queue_has_no_gradient():
    a, b, queue = (torch.from_numpy(x).requires_grad_() for x in draw(4, (3, 4), (3, 4), (5, 4)))
    losses.info_nce(a, b, queue=queue).backward()
    assert queue.grad is None and a.grad.abs().max() > 0 and b.grad.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_float32_inside_autocast(dtype):
    a, b = (torch.from_numpy(x).to(dtype).requires_grad_() for x in draw(5, (64, 32), (64, 32)))
    with torch.autocast("cpu", dtype=torch.bfloat16): loss = losses.info_nce(a, b)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(reference(a.detach().double().numpy(), b.detach().double().numpy(), .05), rel=1e-5)
    loss.backward()
    assert a.grad.dtype == dtype and a.grad.isfinite().all()


def test_one_matrix_product():
    a, b, c, queue = (torch.randn(8, 4) for _ in range(4))
    with torch.profiler.profile() as profile: losses.info_nce(a, b, hard_negatives=c, hard_negative_weight=1., queue=queue)
    assert sum(event.count for event in profile.key_averages() if event.key in ("aten::mm", "aten::bmm")) == 1


def test_gather_is_the_identity_with_one_process():
    x = torch.randn(2, 3)
    assert gather(x) is x
    assert torch.equal(losses.info_nce(x, x + 1, gathered=True), losses.info_nce(x, x + 1))


x = torch.ones(3, 4)
@pytest.mark.parametrize("arguments, error, says", [
    ((x, x, 0.), ValueError, "temperature=0.0"), ((x, x, -1.), ValueError, "temperature"), ((x, x, math.nan), ValueError, "temperature"),
    ((x, x, math.inf), ValueError, "temperature"), ((x[:0], x[:0]), ValueError, "empty"), ((x, x[:2]), ValueError, "b has 2 rows, a has 3"),
    ((x, x[:, :2]), ValueError, "b has 2 dimensions, a has 4"), ((x, x[0]), ValueError, r"b has shape \[4\]"), ((x.long(), x), TypeError, "a is torch.int64"),
    ((x, None), TypeError, "b is NoneType"), ((None, x), TypeError, "a is NoneType"), ((x, x, .1, True, x[:1]), ValueError, "hard_negatives has 1 rows"),
    ((x, x, .1, True, None, 1.), ValueError, "without hard_negatives"), ((x, x, .1, True, None, 0., x[0]), ValueError, "queue has shape"),
])
def test_errors(arguments, error, says):
    with pytest.raises(error, match=says): losses.info_nce(*arguments)

@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["a", "b", "hard_negatives", "queue"])
def test_not_a_number_is_located(name, bad):
    rows = {key: torch.randn(6, 4) for key in ("a", "b", "hard_negatives", "queue")}
    rows[name][4, 1] = bad
    with pytest.raises(FloatingPointError, match=rf"{name}, row 4 \(of 6\)"): losses.info_nce(**rows)


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden losses (../shared/golden/losses) are not on this machine")
@pytest.mark.parametrize("name, arguments, call", [
    ("info_nce_symmetric", ("x", "y"), lambda p, x, y: losses.info_nce(x, y, p["tau"])),
    ("simcse_unsup", ("z1", "z2"), lambda p, *z: losses.simcse(*z, temperature=p["tau"])),
    ("simcse_sup_w1", ("z1", "z2", "z3"), lambda p, *z: losses.simcse(*z, temperature=p["tau"], hard_negative_weight=p["hard_negative_weight"])),
])
def test_golden(name, arguments, call):
    parameters = json.loads((GOLDEN/"golden.json").read_text(encoding="utf-8"))[name]["params"]
    golden = np.load(GOLDEN/f"{name}.npz", allow_pickle=False)
    tensors = [torch.from_numpy(golden[key]).requires_grad_() for key in arguments]
    loss = call(parameters, *tensors)
    loss.backward()
    assert loss.item() == pytest.approx(float(golden["loss"]), abs=1e-12)
    for key, tensor in zip(arguments, tensors): np.testing.assert_allclose(tensor.grad.numpy(), golden[f"grad_{key}"], rtol=0, atol=1e-12)

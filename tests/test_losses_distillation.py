"losses.supervised.vector_distance against NumPy in float64, and what it refuses."
import numpy as np
import pytest
import torch

from sentnb.losses import vector_distance


def reference(student, teacher, normalize):
    if normalize: student, teacher = (x/np.linalg.norm(x, axis=1, keepdims=True) for x in (student, teacher))
    return np.mean(np.sum((student - teacher)**2, axis=1))


@pytest.mark.parametrize("normalize", (True, False))
@pytest.mark.parametrize("n, d", ((1, 1), (1, 7), (33, 192)))
def test_against_numpy(n, d, normalize):
    rng = np.random.default_rng(n + d)
    arrays = rng.normal(size=(n, d)), rng.normal(size=(n, d))
    expected, (student, teacher) = reference(*arrays, normalize), map(torch.from_numpy, arrays)
    assert float(vector_distance(student, teacher, normalize)) == pytest.approx(expected, rel=1e-12)
    single = vector_distance(student.float(), teacher.float(), normalize)
    assert single.dtype == torch.float32 and float(single) == pytest.approx(expected, rel=1e-5)


def test_gradients():
    torch.manual_seed(0)
    student, teacher = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for normalize in (True, False):
        assert torch.autograd.gradcheck(lambda x: vector_distance(x, teacher, normalize), (student,))
    vector_distance(student, teacher).backward()
    assert teacher.grad is None
    along = (student.grad*student).sum(1)
    assert along.abs().max() < 1e-12, "the length of a vector does not count"


def test_float32_inside_autocast():
    x, y = torch.randn(5, 8), torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16): inside = vector_distance(x, y)
    assert inside.dtype == torch.float32 and inside == vector_distance(x, y)


GOOD = torch.ones(2, 3)


@pytest.mark.parametrize("student, teacher, error, message", [
    (GOOD, GOOD[:1], ValueError, "teacher has 1 rows, student has 2: row i of one must belong to row i"),
    (GOOD, GOOD[:, :2], ValueError, "teacher has 2 dimensions, student has 3"),
    (GOOD[0], GOOD[0], ValueError, "rows, dimensions"),
    (GOOD[:0], GOOD[:0], ValueError, "student has no rows: the batch is empty"),
    (GOOD, torch.tensor([[1., 0, 0], [0, 0, 0]]), ValueError, "teacher, row 1 is a zero vector"),
    (GOOD, GOOD.long(), TypeError, "teacher is torch.int64"),
    (GOOD.numpy(), GOOD, TypeError, "student is ndarray"),
    (torch.tensor([[1., 1, 1], [1, torch.nan, 1]]), GOOD, FloatingPointError, "student, row 1"),
    (GOOD, GOOD*torch.inf, FloatingPointError, "teacher, row 0"),
])
def test_refused(student, teacher, error, message):
    with pytest.raises(error, match=message): vector_distance(student, teacher)


def test_too_long_for_the_numbers():
    with pytest.raises(FloatingPointError, match="numbers overflow"):
        vector_distance(1e30*GOOD, GOOD, normalize=False)

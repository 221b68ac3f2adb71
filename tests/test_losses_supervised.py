"losses.supervised: parity with sentence-transformers, what makes each the loss it is, and gradients."
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from sentnb.losses import cosent, cosine_regression, penalized_regression, sup_con

few = settings(max_examples=30, deadline=None, derandomize=True)
batches = given(n=st.integers(2, 9), d=st.integers(2, 12), seed=st.integers(0, 2**31))


def draw(seed, n, d): # two views, scores with ties, labels
    rng = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, n, d, generator=rng, dtype=torch.float64)
    return a, b, torch.randint(0, 6, (n,), generator=rng)/5, torch.randint(0, 3, (n,), generator=rng)


class Given(torch.nn.Module):
    "Stands for their model: its texts are their vectors."
    def forward(self, features): return features


def theirs(name, a, b, scores, **options):
    library = pytest.importorskip("sentence_transformers", reason="it is an extra, sentence-transformers")
    from sentence_transformers import losses
    model = library.SentenceTransformer(modules=[Given()], device="cpu")
    vectors = [dict(sentence_embedding=x) for x in (a, b)]
    return getattr(losses, name)(model, **options)(vectors, scores)


@pytest.mark.filterwarnings("ignore:Importing from 'sentence_transformers.losses':DeprecationWarning")
@pytest.mark.parametrize("name, ours, options", [
    ("CosineSimilarityLoss", cosine_regression, {}), ("CoSENTLoss", cosent, {}),
    ("CoSENTLoss", lambda a, b, scores: cosent(a, b, scores, temperature=.2), dict(scale=5.))])
def test_the_value_and_the_gradient_of_sentence_transformers(name, ours, options):
    for seed, (n, d) in enumerate(((2, 3), (7, 5), (32, 16))):
        a, b, scores, _ = draw(seed, n, d)
        a, b = a.float(), b.float()
        both = []
        for loss in (ours, lambda *batch: theirs(name, *batch, **options)):
            x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
            value = loss(x, y, scores)
            value.backward()
            both.append((value.detach(), x.grad, y.grad))
        for mine, other in zip(*both): torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


@few
@batches
def test_the_order_alone_decides(n, d, seed):
    a, b, scores, _ = draw(seed, n, d)
    loss = cosent(a, b, scores)
    torch.testing.assert_close(cosent(a, b, scores**3 - 7), loss)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(cosent(a[order], b[order], scores[order]), loss)
    torch.testing.assert_close(cosent(3*a, b/2, scores), loss)
    right, wrong = (cosent(a, b, sign*F.cosine_similarity(a, b)) for sign in (1, -1))
    assert right <= wrong


@few
@batches
def test_labels_and_their_names(n, d, seed):
    a, b, _, labels = draw(seed, n, d)
    torch.testing.assert_close(sup_con(a, b, labels), sup_con(b, a, 7 - 2*labels))
    places = F.one_hot(labels, max(d, 3)).double()
    assert sup_con(places, places, labels) <= sup_con(places, places, labels.roll(1)) + 1e-9


@pytest.mark.parametrize("loss", [cosine_regression, cosent,
                                  lambda a, b, scores: sup_con(a, b, (5*scores).int())])
def test_gradients(loss):
    a, b, scores, _ = draw(0, 6, 4)
    a, b = a.requires_grad_(), b.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: loss(x, y, scores), (a, b))


def test_a_batch_that_teaches_nothing_gives_zeros_and_no_nan():
    a, b, _, _ = draw(0, 4, 3)
    a.requires_grad_()
    cosent(a, b, torch.full((4,), .5)).backward()
    assert not a.grad.any()


def test_half_precision_is_computed_in_float32():
    a, b, scores, labels = draw(0, 6, 4)
    for loss, known in ((cosine_regression, scores), (cosent, scores), (sup_con, labels)):
        assert loss(a.bfloat16(), b.bfloat16(), known).dtype == torch.float32
        broken = b.index_fill(0, torch.tensor(2), torch.nan)
        with pytest.raises(FloatingPointError, match="b, row 2"): loss(a, broken, known)


@pytest.mark.parametrize("variant, name", [("released", "new_supcon_loss"), ("paper_eq4", "paper_eq4_sum"),
                                           ("paper_eq5", "new_simclr_loss"),
                                           ("supcon", "tian_supcon_loss"), ("simclr", "tian_simclr_loss")])
def test_the_five_losses_of_visualcse(golden, variant, name):
    arrays = np.load(golden/"losses"/"nonling_supcon_repeated.npz", allow_pickle=False)
    a, b, labels = (torch.from_numpy(arrays[key]) for key in ("f1", "f2", "labels"))
    a, b = a.requires_grad_(), b.requires_grad_()
    loss = sup_con(a, b, labels, variant=variant)
    assert loss.item() == pytest.approx(float(arrays[name]), abs=1e-12)
    loss.backward()
    if name.endswith("_loss") and (gradient := name.replace("_loss", "_grad")) in arrays:
        found = torch.cat([a.grad, b.grad]).numpy()
        np.testing.assert_allclose(found, arrays[gradient], rtol=0, atol=1e-12)


@few
@batches
def test_the_printed_equation_in_a_loop(n, d, seed):
    a, b, _, labels = draw(seed, n, d)
    labels[0], labels[1] = 0, 1
    cosines, expected = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T/.5, 0.
    for row, label in zip(cosines, labels):
        right = sum(s.exp() for s, other in zip(row, labels) if other == label)
        wrong = sum(s.exp() for s, other in zip(row, labels) if other != label)
        expected = expected - (right/wrong).log()
    torch.testing.assert_close(sup_con(a, b, labels, .5, "paper_eq4"), expected)


@few
@batches
def test_equation_5_in_a_loop(n, d, seed):
    "Independent of torch's losses: numpy in float64, one direction, the n vectors of the other view."
    a, b, _, labels = draw(seed, n, d)
    left, right = (x.numpy()/np.linalg.norm(x.numpy(), axis=1, keepdims=True) for x in (a, b))
    terms = []
    for i in range(n):
        exponentials = [np.exp(left[i] @ right[j]/.5) for j in range(n)]
        terms.append(-np.log(exponentials[i]/sum(exponentials)))
    assert sup_con(a, b, labels, .5, "paper_eq5").item() == pytest.approx(np.mean(terms), abs=1e-12)


def test_equation_5_is_not_simclr_over_both_views():
    a, b, _, labels = draw(1, 8, 12)
    printed, both_views = (sup_con(a, b, labels, variant=name) for name in ("paper_eq5", "simclr"))
    assert both_views > printed, "2n - 1 candidates instead of n"
    ascending = torch.arange(8)
    torch.testing.assert_close(sup_con(a, b, ascending, variant="released"), printed)


def test_the_printed_equation_needs_two_labels():
    a, b, _, _ = draw(0, 4, 3)
    with pytest.raises(ValueError, match="all 4 labels are equal"):
        sup_con(a, b, torch.full((4,), 3), variant="paper_eq4")


@few
@given(n=st.integers(2, 9), p=st.sampled_from((1, 1.5, 2, 3)), seed=st.integers(0, 2**31))
def test_equation_1_of_pixel_linguist(n, p, seed):
    a, b, scores, _ = draw(seed, n, 5)
    theta = [x.clone().requires_grad_() for x in (a, b[0])]
    loss = penalized_regression(a, b, scores, theta, weight=.3, p=p)
    cosines = [x @ y/np.sqrt((x @ x)*(y @ y)) for x, y in zip(a.numpy(), b.numpy())]
    values = np.concatenate([a.numpy().ravel(), b[0].numpy()])
    norm = (np.abs(values)**p).sum()**(1/p)
    expected = np.square(np.array(cosines) - scores.numpy()).mean() + .3*norm
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    loss.backward()
    slope = .3*np.sign(values)*np.abs(values/norm)**(p - 1)
    np.testing.assert_allclose(torch.cat([x.grad.flatten() for x in theta]), slope, rtol=1e-9, atol=1e-12)


def test_cosines_in_float32_are_scores():
    x = F.normalize(torch.randn(2000, 64, generator=torch.Generator().manual_seed(0)), dim=1)
    scores = (x*x).sum(1)
    assert scores.max() > 1 and cosine_regression(x, x, scores) < 1e-12
    for score in (1.001, -1.001, 5.):
        with pytest.raises(ValueError, match=f"as large as {abs(score):g}, but cosines go from -1 to 1"):
            cosine_regression(x[:2], x[:2], torch.tensor([score, 0.]))

"encoders.features and encoders.lens: the same numbers from disk as from the encoder, over pixels and tokens."
import copy
import json

import numpy as np
import pytest
import torch

from sentnb.core import fingerprint
from sentnb.encoders import (
    FeatureStore, Lens, LensConfig, PixelConfig, PixelEncoder, small_text_encoder, train_wordpiece)
from sentnb.encoders.base import TextsTruncated
from sentnb.encoders.checkpoints import weights_digest
from sentnb.encoders.features import base_fingerprint, token_states
from sentnb.encoders.lens import (
    KINDS, WITHOUT_PARAMETERS, GatedConv, Simple, active_share, binary_cosine, binary_vectors, hamming,
    shared_features)
from sentnb.renderer import RenderConfig
from sentnb.training import Batch, BatchRNG, DevLoss, Stage, fit, scheduled_learning_rate
from sentnb.training.margin import Entailment, MaxHinge

TEXTS = ["a cat", "the river runs to the sea, and it rains", "ein Hund", "Хлеб", "x"]
PAIRS = [("a cat", "eine Katze"), ("a dog", "ein Hund"), ("the sea", "das Meer"), ("bread", "Brot")]


def pixels():
    sizes = PixelConfig(16, 2, 2, 32, max_patches=24)
    return PixelEncoder(sizes, RenderConfig(strategy="words", max_patches=24)).eval()


def tokens():
    return small_text_encoder(train_wordpiece(TEXTS*3, 120), hidden_size=16, num_hidden_layers=2,
                              num_attention_heads=2, max_length=16).eval()


@pytest.fixture(params=(pixels, tokens), ids=("pixels", "tokens"))
def base(request):
    torch.manual_seed(0)
    return request.param()


@pytest.mark.parametrize("kind", KINDS)
def test_a_lens_over_a_store_is_the_lens_over_its_encoder(base, kind, tmp_path):
    torch.manual_seed(1)
    lens = Lens(base, LensConfig(kind, width=24, gating=8)).eval()
    store = FeatureStore(base, tmp_path)
    store.add(TEXTS, batch_size=2, shard_size=2, show_progress=False)
    direct = lens.encode(TEXTS, normalize=False)
    assert direct.shape == (len(TEXTS), lens.width)
    np.testing.assert_allclose(lens.with_base(store).encode(TEXTS, normalize=False), direct, atol=5e-3)
    if kind == "mean":
        states, mask = token_states(base, TEXTS)
        expected = np.stack([row[seen].mean(0) for row, seen in zip(states.numpy(), mask.numpy())])
        np.testing.assert_allclose(direct, expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_in_a_batch_do_not_matter(base, kind):
    torch.manual_seed(1)
    lens = Lens(base, LensConfig(kind, width=24, gating=8, convolutions=3)).eval()
    whole = lens.encode(TEXTS, normalize=False)
    for text, vector in zip(TEXTS, whole):
        np.testing.assert_allclose(lens.encode([text], normalize=False)[0], vector, atol=1e-5)


def test_killed_and_resumed_it_ends_at_the_same_weights_and_the_base_at_its_own(base, tmp_path):
    frozen = weights_digest(base)
    known = [(*pair, i % 3) for i, pair in enumerate(PAIRS)]
    stages = [Stage("translation", PAIRS, MaxHinge(), steps=6, batch_size=4),
              Stage("inference", known, Entailment(hidden=8), steps=4, batch_size=4)]

    def trained(folder, *pieces):
        torch.manual_seed(2)
        for piece in pieces:
            lens = Lens(base, LensConfig("gated", width=12, gating=8, dropout=.1))
            lens.load_state_dict(start)
            fit(lens, stages, folder, show_progress=False, stop_after=piece)
        return lens

    torch.manual_seed(2)
    start = {name: weight.clone() for name, weight in Lens(
        base, LensConfig("gated", width=12, gating=8, dropout=.1)).state_dict().items()}
    whole, broken = trained(tmp_path/"whole", None), trained(tmp_path/"broken", 2, 5, None)
    assert weights_digest(whole) == weights_digest(broken) and weights_digest(base) == frozen
    assert any(not torch.equal(weight, start[name]) for name, weight in whole.state_dict().items())
    again = Lens.from_pretrained(tmp_path/"whole"/"01-inference", base)
    np.testing.assert_array_equal(again.encode(TEXTS), whole.eval().encode(TEXTS))


def test_it_trains_from_a_store_without_the_encoder_running(base, tmp_path, monkeypatch):
    store = FeatureStore(base, tmp_path/"store")
    store.add([text for pair in PAIRS for text in pair], show_progress=False)

    def running(*tensors): raise AssertionError("the encoder ran")
    monkeypatch.setattr(type(base), "hidden_states", running)
    lens = Lens(store, LensConfig("simple", width=12))
    history = fit(lens, [Stage("translation", PAIRS, MaxHinge(), steps=30, batch_size=4, learning_rate=1e-2)],
                  tmp_path/"run", show_progress=False)
    assert history[-1]["loss"] < history[0]["loss"]


def test_a_lens_is_a_small_file_that_knows_its_base(base, tmp_path):
    lens = Lens(base, LensConfig("simple", width=12))
    folder = lens.save_pretrained(tmp_path/"lens", half=True)
    assert json.loads((folder/"config.json").read_text())["base"] == lens.base_fingerprint
    size = (folder/"model.safetensors").stat().st_size
    assert size < 2*sum(weight.numel() for weight in lens.parameters()) + 500
    with torch.no_grad(): next(base.parameters()).add_(1)
    with pytest.raises(ValueError, match="another encoder, other weights"): Lens.from_pretrained(folder, base)
    with pytest.raises(TypeError, match="has no token states; it has no collate"): Lens("bert")


def test_binary_vectors_against_numpy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(7, 30)), rng.normal(size=(4, 30))
    p, q = (binary_vectors(x, .5) for x in (a, b))
    assert p.dtype == np.uint8 and p.shape == (7, 4)
    np.testing.assert_array_equal(shared_features(p, q), ((a > .5)[:, None] & (b > .5)[None]).sum(2))
    np.testing.assert_array_equal(hamming(p, q), ((a > .5)[:, None] != (b > .5)[None]).sum(2))
    with pytest.raises(ValueError, match="expected"): binary_vectors(a[0])
    for compare in (shared_features, hamming, binary_cosine):
        assert compare(p[:0], q).shape == (0, 4) and compare(p, q[:0]).shape == (7, 0)
    assert np.isnan(active_share(p[:0], 30))


def test_a_store_reports_truncated_texts_and_refuses_scrolled_ones(base, tmp_path):
    texts = ["a cat", "a cat and a dog "*9, "the river runs to the sea "*9]
    store = FeatureStore(base, tmp_path)
    with pytest.warns(TextsTruncated, match="2 of 3 texts were truncated at") as caught:
        store.add(texts, batch_size=1, show_progress=False)
    assert len(caught) == 1
    if base.renderer:
        scrolling = FeatureStore(base.replace(long="scroll"), tmp_path)
        assert scrolling.add(texts[:1], show_progress=False) == 1
        with pytest.raises(ValueError, match="expected one strip"): scrolling.add(texts, show_progress=False)


def test_a_text_that_cannot_be_kept_is_named(base, tmp_path):
    store = FeatureStore(base, tmp_path)
    with pytest.raises(TypeError, match="texts is one str"): store.add("a cat", show_progress=False)
    with pytest.raises(KeyError, match="'nothing' is not in the store"): Lens(store).encode(["nothing"])
    with pytest.raises(ValueError, match="both must be at least 1"): store.add(TEXTS, batch_size=0)


def test_padding_costs_a_batch_nothing_and_changes_nothing(base):
    "A batch is read in parts of similar length; in one part it gives the same vectors and gradients."
    torch.manual_seed(1)
    lens = Lens(base, LensConfig("gated", width=24, gating=8)).train()
    states, mask = (tensor.clone() for tensor in token_states(base, TEXTS))
    for kind in range(2):
        lens.zero_grad()
        vectors = lens._reduce_chunks(states, mask) if kind else lens.reduction(states, mask)
        (vectors**2).sum().backward()
        found = vectors.detach(), lens.reduction.out.weight.grad.clone()
        if kind:
            for one, other in zip(found, plain): torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
        plain = found


def test_how_much_is_said_without_a_forward_pass(base, tmp_path, monkeypatch):
    store = FeatureStore(base, tmp_path)
    store.add(TEXTS, show_progress=False)
    written = sum(array.nbytes for array, _ in store.shards)
    def running(*tensors): raise AssertionError("the encoder ran")
    monkeypatch.setattr(type(base), "hidden_states", running)
    assert written <= store.estimate_size(TEXTS) <= written + 24*len(TEXTS)


def test_two_that_fill_one_store_lose_nothing_and_compute_what_is_there_once(base, tmp_path, monkeypatch):
    "Also while the other is writing, and beside shards whose numbers have gaps."
    one = FeatureStore(base, tmp_path)
    assert one.add(TEXTS[:2], show_progress=False) == 2
    next(one.folder.iterdir()).rename(one.folder/"shard-00002")
    other = FeatureStore(base, tmp_path)
    assert other.add(TEXTS[1:4], show_progress=False) == 2 and one.add(TEXTS[:4], show_progress=False) == 0
    compute = FeatureStore._compute_states

    def meanwhile(self, texts):
        if self is one: other.add(["of the other"], show_progress=False)
        return compute(self, texts)
    monkeypatch.setattr(FeatureStore, "_compute_states", meanwhile)
    assert one.add([TEXTS[4]], show_progress=False) == 1
    whole = FeatureStore(base, tmp_path)
    assert len(whole) == 6 and len(list(whole.folder.iterdir())) == 4, "and nothing half written"
    states, mask = token_states(base, [*TEXTS, "of the other"])
    stored, positions = token_states(whole, [*TEXTS, "of the other"])
    assert torch.equal(positions, mask.bool())
    torch.testing.assert_close(stored[positions], states[positions], atol=5e-3, rtol=0)


def test_a_lens_over_cut_texts_is_refused_over_whole_ones(base, tmp_path):
    "The keys of stores and of lenses over whole texts are what they were."
    whole, short = FeatureStore(base, tmp_path), FeatureStore(base, tmp_path, max_length=4)
    known = base_fingerprint(base)
    assert whole.base_fingerprint == known != short.base_fingerprint
    assert [whole.folder.name, short.folder.name] == [fingerprint([known, limit]) for limit in (None, 4)]
    for store in (whole, short): store.add(TEXTS, show_progress=False)
    lens = Lens(short, LensConfig("simple", width=12))
    folder = lens.save_pretrained(tmp_path/"lens")
    for source in (base, whole, FeatureStore(base, tmp_path, max_length=5)):
        with pytest.raises(ValueError, match="another length limit"): lens.with_base(source)
        with pytest.raises(ValueError, match="another length limit"): Lens.from_pretrained(folder, source)
    again = Lens.from_pretrained(folder, FeatureStore(base, tmp_path, max_length=4))
    np.testing.assert_array_equal(again.encode(TEXTS), lens.encode(TEXTS))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stored", (False, True), ids=("encoder", "store"))
def test_to_another_device_the_base_goes_along(base, kind, stored, tmp_path):
    "On `meta`, there is no GPU here; a type of number is the lens's own affair."
    lens = Lens(FeatureStore(base, tmp_path) if stored else base, LensConfig(kind, width=12, gating=8))
    copied = copy.deepcopy(lens)
    assert lens.bfloat16() is lens and {weight.dtype for weight in base.parameters()} == {torch.float32}
    assert lens.to("meta") is lens and lens.device.type == lens.base.device.type == "meta"
    assert {weight.device.type for module in (lens, base) for weight in module.parameters()} == {"meta"}
    device = "meta" if kind in WITHOUT_PARAMETERS else "cpu"
    assert copied.base is lens.base and copied.device.type == device


class Elsewhere:
    "A base that stays on a device of its own, and gives states on the CPU."
    width, max_length, device = 4, 8, torch.device("meta")
    def settings(self): return {}
    def collate(self, texts, max_length=None): return torch.ones(len(texts), 3), torch.ones(len(texts), 3)

    def hidden_states(self, ids, mask):
        assert ids.device == mask.device == self.device
        return torch.ones(*ids.shape, 4), torch.ones(ids.shape).bool()


def test_states_go_from_wherever_the_base_is_to_the_lens():
    "So it is where a lens that shares the base has taken it along."
    lens = Lens(Elsewhere(), LensConfig("simple", width=5)).to_empty(device="cpu")
    for weight in lens.parameters(): torch.nn.init.ones_(weight)
    assert lens.device.type == "cpu" and lens.base.device.type == "meta"
    np.testing.assert_array_equal(lens.encode(TEXTS, normalize=False), np.full((5, 5), 5, np.float32))
    vectors = lens(*lens.collate(TEXTS))
    vectors.sum().backward()
    assert vectors.device.type == "cpu" and lens.reduction.out.weight.grad is not None


@pytest.mark.parametrize("objective", (Entailment(), Entailment(product=True, hidden=8)),
                         ids=("Sentence-BERT", "Contextual Lensing"))
def test_the_classifiers_of_premise_and_hypothesis(base, objective):
    rows = [("a cat", "ein Hund", 0), ("the river", "x", 1), ("Хлеб", "a cat", 2)]
    premises, hypotheses, classes = zip(*rows)
    encoder = base.eval()
    torch.manual_seed(2)
    state = objective.state(encoder)
    batch = Batch((*encoder.collate([*premises, *hypotheses], None), torch.tensor(classes)[:, None]), [], 2)
    loss = float(objective.loss(encoder, state, batch).detach())
    vectors = encoder(*batch.tensors[:-1]).detach().double().numpy()
    u, v = vectors[:3], vectors[3:]
    x = np.hstack([u, v, u*v, abs(u - v)] if objective.product else [u, v, abs(u - v)])
    weights = [parameter.detach().double().numpy() for parameter in state.parameters()]
    for layer in range(0, len(weights), 2):
        x = x @ weights[layer].T + weights[layer + 1]
        if layer + 2 < len(weights): x = np.maximum(x, 0)
    log_sums = np.log(np.exp(x).sum(1))
    assert loss == pytest.approx(np.mean(log_sums - x[range(3), classes]), abs=1e-6)


def test_binary_vectors_are_compared_by_cosine():
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(n, 30)) > 1 for n in (7, 5))
    a[2] = False                                        # no active feature
    x, y = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(x, axis=1)[:, None]*np.linalg.norm(y, axis=1)[None]
    expected = np.divide(x @ y.T, norms, out=np.zeros_like(norms), where=norms > 0)
    found = binary_cosine(binary_vectors(x, .5), binary_vectors(y, .5))
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_first_token_is_that_of_the_base(base):
    vectors = Lens(base, LensConfig("first")).encode(TEXTS, normalize=False)
    for text, vector in zip(TEXTS, vectors):
        states, _ = token_states(base, [text])
        np.testing.assert_allclose(vector, states[0, 0].numpy(), atol=1e-5)


def test_the_rate_is_that_of_the_transformer():
    "Vaswani et al. 2017, Eq. 3, in numbers of steps from 1."
    width, warmup = 1024, 40
    for step in range(1, 500):
        expected = width**-.5*min(step**-.5, step*warmup**-1.5)
        rate = scheduled_learning_rate(step - 1, 500, (width*warmup)**-.5, warmup, "inverse square root")
        assert rate == pytest.approx(expected, rel=1e-12)


INFERENCE = [(*pair, i % 3) for i, pair in enumerate(PAIRS + [pair[::-1] for pair in PAIRS])]
DEV = [(a, b, (label + 1) % 3) for a, b, label in INFERENCE[:4]]   # the loss rises as soon as training fits


def cross_entropy(lens, state, rows):
    "In float64, from the vectors: an independent computation of the loss on dev."
    u, v = (lens.encode([row[side] for row in rows], normalize=False).astype(np.float64) for side in (0, 1))
    x = np.hstack([u, v, u*v, abs(u - v)])
    first, second = (layer for layer in state if isinstance(layer, torch.nn.Linear))
    for n, layer in enumerate((first, second)):
        x = x @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()
        if n == 0: x = np.maximum(x, 0)
    classes = [row[2] for row in rows]
    return float(np.mean(np.log(np.exp(x).sum(1)) - x[range(len(rows)), classes]))


def test_training_stops_by_the_loss_on_dev(base, tmp_path):
    torch.manual_seed(3)
    lens, objective, seen = Lens(base, LensConfig("simple", width=12)), Entailment(product=True, hidden=8), []

    class Spy(DevLoss):
        def __call__(self, encoder, stage, states):
            score = super().__call__(encoder, stage, states)
            weights = {name: weight.clone() for name, weight in encoder.state_dict().items()}
            seen.append((score, cross_entropy(encoder, states[0], DEV), weights))
            return score

    stage = Stage("inference", INFERENCE, objective, steps=20, batch_size=8, learning_rate=3e-2, keep="best")
    history = fit(lens, [stage], tmp_path, dev=Spy(DEV), eval_every=2, show_progress=False)
    assert [row["dev"] for row in history if "dev" in row] == [score for score, *_ in seen]
    for score, expected, _ in seen: assert -score == pytest.approx(expected, abs=1e-5)
    best = max(seen, key=lambda entry: entry[0])
    assert best is not seen[-1]
    kept = Lens.from_pretrained(tmp_path/"00-inference", base).state_dict()
    assert all(torch.equal(weight, best[2][name]) for name, weight in kept.items())


def test_the_loss_on_dev_is_that_of_training(tmp_path):
    torch.manual_seed(0)
    sizes = PixelConfig(16, 2, 2, 32, max_patches=24, head=True)
    encoder = PixelEncoder(sizes, RenderConfig(strategy="words", max_patches=24)).eval()
    objective = Entailment()
    state = objective.state(encoder).eval()
    with torch.no_grad():
        trained = objective.loss(encoder, state, objective.batch(DEV, BatchRNG(0, 0, range(len(DEV))),
                                                                 encoder, None))
    assert encoder.has_head and objective.dev_loss(encoder, state, DEV) == pytest.approx(float(trained))


def test_a_loss_on_dev_needs_an_objective_that_has_one(base, tmp_path):
    lens = Lens(base, LensConfig("simple", width=12))
    with pytest.raises(ValueError, match="whose objective has dev_loss"):
        fit(lens, [Stage("translation", PAIRS, MaxHinge(), steps=1, batch_size=4)], tmp_path,
            dev=DevLoss(PAIRS), show_progress=False)


def numpy_stack(stack, states, last):
    "The outputs of the input layer and of the last convolution, in float64; one text without padding."
    def arrays(layer): return [weight.detach().double().numpy() for weight in (layer.weight, layer.bias)]
    weight, bias = arrays(stack.enter)
    x = start = np.maximum(states @ weight.T + bias, 0)
    for n, layer in enumerate(stack.layers):
        weight, bias = arrays(layer)                    # [out, in, kernel]
        half = weight.shape[2]//2
        padded = np.pad(x, ((half, half), (0, 0)))
        windows = [padded[t:t + weight.shape[2]] for t in range(len(x))]
        x = np.stack([np.einsum("oik,ki->o", weight, window) + bias for window in windows])
        x = last(x) if n == len(stack.layers) - 1 else np.maximum(x, 0)
    return start, x


def test_gated_convolutions_are_equations_1_to_4():
    torch.manual_seed(5)
    lens, states = GatedConv(8, 6, gating=4, convolutions=3, kernel=3), torch.randn(1, 7, 8)
    rows = states[0].double().numpy()
    _, h = numpy_stack(lens.encoder, rows, np.tanh)
    start, g = numpy_stack(lens.controller, rows, lambda x: 1/(1 + np.exp(-x)))
    weight, bias = (tensor.detach().double().numpy() for tensor in (lens.out.weight, lens.out.bias))
    expected = np.maximum((h*g + start) @ weight.T + bias, 0).max(0)
    found = lens(states, torch.ones(1, 7).bool())[0].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_simple_is_one_matrix_and_a_maximum_over_time():
    torch.manual_seed(6)
    lens, states = Simple(8, 6), torch.randn(1, 7, 8)
    weight, bias = (tensor.detach().double().numpy() for tensor in (lens.out.weight, lens.out.bias))
    expected = np.maximum(states[0].double().numpy() @ weight.T + bias, 0).max(0)
    found = lens(states, torch.ones(1, 7).bool())[0].detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)

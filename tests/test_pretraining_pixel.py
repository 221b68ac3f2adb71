"losses.reconstruction against float64 references; encoders.mae: what is hidden, read, scored, and saved."
import collections
import json
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from sentnb import losses
from sentnb.core import project_root
from sentnb.encoders.base import TextsTruncated
from sentnb.encoders.mae import MaskedAutoencoder, hidden_patches
from sentnb.encoders.pixel import PixelConfig, PixelEncoder
from sentnb.losses.reconstruction import masked_patch_loss, masked_token_loss, normalize_patches
from sentnb.renderer import RenderConfig

GOLDEN = project_root().parent/"shared"/"golden"/"model"/"pretrain"
few = settings(max_examples=40, deadline=None, derandomize=True)
TEXTS = ["A cat sleeps on the warm roof of the old house.", "Two dogs.",
         "It rains in the mountains, and nobody has an umbrella at hand today.",
         "Она читает книгу в саду.", "x"]


# ---- the losses

def patch_reference(predicted, target, mask, normalize):
    "Patch by patch, in plain Python floats."
    errors = []
    for drawn, true in zip(predicted[mask].tolist(), target[mask].tolist()):
        if normalize:
            mean = sum(true)/len(true)
            variance = sum((pixel - mean)**2 for pixel in true)/(len(true) - 1)
            true = [(pixel - mean)/math.sqrt(variance + 1e-6) for pixel in true]
        errors.append(sum((a - b)**2 for a, b in zip(drawn, true))/len(true))
    return sum(errors)/len(errors)


def token_reference(logits, labels):
    def surprise(row, right):
        return max(row) + math.log(sum(math.exp(value - max(row)) for value in row)) - row[right]
    hidden = labels != -100
    costs = [surprise(row, right) for row, right in zip(logits[hidden].tolist(), labels[hidden].tolist())]
    return sum(costs)/len(costs)


def draw_patches(seed, n, p, k):
    rng = np.random.default_rng(seed)
    mask, target = rng.random((n, p)) < .4, rng.random((n, p, k))
    mask[0, 0] = True
    target[0, -1] = 1.   # a blank patch
    return rng.normal(size=(n, p, k)), target, mask


@few
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6), st.integers(2, 20), st.booleans())
def test_patch_loss_is_the_reference(seed, n, p, k, normalize):
    arrays = draw_patches(seed, n, p, k)
    tensors = [torch.from_numpy(x) for x in arrays]
    loss = masked_patch_loss(*tensors, normalize)
    assert loss.dtype == torch.float64
    assert loss.item() == pytest.approx(patch_reference(*arrays, normalize), rel=1e-10)
    single = masked_patch_loss(tensors[0].float(), tensors[1].float(), tensors[2], normalize)
    assert single.dtype == torch.float32 and single.item() == pytest.approx(loss.item(), rel=1e-4)
    gathered = masked_patch_loss(tensors[0][tensors[2]], tensors[1][tensors[2]], normalize=normalize)
    assert gathered.item() == pytest.approx(loss.item(), rel=1e-10)


@few
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6), st.integers(2, 20))
def test_token_loss_is_the_reference(seed, n, s, v):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(n, s, v))*3, rng.integers(0, v, (n, s))
    hidden = rng.random((n, s)) < .4
    hidden[0, 0] = True
    labels[~hidden] = -100
    a, b, expected = torch.from_numpy(logits), torch.from_numpy(labels), token_reference(logits, labels)
    assert masked_token_loss(a, b).item() == pytest.approx(expected, rel=1e-10)
    assert masked_token_loss(a.float(), b).item() == pytest.approx(expected, rel=1e-4)
    assert masked_token_loss(a[b != -100], b[b != -100]).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_are_float32_inside_autocast(dtype):
    predicted, target, mask = (torch.from_numpy(x) for x in draw_patches(1, 4, 6, 256))
    predicted, scores = (x.to(dtype).requires_grad_() for x in (predicted, torch.randn(5, 30)))
    target, labels = target.float(), torch.arange(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        patches, tokens = masked_patch_loss(predicted, target, mask), masked_token_loss(scores, labels)
    assert patches.dtype == tokens.dtype == torch.float32
    drawn, true, logits = (x.detach().double().numpy() for x in (predicted, target, scores))
    assert patches.item() == pytest.approx(patch_reference(drawn, true, mask.numpy(), True), rel=1e-5)
    assert tokens.item() == pytest.approx(token_reference(logits, labels.numpy()), rel=1e-5)
    (patches + tokens).backward()
    for x in (predicted, scores): assert x.grad.dtype == dtype and x.grad.isfinite().all()


def test_gradients_are_numerical_and_only_of_what_was_hidden():
    predicted, target, mask = (torch.from_numpy(x) for x in draw_patches(2, 2, 3, 4))
    assert torch.autograd.gradcheck(lambda p: masked_patch_loss(p, target, mask), predicted.requires_grad_())
    predicted = predicted.detach().masked_fill(~mask[..., None], math.nan).requires_grad_()
    masked_patch_loss(predicted, target, mask).backward()
    assert (predicted.grad[~mask] == 0).all()
    assert predicted.grad[mask].isfinite().all() and predicted.grad[mask].abs().max() > 0

x, m = torch.rand(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)


@pytest.mark.parametrize("arguments, error, says", [
    ((x, x[:1], m), ValueError, "expected the same shape"),
    ((x, x, m[:1]), ValueError, r"one for each patch, \[2, 3\]"),
    ((x, x, m.float()), ValueError, "expected bool"),
    ((x, x, ~m), ValueError, "no patch is masked"),
    ((x.long(), x, m), TypeError, "predicted is torch.int64"),
    ((x, None, m), TypeError, "target is NoneType"),
    ((x*math.nan, x, m), FloatingPointError, "not finite"),
    ((x[..., :1], x[..., :1], m), ValueError, "normalize=False"),
    ((x[0, 0], x[0, 0]), ValueError, "expected the same shape"),
])


def test_patch_loss_errors(arguments, error, says):
    with pytest.raises(error, match=says): masked_patch_loss(*arguments)


@pytest.mark.parametrize("logits, labels, error, says", [
    (x, torch.zeros(2, 3).int(), TypeError, "expected int64"),
    (x, torch.zeros(2).long(), ValueError, r"\[2, 3\]"),
    (x[0, 0], torch.tensor(3), ValueError, r"logits have shape \[4\]: .*pass logits\[None\] and labels"),
    (x, torch.full((2, 3), 4), ValueError, "0 to 3"),
    (x, torch.full((2, 3), -100), ValueError, "no token is masked"),
    (x*math.inf, torch.zeros(2, 3).long(), FloatingPointError, "not finite"),
    (x.int(), torch.zeros(2, 3).long(), TypeError, "logits is torch.int32"),
])


def test_token_loss_errors(logits, labels, error, says):
    with pytest.raises(error, match=says): masked_token_loss(logits, labels)


def test_the_package_gathers_them():
    assert losses.masked_patch_loss is masked_patch_loss
    assert losses.masked_token_loss is masked_token_loss
    assert {"masked_patch_loss", "masked_token_loss"} <= set(losses.__all__)


# ---- what is hidden

@few
@given(st.integers(1, 600), st.integers(0, 2**31), st.floats(.01, .95), st.integers(1, 9))
def test_hidden_patches_are_as_many_as_wanted(n, seed, ratio, span):
    hidden = hidden_patches(n, random.Random(seed), ratio, span)
    assert len(hidden) == max(1, round(ratio*n))
    assert hidden == sorted(set(hidden)) and 0 <= hidden[0] and hidden[-1] < n
    assert hidden == hidden_patches(n, random.Random(seed), ratio, span)


def runs(hidden):
    "Lengths of the runs of neighbours, and the gaps between them."
    spans = [[hidden[0], hidden[0]]]
    for i in hidden[1:]:
        if i == spans[-1][1] + 1: spans[-1][1] = i
        else: spans.append([i, i])
    lengths = [last - first + 1 for first, last in spans]
    return lengths, [first - last - 1 for (_, last), (first, _) in zip(spans, spans[1:])]


def test_spans_are_those_of_the_paper():
    """Length 1 to 4 with probability 0.2, 5 and 6 with 0.1; no span touches another.

    The mean is 2.9: of those drawn, the last of a text is cut."""
    rng, counted, places = random.Random(0), collections.Counter(), np.zeros(400)
    for _ in range(400):
        hidden = hidden_patches(400, rng, .05)   # much room: hardly a span is refused
        lengths, gaps = runs(hidden)
        counted.update(lengths)
        places[hidden] += 1
        assert max(lengths) <= 6 and min(gaps) >= 1
    for length, share in {1: .2, 2: .2, 3: .2, 4: .2, 5: .1, 6: .1}.items():
        assert counted[length]/counted.total() == pytest.approx(share, abs=.06)
    quarter = places.reshape(4, 100).sum(1)/places.sum()
    assert np.abs(quarter - .25).max() < .02   # everywhere alike


def test_a_span_has_room_of_its_length_on_both_sides():
    for seed in range(200):
        lengths, gaps = runs(hidden_patches(60, random.Random(seed)))
        # the later of two neighbours wanted its own length free; the earlier may be longer
        assert all(gap >= min(a, b) for gap, a, b in zip(gaps, lengths, lengths[1:]))


# ---- the model

def tiny(seed=0, channels=1, **options):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=2, intermediate_size=64)
    config = PixelConfig(max_patches=32, num_channels=channels, pixel_normalization=channels == 1, **sizes)
    encoder = PixelEncoder(config, RenderConfig(strategy="words", max_patches=32))
    if channels == 1: encoder.fit_pixel_normalization(TEXTS)
    return MaskedAutoencoder(encoder, **options)


def test_batches_depend_on_the_seed_alone():
    model = tiny()
    first, again, other = (model.masked_batch(TEXTS, random.Random(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(first, again))
    assert not torch.equal(first[3][:, :1], other[3][:, :1])
    torch.manual_seed(123)
    state = random.getstate()
    assert all(torch.equal(a, b) for a, b in zip(first, model.masked_batch(TEXTS, random.Random(5))))
    assert random.getstate() == state
    short = model.masked_batch(TEXTS, random.Random(5), max_length=6)
    assert short[0].shape[2] == 6*16 and short[1].max() == 5


def test_only_text_is_hidden_and_everything_is_accounted_for():
    model = tiny()
    for seed in range(20):
        pixels, num_patches, visible, hidden = model.masked_batch(TEXTS, random.Random(seed))
        assert pixels.dtype == torch.uint8
        assert num_patches.dtype == visible.dtype == hidden.dtype == torch.int64
        for n, v, h in zip(num_patches.tolist(), visible.tolist(), hidden.tolist()):
            v, h = [i for i in v if i >= 0], [i for i in h if i >= 0]
            assert v[0] == 0 and v[-1] == n + 1 and all(1 <= i <= n for i in h)
            assert sorted(v + h) == list(range(n + 2))
            assert len(h) == max(1, round(.25*n))


def dense(model, pixels, n, hidden):
    "One strip, no padding, by hand: what PIXEL's paper says, in the order in which it says it."
    encoder, decoder = model.encoder, model.decoder
    states = encoder.patch_states(pixels[None, :, :(n + 1)*16])[0]
    visible = [i for i in range(n + 2) if i not in hidden]
    h = states[visible][None]
    for layer in encoder.vit.encoder.layer: h = layer(h, torch.ones(1, 1, 1, len(visible), dtype=torch.bool))
    h = decoder.decoder_embed(encoder.vit.layernorm(h))[0]
    whole = torch.stack([h[visible.index(i)] if i in visible else decoder.mask_token[0, 0]
                         for i in range(n + 2)])
    whole = (whole + decoder.decoder_pos_embed[0, :n + 2])[None]
    for layer in decoder.decoder_layers: whole = layer(whole, torch.ones(1, 1, 1, n + 2, dtype=torch.bool))
    return decoder.decoder_pred(decoder.decoder_norm(whole))[0, sorted(hidden)]


@pytest.mark.parametrize("channels", [1, 3])
@torch.no_grad()
def test_a_batch_is_its_strips_one_by_one(channels):
    model = tiny(channels=channels).eval()
    batch = model.masked_batch(TEXTS, random.Random(3))
    predicted, target = model.predict(*batch)
    costs = []
    for row, (pixels, n, _, hidden) in enumerate(zip(*batch)):
        places = [i for i in hidden.tolist() if i >= 0]
        expected = dense(model, pixels, int(n), set(places))
        torch.testing.assert_close(predicted[row, :len(places)], expected, atol=1e-5, rtol=1e-4)
        for k, i in enumerate(places):
            patch = pixels[:, 16*(i - 1):16*i].float()/255
            assert torch.equal(target[row, k], patch.reshape(-1, 1).expand(-1, channels).reshape(-1))
            true = target[row, k].double()
            standardised = (true - true.mean())/(true.var() + 1e-6).sqrt()
            costs.append(((predicted[row, k].double() - standardised)**2).mean().item())
    assert model(*batch).item() == pytest.approx(np.mean(costs), rel=1e-4)


@torch.no_grad()
def test_hidden_pixels_and_padding_are_never_read():
    model = tiny().eval()
    pixels, num_patches, visible, hidden = model.masked_batch(TEXTS, random.Random(3))
    def predicted(pixels): return model.predict(pixels, num_patches, visible, hidden)[0]
    painted = pixels.clone()
    for row, (n, h) in enumerate(zip(num_patches.tolist(), hidden.tolist())):
        for i in (i for i in h if i > 0):
            painted[row, :, 16*(i - 1):16*i] = torch.randint(0, 256, (16, 16), dtype=torch.uint8)
        painted[row, :, 16*(n + 1):] = 77
    assert torch.equal(predicted(painted)[hidden >= 0], predicted(pixels)[hidden >= 0])
    without = pixels.clone()   # but the black patch is read
    without[0, :, 16*num_patches[0]:16*(num_patches[0] + 1)] = 255
    assert not torch.allclose(predicted(without)[0], predicted(pixels)[0])


def test_the_encoder_computes_the_visible_patches_only():
    model, seen = tiny(), []
    first_layer = model.encoder.vit.encoder.layer[0]
    first_layer.register_forward_hook(lambda layer, inputs, output: seen.append(tuple(inputs[0].shape)))
    batch = model.masked_batch(TEXTS[:1], random.Random(0))
    model(*batch)
    n = int(batch[1][0])
    assert seen == [(1, n + 2 - max(1, round(.25*n)), 32)]


def test_gradients_reach_every_weight_that_trains():
    model = tiny()
    model(*model.masked_batch(TEXTS, random.Random(0))).backward()
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    assert frozen == ["decoder.decoder_pos_embed"]
    for name, parameter in model.named_parameters():
        assert name in frozen or parameter.grad is not None and parameter.grad.abs().max() > 0, name


def test_it_learns_a_batch_by_heart_in_bfloat16_too():
    for enabled in (False, True):
        model = tiny(decoder_layers=1).eval()
        batch = model.masked_batch(TEXTS, random.Random(0))
        optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
        for _ in range(60):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled): loss = model(*batch)
            assert loss.dtype == torch.float32
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert loss.item() < .3


@pytest.mark.parametrize("name", ("sentnb-small", "sentnb-small-scratch"))
def test_an_encoder_that_weighs_its_patches_is_trained_on(name, tmp_path):
    "The decoder takes over nothing of how patches are read and states pooled; saved, both come back."
    encoder = PixelEncoder.from_pretrained(name)
    assert encoder.config.patch_features and not encoder.config.final_norm
    vectors, model = encoder.encode(TEXTS), MaskedAutoencoder(encoder, 1, 64)
    assert isinstance(model.decoder.decoder_norm, torch.nn.LayerNorm)
    batch, losses = model.masked_batch(TEXTS, random.Random(0)), []
    again = MaskedAutoencoder.from_pretrained(model.save_pretrained(tmp_path/"mae"))
    assert again.settings() == model.settings() and again.dev_loss(TEXTS) == model.dev_loss(TEXTS)
    np.testing.assert_array_equal(again.encode(TEXTS), vectors)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(20):
        losses.append(model(*batch))
        optimizer.zero_grad()
        losses[-1].backward()
        assert encoder.vit.embeddings.patch_weight.weight.grad.abs().sum() > 0
        optimizer.step()
    assert losses[-1] < .8*losses[0] and not np.allclose(encoder.encode(TEXTS), vectors, atol=1e-3)


def test_sizes_and_wrong_arguments():
    model = MaskedAutoencoder(PixelEncoder(PixelConfig(num_hidden_layers=1)))
    assert model.pretraining_settings() == dict(
        decoder_num_hidden_layers=2, decoder_hidden_size=128, decoder_num_attention_heads=4,
        decoder_intermediate_size=512, mask_ratio=.25, max_span=6, norm_pix_loss=True)
    json.dumps(model.settings())
    assert tiny(normalize=False).settings() != tiny().settings() != tiny(mask_ratio=.5).settings()
    for options, says in ((dict(mask_ratio=0.), "mask_ratio"), (dict(mask_ratio=1.), "mask_ratio"),
                          (dict(max_span=0), "max_span"), (dict(decoder_layers=0), "decoder_layers"),
                          (dict(decoder_width=30), "hidden_size=30"),
                          (dict(decoder_heads=1.5), "an integer")):
        with pytest.raises(ValueError, match=says): tiny(**options)
    model = tiny()
    for hidden in ([[0]], [[]]*5, [[0]]*4 + [[1]], [[-1]]*5):
        with pytest.raises(ValueError, match="hidden"):
            model.masked_batch(TEXTS, random.Random(0), hidden=hidden)
    with pytest.raises(ValueError, match="texts is empty"): model.masked_batch([], random.Random(0))
    with pytest.raises(ValueError, match="texts is empty"): model.dev_loss([])
    with pytest.raises(ValueError, match="scale"): model.reconstruct(TEXTS, scale="none")


# ---- what is seen and saved

@pytest.mark.parametrize("options", [
    dict(), dict(scale="true"), dict(hidden=[[0, 1], [1], [3, 4, 5], [0], [0]])])
@pytest.mark.parametrize("channels, normalize", [(1, True), (1, False), (3, True)])
def test_reconstruction_changes_the_hidden_patches_only(options, channels, normalize):
    model = tiny(channels=channels, normalize=normalize).train()
    drawn = model.reconstruct(TEXTS, **options)
    assert model.training and drawn.before.dtype == drawn.masked.dtype == drawn.after.dtype == np.uint8
    pixels, num_patches, _, hidden = model.masked_batch(TEXTS, random.Random(0), hidden=options.get("hidden"))
    assert np.array_equal(drawn.before, pixels.numpy())
    assert np.array_equal(drawn.num_patches, num_patches.numpy())
    assert drawn.hidden == [[i - 1 for i in row if i > 0] for row in hidden.tolist()]
    for i, places in enumerate(drawn.hidden):
        for k in range(drawn.before.shape[2]//16):
            three = drawn.before, drawn.masked, drawn.after
            before, masked, after = (strips[i, :, 16*k:16*k + 16] for strips in three)
            assert np.array_equal(masked, np.full_like(before, 170) if k in places else before)
            # the true scale gives away that there is no ink
            blank = normalize and options.get("scale") == "true" and np.ptp(before) == 0
            assert np.array_equal(after, before) == (k not in places or blank)
        assert [s.shape for s in drawn.strips(i)] == [(16, 16*(drawn.num_patches[i] + 1))]*3
    assert np.isfinite(drawn.loss).all() and drawn._repr_png_().startswith(b"\x89PNG")


def test_a_perfect_prediction_is_the_picture(monkeypatch):
    "With the true scale the drawing is exact; that is what the standardisation takes away and gives back."
    model = tiny()
    def perfect(pixels, num_patches, visible, hidden):
        places = (hidden - 1).clamp(min=0)[..., None].expand(-1, -1, 256)
        target = model.encoder.patches(pixels).gather(1, places)
        return normalize_patches(target, 0.).nan_to_num(0.), target
    monkeypatch.setattr(model, "predict", perfect)
    drawn = model.reconstruct(TEXTS, scale="true")
    assert np.array_equal(drawn.after, drawn.before) and drawn.loss.max() < 1e-4


def test_dev_loss_is_the_mean_over_hidden_patches_whatever_the_batch():
    model = tiny().train()
    whole, small = model.dev_loss(TEXTS, batch_size=5), model.dev_loss(TEXTS, batch_size=2)
    assert whole == pytest.approx(small, rel=1e-5) and whole != model.dev_loss(TEXTS, seed=1)
    assert model.training
    loss = model.eval()(*model.masked_batch(TEXTS, random.Random(0)))
    assert whole == pytest.approx(loss.item(), rel=1e-6)


def test_truncated_texts_are_reported():
    model, texts = tiny(), ["short", "a longer text "*60, "and another one "*60]
    for compute in (model.dev_loss, model.reconstruct):
        with pytest.warns(TextsTruncated, match="^2 of 3 texts were truncated at") as caught: compute(texts)
        assert len(caught) == 1


@pytest.mark.parametrize("half", [False, True])
def test_saved_and_loaded(tmp_path, half):
    model = tiny(decoder_layers=3, decoder_width=64, decoder_heads=4, decoder_intermediate=48,
                 mask_ratio=.4, max_span=3, normalize=False)
    if half: model = model.bfloat16().float()
    assert model.save_pretrained(tmp_path/"m", half=half) == tmp_path/"m"
    assert not hasattr(model.encoder, "decoder")
    again = MaskedAutoencoder.from_pretrained(tmp_path/"m")
    assert not again.training and again.settings() == model.settings()
    assert again.state_dict().keys() == model.state_dict().keys()
    for key, weights in again.state_dict().items(): assert torch.equal(weights, model.state_dict()[key]), key
    assert again.dev_loss(TEXTS) == model.dev_loss(TEXTS)
    alone = PixelEncoder.from_pretrained(tmp_path/"m")
    np.testing.assert_array_equal(alone.encode(TEXTS), model.encode(TEXTS))
    fewer = MaskedAutoencoder.from_pretrained(tmp_path/"m", max_patches=20)
    assert fewer.decoder.decoder_pos_embed.shape[1] == 21
    assert fewer.dev_loss(TEXTS[1:2]) == pytest.approx(model.dev_loss(TEXTS[1:2]), rel=1e-5)
    model.save_pretrained(tmp_path/"m", half=half)   # over itself
    assert MaskedAutoencoder.from_pretrained(tmp_path/"m").settings() == model.settings()


def test_an_encoder_alone_or_a_decoder_that_does_not_fit_is_refused(tmp_path):
    model = tiny()
    model.encoder.save_pretrained(tmp_path/"e")
    with pytest.raises(ValueError, match="has no decoder"): MaskedAutoencoder.from_pretrained(tmp_path/"e")
    model.save_pretrained(tmp_path/"m")
    config = tmp_path/"m"/"config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | dict(decoder_num_hidden_layers=5)))
    with pytest.raises(ValueError, match="does not fit its config.json"):
        MaskedAutoencoder.from_pretrained(tmp_path/"m")
    model.encoder.save_pretrained(tmp_path/"m")   # the encoder over both: no stale decoder is left
    weights = load_file(tmp_path/"m"/"model.safetensors")
    assert not [name for name in weights if name.startswith("decoder.")]
    with pytest.raises(ValueError, match="has no decoder"): MaskedAutoencoder.from_pretrained(tmp_path/"m")


def test_a_failed_save_leaves_the_model_as_it_was(tmp_path):
    model = tiny()
    (tmp_path/"file").write_text("x")
    with pytest.raises(FileExistsError): model.save_pretrained(tmp_path/"file")
    assert not hasattr(model.encoder, "decoder")
    assert not [name for name in model.encoder.state_dict() if name.startswith("decoder")]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden models (../shared/golden/model) here")
def test_a_checkpoint_of_pixel_loads_with_its_decoder():
    model, saved = MaskedAutoencoder.from_pretrained(GOLDEN), load_file(GOLDEN/"model.safetensors")
    loaded = {name.removeprefix("encoder."): weights for name, weights in model.state_dict().items()}
    assert loaded.keys() == saved.keys()
    for name, weights in saved.items(): assert torch.equal(loaded[name], weights), name
    assert (model.mask_ratio, model.normalize, model.decoder.heads) == (.25, True, 2)
    assert np.isfinite(model.dev_loss(TEXTS))
    short = MaskedAutoencoder.from_pretrained(GOLDEN, max_patches=64)
    assert short.dev_loss(TEXTS) == pytest.approx(model.dev_loss(TEXTS), rel=1e-5)

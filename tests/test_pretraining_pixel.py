"losses.reconstruction against float64 references; encoders.mae: what is hidden, what is read, what is scored, and what is saved."
import collections, json, math, random

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file

from sentnb import losses
from sentnb.core import project_root
from sentnb.encoders.mae import MaskedAutoencoder, hidden_patches
from sentnb.encoders.pixel import PixelConfig, PixelEncoder
from sentnb.losses.reconstruction import masked_patch_loss, masked_token_loss, normalise_patches
from sentnb.renderer import RenderConfig

GOLDEN = project_root().parent/"shared"/"golden"/"model"/"pretrain"
few = settings(max_examples=40, deadline=None, derandomize=True)
TEXTS = ["A cat sleeps on the warm roof of the old house.", "Two dogs.", "It rains in the mountains, and nobody has an umbrella at hand today.", "Она читает книгу в саду.", "x"]


# ---- the losses

def patch_reference(predicted, target, mask, normalise):
    "Patch by patch, in plain Python floats."
    errors = []
    for p, t, m in zip(predicted.reshape(-1, predicted.shape[-1]).tolist(), target.reshape(-1, target.shape[-1]).tolist(), mask.reshape(-1).tolist()):
        if not m: continue
        if normalise:
            mean = sum(t)/len(t)
            t = [(v - mean)/math.sqrt(sum((w - mean)**2 for w in t)/(len(t) - 1) + 1e-6) for v in t]
        errors.append(sum((a - b)**2 for a, b in zip(p, t))/len(t))
    return sum(errors)/len(errors)

def token_reference(logits, labels):
    def surprise(row, right): return max(row) + math.log(sum(math.exp(v - max(row)) for v in row)) - row[right]
    costs = [surprise(row, right) for row, right in zip(logits.reshape(-1, logits.shape[-1]).tolist(), labels.reshape(-1).tolist()) if right != -100]
    return sum(costs)/len(costs)

def draw_patches(seed, n, p, k):
    rng = np.random.default_rng(seed)
    mask = rng.random((n, p)) < .4; mask[0, 0] = True
    target = rng.random((n, p, k)); target[0, -1] = 1.   # a blank patch
    return rng.normal(size=(n, p, k)), target, mask

@few
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6), st.integers(2, 20), st.booleans())
def test_patch_loss_is_the_reference(seed, n, p, k, normalise):
    arrays = draw_patches(seed, n, p, k)
    tensors = [torch.from_numpy(x) for x in arrays]
    loss = masked_patch_loss(*tensors, normalise)
    assert loss.dtype == torch.float64 and loss.item() == pytest.approx(patch_reference(*arrays, normalise), rel=1e-10)
    single = masked_patch_loss(tensors[0].float(), tensors[1].float(), tensors[2], normalise)
    assert single.dtype == torch.float32 and single.item() == pytest.approx(loss.item(), rel=1e-4)
    gathered = masked_patch_loss(tensors[0][tensors[2]], tensors[1][tensors[2]], normalise=normalise)
    assert gathered.item() == pytest.approx(loss.item(), rel=1e-10)

@few
@given(st.integers(0, 2**31), st.integers(1, 4), st.integers(1, 6), st.integers(2, 20))
def test_token_loss_is_the_reference(seed, n, s, v):
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(n, s, v))*3, rng.integers(0, v, (n, s))
    hidden = rng.random((n, s)) < .4; hidden[0, 0] = True
    labels[~hidden] = -100
    a, b = torch.from_numpy(logits), torch.from_numpy(labels)
    assert masked_token_loss(a, b).item() == pytest.approx(token_reference(logits, labels), rel=1e-10)
    assert masked_token_loss(a.float(), b).item() == pytest.approx(token_reference(logits, labels), rel=1e-4)
    assert masked_token_loss(a[b != -100], b[b != -100]).item() == pytest.approx(token_reference(logits, labels), rel=1e-10)

@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_losses_are_float32_inside_autocast(dtype):
    predicted, target, mask = (torch.from_numpy(x) for x in draw_patches(1, 4, 6, 256))
    predicted, scores, labels = predicted.to(dtype).requires_grad_(), torch.randn(5, 30).to(dtype).requires_grad_(), torch.arange(5)
    with torch.autocast("cpu", dtype=torch.bfloat16): found = masked_patch_loss(predicted, target.float(), mask), masked_token_loss(scores, labels)
    assert found[0].item() == pytest.approx(patch_reference(predicted.detach().double().numpy(), target.float().double().numpy(), mask.numpy(), True), rel=1e-5)
    assert found[1].item() == pytest.approx(token_reference(scores.detach().double().numpy(), labels.numpy()), rel=1e-5)
    sum(found).backward()
    assert all(x.dtype == torch.float32 for x in found) and all(x.grad.dtype == dtype and x.grad.isfinite().all() for x in (predicted, scores))

def test_gradients_are_numerical_and_only_of_what_was_hidden():
    predicted, target, mask = (torch.from_numpy(x) for x in draw_patches(2, 2, 3, 4))
    assert torch.autograd.gradcheck(lambda p: masked_patch_loss(p, target, mask), predicted.requires_grad_())
    predicted = predicted.detach().masked_fill(~mask[..., None], math.nan).requires_grad_()
    masked_patch_loss(predicted, target, mask).backward()
    assert (predicted.grad[~mask] == 0).all() and predicted.grad[mask].isfinite().all() and predicted.grad[mask].abs().max() > 0

x, m = torch.rand(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
@pytest.mark.parametrize("arguments, error, says", [
    ((x, x[:1], m), ValueError, "expected one shape"), ((x, x, m[:1]), ValueError, r"one for each patch, \[2, 3\]"), ((x, x, m.float()), ValueError, "expected bool"),
    ((x, x, ~m), ValueError, "no patch is hidden"), ((x.long(), x, m), TypeError, "predicted is torch.int64"), ((x, None, m), TypeError, "target is NoneType"),
    ((x*math.nan, x, m), FloatingPointError, "not finite"), ((x[..., :1], x[..., :1], m), ValueError, "normalise=False"), ((x[0, 0], x[0, 0]), ValueError, "expected one shape"),
])
def test_patch_loss_errors(arguments, error, says):
    with pytest.raises(error, match=says): masked_patch_loss(*arguments)

@pytest.mark.parametrize("logits, labels, error, says", [
    (x, torch.zeros(2, 3).int(), TypeError, "expected int64"), (x, torch.zeros(2).long(), ValueError, r"\[2, 3\]"), (x, torch.full((2, 3), 4), ValueError, "0 to 3"),
    (x, torch.full((2, 3), -100), ValueError, "no token is hidden"), (x*math.inf, torch.zeros(2, 3).long(), FloatingPointError, "not finite"), (x.int(), torch.zeros(2, 3).long(), TypeError, "logits is torch.int32"),
])
def test_token_loss_errors(logits, labels, error, says):
    with pytest.raises(error, match=says): masked_token_loss(logits, labels)

def test_the_package_gathers_them():
    assert losses.masked_patch_loss is masked_patch_loss and losses.masked_token_loss is masked_token_loss
    assert {"masked_patch_loss", "masked_token_loss"} <= set(losses.__all__)


# ---- what is hidden

@few
@given(st.integers(1, 600), st.integers(0, 2**31), st.floats(.01, .95), st.integers(1, 9))
def test_hidden_patches_are_as_many_as_wanted(n, seed, ratio, span):
    hidden = hidden_patches(n, random.Random(seed), ratio, span)
    assert len(hidden) == max(1, round(ratio*n)) and hidden == sorted(set(hidden)) and 0 <= hidden[0] and hidden[-1] < n
    assert hidden == hidden_patches(n, random.Random(seed), ratio, span)

def runs(hidden):
    "Lengths of the runs of neighbours, and the gaps between them."
    found = [[hidden[0], hidden[0]]]
    for i in hidden[1:]:
        if i == found[-1][1] + 1: found[-1][1] = i
        else: found.append([i, i])
    return [b - a + 1 for a, b in found], [c - b - 1 for (_, b), (c, _) in zip(found, found[1:])]

def test_spans_are_those_of_the_paper():
    "Length 1 to 4 with probability 0.2, 5 and 6 with 0.1 (mean 2.9: of those drawn, the last of a text is cut); no span touches another."
    rng, counted, places = random.Random(0), collections.Counter(), np.zeros(400)
    for _ in range(400):
        hidden = hidden_patches(400, rng, .05)   # much room: hardly a span is refused
        lengths, gaps = runs(hidden)
        counted.update(lengths); places[hidden] += 1
        assert max(lengths) <= 6 and min(gaps) >= 1
    share = {k: v/counted.total() for k, v in counted.items()}
    for length, expected in {1: .2, 2: .2, 3: .2, 4: .2, 5: .1, 6: .1}.items(): assert share[length] == pytest.approx(expected, abs=.06)
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
    config = PixelConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=2, intermediate_size=64, max_patches=32, num_channels=channels, pixel_normalisation=channels == 1)
    encoder = PixelEncoder(config, RenderConfig(strategy="words", max_patches=32))
    if channels == 1: encoder.fit_pixel_normalisation(TEXTS)
    return MaskedAutoencoder(encoder, **options)

def test_batches_depend_on_the_seed_alone():
    model = tiny()
    one, two, other = (model.masked_batch(TEXTS, random.Random(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(a, b) for a, b in zip(one, two)) and not torch.equal(one[3][:, :1], other[3][:, :1])
    torch.manual_seed(123); state = random.getstate()
    assert all(torch.equal(a, b) for a, b in zip(one, model.masked_batch(TEXTS, random.Random(5)))) and random.getstate() == state
    short = model.masked_batch(TEXTS, random.Random(5), max_length=6)
    assert short[0].shape[2] == 6*16 and short[1].max() == 5

def test_only_text_is_hidden_and_everything_is_accounted_for():
    model = tiny()
    for seed in range(20):
        pixels, num_patches, visible, hidden = model.masked_batch(TEXTS, random.Random(seed))
        assert pixels.dtype == torch.uint8 and all(t.dtype == torch.int64 for t in (num_patches, visible, hidden))
        for n, v, h in zip(num_patches.tolist(), visible.tolist(), hidden.tolist()):
            v, h = [i for i in v if i >= 0], [i for i in h if i >= 0]
            assert v[0] == 0 and v[-1] == n + 1 and all(1 <= i <= n for i in h) and sorted(v + h) == list(range(n + 2))
            assert len(h) == max(1, round(.25*n))

def dense(model, pixels, n, hidden):
    "One strip, no padding, by hand: what PIXEL's paper says, in the order in which it says it."
    encoder, decoder = model.encoder, model.decoder
    states = encoder.patch_states(pixels[None, :, :(n + 1)*16])[0]
    visible = [i for i in range(n + 2) if i not in hidden]
    h = states[visible][None]
    for layer in encoder.vit.encoder.layer: h = layer(h, torch.ones(1, 1, 1, len(visible), dtype=torch.bool))
    h = decoder.decoder_embed(encoder.vit.layernorm(h))[0]
    full = torch.stack([h[visible.index(i)] if i in visible else decoder.mask_token[0, 0] for i in range(n + 2)])
    full = (full + decoder.decoder_pos_embed[0, :n + 2])[None]
    for layer in decoder.decoder_layers: full = layer(full, torch.ones(1, 1, 1, n + 2, dtype=torch.bool))
    return decoder.decoder_pred(decoder.decoder_norm(full))[0, sorted(hidden)]

@pytest.mark.parametrize("channels", [1, 3])
@torch.no_grad()
def test_a_batch_is_its_strips_one_by_one(channels):
    model = tiny(channels=channels).eval()
    batch = model.masked_batch(TEXTS, random.Random(3))
    predicted, target = model.predict(*batch)
    costs = []
    for row, (pixels, n, _, hidden) in enumerate(zip(*batch)):
        places = [i for i in hidden.tolist() if i >= 0]
        torch.testing.assert_close(predicted[row, :len(places)], dense(model, pixels, int(n), set(places)), atol=1e-5, rtol=1e-4)
        for k, i in enumerate(places):
            patch = pixels[:, 16*(i - 1):16*i].float()/255
            assert torch.equal(target[row, k], patch.reshape(-1, 1).expand(-1, channels).reshape(-1))
            true = target[row, k].double()
            costs.append(((predicted[row, k].double() - (true - true.mean())/(true.var() + 1e-6).sqrt())**2).mean().item())
    assert model(*batch).item() == pytest.approx(np.mean(costs), rel=1e-4)

@torch.no_grad()
def test_hidden_pixels_and_padding_are_never_read():
    model = tiny().eval()
    pixels, num_patches, visible, hidden = model.masked_batch(TEXTS, random.Random(3))
    painted = pixels.clone()
    for row, (n, h) in enumerate(zip(num_patches.tolist(), hidden.tolist())):
        for i in h:
            if i > 0: painted[row, :, 16*(i - 1):16*i] = torch.randint(0, 256, (16, 16), dtype=torch.uint8)
        painted[row, :, 16*(n + 1):] = 77
    assert torch.equal(model.predict(painted, num_patches, visible, hidden)[0][hidden >= 0], model.predict(pixels, num_patches, visible, hidden)[0][hidden >= 0])
    dark = pixels.clone(); dark[0, :, 16*(num_patches[0]):16*(num_patches[0] + 1)] = 255   # but the black patch is
    assert not torch.allclose(model.predict(dark, num_patches, visible, hidden)[0][0], model.predict(pixels, num_patches, visible, hidden)[0][0])

def test_the_encoder_computes_the_visible_patches_only():
    model, seen = tiny(), []
    model.encoder.vit.encoder.layer[0].register_forward_hook(lambda layer, inputs, output: seen.append(tuple(inputs[0].shape)))
    batch = model.masked_batch(TEXTS[:1], random.Random(0))
    model(*batch)
    n = int(batch[1][0])
    assert seen == [(1, n + 2 - max(1, round(.25*n)), 32)]

def test_gradients_reach_every_weight_that_trains():
    model = tiny()
    model(*model.masked_batch(TEXTS, random.Random(0))).backward()
    without = [name for name, parameter in model.named_parameters() if parameter.requires_grad and (parameter.grad is None or not parameter.grad.abs().max() > 0)]
    assert without == []
    assert [name for name, parameter in model.named_parameters() if not parameter.requires_grad] == ["decoder.decoder_pos_embed"]

def test_it_learns_a_batch_by_heart_in_bfloat16_too():
    for enabled in (False, True):
        model = tiny(decoder_layers=1).eval()
        batch, optimizer = model.masked_batch(TEXTS, random.Random(0)), torch.optim.AdamW(model.parameters(), lr=5e-3)
        for _ in range(60):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled): loss = model(*batch)
            assert loss.dtype == torch.float32
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        assert loss.item() < .3

def test_sizes_and_wrong_arguments():
    model = MaskedAutoencoder(PixelEncoder(PixelConfig(num_hidden_layers=1)))
    assert model.pretraining_settings() == dict(decoder_num_hidden_layers=2, decoder_hidden_size=128, decoder_num_attention_heads=4, decoder_intermediate_size=512, mask_ratio=.25, max_span=6, norm_pix_loss=True)
    json.dumps(model.settings())
    assert tiny(normalise=False).settings() != tiny().settings() != tiny(mask_ratio=.5).settings()
    for options, says in ((dict(mask_ratio=0.), "mask_ratio"), (dict(mask_ratio=1.), "mask_ratio"), (dict(max_span=0), "max_span"), (dict(decoder_layers=0), "decoder_layers"), (dict(decoder_width=30), "hidden_size=30"), (dict(decoder_heads=1.5), "whole number")):
        with pytest.raises(ValueError, match=says): tiny(**options)
    model = tiny()
    for hidden in ([[0]], [[]]*5, [[0]]*4 + [[1]], [[-1]]*5):
        with pytest.raises(ValueError, match="hidden"): model.masked_batch(TEXTS, random.Random(0), hidden=hidden)
    with pytest.raises(ValueError, match="empty batch"): model.masked_batch([], random.Random(0))
    with pytest.raises(ValueError, match="no texts"): model.dev_loss([])
    with pytest.raises(ValueError, match="scale"): model.reconstruct(TEXTS, scale="none")


# ---- what is seen and saved

@pytest.mark.parametrize("options", [dict(), dict(scale="true"), dict(hidden=[[0, 1], [1], [3, 4, 5], [0], [0]])])
@pytest.mark.parametrize("channels, normalise", [(1, True), (1, False), (3, True)])
def test_reconstruction_changes_the_hidden_patches_only(options, channels, normalise):
    model = tiny(channels=channels, normalise=normalise).train()
    drawn = model.reconstruct(TEXTS, **options)
    assert model.training and drawn.before.dtype == drawn.masked.dtype == drawn.after.dtype == np.uint8
    pixels, num_patches, _, hidden = model.masked_batch(TEXTS, random.Random(0), hidden=options.get("hidden"))
    assert np.array_equal(drawn.before, pixels.numpy()) and np.array_equal(drawn.num_patches, num_patches.numpy())
    assert drawn.hidden == [[i - 1 for i in row if i > 0] for row in hidden.tolist()]
    for i, places in enumerate(drawn.hidden):
        for k in range(drawn.before.shape[2]//16):
            here = slice(16*k, 16*k + 16)
            assert (drawn.masked[i, :, here] == 170).all() if k in places else np.array_equal(drawn.masked[i, :, here], drawn.before[i, :, here])
            blank = options.get("scale") == "true" and np.ptp(drawn.before[i, :, here]) == 0   # the true scale gives away that there is no ink
            assert np.array_equal(drawn.after[i, :, here], drawn.before[i, :, here]) == (k not in places or blank and normalise)
        assert [s.shape for s in drawn.strips(i)] == [(16, 16*(drawn.num_patches[i] + 1))]*3
    assert np.isfinite(drawn.loss).all() and drawn._repr_png_().startswith(b"\x89PNG")

def test_a_perfect_prediction_is_the_picture(monkeypatch):
    "With the true scale the drawing is exact; that is what the standardisation takes away and gives back."
    model = tiny()
    def perfect(pixels, num_patches, visible, hidden):
        target = torch.gather(model.encoder._patches(pixels), 1, (hidden - 1).clamp(min=0)[..., None].expand(-1, -1, 256))
        return normalise_patches(target, 0.).nan_to_num(0.), target
    monkeypatch.setattr(model, "predict", perfect)
    drawn = model.reconstruct(TEXTS, scale="true")
    assert np.array_equal(drawn.after, drawn.before) and drawn.loss.max() < 1e-4

def test_dev_loss_is_the_mean_over_hidden_patches_whatever_the_batch():
    model = tiny().train()
    one, small = model.dev_loss(TEXTS, batch_size=5), model.dev_loss(TEXTS, batch_size=2)
    assert one == pytest.approx(small, rel=1e-5) and model.training and one != model.dev_loss(TEXTS, seed=1)
    assert one == pytest.approx(model.eval()(*model.masked_batch(TEXTS, random.Random(0))).item(), rel=1e-6)

@pytest.mark.parametrize("half", [False, True])
def test_saved_and_loaded(tmp_path, half):
    model = tiny(decoder_layers=3, decoder_width=64, decoder_heads=4, decoder_intermediate=48, mask_ratio=.4, max_span=3, normalise=False)
    if half: model = model.bfloat16().float()
    assert model.save_pretrained(tmp_path/"m", half=half) == tmp_path/"m" and not hasattr(model.encoder, "decoder")
    again = MaskedAutoencoder.from_pretrained(tmp_path/"m")
    assert not again.training and again.settings() == model.settings()
    assert again.state_dict().keys() == model.state_dict().keys() and all(torch.equal(v, model.state_dict()[k]) for k, v in again.state_dict().items())
    assert again.dev_loss(TEXTS) == model.dev_loss(TEXTS)
    np.testing.assert_array_equal(PixelEncoder.from_pretrained(tmp_path/"m").encode(TEXTS), model.encode(TEXTS))
    fewer = MaskedAutoencoder.from_pretrained(tmp_path/"m", max_patches=20)
    assert fewer.decoder.decoder_pos_embed.shape[1] == 21 and fewer.dev_loss(TEXTS[1:2]) == pytest.approx(model.dev_loss(TEXTS[1:2]), rel=1e-5)
    model.save_pretrained(tmp_path/"m", half=half)   # over itself
    assert MaskedAutoencoder.from_pretrained(tmp_path/"m").settings() == model.settings()

def test_an_encoder_alone_or_a_decoder_that_does_not_fit_is_refused(tmp_path):
    model = tiny()
    model.encoder.save_pretrained(tmp_path/"e")
    with pytest.raises(ValueError, match="has no decoder"): MaskedAutoencoder.from_pretrained(tmp_path/"e")
    model.save_pretrained(tmp_path/"m")
    values = json.loads((tmp_path/"m"/"config.json").read_text(encoding="utf-8"))
    (tmp_path/"m"/"config.json").write_text(json.dumps(values | dict(decoder_num_hidden_layers=5)), encoding="utf-8")
    with pytest.raises(ValueError, match="does not fit its config.json"): MaskedAutoencoder.from_pretrained(tmp_path/"m")
    model.encoder.save_pretrained(tmp_path/"m")   # the encoder over both: no stale decoder is left
    assert not [k for k in load_file(tmp_path/"m"/"model.safetensors") if k.startswith("decoder.")]
    with pytest.raises(ValueError, match="has no decoder"): MaskedAutoencoder.from_pretrained(tmp_path/"m")

def test_a_failed_save_leaves_the_model_as_it_was(tmp_path):
    model = tiny()
    (tmp_path/"file").write_text("x")
    with pytest.raises(FileExistsError): model.save_pretrained(tmp_path/"file")
    assert not hasattr(model.encoder, "decoder") and not [k for k in model.encoder.state_dict() if k.startswith("decoder")]

@pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden models are not beside this checkout (../shared/golden/model)")
def test_a_checkpoint_of_pixel_loads_with_its_decoder():
    model, saved = MaskedAutoencoder.from_pretrained(GOLDEN), load_file(GOLDEN/"model.safetensors")
    found = {k.removeprefix("encoder."): v for k, v in model.state_dict().items()}
    assert found.keys() == saved.keys() and all(torch.equal(found[k], v) for k, v in saved.items())
    assert (model.mask_ratio, model.normalise, model.decoder.heads) == (.25, True, 2)
    assert np.isfinite(model.dev_loss(TEXTS))
    assert MaskedAutoencoder.from_pretrained(GOLDEN, max_patches=64).dev_loss(TEXTS) == pytest.approx(model.dev_loss(TEXTS), rel=1e-5)

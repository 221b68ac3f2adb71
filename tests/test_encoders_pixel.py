"A PIXEL / Pixel-Linguist checkpoint loads key for key and gives the reference's numbers (golden models)."
import dataclasses
import json
import os
import re
import stat
import warnings

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sentnb.core import project_root
from sentnb.corpora import Microworld
from sentnb.encoders import PixelConfig, PixelEncoder
from sentnb.encoders.base import TextsTruncated
from sentnb.encoders.postprocessing import Whitening
from sentnb.evaluation.geometry import anisotropy
from sentnb.losses import info_nce
from sentnb.renderer import RenderConfig

GOLDEN = project_root().parent/"shared"/"golden"/"model"
golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden models (../shared/golden/model) here")
SIZES = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64)


def _inputs():
    "The golden pictures back as uint8 strips: they are gray repeated to three channels in [0, 1]."
    saved = np.load(GOLDEN/"inputs.npz")
    pixels = np.rint(saved["pixel_values"][:, 0]*255).astype(np.uint8)
    assert np.array_equal(np.repeat((pixels/np.float32(255))[:, None], 3, 1), saved["pixel_values"])
    return torch.from_numpy(pixels), torch.from_numpy(saved["attention_mask"].sum(1).astype(np.int64) - 1)


@golden
@pytest.mark.parametrize("name", ["representation", "pretrain"])
def test_checkpoint_loads_key_for_key(name):
    encoder = PixelEncoder.from_pretrained(GOLDEN/name)
    saved = load_file(GOLDEN/name/"model.safetensors")
    saved = {key: weights for key, weights in saved.items() if not key.startswith("decoder.")}
    assert encoder.state_dict().keys() == saved.keys()
    assert all(torch.equal(encoder.state_dict()[key], weights) for key, weights in saved.items())
    assert encoder.render_config.strategy == "continuous"


@golden
def test_states_embedding_loss_and_gradient():
    encoder, expected = PixelEncoder.from_pretrained(GOLDEN/"representation"), np.load(GOLDEN/"outputs.npz")
    pixels, num_patches = _inputs()
    states, mask = encoder.hidden_states(pixels, num_patches)
    pooled = encoder(pixels, num_patches)
    unit = torch.nn.functional.normalize(pooled, dim=1)
    keep = mask.numpy()
    for name, ours, rows in (("last_hidden_state", states, keep), ("mean_pooled_unnormalised", pooled, ...),
                             ("embedding", unit, ...)):
        golden_values = expected[f"representation_{name}"][rows]
        np.testing.assert_allclose(ours.detach().numpy()[rows], golden_values, atol=1e-5)
    loss = info_nce(pooled[:6], pooled[6:])
    np.testing.assert_allclose(loss.item(), expected["representation_loss"], rtol=1e-5)
    loss.backward()
    gradient = encoder.vit.embeddings.patch_embeddings.projection.weight.grad.numpy()
    largest = np.abs(gradient).max()
    np.testing.assert_allclose(gradient, expected["representation_grad_patch_proj_weight"], atol=1e-5*largest)


@golden
def test_more_positions_change_nothing():
    "529 against 64 patches: the first 65 positions are the same, so is the embedding."
    short = PixelEncoder.from_pretrained(GOLDEN/"pretrain", max_patches=64)
    full = PixelEncoder.from_pretrained(GOLDEN/"pretrain")
    first_two = [tensor[:2] for tensor in _inputs()]
    torch.testing.assert_close(short(*first_two), full(*first_two))
    vectors = PixelEncoder.from_pretrained(GOLDEN/"representation")(*first_two)
    unit = torch.nn.functional.normalize(vectors, dim=1).detach().numpy()
    np.testing.assert_allclose(unit, np.load(GOLDEN/"outputs.npz")["rep529_embedding_first2"], atol=1e-5)


def _tiny(**sizes):
    torch.manual_seed(0)
    return PixelEncoder(PixelConfig(**SIZES | sizes), RenderConfig(strategy="words", max_patches=32))


def test_head_is_kept_or_dropped(tmp_path):
    encoder = _tiny(head=True).eval()
    kept, dropped = encoder.encode(["a text"], head="keep"), encoder.encode(["a text"])
    assert not np.allclose(kept, dropped)
    encoder.save_pretrained(tmp_path/"m")
    again = PixelEncoder.from_pretrained(tmp_path/"m")
    np.testing.assert_array_equal(again.encode(["a text"], head="keep"), kept)
    with pytest.raises(ValueError, match="no training head"): _tiny().encode(["a text"], head="keep")


def test_chunks_change_no_row():
    encoder, texts = _tiny().eval(), [f"{'word '*(i % 7)}number {i}" for i in range(150)]
    batch = encoder.collate(texts)
    with torch.no_grad(): in_chunks, together = encoder(*batch), encoder.pool(*encoder.hidden_states(*batch))
    torch.testing.assert_close(in_chunks, together, atol=1e-5, rtol=1e-4)


def test_stream_is_lazy_and_ordered():
    encoder, drawn = _tiny(), []
    def texts():
        for i in range(50):
            drawn.append(i)
            yield f"text {i}"
    stream = encoder.encode_batches(texts(), window=10)
    first = next(stream)
    assert len(drawn) <= 11 and first.shape == (10, 32)
    rest = np.concatenate([first, *stream])
    np.testing.assert_allclose(rest, encoder.encode([f"text {i}" for i in range(50)]), atol=1e-5)


def test_scrolled_strips_are_pooled():
    encoder, texts = _tiny(), ["a word "*60, "short"]
    def drawn(long): return encoder.replace(render=dataclasses.replace(encoder.render_config, long=long))
    scrolled, cut = drawn("scroll").encode(texts), drawn("truncate").encode(texts)
    assert scrolled.shape == (2, 32) and np.isfinite(scrolled).all()
    np.testing.assert_allclose(scrolled[1], cut[1], atol=1e-5)
    assert not np.allclose(scrolled[0], cut[0], atol=1e-4)
    assert len(drawn("scroll").collate(texts[1:])[0]) == 1
    with pytest.raises(ValueError, match="2 texts scroll over .* strips .*expected one strip for each text"):
        drawn("scroll").collate(texts)


@pytest.mark.parametrize("size", [10, 14])
def test_any_size_of_patches_is_encoded(size):
    render = RenderConfig(strategy="words", patch_size=size, font_size=size/2, max_patches=32)
    encoder = PixelEncoder(PixelConfig(**SIZES, patch_size=size), render).eval()
    texts = ["a cat", "a dog, and a cat"]
    with torch.no_grad(): expected = torch.nn.functional.normalize(encoder(*encoder.collate(texts)), dim=1)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)


def test_other_settings_keep_the_fonts_of_the_checkpoint(tmp_path):
    files = "NotoSans-Regular.ttf", "NotoSansCJK-Regular.ttc"
    encoder = PixelEncoder(PixelConfig(**SIZES), RenderConfig(strategy="words", fonts=files))
    encoder.save_pretrained(tmp_path/"m") # without font files
    continuous = RenderConfig(strategy="continuous")
    for other in (PixelEncoder.from_pretrained(tmp_path/"m", render=continuous),
                  encoder.replace(render=continuous)):
        assert other.renderer.config == dataclasses.replace(encoder.renderer.config, strategy="continuous")
    named = encoder.replace(render=RenderConfig(family="Noto Serif"))
    assert named.render_config.family == "Noto Serif" and named.render_config.fonts == ()


def test_short_texts_are_the_same_when_long_ones_scroll():
    shipped = PixelEncoder.from_pretrained("sentnb-small")
    texts = Microworld(seed=0).sentences("en", n=40) + Microworld(seed=0).sentences("ru", n=40) + ["", "a"]
    scrolling = PixelEncoder.from_pretrained("sentnb-small", long="scroll")
    assert scrolling.render_config.long == "scroll" == shipped.replace(long="scroll").render_config.long
    assert (scrolling.encode(texts) == shipped.encode(texts)).all()
    ends = ["the same beginning "*30 + end for end in ("of one", "and of another thing altogether")]
    with pytest.warns(TextsTruncated): cut = shipped.encode(ends)
    assert (cut[0] == cut[1]).all() and scrolling.encode(ends)[0] @ scrolling.encode(ends)[1] < .9999


def test_what_is_cut_is_said_once_a_call(recwarn):
    warnings.simplefilter("always")
    encoder, texts = _tiny(), ["short"]*5 + ["a longer text "*30]*2
    encoder.encode(texts[:5])
    assert not recwarn.list
    encoder.encode((text for text in texts), window=2)
    warning, = recwarn.list
    assert warning.category is TextsTruncated and warning.filename == __file__
    assert re.match(r"2 of 7 texts were truncated at 32 patches; long='scroll'", str(warning.message))
    list(encoder.encode_batches(texts, window=2))
    assert len(recwarn.list) == 2 and recwarn.list[1].filename == __file__
    behind = Whitening.fit(encoder, [f"text {i}" for i in range(40)], k=2)
    behind.encode(texts, window=3)
    assert len(recwarn.list) == 3 and str(recwarn.list[2].message) == str(warning.message)
    next(encoder.encode_batches(texts[::-1], window=2)) # not read to its end
    encoder.replace(long="scroll").encode(texts)
    assert len(recwarn.list) == 3


def test_files_are_as_readable_as_any_other(tmp_path):
    for umask, mode in ((0o022, 0o644), (0o002, 0o664), (0o077, 0o600)):
        before = os.umask(umask)
        try: folder = _tiny().save_pretrained(tmp_path/str(umask))
        finally: os.umask(before)
        assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {
            "config.json": mode, "model.safetensors": mode}


def test_another_kind_of_checkpoint_is_named(tmp_path):
    with pytest.raises(ValueError, match="text-small-mlm is a text encoder; load it with TextEncoder.from_"):
        PixelEncoder.from_pretrained("text-small-mlm")
    for values, message in (("{}", "has no hidden_size"), ("[]", "contains list"),
                            ('{"model_type": "sentnb-static"}', "'sentnb-static'\\) has no")):
        (tmp_path/"config.json").write_text(values)
        with pytest.raises(ValueError, match=message): PixelEncoder.from_pretrained(tmp_path)
    for name in (None, "", 3):
        with pytest.raises(TypeError, match="expected the name of a checkpoint"):
            PixelEncoder.from_pretrained(name)


def test_saving_is_atomic_and_refuses_foreign_folders(tmp_path):
    encoder = _tiny()
    (tmp_path/"notes").mkdir()
    (tmp_path/"notes"/"mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError): encoder.save_pretrained(tmp_path/"notes")
    assert (tmp_path/"notes"/"mine.txt").read_text() == "keep me"
    encoder.save_pretrained(tmp_path/"m")
    (tmp_path/"m"/"README.md").write_text("card")
    encoder.save_pretrained(tmp_path/"m", half=True)
    assert (tmp_path/"m"/"README.md").read_text() == "card"
    whole = sum(weights.numel()*4 for weights in encoder.state_dict().values())
    assert (tmp_path/"m"/"model.safetensors").stat().st_size < 0.6*whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "notes"]


def test_push_to_hub_uploads_config_and_weights(monkeypatch):
    seen = {}
    class Api:
        def create_repo(self, repo_id, **kwargs): seen["repo"] = repo_id
        def upload_folder(self, repo_id, folder_path, **kwargs):
            seen["files"] = sorted(path.name for path in folder_path.iterdir())
            return "the address"
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert _tiny().push_to_hub("owner/name") == "the address"
    assert seen == {"repo": "owner/name", "files": ["config.json", "model.safetensors"]}


def test_saving_again_loses_nothing_beside_the_weights(tmp_path):
    encoder, folder = _tiny(), tmp_path/"m"
    encoder.save_pretrained(folder)
    (folder/"results"/"sts").mkdir(parents=True)
    (folder/"results"/"sts"/"scores.csv").write_text("1,2")
    (folder/"empty").mkdir()
    (folder/"README.md").write_text("card")
    (folder/"latest").symlink_to("README.md")
    (folder/"broken").symlink_to("nowhere")
    def tree():
        written = {folder/"config.json", folder/"model.safetensors"}
        return {path: (path.is_symlink(), path.is_dir(), path.read_bytes() if path.is_file() else None)
                for path in folder.rglob("*") if path not in written}
    before = tree()
    with torch.no_grad(): encoder.vit.layernorm.bias += 1
    assert encoder.save_pretrained(folder) == folder
    assert tree() == before and len(before) == 7
    assert torch.equal(PixelEncoder.from_pretrained(folder).vit.layernorm.bias, encoder.vit.layernorm.bias)


def test_saving_copies_without_hard_links_and_puts_the_old_back_when_it_fails(tmp_path, monkeypatch):
    folder = _tiny().save_pretrained(tmp_path/"m")
    (folder/"logs").mkdir()
    (folder/"logs"/"a").write_text("log")
    def no_links(*arguments, **options): raise PermissionError("no hard links here")
    monkeypatch.setattr(os, "link", no_links)
    _tiny().save_pretrained(folder)
    assert (folder/"logs"/"a").read_text() == "log"
    replace, calls = os.replace, []
    def fails_at_the_second(source, target):
        calls.append(target)
        if len(calls) == 2: raise OSError("disk")
        replace(source, target)
    monkeypatch.setattr(os, "replace", fails_at_the_second)
    with pytest.raises(OSError, match="disk"): _tiny().save_pretrained(folder)
    monkeypatch.undo()
    assert (folder/"logs"/"a").read_text() == "log" and [path.name for path in tmp_path.iterdir()] == ["m"]
    PixelEncoder.from_pretrained(folder)


def test_saving_through_a_link_keeps_the_link_and_foreign_checkpoints_are_refused(tmp_path):
    encoder = _tiny()
    encoder.save_pretrained(tmp_path/"real")
    (tmp_path/"link").symlink_to("real")
    encoder.save_pretrained(tmp_path/"link", half=True)
    assert (tmp_path/"link").is_symlink()
    assert load_file(tmp_path/"real"/"model.safetensors")["vit.layernorm.weight"].dtype == torch.bfloat16
    for name, content in (("other", '{"model_type": "bert"}'), ("pixel", '{"model_type": "pixel"}')):
        (tmp_path/name).mkdir()
        (tmp_path/name/"config.json").write_text(content)
        with pytest.raises(FileExistsError, match="not a checkpoint of this library"):
            encoder.save_pretrained(tmp_path/name)
        assert (tmp_path/name/"config.json").read_text() == content
    (tmp_path/"file").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file"): encoder.save_pretrained(tmp_path/"file")


def _edit(config, **changes): config.write_text(json.dumps(json.loads(config.read_text()) | changes))


def _cut(weights, bytes): weights.write_bytes(weights.read_bytes()[:bytes])


@pytest.mark.parametrize("spoil, error, message", [
    (lambda config, weights: config.unlink(), FileNotFoundError, "config.json"),
    (lambda config, weights: weights.unlink(), FileNotFoundError, "no model.safetensors"),
    (lambda config, weights: config.write_text("{"), ValueError, "config.json is not JSON"),
    (lambda config, weights: _cut(weights, 1000), ValueError, "cannot be read"),
    (lambda config, weights: _cut(weights, 0), ValueError, "cannot be read"),
    (lambda config, weights: _edit(config, num_hidden_layers=2), ValueError, "does not fit"),
    (lambda config, weights: _edit(config, hidden_act="relu"), ValueError, "hidden_act='relu'"),
    (lambda config, weights: _edit(config, hidden_size=30), ValueError, "hidden_size=30"),
    (lambda config, weights: _edit(config, max_patches=128), ValueError,
     "max_patches=128, but the checkpoint has positions for 64"),
    (lambda config, weights: _edit(config, render=dict(strategy="words", paper="blue")), ValueError,
     "not a setting of RenderConfig: paper"),
])


def test_broken_checkpoints_say_what_is_wrong(tmp_path, spoil, error, message):
    folder = _tiny().save_pretrained(tmp_path/"m")
    spoil(folder/"config.json", folder/"model.safetensors")
    with pytest.raises(error, match=message): PixelEncoder.from_pretrained(folder)


def test_names_that_are_no_checkpoint(tmp_path, monkeypatch):
    (tmp_path/"file").write_text("")
    for name, message in ((tmp_path/"file", "is a file, not a checkpoint"),
                          (tmp_path, "a folder without a config.json"),
                          ("none", "neither a folder nor a checkpoint in data/checkpoints")):
        with pytest.raises(FileNotFoundError, match=message): PixelEncoder.from_pretrained(name)
    _tiny().save_pretrained(tmp_path/"m")
    monkeypatch.setenv("SENTNB_ROOT", str(tmp_path))   # the package is used without its checkout
    assert PixelEncoder.from_pretrained(tmp_path/"m").config.hidden_size == 32
    with pytest.raises(FileNotFoundError, match="\\(none\\)"): PixelEncoder.from_pretrained("none")


def test_fewer_positions_draw_fewer_patches(tmp_path):
    _tiny().save_pretrained(tmp_path/"m")
    short = PixelEncoder.from_pretrained(tmp_path/"m", max_patches=8)
    assert short.render_config.max_patches == 8
    assert short.encode(["a text of many more words than there are places for them"]).shape == (1, 32)
    with pytest.raises(ValueError, match="draws up to 32 patches"):
        PixelEncoder.from_pretrained(tmp_path/"m", max_patches=8, render=RenderConfig(max_patches=32))
    with pytest.raises(ValueError): PixelEncoder.from_pretrained(tmp_path/"m", max_patches=0)


@pytest.mark.parametrize("pixels, num_patches, error, message", [
    (torch.zeros(2, 16, 64), [1, 1], TypeError, "expected uint8"),
    (torch.zeros(2, 16, 64, 3, dtype=torch.uint8), [1, 1], ValueError, "a multiple of 16"),
    (torch.zeros(2, 16, 60, dtype=torch.uint8), [1, 1], ValueError, "a multiple of 16"),
    (torch.zeros(2, 16, 64, dtype=torch.uint8), [1], ValueError, "one number for each of the 2 strips"),
    (torch.zeros(1, 16, 16*65, dtype=torch.uint8), [64], ValueError, "65 patches"),
])


def test_strips_of_another_kind_are_refused(pixels, num_patches, error, message):
    with pytest.raises(error, match=message): _tiny().hidden_states(pixels, torch.tensor(num_patches))


def test_colour_is_refused():
    with pytest.raises(ValueError, match="rgb=False"):
        PixelEncoder(PixelConfig(**SIZES), RenderConfig(rgb=True))


@pytest.mark.parametrize("texts, error", [([], ValueError), ([""], ValueError), ("one str", TypeError)])
def test_normalization_needs_texts(texts, error):
    encoder = _tiny()
    with pytest.raises(error): encoder.fit_pixel_normalization(texts)
    assert not encoder.pixel_mean.any() and (encoder.pixel_scale == 1).all()


def _white(**more):
    config = PixelConfig(max_patches=32, pixel_normalization="whiten", final_norm=False, **SIZES, **more)
    return PixelEncoder(config)


def test_whitening_is_saved_replaced_and_read_in_half_precision(tmp_path):
    texts = Microworld(seed=0).sentences("en", n=200)
    encoder = _white().fit_pixel_normalization(texts).eval()
    vectors = encoder.encode(texts[:8])
    whole = PixelEncoder.from_pretrained(encoder.save_pretrained(tmp_path/"whole"))
    for same in (whole, encoder.replace(dropout=0.3)):
        np.testing.assert_array_equal(same.encode(texts[:8]), vectors)
    half = PixelEncoder.from_pretrained(encoder.save_pretrained(tmp_path/"half", half=True))
    assert (half.encode(texts[:8])*vectors).sum(1).min() > 0.995
    assert (encoder.bfloat16().encode(texts[:8])*vectors).sum(1).min() > 0.99


def test_whitening_reads_past_what_texts_have_in_common():
    texts = Microworld(seed=0).sentences("en", n=200)
    plain = PixelEncoder(PixelConfig(max_patches=32, **SIZES)).fit_pixel_normalization(texts)
    whitened = _white().fit_pixel_normalization(texts)
    assert anisotropy(whitened.encode(texts)) < 0.6*anisotropy(plain.encode(texts))


def _weights(encoder, texts):
    "Of the patches of some texts."
    pixels, lengths = encoder.collate(texts)
    return [row[:n] for row, n in zip(encoder.patch_weights(pixels), lengths)]


def test_rare_patches_weigh_more(tmp_path):
    texts = Microworld(seed=0).sentences("en", n=400)
    torch.manual_seed(0)
    encoder = _white(patch_features=256).fit_pixel_normalization(texts).eval()
    before, flat = encoder.encode(texts[:8]), torch.cat(_weights(encoder, texts))
    assert (flat == 1).all()
    weights = torch.cat(_weights(encoder.fit_patch_weights(texts), texts))
    assert weights.mean() == pytest.approx(1, abs=0.02) and weights.std() > 0.2
    common, rare = _weights(encoder, [" a a a a", "pianist"])
    assert common.mean() < 0.8 < rare.mean()
    after = encoder.encode(texts[:8])
    assert not np.allclose(before, after, atol=0.05)
    saved = PixelEncoder.from_pretrained(encoder.save_pretrained(tmp_path/"one"))
    for same in (saved, encoder.replace(dropout=0.3)):
        np.testing.assert_array_equal(same.encode(texts[:8]), after)
    encoder.train()(*encoder.collate(texts[:4])).sum().backward()
    parts = encoder.vit.embeddings
    for part in (parts.features, parts.patch_weight, parts.feature_projection):
        assert part.weight.grad is not None


def test_a_patch_is_as_rare_as_where_it_is_most_frequent():
    world = Microworld(seed=0)
    english = [f"the {text}" for text in world.sentences("en", n=200)]
    german = [f"zzz {text}" for text in world.sentences("de", n=200)]
    languages = ["en"]*200 + ["de"]*20
    def weight(*groups):
        torch.manual_seed(0)
        encoder = _white(patch_features=256).fit_pixel_normalization(english)
        encoder.fit_patch_weights(english + german[:20], *groups)
        return float(torch.cat(_weights(encoder, ["zzz"])).mean())
    assert weight(languages) < 0.7*weight()   # in each text of one language, in a tenth of all
    assert weight(["one"]*220) == weight()
    with pytest.raises(ValueError, match="220 texts and 219 groups"): weight(languages[1:])


@pytest.mark.parametrize("texts, error, message", [
    ([], ValueError, "too few"), (["one text"], ValueError, "too few"),
    ("one str", TypeError, "a list of texts")])


def test_patch_weights_need_texts(texts, error, message):
    encoder = _white(patch_features=16)
    with pytest.raises(error, match=message): encoder.fit_patch_weights(texts)
    assert not encoder.vit.embeddings.patch_weight.weight.any()


def test_settings_contain_all_fields():
    def settings(lowercase=False, **config):
        render = RenderConfig(strategy="words", max_patches=16, lowercase=lowercase)
        return PixelEncoder(PixelConfig(32, 1, 4, 64, max_patches=16, **config), render).settings()
    plain, other = settings(), settings(lowercase=True, final_norm=False)
    assert plain["encoder"]["final_norm"] is True and plain["render"]["lowercase"] is False
    assert other["encoder"]["final_norm"] is False and other["render"]["lowercase"] is True


def test_patch_features_need_whitening():
    with pytest.raises(ValueError, match="requires pixel_normalization='whiten'"):
        PixelConfig(patch_features=8)
    with pytest.raises(ValueError, match="patch_features=0"): _white().fit_patch_weights(["a text"]*200)
    paper = torch.full((1, 16, 32), 255, dtype=torch.uint8)
    with pytest.raises(ValueError, match="all patches have the same weight"): _white().patch_weights(paper)
    with pytest.raises(TypeError, match="expected uint8"):
        _white(patch_features=8).patch_weights(paper.float())


def test_a_normalization_of_another_name_is_refused():
    with pytest.raises(ValueError, match="expected one of True, False, whiten"):
        PixelConfig(pixel_normalization="zca")


def test_a_window_restores_the_mode_it_found():
    encoder = _tiny().train()
    stream = encoder.encode_batches((f"text {i}" for i in range(4)), window=2)
    next(stream)
    assert encoder.training
    encoder.eval()
    next(stream)
    assert not encoder.training
    with pytest.raises(TypeError, match=r"texts\[1\] is NoneType"): encoder.train().encode(["fine", None])
    assert encoder.training


def test_bfloat16_weights_encode():
    texts = ["a text", "another"]
    np.testing.assert_allclose(_tiny().bfloat16().encode(texts), _tiny().eval().encode(texts), atol=.02)

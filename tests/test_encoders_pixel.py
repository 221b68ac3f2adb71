"A PIXEL / Pixel-Linguist checkpoint loads key for key and gives the reference's numbers (golden models)."
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sentnb.core import project_root
from sentnb.encoders import PixelConfig, PixelEncoder
from sentnb.losses import info_nce
from sentnb.renderer import RenderConfig

GOLDEN = project_root().parent/"shared"/"golden"/"model"
golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="the golden models are not beside this checkout (../shared/golden/model)")


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
    saved = {k: v for k, v in load_file(GOLDEN/name/"model.safetensors").items() if not k.startswith("decoder.")}
    assert encoder.state_dict().keys() == saved.keys()
    assert all(torch.equal(encoder.state_dict()[k], v) for k, v in saved.items())
    assert encoder.render_config.strategy == "continuous"


@golden
def test_states_embedding_loss_and_gradient():
    encoder, expected = PixelEncoder.from_pretrained(GOLDEN/"representation"), np.load(GOLDEN/"outputs.npz")
    pixels, num_patches = _inputs()
    states, mask = encoder.hidden_states(pixels, num_patches)
    keep = mask.numpy()
    np.testing.assert_allclose(states.detach().numpy()[keep], expected["representation_last_hidden_state"][keep], atol=1e-5)
    pooled = encoder(pixels, num_patches)
    np.testing.assert_allclose(pooled.detach().numpy(), expected["representation_mean_pooled_unnormalised"], atol=1e-5)
    unit = torch.nn.functional.normalize(pooled, dim=1)
    np.testing.assert_allclose(unit.detach().numpy(), expected["representation_embedding"], atol=1e-5)
    loss = info_nce(pooled[:6], pooled[6:])
    np.testing.assert_allclose(loss.item(), expected["representation_loss"], rtol=1e-5)
    loss.backward()
    gradient = encoder.vit.embeddings.patch_embeddings.projection.weight.grad.numpy()
    np.testing.assert_allclose(gradient, expected["representation_grad_patch_proj_weight"], atol=1e-5*np.abs(gradient).max())


@golden
def test_more_positions_change_nothing():
    "529 against 64 patches: the first 65 positions are the same, so is the embedding."
    wide = PixelEncoder.from_pretrained(GOLDEN/"pretrain", max_patches=64)
    full = PixelEncoder.from_pretrained(GOLDEN/"pretrain")
    pixels, num_patches = _inputs()
    torch.testing.assert_close(wide(pixels[:2], num_patches[:2]), full(pixels[:2], num_patches[:2]))
    mean = torch.nn.functional.normalize(PixelEncoder.from_pretrained(GOLDEN/"representation")(pixels[:2], num_patches[:2]), dim=1)
    np.testing.assert_allclose(mean.detach().numpy(), np.load(GOLDEN/"outputs.npz")["rep529_embedding_first2"], atol=1e-5)


def _tiny(**sizes):
    torch.manual_seed(0)
    return PixelEncoder(PixelConfig(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64, **sizes), RenderConfig(strategy="words", max_patches=32))


def test_head_is_kept_or_dropped(tmp_path):
    encoder = _tiny(head=True).eval()
    kept, dropped = encoder.encode(["a text"], head="keep"), encoder.encode(["a text"])
    assert not np.allclose(kept, dropped)
    encoder.save_pretrained(tmp_path/"m")
    np.testing.assert_array_equal(PixelEncoder.from_pretrained(tmp_path/"m").encode(["a text"], head="keep"), kept)
    with pytest.raises(ValueError, match="no training head"): _tiny().encode(["a text"], head="keep")


def test_chunks_change_no_row():
    encoder, texts = _tiny().eval(), [f"{'word '*(i % 7)}number {i}" for i in range(150)]
    strips = encoder.renderer(texts)
    pixels, lengths = torch.from_numpy(strips.pixels), torch.from_numpy(strips.num_patches)
    with torch.no_grad(): together = encoder(pixels, lengths)
    with torch.no_grad(): whole = encoder.pool(*encoder.hidden_states(pixels, lengths))
    torch.testing.assert_close(together, whole, atol=1e-5, rtol=1e-4)


def test_stream_is_lazy_and_ordered():
    encoder, drawn = _tiny(), []
    def texts():
        for i in range(50): drawn.append(i); yield f"text {i}"
    stream = encoder.encode_batches(texts(), window=10)
    first = next(stream)
    assert len(drawn) <= 11 and first.shape == (10, 32)
    rest = np.concatenate([first, *stream])
    np.testing.assert_allclose(rest, encoder.encode([f"text {i}" for i in range(50)]), atol=1e-5)


def test_scrolled_strips_are_pooled():
    import dataclasses
    encoder = _tiny()
    long = "a word " * 60
    encoder.render_config = dataclasses.replace(encoder.render_config, long="scroll"); encoder._renderer = None
    scrolled = encoder.encode([long, "short"])
    assert scrolled.shape == (2, 32) and np.isfinite(scrolled).all()
    encoder.render_config = dataclasses.replace(encoder.render_config, long="truncate"); encoder._renderer = None
    cut = encoder.encode([long, "short"])
    np.testing.assert_allclose(scrolled[1], cut[1], atol=1e-5)
    assert not np.allclose(scrolled[0], cut[0], atol=1e-4)


def test_saving_is_atomic_and_refuses_foreign_folders(tmp_path):
    encoder = _tiny()
    (tmp_path/"notes").mkdir(); (tmp_path/"notes"/"mine.txt").write_text("keep me")
    with pytest.raises(FileExistsError): encoder.save_pretrained(tmp_path/"notes")
    assert (tmp_path/"notes"/"mine.txt").read_text() == "keep me"
    encoder.save_pretrained(tmp_path/"m"); (tmp_path/"m"/"README.md").write_text("card")
    encoder.save_pretrained(tmp_path/"m", half=True)
    assert (tmp_path/"m"/"README.md").read_text() == "card"
    assert (tmp_path/"m"/"model.safetensors").stat().st_size < 0.6*sum(v.numel()*4 for v in encoder.state_dict().values())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m", "notes"]


@pytest.mark.parametrize("spoil, message", [
    (lambda c: c.unlink(), "config.json"),
    (lambda c: c.write_text(json.dumps(json.loads(c.read_text()) | {"num_hidden_layers": 2})), "does not fit"),
    (lambda c: (c.parent/"model.safetensors").unlink(), "safetensors"),
])
def test_broken_checkpoints_say_what_is_wrong(tmp_path, spoil, message):
    spoil(_tiny().save_pretrained(tmp_path/"m")/"config.json")
    with pytest.raises((ValueError, FileNotFoundError), match=message): PixelEncoder.from_pretrained(tmp_path/"m")


def test_push_to_hub_uploads_config_and_weights(monkeypatch):
    import huggingface_hub
    seen = {}
    class Api:
        def create_repo(self, repo_id, **kwargs): seen["repo"] = repo_id
        def upload_folder(self, repo_id, folder_path, **kwargs): seen["files"] = sorted(p.name for p in folder_path.iterdir()); return "the address"
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    assert _tiny().push_to_hub("owner/name") == "the address"
    assert seen == {"repo": "owner/name", "files": ["config.json", "model.safetensors"]}

"""Models of the Hub: at declared commits, and pickled ones only by conversion. The Hub is its own cache,
offline, with tiny repositories of the published layouts."""
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration

from sentnb import experiments, recipes, results
from sentnb.encoders import PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.checkpoints import MODELS, converted_folder, read_json, weights_sha256
from sentnb.experiments import main
from sentnb.renderer import RenderConfig, TextRenderer

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT/"docs"/"models.md").read_text(encoding="utf-8")
PIXEL, LINGUIST, BYT5 = "Team-PIXEL/pixel-base", "Pixel-Linguist/Pixel-Linguist-v0", "google/byt5-base"
TEXTS = ["Two dogs run.", "Two dgos rnu.", "Две собаки бегут.", "两只狗在跑。"]


class Harm:
    "What a pickle may do."
    def __reduce__(self): return exec, ("raise SystemExit('it ran')",)


def pixel(folder, head):
    torch.manual_seed(1)
    sizes = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
    sizes |= dict(num_channels=3)
    config = PixelConfig(max_patches=529, pixel_normalization=False, head=head, **sizes)
    encoder = PixelEncoder(config, RenderConfig())
    weights = encoder.state_dict() | ({} if head else {"decoder.mask_token": torch.zeros(1, 1, 16)})
    torch.save(weights, folder/"pytorch_model.bin")
    values = dict(model_type="pixel", image_size=[16, 8464], qkv_bias=True, **sizes)
    (folder/"config.json").write_text(json.dumps(values))
    (folder/"text_renderer_config.json").write_text("{}")


def byt5(folder):
    torch.manual_seed(2)
    ByT5Tokenizer().save_pretrained(folder)
    sizes = dict(d_model=24, d_kv=12, d_ff=48, num_layers=2, num_decoder_layers=1, num_heads=2)
    config = T5Config(vocab_size=384, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **sizes)
    model = T5ForConditionalGeneration(config)
    model.save_pretrained(folder)
    (folder/"model.safetensors").unlink()
    torch.save(model.state_dict(), folder/"pytorch_model.bin") # shared weights under each of their names


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    "What the cache of the Hub holds."
    cache = tmp_path_factory.mktemp("hub")
    def create_folder(name):
        folder = cache/f"models--{name.replace('/', '--')}"/"snapshots"/MODELS[name].commit
        folder.mkdir(parents=True)
        return folder
    pixel(create_folder(PIXEL), head=False)
    pixel(create_folder(LINGUIST), head=True)
    byt5(create_folder(BYT5))
    # the font that PIXEL's repository holds is not here: one of another family under its name
    font = next(file for file in TextRenderer().files if file.name.startswith("NotoSansThai"))
    shutil.copy(font, next(cache.glob("models--Team-PIXEL*/snapshots/*"))/"GoNotoCurrent.ttf")
    return cache


@pytest.fixture
def hub(stored, tmp_path, monkeypatch) -> Path:
    import huggingface_hub
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(stored))
    for module in list(sys.modules.values()): # where the constants were copied
        if getattr(module, "__name__", "").startswith("huggingface_hub.") and hasattr(module, "HF_HUB_CACHE"):
            monkeypatch.setattr(module, "HF_HUB_CACHE", str(stored))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path/"datasets"))
    monkeypatch.setenv("SENTNB_CACHE", str(tmp_path/"cache"))
    return stored


@pytest.mark.filterwarnings("ignore::sentnb.renderer.fonts.FontWarning")
@pytest.mark.parametrize("loader, name", [
    (PixelEncoder, PIXEL), (PixelEncoder, LINGUIST), (TextEncoder, BYT5)])
def test_pickled_weights_are_refused_in_one_sentence_or_converted_when_allowed(loader, name, hub):
    with pytest.raises(FileNotFoundError, match=f"sentnb convert {name} FOLDER.*convert=True"):
        loader.from_pretrained(name)
    encoder = loader.from_pretrained(name, convert=True)
    again = loader.from_pretrained(name) # from the cache, and allowed by nobody
    np.testing.assert_array_equal(encoder.encode(TEXTS[:2]), again.encode(TEXTS[:2]))
    record = read_json(converted_folder(name, MODELS[name].commit)/"converted.json")
    assert (record["repository"], record["commit"]) == (name, MODELS[name].commit)


@pytest.mark.filterwarnings("ignore::sentnb.renderer.fonts.FontWarning") # the substitute is not PIXEL's font
def test_the_command_converts_and_the_checkpoint_draws_in_its_own_font(hub, tmp_path, capsys):
    "The font lies in the folder, the encoder draws in it, and keeps it through changes."
    folder = tmp_path/"pixel-base"
    assert main(["convert", PIXEL, str(folder)]) == 0
    assert MODELS[PIXEL].commit in capsys.readouterr().out
    files = {file.name for file in folder.iterdir()}
    assert {"GoNotoCurrent.ttf", "config.json", "model.safetensors"} <= files
    render = read_json(folder/"config.json")["render"]
    assert render["fonts"][0] == ["GoNotoCurrent.ttf", MODELS[PIXEL].font[2]] # the published one
    assert render["strategy"] == "continuous" and render["family"] == "Noto Sans Thai"
    encoder = PixelEncoder.from_pretrained(folder, max_patches=64)
    assert encoder.renderer.files[0] == folder/"GoNotoCurrent.ttf"
    words = recipes.load_initial_encoder(str(folder), strategy="words")
    assert words.render_config.strategy == "words" and words.renderer.files[0].name == "GoNotoCurrent.ttf"
    trained = PixelEncoder.from_pretrained(words.replace(head=True).save_pretrained(tmp_path/"trained"))
    assert trained.renderer.files[0] == tmp_path/"trained"/"GoNotoCurrent.ttf"
    other = encoder.replace(render=RenderConfig(fonts=("NotoSans-Regular.ttf",)))
    assert [file.name for file in other.renderer.files] == ["NotoSans-Regular.ttf"] and not other.fonts
    assert main(["convert", PIXEL, str(folder)]) == 0, "a conversion may be made again"
    (tmp_path/"mine").mkdir(); (tmp_path/"mine"/"notes.txt").write_text("mine")
    assert main(["convert", PIXEL, str(tmp_path/"mine")]) == 2
    assert "not a converted checkpoint" in capsys.readouterr().err


def test_another_font_than_the_declared_one_gives_a_warning(hub):
    from sentnb.renderer.fonts import FontWarning
    encoder = PixelEncoder.from_pretrained(LINGUIST, convert=True)
    with pytest.warns(FontWarning, match="GoNotoCurrent.ttf has sha256 .* the config pins 83ab5c39e2b1"):
        encoder.renderer


@pytest.mark.parametrize("content", [dict(weights=Harm()), [torch.ones(1)], dict(step=3)],
                         ids=["code", "list", "number"])
def test_a_pickle_with_more_than_tensors_is_not_read(content, tmp_path, hub, monkeypatch):
    import huggingface_hub
    folder = tmp_path/("e" * 40)
    folder.mkdir()
    (folder/"config.json").write_text('{"model_type": "pixel"}')
    torch.save(content, folder/"pytorch_model.bin")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(folder))
    with pytest.raises(ValueError, match="pytorch_model.bin cannot be read"):
        PixelEncoder.from_pretrained("owner/name", convert=True)
    assert main(["convert", "owner/name", str(tmp_path/"out")]) == 2 and not (tmp_path/"out").exists()


@pytest.mark.filterwarnings("ignore::sentnb.renderer.fonts.FontWarning")
def test_the_snippet_of_the_readme_runs(stored, tmp_path):
    "In a new process, as a reader would run it, from the command to the vectors."
    blocks = re.findall(r"```(\w+)\n(.*?)```", README, re.S)
    command, = [code for kind, code in blocks if kind == "sh" and "sentnb convert" in code]
    code, = [code for kind, code in blocks if kind == "python" and "pixel-linguist" in code]
    environment = dict(HF_HUB_CACHE=str(stored), HF_HUB_OFFLINE="1", SENTNB_CACHE=str(tmp_path/"cache"),
                       PYTHONPATH=str(ROOT), PATH="/usr/bin:/bin", HOME=str(tmp_path))
    def done(*command):
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout
    words = command.split()
    assert words[0].endswith("/sentnb")
    done(sys.executable, "-m", "sentnb.experiments", *words[1:])
    done(sys.executable, "-c", "from sentnb.encoders import PixelEncoder\n" + code)


def test_needed_finds_everything_or_names_all_that_lacks(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_HUB", "")
    looked = {
        thing.name: thing
        for thing in experiments.locate_requirements(
            ["gowitheflow/wiki-span", "text/wikinews_en"], ["sentnb-small", PIXEL, "FacebookAI/roberta-base"]
        )
    }
    assert looked["gowitheflow/wiki-span"].bytes == 8_956_015_300
    assert looked["sentnb-small"].place == "shipped"
    assert looked["FacebookAI/roberta-base"].commit.startswith("e2da8e2f")
    assert looked[PIXEL].place == "cache" and "sentnb convert" in looked[PIXEL].missing
    run = results.Run("98_x", "demo", {}, folder=tmp_path/"run")
    found, = experiments.fetch_requirements(models=[PIXEL], convert=True, run=run)
    folder = converted_folder(PIXEL, MODELS[PIXEL].commit)
    assert (found.commit, found.sha256) == (MODELS[PIXEL].commit, weights_sha256(folder))
    assert found.fonts[0] == ("GoNotoCurrent.ttf", MODELS[PIXEL].font[2])
    assert experiments.locate_requirements(models=[PIXEL])[0].missing is None
    saved = results.load_run(run.save()).details["notes"]["needed"][PIXEL]
    assert saved["commit"] == MODELS[PIXEL].commit and saved["sha256"] == found.sha256
    with pytest.raises(FileNotFoundError) as error:
        experiments.fetch_requirements(["text/wikinews_en", "gowitheflow/wiki-span"], [LINGUIST, "no-such"],
                       packages=["no_such_module"])
    lines = str(error.value).splitlines()
    assert len(lines) == 5 and all(name in line for name, line in zip(
        ("text/wikinews_en", "gowitheflow/wiki-span", "sentnb convert", "no-such", "no_such_module"), lines))


def test_every_declared_model_has_a_whole_commit():
    for model in MODELS.values(): assert re.fullmatch("[0-9a-f]{40}", model.commit) and model.size > 1e6
    assert {other.hub for other in recipes.EXTERNAL_MODELS.values()} <= set(MODELS)

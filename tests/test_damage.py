"Damaged weights, configurations and files: an error that names the file, never other vectors."
import json
import os
import re
import shutil
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import torch
from drill.damage import content_of, originals, train
from safetensors.torch import load_file, save_file

from sentnb import corpora, experiments
from sentnb.core import data_dir, file_sha256
from sentnb.corpora import locations
from sentnb.encoders import PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.base import SentenceEncoder, TextsTruncated
from sentnb.encoders.checkpoints import check_sums, load_tensors, read_json, save_tensors
from sentnb.evaluation import sts
from sentnb.renderer import FontWarning, RenderConfig, TextRenderer
from sentnb.renderer.fonts import find_fonts
from sentnb.results import folder
from sentnb.results.folder import describe_process, lock, lock_owner, unlock
from sentnb.results.html import frame_markdown
from sentnb.training.checkpoint import remove_leftovers


def test_equal_tensors_give_equal_files(tmp_path):
    file = tmp_path/"x.safetensors"
    contents = set()
    for _ in range(20): # safetensors orders metadata at random
        save_tensors(dict(a=torch.ones(2)), file, position="1", other="é", third="x")
        contents.add(file.read_bytes())
    assert len(contents) == 1 and load_file(file)["a"].tolist() == [1, 1]


def test_any_flipped_bit_of_tensors_or_metadata_is_noticed(tmp_path):
    torch.manual_seed(0)
    tensors = dict(a=torch.randn(3, 5), b=torch.arange(4), c=torch.tensor(2.), d=torch.zeros(0))
    file = tmp_path/"y.safetensors"
    save_tensors(tensors, file, position="step 5")
    read, metadata = load_tensors(file)
    assert metadata == dict(format="pt", position="step 5")
    assert all(torch.equal(read[name], value) for name, value in tensors.items())
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    for bit in range(8*start, 8*len(content), 7):
        damaged = bytearray(content)
        damaged[bit//8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="y.safetensors has changed since it was saved"):
            load_tensors(file)
    file.write_bytes(content.replace(b"step 5", b"step 6"))
    with pytest.raises(ValueError, match="has changed"):
        load_tensors(file)


def test_a_changed_file_of_a_shipped_checkpoint_is_named(tmp_path):
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        folder = tmp_path/name
        shutil.copytree(data_dir("checkpoints")/"text-small-mlm", folder)
        content = bytearray((folder/name).read_bytes())
        content[len(content)//2] ^= 1
        (folder/name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} has changed: its sha256 differs.*restore it"):
            TextEncoder.from_pretrained(folder)
    (folder/name).unlink()
    with pytest.raises(FileNotFoundError, match="tokenizer.json is missing"):
        check_sums(folder)


@pytest.mark.parametrize("folder", sorted(data_dir("checkpoints").iterdir()), ids=lambda folder: folder.name)
def test_the_digests_of_shipped_checkpoints_are_complete(folder):
    check_sums(folder)
    listed = {line.split("  ")[1] for line in (folder/"SHA256SUMS").read_text().splitlines()}
    assert listed == {file.name for file in folder.iterdir() if file.suffix in (".json", ".safetensors")}


@pytest.mark.parametrize("kind", ["pixels", "text", "static", "lens"])
def test_weights_that_are_not_finite_are_refused(kind, tmp_path, capsys):
    folder = shutil.copytree(originals()/kind, tmp_path/kind)
    tensors = load_file(folder/"model.safetensors")
    name = max(tensors, key=lambda name: tensors[name].numel())
    tensors[name].view(-1)[1] = torch.nan
    save_file(tensors, folder/"model.safetensors", metadata=dict(format="pt"))
    message = f"{kind}.model.safetensors has weights that are not finite, in 1 tensors"
    with pytest.raises(ValueError, match=message):
        content_of(kind, folder)
    if kind == "lens": return # the command line does not read lenses
    text, output = tmp_path/"in.txt", tmp_path/"o.npy"
    text.write_text("a cat\n")
    assert experiments.main(["encode", str(text), "-m", str(folder), "-o", str(output)]) == 2
    assert "not finite" in capsys.readouterr().err and not output.exists()


def test_vectors_that_are_not_finite_are_refused():
    class Diverged(SentenceEncoder):
        width = 2

        def encode_window(self, texts, batch_size, normalize, head):
            return np.array([[np.nan if text == "bad" else 1., 0.] for text in texts], np.float32)
    assert Diverged().encode(["good", "good"]).shape == (2, 2)
    with pytest.raises(ValueError, match=r"1 of 2 texts are not finite, the first of texts\[3\] = 'bad'"):
        Diverged().encode(["good", "good", "good", "bad"], window=2)


@pytest.mark.parametrize("content", ["null", "[]", "3", '"x"', "{"])
def test_json_of_another_kind_names_the_file(tmp_path, content):
    (tmp_path/"config.json").write_text(content)
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path/'config.json'))}"):
        read_json(tmp_path/"config.json")


def test_render_settings_of_other_patches_name_the_configuration(tmp_path):
    PixelEncoder(PixelConfig(32, 1, 2, 64, max_patches=16)).save_pretrained(tmp_path)
    config = read_json(tmp_path/"config.json")
    config["render"]["patch_size"] = 32
    (tmp_path/"config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))}.*draws patches of 32 pixels"):
        PixelEncoder.from_pretrained(tmp_path)


@pytest.mark.parametrize("setting", [
    dict(num_hidden_layers=10**6), dict(intermediate_size=10**9), dict(max_patches=10**9),
    dict(patch_size=10**6),
    dict(hidden_size=4*10**6), dict(patch_features=10**9, pixel_normalization="whiten"), dict(num_channels=3),
    dict(hidden_size=None), dict(num_hidden_layers=[2]), dict(num_attention_heads=0),
    dict(layer_norm_eps="x"),
    dict(render=None), dict(render=[]), dict(render=dict(font_size=1e9)), dict(render=dict(fonts=None)),
    dict(render=dict(fonts=[[]]))], ids=json.dumps)
def test_absurd_configurations_are_refused_before_anything_is_allocated(setting, tmp_path):
    folder = shutil.copytree(originals()/"pixels", tmp_path/"m")
    config = read_json(folder/"config.json")
    (folder/"config.json").write_text(json.dumps(config | setting))
    begin = time.monotonic()
    with pytest.raises(ValueError, match=str(folder)):
        PixelEncoder.from_pretrained(folder)
    assert time.monotonic() - begin < 5


def test_sizes_have_bounds():
    for wrong in (dict(font_size=1e9), dict(dpi=1e9), dict(rgb=None), dict(lowercase=[])):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            RenderConfig(**wrong)
    for wrong in (dict(hidden_size=2.5), dict(hidden_dropout_prob=2), dict(layer_norm_eps=float("nan"))):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            PixelConfig(**wrong)


def test_a_stage_folder_that_is_missing_or_damaged_is_noticed(tmp_path):
    train(tmp_path/"run")
    for number, name in enumerate(("first", "second")):
        stage = tmp_path/"run"/f"0{number}-{name}"
        expected = (stage/"model.safetensors").read_bytes()
        for spoil in (shutil.rmtree, lambda path: (path/"model.safetensors").write_bytes(expected[:-9]),
                      lambda path: (path/"config.json").write_text("[")):
            if not stage.is_dir(): break # the first stage cannot be written again
            spoil(stage)
            with pytest.warns(UserWarning, match=f"0{number}-{name}.*(missing|broken|not JSON)"):
                train(tmp_path/"run")
            if name == "second":
                assert (stage/"model.safetensors").read_bytes() == expected
        shutil.rmtree(stage, ignore_errors=True)
    train(tmp_path/"whole")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TextsTruncated)
        train(tmp_path/"whole")


def test_folders_of_stages_that_a_killed_run_left_are_removed(tmp_path):
    old, young = tmp_path/".00-first-abc", tmp_path/".01-second-def"
    for folder in (old, young):
        (folder/"new").mkdir(parents=True)
    os.utime(old, (1, 1))
    remove_leftovers(tmp_path/"state.safetensors")
    assert not old.exists() and young.exists()


def test_a_lock_belongs_to_one_process_on_one_machine(tmp_path):
    path = tmp_path/".running"
    assert lock(path, "a") is None
    own = json.loads(path.read_text())
    assert own == describe_process(os.getpid()) | dict(purpose="a")
    parent = describe_process(os.getppid()) | dict(purpose="b")
    path.write_text(json.dumps(parent))
    assert lock(path, "a") == os.getppid()
    if sys.platform == "linux":
        path.write_text(json.dumps(parent | dict(start="1"))) # an earlier process had this id
        assert lock_owner(path) is None
    path.write_text(json.dumps(parent | dict(host="elsewhere")))
    assert lock_owner(path) == (os.getppid(), "b")
    os.utime(path, (1, 1))
    assert lock_owner(path) is None is lock(path, "a")
    for content in ("", "[]", "17 a", "null", "{}"):
        path.write_text(content)
        assert lock_owner(path) is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    time.sleep(1) # it has ended, and nobody has asked for its exit status
    if sys.platform == "linux":
        assert describe_process(ended.pid) is None
    ended.wait()


def test_a_folder_stays_locked_until_the_last_process_that_shares_it_ends(tmp_path):
    path, waiting = tmp_path/".running", dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    code = ("from pathlib import Path; from sentnb.results.folder import lock; "
            f"print(lock(Path({str(path)!r}), 'a'), flush=True); input()")
    first, second = (subprocess.Popen([sys.executable, "-c", code], **waiting) for _ in range(2))
    assert first.stdout.readline() == second.stdout.readline() == "None\n"
    owner, _ = lock_owner(path)
    owning, sharing = (first, second) if owner == first.pid else (second, first)
    assert lock(path, "b") == owning.pid
    owning.communicate("\n")
    assert lock(path, "b") == sharing.pid, "it still works in the folder"
    assert lock(path, "a") is None and lock_owner(path) == (os.getpid(), "a"), "the same purpose"
    sharing.communicate("\n")
    assert lock(path, "b") is None and lock_owner(path) == (os.getpid(), "b")
    assert [file.name for file in tmp_path.iterdir()] == [".running"]
    unlock(path)
    assert not list(tmp_path.iterdir())


def test_a_lock_that_another_process_took_meanwhile_stays(tmp_path, monkeypatch):
    path, parent = tmp_path/".running", describe_process(os.getppid()) | dict(purpose="b")
    path.write_text("{}") # of no process
    read_owner, calls = folder.lock_owner, []
    def read_slowly(file):
        owner = read_owner(file)
        if not calls: path.write_text(json.dumps(parent)) # the other process found the old lock, too
        calls.append(file)
        return owner
    monkeypatch.setattr(folder, "lock_owner", read_slowly)
    assert lock(path, "a") == os.getppid() and json.loads(path.read_text()) == parent
    assert [file.name for file in tmp_path.iterdir()] == [".running"]


@pytest.mark.parametrize("arguments, message", [
    (["render", "x", "-o", "OUT.png", "--scale", "100000"], "scale=100000: expected an integer from 1 to 64"),
    (["mine", "IN", "IN", "-m", "text-small-mlm", "-o", "OUT.tsv", "--threshold", "nan"], "threshold=nan"),
    (["mine", "IN", "IN", "-m", "text-small-mlm", "-o", "OUT.tsv", "--threshold", "inf"], "threshold=inf"),
    (["run", "LIST.ipynb"], "LIST.ipynb is not a notebook"),
    (["run", "CELLS.ipynb"], "CELLS.ipynb is not a notebook"),
])
def test_the_command_line_refuses_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path/"IN").write_text("a cat\na dog\n")
    (tmp_path/"LIST.ipynb").write_text("[]")
    cells = dict(cells=[None], nbformat=4, nbformat_minor=5, metadata={})
    (tmp_path/"CELLS.ipynb").write_text(json.dumps(cells))
    assert experiments.main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and message in lines[0], lines
    assert not list(tmp_path.glob("OUT*"))


def test_the_report_escapes_what_it_joins(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    script = "<script>alert(1)</script>"
    frame = pd.DataFrame({"a": [script, "x < 3 | y <!-- z"]})
    assert frame_markdown(frame).splitlines()[2:] == [
        "| &lt;script>alert(1)&lt;/script> |", "| x < 3 \\| y &lt;!-- z |"]
    before = pd.get_option("styler.format.escape")
    experiments.Study("05_leapfrog", dict(training=dict(steps=(1, 1, 1))), "demo")
    try:
        assert "<script>" not in frame.style.hide(axis="index").to_html()
        assert "<script>" not in frame.to_html()
    finally:
        pd.set_option("styler.format.escape", before)


def test_a_file_of_the_mirror_that_differs_from_its_manifest_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_HUB", str(tmp_path))
    folder = tmp_path/"mteb"/"sts12-sts"
    folder.mkdir(parents=True)
    header = "configs:\n- config_name: default\n  data_files:\n  - split: test\n    path: test.parquet\n"
    (folder/"README.md").write_text(f"---\n{header}---\n")
    file = folder/"test.parquet"
    rows = [dict(sentence1="a", sentence2="b", score=1.), dict(sentence1="c", sentence2="d", score=2.)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    manifest = tmp_path/"MANIFEST.tsv"
    line = f"mteb/sts12-sts/test.parquet\t2\t9\t{file_sha256(file)}"
    manifest.write_text(f"path\trows\tbytes\tsha256\n{line}\n")
    read = []
    monkeypatch.setattr(locations, "file_sha256", lambda path: read.append(path) or file_sha256(path))
    for _ in range(3):
        assert corpora.load("mteb/sts12-sts", split="test") == rows
    assert read == [file], "a file is read once"
    content = bytearray(file.read_bytes())
    content[20] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="test.parquet differs from what MANIFEST.tsv"):
        corpora.load("mteb/sts12-sts", split="test")
    manifest.unlink()
    file.write_bytes(content[:50])
    with pytest.raises(ValueError, match="test.parquet cannot be read"):
        corpora.load("mteb/sts12-sts", split="test")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows).slice(0, 0), file)
    with pytest.raises(ValueError, match="mteb/sts12-sts, split 'test': no rows"):
        corpora.load("mteb/sts12-sts", split="test")


def test_a_correlation_with_equal_scores_is_refused():
    with pytest.raises(ValueError, match="gold: all 3 scores are 2"):
        sts.aggregate([.1, .2, .3], [2, 2, 2])


def test_a_font_is_checked_by_its_content(tmp_path, monkeypatch):
    fonts = {path.name: path for path, _ in find_fonts()}
    monkeypatch.setenv("SENTNB_FONTS", str(tmp_path))
    thai = tmp_path/"NotoSansThai-Regular.ttf"
    thai.write_bytes(b"garbage"*999)
    with pytest.raises(ValueError, match="NotoSansThai-Regular.ttf is not a font file"):
        TextRenderer()
    shutil.copy(fonts["NotoSansHebrew-Regular.ttf"], thai)
    with pytest.warns(FontWarning, match="contains the font Noto Sans Hebrew, not NotoSansThai"):
        TextRenderer()
    thai.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TextRenderer()

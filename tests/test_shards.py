"encoders.shards: any number of processes writes the same bytes; kills, dead workers, other encoders."
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from number_encoder import Numbers
from training_runs import tiny

from sentnb.encoders import PixelEncoder, TextsTruncated
from sentnb.encoders.shards import encode_to_file
from sentnb.experiments import main

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).resolve().parent.parent
LINES = [f"line {i} " + "and more "*(i % 5) for i in range(90)] + ["a line of more patches than fit "*9]
OPTIONS = dict(window=16, show_progress=False)


def test_the_bytes_do_not_depend_on_processes(tmp_path):
    encoder, contents = tiny().eval(), []
    for processes in (None, 2):
        with pytest.warns(TextsTruncated, match="^37 of 91 texts"):
            vectors = encode_to_file(encoder, iter(LINES), tmp_path/"x.npy", processes, **OPTIONS)
        contents.append((tmp_path/"x.npy").read_bytes())
        assert os.listdir(tmp_path) == ["x.npy"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = encoder.encode(LINES, window=16)
    np.save(tmp_path/"expected.npy", expected)
    assert contents == [(tmp_path/"expected.npy").read_bytes()]*2
    assert vectors.dtype == np.float32 and np.array_equal(vectors, expected)


KILLED = """
import sys, time
from pathlib import Path
from sentnb.encoders import PixelEncoder, shards

def save_slowly(*arguments):
    time.sleep(1)
    save(*arguments)

def serve_slowly(*arguments):
    shards._save_shard = save_slowly
    serve(*arguments)

save, serve = shards._save_shard, shards._serve
if __name__ == "__main__":
    shards._serve = serve_slowly
    folder = Path(sys.argv[1])
    encoder = PixelEncoder.from_pretrained(folder/"model", device="cpu")
    lines = (folder/"lines.txt").read_text("utf-8").splitlines()
    shards.encode_to_file(encoder, lines, folder/"x.npy", processes=2, window=16, show_progress=False)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system cannot kill")
def test_a_killed_call_continues_and_a_second_one_is_refused(tmp_path, monkeypatch):
    output, script = tmp_path/"x.npy", tmp_path/"killed.py"
    script.write_text(KILLED)
    (tmp_path/"lines.txt").write_text("\n".join(LINES), "utf-8")
    encoder = PixelEncoder.from_pretrained(tiny().save_pretrained(tmp_path/"model"), device="cpu")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], cwd=ROOT,
                               env={**os.environ, "PYTHONPATH": path})
    try:
        deadline = time.monotonic() + 240
        while not (finished := list(tmp_path.glob(".x.npy.shards-*/0*.npz"))):
            assert process.poll() is None and time.monotonic() < deadline, "no shard was written"
            time.sleep(.05)
        with pytest.raises(RuntimeError, match=f"process {process.pid} writes .*x.npy already"):
            encode_to_file(encoder, LINES, output, **OPTIONS)
    finally: process.kill()
    process.wait()
    assert not output.exists()
    time.sleep(2)   # for what the workers write although their parent is gone
    finished = list(tmp_path.glob(".x.npy.shards-*/0*.npz"))
    assert 1 <= len(finished) < 6
    encoded, encode_window = [], PixelEncoder.encode_window
    def count(encoder, texts, *options):
        encoded.extend(texts)
        return encode_window(encoder, texts, *options)
    monkeypatch.setattr(PixelEncoder, "encode_window", count)
    with pytest.warns(TextsTruncated): vectors = encode_to_file(encoder, LINES, output, **OPTIONS)
    numbers = {int(file.name[:6]) for file in finished}
    assert encoded == [text for i, text in enumerate(LINES) if i//16 not in numbers]
    with pytest.warns(TextsTruncated): assert np.array_equal(vectors, encoder.encode(LINES, window=16))
    assert sorted(os.listdir(tmp_path)) == ["killed.py", "lines.txt", "model", "x.npy"]


def test_what_goes_wrong_in_a_worker_is_an_error_here(tmp_path):
    texts = [str(i) for i in range(60)]
    output = tmp_path/"x.npy"
    output.write_bytes(b"old")
    with pytest.raises(ValueError, match=r"from number 32 on.*of texts\[1\] = '33'"):
        encode_to_file(Numbers(fails_at="33"), texts, output, 1, **OPTIONS)
    with pytest.raises(RuntimeError, match="exit code -9 before its shard was finished"):
        encode_to_file(Numbers(dies_at="59"), texts, output, 1, **OPTIONS)
    assert output.read_bytes() == b"old"
    assert np.array_equal(encode_to_file(Numbers(), texts, output, **OPTIONS)[:, 1], np.arange(60))
    assert os.listdir(tmp_path) == ["x.npy"]


@pytest.mark.parametrize("wrong", [dict(window=0), dict(window=1.5), dict(dtype="int8"), dict(dtype="f23")])
def test_windows_and_dtypes_that_cannot_be_written_are_refused(tmp_path, wrong):
    with pytest.raises(ValueError, match="expected"):
        encode_to_file(Numbers(), ["1"], tmp_path/"x.npy", **wrong)
    assert not list(tmp_path.iterdir())


def test_shards_of_other_calls_are_not_used(tmp_path, monkeypatch):
    class Stop(Exception): pass
    def interrupted(*arguments): raise Stop
    output = tmp_path/"x.npy"
    def leave_shards(encoder, **options):
        with monkeypatch.context() as patch:
            patch.setattr("sentnb.encoders.shards._join_shards", interrupted)
            with pytest.raises(Stop):
                encode_to_file(encoder, LINES, output, **OPTIONS | options)
        folder, = tmp_path.glob(".x.npy.shards-*")
        return folder.name, sorted(file.name for file in folder.iterdir())
    first = leave_shards(tiny(seed=0).eval())
    assert leave_shards(tiny(seed=0).eval()) == first and len(first[1]) == 6
    for other in (leave_shards(tiny(seed=1).eval()), leave_shards(tiny(seed=0).eval(), normalize=False),
                  leave_shards(tiny(seed=0).eval(), dtype="float16")):
        assert other[0] != first[0]
    names = leave_shards(tiny(seed=0).eval())[1]
    LINES.insert(0, "one more")
    try: changed = leave_shards(tiny(seed=0).eval())[1]
    finally: LINES.pop(0)
    assert set(names) < set(changed) and len(changed) == 2*len(names)


def test_the_commands_pass_processes(tmp_path, capsys, monkeypatch):
    given = []
    def record(encoder, texts, output, processes, *arguments, **options):
        given.append(processes)
        return encode_to_file(encoder, texts, output, None, *arguments, **options)
    monkeypatch.setattr("sentnb.encoders.shards.encode_to_file", record)
    monkeypatch.setattr("sentnb.evaluation.mining.encode_to_file", record)
    tiny().eval().save_pretrained(tmp_path/"model")
    texts = [tmp_path/name for name in ("first.txt", "second.txt")]
    for path in texts: path.write_text("\n".join(text[:7] for text in LINES[:20]), "utf-8")
    common = ["-m", tmp_path/"model", "--device", "cpu", "--processes"]
    def call(*arguments): return main([str(argument) for argument in arguments])
    assert call("encode", texts[0], "-o", tmp_path/"x.npy", *common, 2) == 0
    assert call("mine", *texts, "-o", tmp_path/"pairs.tsv", *common, 3) == 0
    assert given == [2, 3, 3]
    monkeypatch.undo()
    assert call("encode", texts[0], "-o", tmp_path/"x.npy", *common, 0) == 2
    assert "processes=0: expected an integer of at least 1" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["first.txt", "model", "pairs.tsv", "second.txt", "x.npy"]

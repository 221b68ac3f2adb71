"""`sentnb run` is killed at random moments and called again: the same numbers.csv."""
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import nbformat
from nbformat import v4

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = ["template", "02_vanilla_geometry", "13_lensing"]
PARAMETERS = "profile = 'demo'\nresume = None"
NUMBERS = """
import random, time
from sentnb import results
run = results.Run("99_numbers", profile, {})
for row in range(100):
    run.add("table", str(row), "column", random.Random(row).random())
    time.sleep(0.01)
    if row % 10 == 9: run.save()"""


def write_notebook(folder: Path) -> Path:
    "A small experiment: torch is not imported."
    cells = [v4.new_markdown_cell("# 99_numbers\n\n> Some numbers."),
             v4.new_code_cell(PARAMETERS, metadata=dict(tags=["parameters"])), v4.new_code_cell(NUMBERS)]
    kernel = dict(name="python3", language="python", display_name="python3")
    file = folder/"99_numbers.ipynb"
    nbformat.write(v4.new_notebook(cells=cells, metadata=dict(kernelspec=kernel)), file)
    return file


def begin(notebook: Path, folder: Path, *options: str) -> subprocess.Popen:
    "The command as a user types it, with figures and cache below `folder`."
    command = [sys.executable, "-m", "sentnb.experiments", "run", str(notebook), "-q", *options]
    own = dict(SENTNB_FIGURES=str(folder/"figures"), SENTNB_CACHE=str(folder/"cache"), HF_HUB_OFFLINE="1",
               OMP_NUM_THREADS="1")
    with open(folder/"log", "ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | own, stdout=log, stderr=log)


def complete(process: subprocess.Popen, folder: Path) -> None:
    assert process.wait() == 0, (folder/"log").read_text(encoding="utf-8")[-3000:]


def numbers(folder: Path) -> bytes:
    file, = folder.glob("figures/*/demo/numbers.csv")
    return file.read_bytes()


@cache
def uninterrupted(name: str) -> tuple[Path, bytes, float]: # the notebook, its numbers, and seconds
    folder = Path(mkdtemp())
    notebook = write_notebook(folder) if name == "99_numbers" else ROOT/"nbs"/f"{name}.ipynb"
    moment = time.monotonic()
    complete(begin(notebook, folder), folder)
    return notebook, numbers(folder), time.monotonic() - moment


def kill_and_repeat(rng, folder: Path, name: str) -> None:
    notebook, expected, seconds = uninterrupted(name)
    options = rng.choice([(), ("-P", "resume=true")])
    for _ in range(rng.randint(1, 2)):
        process = begin(notebook, folder, *options)
        time.sleep(rng.uniform(0, seconds))
        process.send_signal(rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        process.wait()
    complete(begin(notebook, folder, *options), folder)
    assert numbers(folder) == expected
    assert not list(folder.glob("figures/*/*/*.unfinished.ipynb")), "an unfinished copy remains"


def attempt(rng, folder) -> None:
    kill_and_repeat(rng, folder, rng.choice(EXPERIMENTS))


def short_attempt(rng, folder) -> None:
    kill_and_repeat(rng, folder, "99_numbers")

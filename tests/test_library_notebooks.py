"""Every library notebook, and the tour, runs from top to bottom, offline, and shows again what it shows in the repository."""
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT/"nbs"/"api").glob("*.ipynb")) + sorted((ROOT/"nbs").glob("index.ipynb"))
LIMIT = 600 # seconds a notebook
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], 4)
try: nbclient.NotebookClient(notebook, timeout=%d, kernel_name="python3", resources={"metadata": {"path": "."}}).execute()
except nbclient.exceptions.CellExecutionError as error: sys.exit(str(error))
finally: nbformat.write(notebook, sys.argv[2])
""" % LIMIT


def execute(path: Path, copy: Path) -> str:
    "Execute into a copy; returns the error, '' if there is none."
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "JUPYTER_PREFER_ENV_PATH": "1", "TQDM_DISABLE": "1"} # a bar that only a slow machine shows is no output
    env.pop("SENTNB_HUB", None)
    done = subprocess.run([sys.executable, "-c", EXECUTE, str(path), str(copy)], cwd=ROOT, env=env, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr[-5000:]


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    "All of them, two at a time; a test waits for its own."
    folder = tmp_path_factory.mktemp("executed")
    with ThreadPoolExecutor(2) as pool:
        yield {path: (pool.submit(execute, path, folder/path.name), folder/path.name) for path in NOTEBOOKS}
        pool.shutdown(cancel_futures=True)


def shape(path: Path) -> list[list[str]]:
    "What each code cell shows: kinds of outputs, not their values, which differ in the last digit between machines."
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    def kinds(output): return output["output_type"], output.get("name", ""), *sorted(output.get("data", {}))
    # What one cell prints may come in several pieces: neighbours of one kind of stream count once.
    return [[kind for kind, before in zip(found, [None, *found]) if kind != before or kind[0] != "stream"]
            for found in ([kinds(output) for output in cell["outputs"]] for cell in cells)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_and_shows_what_it_showed(path, executed):
    future, copy = executed[path]
    error = future.result()
    assert not error, error
    assert shape(copy) == shape(path), "its outputs are of another run than its code: make notebooks"


def test_what_a_cell_shows_does_not_depend_on_speed(tmp_path):
    cells = [f"import time\nfrom sentnb.core import progress\nwith progress({show}, iterable=range(2)) as bar:\n    for _ in bar: time.sleep(1.2)" for show in ("None", "True")]
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), tmp_path/"slow.ipynb")
    assert not execute(tmp_path/"slow.ipynb", tmp_path/"copy.ipynb")
    quiet, asked = shape(tmp_path/"copy.ipynb")
    assert quiet == [] and asked and asked[0][0] == "display_data"

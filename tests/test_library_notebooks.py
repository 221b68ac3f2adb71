"""Every library notebook, and the tour, runs from top to bottom, offline, and shows what it shows in git."""
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sentnb import experiments # noqa: F401, before the readers of notebooks: it makes them light
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from warm_kernels import COLD

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = [path for path in sorted((ROOT/"nbs"/"api").rglob("*.ipynb"))
             if ".ipynb_checkpoints" not in path.parts] + sorted((ROOT/"nbs").glob("index.ipynb"))
LIMIT = 600 # seconds a notebook


def name_of(path: Path) -> str: return str(path.relative_to(ROOT/"nbs"))


def execute(path: Path, copy: Path) -> str:
    "Execute into a copy; returns the error, '' if there is none."
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "JUPYTER_PREFER_ENV_PATH": "1",
           "TQDM_DISABLE": "1"} # a bar that only a slow machine shows is no output
    env.pop("SENTNB_HUB", None)
    if "sys.modules" in path.read_text(encoding="utf-8"): env[COLD] = "1"   # it asks what is loaded
    notebook, place = nbformat.read(path, 4), {"metadata": {"path": str(ROOT)}}
    client = NotebookClient(notebook, timeout=LIMIT, kernel_name="python3", resources=place)
    try: client.execute(env=env)
    except (CellExecutionError, DeadKernelError) as error: return str(error)[-5000:]
    finally: nbformat.write(notebook, copy)
    return ""


@pytest.fixture(scope="module")
def executed(request, tmp_path_factory, warm_kernels):
    "All that the chosen tests ask for, two at a time; a test waits for its own."
    folder = tmp_path_factory.mktemp("executed")
    asked = {item.callspec.params["path"] for item in request.session.items
             if getattr(item, "originalname", "") == "test_runs_and_shows_what_it_showed"}
    with ThreadPoolExecutor(2) as pool:
        copies = {path: folder/name_of(path).replace("/", "+") for path in NOTEBOOKS if path in asked}
        yield {path: (pool.submit(execute, path, copy), copy) for path, copy in copies.items()}
        pool.shutdown(cancel_futures=True)


def shape(path: Path) -> list[list[str]]:
    "What each code cell shows: kinds of outputs; their values may differ in the last digit between machines."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    def kind(output): return output["output_type"], output.get("name", ""), *sorted(output.get("data", {}))
    def kinds(cell): # what one cell prints may come in several pieces, which count once
        each = [kind(output) for output in cell["outputs"]]
        pairs = zip([None, *each], each)
        return [after for before, after in pairs if after != before or after[0] != "stream"]
    return [kinds(cell) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_runs_and_shows_what_it_showed(path, executed):
    future, copy = executed[path]
    error = future.result()
    assert not error, error
    assert shape(copy) == shape(path), "its outputs are of another run than its code: make notebooks"


def test_what_a_cell_shows_does_not_depend_on_speed(tmp_path):
    sources = ["import time\nfrom sentnb.core import progress\n"
               f"with progress({show}, iterable=range(2)) as bar:\n"
               "    for _ in bar: time.sleep(1.2)" for show in ("None", "True")]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path/"slow.ipynb")
    assert not execute(tmp_path/"slow.ipynb", tmp_path/"copy.ipynb")
    quiet, asked = shape(tmp_path/"copy.ipynb")
    assert quiet == [] and asked and asked[0][0] == "display_data"

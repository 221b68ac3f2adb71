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
from sentnb.experiments.running import _own_sockets
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
    if " in sys.modules" in path.read_text(encoding="utf-8"): env[COLD] = "1"   # it asks what is loaded
    notebook, resources = nbformat.read(path, 4), {"metadata": {"path": str(ROOT)}}
    with _own_sockets() as config:
        options = dict(timeout=LIMIT, kernel_name="python3", resources=resources, config=config)
        client = NotebookClient(notebook, **options)
        try: client.execute(env=env)
        except (CellExecutionError, DeadKernelError) as error: return str(error)[-5000:]
        finally: nbformat.write(notebook, copy)
    return ""


@pytest.fixture(scope="module")
def executed(request, tmp_path_factory, warm_kernels):
    "All that the chosen tests ask for, two at a time; a test waits for its own."
    folder = tmp_path_factory.mktemp("executed")
    requested = {item.callspec.params["path"] for item in request.session.items
             if getattr(item, "originalname", "") == "test_runs_and_shows_what_it_showed"}
    with ThreadPoolExecutor(2) as pool:
        copies = {path: folder/name_of(path).replace("/", "+") for path in NOTEBOOKS if path in requested}
        yield {path: (pool.submit(execute, path, copy), copy) for path, copy in copies.items()}
        pool.shutdown(cancel_futures=True)


# What differs between machines and runs, and what takes its place.
VARYING = [(r"0x[0-9a-f]{6,}", "ADDRESS"), (r"/tmp/[\w./-]+", "TEMPORARY"),
           (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\dZ?", "TIME"),
           (r"\b[0-9a-f]{40}\b|\b[0-9a-f]{64}\b", "HASH"), (r"\s+", " ")]


def normalised(text: str) -> str:
    "Text without addresses, times and temporary paths, with three significant digits of each decimal number."
    for pattern, word in VARYING: text = re.sub(pattern, word, text)
    def rounded(match): return f"{float(match[0]):.3g}"
    return re.sub(r"-?\d+\.\d+(?:e[-+]?\d+)?", rounded, text).replace("-0 ", "0 ").strip()


def shown(path: Path) -> list[list]:
    "What each code cell shows: its text, normalised, and the kinds of its pictures and widgets."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    def parts(output):
        if output["output_type"] == "stream": return [(output["name"], "".join(output["text"]))]
        data = output.get("data", {})
        if set(data) > {"text/plain"}:   # a table or a picture: its plain form may hold an address
            data = {kind: data[kind] for kind in data if kind != "text/plain"}
        return [(kind, "".join(text) if kind.startswith("text/") else "")
                for kind, text in sorted(data.items())]
    def of_cell(cell):
        joined = []   # what one cell prints may come in several pieces
        for kind, text in (part for output in cell["outputs"] for part in parts(output)):
            if joined and kind == joined[-1][0] == "stdout": joined[-1][1] += text
            else: joined.append([kind, text])
        return [(kind, normalised(text)) for kind, text in joined]
    return [of_cell(cell) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_runs_and_shows_what_it_showed(path, executed):
    future, copy = executed[path]
    error = future.result()
    assert not error, error
    for now, before in zip(shown(copy), shown(path), strict=True):
        assert now == before, "its outputs are of another run than its code: make notebooks"


def test_what_a_cell_shows_does_not_depend_on_speed(tmp_path):
    sources = ["import time\nfrom sentnb.core import progress\n"
               f"with progress({show}, iterable=range(2)) as bar:\n"
               "    for _ in bar: time.sleep(1.2)" for show in ("None", "True")]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path/"slow.ipynb")
    assert not execute(tmp_path/"slow.ipynb", tmp_path/"copy.ipynb")
    quiet, outputs = shown(tmp_path/"copy.ipynb")
    assert quiet == [] and outputs


def test_outputs_are_normalised():
    pairs = [("<a at 0x7f12ab34cd>, 0.12345", "<a at 0x7fffffffff>, 0.12349"),
             ("/tmp/tmpab12/x.csv  1.0004", "/tmp/tmpcd34/x.csv 1.0"),
             ("at 2026-01-02T03:04:05Z", "at 2025-11-12T13:14:15Z")]
    for first, second in pairs: assert normalised(first) == normalised(second)
    assert normalised("0.123 of 5") != normalised("0.124 of 5")
    assert normalised("5 rows") != normalised("6 rows")

"""The notebooks are the source: their form, what they may hold, and that sentnb/ is what they export."""
import ast
import base64
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbdev.clean import clean_nb

from sentnb import results
from sentnb.experiments import read_introduction, read_parameters
from sentnb.results import report

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = sorted((ROOT/"nbs").glob("[0-9]*.ipynb"))
LIBRARY = sorted(path for path in (ROOT/"nbs"/"api").rglob("*.ipynb")
                 if ".ipynb_checkpoints" not in path.parts) # Lab's, made of each notebook that is opened
OTHERS = sorted({*(ROOT/"nbs").glob("*.ipynb"), *(ROOT/"nbs"/"howto").glob("*.ipynb")} - {*EXPERIMENTS})
ALL = EXPERIMENTS + LIBRARY + OTHERS
LARGEST = 400_000 # bytes of outputs a notebook
EMPTY = "saved by another Jupyter than `make lab`'s? type: make clean-notebooks"
AGAIN = f"{EMPTY}; if it is its code that shows so, change it, and type: make notebooks"

RELEASE = False # at a release every committed run must be of the code as it is

# What must not stand in a notebook: paths of somebody's machine, credentials, the address of an object.
FORBIDDEN = [r"/home/\w", r"/root/", r"/Users/\w", r"/tmp/tmp\w", r"/work/\w", r"[A-Z]:\\\\Users",
             r"\bhf_[A-Za-z0-9]{20,}", r"\bat 0x[0-9a-f]{6,}", r"site-packages", r"\b(TODO|FIXME|XXX)\b"]
# What an output would say otherwise at each run.
TIMINGS = [r"\bWall time\b", r"\bCPU times\b", r"\d+(\.\d+)? ?(it|pairs|s)/(s|it)\b",
           r"\d+(\.\d+)? (ms|µs|seconds)\b",
           r"\d+%\|", r"[█▌▊]{2,}", r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d"]
WIDGET = "application/vnd.jupyter.widget-view+json"


def short(path: Path) -> str: return str(path.relative_to(ROOT/"nbs"))


def read(path: Path) -> dict:
    "A notebook without what any Jupyter writes into it: counts, the version of Python, what is folded."
    notebook = json.loads(path.read_text(encoding="utf-8"))
    clean_nb(notebook, allowed_cell_metadata_keys=["tags"])
    notebook["metadata"].pop("widgets", None)
    return notebook


def source(cell: dict) -> str: return "".join(cell["source"])


def code_cells(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def modules_of(notebook: dict) -> list[str]:
    "What the notebook exports: one module."
    matches = [re.search(r"^#\| *default_exp +(\S+)", source(cell), re.M) for cell in code_cells(notebook)]
    return [match[1] for match in matches if match]


def texts(output: dict) -> str:
    "All the text of an output, pictures left out."
    shown = ["".join(output.get("text", []))]
    for kind, data in output.get("data", {}).items():
        if not kind.startswith("image/") and not isinstance(data, dict): shown.append("".join(data))
    return "\n".join(shown + output.get("traceback", []))


@pytest.mark.parametrize("path", ALL, ids=short)
def test_form(path):
    notebook = read(path)
    kernel = notebook["metadata"]["kernelspec"]
    assert kernel == dict(display_name="python3", language="python", name="python3"), "papermill needs them"
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell.get("id") for cell in notebook["cells"]]
    assert all(ids), "each cell has an id, else each export rewrites the modules"
    assert len(set(ids)) == len(ids), "an id is that of one cell"
    assert all(set(cell["metadata"]) <= {"tags"} for cell in notebook["cells"])
    for cell in code_cells(notebook):
        if not source(cell).lstrip().startswith(("%", "!")): ast.parse(source(cell))
    opening = read_introduction(path)
    assert opening.title != path.stem and opening.purpose, "a title and, quoted under it, the purpose"


@pytest.mark.parametrize("path", ALL, ids=short)
def test_nothing_of_one_machine(path):
    notebook = read(path)
    for cell in notebook["cells"]:
        shown = "\n".join(map(texts, cell.get("outputs", [])))
        assert [word for word in FORBIDDEN if re.search(word, source(cell))] == [], source(cell)[:200]
        assert [word for word in FORBIDDEN if re.search(word, shown)] == [], f"{AGAIN}\n{source(cell)[:200]}"
        assert "clear_all" not in source(cell) + shown, "it strips the tag of the parameters cell"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=short)
def test_experiment(path):
    notebook = read(path)
    tagged = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", [])]
    assert len(tagged) == 1 and tagged[0]["cell_type"] == "code", "exactly one cell is tagged `parameters`"
    assert "profile" in read_parameters(path) and read_parameters(path)["profile"].strip("'\"") == "demo"
    statements = ast.parse(source(tagged[0])).body
    assert all(isinstance(node, (ast.Assign, ast.AnnAssign)) for node in statements), "plain assignments"
    before = code_cells(dict(cells=notebook["cells"][:notebook["cells"].index(tagged[0])]))
    names = {node.id for cell in before for node in ast.walk(ast.parse(source(cell)))
             if isinstance(node, ast.Name)}
    assert not names & {"profile", "seed", "seeds"}, "a parameter is used above the cell that sets it"
    for cell in code_cells(notebook):
        assert not cell["outputs"], f"an experiment keeps none: its executed copy does; {EMPTY}"
        exports = re.search(r"^#\| *(export|default_exp|exporti|exports)\b", source(cell), re.M)
        assert not exports, "an experiment never exports"


@pytest.mark.parametrize("path", ALL, ids=short)
def test_controls_that_fill_at_once_stand_under_lab_alone(path):
    """`interact` and its kin capture output while their cell runs, which a run without a browser answers over
    the channel that it waits on: about one run in six then waited for ever."""
    for cell in code_cells(read(path)):
        if re.search(r"\b(interact|interactive|interactive_output)\(", source(cell)):
            assert "if \"JPY_SESSION_NAME\" in os.environ" in source(cell), source(cell)[:200]


@pytest.mark.parametrize("path", LIBRARY + OTHERS, ids=short)
def test_outputs_of_a_library_notebook(path):
    notebook = read(path)
    outputs = [output for cell in code_cells(notebook) for output in cell["outputs"]]
    size = len(json.dumps(outputs))
    assert size <= LARGEST, f"{size} bytes of outputs; a picture in a notebook is small"
    kinds = {(output["output_type"], output.get("name")) for output in outputs}
    assert "error" not in {kind for kind, _ in kinds}, f"an error to be seen is caught and printed; {AGAIN}"
    assert ("stream", "stderr") not in kinds, f"no warnings, no progress bars; {AGAIN}"
    for cell in code_cells(notebook):
        for output in cell["outputs"]:
            changing = [word for word in TIMINGS if re.search(word, texts(output))]
            assert changing == [], f"an output that changes at each run; {AGAIN}\n{source(cell)[:200]}"
            data = output.get("data", {})
            assert WIDGET not in data, f"a widget is not there when the notebook is read; {AGAIN}"
            if "image/png" in data:
                assert base64.b64decode("".join(data["image/png"])).startswith(b"\x89PNG")


@pytest.mark.parametrize("path", LIBRARY, ids=short)
def test_library_notebook(path):
    notebook = read(path)
    modules = modules_of(notebook)
    assert len(modules) == 1, "a library notebook exports one module"
    exported = [cell for cell in code_cells(notebook) if re.match(r"#\| *export", source(cell))]
    assert exported, "nothing is exported"
    shown = [cell for cell in code_cells(notebook)
             if cell not in exported and not re.match(r"#\| *(default_exp|hide)", source(cell))]
    if modules[0].endswith("__init__"): return
    assert shown, "code without the cell that shows it working"
    assert any(cell["outputs"] for cell in shown), "it reads without running: make notebooks"


def test_one_notebook_a_module():
    names = [name for path in LIBRARY for name in modules_of(read(path))]
    assert sorted(names) == sorted(set(names)), "two notebooks export the same module: the last would win"


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Path:
    "A copy of the checkout's notebooks, cleaned and exported afresh."
    copy = tmp_path_factory.mktemp("export")
    for name in ("settings.ini", "pyproject.toml", "setup.py", "README.md"): shutil.copy(ROOT/name, copy)
    ignored = shutil.ignore_patterns(".ipynb_checkpoints", ".last_checked")
    shutil.copytree(ROOT/"nbs", copy/"nbs", ignore=ignored)
    env = {key: value for key, value in os.environ.items() if key not in ("IN_TEST", "SENTNB_ROOT")}
    for module in ("nbdev.clean import nbdev_clean as f", "nbdev.doclinks import nbdev_export as f"):
        code = f"import sys; sys.argv = ['nbdev']; from {module}; f()"
        done = subprocess.run([sys.executable, "-c", code], cwd=copy, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    subprocess.run([sys.executable, ROOT/"docs"/"docstrings.py", copy/"sentnb"], check=True)
    return copy


def test_sentnb_is_what_the_notebooks_export(exported):
    fresh = {path.relative_to(exported) for path in (exported/"sentnb").rglob("*.py")}
    ours = {path.relative_to(ROOT) for path in (ROOT/"sentnb").rglob("*.py")}
    assert ours - fresh == set(), "no notebook exports these: left over, or written by hand"
    assert fresh - ours == set(), "not exported yet: make export"
    def same(path): return filecmp.cmp(exported/path, ROOT/path, shallow=False)
    changed = [str(path) for path in sorted(fresh) if not same(path)]
    assert changed == [], "differ from what the notebooks export: make export"


def test_notebooks_are_clean(exported):
    "What is committed is; what is not yet may hold what a Jupyter wrote, but outputs."
    status = subprocess.run(["git", "status", "--porcelain", "--untracked-files=all", "--no-renames", "."],
                            cwd=ROOT/"nbs", capture_output=True, text=True)
    committed = [path for path in ALL if f"nbs/{short(path)}\n" not in status.stdout]
    if status.returncode: pytest.skip("no git here that would say what is committed")
    def cleaned(path): return (exported/path.relative_to(ROOT)).read_bytes()
    changed = [short(path) for path in committed if path.read_bytes() != cleaned(path)]
    assert changed == [], "nbdev_clean changes them: make export"


def test_export_keeps_the_project_files(exported):
    for name in ("settings.ini", "pyproject.toml", "setup.py"):
        assert filecmp.cmp(exported/name, ROOT/name, shallow=False), f"nbdev rewrites {name}"


RUNS = sorted((ROOT/"figures").glob("*/small*/run.json"))


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_a_committed_run_is_of_the_code_as_it_is(path):
    details = json.loads(path.read_text(encoding="utf-8"))
    if not results.is_code_changed(details): return
    message = f"code changed since this run (commit {str(details['code']['commit'])[:10]}): run it again"
    assert not RELEASE, message
    pytest.skip(message)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}")
def test_an_executed_copy_holds_the_code_of_its_run(path):
    details = json.loads(path.read_text(encoding="utf-8"))
    if "code_sha256" not in details: pytest.skip("a run without a hash of its code: run it again")
    assert results.code_sha256(path.with_name(f"{path.parent.parent.name}.ipynb")) == details["code_sha256"]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=short)
def test_each_claim_is_discussed_in_one_paragraph(path):
    "Two paragraphs that begin with the same claim would stop the report."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    report.discussions(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"])

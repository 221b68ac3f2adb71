"What the tests of the experiments share: the command as a user types it, and what a run must leave."
import contextlib
import io
import math
import os
import subprocess
import sys
from pathlib import Path

import nbformat
from fastcore.xtras import modified_env

from sentnb import experiments, results

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = sorted((ROOT/"nbs").glob("[0-9]*.ipynb"))
COLUMNS = {"table", "row", "column", "value", "low", "high", "n_seeds"}
EVIDENCE = {"settings", "seed", "commit", "dirty", "versions", "fonts", "data", "hardware"}
# whose plan says exactly what the demo trains
PLANNED = {"05_leapfrog", "07_micse_lowshot", "08_micse_attention", "09_visualcse", "10_audiocse", "11_cmlm",
           "15_beyond"}


def keys(value) -> set[str]:
    "All the keys of nested dictionaries."
    if not isinstance(value, dict): return set()
    return set().union(*[{key} | keys(inner) for key, inner in value.items()])


def sentnb(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    "The command in a process of its own, as a user types it."
    return subprocess.run([sys.executable, "-m", "sentnb.experiments", *arguments], cwd=ROOT,
                          env={**os.environ, **env}, capture_output=True, text=True)


def sentnb_here(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    "The command, called from here, so that its kernel can be a warm one (`warm_kernels`)."
    output, complaints = io.StringIO(), io.StringIO()
    with (modified_env(HF_HUB_OFFLINE="1", **env), contextlib.redirect_stdout(output),
          contextlib.redirect_stderr(complaints)):
        status = experiments.main(arguments)
    return subprocess.CompletedProcess(arguments, status, output.getvalue(), complaints.getvalue())


def written(folder: Path) -> dict[Path, int]:
    "When each file below was written."
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def check_record(folder: Path):
    "The evidence of a demo, and that its numbers are numbers."
    record = results.load_run(folder)
    assert record.details["profile"] == "demo"
    assert EVIDENCE <= keys(record.details), f"run.json lacks {EVIDENCE - keys(record.details)}"
    numbers = record.numbers
    assert len(numbers) and COLUMNS <= set(numbers.columns)
    assert all(math.isfinite(float(value)) for value in numbers["value"])


def check_figures(folder: Path):
    "Each figure in three formats, with its data."
    pictures = {picture.stem for picture in folder.glob("*.svg")}
    assert pictures, "no figure"
    for name in pictures:
        for picture in (f"{name}.png", f"{name}.pdf"): assert (folder/picture).stat().st_size > 0, picture
        assert list(folder.glob(f"{name}.csv")) or list(folder.glob(f"{name}.*.csv")), f"the data of {name}"


def code_cells(path: Path) -> list:
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


# figures are drawn, in the notebook; their files are what the demos write and check
NO_FILES = "from pathlib import Path\nfrom matplotlib.figure import Figure\n"
NO_FILES += "Figure.savefig = lambda figure, path, **options: Path(path).touch()"


def copy_without_example(path: Path, folder: Path, last: str|None=None) -> Path:
    """A copy of an experiment without the example of its method, the code above its parameters, and with
    empty files for its figures: the demos run and write them. With `last`, a section, it ends there."""
    notebook = nbformat.read(path, 4)
    tagged = ["parameters" in cell.metadata.get("tags", []) for cell in notebook.cells].index(True)
    above = [cell for cell in notebook.cells[:tagged] if cell.cell_type != "code"]
    notebook.cells = [*above, notebook.cells[tagged], nbformat.v4.new_code_cell(NO_FILES),
                      *notebook.cells[tagged + 1:]]
    if last:
        headings = [cell.source.partition("\n")[0] for cell in notebook.cells]
        following = headings.index(f"## {last}") + 1
        end = next(i for i in range(following, len(headings)) if headings[i].startswith("## "))
        notebook.cells[end:] = [nbformat.v4.new_code_cell("run.save()")]
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder/path.name)
    return folder/path.name


def command_of(name: str) -> tuple[str, ...]: return "run", name, "-p", "demo", "--quiet"


def check_demo(path: Path, figures: Path):
    "Run an experiment at demo, and look at what it says and leaves; `check_again` starts a cold kernel."
    own = ROOT/"figures"/path.stem   # of figures/ whole, other tests may write at the same time
    before, messages = written(own), figures/f"{path.stem}.messages"
    messages.touch()
    places = dict(SENTNB_FIGURES=str(figures), SENTNB_MESSAGES=str(messages))
    done = sentnb_here(*command_of(path.stem if path in EXPERIMENTS else str(path)), **places)
    assert done.returncode == 0, done.stderr
    if path.stem in PLANNED: assert experiments.compare_with_run(messages) == [], "the plan is wrong"
    folder = figures/path.stem/"demo"
    for name in (f"{path.stem}.ipynb", "numbers.csv", ".png"):
        assert name in done.stdout, "it says where the results are"
    check_record(folder)
    check_figures(folder)

    executed = folder/f"{path.stem}.ipynb"
    assert all(cell.execution_count for cell in code_cells(executed) if cell.source.strip())
    assert str(ROOT) not in executed.read_text(encoding="utf-8")
    assert not list(folder.rglob("*.unfinished.ipynb"))
    assert before == written(own), "SENTNB_FIGURES alone is written"


def check_again(name: str, figures: Path, elsewhere: Path):
    "The same command in a process of its own, as a user types it, gives the same bytes."
    first = figures/name/"demo"/"numbers.csv"
    assert first.is_file(), "the demo of it did not run, or failed"
    path = ROOT/"nbs"/f"{name}.ipynb"
    done = sentnb(*command_of(str(path)), SENTNB_FIGURES=str(elsewhere), HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert (elsewhere/name/"demo"/"numbers.csv").read_bytes() == first.read_bytes()

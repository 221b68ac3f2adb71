"""docs/profiles.md shows what `sentnb check all` prints about runs at paper, and `check` of one agrees."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CALLS = """
import contextlib, io, json, sys
from sentnb.experiments import main
for line in sys.stdin:
    output, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(complaints):
        status = main(json.loads(line))
    print(json.dumps([status, output.getvalue(), complaints.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def nothing(tmp_path_factory):
    "Neither a mirror nor a cache."
    folder = tmp_path_factory.mktemp("nothing")
    return dict(HF_HOME=str(folder/"home"), SENTNB_CACHE=str(folder/"cache"),
                SENTNB_FIGURES=str(folder/"figures"))


@pytest.fixture(scope="module")
def check(nothing):
    "`sentnb check` in one process for all, without a network: the packages take longer to load than a plan."
    env = {name: value for name, value in os.environ.items() if name != "SENTNB_HUB"}
    env |= dict(HF_HUB_OFFLINE="1", **nothing)
    with subprocess.Popen([sys.executable, "-c", CALLS], env=env, cwd=ROOT, text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as process:
        def call(*arguments):
            print(json.dumps(["check", *arguments]), file=process.stdin, flush=True)
            return subprocess.CompletedProcess(arguments, *json.loads(process.stdout.readline()))
        yield call
        process.stdin.close()


def test_readme_has_the_table(check):
    done = check("all")
    assert done.returncode == 0, done.stderr
    assert done.stdout in (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8"), (
        "copy the output of sentnb check all"
    )
    assert "05_leapfrog" in done.stdout


def test_one_run(check, nothing):
    done = check("05_leapfrog", "-p", "paper", "-P", "seeds=1")
    assert done.returncode == 0, done.stderr
    commit = "8f504f130c709c6e700d39d18c78d20410b78030"
    for line in ("gowitheflowlab/parallel-9", f"| model | Team-PIXEL/pixel-base | Hub | {commit} |",
                 "| parallel | Team-PIXEL/pixel-base | 6 | 28,400 |", "Estimates: one H100 at "):
        assert line in done.stdout
    assert not Path(nothing["SENTNB_FIGURES"]).exists() and not Path(nothing["HF_HOME"]).exists()


def test_what_is_missing(check):
    done = check("8", "-P", "overrides={trees: no_such_parser}")
    assert done.returncode == 1 and "python -m spacy download no_such_parser" in done.stdout
    unknown = check("8", "-P", "overrides={base: no-such-owner/model}")
    assert unknown.returncode == 2 and "'no-such-owner/model'" in unknown.stderr
    small = check("5", "-p", "small")
    assert small.returncode == 1 and "set SENTNB_HUB to a folder that holds parallel/stsb" in small.stdout


def test_an_overview_is_of_no_parameter(check, capsys):
    from sentnb.experiments import main
    refused = check("all", "-P", "seeds=1")
    assert refused.returncode == 2 and "-P is of one notebook: name it instead of all" in refused.stderr
    with pytest.raises(SystemExit): main(["check", "--help"])
    assert "of `all`, an overview, 0" in " ".join(capsys.readouterr().out.split())


def test_what_only_jupyter_reads_is_said_in_a_sentence(check, tmp_path):
    import nbformat
    from nbformat import v4
    cells = [v4.new_code_cell("profile = 'demo'", metadata=dict(tags=["parameters"])),
             v4.new_code_cell("import os\n%matplotlib inline"), v4.new_code_cell("plan = 1")]
    kernel = dict(name="python3", language="python", display_name="python3")
    nbformat.write(v4.new_notebook(cells=cells, metadata=dict(kernelspec=kernel)), tmp_path/"99_magic.ipynb")
    done = check(str(tmp_path/"99_magic.ipynb"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "99_magic: '%matplotlib inline' is not Python" in done.stderr

"""docs/profiles.md shows what `sentnb check all` prints about runs at paper, and `check` of one agrees."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def check(*arguments, **variables):
    "Without a mirror, a cache and a network."
    env = {name: value for name, value in os.environ.items() if name != "SENTNB_HUB"}
    program = [sys.executable, "-m", "sentnb.experiments", "check", *arguments]
    return subprocess.run(program, env=env | dict(HF_HUB_OFFLINE="1", **variables), cwd=ROOT, text=True,
                          capture_output=True, timeout=300)


@pytest.fixture
def nothing(tmp_path):
    return dict(HF_HOME=str(tmp_path/"home"), SENTNB_CACHE=str(tmp_path/"cache"),
                SENTNB_FIGURES=str(tmp_path/"figures"))


def test_readme_has_the_table(nothing):
    done = check("all", **nothing)
    assert done.returncode == 0, done.stderr
    assert done.stdout in (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8"), (
        "copy the output of sentnb check all"
    )
    assert "05_leapfrog" in done.stdout


def test_one_run(nothing):
    done = check("05_leapfrog", "-p", "paper", "-P", "seeds=1", **nothing)
    assert done.returncode == 0, done.stderr
    commit = "8f504f130c709c6e700d39d18c78d20410b78030"
    for line in ("gowitheflowlab/parallel-9", f"| model | Team-PIXEL/pixel-base | Hub | {commit} |",
                 "| parallel | Team-PIXEL/pixel-base | 6 | 28,400 |", "Estimates: one H100 at "):
        assert line in done.stdout
    assert not Path(nothing["SENTNB_FIGURES"]).exists() and not Path(nothing["HF_HOME"]).exists()


def test_what_is_missing(nothing):
    done = check("8", "-P", "overrides={trees: no_such_parser}", **nothing)
    assert done.returncode == 1 and "python -m spacy download no_such_parser" in done.stdout
    unknown = check("8", "-P", "overrides={base: no-such-owner/model}", **nothing)
    assert unknown.returncode == 2 and "'no-such-owner/model'" in unknown.stderr
    small = check("5", "-p", "small", **nothing)
    assert small.returncode == 1 and "set SENTNB_HUB to a folder that holds parallel/stsb" in small.stdout


def test_an_overview_is_of_no_parameter(nothing, capsys):
    from sentnb.experiments import main
    refused = check("all", "-P", "seeds=1", **nothing)
    assert refused.returncode == 2 and "-P is of one notebook: name it instead of all" in refused.stderr
    with pytest.raises(SystemExit): main(["check", "--help"])
    assert "of `all`, an overview, 0" in " ".join(capsys.readouterr().out.split())


def test_what_only_jupyter_reads_is_said_in_a_sentence(nothing, tmp_path):
    import nbformat
    from nbformat import v4
    cells = [v4.new_code_cell("profile = 'demo'", metadata=dict(tags=["parameters"])),
             v4.new_code_cell("import os\n%matplotlib inline"), v4.new_code_cell("plan = 1")]
    kernel = dict(name="python3", language="python", display_name="python3")
    nbformat.write(v4.new_notebook(cells=cells, metadata=dict(kernelspec=kernel)), tmp_path/"99_magic.ipynb")
    done = check(str(tmp_path/"99_magic.ipynb"), **nothing)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "99_magic: '%matplotlib inline' is not Python" in done.stderr

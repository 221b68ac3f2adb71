"""Command blocks of README.md and of the pages in docs: Python runs, and quick commands too; slow ones are
parsed."""
import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sentnb import experiments
from sentnb.core import PROFILES
from sentnb.encoders.checkpoints import MODELS
from sentnb.results import VERDICTS, prose_numbers

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT/"README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8")
         for path in (ROOT/"README.md", *sorted((ROOT/"docs").glob("*.md")))}
BLOCKS = [
    block for text in PAGES.values() for block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
]
COMMANDS = [line for kind, code in BLOCKS if kind == "sh" for line in code.splitlines() if line.strip()]


def test_kinds_of_blocks():
    kinds = {kind for kind, _ in BLOCKS}
    assert kinds <= {"sh", "python", ""}, "a block of a kind that no test reads"
    assert len(COMMANDS) >= 5
    first = [code.strip() for kind, code in BLOCKS[:2]]
    assert first == ["make leapfrog", "make test"], "the two commands come first"


def test_results_are_those_of_the_runs():
    "Each number of the first tables; the verdicts as they stand in the runs at small."
    texts = "\n".join((README, PAGES["models.md"]))
    rows = [line for line in texts.splitlines() if "<!--" in line]
    assert len(rows) >= 10
    for row in rows: assert prose_numbers.check(row, None) == [], row
    numbers = (ROOT/"figures"/"90_report"/"small"/"numbers.csv").read_text(encoding="utf-8")
    report = csv.DictReader(numbers.splitlines())
    verdicts = {(row["row"], row["column"]): int(float(row["value"])) for row in report
                if row["table"] == "report_claims"}   # where several runs settle one claim it counts once
    for paper in {paper for paper, _ in verdicts}:
        counts = [verdicts.get((paper, verdict), 0) for verdict in VERDICTS if verdict != "not run"]
        if sum(counts): assert f"| `{paper}` | {sum(counts)} | {' | '.join(map(str, counts))} |" in README


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks(page, python):
    "The blocks of a page run in one namespace, from top to bottom, and print what the page shows below them."
    blocks = re.findall(r"^```python\n(.*?)^```\n(?:\nprints\n\n```\n(.*?)^```$)?", PAGES[page], re.M | re.S)
    local = [(code, shown) for code, shown in blocks if not code.startswith("# needs the network")]
    for code, _ in blocks: compile(code, page, "exec")
    if not local: return
    printed = python("\n".join(code for code, _ in local), HF_HUB_OFFLINE="1")
    assert printed.strip()
    for _, shown in local: assert shown in printed


def test_the_readme_is_short_and_leads_to_every_page():
    assert len(README.split()) <= 1_500
    for page in PAGES:
        if page != "README.md": assert f"(docs/{page})" in README, page


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, tmp_path):
    words = shlex.split(command)
    program, arguments = Path(words[0]).name, words[1:]
    if program == "make":
        dry = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True)
        assert dry.returncode == 0, dry.stderr
        assert f"{arguments[0]}:" in (ROOT/"Makefile").read_text()
    elif program == "accelerate":   # tests/test_several_machines.py runs it
        from accelerate.commands.launch import launch_command_parser
        assert arguments[0] == "launch"
        assert launch_command_parser().parse_args(arguments[1:]).training_script == "train.py"
    elif program == "mkdir":
        assert arguments[0] == "-p"
    elif program == "papermill":
        source, target, *options = arguments
        assert source.startswith("nbs/") and target.endswith(".ipynb")
        assert not target.startswith("nbs/"), "the executed copy would stand among the sources"
        assert f"mkdir -p {Path(target).parent}" in README, "papermill does not make the folder"
        assert options[0::3] == ["-p"] * (len(options) // 3)
        known = experiments.read_parameters(ROOT/source)
        for name in options[1::3]: assert name in known
        assert options[options.index("profile") + 1] in PROFILES
    elif program == "sentnb":
        parsed = experiments.commands.parser().parse_args(arguments)
        if parsed.command == "run":
            known = set(experiments.read_parameters(experiments.find_experiment(parsed.name)))
            assert {"profile", *experiments.parse_assignments(parsed.parameters)} <= known
        elif parsed.command == "diff":
            for selection in (parsed.first,
                              parsed.second): experiments.find_experiment(selection.partition("/")[0])
        elif parsed.command == "convert": # tests/test_hub_models.py runs it, where the Hub is its cache
            assert parsed.name in MODELS
        else:
            if "-o" in arguments:
                arguments[arguments.index("-o") + 1] = str(tmp_path/Path(parsed.output).name)
            assert experiments.main(arguments) == 0
    else: raise AssertionError(f"no check for {program}")


def test_pictures_and_files_exist():
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    files = re.findall(r"`((?:nbs|sentnb|data|figures|tests)/[\w./-]*\w)`", README)
    for path in pictures: assert (ROOT/path).is_file(), path
    for path in files: assert (ROOT/path).exists(), path
    for path in ("LICENSE", "environment.yml", "Makefile", "settings.ini"): assert (ROOT/path).is_file()


def test_layout_is_the_layout():
    shown = re.search(r"^## Layout\n\n```\n(.*?)^```", README, re.M | re.S)[1]
    for name in re.findall(r"^(\w+)/", shown, re.M): assert (ROOT/name).is_dir(), name


def test_environment_follows_settings():
    text = (ROOT/"environment.yml").read_text(encoding="utf-8")
    assert "-e .[notebooks,dev]" in text and "pango" in text and "conda-forge" in text


def test_citation_cff_is_made_of_citation_bib():
    "Run `python docs/citation.py` after a change of CITATION.bib or of the version."
    sys.path.insert(0, str(ROOT/"docs"))
    try: import citation
    finally: sys.path.remove(str(ROOT/"docs"))
    assert citation.citation() == (ROOT/"CITATION.cff").read_text(encoding="utf-8")
    references = citation.yaml.safe_load(citation.citation())["references"]
    bibliography = (ROOT/"CITATION.bib").read_text(encoding="utf-8")
    assert len(references) == bibliography.count("\n@") == 5
    for reference in references:
        assert all(author["family-names"] in bibliography for author in reference["authors"])


def test_the_changelog_begins_with_this_version():
    import sentnb
    changes = (ROOT/"CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changes, re.M)[1] == sentnb.__version__


def test_installed_package_is_what_settings_say():
    "setup.py hands setuptools what settings.ini says."
    from configparser import ConfigParser
    from importlib.metadata import distribution
    parser = ConfigParser(delimiters=["="])
    parser.read(ROOT/"settings.ini", encoding="utf-8")
    settings, installed = parser["DEFAULT"], distribution("sentnb")
    assert installed.version == settings["version"]
    names = {re.split(r"[<>=!~; ]", wanted)[0].lower().replace("_", "-") for wanted in installed.requires}
    for wanted in (settings["requirements"] + " " + settings["dev_requirements"]).split():
        assert re.split(r"[<>=]", wanted)[0].lower().replace("_", "-") in names, wanted
    commands = {(entry.name, entry.value) for entry in installed.entry_points}
    assert ("sentnb", "sentnb.experiments:main") in commands
    import sentnb
    assert sentnb.__version__ == settings["version"]


@pytest.mark.parametrize("target", [
    "help", "setup", "leapfrog", "test", "lab", "clean-notebooks", "figures", "report", "notebooks",
    "export", "site", "clean"])
def test_make_targets(target):
    assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode == 0
    assert re.search(rf"^{target}:", (ROOT/"Makefile").read_text(), re.M)


def test_ci_runs_make_test():
    run = ROOT/".ci"/"run"
    assert run.stat().st_mode & 0o100, "not executable"
    assert re.findall(r"^exec (.+)$", run.read_text(), re.M) == ["make test"]


def test_nothing_of_one_machine_in_the_project_files():
    for name in ("README.md", "Makefile", "settings.ini", "setup.py", "pyproject.toml", "environment.yml",
                 ".ci/run", ".gitignore"):
        text = (ROOT/name).read_text(encoding="utf-8")
        assert not re.search(r"/home/|/root/|/Users/|/work/|/opt/|@[\w-]+\.(com|org)", text), name
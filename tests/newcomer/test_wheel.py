"""The wheel in an environment of its own, away from every checkout, as who installs it would meet it."""
import configparser
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PIP = sys.executable, "-m", "pip", "--disable-pip-version-check"


def call(*words, cwd: Path, **more) -> subprocess.CompletedProcess:
    named = {name: value for name, value in os.environ.items()
             if not name.startswith("SENTNB_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    options = dict(cwd=cwd, capture_output=True, text=True, env={**named, "HF_HUB_OFFLINE": "1", **more})
    return subprocess.run([str(word) for word in words], **options)


def settings() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(delimiters=["="])
    parser.read(ROOT/"settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    "The folder of the archive of the sources, and of the wheel that is built from that archive."
    folder = tmp_path_factory.mktemp("wheel")
    files = call("git", "ls-files", cwd=ROOT)
    if files.returncode: pytest.skip("no git: which files are the project's?")
    source = folder/"source"
    for name in files.stdout.splitlines(): # a build leaves its folders beside what it builds
        if name.startswith(("figures/", "tests/")) or not (ROOT/name).is_file(): continue
        (source/name).parent.mkdir(parents=True, exist_ok=True)
        (source/name).write_bytes((ROOT/name).read_bytes())
    command = sys.executable, "-m", "build", "--no-isolation", "--outdir", folder/"dist", source
    done = call(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder/"dist"


@pytest.fixture(scope="module")
def wheel(built) -> Path:
    built_wheel, = built.glob("*.whl")
    return built_wheel


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> tuple[Path, Path]:
    "The programs of the environment, and an empty folder. What ours needs is what the tests have."
    folder = tmp_path_factory.mktemp("elsewhere")
    call(sys.executable, "-m", "venv", "--without-pip", folder/"env", cwd=folder)
    own, = (folder/"env"/"lib").glob("python*/site-packages")
    (own/"needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    target = ("--python", folder/"env"/"bin"/"python")
    done = call(*PIP, *target, "install", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder/"empty").mkdir()
    return folder/"env"/"bin", folder/"empty"


def test_it_holds_what_encoders_and_data_need(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("checkpoints/sentnb-small/model.safetensors", "microworld/zh.tsv", "paper/claims.md"):
        assert f"sentnb/_data/{name}" in names
    assert {name.split("/")[0] for name in names} == {"sentnb", f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}
    assert wheel.stat().st_size < 10e6


def test_the_files_of_a_release_are_valid(built):
    "What `twine check` says; it is in the extra `dev`."
    pytest.importorskip("twine", reason="the extra `dev` is not installed: make setup")
    files = sorted(built.iterdir())
    version = settings()["version"]
    assert [file.name for file in files] == [f"sentnb-{version}-py3-none-any.whl", f"sentnb-{version}.tar.gz"]
    done = call(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=built)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr
    with tarfile.open(files[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("CHANGELOG.md", "CITATION.cff", "SECURITY.md", "environment.yml", "nbs/05_leapfrog.ipynb"):
        assert name in names


def test_pip_solves_what_environment_yml_asks_for(wheel):
    "With the packages that the tests run with, and no index: what is installed is a solution of the pins."
    environment = yaml.safe_load((ROOT/"environment.yml").read_text(encoding="utf-8"))["dependencies"]
    versions = [name.partition("=")[2] for name in environment if str(name).startswith("python=")]
    assert len(versions) == 1 and Version(versions[0]) >= Version(settings()["min_python"])
    requested, = next(entry["pip"] for entry in environment if isinstance(entry, dict))
    extras = re.fullmatch(r"-e \.\[(.+)\]", requested)[1]
    solve = (*PIP, "install", "--dry-run", "--no-index", "--quiet")
    done = call(*solve, f"{wheel}[{extras}]", cwd=wheel.parent)
    assert done.returncode == 0, done.stderr


def test_the_first_example_runs_from_an_empty_folder(installed):
    programs, empty = installed
    readme = (ROOT/"README.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```$", readme, re.M | re.S)[1]
    check = "import sentnb; assert 'elsewhere' in sentnb.__file__, sentnb.__file__\n"
    ran = call(programs/"python", "-c", check + first, cwd=empty)
    assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr
    assert list(empty.iterdir()) == [], "nothing is left where one stands"


def test_help_shows_the_comments_of_parameters(installed):
    programs, empty = installed
    code = "from sentnb.renderer import RenderConfig; help(RenderConfig)"
    ran = call(programs/"python", "-c", code, cwd=empty)
    assert ran.returncode == 0 and "of a strip, including the black end patch" in ran.stdout, ran.stderr


def test_the_embedded_corpus_the_tables_and_a_training(installed, tmp_path):
    programs, empty = installed
    code = f"""
from sentnb import corpora, results
from sentnb.encoders import PixelEncoder
from sentnb.training import Branch, InfoNCE, Pairs, Stage
pairs = corpora.Microworld(seed=0).parallel("en", "de", n=64)
assert len(results.published("micse_table2"))
root = Branch.root(PixelEncoder.from_pretrained("sentnb-small"), {str(tmp_path)!r})
branch = root.grow("mine", Stage("mine", pairs, InfoNCE(view=Pairs()), steps=2, batch_size=8))
print(branch.rate > 0, branch.commits)"""
    ran = call(programs/"python", "-c", code, cwd=empty, TQDM_DISABLE="1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("True")


@pytest.mark.parametrize("command", [["list"], ["run", "05_leapfrog"]])
def test_what_needs_the_checkout_says_so(installed, command):
    programs, empty = installed
    ran = call(programs/"sentnb", *command, cwd=empty)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr
    assert "experiments" in ran.stderr and "Clone" in ran.stderr and "SENTNB_ROOT" in ran.stderr


def test_without_papermill_it_says_what_to_install(installed):
    programs, empty = installed
    code = ("import sys; sys.modules['papermill'] = None\n"
            "from sentnb.experiments import main; sys.exit(main(['run', '05_leapfrog', '-P', 'seeds=1']))")
    ran = call(programs/"python", "-c", code, cwd=empty, SENTNB_ROOT=str(ROOT))
    assert ran.returncode == 2 and "pip install 'sentnb[notebooks]'" in ran.stderr, ran.stderr


def test_the_command_line_encodes(installed, tmp_path):
    programs, empty = installed
    (tmp_path/"texts.txt").write_text("one\ntwo\n")
    words = ("encode", tmp_path/"texts.txt", "-m", "sentnb-small", "-o", tmp_path/"out.npy")
    ran = call(programs/"sentnb", *words, cwd=empty)
    assert ran.returncode == 0 and (tmp_path/"out.npy").is_file(), ran.stderr
    ran = call(programs/"sentnb", *words[:2], "-m", "pixel-small-mae", *words[4:], cwd=empty)
    assert ran.returncode == 2 and "sentnb-small" in ran.stderr

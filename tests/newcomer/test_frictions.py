"""What a newcomer tried, point by point, as it was typed; what it gave then is what must not come again.

| point | what was tried | the test |
|---|---|---|
| 1, 2 | pictures and links in Lab; reading leaves nothing in git | test_lab |
| 3 | a run with other settings, and where its results go | test_experiments: a folder of its own |
| 4 | the same numbers, whatever the threads | test_core, test_encoders_static |
| 5 | two long texts that differ at the end; a stage that cuts its texts | here; test_training_resume |
| 6 | a wheel in another environment | test_wheel |
| 7 | the report at 1400 and 390 pixels | test_report: the committed page; here: what comes first |
| 8 | whose number stands in a LaTeX table | here; test_report |
| 9 | pages for one's own data | test_howto |
| 10 | what a terminal shows of a training; the bar of `encode` | test_experiments; test_encoders_base |
| 11 | modes of files; an output that cannot be written | test_encoders_pixel, test_core; test_experiments |
| 12 | Amharic; another font; a size that clips | test_renderer |
| 13 | values that a parameter cannot have | test_experiments: wrong values |
| 14 | checkpoints of another kind, None, an empty config | here; test_encoders_pixel |
| 15 | `make lab` as root | here |
| 16 | cells past 50 characters, None and 2 in the table of settings | here |
| 17 | a demo beside the paper | here; test_results |
| 18 | what README says of the scores and the claims | test_readme; here: the search |
| 19 | the project's figure in another size | test_howto: redraw_a_figure |
| 20 | names in the tables of the tour | here |
| 21 | --version, a pipe, --scale 0, make help | here; test_experiments |
| 22 | `make report` twice | test_experiments: a run that changes nothing |

The second day:

| point | what was tried | the test |
|---|---|---|
| 1 | how-to pages, the tour and Lab on a shared machine | here: idle threads sleep; test_core |
| 2 | long texts, by the command and in Python | here: 5 of the first day |
| 3 | `sentnb check`: hours of a CPU core | test_experiments |
| 4 | `sentnb mine` on files of 3 and 4 lines | test_experiments; test_mining |
| 5, 12 | the words and the table of claims of the tour | here |
| 6 | the headline claim in README | test_readme: verdicts as the report has them |
| 7 | a notebook that is only opened | test_lab |
| 8 | `help(sentnb)` | here; test_examples |
| 9, 10, 11, 15 | wrong settings, a mirror that is not there, misspelt names | test_experiments |
| 13 | links to notebooks in the report | here; test_site |
| 14 | an objective that returns a vector | test_training_refusals |
| 16 | a checkpoint that the wheel has not | here |
| 17 | a blank text, `-p` twice, marks of Markdown | test_experiments; here; test_site: the search |
| 18 | the size of the report in Markdown | here |
"""
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sentnb import experiments
from sentnb.encoders import PixelEncoder, TextEncoder
from sentnb.encoders.base import TextsTruncated
from sentnb.experiments.study import Study

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shipped(): return PixelEncoder.from_pretrained("sentnb-small")


def test_5_two_texts_that_differ_at_the_end(tmp_path, capsys):
    words = "the old man who lives beside the river walks every morning by the water with a small dog and "*2
    texts = [words + end for end in ("buys bread", "sings a song about the war")]
    (tmp_path/"long.txt").write_text("\n".join(texts))
    command = ["encode", str(tmp_path/"long.txt"), "-m", "sentnb-small", "-o", str(tmp_path/"long.npy")]
    assert experiments.main([*command, "--long",
                             "scroll"]) == 0 and "truncated" not in capsys.readouterr().err
    a, b = np.load(tmp_path/"long.npy")
    assert a @ b < 0.9999
    assert experiments.main(command) == 0
    message = capsys.readouterr().err
    assert "2 of 2 texts were truncated at" in message and "--long scroll" in message
    with pytest.warns(TextsTruncated): in_python = PixelEncoder.from_pretrained("sentnb-small").encode(texts)
    np.testing.assert_allclose(np.load(tmp_path/"long.npy"), in_python, atol=1e-6) # one default


def test_7_the_claims_come_before_the_tables():
    page = (ROOT/"figures"/"90_report"/"small"/"report.html").read_text(encoding="utf-8")
    body = page[page.index("<body"):]
    claims = [body.index(f">pixel-{k}<") for k in range(1, 15)]
    assert claims == sorted(claims) and claims[-1] < body.index('id="state"'), "each before the tables"


def test_8_a_table_says_whose_model_it_was():
    folder = ROOT/"figures"/"90_report"/"small"
    captions = {path.stem: re.findall(r"\\caption\{(.*)", path.read_text(encoding="utf-8"))
                for path in folder.glob("*.tex")}
    assert len(captions) == 40
    for name, texts in captions.items():
        assert all("arXiv:" in text and not re.match(r"Table \d", text) for text in texts), name
    details = json.loads((ROOT/"figures"/"01_robustness"/"small"/"run.json").read_text(encoding="utf-8"))
    for role, name in details["substitutes_for"].items():
        assert f"{role} ({name}" in captions["pixel_table1"][0]


@pytest.mark.parametrize("load, name, message", [
    (PixelEncoder, "text-small-mlm", "TextEncoder"), (TextEncoder, "sentnb-small", "PixelEncoder"),
    (PixelEncoder, None, "None"), (PixelEncoder, "{}", "config.json")])
def test_14_what_is_no_checkpoint_of_this_kind(load, name, message, tmp_path):
    if name == "{}":
        (tmp_path/"config.json").write_text("{}")
        (tmp_path/"model.safetensors").write_bytes(b"")
        name = tmp_path
    with pytest.raises((ValueError, TypeError, OSError)) as error: load.from_pretrained(name)
    text = str(error.value)
    assert message in text and "Missing key" not in text and len(text) < 600


@pytest.mark.parametrize("user, allowed", [("0", True), ("1000", False)])
def test_15_lab_as_root(user, allowed, tmp_path):
    (tmp_path/"id").write_text(f"#!/bin/sh\necho {user}\n")
    (tmp_path/"id").chmod(0o755)
    done = subprocess.run(["make", "-n", "-o", "setup", "lab"], cwd=ROOT, capture_output=True, text=True,
                          env=dict(PATH=f"{tmp_path}:/usr/bin:/bin"))
    assert done.returncode == 0 and ("--allow-root" in done.stdout) == allowed, done.stderr


def test_16_tables_are_shown_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    rule = "interval [-2.603, -1.547]: fails; interval [-1.2, 3.4]: inconclusive at this scale, at the end"
    study = Study("99_whole", dict(evaluation=dict(minutes=(None, 2, 2), rule=(rule, "b", "c"))), "demo")
    shown = study.table.to_html()
    assert rule in shown and "NaN" not in shown and "2.0" not in shown


def test_17_no_experiment_shows_a_demo_beside_the_paper():
    "Tables come from `results`, which shows ours alone at demo; 07 has a table of its own, which does too."
    for path in sorted((ROOT/"nbs").glob("[01]*.ipynb")):
        code = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]
                         if cell["cell_type"] == "code")
        lines = code.splitlines()
        for n, line in enumerate(lines):
            if "['printed']" not in line: continue
            nearby = lines[max(0, n - 9):n + 1]
            assert any("run.paper_points(" in other for other in nearby), f"{path.name}: {line}"


def test_18_the_search_of_the_first_screen(shipped):
    code = re.search(r"sentences = (\[.*?\])\n", (ROOT/"README.md").read_text(encoding="utf-8"), re.S)[1]
    sentences = [text.strip() for text in re.findall(r'"([^"]+)"', code)]
    found = (shipped.encode(sentences) @ shipped.encode(["Hunde im Schnee"])[0]).argsort()[::-1]
    assert sentences[found[0]] == "Zwei Hunde laufen durch den Schnee."


def test_20_the_tables_of_the_tour_lead_to_the_notebooks():
    cells = json.loads((ROOT/"nbs"/"index.ipynb").read_text(encoding="utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    rows = [line for line in text.split("\n") if line.startswith("|")]
    # no library notebook, such as api/2_encoders/11_features
    named = {name for row in rows for name in re.findall(r"(?<![/\d])\d\d_[a-z_]+", row)}
    assert len(named) > 10 and all(f"({name}.ipynb)" in "\n".join(rows) for name in named)


@pytest.mark.parametrize("arguments, message", [
    (["render", "x", "--scale", "0", "-o", "x.png"], "scale=0: expected an integer from 1 to 64"),
    (["run", "05", "-P", "lr=3"], "overrides={lr: 3}")])
def test_21_what_is_refused_says_what_to_type(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SENTNB_ROOT", str(ROOT))
    assert experiments.main(arguments) == 2
    assert message in capsys.readouterr().err


def test_21_make_help_has_every_target_that_is_typed():
    targets = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    for name in ("setup", "leapfrog", "lab", "report"): assert re.search(rf"^  {name} +", targets, re.M)


PAGES = sorted(path for pattern in ("*.ipynb", "howto/*.ipynb") for path in (ROOT/"nbs").glob(pattern))


def cells_of(path: Path, kind: str) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_second_1_sentnb_is_imported_before_torch(path):
    code = "\n".join(cells_of(path, "code"))
    heavy = re.findall(r"^\s*(?:import|from) (sentnb|torch|transformers|sklearn|scipy)\b", code, re.M)
    assert heavy and heavy[0] == "sentnb", "it lets idle threads sleep where torch is not loaded yet"


def test_second_1_kernels_of_lab_let_idle_threads_sleep(monkeypatch):
    from traitlets.config import Config
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    path, settings = ROOT/"jupyter_server_config.py", Config()
    exec(path.read_text(encoding="utf-8"), dict(get_config=lambda: settings, __file__=str(path)))
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE" and settings.ServerApp.root_dir == str(ROOT)


def test_second_5_and_12_the_tour_reads_the_run_that_it_shows():
    text, code = ("\n".join(cells_of(ROOT/"nbs"/"index.ipynb", kind)) for kind in ("markdown", "code"))
    assert "pixel-small-mae" not in text and '"statement"' in code


def test_second_8_help_has_a_line_for_each_package():
    import sentnb
    packages = {path.parent.name for path in (ROOT/"sentnb").glob("*/__init__.py")}
    assert packages == set(re.findall(r"^    (\w+) {2,}\S", sentnb.__doc__, re.M))


def test_second_13_the_report_says_how_its_notebooks_are_opened():
    code = "\n".join(cells_of(ROOT/"nbs"/"90_report.ipynb", "code"))
    assert re.search(r'<p class="checkout">.*make lab.*make site', code, re.S)


def test_second_17_emphasis_is_no_text():
    from sentnb.results.report import discussions
    assert discussions(["**pixel-9** *A* alone, 2 * 3 * 4"]) == {"pixel-9": "pixel-9 A alone, 2 * 3 * 4"}


def test_second_18_hosts_render_the_report():
    sizes = {path.name: path.stat().st_size for path in (ROOT/"figures"/"90_report"/"small").glob("*.md")}
    assert sizes["report.md"] < 300_000 and max(sizes.values()) < 512_000


def test_second_16_a_wheel_says_where_the_other_checkpoints_are(monkeypatch):
    from sentnb.encoders import checkpoints
    def missing(*_): raise FileNotFoundError("no checkout")
    monkeypatch.setattr(checkpoints, "project_root", missing)
    with pytest.raises(FileNotFoundError, match="the others are in its repository; clone it"):
        PixelEncoder.from_pretrained("sentnb-small-none")
"""The numbers in the text of an experiment are those that its run measured."""
import json
import re
from pathlib import Path

import pytest

from sentnb.results import prose_numbers

ROOT = Path(__file__).resolve().parent.parent
RUN = sorted(path for path in (ROOT/"nbs").glob("[0-9]*.ipynb")
             if (ROOT/"figures"/path.stem/"small"/"run.json").is_file())


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_every_number_is_quoted_as_it_was_measured(path):
    problems = prose_numbers.check_file(path)
    assert not problems, "\n".join(problems)


def test_every_number_of_the_summary_is_quoted():
    problems = prose_numbers.check_file(ROOT/"docs"/"summary.md")
    assert not problems, "\n".join(problems)


def test_looking_up_a_run_that_does_not_exist_creates_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    for name in ("03_alignmnt/english", "03_alignmnt/small-1a2b3c4d/english"):
        problem, = prose_numbers.check(f"1<!--{name}-->", None)
        assert "no run.json in" in problem and not list(tmp_path.iterdir())


def test_a_changed_number_is_found_and_filled(tmp_path):
    run = ROOT/"figures"/"03_alignment"/"small"
    if not run.is_dir(): pytest.skip("no run of 03_alignment at small")
    record = prose_numbers.load_run(run)
    name, (value, *_) = next(iter(record.quotes.items()))
    right = f"{value:.1f}<!--{name}-->"
    wrong = "9" + right
    path = tmp_path/"03_alignment.ipynb"
    path.write_text(json.dumps(dict(cells=[dict(cell_type="markdown", source=[f"It has {wrong} points."])])))
    assert prose_numbers.check_file(path, record) == [f"{wrong!r} should read {right!r}"]
    assert prose_numbers.main([str(path)]) == 0 and prose_numbers.check_file(path, record) == []


def read_markdown(path):
    "The Markdown cells of a notebook, or a Markdown file."
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb": return text
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
    return "\n".join("".join(cell["source"]) for cell in cells)


def quotes_by_experiment():
    "The quotes to which the texts refer, by experiment; a reference to a cell of a table is no quote."
    found = {}
    for path in (ROOT/"README.md", *(ROOT/"docs").glob("*.md"), *sorted((ROOT/"nbs").rglob("*.ipynb"))):
        for name in re.findall(r"<!--(.*?)-->", re.sub(r"`[^`\n]*`", "", read_markdown(path)), re.S):
            experiment, _, quote = name.strip().rpartition("/")
            if "(" not in name and not name.startswith("typed"):
                found.setdefault(experiment.partition("/")[0] or path.stem, set()).add(quote)
    return found


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_each_quote_of_a_text_is_computed_by_its_notebook(path):
    "A quote that the notebook no longer computes would vanish with the next run."
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    quotes = quotes_by_experiment().get(path.stem, set())
    if path.stem == "23_beside": quotes = {name for name in quotes if "-minus-" in name or "-over-" in name}
    assert [name for name in quotes if f'"{name}"' not in code] == []


@pytest.mark.parametrize("text, left", [
    ("Table 4 and Figure 2b say so, in 2024, at 95 %; `x = 3`, $n = 5$, STS12, pixel-9 and nDCG@10 do not "
     "count.", []),
    ("See [the 5 curves](a_1.png) and ![7](b_2.png).", ["5"]),
    ("1. First\n2. Second, 3.5 points", ["3.5"]),
    ("-0.7 to +3.3 and 1,234 of 2", ["-0.7", "+3.3", "1,234", "2"]),
    ("5 of them<!--typed here: the rule-->\n\n6 of those", ["6"]),
    ("| a | 4 |\n|---|---|\n| b | 5 |", ["4", "5"]),
])
def test_numbers_without_a_source(text, left):
    assert [problem.partition(" has no source")[0] for problem in prose_numbers.check(text, None)] == left


@pytest.mark.parametrize("path", [ROOT/"README.md", *sorted((ROOT/"nbs").rglob("*.ipynb"))],
                         ids=lambda path: path.name)
def test_no_bar_in_a_comment_parts_the_cell_of_a_table(path):
    rows = [line for line in read_markdown(path).splitlines() if line.startswith("|")]
    assert not [row for row in rows if re.search(r"<!--(?:(?!-->).)*?(?<!\\)\|.*?-->", row)]

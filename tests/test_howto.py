"""Every how-to page runs from top to bottom, offline, shows what it shows in git, and can be found."""
import json
import re

import pytest
from test_library_notebooks import ROOT, execute, shown

PAGES = sorted((ROOT/"nbs"/"howto").glob("*.ipynb"))


def text_of(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_runs_and_shows_what_it_showed(path, tmp_path, warm_kernels):
    error = execute(path, tmp_path/"copy.ipynb")
    assert not error, error
    assert shown(tmp_path/"copy.ipynb") == shown(path), "its outputs are of another run: make notebooks"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_reads_like_a_page(path):
    text = text_of(path)
    assert re.match(r"# .+\n\n> .+", text), "a title, and one sentence"
    assert re.search(r"^## For (your|another)", text, re.M), "what to change for one's own data"
    assert "**Limitation:**" in text
    links = [link for link in re.findall(r"\]\(([^)\s#]+)", text) if "://" not in link]
    assert links and [link for link in links if not (path.parent/link).exists()] == []


def test_the_tour_leads_to_each():
    text = text_of(ROOT/"nbs"/"index.ipynb")
    assert [path.name for path in PAGES if f"(howto/{path.name})" not in text] == []

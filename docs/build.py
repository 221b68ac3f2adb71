"""The site: `make site`, or `python docs/build.py [FOLDER]`.

Lays the pages into a temporary folder as the checkout has them (README, the tour, the how-tos, the
experiments with the copies that ran, the library, the cards), puts a table under each cell that defines
something with explained parameters, lets Sphinx make html of it, and then moves the whole in the place of the
old one."""
import gc
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote, unquote

from sphinx.cmd.build import main as sphinx

from docstrings import Source, definitions, parameters, table

from sentnb.core import fingerprint
from sentnb.experiments import read_introduction

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
NAMED = re.compile(r"(?<!\[)`(nbs/[\w./-]+\.ipynb)`")
COMMENT = re.compile(r"<!--.*?-->", re.S)
TOC = "\n```{{toctree}}\n:hidden:\n:caption: {caption}\n{entries}\n```\n"
FRONT_DOOR = re.compile("0+_")
REPORT = Path("figures/90_report/small/report.html")


def by_number(path: Path) -> list:
    "10_ comes after 9_; a front door, number 0, first."
    return [(int(part.partition("_")[0]) if part[0].isdigit() else -1, part) for part in path.parts]


def notebooks(pattern: str) -> list[Path]:
    paths = [path.relative_to(ROOT) for path in ROOT.glob(pattern) if ".ipynb_checkpoints" not in path.parts]
    return sorted(paths, key=by_number)


TOUR = Path("nbs/index.ipynb")
HOWTOS, EXPERIMENTS = notebooks("nbs/howto/*.ipynb"), notebooks("nbs/[0-9]*.ipynb")
LIBRARY = notebooks("nbs/api/**/*.ipynb")
# the run at small, then those with other settings that the project keeps beside it
COPIES = {path: notebooks(f"figures/{path.stem}/small*/{path.name}") for path in EXPERIMENTS}
RAN = [copy for copies in COPIES.values() for copy in copies]
CARDS = notebooks("data/checkpoints/*/README.md")
DOCS = ("summary.md", "profiles.md", "models.md", "library.md", "scale.md", "reliability.md")
REFERENCE = [*(Path("docs")/name for name in DOCS), Path("data/paper/rules.md")]
PROJECT = [Path("CONTRIBUTING.md"), Path("nbs/template.ipynb"), Path("SECURITY.md"), Path("CHANGELOG.md")]
PAGES = {Path("README.md"): Path("index.md"), **{path: path for path in
         [TOUR, *HOWTOS, *EXPERIMENTS, *LIBRARY, *RAN, *CARDS, *REFERENCE, *PROJECT]}}


class Links:
    "Where the links of one page lead on the site; files that are no pages come along as they are."
    def __init__(self, page: Path, base: Path, files: set[Path], dead_are_text: bool=False):
        self.folder, self.base, self.files = PAGES[page].parent, base, files
        self.dead_are_text = dead_are_text

    def place(self, match: re.Match) -> str:
        picture, text, target = match.groups()
        name, hash, anchor = target.partition("#")
        if "://" in target or not name: return match[0]
        path = Path(os.path.normpath(self.base/unquote(name)))
        if path.name == "report.md": path = REPORT
        if not (ROOT/path).exists(): return text if self.dead_are_text else match[0]
        if (ROOT/path).is_dir(): return text
        there = quote(os.path.relpath(PAGES.get(path, path), self.folder))
        if path in PAGES: return f"[{text}]({there}{hash}{anchor})"
        self.files.add(path)
        return f"![{text}]({there})" if picture else f'<a href="{there}{hash}{anchor}">{text}</a>'

    def __call__(self, text: str) -> str:
        "Fenced code stays as it is; a page that is named becomes a link."
        parts = re.split(r"(^```.*?^```$)", COMMENT.sub("", text), flags=re.M | re.S)
        placed = (part if part.startswith("```") else LINK.sub(self.place, part) for part in parts)
        return "".join(part if part.startswith("```") else NAMED.sub(self.named, part) for part in placed)

    def named(self, match: re.Match) -> str:
        path = Path(match[1])
        return f"[`{path}`]({os.path.relpath(PAGES[path], self.folder)})" if path in PAGES else match[0]


def title(path: Path) -> str:
    "In the navigation; of most pages their own."
    if path == TOUR: return "The tour"
    if path in RAN: return "As it ran" if path.parent.name == "small" else f"As it ran: {path.parent.name}"
    return f"{path.stem[:2]} {read_introduction(ROOT/path).title}" if path in EXPERIMENTS else ""


def toctree(paths: list[Path], folder: Path=Path(), caption: str="") -> str:
    entries = [(title(path), os.path.relpath(PAGES[path], folder)) for path in paths]
    entries = [f"{name} <{there}>" if name else there for name, there in entries]
    text = TOC.format(caption=caption, entries="\n".join(entries))
    return text if caption else text.replace(":caption: \n", "")


def children(path: Path) -> list[Path]:
    "The pages below one: of a front door its modules, of an experiment the copies that ran."
    if path in COPIES: return COPIES[path]
    if not FRONT_DOOR.match(path.name) or path.parent == Path("nbs/api"): return []
    folder = path.parent
    below = [other for other in LIBRARY if other.parent == folder and other != path]
    doors = [other for other in LIBRARY if other.parent.parent == folder and FRONT_DOOR.match(other.name)]
    return sorted(below + doors, key=by_number)


def index(links: Links) -> str:
    top = [path for path in LIBRARY if not any(path in children(other) for other in LIBRARY)]
    parts = {"Start": [TOUR], "How to": HOWTOS, "Experiments": EXPERIMENTS, "Reference": REFERENCE, "Library": top,
             "Models": CARDS, "Project": PROJECT}
    trees = [toctree(paths, caption=caption) for caption, paths in parts.items()]
    return links((ROOT/"README.md").read_text(encoding="utf-8")) + "".join(trees)


def tables(source: str) -> str:
    "A table of parameters for each function, method and class of a cell that has comments in its signature."
    cell = Source(source)
    found = [(name, table(parameters(cell, node))) for name, node in definitions(cell.tree.body)]
    text = "\n\n".join(f"**`{name}`**\n\n{rows}" for name, rows in found if rows)
    return f":::{{container}} parameters\n{text}\n:::" if text else ""


def cells(notebook: dict, links: Links) -> list[dict]:
    shown = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] != "code":
            shown.append({**cell, "metadata": {}, "source": links(source)})
            continue
        code = re.sub(r"^#\|.*\n?", "", source, flags=re.M).strip()
        if code: shown.append({**cell, "metadata": {}, "source": code})
        if re.match(r"#\| *export", source) and (text := tables(source)): shown.append(prose(text))
    return shown


def prose(text: str) -> dict:
    return dict(cell_type="markdown", id=fingerprint(text), metadata={}, source=text)


def page(path: Path, files: set[Path]) -> str:
    "The source of a page as Sphinx is to read it."
    ran = path in RAN
    links = Links(path, Path("nbs") if ran else path.parent, files, dead_are_text=ran)
    if path == Path("README.md"): return index(links)
    text = (ROOT/path).read_text(encoding="utf-8")
    if path.suffix == ".md": return links(text)
    notebook = json.loads(text)
    notebook["cells"] = cells(notebook, links)
    if ran: as_it_ran(notebook["cells"], path)
    if below := children(path): notebook["cells"].append(prose(toctree(below, path.parent)))
    return json.dumps(notebook)


def as_it_ran(cells: list[dict], path: Path) -> None:
    "Says at the top of the page of an executed copy what it is."
    home = os.path.relpath(f"nbs/{path.name}", path.parent)
    run = ("The run at `small` whose numbers the project has" if path.parent.name == "small" else
           f"A run at `small` with settings of its own (`{path.parent}/run.json`)")
    notice = (f"*{run}, with all that it printed; its text is of that day. "
              f"What came of it: [{path.stem}]({home}).*")
    heading, _, rest = cells[0]["source"].partition("\n")
    cells[0]["source"] = f"{heading.replace('# ', '# As it ran: ', 1)}\n\n{notice}\n{rest}"


def report(files: set[Path]) -> str:
    "The report without its notice about files; where it leads to a notebook the link goes to its page."
    def place(match: re.Match) -> str:
        name, hash, anchor = match[1].partition("#")
        path = Path(os.path.normpath(REPORT.parent/unquote(name)))
        if "://" in name or not name or not (ROOT/path).is_file(): return match[0]
        if path not in PAGES: files.add(path)
        there = PAGES[path].with_suffix(".html") if path in PAGES else path
        return f'href="{quote(os.path.relpath(there, REPORT.parent))}{hash}{anchor}"'
    text = (ROOT/REPORT).read_text(encoding="utf-8")
    text = re.sub(r'<p class="checkout">.*?</p>\n', "", text, flags=re.S)
    return re.sub(r'href="([^"]*)"', place, text)


def build(target: Path) -> int:
    "0, or what Sphinx says of what is wrong."
    gc.disable() # a third of the time: all is wanted to the end
    files = set()
    with tempfile.TemporaryDirectory() as temporary:
        source, out = Path(temporary, "source"), Path(temporary, "site")
        for path, place in PAGES.items():
            (source/place).parent.mkdir(parents=True, exist_ok=True)
            (source/place).write_text(page(path, files), encoding="utf-8")
        report_page = report(files)
        for path in files - {REPORT}:
            for folder in (source, out):
                (folder/path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT/path, folder/path)
        wrong = sphinx(["-q", "-W", "--keep-going", "-j", "2", "-c", str(ROOT/"docs"),
                        "-d", str(Path(temporary, "doctrees")), str(source), str(out)])
        if wrong: return wrong
        (out/REPORT).write_text(report_page, encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(out, target)
    print("the site:", target/"index.html")
    return 0


if __name__ == "__main__": sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT/"site").resolve()))

"""The site as `make site` makes it: all in the navigation, no dead link, nothing from other hosts."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from test_lab import Page, free_port, notebooks

ROOT = Path(__file__).resolve().parents[2]
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src",
          "object": "data", "embed": "src"}


class Html(HTMLParser):
    "What a page leads to, what it loads, the names in it, and what its sidebar leads to."
    def __init__(self, text: str):
        super().__init__()
        self.links, self.loaded, self.names, self.sidebar, self.inside = [], [], set(), [], 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        known = dict(attributes)
        self.names |= {known[key] for key in ("id", "name") if known.get(key)}
        if "sidebar-tree" in (known.get("class") or ""): self.inside = 1
        elif self.inside and tag == "div": self.inside += 1
        if tag == "a" and known.get("href"):
            self.links.append(known["href"])
            if self.inside: self.sidebar.append(known["href"])
        if known.get(LOADED.get(tag)): self.loaded.append(known[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        if self.inside and tag == "div": self.inside -= 1


def is_elsewhere(address: str) -> bool: return bool(re.match(r"(?:[a-z]+:)?//|(?:mailto|data):", address))


def dead(folder: Path) -> list[str]:
    "Links, pictures and anchors of all pages that are not there, and what is loaded from other hosts."
    pages = {path: Html(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    wrong = []
    for path, html in pages.items():
        foreign = [address for address in html.loaded if re.match(r"(?:https?:)?//", address)]
        wrong += [f"{path.relative_to(folder)} loads {address}" for address in foreign]
        for address in {*html.links, *html.loaded}:
            if is_elsewhere(address): continue
            name, _, anchor = address.partition("#")
            target = Path(os.path.normpath(path.parent/unquote(name.partition("?")[0]))) if name else path
            known = pages[target].names if target in pages else set()
            if not target.is_file() or (anchor and target in pages and unquote(anchor) not in known):
                wrong.append(f"{path.relative_to(folder)} -> {address}")
    for path in folder.rglob("*.css"):
        loads = re.findall(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')]+)""", path.read_text("utf-8"))
        wrong += [f"{path.relative_to(folder)} loads {address}" for address in loads]
    return wrong


def test_what_is_dead_is_found(tmp_path):
    (tmp_path/"a.html").write_text(
        '<a href="b.html#here">1</a> <a href="b.html#gone">2</a> <a href="c.html">3</a> <img src="d.png">'
        '<script src="https://e.org/f.js"></script> <a href="https://e.org">4</a> <a href="#top">5</a>')
    (tmp_path/"b.html").write_text('<p id="here"><link rel="stylesheet" href="//e.org/g.css">')
    (tmp_path/"h.css").write_text("@import 'https://e.org/i.css'; a {background: url(j.png)}")
    assert sorted(dead(tmp_path)) == [
        "a.html -> #top", "a.html -> b.html#gone", "a.html -> c.html", "a.html -> d.png",
        "a.html loads https://e.org/f.js", "b.html loads //e.org/g.css", "h.css loads https://e.org/i.css"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    pytest.importorskip("sphinx", reason="the site: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")/"site"
    make_command = ["make", "-n", "--no-print-directory", "-o", "setup", "site",   # also beneath `make test`
                    f"BIN={Path(sys.executable).parent}"]
    command = subprocess.run(make_command, cwd=ROOT, capture_output=True, text=True,
                             check=True).stdout.split()
    done = subprocess.run([*command, str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "WARNING" not in done.stderr and str(folder/"index.html") in done.stdout, done.stderr
    return folder


def read(path: Path) -> str: return path.read_text(encoding="utf-8")


def test_every_link_leads_somewhere_and_nothing_comes_from_elsewhere(site):
    assert len(list(site.rglob("*.html"))) > 150
    assert dead(site) == []


def test_every_notebook_is_in_the_navigation(site):
    shown = {unquote(address.partition("#")[0]) for address in Html(read(site/"index.html")).sidebar}
    names = [path.relative_to(ROOT).with_suffix(".html") for path in notebooks(ROOT/"nbs")]
    assert len(names) > 150 and [str(name) for name in names if str(name) not in shown] == []
    copies = [path.relative_to(ROOT).with_suffix(".html")
              for path in ROOT.glob("figures/*/small*/[0-9]*.ipynb")]
    assert [str(name) for name in copies if str(name) not in shown] == []


def test_an_executed_copy_says_which_run_it_is(monkeypatch):
    pytest.importorskip("sphinx", reason="the site: pip install -e '.[docs]'")
    monkeypatch.syspath_prepend(str(ROOT/"docs"))
    build = SimpleNamespace(**run_path(str(ROOT/"docs"/"build.py")))
    for folder, words in {"small": "whose numbers the project has",
                          "small-1a2b3c4d": "with settings of its own"}.items():
        cells = [dict(source="# Title\nText.")]
        build.as_it_ran(cells, Path("figures", "05_leapfrog", folder, "05_leapfrog.ipynb"))
        assert cells[0]["source"].startswith("# As it ran: Title") and words in cells[0]["source"]


def test_experiments_show_their_figures_and_lead_to_the_report(site):
    found = [path for path in ROOT.glob("nbs/[0-9]*.ipynb")
             if list((ROOT/"figures"/path.stem/"small").glob("*.png"))]
    assert len(found) > 10
    for path in found:
        pictures = [address for address in Html(read(site/"nbs"/f"{path.stem}.html")).loaded
                    if "_images" in address]
        assert pictures, path.stem
    for name in ("index.html", "nbs/90_report.html"):
        assert any("90_report/small/report.html" in address for address in Html(read(site/name)).links), name


def test_each_function_has_its_table(site):
    docs = SimpleNamespace(**run_path(str(ROOT/"docs"/"docstrings.py")))
    missing = []
    for path in notebooks(ROOT/"nbs"/"api"):
        page = read(site/path.relative_to(ROOT).with_suffix(".html"))
        shown = set(re.findall(r'<strong><code[^>]*><span class="pre">([^<]+)</span></code></strong>', page))
        module = re.search(r"default_exp (\S+?)(?:\\n)?\"", path.read_text(encoding="utf-8"))[1]
        source = docs.Source((ROOT/"sentnb"/f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
        missing += [f"{module}: {name}" for name, node in docs.definitions(source.tree.body)
                    if docs.parameters(source, node) and name not in shown]
    assert missing == []
    table = read(site/"nbs"/"api"/"1_renderer"/"03_config.html")
    assert "of a strip, including the black end patch" in table


def test_it_can_be_searched(site):
    assert 'role="search"' in read(site/"index.html")
    index = read(site/"searchindex.js")
    assert all(word in index for word in ("anisotropi", "leapfrog", "momentum")), "stems of the words"
    scorer = read(site/"_static"/"language_data.js")
    assert 'if (page.startsWith("figures/")) return score - 20' in scorer, "copies come last"


def test_its_report_has_no_word_on_files_of_the_checkout(site):
    name = "figures/90_report/small/report.html"
    in_checkout, in_site = read(ROOT/name), read(site/name)
    assert 'class="checkout"' not in in_site and ".ipynb" not in " ".join(Html(in_site).links)
    assert any(address.endswith(".ipynb") for address in Html(in_checkout).links)


def test_formulas_are_drawn_by_the_browser(site):
    page = read(site/"nbs"/"api"/"1_losses"/"02_contrastive.html")
    assert "<math" in page and "\\frac" not in re.sub(r"<pre>.*?</pre>", "", page, flags=re.S)


def test_no_page_pans_on_a_phone(site, tmp_path):
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program: pytest.skip("the look into a browser: there is no chromium here")
    port = free_port()
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", f"--remote-debugging-port={port}",
               f"--user-data-dir={tmp_path}", "about:blank"]
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = subprocess.Popen(command, start_new_session=True, **quiet)
    names = ["index.html", "nbs/index.html", "nbs/05_leapfrog.html", "nbs/08_micse_attention.html",
             "figures/05_leapfrog/small/05_leapfrog.html", "nbs/api/0_core/00_core.html",
             "nbs/api/1_losses/02_contrastive.html", "nbs/howto/train_on_your_pairs.html",
             "data/checkpoints/sentnb-small/README.html", "figures/90_report/small/report.html"]
    try:
        page = Page(port)
        phone = dict(width=390, height=844, deviceScaleFactor=1, mobile=True)
        page.call("Emulation.setDeviceMetricsOverride", **phone)
        wide = {}
        for name in names:
            page.call("Page.navigate", url=(site/name).as_uri())
            page.wait(f"document.readyState === 'complete' && location.href.endsWith({json.dumps(name)})")
            wide[name] = page.see("document.documentElement.scrollWidth")
        assert {name: width for name, width in wide.items() if width > 390} == {}
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)
"""The report: which run shows what, states, LaTeX, and the pages of runs whose every number is known."""
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from experiment_runs import sentnb_here
from hypothesis import given, strategies as st

from sentnb import results
from sentnb.core import fingerprint
from sentnb.results import html, latex, report, verdicts
from sentnb.results.compare import describe_model, with_models

ROOT = Path(__file__).resolve().parent.parent
ROWS = [tuple(row) for row in results.catalogue()[["paper", "id"]].to_numpy()]
PNG = b"\x89PNG\r\n\x1a\n and the rest"


# The catalogue

def test_every_row_of_the_papers_that_are_here_has_its_place():
    "What notebooks say they make and functions say they are is in the catalogue; no row is left over."
    rows_made = [row for rows in report.rows_by_notebook().values() for row in rows]
    assert len(rows_made) == len(set(rows_made)), "each row has one notebook"
    assert set(rows_made) | set(report.formulas()) <= set(ROWS)
    papers_here = {paper for paper, _ in rows_made}
    assert {"pixel", "micse"} <= papers_here
    left = [row for row in ROWS if row[0] in papers_here and row not in rows_made
            and row not in report.formulas()]
    assert left == [("cmlm", "Text only (App. C and E)")], "batches and next sentences, which are not run"
    assert all(id.startswith(("Equation", "Algorithm")) for _, id in report.formulas())
    assert sorted(filter(None, (report.table_name(*row) for row in ROWS))) == results.tables()


@pytest.mark.parametrize("text, ids", [
    ("VisualCSE, Tables C.1 to C.3", ["Table C.1", "Table C.2", "Table C.3"]),
    ("miCSE, Figures 4a to 4c", ["Figure 4a", "Figure 4b", "Figure 4c"]),
    ("miCSE, Figures 9 to 11 and 13", ["Figure 9", "Figure 10", "Figure 11", "Figure 13"])])
def test_a_range_is_each_of_its_members(text, ids):
    assert [id for _, id in report.find_citations(text)] == ids


@pytest.mark.parametrize("ends", ["3 to C.2", "4a to 5", "8 to 5"])
def test_a_range_whose_ends_do_not_belong_together(ends):
    with pytest.raises(ValueError, match=f"'{ends}': expected a range"):
        report.find_citations(f"miCSE, Tables {ends}")


def test_a_figure_belongs_to_its_paper():
    for notebook, expected in (("05_leapfrog", True), ("07_micse_lowshot", False), ("91_speed", False)):
        assert bool(report.find_shown("pixel", "Figure 3", notebook, [], ["figure3"])) == expected
    assert report.find_shown("pixel", "Figure 3", "91_speed", [], ["pixel_figure3"]) == ["pixel_figure3"]
    assert report.find_shown("pixel", "Figure 3", "05_leapfrog", [], ["figure33", "figure", "figure1"]) == []
    assert report.find_shown("micse", "Figure 4a", "07_micse_lowshot", [], ["figure4b"]) == []
    assert report.find_shown("pixel", "Equation 2", "05_leapfrog", ["pixel_table2"], ["figure2"]) == []


@pytest.mark.parametrize("id, shown, counted, formulas, expected", [
    ("Table 5", dict(small=False), dict(small=(0, 240)), {}, ("not run", "not run")),
    ("Table 5", dict(small=True), dict(small=(180, 240)), {}, ("run", "run at small, 180 of 240 cells")),
    ("Table 5", dict(small=True, paper=True), dict(small=(0, 240), paper=(240, 240)), {},
     ("run", "run at small, 0 of 240 cells; run at paper")),
    ("Figure 3", dict(small=True), {}, {}, ("run", "run at small")),
    ("Equation 2", dict(small=False), {}, {("micse", "Equation 2"): "losses.contrastive.info_nce"},
     ("not in the library", "not in the library")),
    ("Equation 2", dict(small=False), {}, {("pixel", "Equation 2"): "losses.contrastive.info_nce"},
     ("in the library", "in the library: losses.contrastive.info_nce")),
])
def test_state(id, shown, counted, formulas, expected):
    assert report.describe_state("pixel", id, shown, counted, formulas) == expected


# LaTeX

@given(st.text())
def test_latex_escapes_what_latex_reads(text):
    escaped = latex.latex_escape(text)
    assert "\n" not in escaped
    bare = re.sub(r"\\[&%$#_{}]|\\[a-zA-Z]+\{\}|\$\\[a-zA-Z]+\$|\{[][*]\}", "", escaped)
    assert not set(bare) & set("&%$#_{}\\^~[]*"), escaped


def columns(line: str) -> int: return len(re.findall(r"(?<!\\)&", line)) + 1


def check_latex(text: str, table: str) -> list[str]: # lines of its rows, of all its floats
    bare = re.sub(r"\\[{}%$&_#]", "", text)
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0 and all(line.count("$") % 2 == 0 for line in bare.splitlines())
    floats = text.split(r"\begin{table}")[1:]
    assert text.count(r"\begin") == text.count(r"\end") == 2*len(floats)
    assert text.count(r"\label{") == 1 and text.count("addtocounter") == len(floats) - 1
    columns_of, rows = {}, []
    for part in floats:
        assert all(rule in part for rule in (r"\caption{", r"\toprule", r"\midrule", r"\bottomrule"))
        spec = re.search(r"\\begin\{tabular\}\{(.*)\}\n", part)[1]
        wanted = len(re.sub(r"p\{[^}]*\}", "p", spec))
        lines = [line for line in part.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert {columns(line) for line in lines} == {wanted}
        assert not [line for line in lines
                    if line.lstrip().startswith(("[", "*"))], "LaTeX would read it as an argument"
        assert len(lines) <= 60, "more than a page holds"
        columns_of[lines[0]] = wanted - 2
        rows += lines[1:]
    assert sum(columns_of.values()) == results.published(table)["column"].nunique(), "each column once"
    return rows


@pytest.mark.parametrize("table", results.tables())
def test_latex_of_each_table(table):
    lines = check_latex(latex.to_latex(results.compare(None, table), table, "A caption."), table)
    theirs = results.published(table)
    names = theirs[["row_group", "row"]].drop_duplicates()
    assert sum("& paper &" in line for line in lines) % len(names) == 0
    cells = {cell.strip() for line in lines for cell in re.split(r"(?<!\\)&|\\\\$", line)}
    printed = {latex.printed_latex(text) for text in theirs["printed"] if text}
    assert printed <= cells, "every printed cell, as it is printed"


def test_a_minus_sign_is_one_on_both_sides(tmp_path):
    run = results.Run("01_robustness", "small", {}, folder=tmp_path)
    run.add("pixel_table1", "Charcter-level | Insertion", "BERT | Semantics", -15.08, -18.05, -12.38)
    run.add("pixel_table1", "Charcter-level | Insertion", "BERT | Rep. Shift", 0.10416)
    text = latex.to_latex(results.compare(run, "pixel_table1"), "pixel_table1", "A caption.")
    assert "$-10.8$" in text and "$-15.1$" in text and "$[-18.1, -12.4]$" in text, "the paper's decimals"
    assert "$0.104$" in text and "$0.049$" in text and not re.search(r"& -\d", text)


# Verdicts as data

COMMITTED = [(path.parent, name) for path in sorted((ROOT/"figures").glob("*/small*/claims.json"))
             for name in json.loads(path.read_text(encoding="utf-8"))["claims"]]


@pytest.mark.parametrize("folder, claim", COMMITTED,
                         ids=lambda x: x if isinstance(x, str) else f"{x.parent.name}-{x.name}")
def test_claims_csv_is_rendered_from_the_stored_parts(folder, claim):
    record = results.load_run(folder)
    verdict = record.verdicts[claim]
    line = record.claims.set_index("claim").loc[claim]
    evidence = ". ".join(filter(None, (verdict.evidence, verdict.comment)))
    assert (verdict.verdict, verdict.rule, evidence) == (line["verdict"], line["rule"], line["evidence"])
    decides = verdicts.deciding_part(verdict)
    if verdict.verdict == "not run":
        assert decides is None and verdict.rule, "a reason, and nothing that would decide"
        return
    if verdict.verdict == "cannot be tested here":
        assert decides is None and verdict.premise, "what is missing, and nothing that would decide"
        return
    assert decides.verdict == verdict.verdict and html.interval_svg(decides).count("<circle")
    for part in verdict.parts:
        if isinstance(part, results.Part) and part.test == "interval" and part.low is not None:
            assert part.verdict == results.settle((part.low, part.high), part.direction, part.margin).verdict


def test_the_model_of_each_number_is_declared_by_the_run():
    for path in sorted((ROOT/"figures").glob("*/small/run.json")):
        record = results.load_run(path.parent)
        frame = with_models(record)
        ours = frame[frame["table"].str.match("(pixel|micse)_table")]
        assert (ours["model"] != "").all(), f"{path}: {ours[ours['model'] == ''].iloc[:1]}"
    card = (ROOT/"data"/"checkpoints"/"text-small-mlm"/"README.md").read_text(encoding="utf-8")
    million = round(int(re.search(r"([\d,]+) parameters", card)[1].replace(",", ""))/1e6)
    assert describe_model("text-small-mlm") == f"text-small-mlm, {million} M"


# The pages

class Page(HTMLParser):
    "Checks that tags are balanced; collects text, pictures, links, and tables that stand in no box."
    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.sources, self.links, self.ids, self.loose = [], [], [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "table" and ("div", "wide") not in self.open: self.loose.append(self.getpos())
        if tag not in ("meta", "img", "br", "link"): self.open.append((tag, attributes.get("class")))
        assert tag not in ("script", "link", "iframe")
        self.sources += [attributes["src"]] if "src" in attributes else []
        self.links += [attributes["href"]] if "href" in attributes else []
        self.ids += [attributes["id"]] if "id" in attributes else []

    def handle_endtag(self, tag): assert self.open.pop()[0] == tag
    def handle_data(self, data): self.text.append(data)


def check_page(path: Path) -> Page:
    "What holds of every report, and is seen without a browser."
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert len(set(page.ids)) == len(page.ids), "a place is one place"
    for link in page.links:
        if link.startswith("#"): assert link[1:] in page.ids, link
        else: assert (path.parent/link).resolve().is_file(), link
    assert page.loose == [], "a wide table scrolls in its own box"
    for rule in (r"img \{[^}]*max-width: 100%", r"\.wide \{[^}]*overflow-x: auto"):
        assert re.search(rule, text), rule
    assert max(len(word) for word in re.findall(r"\S+", " ".join(page.text))) < 200
    for claim in results.claims(): assert f"#claim-{claim.id}" in page.links, "the first page leads to it"
    for paper in results.PAPERS: assert f"#{paper}" in page.links
    for paper, id in ROWS:
        if id.startswith("Table "): assert "#" + html.anchor(paper, id) in page.links, id
    return page


def fake(figures: Path, notebook: str, profile: str, numbers=(), claims=(), pictures=(), substitutes_for={},
         **notes):
    run = results.Run(notebook, profile, {}, folder=figures/notebook/profile, substitutes_for=substitutes_for)
    for cell in numbers: run.add(*cell)
    for id, verdict in claims: run.claim(id, verdict)
    for key, value in notes.items(): run.note(key, value)
    for name in pictures:
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder/f"{name}.png").write_bytes(PNG)
    run.save()


def make(figures: Path, profile: str) -> subprocess.CompletedProcess:
    return sentnb_here("run", "90_report", "-p", profile, "--quiet", SENTNB_FIGURES=str(figures))


@pytest.fixture(scope="module")
def figures(tmp_path_factory, warm_kernels) -> Path:
    figures = tmp_path_factory.mktemp("figures")
    table5 = ("pixel_table5", "P_10 + A | Iter.1")
    fake(figures, "05_leapfrog", "small",
         [(*table5, "en", 61.25, 60.125, 62.5, 3), (*table5, "de", 44.444),
          ("gains", "<script>alert(1)</script>", "a|b", 7.5)],
         [("pixel-10", results.settle((1, 2), quantity="a gain")),
          ("nonling-11", results.settle((1, 2), quantity="images"))], ["figure3", "curve"],
         dict(start="pixel-small-mae"))
    both = [results.settle((1, 2), quantity="this"), results.settle((-2, -1), quantity="that")]
    fake(figures, "02_vanilla_geometry", "small", [("pixel_table2", "BERT", "en", 0.603)],
         [("pixel-3", results.settle_all(both))], [], dict(BERT="text-small-mlm"))
    fake(figures, "05_leapfrog", "paper", [(*table5, "en", 79.125)],
         [("pixel-10", results.settle((-2, -1), quantity="a gain"))])
    fake(figures, "01_robustness", "small", [], [], ["typo"], catalogue={"pixel Figure 1": "typo"})
    fake(figures, "10_audiocse", "small", [], [("nonling-11", results.settle((-1, 2), quantity="audio"))])
    fake(figures, "99_other", "small", [("own", "r", "c", 3.0)], [], ["figure2"])
    fake(figures, "05_leapfrog", "demo", [(*table5, "fr", 12.3456)], [("pixel-11", results.settle((1, 2)))],
         ["figure3"])
    fake(figures, "06_retrieval", "demo", [("pixel_table8", "WikiSpan", "nDCG@1", 98.7654)])
    for profile in ("paper", "demo"):
        done = make(figures, profile)
        assert done.returncode == 0, done.stderr
    return figures


def read_table(figures: Path, profile: str, table: str) -> dict:
    numbers = results.load_run(figures/"90_report"/profile).numbers
    part = numbers[numbers["table"] == table]
    return {(row, column): value for row, column, value in part[["row", "column", "value"]].to_numpy()}


def test_counts(figures):
    for profile in ("paper", "demo"):
        rows, claims = read_table(figures, profile, "report_rows"), read_table(figures, profile,
                                                                               "report_claims")
        assert sum(rows.values()) == 101 and sum(claims.values()) == 69
        # Tables 2 and 5, Figure 3, and Figure 1 by its own name; a stranger's figure2 and the demo's Table 8
        # are none
        assert rows["pixel", "run"] == 4
        assert sum(rows[paper, "run"] for paper in results.PAPERS) == 4
        assert claims["nonling", "inconclusive at this scale"] == 1, "one part holds, the other is open"
    assert read_table(figures, "demo", "report_claims")["pixel", "holds"] == 1
    claims = read_table(figures, "paper", "report_claims")
    assert claims["pixel", "fails"] == 2 and claims["pixel", "holds"] == 0, "the larger scale counts"
    assert read_table(figures, "paper", "report_cells") == {("pixel_table2", "run at small"): 1,
                                                            ("pixel_table2", "printed, beside small"): 20,
                                                            ("pixel_table5", "run at small"): 2,
                                                            ("pixel_table5", "printed, beside small"): 240,
                                                            ("pixel_table5", "run at paper"): 1,
                                                            ("pixel_table5", "printed, beside paper"): 240}


@pytest.mark.parametrize("profile", ["demo", "paper"])
def test_html(figures, profile):
    path = figures/"90_report"/profile/"report.html"
    page, text = check_page(path), path.read_text(encoding="utf-8")
    prose = " ".join(page.text)
    assert page.sources and all(source.startswith("data:image/png;base64,")
                                for source in page.sources), "the pictures are inside"
    assert "url(" not in text and "@import" not in text
    assert len(page.sources) == 1 + 2 + 1 + 1, "its own, the two of 05, typo, the stranger's"
    for claim in results.claims(): assert claim.text in prose and claim.id in prose
    for row in results.catalogue().to_dict("records"):
        assert row["id"] in prose and row["what_it_shows"] in prose
    for number in ("79.46", "61.25 [60.12, 62.50]", "[60.12, 62.50]", "-18.21", "44.44",
                   "run at small, 2 of 240 cells", "BERT (text-small-mlm, 3 M)", "they support it: -7.8",
                   "P_10 + A | Iter.1 (pixel-small-mae, 2 M)", "this > 0, whole interval",
                   "<script>alert(1)</script>"):
        assert number in prose, number
    assert ("79.12" in prose and "run at paper, 1 of 240 cells" in prose) == (profile == "paper")
    for table in results.tables():
        for text in results.published(table)["printed"]: assert text in prose


def read_parts(folder):
    "The overview and the page of each paper: file -> Markdown."
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("report*.md"))}


@pytest.mark.parametrize("profile", ["demo", "paper"])
def test_markdown(figures, profile):
    folder = figures/"90_report"/profile
    parts = read_parts(folder)
    text = "\n".join(parts.values())
    assert {f"report_{paper}.md" for paper in results.PAPERS} < set(parts)
    assert all(len(part.encode()) < 300_000 for part in parts.values()), "hosts render up to about 512 KB"
    for _, path in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text):
        assert (folder/path).resolve().is_file() and not path.startswith("/"), path
    assert text.count("![") == 5
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert "a\\|b" in text and table
    known = {("pixel", "Table 5"): "run at small, 2 of 240 cells",
             ("pixel", "Table 2"): "run at small, 1 of 20 cells", ("pixel", "Figure 1"): "run at small",
             ("pixel", "Figure 3"): "run at small",
             ("pixel", "Equation 2"): "in the library: losses.contrastive.info_nce"}
    for row in results.catalogue().to_dict("records"):
        line = next(line for line in table if line.startswith(f"| {row['id']} | {row['what_it_shows']} |"))
        expected = known.get((row["paper"], row["id"]))
        if expected: assert f"| {expected}" in line
        elif row["id"].startswith(("Table", "Figure", "Text")): assert "| not run |" in line
        else: assert "in the library" in line
    for claim in results.claims():
        start = f"| [{claim.id}](report_{claim.paper}.md#claim-{claim.id}) |"
        line = next(line for line in table if line.startswith(start))
        assert any(f"| {verdict} |" in line for verdict in results.VERDICTS)
    for name, part in parts.items():
        for file, link in re.findall(r"\]\((report\w*\.md|)#([^)]+)\)", part):
            assert f'<a id="{link}"></a>' in parts[file or name], link
    first = next(line for line in table if line.startswith("| [pixel-3]"))
    assert (
        "| fails | text-small-mlm | that > 0, whole interval | [-2, -1], claimed > 0 | 02_vanilla_geometry |"
        in first
    )
    assert "| this > 0, whole interval | interval [1, 2] | holds |" in table, "a part beside its evidence"
    assert "| a gain > 0, whole interval | interval [1, 2] | holds |" in table
    row = "| BERT / BERT (text-small-mlm, 3 M) | 0.763 / 0.603 |"
    assert [line for line in table if line.startswith(row)]


def test_a_demo_never_enters(figures):
    for profile in ("paper", "demo"):
        for path in (figures/"90_report"/profile).iterdir():
            if path.suffix in (".md", ".html", ".tex", ".csv", ".json", ".ipynb"):
                text = path.read_text(encoding="utf-8")
                assert not re.search(r"12\.3[45]|98\.7[67]",
                                     re.sub(r"base64,[^\"]*|\"image/png\": \"[^\"]*\"", "", text)), path
        assert not [name for name in results.load_run(figures/"90_report"/profile).details["data"]
                    if "demo" in name]
    marked = "\n".join(read_parts(figures/"90_report"/"demo").values())
    rows = [line for line in marked.splitlines() if line.endswith("| demonstration |")]
    assert [line.split(" | ")[0] for line in rows] == ["| Table 5", "| Table 8", "| Figure 3"]
    assert "| not run |" in rows[1]
    assert "demonstration |" not in "\n".join(read_parts(figures/"90_report"/"paper").values())


def test_latex_files(figures):
    for profile in ("paper", "demo"):
        folder = figures/"90_report"/profile
        assert sorted(path.stem for path in folder.glob("*.tex")) == results.tables()
        for table in results.tables(): check_latex((folder/f"{table}.tex").read_text(encoding="utf-8"), table)
        assert "Not run." in (folder/"pixel_table8.tex").read_text(encoding="utf-8")
        text = (folder/"pixel_table2.tex").read_text(encoding="utf-8")
        assert "BERT (text-small-mlm, 3 M) & ours, small & $0.603$" in text
        assert r"\caption{Pixel Sentence Representation Learning (arXiv:2402.08183), its Table 2: " in text
        text = (folder/"pixel_table5.tex").read_text(encoding="utf-8")
        assert "Not run." not in text and "$61.25$ & $44.44$" in text and "$[60.12, 62.50]$" in text
        assert "$-18.21$" in text
        assert ("ours, paper" in text and "$79.12$" in text) == (profile == "paper")


def test_the_same_runs_give_the_same_report(figures, warm_kernels):
    folder = figures/"90_report"/"demo"
    def contents():
        return {path.name: path.read_bytes()
                for path in folder.iterdir() if path.name not in ("run.json", "90_report.ipynb")}
    before = contents()
    (folder/"pixel_table99.tex").write_text("of an older report")
    assert make(figures, "demo").returncode == 0
    assert contents() == before and len(before) > 45


def reports() -> list[Path]: return sorted((ROOT/"figures"/"90_report").glob("[sp]*/report.html"))


@pytest.mark.parametrize("path", reports(), ids=lambda path: path.parent.name)
def test_the_committed_page(path):
    page = check_page(path)
    prose = " ".join(page.text)
    assert "What small runs can show" in prose, "the summary comes first"
    assert "BERT (distilbert)" in prose and "PIXEL (pixel-small-mae-continuous, 2 M)" in prose
    for paper in results.PAPERS:
        for claim in results.claims(paper): assert report.describe_support(claim) in prose
    assert not re.search(r"(?<!\w)[SPXF]: ", prose), "a letter that is not explained"


def test_the_committed_page_has_the_numbers_of_the_summary():
    summary = re.sub(r"<!--.*?-->", "", (ROOT/"docs"/"summary.md").read_text(encoding="utf-8"))
    counts = next(part for part in summary.split("\n\n") if part.startswith("Of "))
    report_text = (ROOT/"figures"/"90_report"/"small"/"report.md").read_text(encoding="utf-8")
    assert " ".join(counts.split()) in report_text, "make report, after the numbers of docs/summary.md"


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("path", reports(), ids=lambda path: path.parent.name)
def test_the_page_is_no_wider_than_the_screen(path, width, tmp_path):
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next(filter(None, map(shutil.which, names)), None)
    if not browser: pytest.skip(f"none of {', '.join(names)} is installed")
    # a window is never as narrow as a phone; a frame is
    probe = ("<script>addEventListener('load', () => {"
             "document.querySelectorAll('details').forEach(x => x.open = true);"
             "parent.postMessage(String(document.documentElement.scrollWidth), '*') })</script></body>")
    text = path.read_text(encoding="utf-8")
    (tmp_path/"page.html").write_text(text.replace("</body>", probe), encoding="utf-8")
    (tmp_path/"frame.html").write_text(
        "<body><p id='width'></p><script>onmessage = x => document.getElementById('width').textContent = "
        "'width ' + x.data</script><iframe src='page.html' "
        f"style='width:{width}px;height:800px;border:0'></iframe>")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom",
               f"--user-data-dir={tmp_path/'profile'}"]
    done = subprocess.run([browser, *options, f"file://{tmp_path/'frame.html'}"], capture_output=True,
                          text=True, timeout=120)
    measured = re.search(r"width (\d+)", done.stdout)
    assert measured, done.stderr[-500:]
    assert int(measured[1]) <= width


def test_run_json_names_what_was_joined(figures):
    details = results.load_run(figures/"90_report"/"paper").details
    joined_here = [f"figures/{name}/small"
                   for name in ("01_robustness", "02_vanilla_geometry", "05_leapfrog", "10_audiocse",
                                "99_other")]
    assert set(details["data"]) == {"data/paper", *joined_here, "figures/05_leapfrog/paper"}
    joined = results.load_run(figures/"05_leapfrog"/"small").details
    expected = dict(revision=joined["code"]["commit"], fingerprint=fingerprint(joined["sha256"]), rows=3)
    assert details["data"]["figures/05_leapfrog/small"] == expected
    assert details["wall_seconds"] < 60


@pytest.mark.parametrize("notebook, numbers, notes, sentence", [
    ("03_alignment", [("pixel_table5", "P_10 + A | Iter.1", "en", 60.0)], {},
     "is written by 03_alignment and by 05_leapfrog at small"),
    ("03_alignment", [], dict(catalogue={"pixel Figure 9": "x"}),
     "names 'pixel Figure 9', which is no row of the catalogue"),
])
def test_refused(tmp_path, warm_kernels, notebook, numbers, notes, sentence):
    fake(tmp_path, "05_leapfrog", "small", [("pixel_table5", "P_10 + A | Iter.1", "en", 61.25)])
    fake(tmp_path, notebook, "small", numbers, **notes)
    done = make(tmp_path, "small")
    assert done.returncode == 1 and sentence in done.stderr, done.stderr
    assert not (tmp_path/"90_report"/"small"/"report.html").exists()


def test_it_needs_no_torch(python):
    notebook = json.loads((ROOT/"nbs"/"90_report.ipynb").read_text(encoding="utf-8"))
    imports = [line for cell in notebook["cells"] if cell["cell_type"] == "code"
               for line in cell["source"] if re.match(r"(from|import) ", line)]
    heavy = ("import sys\n"
             "print([name for name in ('torch', 'transformers', 'datasets') if name in sys.modules])")
    code = "".join(line.rstrip("\n") + "\n" for line in imports) + heavy
    assert len(imports) > 5 and python(code).splitlines()[-1] == "[]"


@pytest.mark.parametrize("profile", ["small", "paper"])
def test_the_committed_report_is_of_the_committed_runs(profile):
    folder = ROOT/"figures"/"90_report"/profile
    if not (folder/"run.json").is_file():
        pytest.skip(f"no report at {profile} stands in figures/: make report PROFILE={profile}")
    details = results.load_run(folder).details
    runs = {f"figures/{path.parent.parent.name}/{scale}": path.parent
            for scale in details["settings"]["scales"]
            for path in (ROOT/"figures").glob(f"*/{scale}/run.json")
            if path.parent.parent.name != "90_report"}
    fresh = {name: fingerprint(results.load_run(path).details["sha256"]) for name, path in runs.items()}
    joined = {name: entry["fingerprint"]
              for name, entry in details["data"].items() if name.startswith("figures/")}
    assert joined == fresh, f"a run has changed since: make report PROFILE={profile}"


def test_each_claim_of_lensing_is_settled_by_one_notebook():
    "Two notebooks would each settle half: where only one was run, the half would pass for the whole."
    settled = [claim for name in ("13_lensing", "14_mining") for claim in sorted(set(
        re.findall(r'run\.claim\(\\"(lensing-\d+)\\"', (ROOT/"nbs"/f"{name}.ipynb").read_text("utf-8"))))]
    assert sorted(settled) == sorted(claim.id for claim in results.claims("lensing"))
"""Figures: the same bytes for the same numbers, colours that can be told apart, crisp strips."""
import itertools
import os
import subprocess
import sys
from pathlib import Path

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from matplotlib import colors, font_manager
from matplotlib.text import Text

from sentnb import figures
from sentnb.core import FAMILIES, LANGUAGES

DRAW = """
import sys
import numpy as np, pandas as pd
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sentnb import figures as f
from sentnb.core import LANGUAGES
f.use_style()
figure, (left, right) = plt.subplots(1, 2)
lines = {c: f.line_with_band(left, [0, 1, 2], [i, i + 1, i + 2], [i - 0.5]*3, [i + 3]*3,
                             color=f.get_colour(c))
         for i, c in enumerate(LANGUAGES)}
f.reference_lines(left, dict(en=3.0, zh=([0, 1], [2, 3])))
left.legend(loc="upper left"); f.direct_labels(left, lines)
rng = np.random.default_rng(0)
f.language_scatter(right, rng.normal(size=(200, 2)), np.repeat(list(LANGUAGES), 20))
tables = dict(points=pd.DataFrame(dict(a=[1/3, 2.0])), all=pd.DataFrame(dict(b=["x", "y"])))
f.save(figure, sys.argv[1], "lines", tables)
strip = rng.integers(0, 256, (16, 160), dtype=np.uint8)
f.save(f.strip_figure([strip], ["a caption"], patch=16), sys.argv[1], "strip")
"""


@pytest.fixture(autouse=True)
def style():
    figures.use_style()
    yield
    plt.close("all")


def test_two_processes_write_the_same_bytes(tmp_path):
    written = []
    for name, salt in (("a", "1"), ("b", "2")):
        env = {**os.environ, "PYTHONHASHSEED": salt, "TZ": "UTC" if name == "a" else "Asia/Tokyo",
               "SOURCE_DATE_EPOCH": salt}
        done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", DRAW, str(tmp_path/name)],
                              env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        written.append({path.name: path.read_bytes() for path in (tmp_path/name).iterdir()})
    assert set(written[0]) == {"lines.svg", "lines.png", "lines.pdf", "lines.points.csv", "lines.all.csv",
                               "strip.svg", "strip.png", "strip.pdf"}
    assert [name for name in written[0] if written[0][name] != written[1].get(name)] == []
    assert written[0]["lines.points.csv"] == b"a\n0.333333\n2\n"
    assert written[0]["lines.svg"].startswith(b"<?xml") and written[0]["lines.png"][:4] == b"\x89PNG"
    assert written[0]["lines.pdf"][:4] == b"%PDF"
    assert b"<text" not in written[0]["lines.svg"], "letters are outlines, whatever fonts a browser has"


def test_a_changed_number_changes_the_files(tmp_path):
    def draw(folder, value):
        figure, ax = plt.subplots(figsize=(2, 1))
        ax.plot([0, 1], [0, value])
        files = figures.save(figure, folder, "x", pd.DataFrame(dict(y=[0, value])))
        return [path.read_bytes() for path in files]
    first, second = draw(tmp_path/"a", 1.0), draw(tmp_path/"b", 1.2)
    assert len(first) == 4 and all(a != b for a, b in zip(first, second))


def test_saving_does_not_depend_on_a_matplotlibrc(tmp_path):
    def draw(folder):
        figures.use_style()
        figure, ax = plt.subplots(figsize=(2, 1))
        ax.plot([0, 1], [0, 1]); ax.set_title("title")
        return figure, folder
    figure, folder = draw(tmp_path/"a")
    first = [path.read_bytes() for path in figures.save(figure, folder, "x")]
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "other", "savefig.bbox": "tight",
                                "font.size": 20, "lines.linewidth": 9}):
        second = [path.read_bytes() for path in figures.save(*draw(tmp_path/"b"), "x")]
    assert first == second
    figure, folder = draw(tmp_path/"c")
    # set after the style
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "other", "savefig.bbox": "tight"}):
        assert first == [path.read_bytes() for path in figures.save(figure, folder, "x")]


def test_a_failing_save_leaves_the_old_files(tmp_path, monkeypatch):
    figure, ax = plt.subplots(figsize=(2, 1))
    figures.save(figure, tmp_path, "x", pd.DataFrame(dict(a=[1])))
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    ax.plot([0, 1])
    write = figure.savefig
    def full(path, **options):
        if options["format"] == "pdf": raise OSError(28, "No space left on device")
        return write(path, **options)
    monkeypatch.setattr(figure, "savefig", full)
    with pytest.raises(OSError, match="No space"):
        figures.save(figure, tmp_path, "x", pd.DataFrame(dict(a=[2])))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old


def test_save_refuses(tmp_path):
    figure = plt.figure()
    refused = [
        ([1, 2], "x", (TypeError, ValueError), "DataFrame|update|sequence|convert"),
        (dict(a=[1]), "x", TypeError, "expected a DataFrame"),
        (None, "a/b", ValueError, "names a file"),
        (None, "", ValueError, "names a file"),
        ({"a b": pd.DataFrame()}, "x", ValueError, "names a file"),
    ]
    for data, name, error, match in refused:
        with pytest.raises(error, match=match): figures.save(figure, tmp_path, name, data)
    assert list(tmp_path.iterdir()) == []


def test_an_index_with_a_name_is_written(tmp_path):
    frame = pd.DataFrame(dict(en=[1.0]), index=pd.Index(["Iter.1"], name="row"))
    assert figures.save(plt.figure(), tmp_path, "x", frame)[-1].read_text() == "row,en\nIter.1,1\n"


def test_the_font_is_matplotlibs_own():
    assert Path(font_manager.findfont("DejaVu Sans")).is_relative_to(matplotlib.get_data_path())


# Colours

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
BLINDNESS = dict(
    none=np.eye(3),
    protan=np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                     [-0.003882, -0.048116, 1.051998]]),
    deutan=np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                     [-0.011820, 0.042940, 0.968881]]),
    tritan=np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                     [0.004733, 0.691367, 0.303900]]))


def lab(color, blindness):
    "CIE L*a*b* (D65) of a colour as somebody with a colour blindness sees it."
    rgb = np.array(colors.to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb/12.92, ((rgb + 0.055)/1.055)**2.4)
    seen = np.clip(BLINDNESS[blindness]@linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722],
                    [0.0193, 0.1192, 0.9505]])@seen/[0.9505, 1, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787*xyz + 16/116)
    return np.array([116*f[1] - 16, 500*(f[0] - f[1]), 200*(f[1] - f[2])])


def test_the_distance_sees_a_confusion():
    assert np.linalg.norm(lab("#d62728", "none") - lab("#2ca02c", "none")) > 100
    assert np.linalg.norm(lab("#a65628", "deutan") - lab("#6a7a28", "deutan")) < 20


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_families_can_be_told_apart(blindness):
    for a, b in itertools.combinations(figures.FAMILY_COLOURS.values(), 2):
        assert np.linalg.norm(lab(a, blindness) - lab(b, blindness)) > 28, (a, b)


@pytest.mark.parametrize("blindness", BLINDNESS)
def test_languages_can_be_told_apart(blindness):
    for a, b in itertools.combinations(LANGUAGES, 2):
        first, second = (lab(figures.get_colour(name), blindness) for name in (a, b))
        distance = np.linalg.norm(first - second)
        assert distance > 20, (a, b, distance)


def test_languages_are_those_of_the_papers_table():
    of_families = [code for codes in FAMILIES.values() for code in codes]
    assert of_families == list(LANGUAGES) == list(figures.LANGUAGE_COLOURS)
    assert set(FAMILIES) == set(figures.FAMILY_COLOURS)
    for codes in FAMILIES.values():
        assert len({figures.LANGUAGE_MARKERS[code] for code in codes}) == len(codes)


# Curves

def test_band_only_where_there_is_an_interval():
    _, ax = plt.subplots()
    figures.line_with_band(ax, [0, 1], [1, 2], label="a")
    assert len(ax.collections) == 0 and len(ax.lines) == 1
    line = figures.line_with_band(ax, [0, 1, 2], [1, 2, 3], [None, 1, 2], [None, 3, 4], color="#112233")
    vertices = ax.collections[0].get_paths()[0].vertices
    assert line.get_color() == "#112233" and np.nanmin(vertices[:, 0]) == 1 and np.nanmin(vertices[:, 1]) == 1
    with pytest.raises(ValueError, match="two sides"): figures.line_with_band(ax, [0], [1], high=[2])
    with pytest.raises(ValueError, match="3 points, but bounds for 2"):
        figures.line_with_band(ax, [0, 1, 2], [1, 2, 3], [0, 1], [2, 3])


def test_reference_lines_are_dashed_and_named_once():
    _, ax = plt.subplots()
    drawn = figures.reference_lines(ax, dict(en=79.46, zh=([0, 1], [1, 2]), ceiling=78.0),
                                    colors=dict(ceiling="#123456"))
    assert [line.get_color() for line in drawn] == [figures.get_colour("en"), figures.get_colour("zh"),
                                                    "#123456"]
    assert all(line.is_dashed() for line in drawn) and ax.get_legend_handles_labels()[1] == ["paper"]
    assert figures.reference_lines(ax, {}) == []


@given(st.lists(st.floats(-100, 100), max_size=12), st.floats(0.01, 5))
def test_spread_keeps_gap_and_order(wanted, gap):
    placed = figures.spread_labels(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    assert placed.shape == (len(wanted),) and (np.diff(placed[order]) >= gap - 1e-9).all()
    # least squares moves no mean
    assert np.mean(placed) == pytest.approx(np.mean(wanted), abs=1e-6) if wanted else True
    if len(wanted) > 1 and (np.diff(np.sort(wanted)) >= gap).all(): assert np.allclose(placed, wanted)


@given(st.lists(st.floats(-2, 3), min_size=1, max_size=8))
def test_spread_stays_inside_when_it_fits(wanted):
    placed = figures.spread_labels(wanted, 0.1, 0, 1)
    assert placed.min() >= -1e-9 and placed.max() <= 1 + 1e-9
    assert (np.diff(np.sort(placed)) >= 0.1 - 1e-9).all()


@pytest.mark.parametrize("ends", [
    np.zeros(10), np.arange(10.0), np.linspace(0, 0.2, 10), [5.0, 5, 5, 1, 1, 9, 9, 9, 9, 0]])
def test_direct_labels_do_not_overlap(ends):
    figure, ax = plt.subplots(figsize=(5, 2.8))
    lines = {code: figures.line_with_band(ax, [0, 1, 2], [0, end/2, end], color=figures.get_colour(code))
             for code, end in zip(LANGUAGES, ends)}
    shown = figures.direct_labels(ax, lines)
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in shown]
    assert len(boxes) == 10 and not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 <= figure.bbox.y1 for box in boxes)
    from_below = sorted(shown, key=lambda text: text.xyann[1])
    expected = [code for _, code in sorted(zip(ends, LANGUAGES), key=lambda pair: pair[0])]
    assert [text.get_text() for text in from_below] == expected


def test_direct_labels_take_the_last_point_there_is():
    _, ax = plt.subplots()
    shown, = figures.direct_labels(ax, dict(en=figures.line_with_band(ax, [0, 1, 2], [1, 2, np.nan])))
    assert shown.xy == (1, 2)
    with pytest.raises(ValueError, match="no point"):
        figures.direct_labels(ax, dict(en=figures.line_with_band(ax, [0], [np.nan])))


# Clouds and strips

def test_language_scatter():
    _, ax = plt.subplots()
    figures.language_scatter(ax, np.arange(12.0).reshape(6, 2), ["zh", "en", "en", "de", "zh", "zh"])
    groups = [(group.get_label(), len(group.get_offsets())) for group in ax.collections]
    assert groups == [("en", 2), ("de", 1), ("zh", 3)]
    assert np.allclose(ax.collections[2].get_offsets(), [[0, 1], [8, 9], [10, 11]])
    for xy, codes, match in [(np.zeros((2, 3)), ["en", "de"], "shape"),
                             (np.full((1, 2), np.nan), ["en"], "not finite"),
                             (np.zeros((1, 2)), ["xx"], "'xx'")]:
        with pytest.raises(ValueError, match=match): figures.language_scatter(ax, xy, codes)


@pytest.mark.parametrize("scale", [1, 2, 3])
def test_a_strip_is_shown_pixel_for_pixel(scale):
    rng = np.random.default_rng(scale)
    strips = [rng.integers(0, 256, (16, width), dtype=np.uint8) for width in (160, 96)]
    figure = figures.strip_figure(strips, scale=scale)
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[..., 0]
    top = 8
    for strip in strips:
        # a thin frame covers the edge
        expected = np.kron(strip, np.ones((scale, scale), np.uint8))[2:-2, 2:-2]
        found = drawn[top + 2:top + 16*scale - 2, 10:8 + strip.shape[1]*scale - 2]
        assert (found == expected).all()
        top += 16*scale + 8
    assert drawn.shape == (top, 16 + 160*scale)


def test_strip_figure_refuses():
    strip = np.zeros((16, 32), np.uint8)
    refused = [
        ([], [], {}, "at least one"),
        ([strip], ["a", "b"], {}, "1 strips and 2 captions"),
        ([strip/255], None, {}, "expected uint8"),
        ([strip[None]], None, {}, "expected uint8"),
        ([strip], None, dict(scale=1.5), "positive integer"),
        ([strip], ["中文"], {}, "cannot draw '中文'"),
    ]
    for strips, captions, options, match in refused:
        with pytest.raises(ValueError, match=match): figures.strip_figure(strips, captions, **options)
    figures.strip_figure([strip], ["Ząb, русский, ñ\nand a second line"])


def test_needs_no_torch():
    code = "import sys\nimport sentnb.figures\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


# Kinds

def heights(ax) -> list[str]: # the names on the y axis, from above
    return [label.get_text() for label in ax.get_yticklabels()][::-1]


def test_before_after_fills_what_comes_after():
    _, ax = plt.subplots()
    rows = {"both": [(1, 0, 2), 3], "after alone": [None, 4], "one": [(5, 4, 6)], "nothing": [None, None]}
    figures.before_after(ax, rows, colours={"both": "tokens"})
    assert heights(ax) == list(rows)
    points = [line for line in ax.lines if line.get_marker() == "o"]
    drawn = [(line.get_xdata().item(), line.get_ydata().item(), line.get_markerfacecolor())
             for line in points]
    orange, black = figures.COLOURS["tokens"], figures.COLOURS["mean"]
    assert drawn == [(1, 3, "white"), (3, 3, orange), (4, 2, black), (5, 1, black)]
    bars = [line.get_xdata().tolist() for line in ax.lines if line.get_alpha()]
    assert bars == [[0, 2], [4, 6]], "what has bounds has a bar"


@pytest.mark.parametrize("vertical", [False, True])
def test_ours_stand_beside_the_papers(vertical):
    ours, theirs = {"a": [1, 2]}, {"a": [3, 4]}
    options = dict(vertical=vertical, paper=dict(marker="D"))
    figure, axes = figures.compare_with_paper(figures.before_after, dict(x=(ours, theirs), y=(theirs, ours)),
                                        **options)
    assert [ax.get_title("left") for ax in axes] == ["x, ours", "x, the paper's", "y, ours", "y, the paper's"]
    figure.draw_without_rendering()
    first, second = (ax.get_position() for ax in axes[:2])
    assert first.y0 > second.y0 if vertical else first.x0 < second.x0
    seen = [{line.get_xdata().item() for line in ax.lines if line.get_marker() in "oD"} for ax in axes]
    assert seen == [{1, 2}, {3, 4}, {3, 4}, {1, 2}]
    assert {line.get_marker() for line in axes[1].lines} == {"D", "None"}


def test_categories_keep_their_places():
    _, ax = plt.subplots()
    series = {"a": dict(en=(1, 0, 2), zh=3), "b": dict(de=4)}
    figures.category_points(ax, series, ["en", "de", "zh"], dodge=0.2)
    places = {line.get_label(): line.get_xdata().tolist() for line in ax.lines}
    assert places == {"a": [-0.1, 1.9], "b": [1.1]}
    assert [label.get_text() for label in ax.get_xticklabels()] == ["en", "de", "zh"]


def test_curves_have_the_bands_of_their_points():
    _, ax = plt.subplots()
    drawn = figures.curves(ax,
                           {"miCSE": {1: (2, 1, 3), 2: (4, None, None), 3: (5, 4, 6)},
                            "SimCSE": {1: 1, 3: None}})
    assert drawn["miCSE"].get_ydata().tolist() == [2, 4, 5] and len(ax.collections) == 1
    assert drawn["SimCSE"].get_color() == figures.COLOURS["SimCSE"]


def test_a_line_without_points_has_none():
    _, ax = plt.subplots()
    drawn = figures.curves(ax, {"miCSE": {}, "SimCSE": {1: 2.}})
    assert not len(drawn["miCSE"].get_ydata()) and drawn["SimCSE"].get_ydata().tolist() == [2]


def test_names_that_look_like_no_value_are_names(tmp_path):
    path = tmp_path/"x.csv"
    path.write_text("base,step,value,low,high\nNone,1,2,1,3\nNA,1,,,\nnull,2,.5,nan,nan\n")
    points = figures.read_points(path, "base", "step")
    assert list(points) == ["None", "NA", "null"] and points["None"] == {1: (2, 1, 3)}
    assert np.isnan(points["NA"][1]).all() and np.isnan(points["null"][2][1])
    assert list(figures.read_points(path, "step", "base")) == [1, 2]


def test_two_lines_of_one_name_are_not_merged(tmp_path):
    path = tmp_path/"x.csv"
    path.write_text("base,step,value\nA,1,2\nB,1,3\n")
    with pytest.raises(ValueError, match="'A' and 'B' are both shown as 'x'"):
        figures.redraw(path, "base", "step", names=dict(A="x", B="x"))
    assert len(figures.redraw(path, "base", "step", names=dict(A="B", B="A")).get_lines()) == 2


def test_plotted_points_are_written_as_they_are_named(tmp_path):
    points = {("a", "en"): (1/3, None, None), ("b", "zh"): (2, 1, 3)}
    frame = figures.plotted_data(points, ["model", "language"])
    figure = plt.figure()
    figures.save(figure, tmp_path, "x", frame)
    written = (tmp_path/"x.csv").read_text()
    assert written == "model,language,value,low,high\na,en,0.333333,,\nb,zh,2,1,3\n"


def test_every_name_of_the_palette_is_a_colour():
    for name in figures.COLOURS: assert colors.is_color_like(figures.get_colour(name))
    for _, colour in figures.LINE_STYLES: assert figures.get_colour(colour) == colour
    with pytest.raises(ValueError, match="no colour for 'a row'"): figures.get_colour("a row")

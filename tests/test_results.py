"""Evidence: what a run writes, what the papers printed, and how a claim is settled."""
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from sentnb import results
from sentnb.core import write_atomic
from sentnb.results import (
    Part, Record, Run, compare, difference, interval, load_run, not_run, paired_difference, settle,
    settle_all)

PAPER = Path(__file__).resolve().parent.parent/"data"/"paper"
LANGUAGES = ["en", "de", "nl", "es", "fr", "it", "pt", "pl", "ru", "zh"]
finite = st.floats(-1e6, 1e6, allow_nan=False)


def make(folder, profile="small", seed=0):
    "A run with a bit of everything."
    run = Run("05_leapfrog", profile, dict(steps=100, langs=["en", "zh"]), seed=seed, folder=folder)
    run.add("pixel_table5", "A + S_n | de", "en", 59.123456789)
    run.add("pixel_table5", "A + S_n | de", "zh", -0.0, low=-1, high=1, n_seeds=3)
    run.add_seeds("own table, with a comma", "row \"one\"", "é", [1.0, 2.0, 4.0])
    run.data("stsb", revision="abc", fingerprint="0123", rows=1379)
    run.fonts({"NotoSans-Regular.ttf": "0"*64})
    run.versions(pango="1.50.12")
    run.note("why", "a test")
    run.claim("pixel-10", settle((0.5, 1.0), quantity="iteration 1 minus the ceiling"), "two seeds")
    run.claim("pixel-9", not_run())
    return run


# The published side

def test_published_is_complete():
    assert len(results.tables()) == 40 and len(results.catalogue()) == 101 and len(results.claims()) == 69
    assert sum(len(results.hyperparameters(paper)) for paper in results.PAPERS) == 203
    assert sum(len(results.tables(paper)) for paper in results.PAPERS) == 40
    assert sum(len(results.catalogue(paper)) for paper in results.PAPERS) == 101


@pytest.mark.parametrize("table", results.tables())
def test_published_table_reads_as_printed(table):
    frame = results.published(table)
    with open(PAPER/f"{table}.csv", encoding="utf-8", newline="") as file: rows = list(csv.DictReader(file))
    assert list(frame.columns) == ["row_group", "row", "column", "value", "std", "note", "printed"]
    assert frame["printed"].tolist() == [row["value"] for row in rows]
    assert frame["note"].tolist() == [row.get("note", "") for row in rows]
    for value, row in zip(frame["value"], rows):
        try: expected = float(row["value"])
        except ValueError: assert math.isnan(value)
        else: assert value == expected
    # A run names a cell by (row_key, column): the name must be unique.
    keys = [(results.row_key(*pair), column)
            for pair, column in zip(zip(frame["row_group"], frame["row"]), frame["column"])]
    assert len(set(keys)) == len(keys)


def test_published_table5_has_the_papers_layout():
    frame = results.published("pixel_table5")
    averages = ["Germanic (en, de, nl)", "Romance (es, fr, it, pt)", "Slavic (pl, ru)", "Sinitic (zh)",
                "avg."]
    assert list(dict.fromkeys(frame["column"])) == LANGUAGES + averages
    assert results.published_points("pixel_table5")["P_10 + A | Iter.2", "en"] == 79.85


def test_every_line_of_claims_is_read():
    lines = [line for line in (PAPER/"claims.md").read_text(encoding="utf-8").splitlines()
             if line[:1].isdigit()]
    found = results.claims()
    assert [f"{one.number}. {one.paper}: {one.text} [{one.where}] - {one.detail}" for one in found] == lines
    for paper in results.PAPERS:
        assert [one.number for one in results.claims(paper)] == list(range(1, len(results.claims(paper)) + 1))
    assert {one.support for one in found} == set("SPXF") | {""}
    assert [one.id for one in found if one.support in ("X", "")] == ["micse-4", "lensing-7"]


def test_unknown_names_are_refused():
    for call in (lambda: results.published("pixel_table10"), lambda: results.catalogue("bert"),
                 lambda: results.hyperparameters("bert"),
                 lambda: results.claims("bert"), lambda: results.tables("bert"),
                 lambda: results.claim("pixel-0")):
        with pytest.raises(ValueError, match="bert|pixel"): call()


# Intervals

@given(st.lists(finite, min_size=2, max_size=12), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_interval_is_students(values, level):
    low, high = interval(values, level)
    scale = stats.sem(values)
    if scale == 0: assert low == pytest.approx(values[0]) and high == pytest.approx(values[0]); return
    expected = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=scale)
    assert (low, high) == pytest.approx(expected, rel=1e-6, abs=1e-6*scale)


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = [low <= 5 <= high for low, high in (interval(rng.normal(5, 2, size=3)) for _ in range(2000))]
    assert 0.93 < np.mean(covered) < 0.97


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=8))
def test_paired_difference_is_antisymmetric(pairs):
    a, b = zip(*pairs)
    low, high = paired_difference(a, b)
    back = paired_difference(b, a)
    if len(pairs) == 1: assert (low, high) == back == (None, None)
    else: assert (low, high) == pytest.approx((-back[1], -back[0]), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0, 2.0]]])
def test_interval_refuses(values):
    with pytest.raises(ValueError, match="finite numbers"): interval(values)


def test_bootstrap_is_paired_seeded_and_covers():
    x = np.arange(50.0)
    # pairs stay together
    assert results.bootstrap(lambda a, b: float(np.mean(b - a)), x, x + 2, n=50) == (2.0, 2.0)
    def mean(a): return float(np.mean(a))
    third, again, fourth = (results.bootstrap(mean, x, n=50, seed=seed) for seed in (3, 3, 4))
    assert third == again != fourth
    rng = np.random.default_rng(1)
    found = [results.bootstrap(mean, rng.normal(size=60), n=200, seed=i) for i in range(200)]
    assert 0.88 < np.mean([low < 0 < high for low, high in found]) < 0.99
    with pytest.raises(ValueError, match="one length"): results.bootstrap(mean, [], n=5)
    with pytest.raises(ValueError, match="one length"): results.bootstrap(np.dot, [1, 2], [1], n=5)


# Claims

@given(finite, finite, finite)
def test_settle_is_a_trichotomy(a, b, margin):
    low, high = sorted((a, b))
    above, below = settle((low, high), ">", margin), settle((low, high), "<", margin)
    assert above.verdict == ("holds" if low > margin else "fails" if high < margin
                             else "inconclusive at this scale")
    assert below.verdict == {"holds": "fails", "fails": "holds"}.get(above.verdict, above.verdict)
    assert f"{margin:g}" in above.rule and ">" in above.rule and "<" in below.rule


@pytest.mark.parametrize("missing", [None, (None, None), (1.0, None), (None, 1.0)])
def test_no_interval_settles_nothing(missing):
    assert settle(missing).verdict == "inconclusive at this scale"
    assert "no interval" in settle(missing).evidence


def test_settle_all_combines():
    holds, fails, unsure, absent = settle((1, 2)), settle((-2, -1)), settle((-1, 1)), not_run("x")
    for parts, expected in [([holds, holds], "holds"), ([holds, fails, unsure], "fails"),
                            ([holds, unsure], unsure.verdict),
                            ([holds, absent], unsure.verdict), ([absent, absent], "not run"),
                            ([absent, fails], "fails")]:
        assert settle_all(parts).verdict == expected
    assert settle_all([holds, fails]).rule.count(holds.rule) == 2
    with pytest.raises(ValueError, match="expected one of"): Part("a rule", "probably")
    with pytest.raises(ValueError, match="expected '>' or '<'"): settle((0, 1), "=")
    with pytest.raises(ValueError, match="low <= high"): settle((1, float("nan")))


# A run

def test_save_and_load(tmp_path):
    run = make(tmp_path)
    assert run.save() == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "claims.csv", "claims.json", "numbers.csv", "quotes.csv", "run.json"]
    record = load_run(tmp_path)
    pd.testing.assert_frame_equal(record.numbers, run.numbers)
    pd.testing.assert_frame_equal(record.claims, run.claims)
    details = json.loads((tmp_path/"run.json").read_text(encoding="utf-8"))
    assert details == record.details and details["settings"] == dict(steps=100, langs=["en", "zh"])
    assert {"seed", "settings", "code", "versions", "fonts", "data", "hardware", "wall_seconds",
            "peak_memory"} <= set(details)
    assert details["versions"]["pango"] == "1.50.12" and details["versions"]["numpy"] == np.__version__
    assert details["per_seed"] == [dict(table="own table, with a comma", row='row "one"', column="é",
                                        values=[1.0, 2.0, 4.0])]
    assert details["peak_memory"]["process_mib"] > 10 and details["hardware"]["cores"] >= 1
    assert str(tmp_path) not in (tmp_path/"run.json").read_text(encoding="utf-8")


def test_numbers_csv_is_exact(tmp_path):
    make(tmp_path).save()
    low, high = interval([1.0, 2.0, 4.0])
    assert (tmp_path/"numbers.csv").read_bytes().decode() == (
        "table,row,column,value,low,high,n_seeds\n"
        "pixel_table5,A + S_n | de,en,59.1235,,,1\n"
        "pixel_table5,A + S_n | de,zh,0,-1,1,3\n"
        f'"own table, with a comma","row ""one""",é,2.33333,{low:.6g},{high:.6g},3\n')


def test_numbers_csv_is_byte_identical_across_processes(tmp_path):
    code = ("import sys; sys.path.insert(0, sys.argv[2])\nfrom test_results import "
            "make\nmake(sys.argv[1]).save()")
    for name, salt in (("a", "1"), ("b", "2")):
        subprocess.run([sys.executable, "-c", code, str(tmp_path/name), str(Path(__file__).parent)],
                       check=True,
                       env={**os.environ, "PYTHONHASHSEED": salt})
    for file in ("numbers.csv", "claims.csv", "claims.json", "quotes.csv"):
        assert (tmp_path/"a"/file).read_bytes() == (tmp_path/"b"/file).read_bytes()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), min_size=1,
                                  max_size=8).filter(lambda name: name.splitlines() == [name]), finite),
                min_size=1, max_size=6, unique_by=lambda x: x[0]))
def test_any_name_comes_back(cells):
    # no git for each example
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(results, "code_state", dict):
        run = Run("x", "small", {}, folder=folder)
        for name, value in cells: run.add("t", name, "c", value)
        run.save()
        back = load_run(folder).numbers
    assert back["row"].tolist() == [name for name, _ in cells]
    assert back["value"].tolist() == run.numbers["value"].tolist()
    assert back["value"].tolist() == pytest.approx([value for _, value in cells], rel=1e-5)


def test_a_run_without_numbers_loads(tmp_path):
    Run("x", "small", {}, folder=tmp_path).save()
    assert len(load_run(tmp_path).numbers) == 0 == len(load_run(tmp_path).claims)


def test_add_refuses(tmp_path):
    run = make(tmp_path)
    before = run.numbers
    for error, match, call in [
            (ValueError, "added before, as 59.1235",
             lambda: run.add("pixel_table5", "A + S_n | de", "en", 59.1235)),
            (ValueError, "is nan", lambda: run.add("t", "r", "c", math.nan)),
            (ValueError, "is inf", lambda: run.add("t", "r", "c", np.inf)),
            (ValueError, "low of t: r, c is nan", lambda: run.add("t", "r", "c", 1, low=math.nan, high=2)),
            (ValueError, "has one bound", lambda: run.add("t", "r", "c", 1, high=2)),
            (ValueError, "above high", lambda: run.add("t", "r", "c", 1, low=3, high=2)),
            (ValueError, "one line of text", lambda: run.add("t", "r\r", "c", 1)),
            (ValueError, "one line of text", lambda: run.add("t", "", "c", 1)),
            (TypeError, "expected a number", lambda: run.add("t", "r", "c", "n/a")),
            (ValueError, "is nan", lambda: run.add_seeds("t", "r", "c", [1, math.nan])),
            (ValueError, "no value from any seed", lambda: run.add_seeds("t", "r", "c", [])),
            (ValueError, "named before", lambda: run.data("stsb", revision="def")),
            (ValueError, "settled before", lambda: run.claim("pixel-10", not_run())),
            (TypeError, "comes from settle", lambda: run.claim("pixel-11", "holds")),
            (ValueError, "no claim", lambda: run.claim("pixel-15", not_run())),
            (ValueError, "claim pixel-11, 'difference > 0, whole interval': value nan",
             lambda: run.claim("pixel-11", run.cell("no table", "typo", "b") > 0)),
            (ValueError, "claim pixel-11", lambda: run.claim_on_base("b", "pixel-11", settle((0, math.inf)))),
            (TypeError, "JSON", lambda: run.note("x", object())),
            (ValueError, "profile='tiny'", lambda: Run("x", "tiny", {}, folder=tmp_path))]:
        with pytest.raises(error, match=match): call()
    pd.testing.assert_frame_equal(run.numbers, before)


def test_one_seed_has_no_interval(tmp_path):
    run = Run("x", "small", {}, folder=tmp_path)
    assert run.add_seeds("t", "r", "c", [3.5]) == 3.5
    assert run.numbers[["low", "high"]].isna().all(axis=None) and run.numbers["n_seeds"].tolist() == [1]


def test_a_failing_save_leaves_the_old_files(tmp_path, monkeypatch):
    run = make(tmp_path)
    run.save()
    old = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    run.add("t", "r", "c", 1)
    write = Path.write_bytes
    def full(path, content):
        if path.suffix == ".json": raise OSError(28, "No space left on device")
        return write(path, content)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"): run.save()
    monkeypatch.undo()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == old
    load_run(tmp_path)


def test_an_edited_number_is_noticed(tmp_path):
    make(tmp_path).save()
    path = tmp_path/"numbers.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("59.1235", "79.1235"), encoding="utf-8")
    with pytest.raises(ValueError, match="edited by hand"): load_run(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing was run"): load_run(tmp_path/"nowhere")


def draws(folder, **figures):
    "A run that draws these: name -> what its csv says."
    run = make(folder)
    for name, text in figures.items():
        for kind in ("svg", "png", "pdf", "csv"): write_atomic(folder/f"{name}.{kind}", text)
    return run.save()


def test_a_run_stands_with_its_own_figures_alone(tmp_path):
    for name in ("mine.png", "mine.csv"): (tmp_path/name).write_text("of the user")
    figures = load_run(draws(tmp_path, first="1", second="2")).details["figures"]
    assert [*figures] == ["first.csv", "first.png", "second.csv", "second.png"]
    (tmp_path/"first.png").write_text("newer than the numbers")
    with pytest.raises(ValueError, match="first.png is not the file that run.json describes"):
        load_run(tmp_path)
    figures = load_run(draws(tmp_path, second="2")).details["figures"]
    assert [*figures] == ["second.csv", "second.png"] and not list(tmp_path.glob("first.*"))
    assert (tmp_path/"mine.png").read_text() == "of the user" == (tmp_path/"mine.csv").read_text()
    (tmp_path/"second.png").unlink()
    assert len(load_run(tmp_path).numbers), "a figure that is not there passes for none"


def test_a_figure_drawn_again_changes_no_file(tmp_path, capsys):
    draws(tmp_path, first="1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    draws(tmp_path, first="1")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert capsys.readouterr().out.count("nothing has changed") == 1
    draws(tmp_path, first="2")
    assert load_run(tmp_path).details["figures"]


def test_what_no_run_has_drawn_is_left_alone(tmp_path):
    for kind in ("svg", "png", "pdf", "csv"): (tmp_path/f"holiday.{kind}").write_text("of the user")
    for text in ("1", "2"): draws(tmp_path, first=text)
    assert len(list(tmp_path.glob("holiday.*"))) == 4


def test_run_json_records_the_commit(tmp_path, monkeypatch):
    def git(*words):
        return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
                              cwd=tmp_path,
                                           check=True, capture_output=True, text=True).stdout.strip()
    (tmp_path/"settings.ini").write_text("[DEFAULT]\nlib_name = sentnb\n")
    monkeypatch.setenv("SENTNB_ROOT", str(tmp_path))
    outside = results.code_state()
    assert outside["commit"] is None and outside["dirty"] is None and "git" in outside["reason"]
    git("init", "-q"); git("add", "settings.ini"); git("commit", "-qm", "one")
    assert results.code_state() == dict(commit=git("rev-parse", "HEAD"), dirty=False, reason=None)
    (tmp_path/"figures").mkdir(); (tmp_path/"figures"/"x.svg").write_text("made by a run")
    assert results.code_state()["dirty"] is False
    (tmp_path/"new.py").write_text("1")
    assert results.code_state()["dirty"] is True
    monkeypatch.setenv("PATH", "")
    assert results.code_state()["reason"] == "git is not installed"


def test_default_folder_is_the_experiments(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    assert Run("05_leapfrog", "small", {}).save() == tmp_path/"05_leapfrog"/"small"


def test_no_run_silently_replaces_another(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    monkeypatch.delenv("SENTNB_REPLACE", raising=False)
    settings = dict(steps=7, sizes=(1, 2), device="cpu")
    def folder(seed=0, **other): return Run("05_leapfrog", "small", settings | other, seed).folder.name
    first = Run("05_leapfrog", "small", settings)
    first.settings["word"] = "typo"   # recorded on the way
    assert folder(steps=1) == "small", "nothing stands there yet"
    first.save()
    kept = {path: path.read_bytes() for path in (tmp_path/"05_leapfrog"/"small").iterdir()}
    capsys.readouterr()
    assert folder() == folder(device="cuda") == "small" and not capsys.readouterr().out
    others = [folder(steps=8), folder(sizes=[1]), folder(seed=1), folder(data="public")]
    assert all(re.fullmatch("small-[0-9a-f]{8}", name) for name in others) and len(set(others)) == 4
    reported = capsys.readouterr().out.splitlines()
    assert len(reported) == 4 and "(steps: 7, here 8): this run goes to" in reported[0] and others[
        0] in reported[0]
    assert "sentnb run --replace" in reported[0] and "data: not set, here public" in reported[3]
    assert folder(device="cuda", steps=8) == others[0], "the key is of what was asked for"
    Run("05_leapfrog", "small", settings | dict(steps=8)).save()
    assert kept == {path: path.read_bytes() for path in kept}
    monkeypatch.setenv("SENTNB_REPLACE", "1")
    assert folder(steps=8) == "small" and "this run replaces it" in capsys.readouterr().out


def test_two_runs_at_once_do_not_share_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    monkeypatch.delenv("SENTNB_REPLACE", raising=False)
    code = ("from sentnb.results import Run; run = Run('05_leapfrog', 'small', dict(steps=7)); "
            "print(run.folder.name, flush=True); input(); run.add('t', 'r', 'c', 7); run.save()")
    first = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
    assert first.stdout.readline() == "small\n"
    assert Run("05_leapfrog", "small", dict(steps=7)).folder.name == "small", "the same run"
    second = Run("05_leapfrog", "small", dict(steps=8))
    assert f"process {first.pid} runs with other settings in" in capsys.readouterr().out
    monkeypatch.setenv("SENTNB_REPLACE", "1")
    assert Run("05_leapfrog", "small", dict(steps=8)).folder == second.folder, "only what stands is replaced"
    second.add("t", "r", "c", 8)
    second.save()
    first.communicate("\n")
    assert load_run(tmp_path/"05_leapfrog"/"small").numbers["value"].tolist() == [7]
    assert load_run(second.folder).numbers["value"].tolist() == [8] != [7]
    assert not list(tmp_path.rglob(".running"))


def test_a_run_that_was_killed_holds_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    code = "import os; from sentnb import results; results.Run('05_leapfrog', 'small', {'a': 7}); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 9
    assert (tmp_path/"05_leapfrog"/"small"/".running").is_file()
    assert Run("05_leapfrog", "small", dict(a=8)).save().name == "small"


def test_a_record_that_cannot_be_read_is_not_replaced_either(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SENTNB_FIGURES", str(tmp_path))
    monkeypatch.delenv("SENTNB_REPLACE", raising=False)
    folder = Run("05_leapfrog", "small", {}).save()
    for broken in ("<<<<<<< ours", "[]", "{}"):
        (folder/"run.json").write_text(broken)
        assert Run("05_leapfrog", "small", {}).folder != folder
        assert "cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize("content, problem", [("[]", "is not the record"), ("{}", "is not the record"),
                                              ("{ half", "is not JSON")])
def test_a_record_that_cannot_be_read_is_named_and_may_be_written_again(content, problem, tmp_path):
    Run("05_leapfrog", "small", {}, folder=tmp_path).save()
    (tmp_path/"run.json").write_text(content)
    with pytest.raises(ValueError, match=f"run.json {problem}.*run the notebook again"): load_run(tmp_path)
    Run("05_leapfrog", "small", {}, folder=tmp_path).save()
    assert load_run(tmp_path).notebook == "05_leapfrog"


def test_a_negative_factor_keeps_low_below_high(tmp_path):
    run = Run("05_leapfrog", "small", {}, folder=tmp_path)
    run.add("pixel_table5", "A + S_n | de", "en", -5, -6, -4)
    comparison = results.compare(run, "pixel_table5", factor=-1)
    measured = comparison[comparison["scale"] != "not run"]
    assert measured[["ours", "low", "high"]].to_numpy().tolist() == [[5, 4, 6]]


def saved(folder: Path, claim: str="holds", lead: float=0.01, **numbers: float) -> Record:
    "A run with these numbers, a lead near nought, and a claim."
    run = Run("05_leapfrog", "small", {}, folder=folder)
    for name, value in numbers.items(): run.add("table", name, "column", value)
    run.add("table", "lead", "column", lead, -1.5, 1.5, n_seeds=3)
    run.claim("pixel-10", settle(dict(holds=(1, 2), fails=(-2, -1))[claim]))
    return load_run(run.save())


def test_difference(tmp_path):
    first = saved(tmp_path/"a", mean=45.3127, small=1e-5)
    assert difference(first, first, tolerance=0).empty
    for numbers, where in (
            (dict(mean=45.3124, small=1e-5), []), (dict(mean=45.32, small=1e-5), ["table: mean, column"]),
            (dict(mean=45.3127, small=1.1e-5), ["table: small, column"]),
            (dict(mean=45.3127, small=1e-5, lead=0.0101), []),
            (dict(mean=45.3127, small=1e-5, lead=0.02), ["table: lead, column"]),
            (dict(mean=45.3127), ["table: small, column"]),
            (dict(mean=45.3127, small=1e-5, new=1), ["table: new, column"]),
            (dict(mean=45.3127, small=1e-5, claim="fails"), ["pixel-10, verdict"])):
        second = saved(tmp_path/"b", **numbers)
        for pair in ((first, second), (second, first)): assert [*difference(*pair)["where"]] == where
    reported = difference(first, saved(tmp_path/"b", mean=45.32, small=1e-5), tolerance=1e-5).iloc[0]
    assert (reported["first"], reported["second"]) == (45.3127, 45.32) and 1e-4 < reported["moved"] < 2e-4
    with pytest.raises(ValueError, match="tolerance=-1: expected at least 0"): difference(first, first, -1)


def test_two_numbers_whose_names_read_alike_are_two(tmp_path):
    def record(name, *values):
        run = Run("05_leapfrog", "small", {}, folder=tmp_path/name)
        for cell, value in zip((("t", "a, b", "c"), ("t", "a", "b, c")), values): run.add(*cell, value)
        return load_run(run.save())
    moved = difference(record("a", 1, 2), record("b", 1.5, 2))
    assert moved[["where", "first", "second"]].to_numpy().tolist() == [["t: a, b, c", 1, 1.5]]


def test_a_demo_settles_nothing(tmp_path):
    claims = make(tmp_path, "demo").claims.set_index("claim")
    assert claims.loc["pixel-10", "verdict"] == "demonstration"
    assert claims.loc["pixel-9", "verdict"] == "not run"
    assert not set(claims["verdict"]) & {"holds", "fails"} and "'holds'" in claims.loc["pixel-10", "evidence"]
    assert make(tmp_path).claims.set_index("claim").loc["pixel-10", "verdict"] == "holds"


# Beside the paper

def test_compare(tmp_path):
    run = make(tmp_path)
    run.add("pixel_table5", "our own setting", "en", 1.0)
    run.save()
    for source in (run, load_run(tmp_path)):
        comparison = compare(source, "pixel_table5")
        assert len(comparison) == 241 and comparison["scale"].value_counts().to_dict() == {"not run": 238,
                                                                                           "small": 3}
        cell = comparison[(comparison["row"] == "A + S_n | de") & (comparison["column"] == "en")].iloc[0]
        assert (cell["paper"], cell["ours"], cell["difference"]) == (77.40, 59.1235, pytest.approx(-18.2765))
        assert comparison.iloc[-1]["row"] == "our own setting" and math.isnan(comparison.iloc[-1]["paper"])
        absent = comparison[comparison["scale"] == "not run"]
        assert absent[["ours", "low", "high", "difference"]].isna().all(axis=None)


def test_compare_maps_names_and_units(tmp_path):
    run = Run("x", "small", {}, folder=tmp_path)
    run.add("mine", "cycle 1", "English", 0.6, low=0.5, high=0.7)
    comparison = compare(run, "mine", "pixel_table5", {"cycle 1": "P_10 + A | Iter.1"}, {"English": "en"},
                         factor=100)
    found = comparison[comparison["scale"] == "small"]
    assert len(comparison) == 240 and len(found) == 1
    assert found[["row", "column", "paper", "ours", "low",
                  "high"]].to_numpy().tolist() == [["P_10 + A | Iter.1", "en", 79.46, 60, 50, 70]]
    assert run.numbers["value"].tolist() == [0.6]
    with pytest.raises(ValueError, match="has no column 'english'"):
        compare(run, "mine", "pixel_table5", columns={"English": "english"})


def test_a_demo_never_stands_beside_a_paper_unmarked(tmp_path):
    run = make(tmp_path, "demo")
    run.save()
    for source in (run, load_run(tmp_path)):
        with pytest.raises(ValueError, match="demonstration"): compare(source, "pixel_table5")
        comparison = compare(source, "pixel_table5", demonstration=True)
        assert set(comparison["scale"]) == {"not run", "demo (demonstration)"}
        assert "demo (demonstration)" in results.to_markdown(comparison)
        assert "demo (demonstration)" in results.to_html(comparison)


@pytest.mark.parametrize("table", results.tables())
def test_what_was_not_run_says_so(table):
    comparison = compare(None, table)
    assert set(comparison["scale"]) == {"not run"} and len(comparison) == len(results.published(table))
    wide = results.side_by_side(comparison)
    assert sum(cell.endswith("/ not run") for cell in wide.to_numpy().ravel()) == len(comparison)


def test_side_by_side_is_laid_out_as_in_the_paper(tmp_path):
    comparison = compare(make(tmp_path), "pixel_table5")
    wide = results.side_by_side(comparison, digits=1, intervals=True)
    assert wide.shape == (16, 15) and list(wide.columns[:10]) == LANGUAGES and wide.index[0] == "A + S_n | de"
    assert wide.loc["A + S_n | de", "en"] == "77.40 / 59.1"
    assert wide.loc["A + S_n | de", "zh"] == "23.51 / 0.0 [-1.0, 1.0]"
    lines = results.to_markdown(comparison).splitlines()
    assert len(lines) == 18 and {line.replace("\\|", "").count("|") for line in lines} == {17}
    html = results.to_html(comparison)
    assert html.count("<tr>") == 17 and html.count("<td>") == 240 and "<b>59.12</b>" in html


def test_needs_no_torch():
    code = ("import sys\nimport sentnb.results as r\nr.hardware(); r.versions(); r.peak_memory()\n"
            "print('torch' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True,
                          text=True).stdout.strip() == "False"
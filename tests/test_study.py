"""What experiments begin and end with: the table, what is recorded, what is kept and what is cleared."""
import json
import os
import re
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings as with_settings, strategies as st

from sentnb import results
from sentnb.encoders.base import TextsTruncated, report_truncation
from sentnb.experiments.study import Study, warmup_steps
from sentnb.training import Branch, Stage
from sentnb.training.branches import TimeIsUp
from training_runs import tiny

TABLE = dict(
    data=dict(
        source    = ("microworld", "public", "papers")),
    training=dict(
        seeds     = (2,            3,        1),
        steps     = (4,            500,      20_000),
        precision = ("no",         "bf16",   "no")))
COMPUTES = TABLE | dict(training=TABLE["training"] | dict(threads=(1, 1, None)))


@pytest.fixture(autouse=True)
def study_folder(tmp_path, monkeypatch) -> Path:
    "Figures and cache of these tests; the environment as it was when they are over."
    for variable in ("SENTNB_FIGURES", "SENTNB_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path/variable[7:].lower()))
    for library in ("OMP", "OPENBLAS", "MKL"): monkeypatch.setenv(f"{library}_NUM_THREADS", "2")
    monkeypatch.setenv("TQDM_DISABLE", "1")
    return tmp_path


# The beginning

def test_what_is_cut_is_not_said_in_an_experiment(recwarn):
    warnings.simplefilter("always")
    for expected in ([TextsTruncated], []): # before, and in a study
        report_truncation(1, 2, "at 64 patches")
        assert [warning.category for warning in recwarn.list] == expected
        recwarn.clear()
        Study("98_x", TABLE)


def test_one_column_with_its_overrides():
    study = Study("98_x", TABLE, "small", seed=5, overrides=dict(steps=7))
    assert study.settings == dict(source="public", seeds=3, steps=7, precision="bf16")
    assert study.seeds == study.run.settings["seeds"] == [5, 6, 7] and study.run.seed == 5
    assert list(study.table.columns) == ["demo", "small", "paper"]
    assert study.table.loc[("training", "steps"), "small"] == 500
    assert study.data.source == "public" and study.training.steps == 7
    assert Study("98_x", TABLE, seeds=1).seeds == [0]
    assert Study("98_x", dict(training=dict(steps=(1, 2, 3))), seed=4).seeds == [4]


def test_an_override_that_is_no_setting_is_refused():
    message = "no setting 'stpes'; did you mean 'steps'. there are source, seeds, steps, precision"
    with pytest.raises(ValueError, match=message): Study("98_x", TABLE, overrides=dict(stpes=3, batch=2))
    with pytest.raises(ValueError, match="profile='papre'"): Study("98_x", TABLE, "papre")
    with pytest.raises(ValueError, match="2 columns, expected 3"):
        Study("98_x", dict(training=dict(steps=(1, 2))))


@pytest.mark.parametrize("table, message", [
    (dict(steps=(1, 2, 3)), "table has steps: expected the groups data, model, training, evaluation"),
    (dict(data=dict(a=(1, 2, 3)), model=dict(a=(1, 2, 3))), "table has a more than once")])
def test_a_table_has_the_four_groups(table, message):
    with pytest.raises(ValueError, match=message): Study("98_x", table)


def test_a_group_names_the_settings_that_it_has():
    study = Study("98_x", TABLE)
    with pytest.raises(AttributeError, match="training has no setting 'stpes'; it has seeds, steps, "
                                             "precision"):
        study.training.stpes
    with pytest.raises(AttributeError): study.training.steps = 5


MIXED = dict(training=dict(lr=(1e-3, 1e-4, None), steps=(1, 2, 3), tests=(["a"], None, ("a",)),
                           warmup=(.1, .1, {"a": .2}), head=(False, False, True), extra=(None, None, None)))


@pytest.mark.parametrize("right", [dict(lr=1), dict(lr=None), dict(tests=("b",)), dict(warmup={"a": 0}),
                                   dict(head=True), dict(extra="anything"), dict(steps=7)])
def test_overrides_of_the_right_type(right):
    (name, value), = right.items()
    assert getattr(Study("98_x", MIXED, overrides=right).training, name) == value


@pytest.mark.parametrize("wrong, message", [
    (dict(lr="1e-3"), "lr='1e-3': expected a value of type None or float"),
    (dict(steps=1.5), "steps=1.5: expected a value of type int"), (dict(steps=None), "steps=None"),
    (dict(head=1), "head=1: expected a value of type bool"), (dict(steps=True), "steps=True"),
    (dict(tests="a"), "tests='a': expected a value of type None or list or tuple")])
def test_overrides_of_another_type_are_refused(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)): Study("98_x", MIXED, overrides=wrong)


def test_the_source_of_each_number_is_shown():
    table = Study("98_x", TABLE, sources={"the paper, sec. 4": ["steps"]}).table
    assert table.loc[("training", "steps"), "source of paper"] == "the paper, sec. 4"
    assert table.loc[("training", "seeds"), "source of paper"] == "sentnb"
    for names in (["steps", "steps"], ["stpes"]):
        with pytest.raises(ValueError, match=f"sources: {names[0]}: expected each setting once"):
            Study("98_x", TABLE, sources={"the paper": names})


def test_substitutes_are_recorded():
    table = TABLE | dict(model=dict(base=("tiny", "small", None), starts=(["a", "b"], ["c"], []),
                                    bases=({"RoBERTa": "d"}, {}, {})))
    named = {"BERT": "base", "PIXEL": "starts", "RoBERTa": "bases"}
    study = Study("98_x", table, substitutes_for=named)
    assert study.run.substitutes_for == {"BERT": "tiny", "PIXEL": "a", "RoBERTa": "d"}
    assert Study("98_x", table, "paper", substitutes_for=named).run.substitutes_for == {}
    with pytest.raises(ValueError, match="substitutes_for: BERT: no setting 'bsae'"):
        Study("98_x", table, substitutes_for={"BERT": "bsae"})


@pytest.mark.parametrize("wrong", [dict(seeds=-1), dict(seeds="abc"), dict(seed=1.5), dict(resume="no"),
                                   dict(minutes=0), dict(overrides=["steps"])])
def test_values_that_cannot_be_are_refused(wrong):
    (name, value), = wrong.items()
    with pytest.raises(ValueError, match=re.escape(f"{name}={value!r}: expected")):
        Study("98_x", TABLE, **wrong)


def test_fewer_seeds_are_another_run(capsys):
    study = Study("98_x", COMPUTES)
    study.record(word="typo")
    study.finish()
    assert [Study("98_x", COMPUTES, **other).run.folder.name == "demo" for other in (
        {}, dict(overrides=dict(steps=4)), dict(seeds=1), dict(seed=3), dict(overrides=dict(steps=9)))
        ] == [True, True, False, False, False]


def test_it_unpacks(study_folder):
    study = Study("98_x", COMPUTES)
    settings, run, store, seeds, device = study
    assert settings is study.settings and isinstance(run, results.Run) and seeds == [0, 1]
    assert store.is_dir() and store.parent == study_folder/"cache"/"98_x"
    assert device in ("cpu", "cuda") and run.settings["device"] == device


@pytest.mark.parametrize("supported, computed", [(True, "bf16"), (False, "no")])
def test_options_of_the_training(supported, computed, study_folder, monkeypatch, capsys):
    "bf16 only where the CPU has instructions for it, and a run says what it computes instead."
    monkeypatch.setattr("torch.ops.mkldnn._is_mkldnn_bf16_supported", lambda: supported)
    monkeypatch.setattr(Study, "device", "cpu")
    study = Study("98_x", COMPUTES, "small", show_progress=False, minutes=2)
    options = study.training_options("bf16", piece_steps=200, dev_key=[5])
    until = options.pop("until")
    assert options == dict(
        mixed_precision=computed, piece_steps=200, workers=0, show_progress=False, dev_key=[5]
    )
    assert 110 < until - time.monotonic() <= 120
    assert ("float32 instead of bf16" in capsys.readouterr().out) is not supported
    study.finish()
    assert ("precision" in results.load_run(study.run.folder).details["notes"]) is not supported
    assert Study("98_x", TABLE).training_options() == dict(
        mixed_precision="no", workers=0, show_progress=True, until=None
    )


def test_warmup_is_a_share_of_the_steps():
    assert warmup_steps(.1, 50) == 5 and warmup_steps(.1, 2) == 1
    assert warmup_steps(dict(visual=.5, topical=.1), 10, "visual") == 5


def test_a_gpu_gets_workers_that_draw_ahead(monkeypatch):
    monkeypatch.setattr(Study, "device", "cuda")
    for cores, processes, workers in ((1, 1, 0), (3, 1, 2), (16, 1, 4), (16, 8, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        monkeypatch.setenv("WORLD_SIZE", "1")
        study = Study("98_x", TABLE)
        monkeypatch.setenv("WORLD_SIZE", str(processes))
        assert study.training_options()["workers"] == workers


def test_seeds_decide_what_is_drawn():
    import random
    import torch
    def draws(seed):
        Study("98_x", COMPUTES, seed=seed)
        return random.random(), np.random.random(), torch.rand(1).item()
    assert draws(3) == draws(3) and not set(draws(3)) & set(draws(4))


def test_threads_and_where_they_wait(python):
    code = """
import os
from sentnb.experiments.study import Study, warmup_steps
import sys
print(os.environ.get("OMP_WAIT_POLICY"), "torch" in sys.modules)
Study("98_x", dict(training=dict(seeds=(1, 1, 1))))
print("torch" in sys.modules)
study = Study("98_x", dict(training=dict(threads=(1, 1, 1))))
import torch
from threadpoolctl import threadpool_info
assert {pool["num_threads"] for pool in threadpool_info()} == {1}
print(torch.get_num_threads(), study.run.settings["device"] == study.device)
"""
    environment = dict(OMP_WAIT_POLICY="ACTIVE")
    assert python(code, **environment).splitlines() == ["ACTIVE False", "False", "1 True"]
    unset = "import os; os.environ.pop('OMP_WAIT_POLICY')\n"
    assert python(unset + code, **environment).startswith("PASSIVE False\nFalse\n")
    late = unset + "import torch, warnings\nwarnings.simplefilter('error')\n" + code
    with pytest.raises(AssertionError, match="torch was imported before sentnb"):
        python(late, **environment)


def test_bars_are_silenced_whenever_tqdm_was_loaded(python):
    code = """
import io
from tqdm import tqdm
from sentnb.experiments.study import Study, warmup_steps
Study("98_x", dict(training=dict(seeds=(1, 1, 1))), show_progress=False)
Study("98_x", dict(training=dict(seeds=(1, 1, 1))), show_progress=False)
file = io.StringIO()
for _ in tqdm(range(3), file=file): pass
print(repr(file.getvalue()))
for _ in tqdm(range(3), file=file, disable=False): pass
print(bool(file.getvalue()))
"""
    assert python(code, TQDM_DISABLE="0").splitlines() == ["''", "True"], "who asks for a bar has it"


# The store

def test_a_store_of_each_process_where_nothing_is_resumed():
    assert Study("98_x", TABLE).store.name == f"demo-{os.getpid()}"
    assert Study("98_x", TABLE, resume=True).store.name == "demo"
    assert Study("98_x", TABLE, "small").store.name == "small"
    assert Study("98_x", TABLE, "small", resume=False).store.name == f"small-{os.getpid()}"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8)


@given(PLAIN)
@with_settings(max_examples=60, deadline=None)
def test_what_json_says_comes_back(value):
    study, called = Study("98_x", TABLE), []
    def compute():
        called.append(1)
        return value
    assert [study.cached("plain", json.dumps(value), compute) for _ in range(2)] == [value, value]


def test_computed_once_for_each_key_and_name():
    study, called = Study("98_x", TABLE), []
    def compute():
        called.append(1)
        return len(called)
    keys = [("test", "a"), ("test", ["a", 1]), ("test", ["a", 2]), ("dev", "a"), ("test", "a"), ("dev", "a")]
    assert [study.cached(name, key, compute) for name, key in keys] == [1, 2, 3, 4, 1, 4]
    assert Study("98_x", TABLE).cached("test", "a", compute) == 1, "another study of this process finds it"
    assert Study("98_x", TABLE, "small").cached("test", "a", compute) == 5


def test_arrays_come_back_as_arrays():
    study = Study("98_x", TABLE)
    cosines = np.random.default_rng(0).normal(size=(3, 4))
    nested = dict(a=cosines, b=[np.float32(.1), np.int64(3)], c=(1., 2.), d=dict(e=cosines > 0))
    value = study.cached("nested", "key", lambda: nested)
    np.testing.assert_array_equal(value["a"], cosines)
    assert value["a"].dtype == np.float64 and value["d"]["e"].dtype == bool
    assert value["b"] == [np.float32(.1).item(), 3] and value["c"] == [1., 2.]
    whole = study.cached("vectors", "key", lambda: cosines.astype(np.float16))
    assert whole.dtype == np.float16 and study.cached("vectors", "key", pytest.fail).dtype == np.float16


def test_a_curve_that_was_stopped_goes_on():
    "Its stages continue one another, and nothing is measured twice; with one more point it is another curve."
    study, scored = Study("98_x", TABLE), []
    def make_stage(steps): return Stage("pilot", [("red", "new"), ("blue", "old")], steps=steps, batch_size=2)
    root = Branch.root(tiny(), study.store).grow("before", make_stage(1))
    def score(encoder):
        scored.append(float(encoder.vit.layernorm.weight.detach().norm()))
        return scored[-1]
    def measure(points, evaluate, **options):
        return study.measure_curve("pilot", root, make_stage, points, evaluate, key="norm", seed=0, **options)
    with pytest.raises(TimeIsUp): measure([1, 3], score, until=0.)
    curve = measure([1, 3], score)
    assert list(curve) == [0, 1, 3] and list(curve.values()) == scored and len(set(scored)) == 3
    assert measure([1, 3], pytest.fail) == curve and measure(None, pytest.fail) == {}
    assert measure(iter([1, 3]), pytest.fail) == curve and measure(iter([]), pytest.fail) == {}
    longer = measure([1, 3, 4], score)
    assert {steps: longer[steps] for steps in curve} == curve and len(scored) == 7
    assert not list(study.store.glob("pilot-*")), "the encoders are not kept"
    assert root.folder.is_dir(), "where the curve begins is kept"


@pytest.mark.parametrize("value, message", [
    ({1: 2}, "has the key 1"), ([object()], "a value of type object cannot be cached"),
    (dict(a={2.5}), "a value of type set cannot be cached")])
def test_what_json_cannot_say_is_refused(value, message):
    study = Study("98_x", TABLE)
    with pytest.raises(TypeError, match=message): study.cached("wrong", "key", lambda: value)
    assert study.cached("wrong", "key", lambda: 3) == 3, "nothing was left"


def test_a_compute_that_fails_leaves_nothing():
    study = Study("98_x", TABLE)
    with pytest.raises(ZeroDivisionError): study.cached("test", "key", lambda: 1/0)
    assert not list(study.store.rglob("*test*"))


# The end

def test_finish_saves_and_clears_what_is_not_resumed(capsys):
    for resume in (False, True):
        study = Study("98_x", COMPUTES, resume=resume)
        study.run.add("table", "row", "column", 1.)
        study.cached("test", "key", lambda: 1)
        study.record(word="typo", sizes=(1, 2))
        study.finish()
        assert study.store.exists() == resume or not list(study.store.iterdir())
        output = capsys.readouterr().out
        assert "figures: none" in output and re.search(r"table: .*98_x/demo/numbers.csv", output)
        recorded = json.loads((study.run.folder/"run.json").read_text())
        assert recorded["settings"]["word"] == "typo" and recorded["settings"]["sizes"] == [1, 2]
        assert results.load_run(study.run.folder).numbers["value"].tolist() == [1.]


def test_what_draws_is_recorded():
    from sentnb.renderer import RenderConfig, TextRenderer
    study = Study("98_x", TABLE)
    class Tokens: ...
    study.record_fonts(TextRenderer(RenderConfig(strategy="words")), Tokens())
    folder = study.run.save()
    recorded = json.loads((folder/"run.json").read_text())
    assert recorded["fonts"] and {"pango", "cairo"} <= set(recorded["versions"])


def test_branches_are_noted():
    from types import SimpleNamespace
    study = Study("98_x", TABLE)
    branch_fields = dict(key="abc", parent="def", seconds=1.234, commits=("c1", "c2+"))
    cut = [dict(loss=1), dict(truncated={"at 9 patches": 3, "at 8 patches": 1}),
           dict(truncated={"at 9 patches": 1})]
    study.record_branches({"+ allNLI": SimpleNamespace(**branch_fields, history=[dict(loss=1)]),
                         "+ long": SimpleNamespace(**branch_fields, history=cut)})
    recorded = json.loads((study.run.save()/"run.json").read_text())
    known = dict(key="abc", parent="def", seconds=1.2, commits=["c1", "c2+"])
    assert recorded["notes"]["branches"] == {"+ allNLI": known, "+ long": known | dict(texts_truncated=5)}

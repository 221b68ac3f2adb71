"""The paper profile of each experiment, end to end and from a Hub of its own (`fake_hub`): what is loaded by
name is loaded as it will be, at the declared commits; only the numbers that cost time are small.

Nothing is entered here for a new experiment: what is small is read from its table."""
import ast
import csv
import functools
import json
from pathlib import Path

import datasets # noqa: F401  its settings are read when it is imported: before a test sets HF_HOME
import pytest
from experiment_runs import copy_without_example
from fake_hub import keep_public_files

from sentnb import experiments
from sentnb.experiments.notebooks import read_table

ROOT = Path(__file__).resolve().parent.parent
# trees: spaCy is an extra; images, sounds, captions: the declared ones are in no Hub, but in a mirror
SMALL = dict(trees="microworld", images="microworld", blurry=None, sounds="microworld", no_speech=None,
             captions="microworld", threads=1, seeds=1, pairs=10, redraws=5, draws=2, repetitions=1,
             authors={"SCD": dict(steps=1)}, tension="paper", # eight sentences are no released batch
             larger_steps={"P_18": 2, "P_XL": 2},
             piece_of_base=1, piece_sizes=dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2),
             simcse_changes={}, # RoBERTa's 1,953 steps of 512
             questions=["negatives", "ensembling"],
             space=dict(batch=[16], warmup=[2], dropout=[0, .1], gating=[16], hidden=[32], margin=[.1, .2]),
             growth_sentences=[20, 50], growth_characters=[1, 100], growth_vectors=[50, 100],
             stream=[512, 768], streams=["sentences"], render_sentences=64, encode_sentences=64,
             library_texts=16, library_scored=5, mined_sentences=50, sts_pairs=50)
MOST = dict(steps=2, batch=8, queue=8, warmup=1, texts=300, distillation_texts=40, distillation_seen=200,
            _sentences=64, fitted=200, permutations=20, transfer_train=100) # of every row whose name ends so
AS_PUBLISHED = ("patches", "limit", "length", "tokens") # and these stay
# rows of Table 5 that an experiment trains at paper alone, and what they need
LARGER = {"05_leapfrog": (dict(iterations=3), {*(f"P_18 + A | Iter{i}" for i in (1, 2, 3)), "P_XL | Iter3"})}
AGAIN = ("15_beyond",) # once more without a network: encoders of pictures and of tokens


def literal(node: ast.AST, named: dict[str, ast.AST]):
    "The value of an expression of literals, and of names that are given to literals; None of another."
    try: return ast.literal_eval(named.get(getattr(node, "id", ""), node))
    except ValueError: return None


@functools.cache
def table_of(path: Path) -> dict[str, tuple]:
    "Setting -> its values at demo and at paper, from the notebook's table."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    named = {node.targets[0].id: node.value for node in nodes
             if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    rows = {name: row.elts for group in read_table(path).values() for name, row in group.items()}
    return {name: (literal(row[0], named), literal(row[2], named)) for name, row in rows.items()}


def small(name: str, demo, paper):
    "What costs little: the smaller number, the shorter list (None is all), as many of the names."
    if name in SMALL: return SMALL[name]
    if paper is None and name.startswith("pilot_"): return None # there is no pilot at paper
    if isinstance(demo, (list, tuple)) and demo and isinstance(demo[0], str):
        return paper and list(paper[:len(demo)]) # names at paper are others
    if isinstance(demo, (list, tuple)) and isinstance(paper, (list, tuple, type(None))):
        return demo if paper is None or len(demo) <= len(paper) else paper
    if type(demo) is int and type(paper) in (int, type(None)) and not name.endswith(AS_PUBLISHED):
        limits = [most for end, most in MOST.items() if name.endswith(end)]
        return min(demo, demo if paper is None else paper, *limits)
    return paper


def overrides(path: Path) -> dict:
    "The settings to replace."
    values = {name: small(name, demo, paper) for name, (demo, paper) in table_of(path).items()}
    return {name: value for name, value in values.items() if value != table_of(path)[name][1]}


EXPERIMENTS = [path for path in sorted((ROOT/"nbs").glob("[0-9]*.ipynb"))
               if table_of(path).get("source", ("microworld", None))[1] not in ("microworld", None)]


@pytest.fixture
def hub(paper_hub): return paper_hub


@pytest.fixture
def at_paper(hub, tmp_path_factory, tmp_path, monkeypatch, warm_kernels):
    "Run a notebook at paper, or up to the end of a section: at_paper(path, offline=False) -> its folder."
    home = hub.folder/"home" # one cache for all
    places = dict(SENTNB_FIGURES=tmp_path/"figures", SENTNB_CACHE=tmp_path/"cache", HF_HOME=home,
                  HF_ENDPOINT=hub.address, HF_HUB_DISABLE_XET="1",
                  # hundreds of files of a few lines each: a bar takes longer than its file
                  HF_DATASETS_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
    for variable, value in places.items(): monkeypatch.setenv(variable, str(value))
    monkeypatch.delenv("SENTNB_HUB", raising=False)
    keep_public_files(tmp_path/"cache")
    def run(path, offline=False, last=None, **more):
        monkeypatch.setenv("HF_HUB_OFFLINE", str(int(offline)))
        copy = copy_without_example(path, tmp_path/"copies", last)
        values = dict(overrides=overrides(path) | more, show_progress=False)
        experiments.run(copy, "paper", values, progress=False)
        return tmp_path/"figures"/path.stem/"paper"
    return run


def numbers(folder):
    with open(folder/"numbers.csv", newline="", encoding="utf-8") as file: return list(csv.DictReader(file))


def runs_at_paper(path, at_paper, hub):
    hub.asked.clear()
    more, rows = LARGER.get(path.stem, ({}, set()))
    folder = at_paper(path, **more)
    assert rows <= {number["row"] for number in numbers(folder)}
    assert len(numbers(folder)) > 5
    record = json.loads((folder/"run.json").read_text(encoding="utf-8"))
    assert record["profile"] == "paper" and hub.asked
    if path.stem not in AGAIN: return
    hub.asked.clear()
    again = at_paper(path, offline=True)
    assert not hub.asked and numbers(again) == numbers(folder)


FIRST = [path for path in EXPERIMENTS if path.stem < "07"] # the others: test_paper_profile_too


@pytest.mark.parametrize("path", FIRST, ids=lambda path: path.stem)
def test_paper_profile(path, at_paper, hub): runs_at_paper(path, at_paper, hub)


def test_the_tables_are_read():
    names = {path.stem for path in EXPERIMENTS}
    assert {"01_robustness", "05_leapfrog", "08_micse_attention", "20_pretrain"} <= names
    demo, paper = table_of(ROOT/"nbs"/"05_leapfrog.ipynb")["iterations"]
    assert demo < paper
    assert small("visual_steps", 20, 1300) == 2 and small("rates", [.5], [.1, .2]) == [.5]
    assert small("lr", 1e-3, 3e-5) == 3e-5 and small("strategy", "words", "continuous") == "continuous"

"""Each of the papers' experiments at demo."""
from pathlib import Path

import pytest
from experiment_runs import EXPERIMENTS, check_demo

from sentnb import results


HERE = [path for path in EXPERIMENTS if path.stem < "20"]


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> Path: return tmp_path_factory.mktemp("figures")


def check_starts(figures):
    "A + S_n where A starts, after topical alignment, and not from A; the cycle and its control from A."
    branches = results.load_run(figures/"05_leapfrog"/"demo").details["notes"]["branches"]
    label_of = {entry["key"]: label for label, entry in branches.items()}
    starts = {label: label_of.get(entry["parent"]) for label, entry in branches.items()}
    bilingual = [label for label in branches if label.startswith("seed0 S-")]
    assert len(bilingual) > 1 and "seed0 S-none" in bilingual
    assert {starts[label] for label in (*bilingual, "seed0 A")} == {"seed0 topical"}
    rounds = [label for label in branches if label.startswith("seed0 A")]
    cycle, control = starts["seed0 P10-1-mixed"], starts["seed0 control-1-mixed"]
    assert cycle == control and cycle in rounds
    assert starts["seed0 P10-1-A"] == "seed0 P10-1-mixed"


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_demo(path, figures, warm_kernels):
    check_demo(path, figures)
    if path.stem == "05_leapfrog": check_starts(figures)

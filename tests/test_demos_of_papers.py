"""Each of the papers' experiments at demo."""
from pathlib import Path

import pytest
from experiment_runs import EXPERIMENTS, check_demo


HERE = [path for path in EXPERIMENTS if path.stem < "20"]


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> Path: return tmp_path_factory.mktemp("figures")


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_demo(path, figures, warm_kernels): check_demo(path, figures)

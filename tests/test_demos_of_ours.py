"""Each of our own experiments (the encoders, the report, the benchmark) at demo."""
from pathlib import Path

import pytest
from experiment_runs import EXPERIMENTS, ROOT, check_again, check_demo


HERE = [path for path in EXPERIMENTS if path.stem >= "20"]


@pytest.fixture(scope="module")
def figures(tmp_path_factory) -> Path: return tmp_path_factory.mktemp("figures")


@pytest.mark.parametrize("path", HERE, ids=lambda path: path.stem)
def test_demo(path, figures, warm_kernels): check_demo(path, figures)


def test_the_template_runs(figures, warm_kernels):
    check_demo(ROOT/"nbs"/"template.ipynb", figures)


def test_the_same_command_gives_the_same_numbers(figures, tmp_path):
    check_again("template", figures, tmp_path)

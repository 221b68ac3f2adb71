"""The other half of the experiments at paper, in a file of its own: two test processes share them."""
import pytest
from test_paper_profile import EXPERIMENTS, FIRST, at_paper, hub, runs_at_paper # noqa: F401

REST = [path for path in EXPERIMENTS if path not in FIRST]


@pytest.mark.parametrize("path", REST, ids=lambda path: path.stem)
def test_paper_profile(path, at_paper, hub): runs_at_paper(path, at_paper, hub) # noqa: F811

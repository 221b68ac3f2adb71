"A few tries of each row of the drill; `python -m tests.drill --minutes 60` repeats them."
import pytest
from drill import runner


@pytest.mark.parametrize("row", runner.ROWS)
def test_drill(row):
    for seed in range(getattr(runner.load(row), "SHORT", 1)):
        runner.try_once(row, seed, short=True)

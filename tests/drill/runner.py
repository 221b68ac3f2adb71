"""Repeats the scripts of the drill in turn and counts tries and failures."""
import argparse
import importlib
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent
ROWS = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in ("__init__", "__main__", "runner"))


def load(row: str):
    "The module of a row of the table."
    for folder in (HERE.parent, HERE.parents[1]): # the tests, for their tiny models, and the library
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(f"tests.drill.{row}")


def try_once(row: str, seed: int) -> None:
    "One try, reproducible up to the timing of threads and processes."
    with tempfile.TemporaryDirectory() as folder:
        load(row).attempt(random.Random(f"{row} {seed}"), Path(folder))


def drill(rows: list[str], minutes: float, seed: int) -> dict[str, tuple[int, int, float]]:
    "Tries, failures and seconds of each row; every row is tried at least once."
    counts = {row: (0, 0, 0.) for row in rows}
    end = time.monotonic() + 60*minutes
    number = seed
    while number == seed or time.monotonic() < end:
        for row in rows:
            tries, failures, seconds = counts[row]
            if tries and time.monotonic() > end:
                break
            begin = time.monotonic()
            try:
                try_once(row, number)
            except Exception:
                failures += 1
                print(f"{row}, seed {number}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
            counts[row] = tries + 1, failures, seconds + time.monotonic() - begin
        number += 1
    return counts


def table(counts: dict[str, tuple[int, int, float]]) -> str:
    "Markdown."
    lines = ["| what | tries | failures | seconds |", "|---|---|---|---|"]
    for row, (tries, failures, seconds) in counts.items():
        title = load(row).__doc__.splitlines()[0].rstrip(".")
        lines.append(f"| {title} | {tries} | {failures} | {seconds:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("rows", nargs="*", default=ROWS, help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--minutes", type=float, default=2., help="how long the rows are repeated")
    parser.add_argument("--seed", type=int, default=0, help="of the first try")
    options = parser.parse_args()
    if unknown := sorted(set(options.rows) - set(ROWS)):
        parser.error(f"no script named {', '.join(unknown)}: expected some of {', '.join(ROWS)}")
    counts = drill(list(options.rows), options.minutes, options.seed)
    print(table(counts))
    sys.exit(any(failures for _, failures, _ in counts.values()))

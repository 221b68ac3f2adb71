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
PAGE = HERE.parents[1]/"docs"/"reliability.md"
BEGIN, END = "<!-- table of the drill -->", "<!-- end of the table -->"


Counts = dict[str, tuple[int, int, float]] # row -> tries, failures, seconds


def load(row: str):
    "The module of a row of the table."
    for folder in (HERE.parent, HERE.parents[1]): # the tests, for their tiny models, and the library
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    return importlib.import_module(f"tests.drill.{row}")


def try_once(row: str, seed: int, short: bool=False) -> None:
    "One try, reproducible up to the timing of threads and processes; `short`: of a small experiment."
    module = load(row)
    attempt = getattr(module, "short_attempt", module.attempt) if short else module.attempt
    with tempfile.TemporaryDirectory() as folder:
        attempt(random.Random(f"{row} {seed}"), Path(folder))


def drill(rows: list[str], minutes: float, seed: int, page: Path|None=None) -> Counts:
    "Tries, failures and seconds of each row. The next one is the row that had the least time so far."
    counts = {row: (0, 0, 0.) for row in rows}
    end = time.monotonic() + 60*minutes
    while not all(tries for tries, *_ in counts.values()) or time.monotonic() < end:
        row = min(counts, key=lambda row: (counts[row][0] > 0, counts[row][2]))
        tries, failures, seconds = counts[row]
        begin = time.monotonic()
        try:
            try_once(row, seed + tries)
        except Exception:
            failures += 1
            print(f"{row}, seed {seed + tries}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        counts[row] = tries + 1, failures, seconds + time.monotonic() - begin
        if page:
            write(page, counts)
    return counts


def table(counts: Counts) -> str:
    "Markdown."
    lines = ["| what | tries | failures | seconds |", "|---|---|---|---|"]
    for row, (tries, failures, seconds) in counts.items():
        title = load(row).__doc__.splitlines()[0].rstrip(".").replace("|", "\\|")
        lines.append(f"| {title} (`{row}`) | {tries} | {failures} | {seconds:.0f} |")
    tries, failures, seconds = map(sum, zip(*counts.values()))
    return "\n".join([*lines, f"| all | {tries} | {failures} | {seconds:.0f} |"])


def write(page: Path, counts: Counts) -> None:
    "Replace the table of a page, between two comments."
    head, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not end:
        raise ValueError(f"{page} has no lines {BEGIN} and {END}")
    page.write_text(f"{head}{BEGIN}\n{table(counts)}\n{end}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.drill", description=__doc__)
    parser.add_argument("rows", nargs="*", default=ROWS, help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--minutes", type=float, default=2., help="how long the rows are repeated")
    parser.add_argument("--seed", type=int, default=0, help="of the first try")
    parser.add_argument("--write", action="store_true", help="write the table to docs/reliability.md")
    options = parser.parse_args()
    if unknown := sorted(set(options.rows) - set(ROWS)):
        parser.error(f"no script named {', '.join(unknown)}: expected some of {', '.join(ROWS)}")
    counts = drill(list(options.rows), options.minutes, options.seed, PAGE if options.write else None)
    print(table(counts))
    sys.exit(any(failures for _, failures, _ in counts.values()))

"""`sentnb mine` is killed at random moments and called again: the same pairs, and no other file remains."""
import os
from pathlib import Path

from .damage import originals
from .encoding import call, write_lines
from .kills import content_of, finish, kill_repeatedly, start, uninterrupted

SHORT = 2


def prepare(folder: Path, count: int=4200) -> None: # more than are encoded before the progress is recorded
    originals() # before the fork, for all children
    write_lines(folder/"first.txt", count, "first")
    write_lines(folder/"second.txt", 50, "second")


def mine(folder: Path) -> None:
    files = folder/"first.txt", folder/"second.txt"
    call("mine", *files, "-m", originals()/"pixels", "-o", folder/"pairs.tsv")


def attempt(rng, folder) -> None:
    if not hasattr(os, "fork"):
        return
    expected, seconds = uninterrupted(prepare, mine)
    prepare(folder)
    kill_repeatedly(rng, seconds, mine, folder)
    left = content_of(folder).get("pairs.tsv")
    assert left in (None, expected["pairs.tsv"]), "a part of the pairs was left"
    finish(start(mine, folder))
    assert content_of(folder) == expected
    assert not list(folder.glob(".*")), "files of the killed calls remain"

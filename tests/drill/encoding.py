"""`sentnb encode` is killed at random moments: its output is the old one or complete; then it is repeated."""
import contextlib
import io
import os
from pathlib import Path

from tiny_text import TEXTS

from sentnb.experiments import main

from .damage import originals
from .kills import content_of, finish, kill_repeatedly, start, uninterrupted

SHORT = 2


def call(*arguments) -> None:
    "The command line within this process."
    os.environ["TQDM_DISABLE"] = "1"
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([str(argument) for argument in arguments]) == 0


def write_lines(file: Path, count: int, word: str="") -> None:
    lines = (f"{TEXTS[i % len(TEXTS)]} {word}{i}" for i in range(count))
    file.write_text("\n".join(lines), encoding="utf-8")


def prepare(folder: Path) -> None:
    originals() # before the fork, for all children
    write_lines(folder/"texts.txt", 2000)


def encode(folder: Path) -> None:
    call("encode", folder/"texts.txt", "-m", originals()/"pixels", "-o", folder/"vectors.npy")


def attempt(rng, folder) -> None:
    if not hasattr(os, "fork"):
        return
    expected, seconds = uninterrupted(prepare, encode)
    prepare(folder)
    old = rng.choice([None, b"the vectors of an earlier call"])
    if old:
        (folder/"vectors.npy").write_bytes(old)
    kill_repeatedly(rng, seconds, encode, folder)
    left = content_of(folder).get("vectors.npy")
    assert left in (old, expected["vectors.npy"]), "a part of the vectors was left"
    finish(start(encode, folder))
    assert content_of(folder) == expected

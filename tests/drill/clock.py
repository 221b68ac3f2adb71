"""The clock jumps by years, and files have any time, while trainings, locks and mining go on."""
import json
import os
import time
from pathlib import Path
from unittest import mock

from sentnb.results.folder import describe_process, lock, lock_owner, unlock
from sentnb.training import Branch, InfoNCE, Stage

from .damage import small_pixels
from .data import make_mirror, read
from .mining import mine, prepare

DAY = 86_400
SHORT = 2


def jumping(rng):
    "A clock that goes on, stands still, or jumps by up to ten years at each call."
    now = [time.time()]

    def read_clock() -> float:
        now[0] += rng.choice([0, 0.01, 1, -1, 2*3600, -2*3600, 8*DAY, -8*DAY, 3650*DAY, -3650*DAY])
        now[0] = min(max(now[0], 0), 2**32)
        return now[0]
    return read_clock


def change_times(rng, folder: Path) -> None:
    for file in folder.rglob("*"):
        if rng.random() < 0.5:
            moment = rng.choice([0, 1, time.time() + rng.uniform(-10*DAY, 10*DAY), 2**32])
            os.utime(file, (moment, moment))


def grow(folder: Path, steps: int|None=None) -> bytes:
    "The weights of a branch, trained in one piece, or stopped after every `steps` steps."
    pairs = [(f"a cat {i}", f"a dog {i}") for i in range(64)]
    stage = Stage("first", pairs, InfoNCE(), steps=6, batch_size=8)
    root = Branch.root(small_pixels(), folder)
    if steps:
        until = time.monotonic() + 3600
        branch = root.grow("branch", stage, until=until, piece_steps=steps, show_progress=False)
    else:
        branch = root.grow("branch", stage, show_progress=False)
    assert branch.seconds >= 0 and sum(piece["steps"] for piece in branch.pieces) == 6
    return b"".join(value.numpy().tobytes() for value in branch.encoder.state_dict().values())


def check_locks(folder: Path) -> None:
    path = folder/"lock"
    parent = describe_process(os.getppid())
    path.write_text(json.dumps(parent | dict(purpose="other")))
    assert lock(path, "mine") == os.getppid(), "a living process keeps its lock at any time"
    path.write_text(json.dumps(parent | dict(purpose="other", start="of an earlier process")))
    assert lock(path, "mine") is None and lock_owner(path) == (os.getpid(), "mine")
    unlock(path)


def attempt(rng, folder) -> None:
    expected = grow(folder/"expected")
    clock = jumping(rng)
    with mock.patch("time.time", clock), mock.patch("time.time_ns", lambda: int(clock()*1e9)):
        for steps in (rng.randint(1, 5), None):
            assert grow(folder/"branches", steps) == expected
            change_times(rng, folder/"branches")
        check_locks(folder)
        rows = [dict(sentence1=f"a {i}", sentence2=f"b {i}", score=float(i % 6)) for i in range(50)]
        make_mirror(folder/"mirror", rows)
        for _ in range(2):
            assert read(folder/"mirror") == rows
            change_times(rng, folder/"mirror")
        (folder/"texts").mkdir()
        prepare(folder/"texts", 60)
        mine(folder/"texts")
        pairs = (folder/"texts"/"pairs.tsv").read_bytes()
        change_times(rng, folder/"texts")
        mine(folder/"texts")
        assert (folder/"texts"/"pairs.tsv").read_bytes() == pairs

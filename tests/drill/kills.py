"""A training is killed at random moments and continued: the same bytes as of one that was not."""
import os
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from sentnb.training import InfoNCE, Stage, fit

from .damage import small_pixels


def start(work: Callable, *arguments) -> int: # process id
    "A child that calls work(*arguments)."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning) # of Python: a process with threads forks
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1) # those of the parent do not exist here
        work(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def finish(*children: int) -> None:
    "AssertionError: a child failed."
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert not any(statuses), f"the children ended with {statuses}"


def kill_repeatedly(rng, seconds: float, work: Callable, *arguments) -> None:
    "Start it one to four times, and kill it after a part of the seconds that it takes."
    for _ in range(rng.randint(1, 4)):
        child = start(work, *arguments)
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def content_of(folder: Path) -> dict[str, bytes]:
    "Files below a folder, without temporary ones."
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in files.items() if not name.startswith(".")}


@cache
def uninterrupted(prepare: Callable, work: Callable) -> tuple[dict[str, bytes], float]: # and seconds
    "What work(folder) leaves in a folder that prepare(folder) made."
    folder = Path(mkdtemp())
    prepare(folder)
    begin = time.monotonic()
    finish(start(work, folder))
    return content_of(folder), time.monotonic() - begin


def prepare(folder: Path) -> None:
    "A training needs no files."


def train(folder: Path) -> None:
    pairs = [(f"a cat {i}", f"a dog {i}") for i in range(64)]
    stages = [Stage(name, pairs, InfoNCE(), steps=20, batch_size=8) for name in ("first", "second")]
    fit(small_pixels(), stages, folder, save_every=1, show_progress=False)


def attempt(rng, folder) -> None:
    if not hasattr(os, "fork"):
        return
    expected, seconds = uninterrupted(prepare, train)
    kill_repeatedly(rng, seconds, train, folder)
    finish(start(train, folder))
    assert content_of(folder) == expected

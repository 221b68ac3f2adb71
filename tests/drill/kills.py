"""A training is killed at random moments and continued: the same bytes as of one that was not."""
import os
import signal
import time
import traceback
import warnings
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import torch

from sentnb.training import InfoNCE, Stage, fit

from .damage import small_pixels


def start(folder: Path) -> int: # process id
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning) # of Python: a process with threads forks
        child = os.fork()
    if child:
        return child
    status = 1
    try:
        torch.set_num_threads(1) # those of the parent do not exist here
        pairs = [(f"a cat {i}", f"a dog {i}") for i in range(64)]
        stages = [Stage(name, pairs, InfoNCE(), steps=20, batch_size=8) for name in ("first", "second")]
        fit(small_pixels(), stages, folder, save_every=1, show_progress=False)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def content_of(folder: Path) -> dict[str, bytes]:
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in files.items() if not name.startswith(".")}


@cache
def uninterrupted() -> tuple[dict[str, bytes], float]: # and seconds
    folder = Path(mkdtemp())
    begin = time.monotonic()
    _, status = os.waitpid(start(folder), 0)
    assert status == 0
    return content_of(folder), time.monotonic() - begin


def attempt(rng, folder) -> None:
    if not hasattr(os, "fork"):
        return
    expected, seconds = uninterrupted()
    for _ in range(rng.randint(1, 4)):
        child = start(folder)
        time.sleep(rng.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    _, status = os.waitpid(start(folder), 0)
    assert status == 0
    assert content_of(folder) == expected

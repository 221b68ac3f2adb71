"""A training, encoding, mining or notebook runs twice at once, in one folder: the result of one run."""
import contextlib
import io
import os
import time
from functools import partial

from . import encoding, kills, mining, notebooks

REFUSAL = "already: wait until it ends"
SHORT = 4


def call_or_be_refused(work, folder) -> None:
    "The second of two commands with one output may be refused."
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages):
        try:
            work(folder)
        except AssertionError:
            assert REFUSAL in messages.getvalue(), messages.getvalue()


WORK = [(kills.prepare, kills.train), (encoding.prepare, partial(call_or_be_refused, encoding.encode)),
        (mining.prepare, partial(call_or_be_refused, mining.mine))]


def run_twice(rng, folder, prepare, work) -> None:
    expected, seconds = kills.uninterrupted(prepare, work)
    prepare(folder)
    first = kills.start(work, folder)
    time.sleep(rng.uniform(0, seconds))
    kills.finish(first, kills.start(work, folder))
    assert kills.content_of(folder) == expected


def run_notebook_twice(rng, folder, name: str) -> None:
    notebook, expected, seconds = notebooks.uninterrupted(name)
    first = notebooks.begin(notebook, folder)
    time.sleep(rng.uniform(0, seconds/2))
    second = notebooks.begin(notebook, folder)
    for process in (first, second):
        notebooks.complete(process, folder)
    assert notebooks.numbers(folder) == expected


def attempt(rng, folder, small: str="") -> None:
    if rng.random() < 0.25:
        run_notebook_twice(rng, folder, small or rng.choice(notebooks.EXPERIMENTS[:1]))
    elif hasattr(os, "fork"):
        run_twice(rng, folder, *rng.choice(WORK))


def short_attempt(rng, folder) -> None:
    attempt(rng, folder, "99_numbers")

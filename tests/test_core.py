"""core: what a reader counts as one character, and declared ranges."""
import csv
import os
import stat
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from sentnb import core
from sentnb.augmenters import clusters
from sentnb.augmenters.words import typed_together
from sentnb.core import LANGUAGES, checked, data_dir, graphemes, joins, one_of, optional, positive, whole
from sentnb.renderer import split_characters
from sentnb.renderer.config import drawn_together

CLUSTERS = ["e\u0301", "n\u0303\u0301", "हि", "न्", "ก่", "🇩🇪", "👍🏽", "👨‍👩‍👧", "\u1112\u1161\u11ab",
            "a", "字", " "]


@given(st.lists(st.sampled_from(CLUSTERS), max_size=20))
@settings(max_examples=200, deadline=None, derandomize=True)
@example(["🇩🇪", "🇩🇪"])
def test_characters_are_found_again(characters):
    assert graphemes("".join(characters)) == characters


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=300, deadline=None, derandomize=True)
@example("\u200d\u200da \u0301🇩🇪🇫")
def test_nothing_is_lost(text):
    for split in (graphemes, clusters, split_characters):
        characters = split(text)
        assert "".join(characters) == text and all(characters)


def test_the_quick_way_is_for_texts_that_no_rule_joins():
    quick = [c for c in map(chr, range(sys.maxunicode + 1)) if core._ALONE.fullmatch(c)]
    assert len(quick) > 30_000
    for rule in (joins, typed_together, drawn_together):
        assert not any(rule(before + c, 0, 1) for c in quick for before in "a\u1112가क")


def test_a_heap_of_marks_takes_no_time():
    start = time.perf_counter()
    assert len(graphemes("a" + "\u0301"*200_000)) == len(clusters("a" + "\u0301"*200_000)) == 1
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_typo_and_a_picture_count_alike_in_the_ten_languages(language):
    with open(data_dir("microworld")/f"{language}.tsv", encoding="utf-8", newline="") as file:
        cells = {cell for row in csv.reader(file, delimiter="\t") for cell in row}
    assert len(cells) > 300
    for text in cells: assert graphemes(text) == clusters(text) == split_characters(text)


@pytest.mark.parametrize("text, counted, typed, drawn", [
    ("क्ष", 2, 2, 1), # a conjunct: two letters to a typist, one picture
    ("นำ", 2, 2, 1), # so is what AM stands on
    (" \u0301", 1, 2, 1), # a typo takes no space away
    ("ی\u200cخ", 3, 2, 3), # a non-joiner stays with its letter
    ("가\u11a8", 2, 1, 2)]) # and a final with its syllable
def test_where_they_differ(text, counted, typed, drawn):
    assert [len(split(text)) for split in (graphemes, clusters, split_characters)] == [counted, typed, drawn]




def test_whole_numbers():
    for value in (2, np.int64(3)): whole(2)("steps", value)
    for value in (1, 2.0, True, "2", None):
        with pytest.raises(ValueError, match="steps=.*: expected a whole number of at least 2"):
            whole(2)("steps", value)


def test_a_declared_range_names_field_value_and_what_was_expected():
    @dataclass(frozen=True)
    @checked(rate=positive(0.1), keep=one_of("last", "best"), steps=optional(whole(1)))
    class Settings:
        rate: float = 0.1
        keep: str = "last"
        steps: int|None = None

        def __post_init__(self): assert self.rate > 0 # after the rules

    assert Settings(1, "best", 3).steps == 3
    for wrong, message in ((dict(rate=-1), "rate=-1: expected a positive number, such as 0.1"),
                           (dict(rate="1"), "rate='1': expected a positive number"),
                           (dict(keep="first"), "keep='first': expected one of last, best"),
                           (dict(steps=True), "steps=True: expected a whole number of at least 1, or None")):
        with pytest.raises(ValueError) as error: Settings(**wrong)
        assert message in str(error.value)


def test_sums_in_the_order_of_the_threads_that_were_asked_for(python):
    "Of NumPy and of SciPy, each of which has a BLAS of its own; without the call the environment decides."
    code = """
import hashlib, sys
from sentnb.core import use_threads
if {threads}: use_threads({threads})
import numpy as np, scipy.linalg
x = np.random.default_rng(0).normal(size=(700, 700)).astype(np.float32)
for y in (x @ x, scipy.linalg.qr(x)[0]): print(hashlib.sha256(y.tobytes()).hexdigest())
"""
    def sums(threads: int, environment: int) -> str:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        return python(code.format(threads=threads), **dict.fromkeys(names, str(environment)))
    for threads in (1, 2): assert sums(threads, 1) == sums(threads, 2)


# files

def test_a_file_is_as_readable_as_any_other(tmp_path):
    def for_its_owner(path): # as safetensors does
        other = path.with_suffix(".other")
        other.touch(mode=0o600)
        os.replace(other, path)
    for umask, mode in ((0o022, 0o644), (0o002, 0o664), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            for write in (for_its_owner, lambda path: path.write_text("x")):
                with core.replacing(tmp_path/"x") as temporary: write(temporary)
                assert stat.S_IMODE((tmp_path/"x").stat().st_mode) == mode
            assert stat.S_IMODE(core.write_atomic(tmp_path/"y", "y").stat().st_mode) == mode
            assert os.umask(umask) == umask, "the process keeps its own"
        finally: os.umask(before)


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path/"folder").mkdir()
    (tmp_path/"file").write_text("old")
    for path, error in ((tmp_path/"folder", IsADirectoryError), (tmp_path/"file"/"x", NotADirectoryError)):
        with pytest.raises(error) as raised, core.replacing(path): raise AssertionError("too late")
        assert raised.value.filename == str(path)
    def read_only(**_): raise OSError(30, "Read-only file system", str(tmp_path/".file-abc"))
    monkeypatch.setattr("tempfile.mkstemp", read_only)
    with pytest.raises(OSError, match="Read-only") as raised: core.write_atomic(tmp_path/"file", "new")
    assert raised.value.filename == str(tmp_path/"file") and (tmp_path/"file").read_text() == "old"

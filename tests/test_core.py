"""core: what a reader counts as one character, and declared ranges."""
import csv
import os
import stat
import time
from dataclasses import dataclass

import numpy as np
import pytest
import regex
from hypothesis import example, given, settings, strategies as st

from sentnb import core
from sentnb.core import (
    LANGUAGES, data_dir, integer, one_of, optional, positive, split_graphemes, validated)
from sentnb.renderer import split_characters

CLUSTERS = ["e\u0301", "n\u0303\u0301", "हि", "न्दी", "ก่", "🇩🇪", "👍🏽", "👨‍👩‍👧", "\u1112\u1161\u11ab",
            "a", "字", " "]


@given(st.lists(st.sampled_from(CLUSTERS), max_size=20))
@settings(max_examples=200, deadline=None, derandomize=True)
@example(["🇩🇪", "🇩🇪"])
def test_characters_are_found_again(characters):
    assert split_graphemes("".join(characters)) == characters


@given(st.text(st.characters(), max_size=60))
@settings(max_examples=300, deadline=None, derandomize=True)
@example("\u200d\u200da \u0301🇩🇪🇫")
@example("\ud83d!🇩🇪\u200d\u0301🇫🇷👍🏽\r\n")
def test_splitting_is_that_of_unicode(text):
    assert split_graphemes(text) == regex.findall(r"\X", text)
    characters = split_characters(text)
    assert "".join(characters) == text and all(characters)


@pytest.mark.parametrize("text, count", [
    ("a" + "\u0301"*200_000, 1), ("🇩"*200_000, 100_000), ("\u200d"*200_000, 1), ("क्"*100_000, 1)])
def test_many_marks_take_no_time(text, count):
    start = time.perf_counter()
    assert len(split_graphemes(text)) == count
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_typo_and_a_picture_count_alike_in_the_ten_languages(language):
    with open(data_dir("microworld")/f"{language}.tsv", encoding="utf-8", newline="") as file:
        cells = {cell for row in csv.reader(file, delimiter="\t") for cell in row}
    assert len(cells) > 300
    for text in cells: assert split_graphemes(text) == split_characters(text)


@pytest.mark.parametrize("text, characters", [
    ("क्ष", 1), # a conjunct of two letters
    ("นำ", 1), # a Thai letter with the vowel AM
    (" \u0301", 1), # a mark on a space
    ("ی\u200cخ", 2), # a Persian letter with a non-joiner
    ("가\u11a8", 1)]) # a Hangul syllable with its final
def test_characters_of_many_scripts(text, characters):
    assert len(split_graphemes(text)) == len(split_characters(text)) == characters


def test_integers():
    for value in (2, np.int64(3)): integer(2)("steps", value)
    for value in (1, 2.0, True, "2", None):
        with pytest.raises(ValueError, match="steps=.*: expected an integer of at least 2"):
            integer(2)("steps", value)


def test_a_declared_range_names_field_value_and_what_was_expected():
    @dataclass(frozen=True)
    @validated(rate=positive(0.1), keep=one_of("last", "best"), steps=optional(integer(1)))
    class Settings:
        rate: float = 0.1
        keep: str = "last"
        steps: int|None = None

        def __post_init__(self): assert self.rate > 0 # after the rules

    assert Settings(1, "best", 3).steps == 3
    for wrong, message in ((dict(rate=-1), "rate=-1: expected a positive number, such as 0.1"),
                           (dict(rate="1"), "rate='1': expected a positive number"),
                           (dict(keep="first"), "keep='first': expected one of last, best"),
                           (dict(steps=True), "steps=True: expected an integer of at least 1, or None")):
        with pytest.raises(ValueError) as error: Settings(**wrong)
        assert message in str(error.value)


def test_sums_in_the_order_of_the_threads_that_were_asked_for(python):
    "Of NumPy and of SciPy, each of which has a BLAS of its own; without the call the environment decides."
    code = """
import hashlib, sys
from sentnb.core import set_num_threads
if {threads}: set_num_threads({threads})
import numpy as np, scipy.linalg
x = np.random.default_rng(0).normal(size=(700, 700)).astype(np.float32)
for y in (x @ x, scipy.linalg.qr(x)[0]): print(hashlib.sha256(y.tobytes()).hexdigest())
"""
    def sums(threads: int, environment: int) -> str:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        return python(code.format(threads=threads), **dict.fromkeys(names, str(environment)))
    for threads in (1, 2): assert sums(threads, 1) == sums(threads, 2)


def test_importing_sentnb_sets_one_variable(python):
    "OMP_WAIT_POLICY, unless it is set or torch is loaded; no subpackage is imported."
    code = """
import os, sys
for name, value in {variables}.items(): os.environ[name] = value
if {torch}: sys.modules["torch"] = sys # as if torch were loaded
before, modules = dict(os.environ), set(sys.modules)
import sentnb
print(set(os.environ.items()) - set(before.items()), [m for m in sys.modules if m.startswith("sentnb.")])
"""
    def changes(torch=False, **variables):
        reset = "import os; os.environ.pop('OMP_WAIT_POLICY', None)\n"
        return python(reset + code.format(variables=variables, torch=torch)).strip()
    assert changes() == "{('OMP_WAIT_POLICY', 'PASSIVE')} []"
    assert changes(torch=True) == changes(OMP_WAIT_POLICY="ACTIVE") == "set() []"


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
                with core.atomic_path(tmp_path/"x") as temporary: write(temporary)
                assert stat.S_IMODE((tmp_path/"x").stat().st_mode) == mode
            assert stat.S_IMODE(core.write_atomic(tmp_path/"y", "y").stat().st_mode) == mode
            assert os.umask(umask) == umask, "the process keeps its own"
        finally: os.umask(before)


def test_a_place_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path/"folder").mkdir()
    (tmp_path/"file").write_text("old")
    for path, error in ((tmp_path/"folder", IsADirectoryError), (tmp_path/"file"/"x", NotADirectoryError)):
        with pytest.raises(error) as raised, core.atomic_path(path): raise AssertionError("too late")
        assert raised.value.filename == str(path)
    def read_only(**_): raise OSError(30, "Read-only file system", str(tmp_path/".file-abc"))
    monkeypatch.setattr("tempfile.mkstemp", read_only)
    with pytest.raises(OSError, match="Read-only") as raised: core.write_atomic(tmp_path/"file", "new")
    assert raised.value.filename == str(tmp_path/"file") and (tmp_path/"file").read_text() == "old"

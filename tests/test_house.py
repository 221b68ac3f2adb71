"""The form of the code: how wide, long and deep it may be, what experiments may share."""
from pathlib import Path

import house
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def over() -> dict[str, list[str]]: return house.over_the_limits(ROOT)


@pytest.mark.parametrize("kind", ["columns", "cell", "function", "depth", "front door"])
def test_nothing_is_over_the_limits(kind, over):
    assert over[kind] == []


def test_experiments_share_by_import():
    names = house.shared_names(ROOT)
    assert len(names) <= house.SHARED_NAMES, names
    assert house.shared_blocks(ROOT) == []


def test_one_more_is_one_notebook():
    "And its line in a front door, where the package has one that names all."
    assert max(house.count_mentions(ROOT).values()) <= 1


def test_no_name_of_an_experiment_is_a_function_word():
    words = house.function_words(ROOT)
    assert {path: words[path] for path in words if path.endswith(".ipynb")} == {}


@pytest.mark.parametrize("path", house.experiments(ROOT), ids=lambda path: path.stem)
def test_an_experiment_begins_and_ends_with_a_study(path):
    text = "\n".join(code.text for code in house.code_of(path))
    assert text.count("Study(") == text.count("study.finish()") == 1


def test_it_sees_what_it_must(tmp_path):
    heads = ("def f(x):", "for a in x:", "if a:", "with a:", "while x:", "try: pass")
    deep = "\n".join("    "*i + head for i, head in enumerate(heads)) + "\n" + "    "*5 + "finally: pass\n"
    wide = "x = " + "1 + "*30 + "1\n"
    (tmp_path/"test_x.py").write_text(deep + wide + "def g():\n" + "    pass\n"*60)
    code, = house.code_of(tmp_path/"test_x.py")
    assert house.functions_of(code) == [("f", 7, 5), ("g", 61, 0)]
    chain, = house.code_of(write(tmp_path/"chain.py",
                                 "def h(x):\n    if x: pass\n    elif x: pass\n    elif x: pass\n    "
                                 "else:\n        for y in x: pass"))
    assert house.functions_of(chain) == [("h", 6, 2)]
    assert max(map(len, code.lines)) > house.COLUMNS


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path

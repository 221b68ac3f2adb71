"""The NumPy sections that `make export` writes into the docstrings from the comments of the signatures."""
import ast
import io
import pydoc
import tokenize
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest
from IPython.core.oinspect import Inspector

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for path in (ROOT/"sentnb").rglob("*.py")
                 if path.name not in ("_modidx.py", "__init__.py"))
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
docs = SimpleNamespace(**run_path(str(ROOT/"docs"/"docstrings.py")))

EXAMPLE = '''
@dataclass(frozen=True)
class Config:
    "Sizes."
    width: int = 3 # pixels; é
    names: list = field(default_factory=list) # of the layers

    @property
    def area(self) -> int: # pixels
        """The area.

        Examples
        --------
        >>> Config().area
        9
        """
        return self.width**2

class Model:
    "A model."
    def __init__(self,
        size: int, # number of layers
    ):
        "Not public."

@patch
def fit(self: Model, a: "str|None", # one|two
        *rest: list[str],
        # a comment above
        # on two lines
        key=3, **options: int) -> "Path": # the output
    "Fit it; ValueError if `a` is empty, and TypeError if it is not a string. A second sentence."
    def _inner():
        yield 1

def rows(
    path: Path, # a file
) -> Iterator[str]: # each line
    "Read lines. Raises OSError where there is no file."
    yield ""

def bare(a: int) -> int:
    "No comment, no section."

def _private(
    a: int, # hidden
): "Private."
'''


def comments_of_parameters(source: str) -> list[tuple[str, str, str]]:
    "Function, parameter and comment of each line with one parameter and a comment, read without the writer."
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string[1:].strip()
                for token in tokens if token.type == tokenize.COMMENT}
    rows = []
    for node in ast.parse(source).body:
        if not isinstance(node, FUNCTIONS) or node.name.startswith("_"): continue
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        lines = [arg.lineno for arg in every] + [node.returns.lineno if node.returns else 0]
        every = [arg for arg in every if arg.arg not in ("self", "cls")]
        alone = [arg for arg in every if lines.count(arg.lineno) == 1]
        rows += [(node.name, arg.arg, comments[arg.lineno]) for arg in alone if arg.lineno in comments]
    return rows


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT/"sentnb")))
def test_every_comment_is_in_the_docstring(path):
    source = path.read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, FUNCTIONS):
            docstring = " ".join((ast.get_docstring(node) or "").split())
            found[node.name] = found.get(node.name, "") + docstring
    missing = [(name, parameter, comment) for name, parameter, comment in comments_of_parameters(source)
               if "Parameters ----------" not in found[name] or " ".join(comment.split()) not in found[name]]
    assert missing == [], "run: make export"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT/"sentnb")))
def test_a_second_run_changes_nothing(path):
    source = path.read_text(encoding="utf-8")
    assert docs.rewrite(source) == source
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, (*FUNCTIONS, ast.ClassDef))]
    docstrings = [node.body[0] for node in nodes if "\n---" in (ast.get_docstring(node) or "")]
    lines = source.splitlines()
    columns = [len(line) for node in docstrings for line in lines[node.lineno - 1:node.end_lineno]]
    assert max(columns, default=0) <= docs.COLUMNS


def test_most_of_the_library_is_documented():
    sources = [docs.Source(path.read_text(encoding="utf-8")) for path in MODULES]
    rows = {name: docs.parameters(source, node)
            for source in sources for name, node in docs.definitions(source.tree.body)}
    assert len(rows) > 800
    assert sum(len(some) for some in rows.values()) > 1500
    for name in ("PixelEncoder.from_pretrained", "SentenceEncoder.encode", "RenderConfig", "Task", "Stage",
                 "fit", "cache_dir"):
        assert rows[name], name


def test_the_question_mark_shows_the_sections():
    from sentnb.encoders import PixelEncoder
    from sentnb.renderer import RenderConfig
    expected = {PixelEncoder.encode: ("batch_size : int, default 256", "Returns"),
                RenderConfig: ('strategy : str, default "continuous"',)}
    for value, words in expected.items():
        text = Inspector(theme_name="nocolor").info(value)["docstring"]
        assert all(word in text for word in words), text


def test_importing_the_package_loads_nothing_else(python):
    code = "import sys; before = set(sys.modules); import sentnb; print(sorted(set(sys.modules) - before))"
    assert python(code).strip() == "['sentnb']"


def test_help_of_the_package_names_its_parts():
    import sentnb
    text = pydoc.plain(pydoc.render_doc(sentnb))
    assert "Five papers" in text and "encoders (package)" in text


def test_sections_of_an_example():
    source = docs.rewrite(EXAMPLE)
    assert docs.rewrite(source) == source
    classes = {node.name: node for node in ast.walk(ast.parse(source))
               if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
    text = {name: ast.get_docstring(node) for name, node in classes.items()}
    assert text["Config"] == ("Sizes.\n\nParameters\n----------\nwidth : int, default 3\n    pixels; é\n"
                              "names : list, default list()\n    of the layers")
    assert text["area"] == ("The area.\n\nReturns\n-------\nint\n    pixels\n\n"
                            "Examples\n--------\n>>> Config().area\n9")
    assert text["Model"].endswith("size : int\n    number of layers") and text["__init__"] == "Not public."
    assert text["fit"] == (
        "Fit it. A second sentence.\n\nParameters\n----------\na : str|None\n    one|two\n*rest : list[str]\n"
        "key, default 3\n    a comment above on two lines\n**options : int\n\n"
        "Returns\n-------\nPath\n    the output\n\n"
        "Raises\n------\nValueError\n    If `a` is empty.\nTypeError\n    If it is not a string.")
    assert text["rows"] == ("Read lines.\n\nParameters\n----------\npath : Path\n    a file\n\n"
                            "Yields\n------\nIterator[str]\n    each line\n\n"
                            "Raises\n------\nOSError\n    Where there is no file.")
    assert text["bare"] == "No comment, no section." and text["_private"] == "Private."


@pytest.mark.parametrize("text, entries", [
    ("FileNotFoundError or OSError if it cannot be found, TypeError if x is not a name",
     [("FileNotFoundError or OSError", "If it cannot be found."), ("TypeError", "If x is not a name.")]),
    ("ValueError for a, and TypeError for b", [("ValueError", "For a."), ("TypeError", "For b.")]),
    ("ValueError if a and TypeError if b", [("ValueError", "If a."), ("TypeError", "If b.")])])
def test_sentences_about_errors_are_divided(text, entries):
    assert docs.take_errors(f"Find it. {text}.") == ("Find it.", entries)


def test_tables_of_an_example():
    source = docs.Source(EXAMPLE)
    tables = {name: docs.table(docs.parameters(source, node))
              for name, node in docs.definitions(source.tree.body)}
    assert set(tables) == {"Config", "Config.area", "Model", "Model.fit", "rows", "bare"}
    assert r"| `a` | `str\|None` |  | one\|two |" in tables["Model.fit"]
    assert "| returns | `int` |  | pixels |" in tables["Config.area"]
    assert tables["bare"] == ""

"""What the source says of each parameter stands under help() and ?, for everything public."""
import ast
import importlib
import io
import operator
import pydoc
import sys
import tokenize
from pathlib import Path

import pytest
from IPython.core.oinspect import Inspector

from sentnb import docstrings
from sentnb.parameters import Parameter, documented, parameters_of, section_of, table_of

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for path in (ROOT/"sentnb").rglob("*.py")
                 if path.name not in ("_modidx.py", "__init__.py"))
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef


def arguments(node: ast.AST) -> list[ast.AST]:
    "The parameters of a function; of a class its fields, or those of its __init__."
    if isinstance(node, FUNCTIONS):
        a = node.args
        return [arg for arg in (*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg) if arg]
    own = [child for child in node.body if isinstance(child, FUNCTIONS) and child.name == "__init__"]
    if own: return arguments(own[0])
    is_data = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
    return [child for child in node.body if isinstance(child, ast.AnnAssign)] if is_data else []


def commented(source: str) -> list[tuple[str, str, str]]:
    "Name, parameter and the comment on its line, of all that is public in a module."
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token.string[1:].strip()
                for token in tokens if token.type == tokenize.COMMENT}
    said = []
    def look(nodes, inside=""):
        for node in nodes:
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef)) or node.name.startswith("_"): continue
            patched = "patch" in [ast.unparse(one).partition("(")[0] for one in node.decorator_list]
            owner = ast.unparse(node.args.args[0].annotation).strip("'") + "." if patched else inside
            args = arguments(node)
            last = {arg.lineno: arg for arg in args} # of several on a line the comment is the last one's
            if getattr(node, "returns", None): last.pop(node.returns.lineno, None)
            for line, arg in last.items():
                name = arg.arg if isinstance(arg, ast.arg) else arg.target.id
                if line in comments and name not in ("self", "cls"):
                    said.append((f"{owner}{node.name}", name, comments[line]))
            if isinstance(node, ast.ClassDef): look(node.body, f"{node.name}.")
    look(ast.parse(source).body)
    return said


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT/"sentnb")))
def test_every_comment_shows_under_help(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    module = importlib.import_module(name)
    missing = []
    for owner, parameter, comment in commented(path.read_text(encoding="utf-8")):
        if owner.startswith("_"): continue
        shown = pydoc.plain(pydoc.render_doc(operator.attrgetter(owner)(module)))
        section = shown.partition("Parameters\n")[2]
        if parameter not in section or comment not in section:
            missing.append(f"{owner}, {parameter}: {comment}")
    assert missing == [], "type: make export"


def test_there_is_much_to_see():
    found = [row for path in MODULES for row in commented(path.read_text(encoding="utf-8"))]
    owners = {owner for owner, _, _ in found}
    assert len(found) > 1000
    assert {"PixelEncoder.from_pretrained", "SentenceEncoder.encode", "RenderConfig", "Task", "Stage",
            "Recipe", "fit", "cache_dir"} <= owners


def test_what_is_shown_is_what_the_source_says(python, tmp_path):
    code = ("from sentnb import docstrings; docstrings.leave_out(); docstrings.FILE = %r\n"
            "from sentnb.parameters import write_sections; write_sections()")
    python(code % str(tmp_path/"docstrings.json"))
    fresh, ours = (tmp_path/"docstrings.json").read_text(), Path(docstrings.FILE).read_text()
    assert fresh == ours, "the comments have changed: make export"
    assert " at 0x" not in fresh, "an address is another one each time"


def test_the_question_mark_shows_them():
    from sentnb.encoders import PixelEncoder
    from sentnb.renderer import RenderConfig
    wanted = {PixelEncoder.encode: ("batch_size : int, default 256", "Returns"),
              RenderConfig: ("strategy : str, default 'continuous'",)}
    for shown, names in wanted.items():
        text = Inspector(theme_name="nocolor").info(shown)["docstring"]
        assert all(name in text for name in names), text


def test_a_module_loaded_again_has_them_once():
    import sentnb.losses.checks as module
    module = importlib.reload(module)
    assert module.gather.__doc__.count("Parameters\n-----") == 1


def test_importing_the_package_loads_next_to_nothing(python):
    code = "import sys; before = set(sys.modules); import sentnb; print(sorted(set(sys.modules) - before))"
    assert python(code).strip() == "['sentnb', 'sentnb.docstrings']"


def test_help_of_the_package_names_its_parts():
    import sentnb
    shown = pydoc.plain(pydoc.render_doc(sentnb))
    assert "Five papers" in shown and "encoders (package)" in shown


def test_names_are_found_once():
    names = [(module, name) for module, values in documented().items() for name in values]
    assert len(names) > 800 and not any(part.startswith("_") for _, name in names
                                        for part in name.split(".") if not part.endswith("__"))
    assert docstrings.Finder in sys.meta_path


def test_stars_defaults_and_pipes():
    def f(a: "str|None", # one|two
          *rest: list[str], # others
          key=3, **options: int) -> None: pass
    assert parameters_of(f) == [
        Parameter("a", "str|None", "", "one|two"), Parameter("*rest", "list[str]", "", "others"),
        Parameter("key", "int", "3", ""), Parameter("**options", "int", "", "")]
    assert r"| `a` | `str\|None` |  | one\|two |" in table_of(parameters_of(f))
    assert "Returns" not in section_of(parameters_of(f)) and "returns" not in table_of(parameters_of(f))
    assert section_of(parameters_of(f)).startswith("Parameters\n----------\na : str|None\n    one|two\n*rest")
    assert section_of([]) == table_of([]) == ""

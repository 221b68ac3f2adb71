"""The table of layers: an import goes to a lower layer, or to an earlier notebook of its own package."""
import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT/"sentnb"
LAYERS = dict(core=0, renderer=1, augmenters=1, losses=1, corpora=1, results=1, figures=1,
              encoders=2, training=3, evaluation=3, recipes=4, experiments=5)
WITHOUT_TORCH = ("renderer", "augmenters", "corpora", "results", "figures", "experiments")
WITH_TORCH = ("experiments.study", "experiments.requirements", "experiments.plan", "experiments.shipping",
              "experiments.environment")

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "_modidx.py")
NOTEBOOKS = sorted(path
                   for path in (ROOT/"nbs"/"api").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)


def exported_by(path: Path) -> str:
    "The module that a notebook exports: losses.contrastive; of a front door the package, of the first ''."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names = [match[1] for cell in cells
             if (match := re.match(r"#\| *default_exp +(\S+)", "".join(cell["source"])))]
    return re.sub(r"\.?__init__$", "", names[0]) if names else ""


def place_of(path: Path) -> tuple[int, ...]:
    "1_losses/2_contrastive.ipynb -> (1, 2): layer, then the order of reading."
    parts = path.relative_to(ROOT/"nbs"/"api").with_suffix("").parts
    assert all(re.match(r"\d+_", part) for part in parts), f"{path.name}: no number"
    return tuple(int(part.partition("_")[0]) for part in parts)


PLACES = {exported_by(path): place_of(path) for path in NOTEBOOKS}


def name_of(path: Path) -> str:
    "losses/__init__.py -> losses, losses/contrastive.py -> losses.contrastive; the package itself is ''."
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports_of(path: Path, tree: ast.AST) -> set[str]:
    "Every module that the file imports, wherever in it; relative imports are resolved."
    package = ["sentnb", *path.relative_to(PACKAGE).parent.parts]
    imports = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import): imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from . import core` imports a module, `from .core import pick` a name of one
            imports |= {f"{module}.{alias.name}"
                        for alias in node.names} if node.module in (None, "sentnb") else {module}
    return imports


def allowed(name: str, target: str) -> bool:
    "Whether a module may import another one of this package."
    own, other = name.split(".")[0], target.split(".")[0]
    if own != other: return LAYERS[other] < LAYERS[own]
    if target.startswith(f"{name}."): return True      # a front door names what is behind it
    if name.startswith(f"{target}."): return False     # behind a front door nobody goes out by it
    return PLACES[target] < PLACES[name]


def layer_violations(name: str, imports: set[str]) -> list[str]:
    "The imports of a module of the package that the table forbids."
    wrong = []
    for imported in sorted(imports):
        if imported.split(".")[0] != "sentnb": continue
        target = imported.removeprefix("sentnb").removeprefix(".")
        if target.startswith("__version__"): continue
        if not target or target.split(".")[0] not in LAYERS: wrong.append(f"{imported}: not in the table")
        elif not allowed(name, target):
            wrong.append(f"{imported}: neither in a lower layer nor in an earlier notebook of its package")
    return wrong


def test_the_checker_sees_what_it_must():
    source = ("import torch\nfrom .core import pick\nfrom . import renderer\n"
              "def late():\n    from ..encoders.pixel import PixelEncoder\n    import sentnb.training")
    imports = imports_of(PACKAGE/"losses"/"contrastive.py", ast.parse(source))
    assert {"torch", "sentnb.losses.core", "sentnb.encoders.pixel", "sentnb.training"} <= imports
    light = imports_of(PACKAGE/"core"/"paths.py", ast.parse("from .checks import one_of\nfrom .. import "
                                                            "renderer"))
    assert light == {"sentnb.core.checks", "sentnb.renderer"}
    assert layer_violations("losses.supervised", {"torch", "sentnb.core", "sentnb.losses.contrastive"}) == []
    assert len(layer_violations("losses.contrastive",
                                {"sentnb.encoders.pixel", "sentnb.losses.contrastive", "sentnb.losses",
                                                       "sentnb.renderer", "sentnb.nowhere"})) == 5
    assert layer_violations("losses", {"sentnb.losses.contrastive"}) == []
    assert layer_violations("encoders.pixel", {"sentnb.renderer", "sentnb.losses"}) == []
    assert len(layer_violations("training.loop", {"sentnb.evaluation.sts", "sentnb.recipes"})) == 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT/"nbs"/"api")))
def test_a_notebook_stands_where_its_number_says(path):
    module, position = exported_by(path), place_of(path)
    if not module:
        assert path.name == "0_sentnb.ipynb" and position == (0,), "one notebook is the package itself"
        return
    assert module.split(".")[0] in LAYERS, f"{module} has no layer in the table of this test"
    assert position[0] == LAYERS[module.split(".")[0]], "the first number is the layer"
    package = (PACKAGE/Path(*module.split("."))).is_dir()
    assert (position[-1] == 0
            and len(position) > 1) == package, "a front door, and nothing else, has number 0"
    folders = [part.partition("_")[2] for part in path.relative_to(ROOT/"nbs"/"api").parts[:-1]]
    own = path.stem.partition("_")[2]
    assert module == ".".join([*folders, *([] if package else [own])]), "folders and names are the module's"


def test_numbers_are_taken_once():
    for folder in {path.parent for path in NOTEBOOKS} - {ROOT/"nbs"/"api"}:
        numbers = [child.name.partition("_")[0]
                   for child in folder.iterdir() if re.match(r"\d+_", child.name)]
        assert len(set(numbers)) == len(numbers), f"two of {folder.name} have one number"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module(path):
    text = path.read_text(encoding="utf-8")
    imports, name = imports_of(path, ast.parse(text)), name_of(path)
    if not name:
        assert imports == {"os", "sys"}, "the package itself imports nothing else"
        return
    assert name.split(".")[0] in LAYERS, f"{name} has no layer: the table of this test lists them"
    assert layer_violations(name, imports) == []
    if name.split(".")[0] in WITHOUT_TORCH and name not in WITH_TORCH:
        assert not {module for module in imports if re.match(r"(torch|transformers|accelerate)\b", module)}
    exported = "# AUTOGENERATED! DO NOT EDIT!" in text
    assert exported or not ast.parse(text).body, "a module is exported from nbs/api"
    stars = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)
             and any(alias.name == "*" for alias in node.names)]
    assert not stars


def test_importing_the_light_modules_loads_neither_torch_nor_transformers(python):
    light = ["core", *WITHOUT_TORCH]
    names = ["sentnb"] + [f"sentnb.{name}"
                          for name in light if (PACKAGE/f"{name}.py").exists() or (PACKAGE/name).is_dir()]
    code = ("import importlib, sys\nfor name in %r:\n    importlib.import_module(name)\n"
            "    print(name, [m for m in ('torch', 'transformers') if m in sys.modules])") % names
    assert [line for line in python(code).splitlines() if not line.endswith("[]")] == []


def test_no_pickle():
    "Of files; `encoders.shards` sends an encoder to its own worker processes, as `multiprocessing` does."
    for path in MODULES:
        if path.relative_to(PACKAGE).as_posix() == "encoders/shards.py": continue
        imports = imports_of(path, ast.parse(path.read_text(encoding="utf-8")))
        assert not imports & {"pickle", "dill", "cloudpickle", "joblib"}, path


def test_contributing_shows_the_table():
    rows = re.findall(r"^\| (\d) \| (.+?) \|", (ROOT/"CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    shown = {name: int(layer) for layer, cell in rows for name in re.findall(r"`(\w+)", cell)}
    assert shown == LAYERS
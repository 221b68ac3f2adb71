"""Measures the form of the code: `python tests/house.py [PART OF A PATH ...]` lists what is over
the limits, then the totals.

Columns, cells, functions and depth are those of the notebooks, which are the source."""
import ast
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

COLUMNS, CELL, FUNCTION, DEPTH = 110, 60, 60, 4
SHARED_NAMES, SHARED_BLOCK = 4, 10 # names that may stand in several experiments; lines that may not
# Words that say nothing about a value or a function when they are its whole name
FUNCTION_WORDS = set("""
about above again ahead alone along apart asked at below beside beyond both by called drawn each enough even
ever few fewer found from given gone held here how into it its less like looks made many means meant more most
much named never now of off on ones other others ours over own plain rather rest said same seen
several shown so some stood such taken taught than that theirs them then there these things this those
together told two under until what when where whether which while who whole whose why within without
yet""".split())
# One of each kind that one adds, and the words by which the library names it
ADDED = {"a loss that trains (distillation)": r"\bDistillation\b|\.targets\b|\bdistillation_loss\b",
         "an encoder (static word vectors)": r"\bStaticEncoder\b", "a data set (MPQA)": r"\bMPQA\b",
         "an experiment (06)": r"\b06_retrieval\b"}
NESTING = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Code:
    "One piece of source: a cell of a notebook, or a file of tests."
    def __init__(self, path: Path, label: str, text: str):
        self.path, self.label, self.text, self.lines = path, label, text, text.splitlines()
        self.exported = bool(re.match(r"#\| *export", text))
        try: self.tree = ast.parse(text)
        except SyntaxError: self.tree = ast.parse("")  # a magic command


def code_of(path: Path) -> list[Code]:
    "The code cells of a notebook, or the whole of a file."
    if path.suffix == ".py": return [Code(path, path.name, path.read_text(encoding="utf-8"))]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [Code(path, f"{path.name} [{number}]", "".join(cell["source"]))
            for number, cell in enumerate(cells) if cell["cell_type"] == "code"]


def depth_of(node: ast.AST) -> int:
    "How deep the blocks below a node are nested; an elif is as deep as its if, functions within count alone."
    deepest = 0
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in children:
            if not isinstance(child, ast.AST) or isinstance(child, FUNCTIONS): continue
            is_only = isinstance(node, ast.If) and name == "orelse" and len(children) == 1
            chained = is_only and isinstance(child, ast.If)
            deepest = max(deepest, depth_of(child) + (isinstance(child, NESTING) and not chained))
    return deepest


def functions_of(code: Code) -> list[tuple[str, int, int]]:
    "Name, lines and depth of each function."
    nodes = [node for node in ast.walk(code.tree) if isinstance(node, FUNCTIONS)]
    return [(node.name, node.end_lineno - node.lineno + 1, depth_of(node)) for node in nodes]


def experiments(root: Path) -> list[Path]: return sorted((root/"nbs").glob("[0-9]*.ipynb"))


def parts(root: Path) -> dict[str, list[Code]]:
    "The code of the library, of the experiments and of the tests."
    notebooks = dict(library=[*sorted((root/"nbs"/"api").rglob("*.ipynb")), root/"nbs"/"index.ipynb",
                              *sorted((root/"nbs"/"howto").glob("*.ipynb"))],
                     experiments=experiments(root), tests=sorted((root/"tests").rglob("*.py")))
    return {part: [code for path in paths if ".ipynb_checkpoints" not in path.parts for code in code_of(path)]
            for part, paths in notebooks.items()}


def modules(root: Path) -> dict[str, str]:
    "The exported modules: path in the project -> source."
    paths = [path for path in sorted((root/"sentnb").rglob("*.py")) if path.name != "_modidx.py"]
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in paths}


def defined_names(tree: ast.AST) -> list[str]:
    "Names of functions, classes, parameters and variables that the code defines."
    names = []
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)): names.append(node.name)
        elif isinstance(node, ast.arg): names.append(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store): names.append(node.id)
    return names


def function_words(root: Path) -> dict[str, list[str]]:
    "Function words that are used as identifiers: path -> names."
    sources = {path: ast.parse(source) for path, source in modules(root).items()}
    words = {path: defined_names(tree) for path, tree in sources.items()}
    for path in experiments(root):
        words[path.name] = [name for code in code_of(path) for name in defined_names(code.tree)]
    chosen = {path: [name for name in names if name.strip("_") in FUNCTION_WORDS]
              for path, names in words.items()}
    return {path: names for path, names in chosen.items() if names}


def code_in_front_doors(root: Path) -> list[str]:
    "Statements of an __init__ that do more than name what is elsewhere."
    wrong = []
    for path, source in modules(root).items():
        if not path.endswith("__init__.py"): continue
        for node in ast.parse(source).body:
            text = ast.get_source_segment(source, node)
            names = text.startswith(("__all__", "_all_", "__version__", "__doc__",
                                     "__getattr__, __dir__, __all__"))
            docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            threads = path == "sentnb/__init__.py" and "OMP_WAIT_POLICY" in text # the one documented effect
            if not (names or docstring or threads or isinstance(node, (ast.Import, ast.ImportFrom))):
                wrong.append(f"{path}: {text}")
    return wrong


def shared_names(root: Path) -> dict[str, list[str]]:
    "Functions and classes that several experiments define under one name."
    stems_by_name = defaultdict(list)
    for path in experiments(root):
        nodes = [node for code in code_of(path) for node in code.tree.body]
        for name in {node.name for node in nodes if isinstance(node, (*FUNCTIONS, ast.ClassDef))}:
            stems_by_name[name].append(path.stem)
    return {name: stems for name, stems in sorted(stems_by_name.items()) if len(stems) > 1}


def shared_blocks(root: Path, length: int=SHARED_BLOCK) -> list[tuple[str, str, str]]:
    "Runs of so many lines, imports and comments left out, that stand in two experiments."
    first_seen, shared = {}, []
    for path in experiments(root):
        codes = code_of(path)
        # the demonstration of the method stands on its own, before the parameters
        first = next(i for i, code in enumerate(codes) if re.search(r"^profile = ", code.text, re.M))
        lines = [line.strip() for code in codes[first:] for line in code.lines]
        lines = [line for line in lines if line and not re.match(r"#|import |from \S+ import ", line)]
        for i in range(len(lines) - length + 1):
            run = tuple(lines[i:i + length])
            first = first_seen.setdefault(run, path.stem)
            if first != path.stem: shared.append((first, path.stem, run[0]))
    return shared


def setup_lines(root: Path) -> dict[str, int]:
    "Lines of code up to and with the cell that begins the run."
    counts = {}
    for path in experiments(root):
        total = 0
        for code in code_of(path):
            total += sum(bool(line.strip()) for line in code.lines)
            if re.search(r"\b(results\.Run|Study)\(", code.text): break
        counts[path.stem] = total
    return counts


def count_mentions(root: Path) -> dict[str, int]:
    "How many exported cells name it outside its own notebook: what else one more of its kind has to change."
    library = [code for code in parts(root)["library"] if code.exported]
    counts = {}
    for kind, words in ADDED.items():
        cells = [code.path for code in library if re.search(words, re.sub(r"#.*", "", code.text))]
        counts[kind] = len(cells) - max(map(cells.count, cells), default=0)
    return counts


def over_the_limits(root: Path) -> dict[str, list[str]]:
    "What is wider, longer or deeper than it may be, by kind."
    wrong = defaultdict(list)
    for part, codes in parts(root).items():
        for code in codes:
            wide = [number + 1 for number, line in enumerate(code.lines) if len(line) > COLUMNS]
            wrong["columns"] += [f"{part}: {code.label}, line {number}: {len(code.lines[number - 1])}"
                                 for number in wide]
            if code.exported and len(code.lines) > CELL:
                wrong["cell"].append(f"{code.label}: {len(code.lines)} lines")
            for name, lines, depth in functions_of(code):
                if lines > FUNCTION: wrong["function"].append(f"{code.label}, {name}: {lines} lines")
                if depth > DEPTH: wrong["depth"].append(f"{code.label}, {name}: {depth} deep")
    wrong["front door"] = code_in_front_doors(root)
    return wrong


def measure(root: Path) -> dict[str, float]:
    "The numbers of the whole tree."
    code_by_part, sources = parts(root), modules(root)
    numbers = {}
    for part, codes in code_by_part.items():
        lines = [line for code in codes for line in code.lines if line.strip()]
        numbers[f"{part}: lines"] = len(lines)
        numbers[f"{part}: lines over {COLUMNS} columns"] = sum(len(line) > COLUMNS for line in lines)
    functions = [function for codes in code_by_part.values() for code in codes
                 for function in functions_of(code)]
    numbers["longest exported cell, lines"] = max(len(code.lines)
                                                  for code in code_by_part["library"] if code.exported)
    numbers["longest function, lines"] = max(lines for _, lines, _ in functions)
    numbers["deepest function"] = max(depth for _, _, depth in functions)
    front = sum(len(source) for path, source in sources.items() if path.endswith("__init__.py"))
    wrong = sum(len(text.partition(": ")[2]) for text in code_in_front_doors(root))
    numbers["front doors: share of all characters, %"] = round(100*front/sum(map(len, sources.values())), 1)
    share = 100*wrong/sum(map(len, sources.values()))
    numbers["front doors: code in them, % of all characters"] = round(share, 1)
    numbers["names defined in several experiments"] = len(shared_names(root))
    numbers[f"runs of {SHARED_BLOCK} lines in two experiments"] = len(shared_blocks(root))
    setup = setup_lines(root)
    numbers["lines of setup an experiment, mean"] = round(sum(setup.values())/len(setup), 1)
    numbers["lines of setup an experiment, most"] = max(setup.values())
    for kind, number in count_mentions(root).items(): numbers[f"other places that name {kind}"] = number
    return numbers


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if not word.startswith("--root=")]
    root_options = [word.removeprefix("--root=") for word in sys.argv[1:] if word.startswith("--root=")]
    ROOT = Path(root_options[0]) if root_options else Path(__file__).resolve().parent.parent
    for kind, wrong in over_the_limits(ROOT).items():
        for violation in wrong:
            if not words or any(word in violation for word in words): print(f"{kind:10}  {violation}")
    if not words:
        for name, number in measure(ROOT).items(): print(f"{number:>9}  {name}")
        print("names in several experiments:",
              "; ".join(f"{name} {len(stems)}" for name, stems in shared_names(ROOT).items()))
"""Writes NumPy sections into the docstrings of the exported modules: `python docs/docstrings.py [FOLDER]`.

`make export` runs it after nbdev_export. The comments in the signature of a public function, method or class
become the sections Parameters and Returns (Yields for a generator). A sentence of the docstring such as
`Raises ValueError if the batch is empty.` moves into the section Raises. A second run changes nothing."""
import ast
import io
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 110
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
Function = ast.FunctionDef | ast.AsyncFunctionDef
GENERATED = "Parameters", "Returns", "Yields"
ERRORS = r"[A-Z]\w*Error(?: or [A-Z]\w*Error)*"
CONDITION = r"(?:if|when|where|for|on|unless)\b"
RAISES = re.compile(rf"[.;]\s+(?:Raises\s+)?({ERRORS}\s+{CONDITION}.*?)(?=\.\s|\.?\Z)", re.S)
NEXT_ERROR = re.compile(rf"(?:[,;] (?:and )?| and )(?={ERRORS} {CONDITION})")
HEADING = re.compile(r"^([A-Z][A-Za-z ]+)\n-{3,}$", re.M)


class Parameter(NamedTuple):
    "A parameter, or the returned value, which has no name."
    name: str # with its stars
    type: str # empty without an annotation
    default: str # empty if the parameter is required
    comment: str


class Source:
    "A module or a cell, with its comments by line."
    def __init__(self, text: str):
        self.lines = text.splitlines(keepends=True)
        self.tree = ast.parse(text)
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        self.comments = {token.start[0]: token.string[1:].strip()
                         for token in tokens if token.type == tokenize.COMMENT}

    def code(self, node: ast.AST | None, is_annotation: bool=False) -> str:
        "The text of an annotation or a default on one line."
        if node is None: return ""
        lines = [line.encode() for line in self.lines[node.lineno - 1:node.end_lineno]]
        lines[-1] = lines[-1][:node.end_col_offset]
        lines[0] = lines[0][node.col_offset:]
        text = b" ".join(lines).decode()
        if isinstance(node, ast.Constant) and is_annotation: text = text.strip("'\"")
        return textwrap.shorten(text, 60, placeholder=" ...")

    def comment(self, node: ast.AST, last: int, following: set[int]) -> str:
        "The comment on the lines of a parameter, else the comment lines directly above it."
        beside = [self.comments[line] for line in range(node.lineno, last + 1)
                  if line in self.comments and line not in following]
        first = node.lineno
        begins_line = not self.lines[first - 1].encode()[:node.col_offset].strip()
        while begins_line and self.lines[first - 2].lstrip().startswith("#"): first -= 1
        above = [self.comments[line] for line in range(first, node.lineno)]
        return " ".join(beside or above)


def definitions(nodes: list[ast.stmt], prefix: str="") -> Iterator[tuple[str, Function | ast.ClassDef]]:
    "Public functions, methods and classes with their qualified names; a patched method belongs to its class."
    for node in nodes:
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)): continue
        is_patched = any(ast.unparse(decorator).startswith("patch") for decorator in node.decorator_list)
        owner = ast.unparse(node.args.args[0].annotation).strip("'") + "." if is_patched else prefix
        parts = (owner + node.name).split(".")
        is_private = any(re.match("_(?!_)", part) for part in parts)
        if not is_private and parts[-1] != "__init__": yield owner + node.name, node
        if isinstance(node, ast.ClassDef): yield from definitions(node.body, f"{node.name}.")


def parameters(source: Source, node: Function | ast.ClassDef) -> list[Parameter]:
    "The parameters in order, the returned value last; empty if no comment describes any of them."
    if isinstance(node, ast.ClassDef):
        constructors = [child for child in node.body
                        if isinstance(child, FUNCTIONS) and child.name == "__init__"]
        rows = arguments(source, constructors[0]) if constructors else fields(source, node)
    else: rows = arguments(source, node) + returned(source, node)
    return rows if any(row.comment for row in rows) else []


def arguments(source: Source, node: Function) -> list[Parameter]:
    every = node.args
    required = len(every.posonlyargs) + len(every.args) - len(every.defaults)
    rows = list(zip([*every.posonlyargs, *every.args], [None]*required + every.defaults))
    if every.vararg: rows.append((every.vararg, None))
    rows += zip(every.kwonlyargs, every.kw_defaults)
    if every.kwarg: rows.append((every.kwarg, None))
    # a comment behind several parameters describes the last of them
    starts = [arg.lineno for arg, _ in rows] + ([node.returns.lineno] if node.returns else [])
    stars = {every.vararg: "*", every.kwarg: "**"}
    return [Parameter(stars.get(arg, "") + arg.arg, source.code(arg.annotation, True), source.code(default),
                      source.comment(arg, (default or arg).end_lineno, set(starts[number + 1:])))
            for number, (arg, default) in enumerate(rows) if arg.arg not in ("self", "cls")]


def returned(source: Source, node: Function) -> list[Parameter]:
    if node.returns is None or ast.unparse(node.returns) == "None": return []
    comment = source.comments.get(node.returns.end_lineno, "")
    return [Parameter("", source.code(node.returns, True), "", comment)]


def fields(source: Source, node: ast.ClassDef) -> list[Parameter]:
    "The fields of a dataclass or a named tuple."
    kinds = [ast.unparse(base).split(".")[-1] for base in [*node.decorator_list, *node.bases]]
    if not any(kind.startswith(("dataclass", "NamedTuple")) for kind in kinds): return []
    return [Parameter(child.target.id, source.code(child.annotation, True),
                      field_default(source.code(child.value)), source.comment(child, child.end_lineno, set()))
            for child in node.body if isinstance(child, ast.AnnAssign)]


def field_default(text: str) -> str:
    "The default of a field: `field(default_factory=dict)` is `dict()`, `field(repr=False)` has none."
    if not re.match(r"(?:dataclasses\.)?field\(", text): return text
    factory = re.search(r"default_factory=(\w+)", text)
    return f"{factory[1]}()" if factory else ""


def is_generator(node: Function) -> bool:
    "Whether the body yields; functions inside do not count."
    functions = [part for part in ast.walk(node) if part is not node and isinstance(part, FUNCTIONS)]
    inner = {child for function in functions for child in ast.walk(function)}
    yields = {child for child in ast.walk(node) if isinstance(child, (ast.Yield, ast.YieldFrom))}
    return bool(yields - inner)


def section(title: str, entries: list[tuple[str, str]], columns: int=COLUMNS) -> str:
    "A section in NumPy's form; each entry is a heading and its description."
    lines = [title, "-"*len(title)]
    for heading, description in entries:
        lines.append(heading)
        lines += textwrap.wrap(description, columns, initial_indent="    ", subsequent_indent="    ",
                               break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def parameter_sections(rows: list[Parameter], columns: int=COLUMNS, returns: str="Returns") -> list[str]:
    "The sections Parameters and Returns, those that have entries."
    def heading(row: Parameter) -> str:
        text = " : ".join(filter(None, [row.name, row.type])) or "value"
        return f"{text}, default {row.default}" if row.default else text
    entries = {"Parameters": [row for row in rows if row.name],
               returns: [row for row in rows if not row.name]}
    return [section(title, [(heading(row), row.comment) for row in some], columns)
            for title, some in entries.items() if some]


def table(rows: list[Parameter]) -> str:
    "The same as a Markdown table; empty without rows."
    def cell(text: str) -> str: return text.replace("|", r"\|")
    def code(text: str) -> str: return f"`{cell(text)}`" if text else ""
    lines = [[code(row.name) or "returns", code(row.type), code(row.default), cell(row.comment)]
             for row in rows]
    lines = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join(["| parameter | type | default | |", "|---|---|---|---|", *lines]) if lines else ""


def take_errors(text: str) -> tuple[str, list[tuple[str, str]]]:
    "The text without its sentences about errors, and from these the entries of the section Raises."
    entries = []
    def move(match: re.Match) -> str:
        for sentence in NEXT_ERROR.split(" ".join(match[1].split())):
            error, condition = re.match(rf"({ERRORS}) (.*)", sentence).groups()
            entries.append((error, condition[0].upper() + condition[1:] + "."))
        return ""
    return RAISES.sub(move, text), entries


def fill(text: str, columns: int) -> str:
    "Break the lines of plain paragraphs again; lists, formulas and examples stay."
    paragraphs = [paragraph if re.search(r"^(?:\s|>>>|[-*] )", paragraph, re.M)
                  else textwrap.fill(paragraph, columns, break_long_words=False, break_on_hyphens=False)
                  for paragraph in text.split("\n\n")]
    return "\n\n".join(paragraphs)


def split_sections(text: str) -> tuple[str, dict[str, str]]:
    "A docstring's text and its sections by title."
    headings = list(HEADING.finditer(text))
    if not headings: return text, {}
    ends = [match.start() for match in headings[1:]] + [len(text)]
    sections = {match[1]: text[match.start():end].strip() for match, end in zip(headings, ends)}
    return text[:headings[0].start()].strip(), sections


def new_docstring(text: str, rows: list[Parameter], columns: int, returns: str) -> str:
    "The docstring with its sections, in NumPy's order; those written by hand stay."
    text, sections = split_sections(text)
    text, errors = take_errors(text)
    if errors or rows and max(map(len, text.splitlines()), default=0) > columns - len('r"""'):
        text = fill(text, columns - len('r"""'))
    parts = [text, *parameter_sections(rows, columns, returns)]
    if errors: parts.append(section("Raises", errors, columns))
    parts += [body for title, body in sections.items() if title not in GENERATED]
    return "\n\n".join(filter(None, parts))


def literal(text: str, indent: str) -> str:
    "A docstring as source text, indented except for its first line."
    prefix = "r" if "\\" in text else ""
    if '"""' in text: raise ValueError(f"a docstring contains three quotation marks: {text!r}")
    body = textwrap.indent(text, indent).strip()
    closing = f"\n{indent}" if "\n" in text else ""
    return f'{prefix}"""{body}{closing}"""'


def rewrite(text: str) -> str:
    "The source of a module with sections in its docstrings."
    source = Source(text)
    lines = source.lines
    for _, node in sorted(definitions(source.tree.body), key=lambda pair: -pair[1].lineno):
        old = ast.get_docstring(node)
        first = node.body[0]
        indent = " "*first.col_offset
        head = "".join(lines[first.lineno - 1:first.lineno])[:first.col_offset]
        if old is None or head.strip(): continue  # no docstring, or one on the line of the signature
        returns = "Yields" if isinstance(node, FUNCTIONS) and is_generator(node) else "Returns"
        new = new_docstring(old, parameters(source, node), COLUMNS - len(indent), returns)
        if new == old: continue
        rest = lines[first.end_lineno - 1].encode()[first.end_col_offset:].decode()
        lines[first.lineno - 1:first.end_lineno] = [indent + literal(new, indent) + rest]
    return "".join(lines)


def write(folder: Path) -> None:
    "Rewrite every module below the folder."
    for path in sorted(folder.rglob("*.py")):
        if path.name == "_modidx.py": continue
        old = path.read_text(encoding="utf-8")
        new = rewrite(old)
        if new != old: path.write_text(new, encoding="utf-8")


if __name__ == "__main__": write(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT/"sentnb"))

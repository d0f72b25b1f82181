"""The size of the house: files, lines, names, imports. It grows with a feature, by hand, with the reason."""

import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.pages import ROOT

PACKAGES = ("ralphd", "ralphctl")
CODE_LINES = 51_330
FILES = 412
FILES_IN_A_FOLDER = 13
IMPORT_DEPTH = 15
FUNCTION_LINES = 50
SMALLEST_FILE = 40
HAND_WRITTEN_DOC_LINES = 5_660
EXEMPT_FROM_SMALLEST = {"__init__.py", "__main__.py"}
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


@cache
def modules() -> Mapping[str, tuple[Path, ast.Module]]:
    """Return each product module with its path below the root and its syntax tree."""
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {name_of(path): (path.relative_to(ROOT), ast.parse(path.read_text())) for path in paths}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of strings that stand alone: docstrings of modules, classes, functions, attributes."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }  # fmt: skip


@cache
def code_lines(path: Path) -> int:
    """Return how many lines hold a token that is neither comment nor docstring."""
    source = (ROOT / path).read_text()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }  # fmt: skip
    return len(lines - docstring_lines(ast.parse(source)))


def imported(module: str, *, late: bool) -> set[str]:
    """Return the product modules that ``module`` imports, with those inside functions when ``late``."""
    return {name for name in _imports(modules()[module][1].body, module, late=late) if name != module}


def _imports(body: list[ast.stmt], module: str, *, late: bool) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from filter(None, (_known(alias.name) for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module}: a relative import"
            yield from filter(None, (_known(f"{node.module}.{alias.name}") for alias in node.names))
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or late:
            for field in ("body", "orelse", "finalbody", "handlers", "cases"):
                yield from _imports(getattr(node, field, []), module, late=late)


def _known(name: str) -> str | None:
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


def longest_chain(
    module: str, seen: dict[str, tuple[str, ...]], path: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the longest chain of imports from ``module`` down. A ring fails the test."""
    assert module not in path, f"an import ring: {' -> '.join((*path, module))}"
    if module not in seen:
        below = (longest_chain(each, seen, (*path, module)) for each in imported(module, late=False))
        seen[module] = (module, *max(below, key=len, default=()))
    return seen[module]


def test_the_house_has_its_size() -> None:
    total = sum(code_lines(path) for path, _ in modules().values())
    assert total <= CODE_LINES, (
        f"{total} code lines: a feature that needs more raises CODE_LINES, with the reason"
    )
    assert len(modules()) <= FILES


def test_a_folder_is_a_room() -> None:
    folders = Counter(path.parent for path, _ in modules().values() if path.parent.name != "commands")
    assert {str(folder): files for folder, files in folders.items() if files > FILES_IN_A_FOLDER} == {}


def test_a_file_is_more_than_a_crumb() -> None:
    small = [
        str(path)
        for path, _ in modules().values()
        if path.name not in EXEMPT_FROM_SMALLEST and not {"commands", "api"} & set(path.parts)
        and code_lines(path) < SMALLEST_FILE
    ]  # fmt: skip
    assert small == []


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path, tree in modules().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_now_is_a_time() -> None:
    times = {"float", "Moment", "int", "datetime", "Clock", "Callable[[], Moment]", "Callable[[], float]"}
    others = [
        f"{path}:{node.lineno}: now: {ast.unparse(argument.annotation)}"
        for path, tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "now" and argument.annotation is not None
        and not set(ast.unparse(argument.annotation).strip("'\"").split(" | ")) & times
    ]  # fmt: skip
    assert others == []


def test_imports_are_shallow_and_have_no_ring() -> None:
    seen: dict[str, tuple[str, ...]] = {}
    deepest = max((longest_chain(module, seen) for module in modules()), key=len)
    assert len(deepest) <= IMPORT_DEPTH, "\n".join(deepest)


def test_late_imports_make_no_ring() -> None:
    left = {module: imported(module, late=True) for module in modules()}
    while leaves := {module for module, below in left.items() if not below & left.keys()}:
        left = {module: below for module, below in left.items() if module not in leaves}
    assert not left, f"modules that import each other: {sorted(left)}"


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno + 1 > FUNCTION_LINES
    ]
    assert long == []


def test_the_documentation_can_be_read_in_an_evening() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    by_hand = [page for page in pages if "ritten by `make" not in page.read_text()[:600]]
    assert sum(len(page.read_text().splitlines()) for page in by_hand) <= HAND_WRITTEN_DOC_LINES

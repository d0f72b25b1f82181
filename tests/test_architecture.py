"""``docs/architecture.md`` and ``docs/glossary.md`` name what is there: files, classes, functions."""

import ast
import re
from functools import cache

import pytest

from tests.pages import ROOT

PAGES = ("docs/architecture.md", "docs/glossary.md")
QUOTED = re.compile(r"`([^`\s]+)`")
CODE_NAME = re.compile(r"(_[a-z]\w+|[A-Z]\w*[a-z]\w*(\.\w+)?)")
"""A private name, a class, or a member of one. What else is quoted may be a key, an event or a command."""
DEFINED = re.compile(r"^( *)(?:(?:async )?def |class |self\.)?(\w+)(?=\(|:| = )", re.MULTILINE)
FOREIGN = {"TaskGroup"}


@cache
def names() -> set[str]:
    """Return all names that the product and its tests define, methods with their class too."""
    found = set()
    for file in _files():
        within = ""
        for indent, name in DEFINED.findall((ROOT / file).read_text()):
            within = within if indent else name
            found |= {name, f"{within}.{name}"}
    return found


def _defined(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.AnnAssign(target=target) | ast.Assign(targets=[target]):
            return {ast.unparse(target)}
        case _:
            return set()


@pytest.mark.parametrize("page", PAGES)
def test_each_class_and_function_on_the_page_exists(page: str) -> None:
    quoted = {name for name in QUOTED.findall((ROOT / page).read_text()) if CODE_NAME.fullmatch(name)}

    assert quoted - names() - FOREIGN == set()


@pytest.mark.parametrize("page", PAGES)
def test_each_file_on_the_page_exists(page: str) -> None:
    quoted = {
        name for name in QUOTED.findall((ROOT / page).read_text()) if re.fullmatch(r"[\w./]+\.py", name)
    }
    files = _files()

    assert {name for name in quoted if "NAME" not in name and not _ends_of(files, name)} == set()


def test_what_is_named_with_its_file_is_in_that_file() -> None:
    """``name`` (``path.py``), as the walks have it."""
    pairs = re.findall(r"`([\w.]+)` \(`([\w./]+\.py)`\)", (ROOT / PAGES[0]).read_text())
    assert len(pairs) > 20

    missing = []
    for name, file in pairs:
        (path,) = _ends_of(_files(), file)
        found = {each for node in ast.walk(ast.parse((ROOT / path).read_text())) for each in _defined(node)}
        missing += [(name, file)] if name.rpartition(".")[2] not in found else []
    assert missing == []


def _files() -> set[str]:
    tops = ("ralphd", "ralphctl", "tests")
    return {str(path.relative_to(ROOT)) for top in tops for path in (ROOT / top).rglob("*.py")}


def _ends_of(files: set[str], name: str) -> list[str]:
    return [file for file in files if f"/{file}".endswith(f"/{name}")]

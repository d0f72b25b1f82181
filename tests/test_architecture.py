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


OPENERS = {"open", "read_text", "read_bytes", "Descriptor"}
SAFE = re.compile(
    r"/proc|os\.devnull|O_DIRECTORY|O_PATH|O_CREAT|__file__|_TEMPLATES|O_NOFOLLOW.*O_NONBLOCK"
    r"|O_WRONLY|EventStore\.open|gate\.open"
)
"""What no run can replace, and calls that follow no link and never block."""
PERMITTED = {
    "agents/description.py": "part of the installation",
    "agents/patterns.py": "part of the installation, or a file that the user names, in the loop",
    "config/files.py": "checks the descriptor: a regular file of an owner that ralphd trusts",
    "git/locks.py": "below /proc",
    "git/repo.py": "opens without blocking, and checks the descriptor",
    "git/restore.py": "HEAD of the copy that it has just written",
    "git/rewrite/file_snapshots.py": "after lstat; git holds the tree still",
    "git/rewrite/move_branch.py": "its own journal in a private directory below the git directory",
    "git/rewrite/stash.py": "its own lock, created exclusively; the others are lists",
    "git/runner.py": "the git directory itself",
    "git/tree_diff.py": "after lstat; git holds the tree still",
    "git/vault.py": "below vaults/ in the state directory; .git as a file, after a check",
    "notify/client.py": "opens without blocking, and checks the descriptor",
    "process/lock.py": "below /proc",
    "loop/workdir_files.py": "opens without links and without blocking, and checks the descriptor",
    "process/log/segments.py": "a segment, without links and without blocking",
    "process/machine.py": "/etc/localtime",
    "process/shim.py": "imports the standard library alone; its run directory, before the command is started",
    "process/spawn.py": "creates the file of the shim's errors",
    "process/tree.py": "below /sys/fs/cgroup",
    "store/files.py": "creates a file of its own",
}


def test_what_a_run_can_write_is_opened_without_links_and_without_blocking() -> None:
    direct = set()
    for path in sorted((ROOT / "ralphd").rglob("*.py")):
        name = str(path.relative_to(ROOT / "ralphd"))
        for node in ast.walk(ast.parse(path.read_text())):
            call = ast.unparse(node) if isinstance(node, ast.Call) else ""
            function = getattr(node, "func", None)
            word = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            if word in OPENERS and name != "plain_files.py" and not SAFE.search(call):
                direct.add(name)

    assert sorted(direct - PERMITTED.keys()) == [], "open it by ralphd/plain_files.py, or give the reason"
    assert sorted(PERMITTED.keys() - direct) == [], "it opens nothing itself any more"

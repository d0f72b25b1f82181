"""What the guard cannot do in a repository, told at the start rather than at night."""

import re
from pathlib import Path
from typing import Final

from ralphd.git import repo
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone

LIMIT_S: Final = 10.0
_MERGES_TREES: Final = (2, 38)


def unsupported(directory: Path) -> tuple[str, ...]:
    """A line each, for people; empty where all of it works, and outside of a repository.

    Shallow clones, SHA-256, linked and sparse work trees and submodules are supported. Blocks for bounded
    calls of git.
    """
    if Repository.find(directory) is None:
        return ()
    found = repo.answer(directory, "rev-parse", "--is-inside-work-tree")
    if found is None or found[0] != 0:
        return (f"git does not work in {directory}; try it: git -C {directory} status",)
    try:
        calls = GitRunner(directory, limit_s=LIMIT_S)
        lines = (_version(calls), filtered_files(calls), _reflogs(calls), _partial(calls))
    except NotDone as why:
        return (str(why),)
    return tuple(line for line in lines if line)


def filtered_files(calls: GitRunner) -> str:
    """A line about files that go through a filter which is configured; empty without such files."""
    if not calls.filters:
        return ""
    names = calls.printed("ls-files", "-z")
    printed = calls.printed("check-attr", "-z", "--stdin", "filter", given=names).split(b"\0")
    drivers = {name.encode(errors="surrogateescape") for name in calls.filters}
    used = [value for value in printed[2::3] if value in drivers]
    if not used:
        return ""
    called = ", ".join(sorted({value.decode(errors="replace") for value in used}))
    count = "1 file goes" if len(used) == 1 else f"{len(used)} files go"
    return f"{count} through a filter ({called}), which is not run: a commit that changes one is not reverted"


def _version(calls: GitRunner) -> str:
    found = re.search(r"(\d+)\.(\d+)", calls.text("version"))
    if found is None or (int(found[1]), int(found[2])) >= _MERGES_TREES:
        return ""
    return f"git {found[0]} is old: what is not the last commit can be reverted or undone from git 2.38 on"


def _reflogs(calls: GitRunner) -> str:
    is_off = calls.looked_up("config", "--bool", "core.logAllRefUpdates") == "false"
    in_tables = calls.looked_up("config", "extensions.refStorage") == "reftable"
    if not (is_off or in_tables):
        return ""
    why = "refs are kept in tables" if in_tables else "core.logAllRefUpdates is off"
    return f"{why}: a commit that is in a remote counts as pulled, and is not reverted"


def _partial(calls: GitRunner) -> str:
    if not calls.looked_up("config", "--get-regexp", r"^remote\..*\.promisor$"):
        return ""
    return (
        "this is a partial clone: nothing is fetched for a revert, which is refused where files are missing"
    )

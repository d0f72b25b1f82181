"""What stands in the way of work in a repository, and what ralphd cannot do there, as lines for people.

Each line names the command that helps. ``in_the_way`` and ``half_done`` read files only, so that they can be
asked at every boundary; ``unsupported`` starts git and is asked when a ralph starts, not at its first revert.
"""

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Final

from ralphd.core.text import short_sha
from ralphd.core.time import Moment
from ralphd.git import repo
from ralphd.git.locks import lock_files, lock_message, wait_for_lock
from ralphd.git.repo import Repository
from ralphd.git.runner import GitRunner, NotDone, name_list, readable
from ralphd.plain_files import read_plain

SUPPORT_LIMIT_S: Final = 10.0
WILL_PAUSE: Final = "the guard will pause Ralph at a commit: "
"""The beginning of a note on a line of ``in_the_way``."""
_LIMIT_S: Final = 2.0
_MOST_NAMES: Final = 10
_HEAD_BYTES: Final = 4096
_MOST_KNOWN: Final = 100
_KNOWN_BYTES: Final = 1 << 20
_UNFINISHED: Final = (
    (("rebase-merge", "rebase-apply/rebasing"), "a rebase", "rebase"),
    (("rebase-apply/applying",), "git am", "am"),
    (("MERGE_HEAD",), "a merge", "merge"),
    (("CHERRY_PICK_HEAD",), "a cherry-pick", "cherry-pick"),
    (("REVERT_HEAD",), "a revert", "revert"),
)


def unfinished(repository: Repository) -> tuple[tuple[str, tuple[str, str]], ...]:
    """Return a rebase, merge or the like that waits to be continued, and a bisect.

    Each is a line for people and the words for git that abort it.
    """
    # One at most: a rebase that stops has the files of a cherry-pick too; the first match is what was begun.
    acts = [
        (f"{what} is half done: git {verb} --continue, or --abort", (verb, "--abort"))
        for names, what, verb in _UNFINISHED
        if any((repository.git / name).exists() for name in names)
    ][:1]
    if (repository.git / "BISECT_LOG").exists():
        acts.append(("a bisect is under way: git bisect reset ends it", ("bisect", "reset")))
    return tuple(acts)


def half_done(directory: Path) -> tuple[str, ...]:
    """Return the lines of ``unfinished``; none outside of a repository."""
    repository = Repository.find(directory)
    return tuple(line for line, _ in unfinished(repository)) if repository is not None else ()


def is_older(repository: Repository, moment: Moment) -> bool:
    """Return whether what is half done began before a moment: its oldest file is older."""
    names = (*chain(*(names for names, _, _ in _UNFINISHED)), "rebase-apply", "sequencer", "BISECT_LOG")
    files = (file for name in names for file in (repository.git / name, *(repository.git / name).glob("*")))
    return any(os.path.lexists(file) and file.lstat().st_mtime < moment for file in files)


def has_locks(directory: Path) -> bool:
    """Return whether any lock of git exists in the repository around a directory."""
    repository = Repository.find(directory)
    return repository is not None and bool(lock_files(repository))


def in_the_way(directory: Path) -> tuple[str, ...]:
    """Return lines for a lock of the index, something half done, a detached HEAD.

    Empty without any, and outside of a repository.
    """
    if (repository := Repository.find(directory)) is None:
        return ()
    lock = repository.git / "index.lock"
    lines = [lock_message(lock)] if lock.exists() else []
    if half_done := [line for line, _ in unfinished(repository)]:
        return (*lines, *half_done)
    head = repository.git / "HEAD"
    with suppress(OSError):
        # An old git made HEAD a symlink to its branch.
        text = "ref:" if head.is_symlink() else read_plain(head, _HEAD_BYTES).decode(errors="replace")
        if not text.startswith("ref:"):
            belongs = "what is committed here belongs to no branch (git switch BRANCH)"
            lines.append(f"HEAD is detached at {short_sha(text)}: {belongs}")
    return tuple(lines)


def present_trouble(directory: Path) -> tuple[str, ...]:
    """Return ``in_the_way`` and a line for unmerged files. Blocks for 2 s at most."""
    lines = in_the_way(directory)
    if Repository.find(directory) is not None:
        _, output = repo.answer(directory, "ls-files", "--unmerged", "-z", limit_s=_LIMIT_S) or (1, b"")
        lines += _conflicts(_unmerged_paths(output), _MOST_NAMES)
    return lines


def left_uncommitted(directory: Path, since: Moment, known: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files that are not committed and were changed from ``since`` on.

    A deleted file always counts; one with the digest that ``known`` has for it does not: the gate
    rewrites what it had set aside. Empty outside of a repository, and where git fails or is slow. Blocks.
    """
    try:
        git = GitRunner(directory, limit_s=SUPPORT_LIMIT_S)
        names = [entry[3:] for entry in git.status() if b".ralph" not in entry[3:].split(b"/")]
        changed = [(readable(name), git.path(name)) for name in names if _is_changed(git.path(name), since)]
    except NotDone:
        return ()
    return tuple(name for name, path in changed if name not in known or known[name] != _digest(path))


def uncommitted_digests(directory: Path) -> dict[str, str]:
    """Return a digest of the first 100 tracked files that are not committed, except files over 1 MiB.

    Empty outside of a repository, and where git fails or is slow. Blocks.
    """
    try:
        git = GitRunner(directory, limit_s=_LIMIT_S)
        names = islice((entry[3:] for entry in git.status("-uno")), _MOST_KNOWN)
        found = {readable(name): _digest(git.path(name)) for name in names}
    except NotDone:
        return {}
    return {name: digest for name, digest in found.items() if digest is not None}


def _digest(path: bytes) -> str | None:
    """Return a digest of a file or link, empty if absent; None if it is large or unreadable."""
    file = Path(os.fsdecode(path))
    try:
        data = os.fsencode(file.readlink()) if file.is_symlink() else read_plain(file, _KNOWN_BYTES)
        return hashlib.sha256(data).hexdigest()
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _is_changed(path: bytes, since: Moment) -> bool:
    # ctime: a run cannot set it, and a file that was copied with its old time is new.
    with suppress(OSError):
        return os.lstat(path).st_ctime >= since
    return True


def trouble_of(git: GitRunner, unmerged: Collection[bytes]) -> str:
    """Return what stands in the way of a change to the work tree; empty if nothing does.

    Waits some seconds for the lock of the index.
    """
    wait_for_lock(git.repository.git)
    return "; ".join((*in_the_way(git.directory), *_conflicts(unmerged)))


def _unmerged_paths(output: bytes) -> tuple[bytes, ...]:
    return tuple(sorted({line.partition(b"\t")[2] for line in output.split(b"\0") if line}))


def _conflicts(names: Collection[bytes], *most: int) -> tuple[str, ...]:
    return (f"files with conflicts: {name_list(names, *most)}",) if names else ()


# What ralphd cannot do in a repository.


def unsupported(directory: Path) -> tuple[str, ...]:
    """Return a line for each limitation; empty where all works, and outside of a repository.

    Shallow clones, SHA-256, linked and sparse work trees and submodules are supported.
    """
    if Repository.find(directory) is None:
        return ()
    answer = repo.answer(directory, "rev-parse", "--is-inside-work-tree")
    if answer is None or answer[0] != 0:
        return (f"git does not work in {directory}; try it: git -C {directory} status",)
    try:
        return tuple(_limitations(GitRunner(directory, limit_s=SUPPORT_LIMIT_S)))
    except NotDone as why:
        return (str(why),)


def _limitations(git: GitRunner) -> Iterator[str]:
    version = re.search(r"(\d+)\.(\d+)", git.text("version"))
    if version and (int(version[1]), int(version[2])) < (2, 38):
        can = "what is not the last commit can be reverted or undone from git 2.38 on"
        yield f"git {version[0]} is old: {can}"
    if filtered := filtered_files(git):
        yield filtered
    pulled = "a commit that is in a remote counts as pulled, and is not reverted"
    if git.line("config", "extensions.refStorage") == "reftable":
        yield f"refs are kept in tables: {pulled}"
    elif git.line("config", "--bool", "core.logAllRefUpdates") == "false":
        yield f"core.logAllRefUpdates is off: {pulled}"
    if git.line("config", "--get-regexp", r"^remote\..*\.promisor$"):
        refused = "nothing is fetched for a revert, which is refused where files are missing"
        yield f"this is a partial clone: {refused}"


def filtered_files(git: GitRunner) -> str:
    """Return a line about files that go through a configured filter; empty without such files."""
    used = git.filtered(git.output("ls-files", "-z").split(b"\0")[:-1]) if git.filters else {}
    if not used:
        return ""
    drivers = ", ".join(sorted({driver.decode(errors="replace") for driver in used.values()}))
    count = "1 file goes" if len(used) == 1 else f"{len(used)} files go"
    effect = "a commit that changes one is not reverted"
    return f"{count} through a filter ({drivers}), which is not run: {effect}"

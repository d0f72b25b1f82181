"""Mend what a killed tree of processes has left in a repository: locks, half-done acts, a HEAD on no branch.

What is taken away is kept first: files in a snapshot, commits under ``refs/ralph/left/LABEL/``. Without
``RepairMode.ABORT`` only locks are removed and the rest is told.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ralphd.core.time import Moment
from ralphd.git.diagnostics import half_done, in_the_way, is_older, ways_back
from ralphd.git.locks import removed_locks
from ralphd.git.rewrite.move_branch import HEADS, recover
from ralphd.git.rewrite.revert import ref_name
from ralphd.git.runner import LIMIT_S, GitRunner, NotDone, said_of
from ralphd.git.snapshot import snapshot
from ralphd.git.support import filtered_files

LEFT: Final = "refs/ralph/left/"
_CAME_FROM: Final = re.compile(r"\S+@\{(\d+)\} checkout: moving from (\S+) to ")


class RepairMode(StrEnum):
    """``[git] repair``: only say what was left, or bring the repository back to where work can go on."""

    TELL = "tell"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A line each for what was done, and for what is still to be looked at."""

    done: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


def repair(
    directory: Path,
    mode: RepairMode,
    *,
    ended_at: Moment,
    began_at: Moment = 0.0,
    label: str,
    branch: str | None = None,
    limit_s: float = LIMIT_S,
) -> Repaired:
    """Mend what processes have left that all ended before ``ended_at``; the caller has proved that they did.

    What was half done or detached before ``began_at`` is none of theirs: it is only told. ``branch`` is where
    HEAD was before them; without it, where the reflog says it came from. ``label`` names the refs. Carried
    out twice it does nothing more. Raises nothing for what it finds.
    """
    done: list[str] = []
    told: list[str] = []
    try:
        calls = GitRunner(directory, limit_s=limit_s)
        removed, left = removed_locks(calls.repository, calls.top, ended_at=ended_at)
        done, told = list(removed), list(left)
        with calls.alone():
            recover(calls)
            if mode is RepairMode.ABORT and not _has_lock(directory):
                for line in _mended(calls, label, branch, began_at):
                    done.append(line)  # one by one: what went before one that fails is done
    except (NotDone, OSError) as why:
        told.append(said_of(why) if isinstance(why, OSError) else str(why))
    return Repaired(tuple(done), (*told, *in_the_way(directory)))


def _has_lock(directory: Path) -> bool:
    return any("index.lock" in line for line in in_the_way(directory))


def _mended(calls: GitRunner, label: str, branch: str | None, began_at: Moment) -> Iterator[str]:
    for words in ways_back(calls.directory) if not is_older(calls.directory, began_at) else ():
        yield _ended(calls, words, label)
    if half_done(calls.directory) or calls.looked_up("symbolic-ref", "--quiet", "HEAD") is not None:
        return
    name, since = (branch, None) if branch else _came_from(calls)
    if since is None or since >= int(began_at):
        yield _on_branch(calls, label, name)


def _ended(calls: GitRunner, words: tuple[str, str], label: str) -> str:
    """End something half done as if it had not been begun. Raises NotDone where that would lose anything."""
    command = f"git {' '.join(words)}"
    if filtered := filtered_files(calls):
        raise NotDone(f"{filtered}, so nothing is aborted; do it yourself: {command}")
    kept = snapshot(calls.directory, f"{label}, before {command}")
    if kept.trouble or kept.skipped_large:
        why = kept.trouble or f"{kept.skipped_large[0]} is too large to be kept"
        raise NotDone(f"{why}, so nothing is aborted; do it yourself: {command}")
    where = _kept_head(calls, label)
    code, _ = calls.call(*words, also={**calls.identity, "GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"})
    if code != 0 or words in ways_back(calls.directory):
        raise NotDone(f"{command} ended with {code}: look at git status")
    refs = " and ".join(filter(None, (where, kept.ref)))
    return f"{command}: what was there is kept under {refs}"


def _on_branch(calls: GitRunner, label: str, branch: str | None) -> str:
    """Bring HEAD back to its branch, with its commits where that is a fast-forward. Raises NotDone."""
    if branch is None or (tip := _commit(calls, HEADS + branch)) is None:
        raise NotDone("HEAD is on no branch, and it is not known where it came from")
    ref, head = HEADS + branch, _commit(calls, "HEAD")
    if f"branch {ref}" in calls.text("worktree", "list", "--porcelain").split("\n"):
        raise NotDone(f"HEAD is on no branch, and {branch} is checked out in another work tree")
    if head is None:
        raise NotDone("HEAD is no commit")
    if calls.call("merge-base", "--is-ancestor", tip, head)[0] == 0:
        given = f"update {ref} {head} {tip}\n".encode(errors="surrogateescape")
        calls.printed(
            "update-ref", "-m", "ralph: commits of no branch", "--stdin", given=given, also=calls.identity
        )
        calls.printed("symbolic-ref", "-m", f"ralph: to {branch}", "HEAD", ref, also=calls.identity)
        return f"HEAD was on no branch: it is on {branch} again, with its commits"
    if filtered := filtered_files(calls):
        raise NotDone(f"HEAD is on no branch; {filtered}, so do it yourself: git switch {branch}")
    kept = "" if calls.call("merge-base", "--is-ancestor", head, tip)[0] == 0 else _kept_head(calls, label)
    words = ("--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", branch, "--")
    if calls.call("checkout", *words, also=calls.identity)[0] != 0:
        raise NotDone(f"HEAD is on no branch, and what is not committed is in the way: git switch {branch}")
    return f"HEAD was on no branch: it is on {branch} again" + (
        f"; its commits are kept under {kept}" if kept else ""
    )


def _kept_head(calls: GitRunner, label: str) -> str:
    """Keep HEAD under a ref of its own, whose name is answered; empty without a commit."""
    head = _commit(calls, "HEAD")
    if head is None:
        return ""
    ref = f"{LEFT}{ref_name(label)}/{head[:12]}"
    calls.printed("update-ref", "--stdin", given=f"update {ref} {head}\n".encode())
    return ref


def _commit(calls: GitRunner, revision: str) -> str | None:
    return calls.looked_up("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")


def _came_from(calls: GitRunner) -> tuple[str | None, Moment | None]:
    """The branch from which HEAD was detached last, and when; None: that is not known."""
    words = ("log", "-g", "--date=unix", "--format=%gd %gs", "--max-count=200", "HEAD", "--")
    code, printed = calls.call(*words)
    for line in printed.decode(errors="surrogateescape").splitlines() if code == 0 else ():
        found = _CAME_FROM.match(line)
        if found and _commit(calls, HEADS + found[2]):
            return found[2], int(found[1])
    return None, None

"""Repair what a killed process tree has left in a repository: locks, half-done acts, a detached HEAD.

The next agent would otherwise fail at its first commit, or commit onto no branch. What is removed is kept
first: files in a snapshot, commits under ``refs/ralph/left/LABEL/``. Without ``RepairMode.ABORT`` only stale
locks are removed, and the rest is reported.
"""

# Theory of operation
#
# The caller has proved that the processes have ended, so nothing of theirs writes any more. A person may:
# their acts are recognized by time. What began before ``began_at`` (the oldest file of a rebase or merge, the
# reflog line that detached HEAD) is theirs and is only reported.
#
# Order: stale locks (everything else needs them gone), a cut-off move of ours, each half-done act, HEAD. Each
# step keeps first and changes then: a crash between the two leaves a ref too many, and the repeated repair
# does the rest. An abort that fails stops the repair, with what was done before it reported.
#
# Refused: an abort where the snapshot lacks anything (a file too large) or where filters would have to run,
# since git's abort rewrites files; a branch that is checked out in another work tree.

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ralphd.core.time import Moment
from ralphd.git.diagnostics import filtered_files, half_done, in_the_way, is_older, unfinished
from ralphd.git.locks import remove_stale_locks
from ralphd.git.rewrite.move_branch import HEADS, recover
from ralphd.git.runner import LIMIT_S, GitRunner, NotDone, error_text, ref_name
from ralphd.git.snapshot import snapshot

LEFT: Final = "refs/ralph/left/"
_MOVING_FROM: Final = re.compile(r"\S+@\{(\d+)\} checkout: moving from (\S+) to ")


class RepairMode(StrEnum):
    """``[git] repair``: only report what was left, or restore the repository so that work can continue."""

    TELL = "tell"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A line for each thing that was done, and for each that a person has to look at."""

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
    """Repair what processes have left that began at ``began_at`` and all ended before ``ended_at``.

    ``branch`` is where HEAD was before them; without it, the reflog is asked. ``label`` names the refs. May
    be repeated. Raises nothing for what it finds.
    """
    done: list[str] = []
    left: list[str] = []
    try:
        git = GitRunner(directory, limit_s=limit_s)
        removed, remaining = remove_stale_locks(git.repository, git.top, ended_at=ended_at)
        done, left = list(removed), list(remaining)
        with git.exclusive():
            recover(git)
            if mode is RepairMode.ABORT and not (git.repository.git / "index.lock").exists():
                for line in _repair_acts(git, label, branch, began_at):
                    done.append(line)  # one by one: a failure does not hide what was done before it
    except (NotDone, OSError) as why:
        left.append(error_text(why))
    return Repaired(tuple(done), (*left, *in_the_way(directory)))


def _repair_acts(git: GitRunner, label: str, branch: str | None, began_at: Moment) -> Iterator[str]:
    if not is_older(git.directory, began_at):
        for _, words in unfinished(git.directory):
            yield _abort(git, words, label)
    if half_done(git.directory) or git.branch() is not None:
        return
    name, detached_at = (branch, None) if branch else _detached_from(git)
    if detached_at is None or detached_at >= int(began_at):
        yield _reattach(git, label, name)


def _abort(git: GitRunner, words: tuple[str, str], label: str) -> str:
    """Abort something half done. Raises NotDone where that would lose anything."""
    command = f"git {' '.join(words)}"
    if filtered := filtered_files(git):
        raise NotDone(f"{filtered}, so nothing is aborted; do it yourself: {command}")
    work = snapshot(git.directory, f"{label}, before {command}")
    if work.trouble or work.skipped_large:
        why = work.trouble or f"{work.skipped_large[0]} is too large to be kept"
        raise NotDone(f"{why}, so nothing is aborted; do it yourself: {command}")
    commits_ref = _keep_head(git, label)
    code, _ = git.run(*words, env={**git.identity, "GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"})
    if code != 0 or words in (each for _, each in unfinished(git.directory)):
        raise NotDone(f"{command} ended with {code}: look at git status")
    return f"{command}: what was there is kept under {' and '.join(filter(None, (commits_ref, work.ref)))}"


def _reattach(git: GitRunner, label: str, branch: str | None) -> str:
    """Set HEAD to its branch, with its commits where that is a fast-forward. Raises NotDone."""
    tip = git.commit(HEADS + branch) if branch else None
    if branch is None or tip is None:
        raise NotDone("HEAD is on no branch, and it is not known where it came from")
    ref, head = HEADS + branch, git.commit("HEAD")
    if f"branch {ref}" in git.text("worktree", "list", "--porcelain").split("\n"):
        raise NotDone(f"HEAD is on no branch, and {branch} is checked out in another work tree")
    if head is None:
        raise NotDone("HEAD is not a commit")
    attached = f"HEAD was on no branch: it is on {branch} again"
    if git.run("merge-base", "--is-ancestor", tip, head)[0] == 0:
        # Files and index are at HEAD already: moving the branch there changes neither.
        git.update_refs(f"update {ref} {head} {tip}", reason="ralph: commits of no branch")
        git.output("symbolic-ref", "-m", f"ralph: to {branch}", "HEAD", ref, env=git.identity)
        return f"{attached}, with its commits"
    if filtered := filtered_files(git):
        raise NotDone(f"HEAD is on no branch; {filtered}, so do it yourself: git switch {branch}")
    is_behind = git.run("merge-base", "--is-ancestor", head, tip)[0] == 0
    kept_ref = "" if is_behind else _keep_head(git, label)
    words = ("--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", branch, "--")
    if git.run("checkout", *words, env=git.identity)[0] != 0:
        raise NotDone(f"HEAD is on no branch, and what is not committed is in the way: git switch {branch}")
    return f"{attached}; its commits are kept under {kept_ref}" if kept_ref else attached


def _keep_head(git: GitRunner, label: str) -> str:
    """Keep HEAD under a ref of its own and return its name; empty without a commit."""
    head = git.commit("HEAD")
    if head is None:
        return ""
    ref = f"{LEFT}{ref_name(label)}/{head[:12]}"
    git.update_refs(f"update {ref} {head}")
    return ref


def _detached_from(git: GitRunner) -> tuple[str | None, Moment | None]:
    """Return the branch that HEAD was last detached from, and when."""
    words = ("log", "-g", "--date=unix", "--format=%gd %gs", "--max-count=200", "HEAD", "--")
    code, output = git.run(*words)
    for line in output.decode(errors="surrogateescape").splitlines() if code == 0 else ():
        match = _MOVING_FROM.match(line)
        if match and git.commit(HEADS + match[2]):
            return match[2], int(match[1])
    return None, None

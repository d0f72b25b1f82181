"""Repair what a killed process tree has left in a repository, and set a crashed agent's half-done work aside.

What an agent left half written is removed once it is kept under a ref: the next agent starts from a clean
commit. Only new work is removed: a path that was uncommitted or ignored before the attempt stays, even if it
has changed since. Ignored files are never touched.
"""

import os
import re
from collections.abc import Collection, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Final

from ralphd.core.gate.verdict import LEFT
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass
from ralphd.git import diagnostics
from ralphd.git.diagnostics import unfinished
from ralphd.git.facts import RUN_SETTING, position
from ralphd.git.locks import remove_stale_locks
from ralphd.git.repo import Repository
from ralphd.git.rewrite.file_snapshots import Trace, traces
from ralphd.git.rewrite.move_branch import HEADS, recover, refuse_filtered
from ralphd.git.runner import GitRunner, NotDone, error_text, name_list, ref_name
from ralphd.git.snapshot import Snapshot, snapshot
from ralphd.git.tree_diff import TreeEntry, above, committed_at, is_there, obstructing, put_entries, staged_at

# Theory of operation of the repair: locks, half-done acts, a detached HEAD
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
    directory: Path, mode: RepairMode, *, ended_at: Moment, began_at: Moment, label: str, branch: str | None
) -> Repaired:
    """Repair what processes have left that began at ``began_at`` and all ended before ``ended_at``.

    ``branch`` is where HEAD was before them; without it, the reflog is asked. ``label`` names the refs. May
    be repeated. Raises nothing for what it finds.
    """
    done, left = list[str](), list[str]()
    try:
        git = GitRunner(directory)
        done, left = remove_stale_locks(git.repository, git.top, ended_at=ended_at)
        with git.exclusive():
            recover(git)
            if mode is RepairMode.ABORT and not (git.repository.git / "index.lock").exists():
                for line in _repair_acts(git, label, branch, began_at):
                    done.append(line)  # one by one: a failure does not hide what was done before it
    except (NotDone, OSError) as why:
        left.append(error_text(why))
    return Repaired(tuple(done), (*left, *diagnostics.in_the_way(directory)))


def _repair_acts(git: GitRunner, label: str, branch: str | None, began_at: Moment) -> Iterator[str]:
    if not diagnostics.is_older(git.repository, began_at):
        for _, words in unfinished(git.repository):
            yield _abort(git, words, label)
    if unfinished(git.repository) or git.branch() is not None:
        return
    name, detached_at = (branch, None) if branch else _detached_from(git)
    if detached_at is None or detached_at >= int(began_at):
        yield _reattach(git, label, name)


def _abort(git: GitRunner, words: tuple[str, str], label: str) -> str:
    """Abort something half done. Raises NotDone where that would lose anything."""
    command = f"git {' '.join(words)}"
    if filtered := diagnostics.filtered_files(git):
        raise NotDone(f"{filtered}, so nothing is aborted; do it yourself: {command}")
    work = snapshot(git.directory, f"{label}, before {command}")
    if work.trouble or work.skipped_large:
        why = work.trouble or f"{work.skipped_large[0]} is too large to be kept"
        raise NotDone(f"{why}, so nothing is aborted; do it yourself: {command}")
    commits_ref = _keep_head(git, label)
    code, _ = git.run(*words, env={**git.identity, "GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "true"})
    if code != 0 or words in (each for _, each in unfinished(git.repository)):
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
    if filtered := diagnostics.filtered_files(git):
        raise NotDone(f"HEAD is on no branch; {filtered}, so do it yourself: git switch {branch}")
    is_behind = git.run("merge-base", "--is-ancestor", head, tip)[0] == 0
    kept_ref = "" if is_behind else _keep_head(git, label)
    words = ("--quiet", "--no-overwrite-ignore", "--no-recurse-submodules", branch, "--")
    if git.run("checkout", *words, env=git.identity)[0] != 0:
        raise NotDone(f"HEAD is on no branch, and what is not committed is in the way: git switch {branch}")
    return f"{attached}; its commits are kept under {kept_ref}" if kept_ref else attached


def _keep_head(git: GitRunner, label: str) -> str:
    """Keep HEAD under a ref of its own and return its name; empty without a commit."""
    if (head := git.commit("HEAD")) is None:
        return ""
    ref = f"{LEFT}{ref_name(label)}/{head[:12]}"
    git.update_refs(f"update {ref} {head}")
    return ref


def _detached_from(git: GitRunner) -> tuple[str | None, Moment | None]:
    """Return the branch that HEAD was last detached from, and when."""
    code, output = git.run("log", "-g", "--date=unix", "--format=%gd %gs", "--max-count=200", "HEAD", "--")
    for line in output.decode(errors="surrogateescape").splitlines() if code == 0 else ():
        match = _MOVING_FROM.match(line)
        if match and git.commit(HEADS + match[2]):
            return match[2], int(match[1])
    return None, None


# Theory of operation of the removal
#
# Order: look (traces), snapshot, refs, look again, remove. The snapshot is a commit made in a copy of the
# index. Nothing is removed unless all of it is kept: one file that is too large refuses the whole.
#
# A person may save a file at any moment: before the second look, and all stays; after it, each file is
# compared with its first trace again right before it is removed, and stays if it differs. Files with a
# version in HEAD are compared together before one ``git checkout``: a save in these milliseconds is in
# neither place, which is the price for modes and line ends being git's own.
#
# A crash between refs and removal leaves the files, and the ref too: the repeated act makes both again. A
# failure in the middle names the ref, which has everything.


MOST_FILES: Final = 10_000
MOST_KNOWN: Final = 200_000
"""How many names are remembered for the time of an attempt."""


def uncommitted_paths(directory: Path) -> frozenset[bytes] | None:
    """Return what is uncommitted, untracked or ignored now; None if git fails, or it is too much.

    Ignored paths count, so that an agent that edits ``.gitignore`` does not make them its own. A name with a
    slash at its end is a folder with all that is in it.
    """
    try:
        entries = GitRunner(directory).status("--ignore-submodules=all", "--ignored=matching")
        return frozenset(entry[3:] for entry in entries) if len(entries) <= MOST_KNOWN else None
    except (NotDone, OSError):
        return None


def put_away(directory: Path, before: Collection[bytes], label: str, *, scratch: Path) -> str:
    """Keep what is uncommitted now and was not ``before``, and set these paths to HEAD, index and files.

    Return a line for the next agent and for a person, empty where nothing was new. Raises nothing: where
    anything cannot be kept, all stays.
    """
    try:
        git = GitRunner(directory)
        with git.exclusive():
            recover(git)
            return _put_away(git, before, label, scratch)
    except (NotDone, OSError) as why:
        return f"what the attempt before has left half written is still there: {error_text(why)}"


def _put_away(git: GitRunner, before: Collection[bytes], label: str, scratch: Path) -> str:
    def is_new(path: bytes) -> bool:
        return path not in before and not any(each + b"/" in before for each in above(path))

    changed = [entry[3:] for entry in git.status("--ignore-submodules=all")]
    new = [path for path in changed if not path.endswith(b"/") and is_new(path)]
    if not new:
        return ""
    if trouble := diagnostics.present_trouble(git.directory):
        raise NotDone("; ".join(trouble))
    if len(new) > MOST_FILES:
        raise NotDone(f"{len(new)} files: too many")
    refuse_filtered(git, new)
    seen = traces(git, new)
    work = snapshot(git.directory, f"{label}, what a crashed attempt has left", scratch=scratch)
    if work.trouble or work.commit is None:
        raise NotDone(work.trouble or "nothing of it could be kept")
    if work.skipped_large:
        raise NotDone(f"{work.skipped_large[0]} is too large to be kept")
    committed = committed_at(git, new, work.head)
    if way := obstructing(git, committed, new):
        raise NotDone(f"what git does not keep is in the way: {name_list(way)}")
    ref = f"{LEFT}{ref_name(label)}/files"
    git.update_refs(f"update {ref} {work.commit}")
    staged = _keep_staged(git, new, committed, work, f"{LEFT}{ref_name(label)}/staged")
    if traces(git, new) != seen or position(git.directory).head != work.head:
        raise NotDone(f"files change while they are looked at; as they were: git show --stat {ref}")
    try:
        _set_to_head(git, seen, new, committed, work.head)
    except (NotDone, OSError) as why:
        rest = f"in part at least, and all of it is kept: git show --stat {ref}"
        raise NotDone(f"{error_text(why)}; {rest}") from why
    as_staged = f" (and, as it was staged: {staged})" if staged else ""
    return (
        "what the attempt before had not committed when it crashed was set aside: "
        f"{name_list(new)}. See it: git show --stat {ref}{as_staged}. "
        f"Take back what is good: git checkout {ref} -- FILE"
    )


def _keep_staged(
    git: GitRunner, new: list[bytes], committed: dict[bytes, TreeEntry], work: Snapshot, ref: str
) -> str | None:
    """Keep what is staged, if it is neither HEAD's nor the file's, and return the ref."""
    files = committed_at(git, new, work.commit)
    staged = staged_at(git, new).items()
    if all(entry in (committed.get(path), files.get(path)) for path, entry in staged):
        return None
    index = git.work / "tmp-tree"
    git.copy_index(index)
    tree = git.text("write-tree", env={"GIT_INDEX_FILE": os.fspath(index)})
    parents = (work.head,) if work.head else ()
    commit = git.commit_tree(tree, "what a crashed attempt had staged\n", *parents)
    git.update_refs(f"update {ref} {commit}")
    return ref


def _set_to_head(
    git: GitRunner, seen: dict[bytes, Trace], new: list[bytes], committed: Collection[bytes], head: str | None
) -> None:
    if gone := [path for path in new if path not in committed]:
        git.output("update-index", "-z", "--force-remove", "--stdin", given=gone)
        for path in gone:
            # is_there: never through a link that has taken the place of a folder.
            if is_there(git, path) and traces(git, [path]).get(path) == seen.get(path):
                git.remove(path)
    present = traces(git, committed)
    same = [path for path in committed if present.get(path) == seen.get(path)]
    if head is not None and same:
        words = ("checkout", "--quiet", head, "--pathspec-from-file=-", "--pathspec-file-nul")
        git.output(*words, given=same)


# A file that the loop has restored.


def recommit(directory: Path, file: str, before: str | None) -> str:
    """Commit a restored file, if commits since ``before`` changed or removed it. Return what hindered that.

    Else reverting these commits would find it in the way. Raises nothing for what it finds.
    """
    try:
        # Marked as a commit of the run: it is judged, and reverted, together with what it repairs.
        git = GitRunner(directory, settings=(RUN_SETTING.strip("'"),))
        name = os.fsencode(os.path.relpath(directory.resolve() / file, git.top.resolve()))
        old = committed_at(git, [name], before).get(name)
        if old == committed_at(git, [name], git.commit("HEAD")).get(name):
            if old is not None and name not in staged_at(git, [name]):
                put_entries(git, [(name, old)])
            return ""
        refuse_filtered(git, [name])
        git.output("update-index", "--add", "--", os.fsdecode(name))
        words = ("--quiet", "--only", "--no-verify", "--no-gpg-sign", "-m", f"Restore {file}")
        git.output("commit", *words, "--", os.fsdecode(name), env=git.identity)
        return ""
    except (NotDone, OSError) as why:
        return "" if Repository.find(directory) is None else f"it is not committed: {error_text(why)}"

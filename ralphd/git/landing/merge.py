"""Make the commits of a landing as objects, without a work tree: merges, reverts, merged task lists (M2).

``refs/ralph/landing/`` keeps them from gc. Nothing that a person sees changes here.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Final

from ralphd.core.landing.model import Merged, MergeDone
from ralphd.core.landing.task_lists import is_task_list, merged_list, with_ticks
from ralphd.core.plan import HEADED_LISTS, LISTS
from ralphd.core.text import short_sha
from ralphd.dataclass import dataclass
from ralphd.git.repo import FULL_SHA
from ralphd.git.rewrite.reapply import copy_commit
from ralphd.git.rewrite.revert import MOST, commit_sides, make_reverts
from ralphd.git.runner import GitRunner, NotDone, WasKilled, name_list, readable

KEPT_REFS: Final = "refs/ralph/landing/"
_INDEX: Final = "ralph-landing-index."
LIST_BYTES: Final = 1 << 20
BATCH_S: Final = 60.0
"""How long a batch is merged: then what is merged is tested, and the others wait for the next batch."""
CANDIDATE_S: Final = 300.0
"""The time for one candidate; a rebase may copy 1,000 commits."""
_MODE: Final = b"100644"


class Conflict(Exception):
    """The commits do not go together. The text names the files."""


@dataclass(frozen=True, slots=True)
class ToMerge:
    """A candidate: the commit ``head``, or with ``undoes`` the revert of these commits, newest first.

    ``refused_at`` is what it was merged onto when it conflicted last. Unless ``copied`` is None, its commits
    are copied if they are a line that no remote has; ``copied`` are earlier heads of the branch that landed
    as copies, each with its last copy.
    """

    id: int
    name: str
    head: str
    undoes: tuple[str, ...] = ()
    refused_at: str = ""
    copied: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Tip:
    """The target's commit, and the one to build on: what has landed and waits for a checkout (M3)."""

    tip: str
    landed: str = ""


def merge_batch(git: GitRunner, tip: Tip, wanted: Sequence[ToMerge], *, own_list: str) -> MergeDone:
    """Merge the candidates onto the tip, one after the other (M5). Raises NotDone.

    One that conflicts with another candidate alone is left for the next batch, as are those that there is no
    time for. Each has a deadline of its own.
    """
    begun_at, git = time.monotonic(), GitRunner(git.directory)  # the caller's may have waited for a network
    _remove_indexes(git)
    base = _base(git, tip, own_list)
    batch, slow = _Batch(base, own_list), NotDone("no candidate")
    for each in wanted:
        try:
            batch.add(GitRunner(git.directory, limit_s=CANDIDATE_S), each)
        except WasKilled as why:  # the machine, or the candidate: others come first, and it is tried again
            slow = why
        if time.monotonic() - begun_at > BATCH_S and batch.has_answers:
            break
    else:
        if wanted and not batch.has_answers:
            raise slow
    if batch.merged:
        GitRunner(git.directory).update_refs(f"update {KEPT_REFS}batch {batch.head}")
    return MergeDone(
        tip.tip, base, tuple(batch.merged), batch.conflicts, tuple(batch.present), tuple(batch.resolved)
    )


class _Batch:
    """What is merged so far onto ``base``; ``head`` has it all."""

    def __init__(self, base: str, own_list: str) -> None:
        self.base, self.head, self._own_list = base, base, own_list
        self.merged = list[Merged]()
        self.conflicts: dict[int, str] = {}
        self.present, self.resolved = list[int](), list[int]()

    @property
    def has_answers(self) -> bool:
        return bool(self.merged or self.conflicts or self.present)

    def add(self, git: GitRunner, each: ToMerge) -> None:
        """Merge a candidate, or note why not. Raises NotDone where that is not the candidate's fault."""
        try:
            self._add(git, each)
        except WasKilled:
            raise
        except NotDone as why:
            new = git.commit_tree(f"{self.base}^{{tree}}", f"{token_hex(8)}\n", self.base)
            _merge(git, self.base, new)  # raises where nothing can be written or merged
            self.conflicts[each.id] = str(why)

    def _add(self, git: GitRunner, each: ToMerge) -> None:
        if not each.undoes and git.commit(each.head) is None:
            self.conflicts[each.id] = f"the commit {short_sha(each.head)} is not in the repository any more"
            return
        if not each.undoes and is_ancestor(git, each.head, self.base):
            self.present.append(each.id)
            return
        if not each.undoes and self.head != self.base and is_ancestor(git, each.head, self.head):
            return  # another one of the batch brings it; then it is present, or is tested alone
        try:
            new = _with(git, self.head, each, self._own_list)
        except Conflict as why:
            if self.head == self.base or not _goes_alone(git, self.base, each, self._own_list):
                self.conflicts[each.id] = str(why)
                if each.refused_at and is_ancestor(git, each.refused_at, each.head):
                    self.resolved.append(each.id)
            return
        if new.commit == self.head:  # copies of all its commits are there
            self.present.append(each.id)
        else:
            self.head = new.commit
            self.merged.append(new)


def merge_into(git: GitRunner, head: str, name: str, tip: str, own_list: str) -> str:
    """Return a merge of ``tip``, the branch ``name``, into ``head`` (M7). Raises Conflict, NotDone."""
    return _merge_commit(git, _merged_tree(git, head, tip, own_list), name, head, tip)


def is_ancestor(git: GitRunner, older: str, newer: str) -> bool:
    """Whether ``newer`` has ``older``. Raises NotDone where git cannot say."""
    code = 0 if older == newer else git.run("merge-base", "--is-ancestor", older, newer)[0]
    if code not in (0, 1):
        raise NotDone(f"git merge-base ended with {code} for {short_sha(older)}")
    return code == 0


def changed_paths(git: GitRunner, tip: str, head: str) -> tuple[str, ...]:
    """Return what a candidate changes since it left the target. Raises NotDone.

    Branches that were merged crosswise have several merge bases: then it is what the merge changes.
    """
    base, *more = git.text("merge-base", "--all", tip, head).split()
    old, new = (tip, _merge(git, tip, head)[0]) if more else (base, head)
    words = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)
    return tuple(name for name in git.output(*words).decode(errors="replace").split("\0") if name)


def _base(git: GitRunner, tip: Tip, own_list: str) -> str:
    """Return the commit that has the target's commits, and those that landed and are not in it yet."""
    if not tip.landed or is_ancestor(git, tip.landed, tip.tip):
        return tip.tip
    if is_ancestor(git, tip.tip, tip.landed):
        return tip.landed
    try:
        return _with(git, tip.tip, ToMerge(0, "ralph/landed", tip.landed), own_list).commit
    except Conflict as why:
        raise NotDone(f"ralph/landed does not merge: {why}; git merge ralph/landed") from why


def _goes_alone(git: GitRunner, base: str, each: ToMerge, own_list: str) -> bool:
    try:
        return bool(_with(git, base, each, own_list).commit)
    except Conflict:
        return False


def _with(git: GitRunner, head: str, each: ToMerge, own_list: str) -> Merged:
    """Return a commit on top of ``head`` that has a candidate's changes. Raises Conflict, NotDone."""
    if each.undoes:
        try:
            return Merged(each.id, make_reverts(git, each.undoes, head, merged=_ListMerge(own_list)))
        except WasKilled:
            raise
        except NotDone as why:
            raise Conflict(str(why)) from why
    if (line := _own_line(git, head, each)) is not None:
        return _rebased(git, head, each.id, line, own_list)
    tree = _ticked(git, _merged_tree(git, head, each.head, own_list), head, own_list)
    return Merged(each.id, _merge_commit(git, tree, each.name, head, each.head))


def _own_line(git: GitRunner, head: str, each: ToMerge) -> list[str] | None:
    """Return the commits to copy, oldest first; None where they are to be merged."""
    if each.copied is None:
        return None
    known = [old for old, copy in each.copied if git.commit(old) and is_ancestor(git, copy, head)]
    words = ("rev-list", "--reverse", "--topo-order", "--parents", each.head, "--not", head, *known)
    lines = git.text(*words).splitlines()
    line = [words[0] for words in map(str.split, lines) if len(words) == 2]
    if not len(line) == len(lines) <= MOST:
        return None
    pushed = line and git.text("for-each-ref", "--count=1", "--contains", line[0], "refs/remotes/")
    return None if pushed else line


def _rebased(git: GitRunner, head: str, id: int, line: Sequence[str], own_list: str) -> Merged:
    """Copy commits onto ``head``, without those that change nothing there. Raises Conflict, NotDone."""
    copies = list[tuple[str, str]]()
    tree = git.text("rev-parse", f"{head}^{{tree}}")
    for sha in line:
        sides = commit_sides(git, base=f"{sha}^^{{tree}}", ours=tree, theirs=f"{sha}^{{tree}}")
        after = _ticked(git, _merged_tree(git, *sides, own_list), head, own_list)
        if after != tree:
            head, tree = _copied(git, sha, after, head), after
            copies.append((sha, head))
    return Merged(id, head, tuple(copies))


def _copied(git: GitRunner, sha: str, tree: str, parent: str) -> str:
    try:
        return copy_commit(git, sha, tree, parent)
    except WasKilled:
        raise
    except NotDone as why:  # without the name of an author, for example
        raise NotDone(f"git cannot copy the commit: git log -1 --format=fuller {short_sha(sha)}") from why


def _merge_commit(git: GitRunner, tree: str, name: str, head: str, other: str) -> str:
    return git.commit_tree(tree, f"Merge branch '{name}'\n", head, other)


def _ticked(git: GitRunner, tree: str, head: str, own_list: str) -> str:
    """Return the tree with every tick of ``head``: no branch opens a task that is done on the target (M2).

    An agent that merges the target may take its own, older side of the list.
    """
    paths = [name for name in (*LISTS, *HEADED_LISTS, own_list) if is_task_list(name, own_list)]
    blobs = {}
    fields = git.output("diff-tree", "-r", "-z", head, tree, "--", *paths).split(b"\0")[:-1]
    for about, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, *shas, _ = about.lstrip(b":").decode().split(" ")
        if old_mode == new_mode == _MODE.decode() and (texts := _texts(git, shas)):
            text = with_ticks(texts[1], texts[0])
            if text != texts[1]:
                blobs[path] = git.text("hash-object", "-w", "--stdin", given=text.encode())
    return _with_blobs(git, tree, blobs) if blobs else tree


def _merged_tree(git: GitRunner, ours: str, theirs: str, own_list: str) -> str:
    """Return the tree of a merge, task lists merged by their marks. Raises Conflict."""
    tree, left = _list_merged(git, ours, theirs, own_list)
    if left:
        raise Conflict(f"conflict in {name_list(left)}")
    return tree


@dataclass(frozen=True, slots=True)
class _ListMerge:
    """``merge_trees``, with task lists merged by their marks: a revert leaves later ticks (M6)."""

    own_list: str

    def __call__(
        self, git: GitRunner, *, base: str, ours: str, theirs: str
    ) -> tuple[str | None, tuple[str, ...]]:
        sides = commit_sides(git, base=base, ours=ours, theirs=theirs)
        tree, left = _list_merged(git, *sides, self.own_list)
        return (None, tuple(map(readable, left))) if left else (tree, ())


def _list_merged(git: GitRunner, ours: str, theirs: str, own_list: str) -> tuple[str, list[bytes]]:
    """Return the merged tree, and what conflicts in it that is not a task list. Raises NotDone."""
    tree, entries = _merge(git, ours, theirs)
    sides = _stages(entries)
    blobs = {path: _merged_blob(git, each) for path, each in sides.items() if _is_list(path, each, own_list)}
    left = [path for path in sides if not blobs.get(path)]
    return (tree if left or not blobs else _with_blobs(git, tree, blobs)), left


def _merge(git: GitRunner, ours: str, theirs: str) -> tuple[str, list[bytes]]:
    """Return the tree of a merge, and the entries of what conflicts in it. Raises NotDone."""
    code, output = git.run("merge-tree", "--write-tree", "-z", "--no-messages", ours, theirs)
    tree, *entries = output.split(b"\0")
    name = tree.decode(errors="replace").strip()
    if code not in (0, 1) or not FULL_SHA.fullmatch(name):
        raise NotDone(f"git merge-tree ended with {code} (git 2.38 is needed)")
    return name, entries if code else []


def _stages(entries: Sequence[bytes]) -> dict[bytes, dict[int, tuple[bytes, str]]]:
    """Read ``MODE SHA STAGE<TAB>PATH``: by path, each side's mode and blob."""
    sides: dict[bytes, dict[int, tuple[bytes, str]]] = {}
    for entry in filter(None, entries):
        about, _, path = entry.partition(b"\t")
        mode, sha, stage = about.split(b" ")
        sides.setdefault(path, {})[int(stage)] = (mode, sha.decode())
    return sides


def _with_blobs(git: GitRunner, tree: str, blobs: Mapping[bytes, str | None]) -> str:
    index = git.repository.common / f"{_INDEX}{os.getpid()}.{token_hex(4)}"
    env = {"GIT_INDEX_FILE": str(index)}
    try:
        git.output("read-tree", tree, env=env)
        lines = b"".join(b"%b %b\t%b\0" % (_MODE, str(sha).encode(), path) for path, sha in blobs.items())
        git.output("update-index", "-z", "--index-info", given=lines, env=env)
        return git.text("write-tree", env=env)
    finally:
        index.unlink(missing_ok=True)


def _remove_indexes(git: GitRunner) -> None:
    """Remove the indexes of daemons that were killed. Each has a name of its own: its git may still write."""
    for path in git.repository.common.glob(f"{_INDEX}*"):
        if not Path("/proc", path.name.split(".")[1]).exists():
            path.unlink(missing_ok=True)


def _is_list(path: bytes, sides: Mapping[int, tuple[bytes, str]], own_list: str) -> bool:
    is_whole = set(sides) == {1, 2, 3} and all(mode == _MODE for mode, _ in sides.values())
    return is_whole and is_task_list(readable(path), own_list)


def _merged_blob(git: GitRunner, sides: Mapping[int, tuple[bytes, str]]) -> str | None:
    texts = _texts(git, [sides[stage][1] for stage in (1, 2, 3)])
    merged = merged_list(*texts) if texts else None
    return None if merged is None else git.text("hash-object", "-w", "--stdin", given=merged.encode())


def _texts(git: GitRunner, shas: Sequence[str]) -> list[str] | None:
    """Return the texts of blobs; None where one is too large, or no text."""
    try:
        texts = [git.output("cat-file", "blob", sha)[:LIST_BYTES].decode() for sha in shas]
    except UnicodeDecodeError:
        return None
    return None if any(len(text.encode()) >= LIST_BYTES for text in texts) else texts

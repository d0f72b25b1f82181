"""Take commits back, and bring them back: revert, restore, undo (R5, R6).

A revert is made of objects alone, so no work tree is needed for it and nothing is left of one that was cut
off. It is kept under a ref, ``refs/ralph/reverts/LABEL``, before the branch moves; where the branch was is
``refs/ralph/reverted/LABEL``. A label belongs to one judgement, and is unique in the repository. Every act
can be carried out twice, and where it is refused all is as it was: branch, index, files.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from ralphd import diagnostics
from ralphd.core.gate.verdict import CarriedOut, Moved, Refused
from ralphd.git.rewrite.move_branch import Move, move, recover, standing
from ralphd.git.runner import LIMIT_S, GitRunner, HasMoved, NotDone, said_of

# Reverts as commits, made of objects alone: no work tree is needed, and no branch moves.

MOST: Final = 1000
_SHA: Final = re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class _Known:
    """What a revert needs of a commit; ``before`` is the tree of its first parent, empty without one."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    subject: str
    before: str


def chain(calls: GitRunner, commits: Sequence[str], head: str) -> str:
    """Reverts of these commits on top of ``head``; the last of them, ``head`` where none changes anything."""
    if len(commits) > MOST:
        raise NotDone(f"{len(commits)} commits are too many to revert")
    _refuse_strangers(calls, commits, head)
    known = _known(calls, (head, *commits))
    tree = known[0].tree
    for commit in known[1:]:
        after = _tree_without(calls, commit, tree)
        if after == tree:
            continue
        words = ("commit-tree", after, "-p", head, "--no-gpg-sign", "-F", "-")
        head = calls.text(*words, given=_message(commit), also=calls.identity)
        tree = after
    return head


def _refuse_strangers(calls: GitRunner, commits: Sequence[str], head: str) -> None:
    """Raises NotDone for what is no commit of the branch."""
    for commit in commits:
        if not _SHA.fullmatch(commit):
            raise NotDone(f"{commit[:20]!r} is no commit")
    if tuple(commits) == (head,):
        return
    if commits and calls.call("cat-file", "-e", f"{commits[-1]}^{{commit}}")[0]:
        raise NotDone(f"the commit {commits[-1][:7]} is not there")
    listed = calls.text(
        "rev-list", "--stdin", given="".join(f"{c}\n" for c in (*commits, f"^{head}")).encode()
    )
    if listed:
        raise NotDone(f"the commit {listed[:7]} is not in the branch")


def _tree_without(calls: GitRunner, commit: _Known, tree: str) -> str:
    """The tree without what a commit did. Raises NotDone at a conflict."""
    before = commit.before or calls.text("mktree")
    if tree == commit.tree:
        return before
    if commit.tree == before:
        return tree
    # The base is the commit, and one side its parent: made as commits, since old gits know no --merge-base.
    base = _object(calls, commit.tree)
    ours, theirs = _object(calls, tree, base), _object(calls, before, base)
    words = ("merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
    code, printed = calls.call(*words)
    after, *names = printed.decode(errors="replace").split("\0")
    if code == 0 and _SHA.fullmatch(after.strip()):
        return after.strip()
    if code == 1:
        raise NotDone(f"conflict: {commit.sha[:7]} and later changes of {', '.join(filter(None, names[:3]))}")
    raise NotDone(
        f"{commit.sha[:7]} is not the last commit, and git merge-tree ended with {code} (git 2.38 is needed)"
    )


def _object(calls: GitRunner, tree: str, *parents: str) -> str:
    given = (word for parent in parents for word in ("-p", parent))
    return calls.text("commit-tree", tree, *given, "-m", "x", "--no-gpg-sign", also=calls.identity)


def _known(calls: GitRunner, shas: Sequence[str]) -> tuple[_Known, ...]:
    """Raises NotDone for what is no commit, and where a parent is not there."""
    words = ("log", "-z", "--no-walk=unsorted", "--stdin", "--format=%H %T %P%x09%s", "--encoding=UTF-8")
    given = "".join(
        f"{sha}\n{sha}^@\n" for sha in shas
    ).encode()  # with all parents, of which each has a tree
    printed = calls.printed(*words, "--no-show-signature", "--no-color", "--no-notes", given=given)
    found: dict[str, tuple[str, list[str], str]] = {}
    for entry in printed.decode(errors="surrogateescape").split("\0"):
        about, _, subject = entry.partition("\t")
        if about:
            sha, tree, *parents = about.split()
            found[sha] = (tree, parents, subject)
    known = []
    for sha in shas:
        tree, parents, subject = found[sha]
        if parents and parents[0] not in found:
            raise NotDone(f"the commit {parents[0][:7]} is not there")
        known.append(_Known(sha, tree, tuple(parents), subject, found[parents[0]][0] if parents else ""))
    return tuple(known)


def _message(commit: _Known) -> bytes:
    """As git's own: a revert of a revert is a reapply."""
    said = f'Revert "{commit.subject}"'
    if commit.subject.startswith('Revert "') and not commit.subject.startswith('Revert "Revert "'):
        said = f'Reapply "{commit.subject[len("Revert ") + 1 :]}'
    merged = f", reversing\nchanges made to {commit.parents[0]}" if len(commit.parents) > 1 else ""
    return f"{said}\n\nThis reverts commit {commit.sha}{merged}.\n".encode(errors="surrogateescape")


REVERTS: Final = "refs/ralph/reverts/"
REVERTED: Final = "refs/ralph/reverted/"
KEPT: Final = 100
"""Of how many judgements of a ralph the refs are kept: of as many as there are runs."""
_SAYS: Final = re.compile(r"^This reverts commit ([0-9a-f]{40,64})[.,]", re.MULTILINE)

Done: TypeAlias = CarriedOut | Refused | Moved


@dataclass(frozen=True, slots=True)
class RevertedCommit:
    """A commit that was reverted, and the commit that does it."""

    revert: str
    commit: str
    subject: str


def revert(
    directory: Path, commits: Sequence[str], *, head: str, label: str, limit_s: float = LIMIT_S
) -> Done:
    """Revert these commits, newest first, a commit each; HEAD has to be at ``head``.

    As ``git revert --no-edit`` would, a merge by its first parent. What is not committed stays as it is, and
    where it overlaps it is refused. A commit that changes nothing any more counts as reverted, and none is
    made for it.
    """

    def act(calls: GitRunner) -> str:
        branch, now = standing(calls)
        tip = calls.ref(REVERTS + ref_name(label))
        made = _kept(calls, commits, head, tip)
        if made is not None and now == made:
            return now
        if now != head:
            raise HasMoved(f"HEAD is at {now[:7]}, not at {head[:7]}")
        if made is None:
            made = chain(calls, commits, head)
            if made == head:
                return head
            _keep(calls, made, head, label, goes_on=tip == head)
        diagnostics.reach("guard.reverts_kept")
        try:
            move(calls, Move(branch, head, made, f"revert: {len(commits)} by ralphd"))
        except NotDone:
            _forget(calls, made, head, label)
            raise
        return made

    return acted(directory, act, limit_s)


def restore(directory: Path, head: str, *, expected: str, label: str, limit_s: float = LIMIT_S) -> Done:
    """Take the reverts of a label back: HEAD from ``expected`` to ``head`` again. The refs stay."""

    def act(calls: GitRunner) -> str:
        branch, now = standing(calls)
        if now == head:
            return head
        if now != expected:
            raise HasMoved(f"HEAD is at {now[:7]}, not at {expected[:7]}")
        _refuse_work(calls, expected, head, label)
        move(calls, Move(branch, expected, head, f"reset: moving to {head}"))
        return head

    return acted(directory, act, limit_s)


def undo(directory: Path, reverts: Sequence[str], *, limit_s: float = LIMIT_S) -> Done:
    """Put back what these commits reverted, newest first, by a commit each on top of HEAD.

    What is back already counts as done. Refused at a conflict, and where uncommitted work overlaps.
    """

    def act(calls: GitRunner) -> str:
        branch, now = standing(calls)
        made = chain(calls, reverts, now)
        if made != now:
            move(calls, Move(branch, now, made, f"revert: undo {len(reverts)} by ralphd"))
        return made

    return acted(directory, act, limit_s)


def reverted(directory: Path, label: str) -> tuple[RevertedCommit, ...]:
    """What was reverted under a label, the last revert first; empty where nothing is known of it."""
    try:
        calls = GitRunner(directory)
        tip, base = calls.ref(REVERTS + ref_name(label)), calls.ref(REVERTED + ref_name(label))
        return _reverted(calls, tip, base) if tip and base else ()
    except NotDone:
        return ()


def forget_old(directory: Path, ralph: str, *, most: int = KEPT, spared: Collection[str] = ()) -> int:
    """Of a ralph's labels keep the refs of the newest, and those that are ``spared``: how many went.

    A ralph's labels are its name, a slash and the rest. What is in the branch stays there. Raises nothing.
    """
    try:
        calls = GitRunner(directory)
        words = ("for-each-ref", "--sort=-refname", "--sort=-committerdate", "--format=%(refname)")
        listed = calls.text(*words, f"{REVERTS}{ref_name(ralph)}/").split()
        stays = {ref_name(label) for label in spared}
        gone = [name for ref in listed[most:] if (name := ref.removeprefix(REVERTS)) not in stays]
        lines = "".join(f"delete {space}{name}\n" for name in gone for space in (REVERTS, REVERTED))
        if lines:
            calls.printed("update-ref", "--stdin", given=lines.encode())
        return len(gone)
    except NotDone:
        return 0


def acted(directory: Path, act: Callable[[GitRunner], str], limit_s: float) -> Done:
    """Carry out an act alone, after what an earlier one has left was cleaned up; HEAD is what it answers."""
    try:
        calls = GitRunner(directory, limit_s=limit_s)
        with calls.alone():
            recover(calls)
            return CarriedOut(act(calls))
    except HasMoved as why:
        return Moved(str(why))
    except NotDone as why:
        return Refused(str(why))
    except OSError as error:
        return Refused(said_of(error))


def ref_name(label: str) -> str:
    """A label as the end of a ref: letters, digits and dashes stay, so do slashes between them."""
    parts = (part for part in label.split("/") if part)
    quoted = (
        "".join(c if c.isascii() and (c.isalnum() or c in "-_") else f"%{ord(c):X}" for c in p) for p in parts
    )
    return "/".join(part if part[0] != "-" else f"_{part}" for part in quoted) or "_"


def _refuse_work(calls: GitRunner, expected: str, head: str, label: str) -> None:
    """Raises NotDone where there is more between the two than reverts of the label."""
    tip = calls.ref(REVERTS + ref_name(label))
    between = calls.text("rev-list", expected, f"^{head}").split()
    ours = calls.text("rev-list", tip, f"^{head}").split() if tip else []
    known = {each.revert for each in _reverted(calls, tip, head)} if tip else set()
    if not between or set(between) - set(ours) or set(between) - known:
        raise NotDone(f"between {head[:7]} and {expected[:7]} there is more than our own reverts")


def _kept(calls: GitRunner, commits: Sequence[str], head: str, tip: str | None) -> str | None:
    """The last of the reverts that an earlier call has made of the same, and kept at ``tip``."""
    if tip is None or tip == head:
        return None
    made = [each.commit for each in reversed(_reverted(calls, tip, head))]
    in_order = iter(commits)
    is_same = bool(made) and all(sha in in_order for sha in made) and made[-1] in commits
    return tip if is_same else None


def _keep(calls: GitRunner, made: str, head: str, label: str, *, goes_on: bool) -> None:
    """Under a ref; where the label's last revert is at ``head``, this goes on from there."""
    name = ref_name(label)
    lines = [f"update {REVERTS}{name} {made}\n"]
    if not goes_on:
        lines.append(f"update {REVERTED}{name} {head}\n")
    calls.printed("update-ref", "--stdin", given="".join(lines).encode())


def _forget(calls: GitRunner, made: str, head: str, label: str) -> None:
    """Nothing was moved: the refs are as they were before ``_keep``."""
    name = ref_name(label)
    goes_on = calls.ref(REVERTED + name) != head
    lines = [f"update {REVERTS}{name} {head} {made}\n"]
    if not goes_on:
        lines = [f"delete {REVERTS}{name} {made}\n", f"delete {REVERTED}{name} {head}\n"]
    calls.call("update-ref", "--stdin", given="".join(lines).encode())


def _reverted(calls: GitRunner, tip: str, base: str) -> tuple[RevertedCommit, ...]:
    words = (
        "log",
        "-z",
        "--first-parent",
        "--format=%H%n%B",
        f"--max-count={MOST}",
        "--no-color",
        "--no-notes",
    )
    code, printed = calls.call(*words, "--encoding=UTF-8", "--no-show-signature", tip, f"^{base}")
    found = []
    for entry in printed.decode(errors="replace").split("\0") if code == 0 else ():
        sha, _, said = entry.partition("\n")
        if says := _SAYS.search(said):
            found.append(RevertedCommit(sha, says[1], said.partition("\n")[0]))
    return tuple(found)

"""Reverts as commits, made of objects alone: no work tree is needed, and no branch moves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ralphd.git.calls import Calls, NotDone

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


def chain(calls: Calls, commits: Sequence[str], head: str) -> str:
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


def _refuse_strangers(calls: Calls, commits: Sequence[str], head: str) -> None:
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


def _tree_without(calls: Calls, commit: _Known, tree: str) -> str:
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


def _object(calls: Calls, tree: str, *parents: str) -> str:
    given = (word for parent in parents for word in ("-p", parent))
    return calls.text("commit-tree", tree, *given, "-m", "x", "--no-gpg-sign", also=calls.identity)


def _known(calls: Calls, shas: Sequence[str]) -> tuple[_Known, ...]:
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

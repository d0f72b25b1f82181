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

from ralphd import failpoint
from ralphd.core.verdict import CarriedOut, Moved, Refused
from ralphd.git.calls import LIMIT_S, Calls, HasMoved, NotDone, said_of
from ralphd.git.chain import MOST, chain
from ralphd.git.moving import Move, move, recover, standing

REVERTS: Final = "refs/ralph/reverts/"
REVERTED: Final = "refs/ralph/reverted/"
KEPT: Final = 100
"""Of how many judgements of a ralph the refs are kept: of as many as there are runs."""
_SAYS: Final = re.compile(r"^This reverts commit ([0-9a-f]{40,64})[.,]", re.MULTILINE)

Done: TypeAlias = CarriedOut | Refused | Moved


@dataclass(frozen=True, slots=True)
class Reverted:
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

    def act(calls: Calls) -> str:
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
        failpoint.reach("guard.reverts_kept")
        try:
            move(calls, Move(branch, head, made, f"revert: {len(commits)} by ralphd"))
        except NotDone:
            _forget(calls, made, head, label)
            raise
        return made

    return acted(directory, act, limit_s)


def restore(directory: Path, head: str, *, expected: str, label: str, limit_s: float = LIMIT_S) -> Done:
    """Take the reverts of a label back: HEAD from ``expected`` to ``head`` again. The refs stay."""

    def act(calls: Calls) -> str:
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

    def act(calls: Calls) -> str:
        branch, now = standing(calls)
        made = chain(calls, reverts, now)
        if made != now:
            move(calls, Move(branch, now, made, f"revert: undo {len(reverts)} by ralphd"))
        return made

    return acted(directory, act, limit_s)


def reverted(directory: Path, label: str) -> tuple[Reverted, ...]:
    """What was reverted under a label, the last revert first; empty where nothing is known of it."""
    try:
        calls = Calls(directory)
        tip, base = calls.ref(REVERTS + ref_name(label)), calls.ref(REVERTED + ref_name(label))
        return _reverted(calls, tip, base) if tip and base else ()
    except NotDone:
        return ()


def forget_old(directory: Path, ralph: str, *, most: int = KEPT, spared: Collection[str] = ()) -> int:
    """Of a ralph's labels keep the refs of the newest, and those that are ``spared``: how many went.

    A ralph's labels are its name, a slash and the rest. What is in the branch stays there. Raises nothing.
    """
    try:
        calls = Calls(directory)
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


def acted(directory: Path, act: Callable[[Calls], str], limit_s: float) -> Done:
    """Carry out an act alone, after what an earlier one has left was cleaned up; HEAD is what it answers."""
    try:
        calls = Calls(directory, limit_s=limit_s)
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


def _refuse_work(calls: Calls, expected: str, head: str, label: str) -> None:
    """Raises NotDone where there is more between the two than reverts of the label."""
    tip = calls.ref(REVERTS + ref_name(label))
    between = calls.text("rev-list", expected, f"^{head}").split()
    ours = calls.text("rev-list", tip, f"^{head}").split() if tip else []
    known = {each.revert for each in _reverted(calls, tip, head)} if tip else set()
    if not between or set(between) - set(ours) or set(between) - known:
        raise NotDone(f"between {head[:7]} and {expected[:7]} there is more than our own reverts")


def _kept(calls: Calls, commits: Sequence[str], head: str, tip: str | None) -> str | None:
    """The last of the reverts that an earlier call has made of the same, and kept at ``tip``."""
    if tip is None or tip == head:
        return None
    made = [each.commit for each in reversed(_reverted(calls, tip, head))]
    in_order = iter(commits)
    is_same = bool(made) and all(sha in in_order for sha in made) and made[-1] in commits
    return tip if is_same else None


def _keep(calls: Calls, made: str, head: str, label: str, *, goes_on: bool) -> None:
    """Under a ref; where the label's last revert is at ``head``, this goes on from there."""
    name = ref_name(label)
    lines = [f"update {REVERTS}{name} {made}\n"]
    if not goes_on:
        lines.append(f"update {REVERTED}{name} {head}\n")
    calls.printed("update-ref", "--stdin", given="".join(lines).encode())


def _forget(calls: Calls, made: str, head: str, label: str) -> None:
    """Nothing was moved: the refs are as they were before ``_keep``."""
    name = ref_name(label)
    goes_on = calls.ref(REVERTED + name) != head
    lines = [f"update {REVERTS}{name} {head} {made}\n"]
    if not goes_on:
        lines = [f"delete {REVERTS}{name} {made}\n", f"delete {REVERTED}{name} {head}\n"]
    calls.call("update-ref", "--stdin", given="".join(lines).encode())


def _reverted(calls: Calls, tip: str, base: str) -> tuple[Reverted, ...]:
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
            found.append(Reverted(sha, says[1], said.partition("\n")[0]))
    return tuple(found)

"""What a loop hears of its commits at a boundary: the verdict, cut down to what a prompt can carry (L9, R9).

It comes from the answer to a report, or from ``gate.json`` where a loop died before it heard. What the tests
printed is anybody's text: it is bounded, and no control character of it gets anywhere.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ralphd.core.verdict import VerdictKind

TAIL_LINES: Final = 50
TAIL_CHARS: Final = 8000
MOST_LINE_CHARS: Final = 500
MOST_SHAS: Final = 20
_ESCAPE: Final = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)?|\[[0-?]*[ -/]*[@-~]?|.)", re.DOTALL)
_SHA: Final = re.compile(r"[0-9a-f]{7,64}")
_SHORT: Final = 7


@dataclass(frozen=True, slots=True)
class Reverted:
    """Why a task is open again: at which boundary which commits went, and what the tests printed last."""

    commits: tuple[str, ...]
    why: str
    tail: tuple[str, ...] = ()
    boundary: str = ""

    @property
    def words(self) -> str:
        """The same as the failure that it is."""
        were = "commit was" if len(self.commits) == 1 else "commits were"
        return f"its {were} reverted ({', '.join(self.commits)}): {self.why}"


@dataclass(frozen=True, slots=True)
class Heard:
    """The verdict on a boundary. ``task`` is the id of its iteration's task; shas are abbreviated.

    ``is_open``: nothing was decided, the next boundary's verdict is for these commits too.
    """

    boundary: str
    kind: VerdictKind
    why: str
    task: str | None = None
    commits: tuple[str, ...] = ()
    reverted: tuple[str, ...] = ()
    tail: tuple[str, ...] = ()
    is_open: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left of the iteration."""
        return len(self.reverted) == len(self.commits)

    @property
    def note(self) -> Reverted | None:
        """What the next attempt is to know; None where nothing was reverted."""
        if self.kind is not VerdictKind.REVERTED:
            return None
        return Reverted(self.reverted[:MOST_SHAS], self.why, self.tail, self.boundary)

    @property
    def words(self) -> str:
        """The verdict in one line."""
        shas = self.reverted if self.kind is VerdictKind.REVERTED else self.commits
        more = f" and {len(shas) - 3} more" if len(shas) > 3 else ""
        return f"verdict: {self.kind} {', '.join(shas[:3])}{more}".rstrip() + f": {self.why}"


def heard(
    boundary: str,
    kind: str,
    why: str,
    *,
    task: str | None,
    commits: Iterable[str],
    reverted: Iterable[str],
    tail: str,
    is_open: bool = False,
) -> Heard:
    """A verdict with its texts made harmless. Raises ValueError for a kind that nobody knows."""
    return Heard(
        boundary,
        VerdictKind(kind),
        one_line(why) or "nobody says why",
        task,
        tuple(map(_short, commits)),
        tuple(map(_short, reverted)),
        tail_of(tail),
        is_open,
    )


def heard_in(found: object, boundary: str) -> Heard | None:
    """The verdict in the answer to a report; None where it is none, or none that can be understood."""
    if not isinstance(found, Mapping):
        return None
    try:
        return heard(
            boundary,
            found["kind"],
            _text(found["why"]),
            task=_id_in(found.get("task")),
            commits=map(_text, found["commits"]),
            reverted=map(_text, found["reverted"]),
            tail=_text(found.get("tail", "")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def one_line(text: str) -> str:
    """A text as one line of printable characters, not too long."""
    plain = "".join(each if each.isprintable() else " " for each in _ESCAPE.sub("", text))
    return " ".join(plain.split())[:MOST_LINE_CHARS]


def tail_of(text: str) -> tuple[str, ...]:
    """The last lines of what the tests printed, each bounded, and all of them; without control characters."""
    lines = _ESCAPE.sub("", text.expandtabs(4)).replace("\r\n", "\n").split("\n")
    shown: list[str] = []
    left = TAIL_CHARS
    for line in reversed([each.rstrip() for each in lines[-2 * TAIL_LINES :]]):
        plain = "".join(each if each.isprintable() else " " for each in line)[:MOST_LINE_CHARS].rstrip()
        if len(shown) == TAIL_LINES or len(plain) + 1 > left:
            break
        if plain or shown:  # no empty lines at the end
            shown.append(plain)
            left -= len(plain) + 1
    return tuple(reversed(shown))


def _short(sha: str) -> str:
    if not _SHA.fullmatch(sha):
        raise ValueError(f"{sha!r:.40} is no commit")
    return sha[:_SHORT]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} is no text")
    return value


def _id_in(task: Any) -> str | None:
    return None if task is None else _text(task["id"])

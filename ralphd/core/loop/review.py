"""What a review command found: by the JSON that it printed, else by its exit status, else by its text (L15).

A review is any command: a linter, a script, another model. Of JSON, an object with ``findings`` or ``issues``
and an array are understood, with the names that linters give to things. Nothing here raises for any output.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from typing import Any, Final

from ralphd.core.text import plain

MOST_FINDINGS: Final = 200
MOST_TEXT_CHARS: Final = 2000
MOST_OUTPUT_CHARS: Final = 8000
MOST_DEPTH: Final = 8
MOST_NAMED: Final = 3
MOST_SHOWN_CHARS: Final = 30_000
_SHORT: Final = 120
_BY_SIGNAL: Final = range(129, 193)
"""With 128 and its number a shell tells that a signal ended what it ran."""
_LISTS: Final = ("findings", "issues", "messages", "results")
_TEXTS: Final = ("message", "text", "title", "description", "summary", "body")
_FILES: Final = ("file", "filename", "path", "filePath", "file_path")
_LINES: Final = ("line", "row", "start_line", "lineNumber")
_IDS: Final = ("id",)
_RULES: Final = ("code", "rule", "ruleId", "check_id")
_NOT_RUN: Final[Mapping[int, str]] = {
    126: "it may not be executed",
    127: "it was not found",
}


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """One thing to be addressed. ``id`` is its own within a review; the next one may give it to another."""

    id: str
    text: str
    place: str = ""

    @property
    def short(self) -> str:
        """What it is, in part of a line."""
        text = self.text if not self.place or self.place in self.text else f"{self.place}: {self.text}"
        line = " ".join(text.split())
        return line if len(line) <= _SHORT else line[: _SHORT - 2] + " …"

    @property
    def whole(self) -> str:
        """All of it, as an item of a list."""
        return f"- [{self.id}] {self.place + ': ' if self.place else ''}{self.text}"

    def is_like(self, other: "ReviewFinding") -> bool:
        """Whether both are the same thing: many reviews number what they find, so that a name says little."""
        return (self.id, self.text) == (other.id, other.text)


@dataclass(frozen=True, slots=True)
class Review:
    """What a review came to; with ``trouble`` nothing was reviewed, and it says why."""

    findings: tuple[ReviewFinding, ...] = ()
    trouble: str = ""
    timed_out: bool = False


def read_review(code: int | None, stdout: str, stderr: str = "", *, cut: bool = False) -> Review:
    """What the output of a review means. A ``code`` below 0 is a signal, None: nobody knows it.

    ``cut``: stdout is only the end of what was printed, so it is not JSON as a whole. What looks like the end
    of JSON, in a fence or not, then may hold any number of findings, and is no clean review.
    """
    if (signal := _signal(code)) or code is None:
        return Review(trouble=f"signal {signal} ended it" if signal else "nobody knows how it ended")
    if code in _NOT_RUN:
        said = _last_line(stderr) or _last_line(stdout)
        return Review(trouble=_NOT_RUN[code] + (f": {said}" if said else ""))
    listed = _listed(stdout, cut=cut)
    if listed is None and cut and code == 0 and stdout.rstrip("` \t\r\n").endswith(("]", "}")):
        return Review(trouble="it printed more JSON than is read")
    if listed or code == 0:
        return Review(listed or ())
    return Review((_as_text(code, stdout, stderr),))


def shown(findings: tuple[ReviewFinding, ...]) -> tuple[ReviewFinding, ...]:
    """As many of the first ones as an agent is shown at once: only of these it can say anything."""
    room, fitting = MOST_SHOWN_CHARS, 0
    for finding in findings:
        room -= len(finding.whole)
        if room < 0:
            break
        fitting += 1
    return findings[: max(fitting, 1)]


def counted(findings: int) -> str:
    """So many findings."""
    return f"{findings} finding{'' if findings == 1 else 's'}"


def named(findings: tuple[ReviewFinding, ...]) -> str:
    """The first findings, in short."""
    shown = "; ".join(finding.short for finding in findings[:MOST_NAMED])
    return shown + (f"; and {len(findings) - MOST_NAMED} more" if len(findings) > MOST_NAMED else "")


def _signal(code: int | None) -> int:
    """The signal that ended a command or what a shell ran last; 0: none did."""
    if code is None or (code >= 0 and code not in _BY_SIGNAL):
        return 0
    return -code if code < 0 else code - 128


def _listed(stdout: str, *, cut: bool) -> tuple[ReviewFinding, ...] | None:
    """The findings that the output lists; None where it lists nothing, not even that there are none."""
    for text in _where_json_may_be(stdout, cut=cut):
        try:
            if (found := _json(text)) is not None:
                return _distinct(islice(_findings(found), MOST_FINDINGS))
        except RecursionError:
            continue
    return None


def _where_json_may_be(stdout: str, *, cut: bool) -> Iterator[str]:
    """All of it, its last fence, its end from a bracket that begins a line: a model talks around its list.

    After other JSON the end is a part only: all of it counts, as text.
    """
    if not cut:
        yield stdout
    fenced = stdout.rsplit("```", 2)
    if len(fenced) == 3:
        yield fenced[1].removeprefix("json")
    begins = max(stdout.rfind("\n{"), stdout.rfind("\n["))
    if begins >= 0 and not stdout[:begins].rstrip().endswith(("]", "}")):
        yield stdout[begins:]


def _as_text(code: int, stdout: str, stderr: str) -> ReviewFinding:
    """All that was said, as one finding; another text is another one."""
    parts = (_clean(part[-MOST_OUTPUT_CHARS:]) for part in (stdout, stderr))
    said = "\n".join(part for part in parts if part)[-MOST_OUTPUT_CHARS:]
    digest = hashlib.sha256(said.encode()).hexdigest()[:8]
    return ReviewFinding(f"review-{digest}", said or f"the review ended with {code} and said nothing")


def _json(stdout: str) -> list[Any] | None:
    """The list of findings that the output holds; None where it holds none, not even an empty one."""
    try:
        found = json.loads(stdout)
    except ValueError:
        return None
    if isinstance(found, list):
        return found
    return _list_in(found) if isinstance(found, dict) else None


def _list_in(found: Mapping[str, Any]) -> list[Any] | None:
    lists = [found[name] for name in _LISTS if isinstance(found.get(name), list)]
    return next((each for each in lists if each), lists[0] if lists else None)


def _findings(items: Sequence[Any], place: str = "", depth: int = 1) -> Iterator[ReviewFinding]:
    """The findings of a list; those of a file are in a list of its own in some linters' output."""
    for item in items:
        if isinstance(item, str) and (text := _short(item)):
            yield ReviewFinding("", text, place)
        elif isinstance(item, dict) and depth < MOST_DEPTH and (inner := _list_in(item)) is not None:
            yield from _findings(inner, _place(item) or place, depth + 1)
        elif isinstance(item, dict) and item:
            yield _finding(item, place)


def _finding(item: Mapping[str, Any], place: str) -> ReviewFinding:
    text = _first(item, _TEXTS) or json.dumps(item)[:MOST_TEXT_CHARS]
    own, rule = (plain(_first(item, names), _SHORT) for names in (_IDS, _RULES))
    where = _place(item) or place
    line = "" if _place(item) else _line(item)
    where = f"{where}:{line}" if where and line else where
    if rule and not own:  # what a rule's name says is part of the text, and its place of the id
        return ReviewFinding(f"{rule} {where}".strip(), f"{rule}: {text}"[:MOST_TEXT_CHARS], where)
    return ReviewFinding(own, text, where)


def _place(item: Mapping[str, Any]) -> str:
    """Where a finding is, as ``file:line``."""
    file = _first(item, _FILES)
    line = _line(item)
    return f"{file}:{line}" if file and line else file


def _line(item: Mapping[str, Any]) -> str:
    location = item.get("location") or item.get("start")
    inner = _first(location, _LINES) if isinstance(location, dict) else ""
    return _first(item, _LINES) or inner


def _first(item: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these that holds a text or a number."""
    for name in names:
        held = item.get(name)
        if isinstance(held, str) and (text := _short(held)):
            return text
        if isinstance(held, int) and not isinstance(held, bool):
            return str(held)[:MOST_TEXT_CHARS]
    return ""


def _distinct(findings: Iterable[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """The findings with an id each, none of them twice: none is lost to another one of its name."""
    by_id: dict[str, ReviewFinding] = {}
    for finding in findings:
        name = " ".join((finding.id or f"{finding.place} {finding.text[:80]}").split())
        free = next(each for each in chain([name], _numbered(name)) if each not in by_id)
        by_id[free] = replace(finding, id=free)
    return tuple(by_id.values())


def _numbered(name: str) -> Iterator[str]:
    return (f"{name} #{number}" for number in count(2))


def _short(text: str) -> str:
    return _clean(text.strip()[:MOST_TEXT_CHARS])


def _clean(text: str) -> str:
    """A text as a prompt and a terminal can hold it."""
    return "\n".join(map(plain, text.split("\n"))).strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text[-MOST_OUTPUT_CHARS:].splitlines() if line.strip()]
    return plain(lines[-1], 300) if lines else ""


# The answer of a triage: which findings of a review are not to be addressed (L15). Any text may come.

NOTHING: Final = "NOTHING"
"""The answer that nothing is to be addressed."""
MOST_OBJECTS: Final = 200
"""How many beginnings of a JSON object are tried, from the end of the answer."""


def dismissed_by(answer: str, findings: tuple[ReviewFinding, ...]) -> frozenset[str]:
    """The ids that a triage's answer dismisses: ``{"dismiss": [...]}``, else NOTHING on a line of its own."""
    known = frozenset(finding.id for finding in findings)
    if (listed := _dismiss_list(answer)) is not None:
        return known & {str(each).strip() for each in listed if isinstance(each, str | int)}
    if any(line.strip(" \t\r`*_.") == NOTHING for line in answer.splitlines()):
        return known
    return frozenset()


def _dismiss_list(answer: str) -> list[Any] | None:
    """The ``dismiss`` of the last JSON object that has one; prose and a fence may be around it."""
    decoder, start = json.JSONDecoder(), len(answer)
    for _ in range(MOST_OBJECTS):
        start = answer.rfind("{", 0, start)
        if start < 0:
            return None
        try:
            found, _ = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(found.get("dismiss"), list):
            return list(found["dismiss"])
    return None

"""What a review command found: by the JSON that it printed, else by its exit status, else by its text (L15).

A review is any command: a linter, a script, another model. Of JSON, an object with ``findings`` or ``issues``
and an array are understood, with the names that linters give to things. Nothing here raises for any output.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

MOST_FINDINGS: Final = 200
MOST_TEXT_CHARS: Final = 2000
MOST_OUTPUT_CHARS: Final = 8000
_LISTS: Final = ("findings", "issues", "messages", "results")
_TEXTS: Final = ("message", "text", "title", "description", "summary", "body")
_FILES: Final = ("file", "filename", "path", "filePath", "file_path")
_LINES: Final = ("line", "row", "start_line", "lineNumber")
_NAMES: Final = ("id", "code", "rule", "ruleId", "check_id")
_NOT_RUN: Final[Mapping[int, str]] = {
    126: "it may not be executed",
    127: "it was not found",
}


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """One thing to be addressed. ``id`` is its own within a review, and the same in the next one."""

    id: str
    text: str
    place: str = ""


@dataclass(frozen=True, slots=True)
class Review:
    """What a review came to; with ``trouble`` nothing was reviewed, and it says why."""

    findings: tuple[ReviewFinding, ...] = ()
    trouble: str = ""
    timed_out: bool = False


def read_review(code: int | None, stdout: str, stderr: str = "", *, cut: bool = False) -> Review:
    """What the output of a review means. A ``code`` below 0 is a signal, None: nobody knows it.

    ``cut``: stdout is only the end of what was printed, so it cannot be read as JSON.
    """
    if code is None or code < 0:
        how = "nobody knows how it ended" if code is None else f"signal {-code} ended it"
        return Review(trouble=how)
    if code in _NOT_RUN:
        said = _last_line(stderr) or _last_line(stdout)
        return Review(trouble=_NOT_RUN[code] + (f": {said}" if said else ""))
    found = None if cut else _json(stdout)
    if found is not None:
        findings = _distinct(tuple(_findings(found)))
        if findings or code == 0:
            return Review(findings)
    if code == 0:
        return Review()
    return Review((_as_text(code, stdout, stderr),))


def _as_text(code: int, stdout: str, stderr: str) -> ReviewFinding:
    """All that was said, as one finding; another text is another one."""
    said = "\n".join(part.strip() for part in (stdout, stderr) if part.strip())[-MOST_OUTPUT_CHARS:]
    digest = hashlib.sha256(said.encode(errors="replace")).hexdigest()[:8]
    return ReviewFinding(f"review-{digest}", said or f"the review ended with {code} and said nothing")


def _json(stdout: str) -> list[Any] | None:
    """The list of findings that the output holds; None where it holds none, not even an empty one."""
    try:
        found = json.loads(stdout)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, list):
        return found
    return _list_in(found) if isinstance(found, dict) else None


def _list_in(found: Mapping[str, Any]) -> list[Any] | None:
    lists = (found[name] for name in _LISTS if isinstance(found.get(name), list))
    return next(lists, None)


def _findings(items: Sequence[Any], place: str = "") -> Iterator[ReviewFinding]:
    """The findings of a list; those of a file are in a list of its own in some linters' output."""
    for item in items[: 10 * MOST_FINDINGS]:
        if isinstance(item, str) and item.strip():
            yield ReviewFinding("", item.strip()[:MOST_TEXT_CHARS], place)
        elif isinstance(item, dict) and (inner := _list_in(item)) is not None:
            yield from _findings(inner, _place(item) or place)
        elif isinstance(item, dict) and item:
            yield _finding(item, place)


def _finding(item: Mapping[str, Any], place: str) -> ReviewFinding:
    text = _first(item, _TEXTS) or json.dumps(item, ensure_ascii=False, default=str)
    name = _first(item, _NAMES)
    where = _place(item) or place
    line = "" if _place(item) else _line(item)
    where = f"{where}:{line}" if where and line else where
    if name and "id" not in item:  # a rule's name: what it says is part of the text, and its place of the id
        return ReviewFinding(f"{name} {where}".strip(), f"{name}: {text}"[:MOST_TEXT_CHARS], where)
    return ReviewFinding(name, text[:MOST_TEXT_CHARS], where)


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
        if isinstance(held, str) and held.strip():
            return held.strip()[:MOST_TEXT_CHARS]
        if isinstance(held, int) and not isinstance(held, bool):
            return str(held)
    return ""


def _distinct(findings: tuple[ReviewFinding, ...]) -> tuple[ReviewFinding, ...]:
    """The findings with an id each, none of them twice: none is lost to another one of its name."""
    seen: dict[str, int] = {}
    named = []
    for finding in findings[:MOST_FINDINGS]:
        name = finding.id or " ".join(part for part in (finding.place, finding.text[:80]) if part)
        seen[name] = seen.get(name, 0) + 1
        named.append(replace(finding, id=name if seen[name] == 1 else f"{name} #{seen[name]}"))
    return tuple(named)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""

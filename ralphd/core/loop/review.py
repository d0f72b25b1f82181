"""The findings of a review command: from its JSON, else from its exit status and its text (L15).

A review is any command: a linter, a script, another model. The JSON may be an array, or an object with a list
of ``findings``, ``issues``, …, with the key names that linters use. Nothing here raises for any output.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, count, islice
from typing import Any, Final

from ralphd.core.text import plain
from ralphd.dataclass import dataclass

MOST_FINDINGS: Final = 200
MOST_TEXT_CHARS: Final = 2000
MOST_OUTPUT_CHARS: Final = 8000
MOST_DEPTH: Final = 8
MOST_NAMED: Final = 3
MOST_SHOWN_CHARS: Final = 30_000
_SHORT: Final = 120
_BY_SIGNAL: Final = range(129, 193)
"""A shell exits with 128 plus the number of the signal that ended its command."""
_LISTS: Final = ("findings", "issues", "messages", "results")
_TEXTS: Final = ("message", "text", "title", "description", "summary", "body")
_FILES: Final = ("file", "filename", "path", "filePath", "file_path")
_LINES: Final = ("line", "row", "start_line", "lineNumber")
_RULES: Final = ("code", "rule", "ruleId", "check_id")
_NOT_RUN: Final = {126: "it may not be executed", 127: "it was not found"}


@dataclass(frozen=True, slots=True)
class ReviewFinding:
    """One thing to address. ``id`` is unique within a review; the next review may give it to another one."""

    id: str
    text: str
    place: str = ""

    @property
    def short(self) -> str:
        """Return the finding as part of a line."""
        text = self.text if not self.place or self.place in self.text else f"{self.place}: {self.text}"
        line = " ".join(text.split())
        return line if len(line) <= _SHORT else line[: _SHORT - 2] + " …"

    @property
    def whole(self) -> str:
        """Return all of it, as an item of a list."""
        return f"- [{self.id}] {self.place + ': ' if self.place else ''}{self.text}"

    def is_like(self, other: "ReviewFinding") -> bool:
        """Return whether both are the same: many reviews number their findings, so ids alone say little."""
        return (self.id, self.text) == (other.id, other.text)


@dataclass(frozen=True, slots=True)
class Review:
    """The result of a review. ``trouble`` says why nothing was reviewed."""

    findings: tuple[ReviewFinding, ...] = ()
    trouble: str = ""
    timed_out: bool = False


def read_review(code: int | None, stdout: str, stderr: str = "", *, cut: bool = False) -> Review:
    """Return the meaning of a review's output. A ``code`` below 0 is a signal, None: unknown.

    ``cut``: stdout is only the end of the output, so it is not JSON as a whole. If it looks like the end of
    JSON, in a fence or not, it may hold any number of findings, and is not a clean review.
    """
    if (signal := _signal(code)) or code is None:
        return Review(trouble=f"signal {signal} ended it" if signal else "nobody knows how it ended")
    if code in _NOT_RUN:
        why = _last_line(stderr) or _last_line(stdout)
        return Review(trouble=_NOT_RUN[code] + (f": {why}" if why else ""))
    listed = _listed(stdout, cut=cut)
    if listed is None and cut and code == 0 and stdout.rstrip("` \t\r\n").endswith(("]", "}")):
        return Review(trouble="it printed more JSON than is read")
    if listed or code == 0:
        return Review(listed or ())
    # All of the text is one finding; its digest tells it from that of the next review.
    parts = (_clean(part[-MOST_OUTPUT_CHARS:]) for part in (stdout, stderr))
    text = "\n".join(part for part in parts if part)[-MOST_OUTPUT_CHARS:]
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    text = text or f"the review ended with {code} and said nothing"
    return Review((ReviewFinding(f"review-{digest}", text),))


def shown(findings: tuple[ReviewFinding, ...]) -> tuple[ReviewFinding, ...]:
    """Return the first findings, as many as an agent is shown at once: it can only answer for these."""
    sizes = accumulate(len(finding.whole) for finding in findings)
    return findings[: max(sum(size <= MOST_SHOWN_CHARS for size in sizes), 1)]


def counted(findings: int) -> str:
    """Return the number with its noun."""
    return f"{findings} finding{'' if findings == 1 else 's'}"


def named(findings: tuple[ReviewFinding, ...]) -> str:
    """Return the first findings, in short."""
    first = "; ".join(finding.short for finding in findings[:MOST_NAMED])
    return first + (f"; and {len(findings) - MOST_NAMED} more" if len(findings) > MOST_NAMED else "")


def _signal(code: int | None) -> int:
    """Return the signal that ended the command, or the last command of its shell; 0: none did."""
    if code is None or (code >= 0 and code not in _BY_SIGNAL):
        return 0
    return -code if code < 0 else code - 128


def _listed(stdout: str, *, cut: bool) -> tuple[ReviewFinding, ...] | None:
    """Return the findings in the output; None if it holds no list, not even an empty one."""
    for text in _json_candidates(stdout, cut=cut):
        try:
            data = json.loads(text)
            items = _list_in(data) if isinstance(data, dict) else data
            if isinstance(items, list):
                return _distinct(islice(_findings(items), MOST_FINDINGS))
        except (ValueError, RecursionError):
            continue
    return None


def _json_candidates(stdout: str, *, cut: bool) -> Iterator[str]:
    """Yield the output, its last fence, its end from a bracket at the start of a line: models add prose.

    After other JSON the end would be only a part of it: then the output counts as text.
    """
    if not cut:
        yield stdout
    fenced = stdout.rsplit("```", 2)
    if len(fenced) == 3:
        yield fenced[1].removeprefix("json")
    begins = max(stdout.rfind("\n{"), stdout.rfind("\n["))
    if begins >= 0 and not stdout[:begins].rstrip().endswith(("]", "}")):
        yield stdout[begins:]


def _list_in(data: Mapping[str, Any]) -> list[Any] | None:
    lists = [data[name] for name in _LISTS if isinstance(data.get(name), list)]
    return next((each for each in lists if each), lists[0] if lists else None)


def _findings(items: Sequence[Any], place: str = "", depth: int = 1) -> Iterator[ReviewFinding]:
    """Yield the findings of a list; some linters put those of each file into a list of their own."""
    for item in items:
        if isinstance(item, str) and (text := _short(item)):
            yield ReviewFinding("", text, place)
        elif isinstance(item, dict) and depth < MOST_DEPTH and (inner := _list_in(item)) is not None:
            yield from _findings(inner, _place(item) or place, depth + 1)
        elif isinstance(item, dict) and item:
            yield _finding(item, place)


def _finding(item: Mapping[str, Any], place: str) -> ReviewFinding:
    text = _first(item, _TEXTS) or json.dumps(item)[:MOST_TEXT_CHARS]
    id_, rule = (plain(_first(item, names), _SHORT) for names in (("id",), _RULES))
    if not (where := _place(item)):
        line = _line(item)
        where = f"{place}:{line}" if place and line else place
    if rule and not id_:  # a rule is not an id: it becomes part of the text, and with the place the id
        return ReviewFinding(f"{rule} {where}".strip(), f"{rule}: {text}"[:MOST_TEXT_CHARS], where)
    return ReviewFinding(id_, text, where)


def _place(item: Mapping[str, Any]) -> str:
    file, line = _first(item, _FILES), _line(item)
    return f"{file}:{line}" if file and line else file


def _line(item: Mapping[str, Any]) -> str:
    location = item.get("location") or item.get("start")
    inner = _first(location, _LINES) if isinstance(location, dict) else ""
    return _first(item, _LINES) or inner


def _first(item: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first of these values that is a text or a number."""
    for name in names:
        value = item.get(name)
        if isinstance(value, str) and (text := _short(value)):
            return text
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)[:MOST_TEXT_CHARS]
    return ""


def _distinct(findings: Iterable[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Give each finding a unique id, so that none is lost to another one of its name."""
    by_id: dict[str, ReviewFinding] = {}
    for finding in findings:
        name = " ".join((finding.id or f"{finding.place} {finding.text[:80]}").split())
        numbered = (f"{name} #{number}" for number in count(2))
        free = next(each for each in chain([name], numbered) if each not in by_id)
        by_id[free] = replace(finding, id=free)
    return tuple(by_id.values())


def _short(text: str) -> str:
    return _clean(text.strip()[:MOST_TEXT_CHARS])


def _clean(text: str) -> str:
    return "\n".join(map(plain, text.split("\n"))).strip()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text[-MOST_OUTPUT_CHARS:].splitlines() if line.strip()]
    return plain(lines[-1], 300) if lines else ""


# The answer of a triage, which can be any text: the findings that need no work (L15).

NOTHING: Final = "NOTHING"
"""The answer that nothing needs work."""
MOST_OBJECTS: Final = 200
"""How many possible starts of a JSON object are tried, from the end of the answer."""


def dismissed_by(answer: str, findings: tuple[ReviewFinding, ...]) -> frozenset[str]:
    """Return the ids that an answer dismisses by ``{"dismiss": [...]}``, or by NOTHING on its own line."""
    known = frozenset(finding.id for finding in findings)
    if (listed := _dismiss_list(answer)) is not None:
        return known & {str(each).strip() for each in listed if isinstance(each, str | int)}
    if any(line.strip(" \t\r`*_.") == NOTHING for line in answer.splitlines()):
        return known
    return frozenset()


def _dismiss_list(answer: str) -> list[Any] | None:
    """Return ``dismiss`` of the last JSON object that has it; prose and a fence may surround it."""
    decoder, start = json.JSONDecoder(), len(answer)
    for _ in range(MOST_OBJECTS):
        start = answer.rfind("{", 0, start)
        if start < 0:
            return None
        try:
            data, _ = decoder.raw_decode(answer, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(data.get("dismiss"), list):
            return list(data["dismiss"])
    return None

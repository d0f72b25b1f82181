"""The patterns of the agents: read from the TOML files beside this module, and from one of the user's (K3).

A file has a ``version``, ``[[pattern]]`` entries for the beginnings of lines, and ``[[phrase]]`` entries for
texts that are known to be an error's. What agents have in common is in ``common.toml`` and comes last.
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from ralphd.core.failures.kinds import FailureKind
from ralphd.core.failures.patterns import AfterGoodExit, Pattern, Patterns, anchored, compiled
from ralphd.errors import ConfigFaults

VERSION: Final = 1
"""The version of the files that this program understands."""

_HERE: Final = Path(__file__).parent / "patterns"
WELL_KNOWN: Final = ("claude", "codex", "gemini", "opencode")
_SHARED: Final = ("general", "common")
_OTHERS: Final = tuple(sorted({path.stem for path in _HERE.glob("*.toml")} - {*WELL_KNOWN, *_SHARED}))
"""CLIs of which less is known than of the first four."""
_KEYS: Final = frozenset(
    {"name", "kind", "match", "examples", "counter_examples", "live", "read", "vague", "after_good_exit"}
)
_MOST_BYTES: Final = 1 << 20


def patterns_of(agent: str, override: Path | None = None) -> Patterns:
    """The patterns of ``agent``; of one that has no file of its own, those of any command.

    ``override`` is the user's file: an entry of a known name replaces that one in its place, new ones are
    tried first. Raises ConfigFaults.
    """
    known = _shipped(agent if agent in (*WELL_KNOWN, *_OTHERS) else "general")
    if override is None:
        return replace(known, agent=agent)
    own = _read(override)
    patterns, phrases = _replaced(known.patterns, own.patterns), _replaced(known.phrases, own.phrases)
    return Patterns(agent, known.version, patterns, phrases)


@cache
def _shipped(agent: str) -> Patterns:
    # A wrapper prints what the agent inside it says, so any command may speak like each of them. So may a CLI
    # of which little is known, after its own patterns.
    every = ("general", *_OTHERS, *WELL_KNOWN, "common")
    names = (agent, "common") if agent in WELL_KNOWN else dict.fromkeys((agent, *every))
    files = [_shipped_file(name) for name in names]
    patterns = tuple(pattern for file in files for pattern in file.patterns)
    phrases = tuple(phrase for file in files for phrase in file.phrases)
    return Patterns(agent, files[0].version, patterns, phrases)


@cache
def _shipped_file(name: str) -> Patterns:
    return _read(_HERE / f"{name}.toml")


def _replaced(known: tuple[Pattern, ...], own: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    by_name = {pattern.name: pattern for pattern in own}
    names = {pattern.name for pattern in known}
    new = (pattern for pattern in own if pattern.name not in names)
    return (*new, *(by_name.get(pattern.name, pattern) for pattern in known))


def _read(path: Path) -> Patterns:
    """A file of patterns. Raises ConfigFaults with all that is wrong."""
    try:
        with path.open("rb") as file:
            data = tomllib.loads(file.read(_MOST_BYTES).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        raise _unusable(path, [str(fault)]) from fault
    faults = []
    if data.get("version") != VERSION:
        faults.append(f"version: must be {VERSION}, is {data.get('version', 'missing')}")
    for key in sorted(data.keys() - {"version", "pattern", "phrase"}):
        faults.append(f"{key}: unknown; a file has version, [[pattern]] and [[phrase]]")
    is_ours = path.parent == _HERE  # the tests compile each, a program what it uses
    patterns = tuple(_entries(data.get("pattern", []), "pattern", is_ours, faults))
    phrases = tuple(_entries(data.get("phrase", []), "phrase", is_ours, faults))
    if faults:
        raise _unusable(path, faults)
    return Patterns(path.stem, data["version"], patterns, phrases)


def _unusable(path: Path, faults: list[str]) -> ConfigFaults:
    mend = "correct the file, or remove `patterns` from the agent's section in ralph.toml"
    return ConfigFaults(f"the patterns in {path} cannot be used", why="\n".join(faults), mend=mend)


def _entries(given: object, what: str, is_ours: bool, faults: list[str]) -> Iterator[Pattern]:
    if not isinstance(given, list) or not all(isinstance(entry, dict) for entry in given):
        faults.append(f"{what}: must be written as [[{what}]]")
        return
    seen: set[str] = set()
    for number, entry in enumerate(given, 1):
        name = entry.get("name")
        place = f"{what} {name if isinstance(name, str) and name else number}"
        if name in seen:
            faults.append(f"{place}: the name is used twice")
        pattern, wrong = _entry(entry, what, is_ours)
        faults.extend(f"{place}: {fault}" for fault in wrong)
        if pattern is not None:
            seen.add(pattern.name)
            yield pattern


def _entry(entry: dict[str, Any], what: str, is_ours: bool) -> tuple[Pattern | None, list[str]]:
    faults = [f"{key}: unknown key" for key in sorted(entry.keys() - _KEYS)]
    if not isinstance(name := entry.get("name"), str) or not name:
        faults.append("name: must be a text, and is missing")
    kind = _word(entry, "kind", FailureKind, "", faults)
    after = _word(entry, "after_good_exit", AfterGoodExit, AfterGoodExit.NEVER, faults)
    written = _written(entry, what, is_ours, faults)
    examples, counter_examples = (_texts(entry, key, faults) for key in ("examples", "counter_examples"))
    live, read, vague = (_flag(entry, key, faults) for key in ("live", "read", "vague"))
    if faults or kind is None or written is None or after is None:
        return None, faults
    return Pattern(str(name), kind, written, examples, counter_examples, live, read, vague, after), faults


_W = TypeVar("_W", bound=StrEnum)


def _word(entry: dict[str, Any], key: str, words: type[_W], default: str, faults: list[str]) -> _W | None:
    if (value := entry.get(key, default)) in list(words):
        return words(value)
    what = f"{value!r} is unknown" if value else "is missing"
    faults.append(f"{key}: {what}; known are {', '.join(words)}")
    return None


def _written(entry: dict[str, Any], what: str, is_ours: bool, faults: list[str]) -> str | None:
    if not isinstance(text := entry.get("match"), str) or not text:
        faults.append("match: must be a regular expression, and is missing")
        return None
    written = anchored(text) if what == "pattern" else text
    try:
        return written if is_ours else compiled(written).pattern
    except re.error as fault:
        faults.append(f"match: {fault}")
        return None


def _texts(entry: dict[str, Any], key: str, faults: list[str]) -> tuple[str, ...]:
    if isinstance(value := entry.get(key, []), list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    faults.append(f"{key}: must be a list of texts")
    return ()


def _flag(entry: dict[str, Any], key: str, faults: list[str]) -> bool:
    if isinstance(value := entry.get(key, False), bool):
        return value
    faults.append(f"{key}: must be true or false")
    return False

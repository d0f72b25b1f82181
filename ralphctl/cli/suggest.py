"""Suggest the command or option that an unknown word means: by other tools' names, else by edit distance.

A command that changes something is suggested only for a word that is nearer to it than to any word that only
looks: ``top`` never becomes ``stop``. The words of other tools are in aliases.toml.
"""

import tomllib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_ALIASES: Mapping[str, Any] = tomllib.loads((Path(__file__).parent / "aliases.toml").read_text())
_LOOKS = frozenset(_ALIASES["looks"].split())
_STRONG_OPTIONS = frozenset(_ALIASES["strong_options"].split())


def command_for(word: str, table: Iterable[str], *, is_root: bool) -> str:
    """Return what to type after the program's or group's name instead of ``word``; empty if nothing is near.

    ``table`` are the names of the group's commands.
    """
    names = list(table)
    rows = _ALIASES["in_groups"].items()
    known: dict[str, str] = {each: to for each, row in rows for to in row.split() if to in names}
    if is_root:
        rows = _ALIASES["commands"].items()
        usable = [(to, words) for to, words in rows if to.startswith("-") or to.split()[0] in names]
        known = {each: to for to, words in usable for each in words.split()}
    known |= {name: name for name in names}
    near = _nearest(word.lower(), known)
    calm = [each for each in near if only_looks(known[each])]
    if not calm and _LOOKING.intersection(_nearest(word.lower(), {*known, *_LOOKING})):
        return ""
    return known[(calm or near)[0]] if near else ""


def option_for(option: str, known: Iterable[str]) -> str:
    """Return the option of ``known`` that ``option`` means; empty if nothing is near."""
    name, options = option.partition("=")[0], list(known)
    rows: Mapping[str, str] = _ALIASES["options"]
    for each, aliases in rows.items():
        if each in options and name in aliases.split() and each not in _STRONG_OPTIONS:
            return each
    near = _nearest(name, [each for each in options if each.startswith("--")])
    calm = [each for each in near if each not in _STRONG_OPTIONS]
    return calm[0] if calm else near[0] if near and distance(name, near[0]) == 1 else ""


def event_type_for(word: str, types: Iterable[str]) -> str:
    """Return the event type that ``word`` means, else the one with the nearest spelling."""
    rows: Mapping[str, str] = _ALIASES["event_types"]
    meant = (each for each, words in rows.items() if word.lower() in words.split())
    return next(meant, "") or get_close_matches(word, types, 1, 0)[0]


def only_looks(command: str) -> bool:
    """Return whether ``command``, as suggested, changes nothing."""
    words = [word for word in command.split() if not word.startswith("-")]
    return not words or words[-1] in _LOOKS


_LOOKING = _LOOKS.union(*(words.split() for to, words in _ALIASES["commands"].items() if only_looks(to)))


def distance(one: str, other: str) -> int:
    """Return how many letters are to be added, removed, changed or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, last, row = row, before, [i]
        for j, b in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def farness(word: str, other: str) -> int:
    """Return twice the distance; swapped letters alone are a little less far than a wrong one."""
    return 2 * distance(word, other) - (word != other and sorted(word) == sorted(other))


def _nearest(word: str, known: Iterable[str]) -> list[str]:
    """Return the least far words of ``known``, if they are one slip in three letters away at most."""
    by_farness = {each: farness(word[:40], each) for each in known}
    least = min(by_farness.values(), default=99)
    is_near = least <= 2 * max(1, len(word) // 3)
    return [each for each, far in by_farness.items() if far == least] if is_near else []

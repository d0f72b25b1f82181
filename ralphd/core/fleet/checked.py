"""Values of the fleet as JSON objects, and back: all that is read was written by another machine.

Each value is bounded and checked, unknown keys are ignored, and a newer version is not for this host. The
shapes are those of the model, without pydantic, which core does not import. Moments are seconds since 1970.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

from ralphd.core.fleet.model import GOALS, LIMIT_STATES, VERSION, WANTS, HostName, ItemId
from ralphd.core.fleet.names import is_branch, is_host_name, is_item_id, normalized_url
from ralphd.core.text import one_line
from ralphd.dataclass import dataclass

T = TypeVar("T")

MOST_ENTRIES: Final = 256
MOST_CHARS: Final = 1000
MOST_NUMBER: Final = 2**53
LATEST: Final = 253_402_300_799.0
"""The last second that has a date (year 9999)."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a value was not taken. ``is_newer``: a newer version wrote it, which is no fault."""

    why: str
    is_newer: bool = False


def _is_commit(text: str) -> bool:
    return re.fullmatch(r"(?:[0-9a-f]{40,64})?", text) is not None


_TEXTS: Final[Mapping[str, Callable[[str], bool]]] = {
    "Item.repo": lambda text: bool(normalized_url(text)), "Item.base": is_branch, "Item.branch": is_branch,
    "Item.goal": GOALS.__contains__, "LastTry.commit": _is_commit,
    "Lease.host": lambda text: not text or is_host_name(text), "Lease.pushed": _is_commit,
    "AccountLimit.state": LIMIT_STATES.__contains__, "Want.want": WANTS.__contains__,
}  # fmt: skip
_FREE: Final = {
    "Decline.why", "Item.why", "Item.by", "LastTry.why",
    "Want.by", "AccountLimit.window", "HostRecord.version",
}  # fmt: skip
"""Texts for people only: cleaned and cut, where others are refused."""
_NAMES: Final[Mapping[Any, Callable[[str], bool]]] = {HostName: is_host_name, ItemId: is_item_id}
_NUMBERS: Final = {"Item.priority": (-1000, 1000), "Item.max_tries": (1, 100)}


def read_value(shape: type[T], value: object) -> T | Rejected:
    """Return the value that a parsed JSON object has, or why it is not taken."""
    if not isinstance(value, Mapping):
        return Rejected("it is not an object")
    version = value.get("v")
    if type(version) is not int or version < 1:
        return Rejected("it has no version")
    if version > VERSION:
        return Rejected(f"version {str(version)[:20]} is newer than {VERSION}; upgrade ralphd", is_newer=True)
    try:
        return _object(shape, value)
    except ValueError as fault:
        return Rejected(str(fault))


def write_value(value: Any) -> dict[str, Any]:
    """Return the JSON object for a value of the model."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(value)))
    return plain


def _object(shape: type[T], data: object) -> T:
    if not isinstance(data, Mapping):
        raise ValueError(f"{shape.__name__} is not an object")
    values, kinds = {}, _kinds_of(shape)  # type: ignore[arg-type]  # a class can be hashed
    for each in fields(shape):  # type: ignore[arg-type]  # T is a dataclass
        where = f"{shape.__name__}.{each.name}"
        if each.name in data:
            values[each.name] = _checked(kinds[each.name], data[each.name], where)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise ValueError(f"{where} is missing")
    return shape(**values)


_kinds_of = cache(get_type_hints)
"""Most of the time of a value would go into it."""


def _checked(kind: Any, value: object, where: str) -> Any:
    parts = get_args(kind)
    if get_origin(kind) is tuple:
        if not isinstance(value, list) or len(value) > MOST_ENTRIES:
            raise ValueError(f"{where} is not a list of at most {MOST_ENTRIES}")
        return tuple(_checked(parts[0], each, where) for each in value)
    if parts:
        return None if value is None else _checked(parts[0], value, where)
    if is_dataclass(kind):
        return _object(kind, value)  # type: ignore[arg-type]  # a class, as the model has no instances
    if kind is bool and type(value) is bool:
        return value
    if kind in (int, float):
        return _number(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and isinstance(value, str) and value in set(kind):
        return kind(value)
    if isinstance(value, str) and not (isinstance(kind, type) and kind is not str):
        return _text(kind, value, where)
    raise ValueError(f"{where} is {value!r:.40}")


def _number(kind: Any, value: object, where: str) -> Any:
    least, most = _NUMBERS.get(where, (0, MOST_NUMBER if kind is int else LATEST))
    is_number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if is_number and least <= value <= most:  # type: ignore[operator]  # a number; and so it is finite
        return kind(value)
    raise ValueError(f"{where} is not a number from {least} to {most:.0f}")


def _text(kind: Any, text: str, where: str) -> str:
    if where in _FREE:
        return one_line(text[: 4 * MOST_CHARS], MOST_CHARS)
    fits = _TEXTS.get(where) or _NAMES.get(kind)
    if len(text) > MOST_CHARS or not text.isprintable() or not (fits is None or fits(text)):
        raise ValueError(f"{where} has no valid value: {text[:40]!r}")
    return text

"""What has changed in a configuration, in words: before it is reloaded, and when it is."""

from __future__ import annotations

from ralphctl.format.output import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

_ROWS = 6
_NOT_SET = "not set"


def drift_rows(view: Mapping[str, Any]) -> list[str]:
    """What its files say now and it does not follow, and the command that makes it."""
    drift = [each for each in view.get("drift") or () if isinstance(each, dict)]
    if not drift:
        return []
    name = clean(str(view.get("name") or "NAME"))
    faults = [clean(str(each["fault"])) for each in drift if each.get("fault")]
    if faults and not any(each.get("key") for each in drift):
        head = "the configuration was changed and is not right now; until it is, nothing changes:"
        return [head, *_first(faults, name)]
    head = f"the configuration was changed; to have it from the next run on: ralphctl reload {name}"
    return [head, *_first([_drifted(each) for each in drift], name)]


def _drifted(each: Mapping[str, Any]) -> str:
    if each.get("fault"):
        return clean(str(each["fault"]))
    return f"{_key(each)} = {_value(each, 'now')}, was {_value(each, 'pinned')}"


def _first(lines: Sequence[str], name: str) -> list[str]:
    """As many as a person reads; one more where it would be alone."""
    if len(lines) <= _ROWS + 1:
        return [f"  {line}" for line in lines]
    left = f"  and {len(lines) - _ROWS} more: ralphctl --json status {name}"
    return [*(f"  {line}" for line in lines[:_ROWS]), left]


def change_lines(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reload changed, a line each."""
    return [f"  {_key(each)} = {_value(each, 'becomes')}, was {_value(each, 'was')}" for each in changes]


def _key(each: Mapping[str, Any]) -> str:
    origin = clean(str(each.get("origin") or ""))
    return clean(str(each.get("key") or "?")) + (f" ({origin})" if origin else "")


def _value(each: Mapping[str, Any], name: str) -> str:
    value = each.get(name)
    return _NOT_SET if value is None else clean(str(value))

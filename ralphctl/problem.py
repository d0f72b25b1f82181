"""A reply that is no success becomes the error that its problem document names (RFC 9457)."""

from __future__ import annotations

import json

from ralphd.errors import BY_SLUG, PROBLEM_PREFIX, InternalError, RalphdError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def check(status: int, body: bytes) -> None:
    """Raise what the reply says went wrong; nothing for a status below 400."""
    if status >= 400:
        raise error_of(status, body)


def error_of(status: int, body: bytes) -> RalphdError:
    """The error that a problem document describes; one that says so when it is none."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        return InternalError(f"ralphd answered {status} without saying why", mend="ralphctl regent logs")
    return _named(str(document.get("type", "")), status)(
        str(document.get("detail") or document.get("title") or f"ralphd answered {status}"),
        why=_why(document),
        mend=str(document.get("try") or ""),
    )


def _named(type_: str, status: int) -> type[RalphdError]:
    kind = BY_SLUG.get(type_.removeprefix(PROBLEM_PREFIX))
    if kind is None:
        kind = InternalError if status >= 500 else RalphdError
    return kind


def _why(document: dict[str, Any]) -> str:
    lines = [str(document["why"])] if document.get("why") else []
    errors = document.get("errors")
    if isinstance(errors, list):
        lines += [line for line in map(_fault, errors) if line not in "\n".join(lines)]
    return "\n".join(lines)


def _fault(entry: object) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    return ": ".join(str(entry[key]) for key in ("place", "key", "detail", "message") if entry.get(key))

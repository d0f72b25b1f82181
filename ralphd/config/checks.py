"""What a value has to be beyond its type and range. Each check raises ValueError with the words to show."""

from difflib import get_close_matches
from urllib.parse import urlsplit

from ralphd.core.delivery import Destination
from ralphd.wire import EVENT_TYPES


def storable(text: str) -> str:
    """Refuse what no argument, variable or path can hold, and what no JSON file can."""
    if "\0" in text:
        raise ValueError("cannot hold a NUL character")
    if any("\ud800" <= mark <= "\udfff" for mark in text):
        raise ValueError("has to be UTF-8 text")
    return text


def variables(env: dict[str, str]) -> dict[str, str]:
    """Refuse names that no environment variable can have."""
    for name in env:
        if not name or "=" in name or "\0" in name:
            raise ValueError(f"{name!r} cannot be the name of a variable")
    return env


def an_address(url: str) -> str:
    """Refuse what is no http or https address, and one that holds a password (addresses are stored)."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as fault:
        raise ValueError(f"is not an address: {fault}") from fault
    if parts.scheme not in ("http", "https") or not host or any(mark.isspace() for mark in url):
        raise ValueError("has to be an http or https address")
    if parts.username is not None:
        raise ValueError("cannot hold a password, since addresses are stored; use secret_file")
    return url


def event_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a pattern that names no event there is."""
    for pattern in patterns:
        one = Destination(url="", on=(pattern,))
        if not any(one.wants(event) for event in EVENT_TYPES):
            raise ValueError(f"{pattern!r} names no event{did_you_mean(pattern, EVENT_TYPES)}")
    return patterns


def did_you_mean(word: str, known: tuple[str, ...] | list[str], *, cutoff: float = 0.6) -> str:
    """``, did you mean X?`` for the nearest of ``known``, or nothing when none is near."""
    near = get_close_matches(word, known, n=1, cutoff=cutoff)
    return f", did you mean {near[0]}?" if near else ""

"""Streams that come in parts of any size, as lines and events."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any


def lines_of(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines of a stream; a last one without an end is left out. Only a newline ends a line."""
    return itertools.chain.from_iterable(batches_of(parts))


def batches_of(parts: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The same, as they come: what is whole with each part, at times nothing."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield lines


def events_of(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The events in a stream of server-sent events: each is one JSON object on one ``data:`` line."""
    return (json.loads(line[5:]) for line in lines if line.startswith(b"data:"))

"""Keys, values and changes of a bucket, as every engine handles them.

A hub is not trusted with sizes and shapes: what is not a JSON object of a fair size is read as {}.
"""

import asyncio
import json
import re
from collections import OrderedDict
from typing import Final, NoReturn

from ralphd.core.fleet.model import MOST_VALUE_BYTES
from ralphd.fleet.fabric import Entry, JsonObject

MOST_KEY_CHARS: Final = 512
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_/-]")
_UNSAFE_IN_A_KEY: Final = re.compile(r"[^A-Za-z0-9_/.-]|(?<![^.])\.|\.(?![^.])")
"""A dot at either end, or beside another, makes an empty token, which NATS refuses."""
_ESCAPED: Final = re.compile(r"(?:=[0-9A-F]{2})+")


def escaped_token(text: str) -> str:
    """Return ``text`` as one token of a subject: a host, a route. Names of letters, digits, ``-_`` stay."""
    if not text:
        raise ValueError("a name is empty")
    return _UNSAFE.sub(_escape, text)


def escaped_key(key: str) -> str:
    """Return ``key`` as NATS takes it: what is not a letter, a digit or one of ``-_/.`` as ``=XX``."""
    escaped = _UNSAFE_IN_A_KEY.sub(_escape, key)
    if not 0 < len(escaped) <= MOST_KEY_CHARS:
        raise ValueError(f"a key has between 1 and {MOST_KEY_CHARS} characters: {key[:80]!r}")
    return escaped


def unescaped_key(escaped: str) -> str:
    """Return the key that was escaped. Bytes that are no UTF-8 become U+FFFD."""
    return _ESCAPED.sub(lambda run: bytes.fromhex(run[0].replace("=", "")).decode(errors="replace"), escaped)


def _escape(match: re.Match[str]) -> str:
    return "".join(f"={byte:02X}" for byte in match[0].encode(errors="replace"))


def as_bytes(value: JsonObject, most_bytes: int = MOST_VALUE_BYTES) -> bytes:
    """Return the JSON of ``value``. Raises ValueError for more than ``most_bytes``."""
    data = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    if len(data) > most_bytes:
        raise ValueError(f"a value has at most {most_bytes} bytes, this one has {len(data)}")
    return data


def from_bytes(data: bytes, most_bytes: int = MOST_VALUE_BYTES) -> JsonObject:
    """Return the JSON object in ``data``, and {} where there is none."""
    try:
        value = json.loads(data, parse_constant=_refuse) if len(data) <= most_bytes else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class LatestEntries:
    """A queue of changes for one reader. It holds the latest entry of each key only, which bounds it."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Entry] = OrderedDict()
        self._changed = asyncio.Event()
        self._ended = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, entry: Entry) -> None:
        """Add a change. It takes the place of an older one of the same key."""
        self._waiting[entry.key] = entry
        self._changed.set()

    def end(self) -> None:
        """Let ``get`` return None once everything is read."""
        self._ended = True
        self._changed.set()

    async def get(self) -> Entry | None:
        """Return the next change; None after the end."""
        while not self._waiting:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popitem(last=False)[1]

"""One parser of what others write: how it is called, what has to hold, and what its input may look like."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parents[2] / "docs" / "examples"
KIB, MIB = 1 << 10, 1 << 20
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Broken(AssertionError):
    """Something that has to hold for every input does not."""


@dataclass(frozen=True)
class Parser:
    """``call`` gets any bytes and raises for a fault. ``most_bytes`` is what its caller may hand over.

    ``weight`` is its share of the time. ``units`` are repeated to see how its time grows; where none is
    given, the seeds and the tokens are.
    """

    name: str
    call: Callable[[bytes], object]
    seeds: Sequence[bytes]
    tokens: Sequence[bytes] = ()
    weight: int = 1
    most_bytes: int = 10 * MIB
    units: Sequence[bytes] = ()

    def grown(self, size: int) -> Iterator[tuple[str, bytes]]:
        """Yield long inputs of ``size`` bytes: each unit many times, in a frame, and with a broken end."""
        units = self.units or (*self.tokens, *(seed[:400] for seed in self.seeds[:3]))
        for unit in dict.fromkeys(filter(None, (*units, *COMMON_UNITS))):
            data = (unit * (size // len(unit) + 1))[:size]
            yield f"{unit[:40]!r} repeated", data
            if self.seeds and b"{" in self.seeds[0][:2]:
                text = json.dumps(data.decode("latin-1")).encode()[: size // 2]
                yield f"a text of {unit[:40]!r}", b'{"type": ' + text + b'"}'


COMMON_UNITS = (
    b"a",
    b"1",
    b" ",
    b"\n",
    b"[",
    b"\x1b[",
    b"\x1b]",
    b'{"a":',
    b"\\",
    b"x\n",
    b'"',
    b"- [ ] a\n",
)
JSON_TOKENS = (
    b"null",
    b"true",
    b"-1",
    b"1e999",
    b"NaN",
    b"Infinity",
    b'""',
    b"[]",
    b"{}",
    b"\\ud800",
    b"\\u0000",
    b"9" * 400,
    b"9" * 4400,
    b"\\u001b[2J",
    b'"\xff"',
    b"0001-01-01T00:00:00+23:59",
    b"9999-12-31T23:59:59Z",
    b"[" * 500,
)
TEXT_TOKENS = (
    b"\x1b[31m",
    b"\x1b]0;t\x07",
    b"\r",
    b"\n",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\u202e".encode(),
    "\u2028".encode(),
    "٣".encode(),
    b"9" * 30,
    b"9" * 4400,
    "é".encode() * 5,
)


def text_of(data: bytes) -> str:
    """Return text as files are read whose bytes may be anything."""
    return data.decode(errors="replace")


def must(holds: object, what: str) -> None:
    if not holds:
        raise Broken(what)


def is_showable(text: object, *, of: str = "what is printed") -> None:
    """Fail for a text with characters that a terminal acts upon, line ends and tabs aside."""
    must(isinstance(text, str), f"{of} is a {type(text).__name__}")
    found = _UNSHOWABLE.search(str(text))
    around = "" if found is None else str(text)[max(0, found.start() - 100) : found.start() + 20]
    must(found is None, f"{of} has a control character: {around!r}")


def is_kind(value: object, *kinds: type[Any] | None) -> None:
    must(
        any(value is None if kind is None else isinstance(value, kind) for kind in kinds),
        f"the result is a {type(value).__name__}: {value!r:.200}",
    )


def json_samples(*names: str) -> list[bytes]:
    """Return examples of the documentation, whole files or the lines of JSON lines."""
    found: list[bytes] = []
    for name in names:
        data = (SAMPLES / name).read_bytes()
        found += data.splitlines() if name.endswith("l") else [data]
    return found


def every_text(value: object) -> Iterable[str]:
    """Yield all texts in a value of JSON."""
    match value:
        case str():
            yield value
        case dict():
            for key, each in value.items():
                yield from (str(key), *every_text(each))
        case list() | tuple():
            for each in value:
                yield from every_text(each)

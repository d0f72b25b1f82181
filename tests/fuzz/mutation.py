"""Input made from seeds and tokens by a seeded generator: what the ordinary tests use, without an engine."""

import json
import random
from collections.abc import Iterator
from typing import Any

from tests.fuzz.parsers import JSON_TOKENS, Parser

MOST = 4096


def inputs(parser: Parser, seed: int, count: int) -> Iterator[bytes]:
    """Yield ``count`` inputs: the seeds themselves, then changed ones."""
    generator = random.Random(f"{parser.name} {seed}")
    yield from list(parser.seeds)[:count]
    for _ in range(count - len(parser.seeds)):
        yield mutated(parser, generator)


def mutated(parser: Parser, generator: random.Random) -> bytes:
    """Return a seed with one to six changes of its bytes, or of its values where it is JSON."""
    data = bytes(generator.choice(parser.seeds)) if parser.seeds else b""
    if data[:1] in (b"{", b"[") and generator.random() < 0.6:
        data = _with_changed_values(data, generator)
    for _ in range(generator.choice((0, 1, 1, 2, 3, 6))):
        data = _changed(data, parser, generator)
    return data[:MOST] if generator.random() < 0.9 else data


def _changed(data: bytes, parser: Parser, generator: random.Random) -> bytes:
    at = generator.randint(0, len(data))
    end = min(len(data), at + generator.choice((1, 1, 2, 8, 64)))
    match generator.randrange(8):
        case 0:
            return data[:at] + bytes([generator.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:at] + data[at:end] * generator.choice((2, 3, 50)) + data[end:]
        case 3 if parser.seeds:
            other = bytes(generator.choice(parser.seeds))
            return data[:at] + other[generator.randint(0, len(other)) :]
        case 4:
            return data[:at]
        case 5:
            return data[:at] + generator.randbytes(generator.choice((1, 2, 16))) + data[at:]
        case _:
            tokens = (*parser.tokens, b"\0", b"\n", b"9" * 25)
            return (
                data[:at] + bytes(generator.choice(tokens)) + data[end if generator.random() < 0.5 else at :]
            )


def _with_changed_values(data: bytes, generator: random.Random) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(generator.choice((1, 1, 2, 4))):
        value = _with_one_changed(value, generator)
    return json.dumps(value, ensure_ascii=generator.random() < 0.5).encode(errors="surrogatepass")


def _with_one_changed(value: Any, generator: random.Random) -> Any:
    if isinstance(value, dict) and value and generator.random() < 0.9:
        key = generator.choice(list(value))
        if generator.random() < 0.1:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: _with_one_changed(value[key], generator)}
    if isinstance(value, list) and value and generator.random() < 0.8:
        at = generator.randrange(len(value))
        return [*value[:at], _with_one_changed(value[at], generator), *value[at + 1 :]]
    return odd_value(value, generator)


def odd_value(value: Any, generator: random.Random) -> Any:
    """Return another value, often of another kind."""
    if isinstance(value, str) and generator.random() < 0.3:
        return value + generator.choice(("\x1b[2J", "\ud800", "\0", "\u202e", "\n", "x" * 5000, "\r"))
    token = generator.choice(JSON_TOKENS)
    try:
        plain = json.loads(token)
    except (ValueError, RecursionError):
        plain = token.decode(errors="replace")
    return generator.choice(
        (
            plain,
            None,
            True,
            -1,
            0,
            10**30,
            1e308,
            float("nan"),
            float("inf"),
            "",
            "0001-01-01T00:00:00+23:59",
            "9999-12-31T23:59:59Z",
            [],
            {},
            [value],
            {"a": value},
            str(value),
            "\x1b]0;x\x07",
            "\ud800",
            [[[]]] * 3,
        )
    )

"""Values and what they have to be, as text for people."""

from collections.abc import Mapping
from json import dumps
from typing import Any


def in_words(schema: Mapping[str, Any]) -> str:
    """What a schema asks for, as a person would say it."""
    if "const" in schema:
        return dumps(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(dumps(choice) for choice in schema["enum"])
    match schema["type"]:
        case "boolean":
            return "true or false"
        case "integer":
            return f"a whole number from {schema['minimum']:.0f} to {schema['maximum']:.0f}"
        case "number":
            return f"a number from {schema['minimum']:g} to {schema['maximum']:.0f}"
        case "array":
            return "a list of " + in_words(schema["items"]).removeprefix("a ") + "s"
        case "object":
            return "a table of strings"
        case _:
            return "a non-empty string" if schema.get("minLength") else "a string"


def shown(value: object) -> str:
    """What somebody wrote, short enough for a line."""
    try:
        text = dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):
        return "something else"
    return text if len(text) <= 60 else text[:57] + "..."


def toml_value(value: object) -> str:
    """A value as one would write it in ``ralph.toml``."""
    match value:
        case None:
            return "not set"
        case bool():
            return "true" if value else "false"
        case float() if value.is_integer():
            return f"{value:.0f}"
        case int() | float():
            return str(value)
        case tuple() | list():
            return "[" + ", ".join(toml_value(part) for part in value) + "]"
        case dict():
            return (
                "{" + ", ".join(f"{_quoted(name)} = {toml_value(part)}" for name, part in value.items()) + "}"
            )
        case _:
            return _quoted(str(value))


def printable(text: str) -> str:
    """The text with control characters written out: what a file says must not reach a terminal raw."""
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)


def _quoted(text: str) -> str:
    marks = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(marks.get(m) or (m if m.isprintable() else f"\\U{ord(m):08x}") for m in text) + '"'

"""What a record says where it says nothing: ``defaults.toml`` lists every default that is a decision.

Records are read from files of earlier versions, in which the newer fields are missing, so a default is also
how an old file is read. All others have to be nothing: None where the field allows it, else false, 0, empty.
"""

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ralphd.core

LIST = Path(__file__).with_name("defaults.toml")


def records() -> Iterator[tuple[str, type]]:
    """Every dataclass of the decisions, with its name below ``ralphd.core``."""
    for found in pkgutil.walk_packages(ralphd.core.__path__, f"{ralphd.core.__name__}."):
        module = importlib.import_module(found.name)
        for name, cls in vars(module).items():
            if dataclasses.is_dataclass(cls) and isinstance(cls, type) and cls.__module__ == module.__name__:
                yield f"{found.name.removeprefix(ralphd.core.__name__ + '.')}.{name}", cls


def defaults(cls: type) -> dict[str, Any]:
    """The defaults of the constructor that are values."""
    given = inspect.signature(cls).parameters
    fields = [each for each in dataclasses.fields(cls) if each.init]
    values = [each for each in fields if each.default is not dataclasses.MISSING]
    return {each.name: given[each.name].default for each in values}


def is_nothing(value: object, annotation: object) -> bool:
    if annotation == "None" or _allows_none(annotation):
        return value is None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value == type(value)()
    return isinstance(value, bool | int | float | str | tuple | frozenset) and not value


def _allows_none(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.endswith("| None")
    return types.NoneType in typing.get_args(annotation)


def as_listed(value: object) -> object:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, bool | int | float | str) else repr(value)


def decided(cls: type) -> dict[str, object]:
    kinds = {each.name: each.type for each in dataclasses.fields(cls)}
    return {
        name: as_listed(value) for name, value in defaults(cls).items() if not is_nothing(value, kinds[name])
    }


def _typed(values: dict[str, Any]) -> dict[str, tuple[type, object]]:
    return {name: (type(value), value) for name, value in values.items()}  # True is not 1, nor 1.0


@pytest.mark.parametrize(("name", "cls"), [*records()])
def test_a_default_is_nothing_or_it_is_listed(name: str, cls: type) -> None:
    listed: Any = tomllib.loads(LIST.read_text())
    for part in name.split("."):
        listed = listed.get(part, {})
    assert _typed(decided(cls)) == _typed(listed), f"defaults.toml, [{name}]"


def test_every_listed_record_exists() -> None:
    known = {name for name, _ in records()}
    for line in LIST.read_text().splitlines():
        if line.startswith("["):
            assert line.strip("[]") in known

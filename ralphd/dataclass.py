"""The decorator ``dataclass`` of the standard library, for classes that are made at every start.

``dataclasses`` of Python 3.11 compiles six functions for each frozen class. That took half of the time in
which a loop loads its modules. Here only ``__init__`` is compiled; the other methods are closures, which are
made in microseconds. Everything else is the library's: ``fields``, ``replace``, ``asdict``.

One difference: no attribute of a frozen object can be set, not even one that a subclass adds. A type checker
sees the library's own decorator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, eq=True, frozen=False, slots=False, kw_only=False):
        """Make a class a dataclass; used as the library's decorator is, with these parameters."""

        def made(plain):
            plain.__doc__ = plain.__doc__ or plain.__name__  # or the library would write down the signature
            library = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
            known = library(plain)
            _add_methods(known, dataclasses.fields(known), eq=eq, frozen=frozen)
            return known

        return made if cls is None else made(cls)


_GIVEN_BY_FACTORY = object()
_set = object.__setattr__


def _add_methods(cls: type, fields: tuple[dataclasses.Field[Any], ...], *, eq: bool, frozen: bool) -> None:
    methods: dict[str, Any] = {"__init__": _init(cls, fields, frozen=frozen), "__repr__": _repr(fields)}
    if frozen:
        methods |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if eq:
        values = _values([field.name for field in fields if field.compare])
        methods |= {"__eq__": _eq(values), "__hash__": (lambda self: hash(values(self))) if frozen else None}
    own = vars(cls)
    for name, method in methods.items():
        if own.get(name) is None:  # a class that has an __eq__ of its own has None as __hash__
            setattr(cls, name, method)


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...], *, frozen: bool) -> Callable[..., None]:
    """Compile ``__init__``: its parameters with their defaults, then one assignment for each field."""
    words: dict[str, Any] = {"_set": _set, "_factory": _GIVEN_BY_FACTORY}
    parameters, named, lines = list[str](), list[str](), list[str]()
    for field in fields:
        name = value = field.name
        default, factory = field.default, field.default_factory
        if factory is not dataclasses.MISSING:
            words[f"_make_{name}"] = factory
            value, default = f"_make_{name}()", _GIVEN_BY_FACTORY
        elif not field.init:
            value = f"_default_{name}"
        if field.init:
            into = named if field.kw_only else parameters
            into.append(name if default is dataclasses.MISSING else f"{name}=_default_{name}")
            value = f"{value} if {name} is _factory else {name}" if value.startswith("_make_") else name
        words[f"_default_{name}"] = default
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    star = ["*"] if named else []
    head = ", ".join(["self", *parameters, *star, *named])
    made: dict[str, Any] = {}
    exec(f"def __init__({head}):\n " + "\n ".join(lines or ["pass"]), words, made)  # noqa: S102 - names of fields and nothing else
    init: Callable[..., None] = made["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


def _values(names: list[str]) -> Callable[[object], Any]:
    return attrgetter(*names) if names else lambda self: ()


def _eq(values: Callable[[object], Any]) -> Callable[[object, object], Any]:
    def __eq__(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _repr(fields: tuple[dataclasses.Field[Any], ...]) -> Callable[[object], str]:
    names = [field.name for field in fields if field.repr]

    @recursive_repr()
    def __repr__(self: object) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

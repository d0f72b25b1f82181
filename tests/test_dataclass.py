"""The product's ``dataclass`` beside the standard library's: the same class text, made by both."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd import dataclass as own

Decorator = Callable[..., Any]
BOTH = (dataclasses.dataclass, own.dataclass)
VALUES = st.one_of(st.integers(), st.text(max_size=3), st.floats(allow_nan=True), st.none())


def made(decorator: Decorator, **words: bool) -> Any:
    @decorator(**words)
    class Sample:
        """A sample."""

        a: int
        b: str = "x"
        c: list[int] = dataclasses.field(default_factory=list, compare=not words.get("frozen"))
        d: int = dataclasses.field(default=4, init=False, repr=False)

        def doubled(self) -> int:
            return self.a * 2

    return Sample


WORDS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"eq": False},
    {"eq": False, "slots": True},
]


@pytest.mark.parametrize("words", WORDS, ids=str)
@given(first=VALUES, second=VALUES)
def test_objects_are_equal_and_shown_as_those_of_the_library(
    words: dict[str, bool], first: Any, second: Any
) -> None:
    theirs, ours = (made(decorator, **words) for decorator in BOTH)
    assert repr(ours(a=first, b=second)) == repr(theirs(a=first, b=second))
    assert (ours(a=first) == ours(a=second)) == (theirs(a=first) == theirs(a=second))
    assert (ours(a=first) == 3) == (theirs(a=first) == 3)
    assert dataclasses.asdict(ours(a=first, c=[1])) == dataclasses.asdict(theirs(a=first, c=[1]))
    assert dataclasses.replace(ours(a=first), b=second).b is second
    if words.get("frozen"):
        assert hash(ours(a=first, b=second)) == hash(theirs(a=first, b=second))


@pytest.mark.parametrize("words", WORDS, ids=str)
def test_classes_are_as_those_of_the_library(words: dict[str, bool]) -> None:
    theirs, ours = (made(decorator, **words) for decorator in BOTH)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert [field.name for field in dataclasses.fields(ours)] == ["a", "b", "c", "d"]
    assert ours.__match_args__ == theirs.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert ours(a=2).doubled() == 4 and ours(a=2).d == 4
    assert ours(a=1).c is not ours(a=1).c


@pytest.mark.parametrize("decorator", BOTH)
@pytest.mark.parametrize(("given", "named"), [((), {}), ((1, "b", [], 4), {}), ((1,), {"z": 2})])
def test_wrong_arguments_are_refused(decorator: Decorator, given: Any, named: Any) -> None:
    with pytest.raises(TypeError):
        made(decorator, frozen=True, slots=True)(*given, **named)


def test_a_frozen_object_stays_as_it_is() -> None:
    sample = made(own.dataclass, frozen=True, slots=True)(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
        sample.a = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
        del sample.a
    assert sample.a == 1


def test_what_a_class_defines_or_inherits_is_kept() -> None:
    @own.dataclass(frozen=True, slots=True)
    class Base:
        """A base."""

        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __str__(self) -> str:
            return "base"

    @own.dataclass(frozen=True, slots=True)
    class Derived(Base):
        """Derived from it."""

        b: int = 2

    assert Base(1) == Base(2) and Base(1) == 5 and hash(Base(1)) == hash(Base(1))
    assert Derived(1) == Derived(1) != Derived(2) and str(Derived(1)) == "base"
    assert repr(Derived(1)).endswith("Derived(a=1, b=2)")


def test_after_init_comes_post_init_and_a_loop_of_objects_is_shown() -> None:
    @own.dataclass
    class Node:
        """A node."""

        others: list[Any] = dataclasses.field(default_factory=list)

        def __post_init__(self) -> None:
            self.others.append(self)

    assert repr(Node()).endswith("Node(others=[...])")

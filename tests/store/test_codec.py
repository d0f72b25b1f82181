"""The codec of the state files: what differs from memory, and what is refused."""

import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from math import inf

import pytest

from ralphd.store.codec import Codec, Unfit


class Mood(StrEnum):
    CALM = "calm"


@dataclass(frozen=True, slots=True)
class Inner:
    count: int
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    mood: Mood = Mood.CALM
    inner: tuple[Inner, ...] = ()
    cost: float = 0.0
    is_on: bool = False


CODEC = Codec[Outer](
    Outer,
    moments=("at",),
    names={"name": "title"},
    last="cost inner",
    newer=("is_on",),
    most=100,
    most_chars=5,
)
VALUE = Outer("abc", inner=(Inner(1, 0.5), Inner(2)), cost=1.25, is_on=True)
STORED = {
    "title": "abc",
    "mood": "calm",
    "is_on": True,
    "cost": 1.25,
    "inner": [{"count": 1, "at": "1970-01-01T00:00:00.500000Z"}, {"count": 2, "at": None}],
}


def test_times_names_and_order_are_those_of_the_file() -> None:
    assert CODEC.dump(VALUE) == STORED
    assert list(CODEC.dump(VALUE)) == list(STORED)
    assert CODEC.load(STORED) == VALUE


def test_long_texts_are_cut_and_infinity_is_0() -> None:
    stored = CODEC.dump(Outer("abcdefg", cost=inf))

    assert (stored["title"], stored["cost"]) == ("abcde", 0.0)


def test_unknown_keys_are_passed_over_and_newer_ones_may_lack() -> None:
    older = {key: value for key, value in STORED.items() if key != "is_on"}
    inner = [{"count": 1, "later": -5, "at": None}]

    assert CODEC.load({**older, "inner": inner, "later": -1}) == Outer("abc", inner=(Inner(1),), cost=1.25)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"title": 5}, "title: Input should be a valid string"),
        ({"mood": "wild"}, "mood: Input should be 'calm'"),
        ({"is_on": 1}, "is_on: Input should be a valid boolean"),
        ({"cost": -1}, "cost: not a number from 0 on: -1.0"),
        ({"cost": inf}, "cost: not a number from 0 on: inf"),
        ({"cost": True}, "cost: Input should be a valid number"),
        ({"inner": [{"count": 101}]}, "inner: not a number from 0 on: 101"),
        ({"inner": [{"count": 1.0}]}, "inner: 0: count: Input should be a valid integer"),
        ({"inner": [{"at": None}]}, "inner: 0: count is missing"),
        ({"inner": [{"count": 1, "at": 5}]}, "inner: at: not a time: 5"),
        ({"inner": [{"count": 1, "at": "soon"}]}, "inner: at: not a time: 'soon'"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_its_key(change: dict[str, object], fault: str) -> None:
    with pytest.raises(Unfit) as caught:
        CODEC.load({**STORED, **change})

    assert caught.value.faults == [fault]


def test_all_faults_are_reported_and_missing_keys_are_faults() -> None:
    with pytest.raises(Unfit) as caught:
        CODEC.load({"title": "abc", "inner": 5})

    assert sorted(caught.value.faults) == [
        "cost is missing", "inner: Input should be a valid array", "mood is missing"
    ]  # fmt: skip


def test_what_is_nested_too_deeply_does_not_fit() -> None:
    nested: object = 1
    for _ in range(3000):
        nested = [nested]

    with pytest.raises(Unfit, match="too deeply"):
        CODEC.load({**STORED, "later": nested})


@pytest.mark.parametrize("module", ["checkpoint", "gate", "loop_files", "state", "webhooks"])
def test_each_stored_shape_is_complete_at_run_time(module: str) -> None:
    """A name imported for annotations only would fail at the first write, in a process of its own."""
    script = (
        "import sys, importlib; from pydantic import TypeAdapter; from ralphd.store.codec import Codec\n"
        "shapes = vars(importlib.import_module(f'ralphd.store.{sys.argv[1]}')).values()\n"
        "for shape in shapes:\n"
        "    adapter = shape._adapter if isinstance(shape, Codec) else shape\n"
        "    if isinstance(adapter, TypeAdapter):\n"
        "        adapter.rebuild(raise_errors=True)\n"
        "        print('complete')\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", script, module], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout

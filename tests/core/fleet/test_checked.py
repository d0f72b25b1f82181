"""What another machine wrote is taken whole and in bounds, or not at all."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.checked import LATEST, MOST_ENTRIES, Rejected, read_value, write_value
from ralphd.core.fleet.model import (
    AccountLimit,
    HostName,
    HostRecord,
    Item,
    ItemFlags,
    ItemId,
    ItemState,
    LastTry,
    Lease,
    Login,
    Need,
    Want,
)

H7 = HostName("h7")
ITEM = Item(
    ItemId("i-7f3k"),
    "git@host:team/app.git",
    "main",
    "ralph/i-7f3k",
    state=ItemState.WORKING,
    holder=H7,
    priority=-3,
    not_before=5.5,
    need=Need(("linux",), ("claude",), 2, 6 << 30),
    prefer=(H7,),
    flags=ItemFlags(2.5, agents=("claude",)),
    tried=(H7,),
    last=LastTry(H7, "host-gone", "a" * 40),
)
HOST = HostRecord(H7, "b1", "1.2", ("linux",), (Login("claude", "team-a", 9.0),), ("*",), 4, 1, clones=("x",))
VALUES = [
    ITEM,
    HOST,
    Lease(HostName(""), "b1", 3, 4, ItemId("i-7f3k"), "b" * 64),
    AccountLimit("claude", "team-a", "limited", 7.0, "five_hour", H7),
    Want("w1", "stop", "me"),
]
GOOD = write_value(ITEM)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_as_they_were(value: Any) -> None:
    assert read_value(type(value), json.loads(json.dumps(write_value(value)))) == value


def test_unknown_keys_are_ignored() -> None:
    assert read_value(Item, GOOD | {"later": {"x": [None]}}) == ITEM


@pytest.mark.parametrize("version", [2, 2**70])
def test_a_newer_version_is_not_for_us(version: int) -> None:
    read = read_value(Item, {"v": version, "id": 7})

    assert isinstance(read, Rejected)
    assert read.is_newer


@pytest.mark.parametrize(
    "change",
    [
        *({"v": 0}, {"v": True}, {"v": None}, {"v": "1"}, {"id": "7"}, {"id": "i-!"}, {"id": None}),
        *({"repo": "ext::sh"}, {"branch": "a..b"}, {"base": ""}, {"goal": "fly"}, {"state": "x"}),
        *({"state": ["open"]}, {"state": 1}, {"holder": "H 7"}, {"holder": ""}, {"tried": ["h7", 7]}),
        *({"tried": "h7"}, {"tried": ["h7"] * (MOST_ENTRIES + 1)}, {"token": -1}, {"token": 2**60}),
        *({"token": 1.0}, {"token": True}, {"priority": 1001}, {"max_tries": 0}, {"not_before": math.nan}),
        *({"not_before": math.inf}, {"at": LATEST * 2}, {"at": 10**400}, {"at": "now"}, {"need": []}),
        *({"need": {"labels": ["a\x1b[31m"]}}, {"need": {"cpus": "2"}}, {"flags": {"max_cost_usd": -1}}),
        *({"last": {"host": "h7"}}, {"last": {"host": "h7", "why": "", "commit": "--exec=x"}}),
        *({"repo": "-x"}, {"need": {"labels": ["x" * 1001]}}, {"prefer": None}, {"why": 5}),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_value_is_refused(change: dict[str, Any]) -> None:
    read = read_value(Item, GOOD | change)

    assert isinstance(read, Rejected)
    assert not read.is_newer
    assert len(read.why) < 150
    assert read.why.isprintable()


def test_a_path_of_one_machine_is_named() -> None:
    read = read_value(Item, GOOD | {"repo": "./app.git"})

    assert read == Rejected("not the URL of a git remote: './app.git'")


@pytest.mark.parametrize("name", ["id", "repo", "base", "branch"])
def test_a_missing_key_is_refused(name: str) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}

    assert read_value(Item, rest) == Rejected(f"Item.{name} is missing")


def test_words_for_people_are_cleaned() -> None:
    read = read_value(Item, GOOD | {"why": "a\x1b[31m\nb" + "c" * 9000, "at": 3})

    assert isinstance(read, Item)
    assert read.why.startswith("a b")
    assert len(read.why) == 1000
    assert read.at == 3.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(VALUES), st.data())
def test_no_json_raises(value: Any, data: st.DataObject) -> None:
    good = write_value(value)
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(good)), JSON, max_size=3))

    read = read_value(type(value), good | changes)

    if not isinstance(read, Rejected):
        again = read_value(type(value), json.loads(json.dumps(write_value(read), allow_nan=False)))
        assert again == read


@given(JSON)
def test_anything_at_all_is_answered(value: object) -> None:
    read_value(Lease, value)
    assert isinstance(read_value(HostRecord, value), Rejected)

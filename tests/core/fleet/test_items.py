"""An item is open, has one holder, has ended, or is held for a person."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.items import (
    KEPT_S,
    advanced,
    by_person,
    claimed,
    is_later,
    is_old,
    released,
    taken_over,
)
from ralphd.core.fleet.model import ENDED, HAS_HOLDER, HostName, Item, ItemId, ItemState, LastTry
from ralphd.errors import WrongState

H1, H2 = HostName("h1"), HostName("h2")
ITEM = Item(ItemId("i-aaaa"), "git@host:team/app.git", "main", "b")
HAD = replace(ITEM, state=ItemState.WORKING, holder=H1, token=4, tried=(H1,))
HELD = replace(ITEM, state=ItemState.HELD, why="tried", tries=3, goal="stopped", tried=(H1,))
FAILED = replace(ITEM, state=ItemState.FAILED, ended_at=1.0, tries=2, tried=(H1,))
DONE = replace(ITEM, state=ItemState.DONE, ended_at=1.0)


@pytest.mark.parametrize(
    ("item", "other", "is_later_state"),
    [
        (DONE, DONE, False),
        (HAD, ITEM, True),
        (ITEM, HAD, False),
        (replace(ITEM, token=4), HAD, True),
        (replace(HAD, token=5), replace(ITEM, token=4), True),
        (replace(HAD, state=ItemState.CLAIMED), HAD, False),
        (replace(FAILED, token=4), replace(ITEM, token=4), False),
    ],
)
def test_a_later_state_is_known(item: Item, other: Item, is_later_state: bool) -> None:
    assert is_later(item, other) is is_later_state


def test_an_open_item_is_claimed() -> None:
    new = claimed(replace(ITEM, tried=(H1, H2)), H1, 5)

    assert new == replace(ITEM, state=ItemState.CLAIMED, holder=H1, token=5, tried=(H2, H1))


@pytest.mark.parametrize(
    "item", [HAD, HELD, DONE, replace(ITEM, goal="paused"), replace(ITEM, token=5), replace(ITEM, token=6)]
)
def test_what_is_not_free_is_not_claimed(item: Item) -> None:
    assert claimed(item, H2, 5) is None


@pytest.mark.parametrize(
    "state", [state for state in ItemState if state not in (ItemState.OPEN, ItemState.CLAIMED)]
)
def test_a_holder_moves_its_item(state: ItemState) -> None:
    new = advanced(HAD, H1, 4, state, 9.0, why="because", commit="c")

    assert new is not None
    assert new.state is state
    assert new.holder == (H1 if state in HAS_HOLDER else None)
    assert new.ended_at == (9.0 if state in ENDED else None)
    assert new.last == (None if state in HAS_HOLDER else LastTry(H1, "because", "c"))


def test_a_finished_item_stays_finished_until_it_works_again() -> None:
    landing = advanced(HAD, H1, 4, ItemState.LANDING, 9.0, why="red", commit="c")
    assert landing is not None
    assert (landing.finished, landing.why) == ("c", "red")
    given_back = released(landing, H1, 4, why="drain", commit="c", is_try=False)
    assert given_back is not None
    assert given_back.finished == "c"

    working = advanced(landing, H1, 4, ItemState.WORKING, 9.0)
    assert working is not None
    assert (working.finished, working.why) == ("", "")


@pytest.mark.parametrize(("host", "token"), [(H2, 4), (H1, 3), (H1, 5)])
def test_only_the_holder_moves_an_item(host: HostName, token: int) -> None:
    assert advanced(replace(HAD, state=ItemState.DONE), H1, 4, ItemState.HELD, 9.0) is None
    assert advanced(HAD, host, token, ItemState.DONE, 9.0) is None
    assert released(HAD, host, token, why="drain") is None


@pytest.mark.parametrize(
    ("change", "is_try", "state", "tries", "why"),
    [
        ({}, True, ItemState.OPEN, 1, ""),
        ({"tries": 1}, True, ItemState.OPEN, 2, ""),
        ({"tries": 2}, True, ItemState.HELD, 3, "tried 3 times, the last on h1: it broke"),
        ({"tries": 2}, False, ItemState.OPEN, 2, ""),
        ({"goal": "stopped", "why": "stop by me"}, False, ItemState.HELD, 0, "stop by me"),
        ({"goal": "paused"}, True, ItemState.OPEN, 1, ""),
    ],
)  # fmt: skip
def test_a_release_counts_and_ends(
    change: dict[str, Any], is_try: bool, state: ItemState, tries: int, why: str
) -> None:
    new = released(replace(HAD, **change), H1, 4, why="it broke", commit="c", is_try=is_try)

    assert new is not None
    assert (new.state, new.tries, new.why, new.holder) == (state, tries, why, None)
    assert new.last == LastTry(H1, "it broke", "c")


def test_the_last_commit_is_not_forgotten() -> None:
    new = released(replace(HAD, last=LastTry(H2, "x", "c")), H1, 4, why="y")

    assert new is not None
    assert new.last == LastTry(H1, "y", "c")


def test_a_takeover_is_a_try() -> None:
    new = taken_over(HAD, H2, 5)

    assert new == replace(
        HAD,
        state=ItemState.CLAIMED,
        holder=H2,
        token=5,
        tries=1,
        tried=(H1, H2),
        last=LastTry(H1, "host-gone"),
    )
    assert taken_over(replace(HAD, goal="paused"), H2, 5) == replace(new, goal="paused")
    assert taken_over(HAD, H2, 4) is None
    assert taken_over(DONE, H2, 5) is None
    assert taken_over(ITEM, H2, 5) == claimed(ITEM, H2, 5)


def test_an_item_is_no_tour_of_the_fleet() -> None:
    """Row 22: it kills each machine that begins it."""
    item, hosts = claimed(ITEM, H1, 1), [H1]
    while item is not None and item.state is ItemState.CLAIMED:
        hosts.append(HostName(f"h{len(hosts) + 1}"))
        item = taken_over(item, hosts[-1], len(hosts))

    assert item is not None
    assert (item.state, item.tries, item.tried) == (ItemState.HELD, 3, ("h1", "h2", "h3"))


@pytest.mark.parametrize("change", [{"tries": 2}, {"goal": "stopped"}])
def test_a_takeover_may_only_hold(change: dict[str, Any]) -> None:
    new = taken_over(replace(HAD, **change), H2, 5)

    assert new is not None
    assert (new.state, new.holder) == (ItemState.HELD, None)


@pytest.mark.parametrize(
    ("verb", "item", "expected"),
    [
        ("hold", ITEM, {"state": ItemState.HELD, "goal": "stopped", "why": "hold by me"}),
        ("stop", HAD, {"goal": "stopped", "why": "stop by me"}),
        ("release", replace(HAD, goal="stopped"), {"goal": "running"}),
        ("release", HELD, {"state": ItemState.OPEN, "goal": "running", "tries": 0, "why": ""}),
        ("retry", HELD, {"state": ItemState.OPEN, "goal": "running", "tries": 0, "why": "", "tried": ()}),
        ("retry", FAILED, {"state": ItemState.OPEN, "tries": 0, "tried": (), "ended_at": None}),
        # At a limit, for example; what has landed is not finished any more, or no ralph would run.
        (
            "retry",
            replace(DONE, finished="c"),
            {"state": ItemState.OPEN, "tried": (), "finished": "", "ended_at": None},
        ),
        (
            "retry",
            replace(HELD, finished="c"),
            {"state": ItemState.OPEN, "goal": "running", "tries": 0, "why": "", "tried": ()},
        ),
        ("pause", ITEM, {"goal": "paused", "why": "pause by me"}),
        ("pause", HAD, {"goal": "paused", "why": "pause by me"}),
        ("resume", replace(HAD, goal="paused"), {"goal": "running"}),
        (
            "cancel",
            HAD,
            {
                "state": ItemState.FAILED,
                "holder": None,
                "goal": "stopped",
                "why": "cancel by me",
                "ended_at": 9.0,
            },
        ),
    ],
)
def test_a_person_decides(verb: str, item: Item, expected: dict[str, Any]) -> None:
    after = by_person(item, verb, "me", 9.0)
    assert replace(after, token=item.token) == replace(item, **expected)
    # What an older store shows must be known as older, though nobody has the item.
    is_moved = item.state not in HAS_HOLDER and verb in ("hold", "stop", "release", "retry", "cancel")
    assert after.token == item.token + is_moved


@pytest.mark.parametrize(
    ("verb", "item"),
    [
        *(
            ("hold", HELD),
            ("stop", DONE),
            ("release", ITEM),
            ("release", DONE),
            ("retry", HAD),
        ),
        *(
            ("cancel", DONE),
            ("cancel", FAILED),
            ("pause", HELD),
            ("resume", HELD),
            ("resume", ITEM),
            ("fly", ITEM),
        ),
    ],
)
def test_a_verb_that_does_not_apply_is_refused(verb: str, item: Item) -> None:
    with pytest.raises(WrongState, match=item.id):
        by_person(item, verb, "me", 9.0)


@pytest.mark.parametrize(
    ("item", "now", "is_it"),
    [(DONE, KEPT_S + 1, False), (DONE, KEPT_S + 2, True), (HAD, 9e9, False), (HELD, 9e9, False)],
)
def test_only_what_ended_grows_old(item: Item, now: float, is_it: bool) -> None:
    assert is_old(item, now) == is_it


VERBS = ("hold", "release", "cancel", "retry", "stop", "pause", "resume")
WORDS = st.sampled_from(["claim", "take", "release", "move", *VERBS])
CHANGES = st.lists(st.tuples(WORDS, st.integers(0, 1), st.integers(0, 6)), max_size=25)


@given(CHANGES)
def test_no_order_of_changes_loses_an_item(changes: list[tuple[str, int, int]]) -> None:
    item, token = ITEM, 0
    for verb, n, which in changes:
        host, before = (H1, H2)[n], item
        token += verb in ("claim", "take")
        new: Item | None
        match verb:
            case "claim":
                new = claimed(item, host, token)
            case "take":
                new = taken_over(item, host, token)
            case "release":
                new = released(item, host, item.token, why="x")
            case "move":
                new = advanced(item, host, item.token, list(ItemState)[which], 1.0)
            case _:
                try:
                    new = by_person(item, verb, "me", 1.0)
                except WrongState:
                    new = None
        item = item if new is None else new
        assert (item.holder is not None) == (item.state in HAS_HOLDER)
        assert (item.ended_at is not None) == (item.state in ENDED)
        assert item.token >= before.token
        assert (item.id, item.repo, item.branch, item.base) == (ITEM.id, ITEM.repo, ITEM.branch, ITEM.base)
        assert item.tries <= item.max_tries
        assert item.state is not ItemState.OPEN or item.goal != "stopped"

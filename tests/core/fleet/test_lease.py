"""What a holder does with each answer, and with none."""

from dataclasses import replace
from typing import Any

import pytest

from ralphd.core.fleet.lease import begin_claim, is_claimable, next_token, resume_hold, step
from ralphd.core.fleet.lease_model import (
    KeySeen,
    KeyWritten,
    LeaseFact,
    LeaseHold,
    LeaseNews,
    LeaseOrder,
    LeaseRules,
    Link,
    MoveRef,
    Orders,
    PushWanted,
    RefMoved,
    RefSeen,
    Stage,
    Tick,
    WriteKey,
)
from ralphd.core.fleet.model import HostName, Lease
from tests.core.fleet.world import ITEM

A, B = HostName("a"), HostName("b")
RULES = LeaseRules()
MINE = Lease(A, "a-1", 4, 1, ITEM.id, "c1")
OTHERS = Lease(B, "b-1", 5, 1, ITEM.id, "c1")
OLD = replace(OTHERS, token=3)
HELD = LeaseHold(MINE, "b1", 7, 0.0, 0.0, 0.0, 0.0, 0.0, Stage.HOLDING, n=1)
CLAIM = replace(HELD, stage=Stage.CLAIMING, sha="b0", lease=replace(MINE, n=0), n=0, key=Link.BUSY)
CLAIM_MOVES = replace(CLAIM, key=Link.IDLE, ref=Link.BUSY, moving=MINE, n=1)
MOVES = replace(HELD, ref=Link.BUSY, moving=replace(MINE, n=2, pushed="c2"), n=2, commit="c2")
BUMP = MoveRef(replace(MINE, n=2), "b1")
READS_KEY = replace(HELD, key=Link.BUSY)
READS_REF = replace(HELD, ref=Link.BUSY)
REFUSED = replace(MOVES, is_refused=True)
GONE = replace(HELD, sha="", is_gone=True, key=Link.BUSY)
FREED = replace(MINE, host=HostName(""))

TWIN = replace(MINE, boot="a-2")
RIVAL = replace(OTHERS, token=4)
CONTESTED = replace(READS_KEY, is_contested=True)
FENCE, HOLD_ITEM = (LeaseOrder.FENCE,), (LeaseOrder.HOLD_ITEM,)
READ_REF, READ_KEY = (LeaseOrder.READ_REF,), (LeaseOrder.READ_KEY,)
NEXT = replace(MINE, n=2, pushed="c2")
FREED_NEXT = replace(FREED, n=2)
CASES: list[tuple[str, LeaseHold, LeaseFact, dict[str, Any], Orders]] = [
    ("a won key leads to git", CLAIM, KeyWritten(9), {"moving": MINE}, (MoveRef(MINE, "b0"),)),
    ("a lost key ends it", CLAIM, LeaseNews.KEY_REFUSED, {"stage": Stage.LOST}, ()),
    ("no answer is read", CLAIM, LeaseNews.HUB_SILENT, {"key": Link.UNSURE, "stage": Stage.CLAIMING}, ()),
    ("an own key is read", CLAIM, KeySeen(MINE, 9), {"revision": 9}, (MoveRef(MINE, "b0"),)),
    ("another's is read", CLAIM, KeySeen(OTHERS, 9), {"stage": Stage.LOST}, ()),
    ("a won ref", CLAIM_MOVES, RefMoved("b1"), {"stage": Stage.HOLDING, "lease": MINE, "sha": "b1"}, ()),
    ("a refused ref is read", CLAIM_MOVES, LeaseNews.REF_REFUSED, {"is_refused": True}, READ_REF),
    ("it was ours", CLAIM_MOVES, RefSeen("b1", MINE), {"stage": Stage.HOLDING, "sha": "b1"}, ()),
    (
        "it is another's",
        CLAIM_MOVES,
        RefSeen("b2", OTHERS),
        {"stage": Stage.LOST},
        (WriteKey(replace(FREED, n=0), 7),),
    ),
    ("it was not applied", CLAIM_MOVES, RefSeen("b0", OLD), {"n": 2}, (MoveRef(replace(MINE, n=2), "b0"),)),
    (
        "the remote refuses",
        replace(CLAIM_MOVES, is_refused=True),
        RefSeen("b0", OLD),
        {"stage": Stage.LOST},
        (WriteKey(replace(FREED, n=0), 7),),
    ),
    ("a renewal of a claim is read", CLAIM_MOVES, LeaseNews.KEY_REFUSED, {"stage": Stage.CLAIMING}, READ_KEY),
    ("a contested claim is git's", CLAIM_MOVES, KeySeen(OTHERS, 9), {"is_contested": True}, ()),
    (
        "and leaves the key alone",
        replace(CLAIM_MOVES, is_contested=True),
        RefSeen("b2", OTHERS),
        {"stage": Stage.LOST},
        (),
    ),
    ("a renewal", READS_KEY, KeyWritten(8), {"key": Link.IDLE, "revision": 8, "renewed_at": 10.0}, ()),
    ("a refused one is read", READS_KEY, LeaseNews.KEY_REFUSED, {"key": Link.BUSY}, READ_KEY),
    ("the hub forgot all", READS_KEY, KeySeen(None, 0), {"key": Link.BUSY}, (WriteKey(MINE, 0),)),
    ("the hub forgot us", READS_KEY, KeySeen(OLD, 3), {"revision": 3}, (WriteKey(MINE, 3),)),
    ("the key is ours again", CONTESTED, KeyWritten(8), {"is_contested": False}, ()),
    ("another has our token", READS_KEY, KeySeen(RIVAL, 9), {"is_contested": True}, (BUMP,)),
    ("another has the key", READS_KEY, KeySeen(OTHERS, 9), {"is_contested": True, "revision": 9}, (BUMP,)),
    (
        "and git is ours",
        replace(HELD, is_contested=True, ref=Link.BUSY, moving=replace(MINE, n=2)),
        RefMoved("b2"),
        {"is_contested": False, "key": Link.BUSY},
        (WriteKey(replace(MINE, n=2), 7),),
    ),
    ("a push", HELD, PushWanted("c2"), {"commit": "c2"}, (MoveRef(NEXT, "b1", "c2", "c1"),)),
    (
        "a push to what others move",
        HELD,
        PushWanted("c2", "c9"),
        {"commit": "c2", "last": "c9"},
        (MoveRef(NEXT, "b1", "c2", "c9"),),
    ),
    (
        "it waits for a move of the lease",
        replace(HELD, ref=Link.BUSY, moving=replace(MINE, n=2), n=2, commit="c2", last="c9"),
        RefMoved("b2"),
        {"n": 3},
        (MoveRef(replace(MINE, n=3, pushed="c2"), "b2", "c2", "c9"),),
    ),
    ("one at a time", READS_REF, PushWanted("c2"), {"commit": "c2"}, ()),
    ("a push that landed", MOVES, RefMoved("b2"), {"lease": NEXT, "moved_at": 10.0}, ()),
    (
        "a newer commit follows",
        replace(MOVES, commit="c3"),
        RefMoved("b2"),
        {"n": 3},
        (MoveRef(replace(MINE, n=3, pushed="c3"), "b2", "c3", "c2"),),
    ),
    ("a push without answer", MOVES, LeaseNews.GIT_SILENT, {"ref": Link.UNSURE, "moving": NEXT}, ()),
    ("it had landed", MOVES, RefSeen("b2", NEXT), {"commit": "", "sha": "b2"}, ()),
    ("it had not", MOVES, RefSeen("b1", MINE), {"commit": "c2", "ref": Link.IDLE, "n": 2}, ()),
    ("a late one was in the way", REFUSED, RefSeen("b9", replace(MINE, n=9)), {"commit": "c2"}, ()),
    ("a late one had", MOVES, RefSeen("b9", replace(MINE, n=9)), {"commit": "c2", "n": 9, "sha": "b9"}, ()),
    ("a person moved the branch", REFUSED, RefSeen("b1", MINE), {"commit": ""}, HOLD_ITEM),
    ("another has the ref", MOVES, RefSeen("b2", OTHERS), {"stage": Stage.FENCED}, FENCE),
    ("our own other boot has", MOVES, RefSeen("b2", TWIN), {"stage": Stage.FENCED}, FENCE),
    ("an older lease of ours", MOVES, RefSeen("b2", replace(MINE, token=3)), {"stage": Stage.FENCED}, FENCE),
    ("an unreadable ref", MOVES, RefSeen("b2", None), {"stage": Stage.FENCED}, FENCE),
    ("a deleted ref", READS_REF, RefSeen("", None), {"is_gone": True, "sha": ""}, READ_KEY),
    ("the key is still ours", GONE, KeySeen(MINE, 9), {"ref": Link.BUSY}, (MoveRef(replace(MINE, n=2), ""),)),
    (
        "a ref is set without a commit",
        replace(GONE, commit="c2"),
        KeySeen(MINE, 9),
        {"commit": "c2"},
        (MoveRef(replace(MINE, n=2), ""),),
    ),
    ("the key is another's", GONE, KeySeen(OTHERS, 9), {"stage": Stage.FENCED}, FENCE),
    (
        "set again",
        replace(GONE, ref=Link.BUSY, moving=replace(MINE, n=2)),
        RefMoved("b3"),
        {"is_gone": False, "sha": "b3"},
        (),
    ),
    (
        "a release moves the ref first",
        HELD,
        LeaseNews.RELEASE_WANTED,
        {"stage": Stage.RELEASING},
        (MoveRef(FREED_NEXT, "b1"),),
    ),
    (
        "then the key",
        replace(HELD, stage=Stage.RELEASING, ref=Link.BUSY, moving=FREED_NEXT),
        RefMoved("b2"),
        {"stage": Stage.RELEASED},
        (WriteKey(FREED_NEXT, 7),),
    ),
    (
        "a key under way is awaited",
        replace(HELD, stage=Stage.RELEASING, key=Link.BUSY, ref=Link.BUSY, moving=FREED_NEXT),
        RefMoved("b2"),
        {"stage": Stage.RELEASED, "owes_key": True},
        (),
    ),
    (
        "and given back",
        replace(HELD, stage=Stage.RELEASED, owes_key=True, lease=FREED),
        KeyWritten(8),
        {"owes_key": False},
        (WriteKey(FREED, 8),),
    ),
    (
        "released before a crash",
        READS_REF,
        RefSeen("b5", replace(FREED, n=5)),
        {"stage": Stage.RELEASED},
        (WriteKey(FREED, 7),),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("hold", "fact", "changes", "orders"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_a_fact_has_its_orders(
    hold: LeaseHold, fact: LeaseFact, changes: dict[str, Any], orders: Orders
) -> None:
    new, given = step(hold, fact, RULES, 10.0)

    assert {name: getattr(new, name) for name in changes} == changes
    assert given == orders


TICKS: list[tuple[str, dict[str, Any], float, Tick, Orders]] = [
    ("nothing is due", {}, 19.0, Tick(0.0), ()),
    ("a renewal", {}, 20.0, Tick(0.0), (WriteKey(MINE, 7),)),
    ("not without a connection", {}, 29.0, Tick(None), ()),
    ("unsure reads first", {"key": Link.UNSURE}, 10.0, Tick(0.0), READ_KEY),
    ("busy waits", {"key": Link.BUSY}, 29.0, Tick(0.0), ()),
    ("offline moves the ref", {"moved_at": -30.0}, 31.0, Tick(None), (BUMP,)),
    ("once in a while", {"moved_at": -20.0}, 31.0, Tick(None), ()),
    ("connected moves nothing", {"moved_at": -90.0, "key": Link.BUSY}, 29.0, Tick(0.0), ()),
    ("an unsure ref is read", {"ref": Link.UNSURE}, 10.0, Tick(None), READ_REF),
    ("not at once", {"ref": Link.UNSURE}, 9.0, Tick(None), ()),
    ("a commit that waits", {"commit": "c2"}, 10.0, Tick(None), (MoveRef(NEXT, "b1", "c2", "c1"),)),
    ("a sleep is checked", {}, 10.0, Tick(None, 61.0), READ_REF),
    ("a sleep is checked at once", {"ref_at": 9.0}, 10.0, Tick(None, 61.0), READ_REF),
    ("a nap is not", {}, 10.0, Tick(None, 60.0), ()),
    ("a release is retried", {"stage": Stage.RELEASING}, 10.0, Tick(None), (MoveRef(FREED_NEXT, "b1"),)),
    ("a deleted ref asks NATS", {"is_gone": True, "sha": ""}, 10.0, Tick(0.0), READ_KEY),
    ("a contested key waits", {"is_contested": True, "ref": Link.BUSY}, 29.0, Tick(0.0), ()),
    ("a deleted ref is not bumped", {"is_gone": True, "moved_at": -90.0}, 31.0, Tick(None), ()),
    ("a final state rests", {"stage": Stage.FENCED}, 99.0, Tick(0.0, 99.0), ()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "at", "tick", "orders"), [case[1:] for case in TICKS], ids=[c[0] for c in TICKS]
)
def test_time_has_its_orders(change: dict[str, Any], at: float, tick: Tick, orders: Orders) -> None:
    assert step(replace(HELD, **change), tick, RULES, at)[1] == orders


def test_after_a_sleep_no_agent_starts_unchecked() -> None:
    asleep, _ = step(HELD, Tick(0.0, 7200.0), RULES, 10.0)
    assert not asleep.may_attempt
    unsure, _ = step(asleep, LeaseNews.GIT_SILENT, RULES, 11.0)
    assert not unsure.may_attempt

    checked, orders = step(unsure, RefSeen("b1", MINE), RULES, 12.0)

    assert checked.may_attempt
    assert orders == ()


def test_a_check_without_answer_pauses_at_the_next_tick() -> None:
    asleep, orders = step(HELD, Tick(0.0, 7200.0), RULES, 10.0)
    assert orders == READ_REF
    paused, orders = step(asleep, Tick(0.0, 7205.0), RULES, 15.0)
    assert orders == (LeaseOrder.PAUSE,)
    assert step(paused, Tick(0.0, 7210.0), RULES, 18.0)[1] == ()

    checked, orders = step(paused, RefSeen("b1", MINE), RULES, 19.0)

    assert orders == (LeaseOrder.RESUME,)
    assert checked.may_attempt
    assert step(checked, Tick(0.0, 7214.0), RULES, 19.5)[1] == ()


def test_a_sleep_within_an_outage_resumes_once() -> None:
    rules = replace(RULES, max_offline_s=100.0)
    asleep, _ = step(replace(HELD, moved_at=90.0), Tick(None, 7200.0), rules, 101.0)
    checked, orders = step(asleep, RefSeen("b1", MINE), rules, 102.0)
    assert orders == ()
    assert not checked.may_attempt

    back, orders = step(checked, KeyWritten(8), rules, 103.0)

    assert orders == (LeaseOrder.RESUME,)
    assert back.may_attempt


def test_a_long_outage_pauses_where_wished() -> None:
    rules = replace(RULES, max_offline_s=100.0)
    paused, orders = step(replace(HELD, moved_at=90.0), Tick(None), rules, 101.0)
    assert orders == (LeaseOrder.PAUSE,)
    assert not paused.may_attempt
    assert step(paused, Tick(None), rules, 102.0)[1] == ()

    back, orders = step(paused, KeyWritten(8), rules, 103.0)

    assert orders == (LeaseOrder.RESUME,)
    assert back.may_attempt


def test_a_restarted_daemon_looks_before_it_works() -> None:
    hold, orders = resume_hold(MINE, at=0.0)
    assert orders == READ_REF
    assert not hold.may_attempt

    hold, orders = step(hold, RefSeen("b7", replace(MINE, n=7)), RULES, 1.0)

    assert hold.may_attempt
    assert (hold.sha, hold.n, orders) == ("b7", 7, ())


def test_tokens_only_grow() -> None:
    assert next_token() == 1
    assert next_token(3, 9, 4) == 10
    assert next_token(3, 2**53, 4) == 5, "git could not read the next one"
    hold, orders = begin_claim(
        replace(ITEM, token=8),
        A,
        "a-1",
        KeySeen(OLD, 5),
        RefSeen("b2", replace(OTHERS, host=HostName("")), "c9"),
        at=0.0,
    )

    assert hold.lease == Lease(A, "a-1", 9, 0, ITEM.id, "c9")
    assert orders == (WriteKey(hold.lease, 5),)


@pytest.mark.parametrize(
    ("key", "ref", "is_free"),
    [
        (None, RefSeen("", None), True),
        (FREED, RefSeen("b1", FREED), True),
        (MINE, RefSeen("b1", MINE), True),
        (OTHERS, RefSeen("b1", FREED), False),
        (None, RefSeen("b1", OTHERS), False),
        (None, RefSeen("b1", None), False),
    ],
)
def test_only_what_nobody_has_is_claimed(key: Lease | None, ref: RefSeen, is_free: bool) -> None:
    assert is_claimable(key, ref, A) == is_free


def test_a_ref_that_is_refused_again_waits() -> None:
    """A remote that takes no refs of ours is not asked in a loop."""
    hold, orders = step(
        replace(GONE, key=Link.IDLE, is_refused=True, moving=MINE), RefSeen("", None), RULES, 1.0
    )

    assert orders == ()
    assert hold.is_gone

"""The pool, entry by entry: what is remembered of an agent that is out, and what changes nothing (L2, L3)."""

from math import inf

from ralphd.core.loop.pool import Pool, changes_at
from ralphd.core.loop.state import Cooldown, LoopState

POOL = Pool(("claude", "codex"))


def test_an_agent_that_is_out_is_remembered_with_its_reason_and_how_often_it_was_tried() -> None:
    once = POOL.put_out("claude", "weekly limit", 100.0)
    again = once.let_in("claude").put_out("claude", "5-hour limit", None)

    assert once.out == (Cooldown("claude", "weekly limit", 100.0, probes=0),)
    assert again.out == (Cooldown("claude", "5-hour limit", None, probes=1),)


def test_to_let_in_one_that_is_not_out_is_nothing() -> None:
    assert POOL.let_in("claude") == POOL
    assert POOL.due("claude", 100.0) == POOL
    assert POOL.worked("claude") == POOL


def test_one_whose_time_out_a_person_ends_comes_back_at_once_and_the_others_do_not() -> None:
    pool = POOL.put_out("claude", "limit", 500.0).put_out("codex", "limit", 500.0).due("claude", 100.0)

    assert pool.returned(100.0) == ("claude",)
    assert pool.out == (Cooldown("codex", "limit", 500.0), Cooldown("claude", "limit", 100.0))


def test_one_that_was_let_in_is_waited_for_no_more() -> None:
    pool = POOL.put_out("claude", "limit", 100.0).let_in("claude")

    assert pool.next_return() is None
    assert pool.is_in("claude", 0.0)


def test_a_pool_changes_by_itself_when_the_next_time_out_is_over() -> None:
    out = (
        Cooldown("claude", "limit", 300.0),
        Cooldown("codex", "limit", 200.0),
        Cooldown("gemini", "no login"),
    )

    assert changes_at(LoopState(out=out), 100.0) == 200.0
    assert changes_at(LoopState(out=out), 200.0) == 300.0
    assert changes_at(LoopState(out=out), 300.0) == inf

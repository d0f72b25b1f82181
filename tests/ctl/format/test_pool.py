"""The pool as a person reads it: who is in, who is out until when and why, who was asked last."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ralphctl.format import status_text
from ralphctl.format.incident_text import pool_rows
from tests.ctl.fake import view

NOW = 1795244400.0  # 2026-11-21T07:00:00Z
TILL_NINE = "2026-11-21T09:10:00.000000Z"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def agent(name: str, **changes: Any) -> dict[str, Any]:
    """One that is in, but for the changes; ``out`` is why it is not."""
    if (reason := changes.pop("out", None)) is not None:
        changes |= {"in": False, "reason": reason}
    return {"name": name, "in": True, "until": None, "reason": None, "last": False} | changes


def pool(*agents: dict[str, Any], strategy: str = "rotate") -> dict[str, Any]:
    """A pool of these."""
    return {"strategy": strategy, "agents": list(agents)}


def told(*agents: dict[str, Any], strategy: str = "rotate") -> str:
    """The rows of a pool, as one."""
    return " ".join(pool_rows(pool(*agents, strategy=strategy), NOW))


def test_who_is_out_is_told_with_the_local_time_and_the_reason() -> None:
    away = agent("claude", out="5-hour limit", until=TILL_NINE)

    assert told(away, agent("codex", last=True), agent("gemini")) == (
        "rotation: claude out until 09:10:00 (5-hour limit) · codex in, asked last · gemini in"
    )
    assert told(agent("a", last=True), agent("b"), strategy="fallback") == (
        "in this order: a in, asked last · b in"
    )


def test_one_that_only_a_person_can_bring_back_is_told_as_such() -> None:
    assert told(agent("a", out="not logged in")) == "a out until you act (not logged in)"


def test_one_whose_time_out_is_over_by_now_is_in() -> None:
    assert told(agent("a", out="limit", until="2026-11-21T06:59:59Z")) == "a in"


def test_lines_fit_80_columns_and_no_text_moves_the_terminal() -> None:
    away = agent("cl\x1b[2Jaude", out="your limit\r\nresets " + "at last " * 40, until=TILL_NINE)

    shown = status_text.ralph(view(pool=pool(away, *(agent(f"agent-{n}") for n in range(8)))), NOW)

    lines = shown.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  agents"))
    assert max(map(len, lines[first : first + 6])) <= 80
    assert "cl^[[2Jaude out until" in shown
    assert "agent-7 in" in shown
    assert "\x1b" not in shown and "\r" not in shown


@pytest.mark.parametrize(
    ("given", "is_shown"),
    [
        (None, False),
        (pool(agent("a")), False),
        (pool(agent("a", out="limit", until=TILL_NINE)), True),
        (pool(agent("a"), agent("b")), True),
    ],
)
def test_the_pool_is_shown_where_there_is_a_choice_or_nobody(
    given: dict[str, Any] | None, is_shown: bool
) -> None:
    assert ("  agents " in status_text.ralph(view(pool=given), NOW)) is is_shown

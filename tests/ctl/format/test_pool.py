"""The pool as a person reads it: who is in, who is out until when and why, who was used last."""

from typing import Any

from ralphctl.format import status_text
from ralphctl.format.incident_text import pool_rows
from tests.ctl.fake import view
from tests.ctl.golden_files import Golden

NOW = 1795244400.0  # 2026-11-21T07:00:00Z
TILL_NINE = "2026-11-21T09:10:00.000000Z"


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


def test_who_is_out_is_told_with_the_local_time_and_the_reason(golden: Golden) -> None:
    away = agent("claude", out="5-hour limit", until=TILL_NINE)

    golden(
        {
            "one is out": told(away, agent("codex", last=True), agent("gemini")),
            "all are in, and have an order": told(agent("a", last=True), agent("b"), strategy="fallback"),
            "one that only a person can bring back": told(agent("a", out="not logged in")),
            "one whose time out is over by now": told(agent("a", out="limit", until="2026-11-21T06:59:59Z")),
        }
    )


def test_lines_fit_80_columns_and_no_text_moves_the_terminal(golden: Golden) -> None:
    away = agent("cl\x1b[2Jaude", out="your limit\r\nresets " + "at last " * 40, until=TILL_NINE)

    shown = status_text.ralph(view(pool=pool(away, *(agent(f"agent-{n}") for n in range(8)))), NOW)

    golden(shown)
    lines = shown.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  agents"))
    assert max(map(len, lines[first : first + 6])) <= 80
    assert "\x1b" not in shown and "\r" not in shown


def test_the_pool_is_shown_where_there_is_a_choice_or_nobody(golden: Golden) -> None:
    cases = {
        "no pool": None,
        "one agent, in": pool(agent("a")),
        "one agent, out": pool(agent("a", out="limit", until=TILL_NINE)),
        "two agents": pool(agent("a"), agent("b")),
    }
    golden({case: status_text.ralph(view(pool=given), NOW) for case, given in cases.items()})

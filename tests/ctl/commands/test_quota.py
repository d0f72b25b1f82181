"""``ralphctl quota``: one line for each account, on a terminal and in a pipe."""

import re
from typing import Any

import pytest

from ralphctl.format import incident_text
from ralphd.core.time import rfc3339
from tests.ctl.conftest import SEVEN, Ctl
from tests.ctl.fake import Answer, FakeDaemon
from tests.ctl.golden_files import Golden

WINDOW = {"name": "five_hour", "limit": "5-hour limit", "used": 0.72, "resets_at": rfc3339(SEVEN + 7200)}


def account(name: str, state: str = "open", **more: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "account": name, "agent": "claude", "state": state, "until": None, "limit": None, "source": None,
        "guessed": False, "probing": None, "reserved": None, "windows": [], "working": [], "waiting": [],
        "slots": 0, "keep_free": 0.0,
    }  # fmt: skip
    return known | more


FOUR = [
    account("claude@work", windows=[WINDOW | {"ends_at": rfc3339(SEVEN + 3600)}], working=["api"], slots=3),
    account("claude@home", windows=[WINDOW | {"ends_at": None}], reserved="five_hour", keep_free=0.3),
    account(
        "codex-5f0c", "limited", until=rfc3339(SEVEN + 7380), limit="usage limit", source="web",
        waiting=[f"r{number}" for number in range(1, 9)],
    ),
    account("gemini-77aa", "probing", until=rfc3339(SEVEN), limit="rate limit", source="x", probing="docs"),
]  # fmt: skip


@pytest.mark.parametrize("columns", ["60", "110"])
def test_each_account_has_a_line(columns: str, daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.on("GET /v1/quota", lambda _: Answer({"accounts": FOUR}))
    reply = ctl("quota", more={"COLUMNS": columns})
    golden(reply)
    assert max(map(len, reply.stdout.splitlines())) <= int(columns)


def test_a_bar_is_coloured_by_numbers_only() -> None:
    line = incident_text.account_line(FOUR[2], 11, SEVEN, None, colour=True)
    assert re.findall(r"\x1b\[([^m]*)m", line) == ["31", "0"]
    assert line.startswith("codex-5f0c   \x1b[31m██████████\x1b[0m 100 %  ")

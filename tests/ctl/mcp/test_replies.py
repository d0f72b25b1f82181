"""What an agent reads about ralphs: short, bounded, the same for the same state, and free of escape codes."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as some

from ralphctl.commands import mcp
from ralphctl.mcp import replies
from ralphd import wire
from tests.ctl.fake import view

BOTH = ("act", "start")
LIMIT = {"reason": "usage_limit", "until": "2026-11-21T09:13:00Z"}


def test_states_are_named_as_the_tool_offers() -> None:
    names = ["", *(replies.state_of({"state": state}) for state in wire.STATES)]
    assert sorted(names) == sorted(get_args(mcp.State))
    assert {"Paused", "WaitingForRetry"} <= set(names)


def test_a_wait_is_shown_with_reason_and_time() -> None:
    for state, pid in (("waiting_for_retry", None), ("running", 4711)):
        row = replies.row(view(state=state, wait=LIMIT, ralph_pid=pid), ())
        assert (row["state"], row["until"]) == ("WaitingForRetry", LIMIT["until"])
        assert row["reason"] == "the agent's usage limit is reached"
    paused = replies.row(view(state="paused", pause_reason="user_requested"), ())
    assert (paused["state"], paused["reason"], paused["needs_you"]) == ("Paused", "as requested", True)


@pytest.mark.parametrize(
    ("changes", "actions"),
    [
        ({"state": "running"}, ["stop", "pause"]),
        ({"state": "running", "wait": LIMIT}, ["stop", "pause"]),
        ({"state": "running", "wait": LIMIT, "command": []}, ["stop", "pause", "skip-wait"]),
        ({"state": "running", "seen": {"limit": {"agent": "claude"}}, "command": []}, ["stop", "pause"]),
        ({"state": "waiting_for_retry", "wait": LIMIT}, ["stop", "pause", "skip-wait"]),
        ({"state": "pausing"}, ["stop", "resume"]),
        ({"state": "paused"}, ["stop", "resume"]),
        ({"state": "paused", "wait": LIMIT}, ["stop", "resume", "skip-wait"]),
        ({"state": "paused", "guard": {"reverted": {"kind": "reverted"}}}, ["stop", "resume", "undo"]),
        ({"state": "failed", "incident": {"message": "m"}}, ["ack", "start"]),
        ({"state": "stopped"}, ["start"]),
        ({"state": "done"}, ["start"]),
        ({"state": "done", "branch": "night"}, ["land", "start"]),
        ({"state": "done", "branch": "night", "landing": {"state": "queued"}}, ["start"]),
        ({"state": "running", "name": "h2/api"}, ["stop", "pause"]),
        ({"state": "stopped", "name": "h2/api"}, []),
    ],
)
def test_actions_follow_the_state(changes: dict[str, Any], actions: list[str]) -> None:
    assert replies.actions(view(**changes), BOTH) == actions
    assert replies.actions(view(**changes), ()) == []


def test_a_ralph_of_a_machine_that_never_answered_offers_nothing() -> None:
    row = replies.row({"name": "h2/api", "state": "unknown", "as_of": "2026-11-21T00:00:00Z"}, BOTH)
    assert (row["state"], row["actions"], row["as_of"]) == ("Unknown", [], "2026-11-21T00:00:00Z")


def test_a_list_leaves_out_what_does_not_fit() -> None:
    views = [view(f"r{n}", state="failed", message="x" * 300) for n in range(300)]
    reply = replies.rows([*views, view("done", state="done")], "Failed", BOTH)
    assert len(reply.encode()) <= replies.MOST_BYTES
    value = json.loads(reply)
    assert len(value["ralphs"]) + value["left_out"] == value["total"] == 300


def test_the_same_state_gives_the_same_reply() -> None:
    one = view(state="stopping", message="ends its run; asked at 2026-11-21T06:48:00Z")
    assert replies.row(one, BOTH)["reason"] == "ends its run"
    assert replies.answer(replies.ralph(one, BOTH, {})) == replies.answer(replies.ralph(dict(one), BOTH, {}))


def records(*texts: str) -> list[dict[str, Any]]:
    lines = enumerate(texts)
    return [{"at": "x", "stream": "stdout", "text": text, "cursor": f"r:1:{n}:0"} for n, text in lines]


def test_a_log_continues_where_the_last_reply_ended() -> None:
    every = [f"{n} " + "ü" * 500 for n in range(100)]
    last = json.loads(replies.log(records(*every), "", view(), BOTH))
    assert last["lines"][-1] == every[-1] and last["older_left_out"]

    got: list[str] = []
    cursor, more = "r:1:-1:0", True
    while more:
        begin = int(cursor.split(":")[2]) + 1
        rest = [{**each, "cursor": f"r:1:{begin + n}:0"} for n, each in enumerate(records(*every[begin:]))]
        reply = json.loads(replies.log(rest, cursor, view(), BOTH))
        got, cursor, more = [*got, *reply["lines"]], reply["cursor"], reply.get("more", False)
    assert got == every


@given(some.lists(some.text(max_size=3000)), some.sampled_from(["", "r:1:0:0"]))
def test_a_log_is_plain_and_at_most_8_kb(texts: list[str], cursor: str) -> None:
    reply = replies.log(records(*texts), cursor, view(), BOTH)
    assert len(reply.encode()) <= replies.LOG_BYTES
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in reply)


@given(some.text() | some.text(some.characters()) | some.text(alphabet="\x1b[]0;1mJ\x07\\ab\n\t\r"))
def test_no_text_keeps_a_control_character(text: str) -> None:
    assert not {chr(code) for code in (*range(32), *range(127, 160))} - {*"\n\t"} & set(replies.plain(text))
    replies.plain(text).encode()


def test_escape_codes_disappear() -> None:
    hostile = "\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b[2J\x1b(B bell\x07"
    assert replies.plain(hostile) == "red link bell^G"


def test_an_event_is_words_of_bounded_length() -> None:
    data = {"message": "m\x1b[2J" * 9999}
    event = {"id": 1, "at": "x", "type": "ralph.paused", "ralph": "api", "data": data}
    assert replies.event(event)["text"].startswith("mmm")
    assert replies.size(replies.event(event)) <= replies.LINES_BYTES
    assert replies.event({**event, "data": None})["text"] == ""


def test_a_figure_without_a_limit_names_none() -> None:
    figures = [
        {"name": "age", "seen": "18 s", "limit": ""},
        {"name": "silent", "seen": "9 s", "limit": "5 min"},
    ]
    why = replies.ralph(view(), (), {"figures": figures})["why"]
    assert why["figures"] == ["age: 18 s", "silent: 9 s (limit 5 min)"]


def test_figures_of_many_ralphs_are_shortened() -> None:
    document = {"ralphs": [{"name": f"r{n}", "remarks": ["x" * 100]} for n in range(2000)]}
    reply = replies.figures(document)
    assert len(reply.encode()) <= replies.MOST_BYTES
    assert json.loads(reply)["shortened"]
    assert json.loads(replies.figures({"ralphs": document["ralphs"][:1]})) == {
        "ralphs": document["ralphs"][:1]
    }


def test_a_long_text_is_cut_with_a_note() -> None:
    assert replies.cut("short") == "short"
    cut = replies.cut("ü" * replies.MOST_BYTES)
    assert len(cut.encode()) <= replies.MOST_BYTES
    assert "… cut" in cut

"""Keys of the live view: what is said of them is so, and a question is seen before it is answered."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphctl.client.client import Client
from ralphctl.live.keys import Controls, ViewKey
from ralphctl.live.screen import Painted, Screen
from ralphd.errors import DaemonNotRunning
from tests.ctl.fake import FakeDaemon, view
from tests.ctl.golden_files import Golden
from tests.helpers import wait_for


def controls(path: Path, said: list[str]) -> Controls:
    client = Client(lambda: [str(path)])
    return Controls(
        client,
        "api",
        said.append,
        on_reply=lambda: None,
        quit_=ViewKey("q", "leave", lambda view: None),
        may_stop=True,
    )


def press(keys: Controls, letters: str, **changes: Any) -> None:
    for letter in letters:
        keys.press(ord(letter), view(**changes))


def test_a_request_is_said_to_be_made_when_it_has_been(golden: Golden, tmp_path: Path) -> None:
    said: list[str] = []
    press(controls(tmp_path / "nobody.sock", said), "Sy")
    wait_for(lambda: said, what="what came of it")
    golden(said)


def test_a_skipped_wait_that_does_not_end_is_no_skipped_wait(tmp_path: Path) -> None:
    daemon, said = FakeDaemon(tmp_path / "ralphd.sock"), list[str]()
    waits: dict[str, Any] = {"state": "waiting_for_retry", "ralph_pid": None, "wait": {"reason": "resources"}}
    daemon.views = {"api": view(**waits)}
    try:
        press(controls(daemon.path, said), "sy", **waits)
        wait_for(lambda: said, what="what came of it")
        assert said == ["still waiting: for free memory, disk space, a place (max_running) or a slot"]
    finally:
        daemon.stop()


@pytest.mark.parametrize(("command", "when"), [([], ""), (["./loop.sh"], ", or at once if it reports none")])
def test_the_question_says_when_a_command_stops(command: list[str], when: str, tmp_path: Path) -> None:
    keys = controls(tmp_path / "nobody.sock", [])
    press(keys, "S", command=command)
    assert keys.question is not None
    assert keys.question.text == f"Stop api after this iteration{when}? [y/N]"


@pytest.mark.parametrize(
    ("reason", "more"), [("rate_limit", " The limit may still apply."), ("schedule", ""), ("crash", "")]
)
def test_only_a_wait_for_a_limit_is_skipped_with_a_warning(reason: str, more: str, tmp_path: Path) -> None:
    keys = controls(tmp_path / "nobody.sock", [])
    press(keys, "s", state="waiting_for_retry", wait={"reason": reason})
    assert keys.question is not None
    assert keys.question.text == f"Skip the wait?{more} [y/N]"


def test_who_leaves_hears_what_becomes_of_it(golden: Golden, tmp_path: Path) -> None:
    keys = controls(tmp_path / "nobody.sock", [])
    golden({state: keys.going(view(state=state)) for state in ("running", "stopping", "pausing")})


def test_a_client_that_keeps_to_a_daemon_asks_no_other_when_that_is_gone(tmp_path: Path) -> None:
    first, beside = FakeDaemon(tmp_path / "first.sock"), FakeDaemon(tmp_path / "beside.sock")
    try:
        first.views, beside.views = {"api": view()}, {"api": view(state="done")}
        client = Client(lambda: [str(first.path), str(beside.path)], sticks=True)
        assert client.ralph("api").value["state"] == "running"
        first.stop()
        for same in (client, client.without_notices()):
            with pytest.raises(DaemonNotRunning):
                same.ralph("api")
        assert beside.asked == []
    finally:
        first.stop()
        beside.stop()


def test_a_question_is_seen_though_the_last_line_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as terminal, os.fdopen(master, "rb", buffering=0) as shown:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        screen = Screen(lambda why: None)
        dots = {"stream": "stdout", "text": "dots.", "partial": True, "cursor": "c1"}
        screen.put([dots])
        screen.show(Painted("── api", (6,)))
        assert shown.read(4096).decode() == "dots."
        screen.show(Painted("Stop api?", (9,)), must_be_seen=True)
        assert shown.read(4096).decode() == "\r\nStop api?"
        screen.put([dots])
        assert shown.read(4096).decode() == "\r\x1b[Jdots.\r\nStop api?"

"""``ralphctl webhooks``: what is asked of the daemon, and what a person reads."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphctl.cli import root
from ralphctl.format.webhook_text import delivery_lines, hook_lines, line_of_test, table, with_replays
from ralphd.errors import DaemonNotRunning, NotFound, PrivateAddress, UsageError
from tests.ctl.fake import Answer, FakeDaemon
from tests.ctl.golden_files import Golden, Printed, printed

Typed = Callable[..., Printed]

ID = "0123456789abcdef"
NOW = 1_795_346_400.0  # 2026-11-22T11:20:00Z


def a_delivery(state: str = "delivered", **changes: Any) -> dict[str, Any]:
    return {
        "id": 41,
        "webhook": ID,
        "name": "one",
        "where": "https://one.example",
        "message_id": "msg_1",
        "event": {"id": 7, "type": "ralph.escalated", "at": "2026-11-22T11:00:00.000000Z", "ralph": "demo"},
        "state": state,
        "queued_at": "2026-11-22T11:00:00.000000Z",
        "failures": 0,
        "next_at": None,
        "why": None,
        "done_at": "2026-11-22T11:00:00.000000Z",
        **changes,
    }


def a_hook(**changes: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "name": "one",
        "where": "https://one.example",
        "on": ["ralph.escalated", "ralph.done"],
        "format": "json",
        "allow_private": False,
        "secret": None,
        "origin": "added",
        "place": None,
        "ralphs": None,
        "added_at": "2026-11-22T11:00:00.000000Z",
        "gone": None,
        "last": None,
        **changes,
    }


@pytest.fixture
def typed(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Typed:
    """``ralphctl webhooks`` with these words, in this process, at ``NOW``."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CONFIG_HOME", "RALPH_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", lambda: NOW)

    def type_(*words: str) -> Printed:
        code = root.run(["webhooks", *words])
        return printed(f"ralphctl webhooks {' '.join(words)}", code, *capsys.readouterr())

    return type_


def test_a_webhook_is_told_with_where_it_comes_from_and_what_became_of_it(golden: Golden) -> None:
    gone = {"why": "answered 410 Gone", "at": "2026-11-22T11:10:00.000000Z"}
    secret = {"origin": "environment", "name": "HOOK"}
    hook = a_hook(
        format="slack", place="/srv/a/ralph.toml:3", ralphs=["a"], gone=gone, secret=secret, last=a_delivery()
    )

    golden(hook_lines(hook, NOW), hook_lines(a_hook(), NOW))


def test_what_became_of_a_delivery_is_told_with_what_to_do(golden: Golden) -> None:
    lost = a_delivery("given_up", why="answered 500")
    waits = a_delivery("pending", why="no connection", failures=2, next_at="2026-11-22T11:21:00.000000Z")

    golden(*(delivery_lines(each, NOW) for each in (lost, waits, a_delivery("pending"))))


def test_one_that_was_sent_again_is_not_offered_once_more() -> None:
    again, lost, other = with_replays(
        [a_delivery(id=43), a_delivery("given_up"), a_delivery("given_up", message_id="msg_2")]
    )

    assert len(list(delivery_lines(lost, NOW))) == 2
    assert len(list(delivery_lines(other, NOW))) == 3
    assert not again["replayed"]


def test_the_list_fits_80_columns(golden: Golden) -> None:
    gone = {"why": "answered 410 Gone", "at": "2026-11-22T11:10:00.000000Z"}
    waits = a_delivery("pending", why="no connection: All connection attempts failed", failures=2,
                       next_at="2026-11-22T11:21:00.000000Z")  # fmt: skip
    hooks = [
        a_hook(
            name="phone", format="ntfy", where="https://ntfy.sh", on=["ralph.escalated"], last=a_delivery()
        ),
        a_hook(name="hooks.example.com", where="http://a.very.long.host.example.com:8080", last=waits),
        a_hook(name="slack", format="slack", on=["*"], gone=gone, last=a_delivery()),
        a_hook(),
    ]
    text = table(hooks, NOW)

    assert max(map(len, text.splitlines())) <= 80
    golden([text])


def test_escape_codes_in_what_others_wrote_move_no_terminal() -> None:
    evil = "\x1b[2J"
    lines = [
        table([a_hook(name=evil, where=evil, on=[evil], format=evil)], NOW),
        *hook_lines(a_hook(where=evil, place=evil, on=[evil], last=a_delivery(why=evil)), NOW),
        *delivery_lines(a_delivery("given_up", why=evil, where=evil), NOW),
        line_of_test(
            {"name": evil, "where": evil, "arrived": False, "why": evil, "took_s": 1.0, "status": None}
        ),
    ]

    assert evil not in "\n".join(lines)


def test_add_asks_for_what_was_typed_and_shows_a_made_secret_once(
    daemon: FakeDaemon, typed: Typed, golden: Golden, tmp_path: Path
) -> None:
    (tmp_path / "made").write_text("whsec_c2VjcmV0\n")
    made = a_hook(secret={"origin": "made", "name": str(tmp_path / "made")}, secret_made=True, replaced=False)
    daemon.on("POST /v1/webhooks", lambda request: Answer(made, 201))

    reply = typed("add", "https://one.example/x", "--on", "ralph.done", "--secret-file", "mine")

    golden(reply)
    assert reply.returncode == 0
    assert daemon.body_of("POST /v1/webhooks") == {
        "url": "https://one.example/x",
        "format": "json",
        "on": ["ralph.done"],
        "secret_file": str(tmp_path / "mine"),
    }


def test_with_json_the_reply_is_alone_on_stdout_and_an_address_may_come_in_unseen(
    daemon: FakeDaemon, typed: Typed, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_hook(secret={"origin": "made", "name": "/not/there"}, secret_made=True, replaced=False)
    daemon.on("POST /v1/webhooks", lambda request: Answer(made, 201))
    monkeypatch.setattr("sys.stdin", io.StringIO("https://one.example/T0ken\n"))

    reply = typed("add", "--json", "-")

    assert daemon.body_of("POST /v1/webhooks")["url"] == "https://one.example/T0ken"
    assert reply.stdout.strip() == Answer(made).body.decode()
    with pytest.raises(UsageError) as fault:
        typed("add", "-")
    golden(printed(reply.args, reply.returncode, "", reply.stderr), str(fault.value))


class Refusing:
    """A daemon that refuses private addresses until its configuration is read again."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self.allows = False
        daemon.on("POST /v1/webhooks", lambda request: self.answer())
        daemon.on("POST /v1/reload", lambda request: self.reload())

    def answer(self) -> Answer:
        if self.allows:
            return Answer(a_hook(secret_made=False, replaced=False), 201)
        return Answer({"type": "urn:ralphd:problem:private-address", "title": "not allowed"}, 422)

    def reload(self) -> Answer:
        self.allows = True
        return Answer({"changes": []})


def test_one_command_allows_private_addresses_and_adds(
    daemon: FakeDaemon, typed: Typed, golden: Golden, environment: dict[str, str]
) -> None:
    Refusing(daemon)

    reply = typed("add", "--allow-private", "--name", "one", "http://127.0.0.1:9/x")

    golden(reply)
    assert reply.returncode == 0
    (file,) = Path(environment["HOME"]).rglob("config.toml")
    assert file.read_text() == "[notify]\nallow_private = true\n"


def test_a_run_cannot_allow_private_addresses(
    daemon: FakeDaemon, typed: Typed, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Refusing(daemon)
    monkeypatch.setenv("RALPH_RUN_ID", "r000001-00000000")

    with pytest.raises(PrivateAddress):
        typed("add", "--allow-private", "http://127.0.0.1:9/x")

    assert not [*Path(environment["HOME"]).rglob("config.toml")]


def test_show_takes_a_name_or_an_id(daemon: FakeDaemon, typed: Typed, golden: Golden) -> None:
    daemon.on("GET /v1/webhooks", lambda request: Answer({"webhooks": [a_hook()]}))

    replies = [typed("show", "one"), typed("show", ID), typed("list")]
    with pytest.raises(NotFound) as fault:
        typed("show", "two")
    golden(*replies, str(fault.value))
    assert json.loads(typed("show", "--json", "one").stdout)["id"] == ID


@pytest.mark.parametrize(("arrived", "code"), [(True, 0), (False, 1)])
def test_a_test_ends_with_1_when_it_did_not_arrive(
    daemon: FakeDaemon, typed: Typed, golden: Golden, arrived: bool, code: int
) -> None:
    tested = {
        "id": ID,
        "name": "one",
        "where": "https://one.example",
        "arrived": arrived,
        "status": 200 if arrived else None,
    }
    tested |= {"why": None if arrived else "no connection: refused", "took_s": 0.123, "back": arrived}
    daemon.on(f"POST /v1/webhooks/{ID}/test", lambda request: Answer(tested))

    reply = typed("test", ID)

    golden(reply)
    assert reply.returncode == code


def test_list_deliveries_replay_and_remove_ask_the_daemon(
    daemon: FakeDaemon, typed: Typed, golden: Golden
) -> None:
    daemon.on("GET /v1/webhooks", lambda request: Answer({"webhooks": []}))
    daemon.on("GET /v1/deliveries", lambda request: Answer({"deliveries": [a_delivery()]}))
    daemon.on("POST /v1/deliveries/41/replay", lambda request: Answer(a_delivery("pending", id=42), 202))
    daemon.on(f"DELETE /v1/webhooks/{ID}", lambda request: Answer(b"", 204))

    replies = [typed("list"), typed("deliveries", "-n", "3")]
    assert daemon.asked[-1].query == {"limit": "3"}
    replies += [typed("replay", "41"), typed("remove", ID)]
    with pytest.raises(UsageError) as fault:
        typed("remove", "../ralphs/api")
    golden(*replies, str(fault.value))
    assert daemon.lines() == ["POST /v1/deliveries/41/replay", f"DELETE /v1/webhooks/{ID}"]


def test_without_a_daemon_it_says_how_to_start_one(typed: Typed) -> None:
    with pytest.raises(DaemonNotRunning) as caught:
        typed("list")
    assert caught.value.mend == "ralphctl regent start"

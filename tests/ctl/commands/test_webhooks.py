"""``ralphctl webhooks``: what is asked of the daemon, and what a person reads."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphctl.cli import root
from ralphctl.format.webhook_text import delivery_lines, hook_lines, line_of_test, with_replays
from ralphd.errors import DaemonNotRunning, UsageError
from tests.ctl.fake import Answer, FakeDaemon

Typed = Callable[..., tuple[int, str, str]]

ID = "0123456789abcdef"
NOW = 1_795_346_400.0  # 2026-11-22T11:20:00Z


def a_delivery(state: str = "delivered", **changes: Any) -> dict[str, Any]:
    return {
        "id": 41,
        "webhook": ID,
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
    """``ralphctl webhooks`` with these words, in this process: the exit code, and what it printed."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def type_(*words: str) -> tuple[int, str, str]:
        code = root.run(["webhooks", *words])
        return code, *capsys.readouterr()

    return type_


def test_a_webhook_is_told_with_where_it_comes_from_and_what_became_of_it() -> None:
    gone = {"why": "answered 410 Gone", "at": "2026-11-22T11:10:00.000000Z"}
    secret = {"origin": "environment", "name": "HOOK"}
    hook = a_hook(
        format="slack", place="/srv/a/ralph.toml:3", ralphs=["a"], gone=gone, secret=secret, last=a_delivery()
    )

    assert [line.replace("(11:10:00)", "").rstrip() for line in hook_lines(hook, NOW)] == [
        f"{ID}  https://one.example  as slack",
        "  told of ralph.escalated, ralph.done of a",
        "  from    /srv/a/ralph.toml:3",
        "  secret  in ralphd's environment, HOOK",
        "  gone    answered 410 Gone 10m ago : nothing is sent there",
        f"          ralphctl webhooks test {ID}  (asks it again)",
        "  last    ralph.escalated of demo arrived 20m ago (11:00:00)",
    ]
    assert "  from    added 20m ago (11:00:00)" in list(hook_lines(a_hook(), NOW))


def test_what_became_of_a_delivery_is_told_with_what_to_do() -> None:
    lost = a_delivery("given_up", why="answered 500")
    waits = a_delivery("pending", why="no connection", failures=2, next_at="2026-11-22T11:21:00.000000Z")

    assert list(delivery_lines(lost, NOW)) == [
        "41  ralph.escalated of demo to https://one.example",
        "  given up 20m ago (11:00:00): answered 500",
        "  ralphctl webhooks replay 41  (sends it again)",
    ]
    assert (
        list(delivery_lines(waits, NOW))[1] == "  waits after 2 tries: no connection; again in 1m (11:21:00)"
    )
    assert list(delivery_lines(a_delivery("pending"), NOW))[1] == "  waits for its turn since 20m (11:00:00)"


def test_one_that_was_sent_again_is_not_offered_once_more() -> None:
    again, lost, other = with_replays(
        [a_delivery(id=43), a_delivery("given_up"), a_delivery("given_up", message_id="msg_2")]
    )

    assert len(list(delivery_lines(lost, NOW))) == 2
    assert len(list(delivery_lines(other, NOW))) == 3
    assert not again["replayed"]


def test_escape_codes_in_what_others_wrote_move_no_terminal() -> None:
    evil = "\x1b[2J"
    lines = [
        *hook_lines(a_hook(where=evil, place=evil, on=[evil], last=a_delivery(why=evil)), NOW),
        *delivery_lines(a_delivery("given_up", why=evil, where=evil), NOW),
        line_of_test({"where": evil, "arrived": False, "why": evil, "took_s": 1.0, "status": None}),
    ]

    assert evil not in "\n".join(lines)


def test_add_asks_for_what_was_typed_and_shows_a_made_secret_once(
    daemon: FakeDaemon, typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "made").write_text("whsec_c2VjcmV0\n")
    made = a_hook(secret={"origin": "made", "name": str(tmp_path / "made")}, secret_made=True, replaced=False)
    daemon.on("POST /v1/webhooks", lambda request: Answer(made, 201))

    code, out, _ = typed("add", "https://one.example/x", "--on", "ralph.done", "--secret-file", "mine")

    assert code == 0
    assert daemon.body_of("POST /v1/webhooks") == {
        "url": "https://one.example/x",
        "format": "json",
        "on": ["ralph.done"],
        "secret_file": str(tmp_path / "mine"),
    }
    assert "  secret: whsec_c2VjcmV0\n" in out
    assert f"  next: ralphctl webhooks test {ID}\n" in out


def test_with_json_the_reply_is_alone_on_stdout_and_an_address_may_come_in_unseen(
    daemon: FakeDaemon, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = a_hook(secret={"origin": "made", "name": "/not/there"}, secret_made=True, replaced=False)
    daemon.on("POST /v1/webhooks", lambda request: Answer(made, 201))
    monkeypatch.setattr("sys.stdin", io.StringIO("https://one.example/T0ken\n"))

    _, out, err = typed("add", "--json", "-")

    assert daemon.body_of("POST /v1/webhooks")["url"] == "https://one.example/T0ken"
    assert out.strip() == Answer(made).body.decode()
    assert "in /not/there on ralphd's machine" in err
    with pytest.raises(UsageError, match="no address came in"):
        typed("add", "-")


@pytest.mark.parametrize(("arrived", "code"), [(True, 0), (False, 1)])
def test_a_test_ends_with_1_when_it_did_not_arrive(
    daemon: FakeDaemon, typed: Typed, arrived: bool, code: int
) -> None:
    tested = {
        "id": ID,
        "where": "https://one.example",
        "arrived": arrived,
        "status": 200 if arrived else None,
    }
    tested |= {"why": None if arrived else "no connection: refused", "took_s": 0.123, "back": arrived}
    daemon.on(f"POST /v1/webhooks/{ID}/test", lambda request: Answer(tested))

    ended, out, err = typed("test", ID)

    assert ended == code
    assert err == f"sending a test to {ID}; it has 10 s to answer\n"
    first, *more = out.splitlines()
    if arrived:
        assert first == "https://one.example took it: 200 after 0.12 s"
        assert "from now on it is sent to again" in more[0]
    else:
        assert first == "https://one.example did not take it: no connection: refused (after 0.12 s)"


def test_list_deliveries_replay_and_remove_ask_the_daemon(daemon: FakeDaemon, typed: Typed) -> None:
    daemon.on("GET /v1/webhooks", lambda request: Answer({"webhooks": []}))
    daemon.on("GET /v1/deliveries", lambda request: Answer({"deliveries": [a_delivery()]}))
    daemon.on("POST /v1/deliveries/41/replay", lambda request: Answer(a_delivery("pending", id=42), 202))
    daemon.on(f"DELETE /v1/webhooks/{ID}", lambda request: Answer(b"", 204))

    assert typed("list")[1].startswith("no webhooks\n  next: ralphctl webhooks add URL")
    assert typed("deliveries", "-n", "3")[1].startswith("41  ralph.escalated of demo")
    assert daemon.asked[-1].query == {"limit": "3"}
    assert "is sent again as 42" in typed("replay", "41")[1]
    assert typed("remove", ID)[0] == 0
    with pytest.raises(UsageError, match="no id of a webhook"):
        typed("remove", "../ralphs/api")
    assert daemon.lines() == ["POST /v1/deliveries/41/replay", f"DELETE /v1/webhooks/{ID}"]


def test_without_a_daemon_it_says_how_to_start_one(typed: Typed) -> None:
    with pytest.raises(DaemonNotRunning) as caught:
        typed("list")
    assert caught.value.mend == "ralphctl regent start"

"""What follows the end of a run that nobody asked for: restarts, an end of patience, one word to a person."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.helpers import wait_for
from tests.notify.receiver import Received, receiving
from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.person import Person

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
RESTLESS = "[regent]\nretry_backoff_seconds = 0.1\n"
SEEDS_KEYS = [
    "ralph_pid",
    "iteration",
    "consecutive_errors",
    "last_output_at",
    "last_commit",
    "total_cost_usd",
]


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    return Person(daemon)


def webhook(person: Person, url: str) -> None:
    secret = person.daemon.home / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    person.configures(f'[[webhooks]]\nurl = "{url}"\nsecret_file = "{secret}"\nallow_private = true\n')


def told(received: Received) -> dict[str, Any]:
    """The body of a webhook, if its signature is right."""
    return dict(Webhook(SECRET).verify(received.body, received.headers))


def kept_state(place: Path, state: str) -> dict[str, Any]:
    """What ``.ralph/regent-state.json`` of a working directory holds, once it tells this state."""

    def kept() -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads((place / ".ralph" / "regent-state.json").read_text())
        return found if found["state"] == state else None

    return wait_for(kept, what=f"{state} in {place}") or {}


@pytest.fixture
def unplugged() -> Iterator[socket.socket]:
    """A port on loopback that is ours and at which nobody listens yet."""
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved


@contextmanager
def plugged_in(reserved: socket.socket) -> Iterator[list[Received]]:
    """Somebody listens at the reserved port now, and keeps what comes."""
    received: list[Received] = []

    class Handling(BaseHTTPRequestHandler):
        timeout = 5

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handling, bind_and_activate=False)
    server.socket.close()
    server.socket = reserved.dup()
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _states_of_deliveries(daemon: Daemon) -> list[str]:
    return [each["state"] for each in daemon.ask("GET", "/v1/deliveries")["deliveries"]]


def test_a_command_that_always_fails_is_tried_three_times_and_then_a_person_is_told_once(
    daemon: Daemon, person: Person
) -> None:
    with receiving() as receiver:
        webhook(person, receiver.url)
        daemon.start()
        place = person.directory(toml=RESTLESS)
        person.starts(place, player("exits", 1))
        daemon.becomes("demo", "failed")
        wait_for(lambda: _states_of_deliveries(daemon) == ["delivered"], what="the webhook")
        daemon.restart()  # what was sent is not sent again

    assert [(end["code"], end["outcome"]) for end in daemon.history("demo")] == [(1, "failed")] * 3
    assert len(daemon.run_directories("demo")) == 3

    [received] = receiver.received
    body = told(received)
    assert body["type"] == "ralph.escalated"
    assert body["data"]["ralph"] == "demo"
    assert "giving up after 3 failures in a row" in body["data"]["data"]["message"]

    status = person("status")
    assert status.returncode == 1, status
    assert person("status", "demo").returncode == 1
    assert "failed" in status.stdout


def test_its_end_is_told_in_the_seeds_words_in_the_log_and_in_the_events(
    daemon: Daemon, person: Person
) -> None:
    daemon.start()
    person.starts(person.directory(toml=RESTLESS), player("exits", 1))
    daemon.becomes("demo", "failed")
    lines = person("logs", "demo", "--tail", "all").stdout.splitlines()
    words = [
        "Ralph exited (exit 1) — retrying in 0.1s (attempt 2/3)",
        "Restarting Ralph...",
        "Ralph exited (exit 1) — retrying in 0.1s (attempt 3/3)",
        "Restarting Ralph...",
        "Ralph exited (exit 1) — giving up after 3 failures in a row",
    ]
    regent = re.compile(r"\[\d\d:\d\d:\d\d\]  🛡️  Regent: (.*)")
    said = [match[1] if (match := regent.fullmatch(line)) else line for line in lines]
    first, again, second, once_more, last = words
    assert said == ["about to end", first, again, "about to end", second, once_more, "about to end", last]
    events = [event for event in daemon.events() if event["ralph"] == "demo"]
    assert [event["data"]["message"] for event in events if "message" in event["data"]] == [*words, last]
    assert [events[-1]["type"], events[-1]["data"]["escalated"]] == ["ralph.failed", True]
    assert [event["type"] for event in events].count("ralph.escalated") == 1
    assert [event["type"] for event in events].count("ralph.exited") == 3
    assert "giving up after 3 failures" in (daemon.state / "ralphd.log").read_text()


def test_regent_state_in_the_directory_has_the_seeds_keys_first(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = person.directory(toml=RESTLESS)
    running = person.starts(place, player("says", "out:hello\\n", f"file:{daemon.home / 'go'}", "x:1"))
    state = kept_state(place, "running")
    assert list(state)[:6] == SEEDS_KEYS
    assert state["ralph_pid"] == running["ralph_pid"] == daemon.run_record("demo")["pid"]
    (daemon.home / "go").touch()
    state = kept_state(place, "done")
    assert list(state)[:6] == SEEDS_KEYS
    assert state["ralph_pid"] is None
    assert state["consecutive_errors"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", state["last_output_at"])
    assert state["last_commit"] is None
    assert state["total_cost_usd"] == 0
    assert json.loads((daemon.files("demo") / "regent-state.json").read_text()) == state


def test_the_state_of_a_ralph_that_failed_counts_its_errors(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = person.directory(toml=RESTLESS)
    person.starts(place, player("exits", 1))
    state = kept_state(place, "failed")
    assert list(state)[:6] == SEEDS_KEYS
    assert (state["ralph_pid"], state["consecutive_errors"], state["state"]) == (None, 3, "failed")
    assert state["last_exit"]["code"] == 1
    daemon.kill()
    alone = person("status", cwd=place)
    assert alone.returncode == 1, alone
    assert "last known" in alone.stdout + alone.stderr


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_person_is_told_once_though_network_and_daemon_were_both_down(
    daemon: Daemon, person: Person, unplugged: socket.socket, is_deleted: bool
) -> None:
    host, port = unplugged.getsockname()
    webhook(person, f"http://{host}:{port}/hook")
    daemon.start()
    person.starts(person.directory(toml="[regent]\nmax_retries = 1\n"), player("exits", 1))
    daemon.becomes("demo", "failed")
    [escalation] = daemon.events("ralph.escalated")
    wait_for(lambda: "webhook" in daemon.words(), what="a word about a delivery that failed")
    daemon.kill()
    for path in daemon.state.glob("events.db*") if is_deleted else ():
        path.unlink()
    with plugged_in(unplugged) as received:
        daemon.start()
        wait_for(lambda: received, timeout_s=15.0, what="the webhook")
        daemon.restart()
    assert len({each.message_id for each in received}) == 1
    assert (told(received[0])["data"]["id"] == escalation["id"]) is not is_deleted


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (5, "exit 5"),
        (2, "exit 2"),
        (127, "exit 127: command not found"),
        (126, "exit 126: found, but not executable"),
        (-9, "SIGKILL"),
        (-15, "SIGTERM"),
    ],
)
def test_without_a_hello_every_other_end_is_a_failure(
    code: int, words: str, daemon: Daemon, person: Person
) -> None:
    daemon.start()
    place = person.directory(toml=f"{RESTLESS}max_retries = 2\n")
    person.starts(place, player("exits", code))
    daemon.becomes("demo", "failed")
    ends = daemon.history("demo")
    how = {"code": code, "signal": None} if code >= 0 else {"code": None, "signal": -code}
    assert [{"code": end["code"], "signal": end["signal"]} for end in ends] == [how] * 2
    log = person("logs", "demo", "--stream", "regent").stdout
    assert f"Ralph exited ({words}) — retrying in " in log
    assert "(attempt 2/2)" in log
    assert f"Ralph exited ({words}) — giving up after 2 failures in a row" in log
    assert person("status", "demo").returncode == 1


def test_exit_75_is_a_pause_and_no_failure(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory(toml=RESTLESS), player("exits", 75))
    view = daemon.becomes("demo", "paused")
    assert view["consecutive_errors"] == 0
    assert view["pause_reason"]
    status = person("status", "demo")
    assert status.returncode == 75, status
    assert "ralphctl resume demo" in status.stdout
    assert not daemon.events("ralph.escalated")
    assert person("resume", "demo").returncode == 0
    wait_for(lambda: len(daemon.history("demo")) == 2, what="the second run")
    daemon.becomes("demo", "paused")


def test_the_exit_code_of_several_is_that_of_the_worst(daemon: Daemon, person: Person) -> None:
    daemon.start()
    person.starts(person.directory("good"), player("exits", 0))
    assert person("status").returncode == 0
    person.starts(person.directory("limited"), player("exits", 75))
    daemon.becomes("limited", "paused")
    assert person("status").returncode == 75
    person.starts(person.directory("broken", toml="[regent]\nmax_retries = 1\n"), player("exits", 1))
    daemon.becomes("broken", "failed")
    assert person("status").returncode == 1
    assert person("status", "good").returncode == 0


def test_a_pause_until_a_reset_resumes_by_itself(daemon: Daemon, person: Person) -> None:
    daemon.start()
    place = person.directory(toml="[retry]\nreset_margin_seconds = 1.5\n")
    loop = place / "loop.sh"
    loop.write_text(
        "#!/bin/sh\n"
        "test -e again && exit 0\n"
        "touch again\n"
        """printf '{"pause_reason": "usage_limit", "resume_at": "%s"}' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" """
        "> .ralph/checkpoint.json\n"
        "exit 75\n"
    )
    loop.chmod(0o700)
    person.starts(place, ["./loop.sh"])
    daemon.becomes("demo", "done")
    assert [end["code"] for end in daemon.history("demo")] == [75, 0]
    assert [event["data"]["until"] for event in daemon.events("ralph.paused")]

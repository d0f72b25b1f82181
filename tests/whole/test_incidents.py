"""One message per incident, end to end: the daemon, ``ralphctl`` and a receiver of webhooks."""

import json
from collections import Counter

import pytest

from tests.helpers import wait_for
from tests.notify.receiver import Receiver, receiving
from tests.whole.harness import Daemon, View
from tests.whole.person import Person

ONCE = "[regent]\nmax_retries = 1\n"
OFTEN = f"{ONCE}[notify]\nreminder_minutes = 0.02\n"
COMMAND = ("sh", "-c", "test -e ok")
"""Fails, until there is a file ``ok``."""


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    return Person(daemon)


def webhook(daemon: Daemon, receiver: Receiver) -> None:
    """Have every escalation sent there."""
    daemon.configure(f'[[webhooks]]\nurl = "{receiver.url}"\nallow_private = true\n')


def messages(receiver: Receiver) -> Counter[str]:
    """How many different messages have come, by ralph."""
    bodies = {each.message_id: json.loads(each.body)["data"] for each in receiver.received}
    return Counter(str(body["ralph"]) for body in bodies.values())


def fails(daemon: Daemon, held_back: int) -> View:
    """Start it again; the incident when it has failed once more."""
    daemon.ask("POST", "/v1/ralphs/demo/start")

    def failed() -> View | None:
        incident = daemon.view("demo")["incident"]
        return incident if incident and incident["held_back"] == held_back else None

    return wait_for(failed, what=f"{held_back} held back") or {}


def test_a_ralph_that_fails_again_and_again_calls_once_also_over_restarts_of_the_daemon(
    daemon: Daemon, person: Person
) -> None:
    with receiving() as receiver:
        webhook(daemon, receiver)
        daemon.start()
        place = person.directory(toml=ONCE)
        person.starts(place, COMMAND)
        daemon.becomes("demo", "failed")
        wait_for(lambda: receiver.received, what="the webhook")
        fails(daemon, 1)
        daemon.restart()
        incident = fails(daemon, 2)

        [call] = daemon.events("ralph.escalated")
        assert (call["data"]["message"], call["data"]["do"]) == (incident["message"], "ralphctl explain demo")
        assert len(daemon.events("incident.held_back")) == 2
        assert [entry["what"] for entry in daemon.history("demo", "incident")] == ["held_back"] * 2
        status = person("status", "demo").stdout
        assert "2 more alerts held back, not acknowledged: ralphctl ack demo" in status

        (place / "ok").touch()
        daemon.ask("POST", "/v1/ralphs/demo/start")
        view = daemon.becomes("demo", "done")
        assert (view["incident"], view["last_change"]["what"]) == (None, "all is done")
        [over] = daemon.events("incident.closed")
        assert (over["data"]["why"], over["data"]["held_back"]) == ("works", 2)
        assert messages(receiver) == {"demo": 1}

        (place / "ok").unlink()  # what comes after it has worked is told at once
        daemon.ask("POST", "/v1/ralphs/demo/start")
        daemon.becomes("demo", "failed")
        wait_for(lambda: messages(receiver)["demo"] == 2, what="the second incident's message")


def test_a_reminder_comes_until_it_is_acknowledged(daemon: Daemon, person: Person) -> None:
    with receiving() as receiver:
        webhook(daemon, receiver)
        daemon.start()
        for name in ("demo", "other"):
            person.starts(person.directory(name, toml=OFTEN), COMMAND)
        wait_for(lambda: min(map(messages(receiver).__getitem__, ("demo", "other"))) >= 2, what="reminders")
        reminder = [each for each in daemon.events("ralph.escalated") if each["ralph"] == "demo"][-1]["data"]
        assert reminder["message"].startswith("Ralph has needed you for under a minute: Ralph exited")
        assert (reminder["do"], reminder["held_back"]) == ("ralphctl explain demo", 0)

        said = person("ack", "demo")
        assert said.returncode == 0
        assert said.stdout.startswith("demo: acknowledged: Ralph exited (exit 1)")
        told = len([each for each in daemon.events("ralph.escalated") if each["ralph"] == "demo"])
        so_far = messages(receiver)["other"]
        wait_for(lambda: messages(receiver)["other"] >= so_far + 2, what="two more of the other one")
        assert len([each for each in daemon.events("ralph.escalated") if each["ralph"] == "demo"]) == told
        assert daemon.view("demo")["incident"]["acknowledged_at"]

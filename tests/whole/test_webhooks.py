"""Webhooks with a real daemon and a person: added, killed while it sends, sent again; no secret anywhere."""

import json
import re
import socket
import sys
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.helpers import wait_for
from tests.notify.receiver import Received, Receiver, receiving, status
from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.person import Person

ALLOWED = "[notify]\nallow_private = true\n"
SECRET = "whsec_aHVzaCBodXNoIGh1c2g="
AT_ONCE = "[regent]\nmax_retries = 1\n"


def added(person: Person, url: str, *words: str) -> tuple[str, str]:
    """The id of a webhook that a person adds with one command, and what was printed."""
    said = person("webhooks", "add", "--allow-private", *words, url)
    assert said.returncode == 0, said
    found = re.match(r"Added webhook (\S+):", said.stdout)
    assert found is not None, said
    every = person.daemon.ask("GET", "/v1/webhooks")["webhooks"]
    return next(each["id"] for each in every if each["name"] == found[1]), said.stdout


def fails_for_good(person: Person) -> None:
    """A ralph that calls a person with its first failure."""
    person.starts(person.directory(toml=AT_ONCE), player("exits", 1))


def arrived(receiver: Receiver, count: int) -> list[Received]:
    return wait_for(lambda: receiver.received if len(receiver.received) >= count else [], what="the webhook")


def everything_but(daemon: Daemon, secret: Path) -> bytes:
    """All that the daemon has written, its output, and how it was called."""
    files = [each for each in daemon.root.rglob("*") if each.is_file() and each != secret]
    called = Path(f"/proc/{daemon.pid}/cmdline").read_bytes()
    return called + b"".join(each.read_bytes() for each in files)


def test_a_message_is_sent_again_by_the_next_daemon_and_its_secret_is_nowhere(daemon: Daemon) -> None:
    person = Person(daemon)
    person.configures(ALLOWED)
    with receiving() as receiver:
        daemon.start(failpoints=["webhook.arrived"])
        id, printed = added(person, receiver.url)
        (secret,) = re.findall(r"secret: (whsec_\S+)", printed)
        fails_for_good(person)
        daemon.died()  # it had arrived, and nobody knew
        daemon.start()
        first, second, *more = arrived(receiver, 2)

        def delivered() -> bool:
            [delivery] = daemon.ask("GET", f"/v1/webhooks/{id}/deliveries")["deliveries"]
            return bool(delivery["state"] == "delivered")

        wait_for(delivered, what="a delivery that is known to have arrived")
        asked = ("/v1/webhooks", "/v1/deliveries", "/v1/status")
        shown = [person("webhooks", "list").stdout, *(json.dumps(daemon.ask("GET", each)) for each in asked)]
        kept = daemon.state / "webhooks" / f"{id}.secret"
        assert kept.read_text().strip() == secret
        assert secret not in "".join(shown)
        assert secret.encode() not in everything_but(daemon, kept)

    assert first.message_id == second.message_id
    assert more == []
    for each in (first, second):
        body = Webhook(secret).verify(each.body, each.headers)
        assert body["data"]["data"]["message"].startswith("Ralph exited (exit 1)")


def test_the_address_in_a_typed_command_is_kept_with_the_webhook_alone(daemon: Daemon) -> None:
    person = Person(daemon)
    daemon.start()
    assert person("webhooks", "add", "--format", "ntfy", "https://ntfy.example/sEcr3t-topic").returncode == 0
    [accepted] = daemon.events("request.accepted")
    assert "--format ntfy https://ntfy.example/…" in accepted["data"]["by"]["command"]
    assert b"sEcr3t" not in everything_but(daemon, daemon.state / "webhooks.json")


def test_a_command_of_the_own_file_prints_the_secret_and_a_repository_cannot_name_one(daemon: Daemon) -> None:
    person = Person(daemon)
    with receiving() as receiver:
        hook = f'[[webhooks]]\nurl = "{receiver.url}"\nsecret_cmd = ["/bin/echo", "{SECRET}"]\n'
        person.configures(ALLOWED + hook + "allow_private = true\n")
        daemon.start()
        listed = person("webhooks", "show", "127.0.0.1").stdout
        assert "printed by /bin/echo" in listed and SECRET not in listed
        fails_for_good(person)
        [first] = arrived(receiver, 1)
    Webhook(SECRET).verify(first.body, first.headers)
    said = person("start", str(person.directory("other", toml=hook)), "--", *player("exits", 1))
    assert said.returncode == 78 and "the user's own file" in said.stderr, said


def test_a_receiver_that_is_gone_gets_nothing_until_a_person_tests_it(daemon: Daemon) -> None:
    person = Person(daemon)
    with receiving(status(410)) as receiver, receiving() as configured:
        person.configures(
            f'{ALLOWED}\n[[webhooks]]\nurl = "{configured.url}"\nformat = "slack"\nallow_private = true\n'
        )
        daemon.start()
        id, _ = added(person, receiver.url, "--format", "ntfy")
        fails_for_good(person)
        arrived(receiver, 1)
        assert "ralphctl explain demo" in json.loads(arrived(configured, 1)[0].body)["text"]
        wait_for(lambda: daemon.status()["daemon"]["problems"], what="the problem")
        [problem] = daemon.status()["daemon"]["problems"]
        assert "ralphctl webhooks test ntfy" in problem
        [lost] = daemon.ask("GET", f"/v1/webhooks/{id}/deliveries")["deliveries"]
        assert daemon.api("POST", f"/v1/deliveries/{lost['id']}/replay").status == 409
        assert person("webhooks", "test", id).returncode == 0
        daemon.ask("POST", f"/v1/deliveries/{lost['id']}/replay")
        _, test, again = arrived(receiver, 3)
        assert daemon.status()["daemon"]["problems"] == []

        own = next(each for each in daemon.ask("GET", "/v1/webhooks")["webhooks"] if each["origin"] == "file")
        refused = person("webhooks", "remove", own["id"])

    assert test.headers["title"] == "ralphd: a test message"
    assert again.message_id == lost["message_id"]
    assert again.headers["priority"] == "5"
    assert refused.returncode == 1
    assert f"it is configured in {daemon.root}/config/ralph/config.toml:4" in refused.stderr


LOOP = f"""
'{sys.executable}' -P -m ralphctl notify iteration-started --task parse --title 'Parse dates'
'{sys.executable}' -P -m ralphctl notify cost 0.25
printf '\\033[31mError: boom\\033[0m\\n'
exit 3
"""


def test_from_nothing_a_crash_is_one_message_with_all_that_a_person_needs(daemon: Daemon) -> None:
    person = Person(daemon)
    with receiving() as people, receiving() as program:
        daemon.start()
        added(person, people.url, "--format", "slack", "--on", "*", "--name", "phone")
        added(person, program.url, "--on", "ralph.*")
        assert person("webhooks", "test", "phone").returncode == 0
        person.starts(person.directory(toml=AT_ONCE), ("sh", "-c", LOOP))
        daemon.becomes("demo", "failed")
        types = ["ralph.registered", "ralph.started", "ralph.exited", "ralph.escalated", "ralph.failed"]
        sent = [json.loads(each.body)["data"] for each in arrived(program, len(types))]
        _, alert = arrived(people, 2)
        assert "phone" in person("webhooks", "list").stdout
        assert person("webhooks", "show", "phone").returncode == 0
        assert person("webhooks", "remove", "phone").returncode == 0

    assert len(people.received) == 2  # the test and the alert
    text = json.loads(alert.body)["text"]
    here, place = socket.gethostname(), person.daemon.home / "demo"
    for part in (
        "*demo: needs you*",
        "Task: Parse dates",
        "`ralphctl explain demo`",
        "```\nError: boom\n```",
    ):
        assert part in text
    assert f"{here} · {place} · $0.25 tonight · " in text
    assert [each["type"] for each in sent] == types
    last = sent[-1]
    assert (last["host"], last["task"]["id"], last["cost_tonight_usd"]) == (here, "parse", 0.25)
    assert (last["last_lines"], last["directory"]) == (["Error: boom"], str(place))
    assert last["data"] == {"message": sent[-2]["data"]["message"], "escalated": True}


def test_what_cannot_be_a_webhook_is_refused_in_plain_words(daemon: Daemon) -> None:
    person = Person(daemon)
    daemon.start()
    wrong = {
        "http://127.0.0.1:9/x": "127.0.0.1 is a private address\n  try: ralphctl webhooks add --allow",
        "https://x.example/" + "a" * 2100: "the URL has 2118 characters, more than 2048",
        "ftp://x.example": "the URL has to be an http or https URL",
    }

    for url, why in wrong.items():
        refused = person("webhooks", "add", url)
        assert (refused.returncode != 0, why in refused.stderr) == (True, True), refused
    named = person("webhooks", "add", "https://x.example", "--name", "My phone", "--json")

    assert "the name has to consist of a-z" in named.stderr
    assert "Traceback" not in named.stderr and "Errno" not in named.stderr
    assert not (daemon.root / "config" / "ralph").exists()


def test_an_alert_reaches_the_desktop_and_marks_its_event_for_terminals(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain, shown = daemon.environment, tmp_path / "shown"
    (tmp_path / "notify-send").write_text(
        f"""#!/bin/sh\nprintf '%s\\n' "$@" >'{shown}.new'; mv '{shown}.new' '{shown}'"""
    )
    (tmp_path / "notify-send").chmod(0o755)
    session = {"PATH": f"{tmp_path}:{plain['PATH']}", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}
    monkeypatch.setattr(Daemon, "environment", plain | session)
    person = Person(daemon)
    person.configures("[notify]\ndesktop = true\n")
    daemon.start()
    fails_for_good(person)
    daemon.becomes("demo", "failed")

    [alert] = daemon.events("ralph.escalated")
    assert alert["data"]["desktop"] is True
    wait_for(shown.exists, what="the notification")
    assert "demo: needs you\nRalph exited (exit 1)" in shown.read_text()

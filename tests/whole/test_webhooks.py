"""Webhooks with a real daemon and a person: added, killed while it sends, sent again; no secret anywhere."""

import json
import re
from pathlib import Path

from standardwebhooks import Webhook

from tests.helpers import wait_for
from tests.notify.receiver import Received, Receiver, receiving, status
from tests.players import player
from tests.whole.harness import Daemon
from tests.whole.person import Person

ALLOWED = "[notify]\nallow_private = true\n"
AT_ONCE = "[regent]\nmax_retries = 1\n"


def added(person: Person, url: str, *words: str) -> tuple[str, str]:
    """The id of a webhook that a person adds, and what was printed."""
    said = person("webhooks", "add", "--allow-private", *words, url)
    assert said.returncode == 0, said
    found = re.match(r"webhook (\w+) added", said.stdout)
    assert found is not None, said
    return found[1], said.stdout


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
        assert f"ralphctl webhooks test {id}" in problem
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

"""The daemon's webhooks: added, tested, replayed, gone, and what is refused; a real receiver and store."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from standardwebhooks import Webhook

from ralphd.config.configuration import Configuration
from ralphd.config.layers import Origin
from ralphd.config.specs import NotifySpec, WebhookSpec
from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import Destination, Format, StoredEvent
from ralphd.daemon.lifecycle import Roster
from ralphd.daemon.regent import Regent
from ralphd.daemon.services import EventPublisher, Services, UserConfiguration
from ralphd.daemon.webhook_views import Hook, configured
from ralphd.daemon.webhooks import DaemonsWebhooks, _with_figures
from ralphd.errors import (
    DaemonBusy,
    NewerState,
    NotFound,
    PrivateAddress,
    UsageError,
    WebhookConflict,
    WebhookRefused,
)
from ralphd.notify import client
from ralphd.notify.client import WebhookClient
from ralphd.notify.hub import Hub
from ralphd.notify.worker import DeliveryWorker
from ralphd.process.machine import Clock
from ralphd.store.events import EventStore
from ralphd.store.webhooks import Added
from tests.helpers import eventually
from tests.notify.receiver import Handler, Receiver, receiving, status

PRIVATE = NotifySpec(allow_private=True)


@dataclass
class Desk:
    """The webhooks of one daemon, its news and its sender under way."""

    webhooks: DaemonsWebhooks
    services: Services
    events: EventStore
    users: UserConfiguration

    async def add(self, receiver: Receiver, **more: object) -> str:
        new = replace(Destination(receiver.url, allow_private=True), **more)  # type: ignore[arg-type]  # test's own
        return str((await self.webhooks.add(new))["id"])

    async def tell(self, ralph: str = "demo") -> None:
        await self.services.news.tell("ralph.escalated", {"message": "x"}, ralph=ralph)

    async def states(self, id: str) -> list[str]:
        return [each["state"] for each in await self.webhooks.deliveries(id, 20)]

    async def settled(self, id: str) -> list[str]:
        """The states of its deliveries, once none waits."""
        async with asyncio.timeout(10):
            while "pending" in (found := await self.states(id)):
                await asyncio.sleep(0.005)
        return found


@asynccontextmanager
async def desk(
    state: Path, *, notify: NotifySpec = PRIVATE, environ: Mapping[str, str] | None = None
) -> AsyncIterator[Desk]:
    state.mkdir(exist_ok=True)
    clock, events = Clock(), await EventStore.open(state / "events.db")
    carries = WebhookClient(lambda event: webhooks.facts_of(event), environ=environ or {})
    sender = DeliveryWorker(events, lambda: webhooks, carries)
    services = Services(
        state_directory=state,
        socket_path=state / "ralphd.sock",
        umask=0o077,
        clock=clock,
        news=EventPublisher(events, Hub(), clock, sender.nudge),
        refusals=lambda: webhooks.refusals(),
    )
    users = UserConfiguration(services)
    users.present = replace(Configuration(), notify=notify)
    webhooks = DaemonsWebhooks(services, users, Roster(state / "ralphs"), carries)
    await webhooks.read()
    running = asyncio.create_task(sender.run())
    try:
        yield Desk(webhooks, services, events, users)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await events.close()


async def test_one_that_was_added_is_told_signed_with_a_secret_that_is_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    with receiving() as receiver:
        async with desk(tmp_path) as one:
            new = Destination(receiver.url + "/T0ken", allow_private=True)
            added = await one.webhooks.add(new)
            path = Path(added["secret"]["name"])
            secret = path.read_text().strip()
            await one.tell()
            await eventually(lambda: receiver.received)
            assert await one.settled(added["id"]) == ["delivered"]
            shown = json.dumps(
                [
                    added,
                    await one.webhooks.views(),
                    await one.webhooks.deliveries(None, 9),
                    one.services.problems(),
                ]
            )

    assert (added["secret"]["origin"], added["secret_made"], added["replaced"]) == ("made", True, False)
    Webhook(secret).verify(receiver.received[0].body, receiver.received[0].headers)
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each != path]
    everywhere = shown.encode() + caplog.text.encode() + b"".join(each.read_bytes() for each in files)
    assert secret.encode() not in everywhere
    assert "T0ken" not in shown + caplog.text, "an address may be a password as well"


async def test_added_again_it_is_replaced_and_keeps_the_secret_that_its_receiver_knows(
    tmp_path: Path,
) -> None:
    with receiving() as receiver:
        async with desk(tmp_path, environ={"MINE": "mine"}) as one:
            first = await one.webhooks.add(Destination(receiver.url, allow_private=True))
            path = Path(first["secret"]["name"])
            secret = path.read_text()
            again = await one.webhooks.add(Destination(receiver.url, ("*",), allow_private=True))
            assert (again["replaced"], again["secret_made"], again["on"]) == (True, False, ["*"])
            assert path.read_text() == secret
            own = await one.webhooks.add(Destination(receiver.url, secret_env="MINE", allow_private=True))
            assert own["secret"] == {"origin": "environment", "name": "MINE"}
            assert not path.exists(), "what signs nothing any more is not kept"
            assert len(await one.webhooks.views()) == 1


async def test_a_secret_of_a_daemon_that_died_while_it_added_is_not_taken_for_this_one(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path) as one:
        added = await one.webhooks.add(Destination("https://one.example/"))
        (tmp_path / "webhooks.json").unlink()
        left = Path(added["secret"]["name"]).read_text()
    async with desk(tmp_path) as one:
        again = await one.webhooks.add(Destination("https://one.example/"))
        assert again["secret_made"]
        assert Path(again["secret"]["name"]).read_text() != left


async def test_what_slack_and_ntfy_get_is_not_signed_unless_asked_for(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver, format=Format.NTFY)
            assert (await one.webhooks.test(id))["arrived"]
    headers = receiver.received[0].headers
    assert headers["title"] == "ralphd: a test message"
    assert "webhook-signature" not in headers


async def test_what_was_added_outlives_the_daemon_until_it_is_removed(tmp_path: Path) -> None:
    with receiving(status(500)) as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver)
        async with desk(tmp_path) as one:
            (view,) = await one.webhooks.views()
            assert (view["id"], view["origin"], view["last"]) == (id, "added", None)
            await one.tell()
            await eventually(lambda: receiver.received)
            await one.webhooks.remove(id)
            assert await one.states(id) == ["given_up"]
            assert await one.webhooks.views() == []
            assert not Path(view["secret"]["name"]).exists()
            await one.tell()
            assert await one.states(id) == ["given_up"]
            with pytest.raises(NotFound):
                await one.webhooks.remove(id)
        async with desk(tmp_path) as one:
            assert await one.webhooks.views() == []


async def test_what_was_added_outlives_its_file(tmp_path: Path) -> None:
    file = tmp_path / "webhooks.json"
    with receiving(status(200)) as receiver:
        async with desk(tmp_path) as one:
            await one.webhooks.keep()
            assert not file.exists(), "nothing was added"
            id = await one.add(receiver)
            file.unlink()
            await one.webhooks.keep()
        async with desk(tmp_path) as one:
            assert [view["id"] for view in await one.webhooks.views()] == [id]


async def test_410_stands_over_a_restart_until_a_test_arrives_and_replay_sends_what_was_lost(
    tmp_path: Path,
) -> None:
    with receiving(status(410)) as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver)
            await one.tell()
            assert await one.settled(id) == ["given_up"]
            assert (
                "410" in one.services.problems()[0]
                if one.services.problems()
                else one.webhooks.refusals()[id]
            )
        async with desk(tmp_path) as one:
            await one.tell()
            assert await one.settled(id) == ["given_up"] * 2
            assert len(receiver.received) == 1
            (view,) = await one.webhooks.views()
            assert view["gone"]["why"] == "answered 410 Gone"
            lost = view["last"]["id"]
            with pytest.raises(WebhookConflict):
                await one.webhooks.replay(lost)
            tested = await one.webhooks.test(id)
            assert (tested["arrived"], tested["status"], tested["back"]) == (True, 200, True)
            again = await one.webhooks.replay(lost)
            assert await one.settled(id) == ["delivered", "given_up", "given_up"]
            assert one.webhooks.refusals() == {}
    assert receiver.message_ids[-1] == again["message_id"] == view["last"]["message_id"]


@pytest.mark.parametrize(
    ("reply", "word"),
    [(status(302, location="http://127.0.0.1:1/"), "redirect"), (status(500), "500"), (status(410), "410")],
)
async def test_a_test_says_why_it_did_not_arrive(tmp_path: Path, reply: object, word: str) -> None:
    with receiving(reply) as receiver:  # type: ignore[arg-type]  # one of the replies above
        async with desk(tmp_path) as one:
            id = await one.add(receiver)
            tested = await one.webhooks.test(id)
            assert not tested["arrived"]
            assert word in tested["why"]
            assert (id in one.webhooks.refusals()) is (word == "410")
    assert len(receiver.received) == 1


async def test_a_test_of_a_receiver_that_hangs_or_is_not_there_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SEND_LIMIT_S", 0.3)

    def hang(handler: Handler) -> None:
        receiver.closing.wait(5)

    with receiving(hang) as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver)
            assert "no reply within" in (await one.webhooks.test(id))["why"]
    async with desk(tmp_path) as one:
        tested = await one.webhooks.test(id)
        assert (tested["status"], tested["arrived"]) == (None, False)
        assert "no connection" in tested["why"]
        with pytest.raises(NotFound):
            await one.webhooks.test("0123456789abcdef")


async def test_a_test_that_arrives_lets_what_waits_go_now(tmp_path: Path) -> None:
    with receiving(status(500)) as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver)
            await one.tell()
            await eventually(lambda: receiver.received)
            await one.webhooks.test(id)
            assert await one.settled(id) == ["delivered"]
    assert receiver.message_ids[0] == receiver.message_ids[2]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost:8000/x",
        "http://a.localhost",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://192.168.1.7/",
    ],
)
async def test_a_private_address_is_refused_unless_file_and_flag_allow_it(tmp_path: Path, url: str) -> None:
    async with desk(tmp_path, notify=NotifySpec()) as one:
        with pytest.raises(WebhookRefused) as caught:
            await one.webhooks.add(Destination(url))
        assert caught.value.mend == "ralphctl webhooks add --allow-private URL"
        with pytest.raises(PrivateAddress, match="allow_private = true"):
            await one.webhooks.add(Destination(url, allow_private=True))
        one.users.present = replace(one.users.present, notify=PRIVATE)
        with pytest.raises(WebhookRefused):
            await one.webhooks.add(Destination(url))
        assert (await one.webhooks.add(Destination(url, allow_private=True)))["allow_private"]


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/latest", "http://[fd00:ec2::254]/", "http://[64:ff9b::a9fe:a9fe]/"]
)
async def test_a_metadata_service_is_refused_whatever_is_allowed(tmp_path: Path, url: str) -> None:
    async with desk(tmp_path) as one:
        with pytest.raises(WebhookRefused, match="metadata"):
            await one.webhooks.add(Destination(url, allow_private=True))
        assert not (tmp_path / "webhooks.json").exists()


async def test_what_the_users_file_takes_back_is_taken_back_from_what_was_added(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver)
            one.users.present = Configuration()
            assert "private" in (await one.webhooks.test(id))["why"]
    assert receiver.received == []


@pytest.mark.parametrize(
    "new",
    [
        Destination("file:///etc/passwd"),
        Destination("https://me:word@one.example/"),
        Destination("ftp://one.example/"),
        Destination("https://one.example/\nX: y"),
        Destination("https://one.example/" + "a" * 3000),
        Destination("https://one.example/\0"),
        Destination("https://one.example/", name="My Phone"),
        Destination("https://one.example/", name="../x"),
        Destination("https://one.example/", name="0123456789abcdef"),
        Destination("https://one.example/", ("ralph.esclated",)),
        Destination("https://one.example/", ()),
        Destination("https://one.example/", secret_file="/a", secret_env="B"),
    ],
)
async def test_what_cannot_be_a_webhook_is_refused_with_what_to_do(tmp_path: Path, new: Destination) -> None:
    async with desk(tmp_path) as one:
        with pytest.raises(UsageError) as caught:
            await one.webhooks.add(new)
        assert "passwd" not in str(caught.value) and "word@" not in str(caught.value)
        assert await one.webhooks.views() == []


@pytest.mark.parametrize("new", [{"secret_file": "/not/there"}, {"secret_env": "NOT_THERE"}])
async def test_a_secret_that_cannot_be_read_is_told_at_once(tmp_path: Path, new: dict[str, str]) -> None:
    async with desk(tmp_path) as one:
        with pytest.raises(WebhookRefused, match="secret cannot be used"):
            await one.webhooks.add(Destination("https://one.example/", **new))  # type: ignore[arg-type]  # two of its words
        assert await one.webhooks.views() == []


async def test_a_broken_file_is_kept_and_told_and_a_newer_one_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "webhooks.json").write_text("{")
    async with desk(tmp_path) as one:
        assert "damaged" in one.services.problems()[0]
        (event,) = await one.events.last(1)
        assert (event.type, event.data["file"]) == ("state.recovered", "webhooks.json")
        assert Path(event.data["kept_as"]).read_text() == "{"
        await one.webhooks.add(Destination("https://one.example/"))
        assert one.services.problems() == []
    (tmp_path / "webhooks.json").write_text('{"version": 9}')
    async with desk(tmp_path) as one:
        assert "newer ralphd" in one.services.problems()[0]
        with pytest.raises(NewerState):
            await one.webhooks.add(Destination("https://two.example/"))
        await one.webhooks.note_gone("abc", "answered 410 Gone")
        assert one.webhooks.why_gone("abc")
    assert (tmp_path / "webhooks.json").read_text() == '{"version": 9}'


async def test_a_disk_that_takes_nothing_refuses_a_new_one_and_changes_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        (tmp_path / "webhooks.json").mkdir()  # nothing can be put in its place now
        with pytest.raises(DaemonBusy, match=r"webhooks\.json was not changed"):
            await one.webhooks.add(Destination("https://one.example/"))
        assert await one.webhooks.views() == []
        assert "cannot be written" in one.services.problems()[0]
        await one.webhooks.note_gone("abc", "answered 410 Gone")
        assert one.webhooks.why_gone("abc"), "what a receiver said holds, written down or not"
        (tmp_path / "webhooks.json").rmdir()
        await one.webhooks.add(Destination("https://one.example/"))
        assert one.services.problems() == []


def a_configuration(url: str, origin: str) -> Configuration:
    return replace(Configuration(), webhooks=(WebhookSpec(url=url),), origins={"webhooks[0]": Origin(origin)})


async def test_those_of_files_are_listed_with_their_place_and_are_not_removed(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        one.users.present = a_configuration("https://one.example/", "/home/me/config.toml:7")
        (view,) = await one.webhooks.views()
        assert (view["origin"], view["place"], view["ralphs"]) == ("file", "/home/me/config.toml:7", None)
        with pytest.raises(WebhookConflict) as caught:
            await one.webhooks.remove(view["id"])
        assert "/home/me/config.toml:7" in caught.value.what
        assert caught.value.mend == (
            "delete this [[webhooks]] entry from /home/me/config.toml, then ralphctl regent reload"
        )
        with pytest.raises(WebhookConflict, match="already configured in /home/me"):
            await one.webhooks.add(Destination("https://one.example/"))


def test_a_repository_that_names_the_address_of_another_webhook_changes_nothing_about_it() -> None:
    mine = Added(Destination("https://one.example/", secret_file="/mine", name="one.example"), 0.0)
    users = a_configuration("https://all.example/", "/home/me/config.toml:1")
    theirs = [
        ("a", Path("/srv/a"), a_configuration(url, "ralph.toml:3"))
        for url in ("https://one.example/", "https://all.example/")
    ]

    hooks = configured(users, theirs, {mine.destination.id: mine})

    assert hooks[mine.destination.id] == Hook(mine.destination, added=mine)
    assert [hook.place for hook in hooks.values()] == [None, "/home/me/config.toml:1"]


def test_a_private_address_that_the_users_file_allows_no_longer_is_closed_for_a_ralph_too() -> None:
    hook = WebhookSpec(url="http://127.0.0.1:1/", allow_private=True)  # allowed when the ralph was started
    pinned = replace(Configuration(), webhooks=(hook,), origins={"webhooks[0]": Origin("ralph.toml:3")})
    ralphs = [("a", Path("/srv/a"), pinned)]
    for own_file, is_open in ((None, True), ("/home/me/config.toml", False)):
        [known] = configured(Configuration(), ralphs, {}, own_file).values()
        assert known.destination.allow_private is is_open


def test_one_that_two_ralphs_name_is_one_and_names_both() -> None:
    users = a_configuration("https://all.example/", "/home/me/config.toml:1")
    of_one = a_configuration("https://one.example/", "ralph.toml:3")
    inherited = replace(users, origins={"webhooks[0]": Origin("/home/me/config.toml:1")})
    ralphs = [("a", Path("/srv/a"), of_one), ("b", Path("/srv/b"), of_one), ("c", Path("/srv/c"), inherited)]

    hooks = configured(users, ralphs, {}).values()
    others = configured(Configuration(), ralphs[2:], {}, "/home/me/config.toml")

    assert (len(others), len(configured(Configuration(), ralphs[2:], {}))) == (0, 1)
    assert [(hook.destination.url, hook.place, hook.ralphs) for hook in hooks] == [
        ("https://all.example/", "/home/me/config.toml:1", None),
        ("https://one.example/", "/srv/a/ralph.toml:3", ("a", "b")),
    ]


async def test_a_webhook_is_found_by_name_and_by_id(tmp_path: Path) -> None:
    with receiving() as receiver:
        async with desk(tmp_path) as one:
            id = await one.add(receiver, name="phone")
            assert (await one.webhooks.test("phone"))["arrived"]
            assert (await one.webhooks.test(id))["name"] == "phone"
            await one.tell()
            assert await one.settled("phone") == ["delivered"]
            await one.webhooks.remove("phone")
            assert await one.webhooks.views() == []


async def test_names_are_unique_and_stay_when_a_webhook_is_added_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as one:
        for path in ("a", "b"):
            await one.webhooks.add(Destination(f"https://one.example/{path}"))
        await one.webhooks.add(Destination("https://one.example/a", on=("*",)))
        with pytest.raises(WebhookConflict, match="another webhook has the name"):
            await one.webhooks.add(Destination("https://two.example/", name="one.example-2"))
        one.users.present = a_configuration("https://one.example/c", "/home/me/config.toml:7")
        assert [each["name"] for each in await one.webhooks.views()] == [
            "one.example",
            "one.example-2",
            "one.example-3",
        ]
        await one.webhooks.remove("one.example")
        await one.webhooks.add(Destination("https://one.example/b", name="phone"))
    async with desk(tmp_path) as one:
        assert [each["name"] for each in await one.webhooks.views()] == ["phone"]


async def test_one_name_in_two_files_belongs_to_the_first(tmp_path: Path) -> None:
    first, second = (WebhookSpec(url=f"https://{host}.example/", name="phone") for host in "ab")
    users = replace(Configuration(), webhooks=(first, second))

    hooks = configured(users, [], {})

    assert [hook.destination.name for hook in hooks.values()] == ["phone", "b.example"]


def test_a_refused_landing_carries_the_end_of_its_tests() -> None:
    regent = SimpleNamespace(account=SimpleNamespace(history=SimpleNamespace(backwards=lambda: iter(()))))
    data = {"message": "ralph/api does not land on main", "tail": "FAILED test_a\n\nexit 1"}
    event = StoredEvent(1, "landing.refused", "2026-11-21T06:00:00.000000Z", "api", None, data)
    facts = _with_figures(AlertFacts("here"), event, cast(Regent, regent))
    assert facts.last_lines == ("FAILED test_a", "exit 1")

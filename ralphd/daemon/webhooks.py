"""The daemon's webhooks: those of all files, those added over the API, and the requests about them."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ralphd.core import delivery
from ralphd.core.delivery import Destination, Format, StoredEvent
from ralphd.core.time import rfc3339
from ralphd.daemon import webhook_views
from ralphd.daemon.webhook_views import Hook, View
from ralphd.errors import DaemonBusy, NewerState, NotFound, WebhookConflict, WebhookRefused
from ralphd.store.files import Broken
from ralphd.store.webhooks import MOST_WEBHOOKS, WEBHOOKS_FILE, Added, Gone, Webhooks, WebhooksFile

if TYPE_CHECKING:
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.services import Services, UserConfiguration
    from ralphd.notify.client import WebhookClient
    from ralphd.store.events import EventStore

logger = logging.getLogger(__name__)

TEST_TYPE = "webhook.test"


class DaemonsWebhooks:
    """All webhooks of a daemon. Used on the event loop only; changes are made one after the other."""

    def __init__(
        self,
        services: "Services",
        events: "EventStore",
        users: "UserConfiguration",
        roster: "Roster",
        *,
        courier: "WebhookClient",
        nudge: Callable[[], None],
    ) -> None:
        self._services = services
        self._events = events
        self._users = users
        self._roster = roster
        self._courier = courier
        self._nudge = nudge
        self._file = WebhooksFile(services.state_directory)
        self._stored = Webhooks()
        self._newer: NewerState | None = None
        self._changing = asyncio.Lock()

    async def read(self) -> None:
        """Load what an earlier daemon stored. An unreadable file is reported, and hinders no start."""
        try:
            self._stored = await asyncio.to_thread(self._file.load)
        except NewerState as fault:
            self._newer = fault
            self._services.trouble(WEBHOOKS_FILE, str(fault))
        except Broken as broken:
            what = f"it was damaged ({broken.why}); webhooks that were added have to be added again"
            self._services.trouble(WEBHOOKS_FILE, what)
            kept_as = str(broken.kept_as) if broken.kept_as else None
            data = {"file": WEBHOOKS_FILE, "kept_as": kept_as, "rebuilt_from": "nothing"}
            await self._services.news.tell("state.recovered", data)
        self._services.news.added = self._added()

    # --- for the delivery worker ----------------------------------------------------------------------

    def destinations(self) -> Mapping[str, Destination]:
        """Return where deliveries go, by id, over all files and all that was added."""
        return {id: hook.destination for id, hook in self._every().items()}

    def why_gone(self, destination_id: str) -> str | None:
        """Return why a destination wants nothing more, if its receiver answered so."""
        gone = self._stored.gone.get(destination_id)
        return None if gone is None else gone.why

    async def note_gone(self, destination_id: str, why: str) -> None:
        """Stop deliveries to a destination. On a full disk that holds until the daemon ends."""
        async with self._changing:
            self._stored = self._stored.with_gone(destination_id, Gone(why, self._services.clock.now()))
            with suppress(DaemonBusy):
                await self._save(self._stored)

    def refusals(self) -> Mapping[str, str]:
        """Return the problem of each destination that wants nothing more, by its id."""
        if not self._stored.gone:
            return {}
        known = self.destinations()
        return {
            id: f"webhook {known[id].label} {gone.why}: nothing more is sent there;"
            f" ralphctl webhooks test {id} asks it again"
            for id, gone in self._stored.gone.items()
            if id in known
        }

    # --- for the API ----------------------------------------------------------------------------------

    async def views(self) -> list[View]:
        """Return every webhook, with the state of the last message to it."""
        return [await self._view(hook) for hook in self._every().values()]

    async def add(self, asked: Destination) -> View:
        """Add a webhook, or replace one that was added.

        The view holds ``secret_made`` too: a secret was made up now, and lies where the view says. Raises
        UsageError, WebhookRefused, WebhookConflict, DaemonBusy; then nothing was changed.
        """
        async with self._changing:
            self._refuse_newer()
            new = webhook_views.checked(asked, may_be_private=self._users.present.notify.allow_private)
            before = self._stored.added.get(new.id)
            self._refuse_twin(new, before)
            if why := await self._courier.why_unusable(new):
                raise WebhookRefused(
                    f"the secret cannot be used: {why}",
                    why="ralphd reads it for each message, from a file or from the environment it runs in",
                    mend="ralphctl webhooks add URL --secret-file FILE",
                )
            added, made_now = await self._with_secret(new, before)
            await self._save(self._stored.with_added(added))
            if before is not None and before.is_made and not added.is_made:
                await asyncio.to_thread(self._file.forget_secret, new.id)
        logger.info("webhook added: %s", new.label)
        view = await self._view(self._get(new.id))
        return view | {"secret_made": made_now, "replaced": before is not None}

    async def remove(self, id: str) -> None:
        """Remove one that was added; what waits for it is given up. Raises NotFound, WebhookConflict."""
        async with self._changing:
            self._refuse_newer()
            hook = self._get(id)
            if id not in self._stored.added:
                file = (hook.place or "").rpartition(":")[0]
                again = f"ralphctl reload {hook.ralphs[0]}" if hook.ralphs else "ralphctl regent reload"
                raise WebhookConflict(
                    f"{hook.destination.label} is not removed: it is configured in {hook.place}",
                    why="only what `ralphctl webhooks add` has added is removed this way",
                    mend=f"take that [[webhooks]] entry out of {file}, then {again}",
                )
            await self._save(self._stored.without(id))
            await asyncio.to_thread(self._file.forget_secret, id)
        if id not in self._every():  # no file names it as well
            await self._events.abandon(id, "its webhook was removed")
        logger.info("webhook removed: %s", hook.destination.label)

    async def test(self, id: str) -> View:
        """Send a test now and return the answer; one that arrives ends what a 410 has begun."""
        to = self._get(id).destination
        at = self._services.clock.now()
        data = {
            "message": "A test from ralphd: this is where you will be called when a ralph needs you.",
            "do": "ralphctl status",
        }
        event = StoredEvent(0, TEST_TYPE, rfc3339(at), None, None, data)
        began = time.monotonic()
        answer = await self._courier.ask(to, event, f"msg_test_{secrets.token_hex(8)}")
        took_s = time.monotonic() - began
        was_gone = id in self._stored.gone
        why = delivery.why_failed(answer)
        if delivery.is_gone(answer):
            await self.note_gone(id, why or "")
        elif why is None:
            async with self._changing:
                if id in self._stored.gone:
                    await self._save(self._stored.without_gone(id))
            await self._events.hasten(id)
            self._nudge()
        return webhook_views.view_of_test(to, answer, took_s=took_s, is_back=why is None and was_gone)

    async def deliveries(self, id: str | None, limit: int) -> list[View]:
        """Return the last deliveries, newest first: to one webhook, or to all. Raises NotFound."""
        stored = await self._events.deliveries(id, limit)
        if id is not None and not stored:
            self._get(id)
        known = self.destinations()
        return [webhook_views.delivery_view(one, known.get(one.delivery.destination)) for one in stored]

    async def replay(self, delivery_id: int) -> View:
        """Send the message of a delivery again, under its id. Raises NotFound, WebhookConflict."""
        missing = NotFound(
            f"there is no delivery {delivery_id}",
            why="deliveries are kept as long as their event, 30 days",
            mend="ralphctl webhooks deliveries",
        )
        stored = await self._events.delivery(delivery_id)
        if stored is None:
            if why := self._events.degraded:
                raise DaemonBusy("deliveries cannot be read now", why=why, mend="try again later")
            raise missing
        to = self.destinations().get(stored.delivery.destination)
        if to is None:
            raise WebhookConflict(
                f"delivery {delivery_id} has nowhere to go",
                why="its webhook is not configured any more",
                mend="ralphctl webhooks list",
            )
        if why := self.why_gone(to.id):
            raise WebhookConflict(
                f"nothing is sent to {to.label}",
                why=f"it {why}; a test that arrives changes that",
                mend=f"ralphctl webhooks test {to.id}",
            )
        again = await self._events.replay(delivery_id)
        if again is None:
            raise missing
        self._nudge()
        return webhook_views.delivery_view(again, to)

    def _every(self) -> dict[str, Hook]:
        ralphs = [
            (each.name, each.account.definition.directory, each.account.configuration)
            for each in self._roster
        ]
        every = webhook_views.configured(self._users.present, ralphs, self._stored.added)
        if self._users.present.notify.allow_private:
            return every
        # What was added reaches private addresses only as long as the user's own file allows it.
        return {id: hook if hook.place else hook.public_only() for id, hook in every.items()}

    def _get(self, id: str) -> Hook:
        hook = self._every().get(id)
        if hook is None:
            raise NotFound(f"there is no webhook {id[:40]!r}", mend="ralphctl webhooks list")
        return hook

    async def _view(self, hook: Hook) -> View:
        id = hook.destination.id
        return webhook_views.hook_view(hook, self._stored.gone.get(id), await self._events.last_delivery(id))

    def _added(self) -> tuple[Destination, ...]:
        return tuple(one.destination for one in self._stored.added.values())

    async def _save(self, changed: Webhooks) -> None:
        # On disk first: a webhook that was acknowledged is still there after a crash.
        if self._newer is None:
            try:
                await asyncio.to_thread(self._file.save, changed)
            except OSError as fault:
                why = f"it cannot be written: {fault.strerror or fault}"
                self._services.trouble(WEBHOOKS_FILE, why)
                raise DaemonBusy(
                    f"{WEBHOOKS_FILE} was not changed", why=why, mend="ralphctl doctor"
                ) from fault
            self._services.trouble(WEBHOOKS_FILE, None)
        self._stored = changed
        self._services.news.added = self._added()

    def _refuse_newer(self) -> None:
        if self._newer is not None:
            raise self._newer.with_traceback(None)

    def _refuse_twin(self, new: Destination, before: Added | None) -> None:
        if before is not None:
            return
        known = self._every().get(new.id)
        if known is not None and known.ralphs is None:
            raise WebhookConflict(
                f"{new.label} is there already, with this very address",
                why=f"it is configured in {known.place}",
                mend=f"change it there, or ralphctl webhooks test {new.id}",
            )
        if len(self._stored.added) >= MOST_WEBHOOKS:
            raise WebhookConflict(
                f"there are {MOST_WEBHOOKS} webhooks already", mend="ralphctl webhooks remove ID"
            )

    async def _with_secret(self, new: Destination, before: Added | None) -> tuple[Added, bool]:
        """Return the webhook with its secret, and whether one was made up now.

        One is made up once, where the receiver can check it and the request names none.
        """
        now = self._services.clock.now()
        if new.format is not Format.JSON or new.secret_file or new.secret_env:
            return Added(new, now), False
        path = self._file.secret_path(new.id)
        make = before is None or not before.is_made or not path.exists()
        if make:
            text = delivery.secret_text(secrets.token_bytes(delivery.SECRET_BYTES))
            try:
                await asyncio.to_thread(self._file.keep_secret, new.id, text)
            except OSError as fault:
                why = f"{path}: {fault.strerror}"
                raise DaemonBusy("the webhook's secret cannot be written", why=why) from fault
        return Added(replace(new, secret_file=str(path)), now, is_made=True), make

"""The daemon's webhooks: those of all files, those added over the API, and the requests about them."""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

from ralphd.config.values import page_address
from ralphd.core import alert, delivery
from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import Destination, Format, StoredEvent
from ralphd.core.supervision.model import RunId
from ralphd.core.time import parse_rfc3339, rfc3339
from ralphd.daemon import webhook_views
from ralphd.daemon.webhook_views import Hook, View
from ralphd.dataclass import dataclass
from ralphd.errors import DaemonBusy, NewerState, NotFound, WebhookConflict, WebhookRefused
from ralphd.plain_files import status_of
from ralphd.store.files import Broken
from ralphd.store.webhooks import MOST_WEBHOOKS, WEBHOOKS_FILE, Added, Gone, Webhooks, WebhooksFile

if TYPE_CHECKING:
    from ralphd.daemon.lifecycle import Roster
    from ralphd.daemon.regent import Regent
    from ralphd.daemon.services import Services, UserConfiguration
    from ralphd.notify.client import WebhookClient

logger = logging.getLogger(__name__)

TEST_TYPE = "webhook.test"
_EVENTS_LOOKED_AT = 300
_ENTRIES_LOOKED_AT = 5000


@dataclass(eq=False)
class DaemonsWebhooks:
    """All webhooks of a daemon. Used on the event loop only; changes do not overlap."""

    _services: "Services"
    _users: "UserConfiguration"
    _roster: "Roster"
    _courier: "WebhookClient"

    def __post_init__(self) -> None:
        self._events = self._services.news.events
        self._file = WebhooksFile(self._services.state_directory)
        self._stored = Webhooks()
        self._newer: NewerState | None = None
        self._changing = asyncio.Lock()

    async def read(self) -> None:
        """Load what an earlier daemon stored. Report an unreadable file and continue."""
        try:
            self._stored = await asyncio.to_thread(self._file.load)
        except NewerState as fault:
            self._newer = fault
            self._services.trouble(WEBHOOKS_FILE, str(fault))
        except Broken as broken:
            self._services.trouble(WEBHOOKS_FILE, f"it was damaged ({broken.why}); add its webhooks again")
            kept_as = str(broken.kept_as) if broken.kept_as else None
            data = {"file": WEBHOOKS_FILE, "kept_as": kept_as, "rebuilt_from": "nothing"}
            await self._services.news.tell("state.recovered", data)
        self._services.news.added = self._added()

    async def keep(self) -> None:
        """Write the file again if it was deleted: the next daemon would know no added webhook."""
        if self._stored != Webhooks() and status_of(self._file.path) is None:
            async with self._changing:
                with suppress(DaemonBusy):
                    await self._save(self._stored)

    # --- for the delivery worker ----------------------------------------------------------------------

    def destinations(self) -> Mapping[str, Destination]:
        """Return all destinations by id, from files and added ones."""
        return {id: hook.destination for id, hook in self._every().items()}

    def why_gone(self, destination_id: str) -> str | None:
        """Return why a destination is disabled (its receiver answered 410), or None."""
        gone = self._stored.gone.get(destination_id)
        return None if gone is None else gone.why

    async def facts_of(self, event: StoredEvent) -> AlertFacts:
        """Return the facts to send with an event. Raises nothing: what cannot be read is missing."""
        host = socket.gethostname()
        regent = next((each for each in self._roster if each.name == event.ralph), None)
        if regent is None:
            return AlertFacts(host)
        web = self._users.present.web
        page = page_address(web.listen, web.hosts) if web.listen else ""
        task = alert.task_of(event, [event, *reversed(await self._events.last(_EVENTS_LOOKED_AT))])
        facts = AlertFacts(host, str(regent.account.definition.directory), task)
        facts = replace(facts, link=f"{page}/ralphs/{regent.name}") if page else facts
        with suppress(OSError, ValueError):
            return await asyncio.to_thread(_with_figures, facts, event, regent)
        return facts

    async def note_gone(self, destination_id: str, why: str) -> None:
        """Stop deliveries to a destination; on a full disk only until the daemon ends."""
        async with self._changing:
            self._stored = self._stored.with_gone(destination_id, Gone(why, self._services.clock.now()))
            with suppress(DaemonBusy):
                await self._save(self._stored)

    def refusals(self) -> Mapping[str, str]:
        """Return the problem of each disabled destination, by id."""
        if not self._stored.gone:
            return {}
        known = self.destinations()
        return {
            id: f"webhook {known[id].name} ({known[id].label}) is disabled: it {gone.why};"
            f" to try it again: ralphctl webhooks test {known[id].name}"
            for id, gone in self._stored.gone.items()
            if id in known
        }

    # --- for the API ----------------------------------------------------------------------------------

    async def views(self) -> list[View]:
        """Return every webhook, with the state of the last message to it."""
        return [await self._view(hook) for hook in self._every().values()]

    async def add(self, asked: Destination) -> View:
        """Add a webhook, or replace one that was added.

        The view also has ``secret_made``: a secret was generated now, in the file that the view names. Raises
        UsageError, WebhookRefused, WebhookConflict, DaemonBusy; then nothing was changed.
        """
        async with self._changing:
            self._refuse_newer()
            new = webhook_views.checked(asked, may_be_private=self._users.present.notify.allow_private)
            if (before := self._stored.added.get(new.id)) is None:
                self._refuse_twin(new)
            new = replace(new, name=self._name_for(new, before))
            if why := await self._courier.why_unusable(new):
                raise WebhookRefused(f"the secret cannot be used: {why}", mend="use --secret-file FILE")
            added, made_now = await self._with_secret(new, before)
            await self._save(self._stored.with_added(added))
            if before is not None and before.is_made and not added.is_made:
                await asyncio.to_thread(self._file.forget_secret, new.id)
        logger.info("webhook added: %s", new.label)
        view = await self._view(self._get(new.id))
        return view | {"secret_made": made_now, "replaced": before is not None}

    async def remove(self, id: str) -> None:
        """Remove an added webhook and cancel its pending messages. Raises NotFound, WebhookConflict."""
        async with self._changing:
            self._refuse_newer()
            hook = self._get(id)
            id = hook.destination.id
            if id not in self._stored.added:
                file = (hook.place or "").rpartition(":")[0]
                again = f"ralphctl reload {hook.ralphs[0]}" if hook.ralphs else "ralphctl regent reload"
                what = f"{hook.destination.label} is not removed: it is configured in {hook.place}"
                raise WebhookConflict(what, mend=f"delete this [[webhooks]] entry from {file}, then {again}")
            await self._save(self._stored.without(id))
            await asyncio.to_thread(self._file.forget_secret, id)
        if id not in self._every():  # no file names it as well
            await self._events.abandon(id, "the webhook was removed")
        logger.info("webhook removed: %s", hook.destination.label)

    async def test(self, id: str) -> View:
        """Send a test now and return the answer; a success enables a webhook that had answered 410."""
        to = self._get(id).destination
        id, at = to.id, self._services.clock.now()
        message = "A test from ralphd: alerts arrive here when a ralph needs you."
        data = {"message": message, "do": "ralphctl status"}
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
            self._services.news.nudge()
        return webhook_views.view_of_test(to, answer, took_s=took_s, is_back=why is None and was_gone)

    async def deliveries(self, id: str | None, limit: int) -> list[View]:
        """Return the last deliveries, newest first: to one webhook, or to all. Raises NotFound."""
        known = self.destinations()
        id = next((to.id for to in known.values() if to.name == id), id)
        stored = await self._events.deliveries(id, limit)
        if id is not None and not stored:
            self._get(id)
        return [webhook_views.delivery_view(one, known.get(one.delivery.destination)) for one in stored]

    async def replay(self, delivery_id: int) -> View:
        """Send the message of a delivery again, under the same id. Raises NotFound, WebhookConflict."""
        kept, mend = "deliveries are kept as long as their event, 30 days", "ralphctl webhooks deliveries"
        missing = NotFound(f"there is no delivery {delivery_id}", why=kept, mend=mend)
        if (stored := await self._events.delivery(delivery_id)) is None:
            if why := self._events.degraded:
                raise DaemonBusy("deliveries cannot be read now", why=why, mend="try again later")
            raise missing
        if (to := self.destinations().get(stored.delivery.destination)) is None:
            raise WebhookConflict(f"delivery {delivery_id} cannot be sent again: its webhook was removed")
        if why := self.why_gone(to.id):
            raise WebhookConflict(f"webhook {to.name} {why}", mend=f"ralphctl webhooks test {to.name}")
        if (again := await self._events.replay(delivery_id)) is None:
            raise missing
        self._services.news.nudge()
        return webhook_views.delivery_view(again, to)

    def _every(self) -> dict[str, Hook]:
        ralphs = [
            (each.name, each.account.definition.directory, each.account.configuration)
            for each in self._roster
        ]
        own_file = self._services.news.own_file
        every = webhook_views.configured(self._users.present, ralphs, self._stored.added, own_file)
        if self._users.present.notify.allow_private:
            return every
        # Added webhooks reach private addresses only as long as the user's own file allows it.
        return {id: hook if hook.place else hook.with_(allow_private=False) for id, hook in every.items()}

    def _get(self, key: str) -> Hook:
        """Return the webhook with this id or name. Raises NotFound."""
        every = self._every()
        hook = every.get(key) or next((each for each in every.values() if each.destination.name == key), None)
        if hook is None:
            raise NotFound(f"there is no webhook {key[:40]!r}", mend="ralphctl webhooks list")
        return hook

    def _name_for(self, new: Destination, before: Added | None) -> str:
        """Return the name under which to store a webhook. Raises WebhookConflict for a taken one."""
        taken = {hook.destination.name for id, hook in self._every().items() if id != new.id}
        if new.name in taken:
            raise WebhookConflict(f"another webhook has the name {new.name!r}", mend="use another --name")
        return new.name or (before.destination.name if before else "") or delivery.default_name(new, taken)

    async def _view(self, hook: Hook) -> View:
        id = hook.destination.id
        return webhook_views.hook_view(hook, self._stored.gone.get(id), await self._events.last_delivery(id))

    def _added(self) -> tuple[Destination, ...]:
        return tuple(one.destination for one in self._stored.added.values())

    async def _save(self, changed: Webhooks) -> None:
        # On disk first: a webhook that was confirmed must survive a crash.
        if self._newer is None:
            try:
                await asyncio.to_thread(self._file.save, changed)
            except OSError as fault:
                why = f"it cannot be written: {fault.strerror or fault}"
                self._services.trouble(WEBHOOKS_FILE, why)
                mend = "ralphctl doctor"
                raise DaemonBusy(f"{WEBHOOKS_FILE} was not changed", why=why, mend=mend) from fault
            self._services.trouble(WEBHOOKS_FILE, None)
        self._stored = changed
        self._services.news.added = self._added()

    def _refuse_newer(self) -> None:
        if self._newer is not None:
            raise self._newer.with_traceback(None)

    def _refuse_twin(self, new: Destination) -> None:
        known = self._every().get(new.id)
        if known is not None and known.ralphs is None:
            mend = "change the webhook in that file"
            raise WebhookConflict(f"this URL is already configured in {known.place}", mend=mend)
        if len(self._stored.added) >= MOST_WEBHOOKS:
            mend = "ralphctl webhooks remove NAME"
            raise WebhookConflict(f"there are {MOST_WEBHOOKS} webhooks already", mend=mend)

    async def _with_secret(self, new: Destination, before: Added | None) -> tuple[Added, bool]:
        """Return the webhook with its secret, and whether a secret was generated now.

        Generate one, once, for a ``json`` receiver if the request names none.
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


def _with_figures(facts: AlertFacts, event: StoredEvent, regent: "Regent") -> AlertFacts:
    """Add the cost and the last output. Blocks."""
    since, run_id = alert.evening_before(at := parse_rfc3339(event.at)), event.run_id
    lines: Sequence[str] = str(event.data.get("tail") or "").splitlines()  # of the queue's tests
    cost = alert.spent(islice(regent.account.history.backwards(), _ENTRIES_LOOKED_AT), since, at)
    if run_id is not None:
        lines = regent.log.last_lines(RunId(run_id), 4 * alert.MOST_LINES, stream=None)
    shown = alert.shown_lines(lines)
    return replace(facts, cost_tonight_usd=cost, cost_since=rfc3339(since), last_lines=shown)

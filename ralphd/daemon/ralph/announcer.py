"""What is published about one ralph: events, the Regent's lines, one escalation per incident (C2, C4)."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ralphd.agents.known import is_no_login, login_command
from ralphd.core import incidents
from ralphd.core.delivery import Destination
from ralphd.core.incidents import CloseReason, Escalation, EscalationContext, Incident, call_of
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import Announce, Escalate, Policy, Step, Supervision
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.ralph.journal import Journal, event_key
from ralphd.dataclass import dataclass
from ralphd.process.log.log import append_regent_line
from ralphd.store.state import Definition, Facts, RalphFiles

if TYPE_CHECKING:
    from ralphd.core.supervision.door import Caller
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

ESCALATION: Final = "escalation"
INCIDENT: Final = "incident"
_ENTRIES_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class Audience:
    """The ralph that an announcement is about, where it goes, and whose request caused it."""

    definition: Definition
    facts: Facts
    destinations: tuple[Destination, ...]
    by: "Caller | None" = None

    def caused(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of an event, with who requested what caused it."""
        return {**data, **({} if self.by is None else {"by": self.by.shown()})}

    @property
    def name(self) -> str:
        return self.definition.name


class Announcer:
    """Publishes what was decided, each thing once: history, then events, then the Regent's line."""

    def __init__(self, files: RalphFiles, records: Journal, services: "Services") -> None:
        self._files, self._records, self._services = files, records, services
        self._untold = False

    def introduce(self) -> None:
        """Delay ``ralph.registered`` until the first event: a failed registration publishes nothing."""
        self._untold = True

    async def registered(self, whom: Audience) -> None:
        self._untold = False
        data, tell = {"directory": str(whom.definition.directory)}, self._services.news.tell
        await tell("ralph.registered", whom.caused(data), ralph=whom.name, destinations=whom.destinations)

    async def tell(
        self, fact: Event, before: Supervision, answer: Step, policy: Policy, whom: Audience
    ) -> Incident | None:
        """Publish what a step orders, and the end of an incident. Return the incident that is open then."""
        incident = whom.facts.incident
        if incident is not None and (why := incidents.over(incident, before, fact, answer, policy)):
            await self.over(incident, why, fact.at, whom)
            incident = None
        elif incident is not None:
            incident = incidents.heeded(incident, fact)
        for action in answer.actions:
            now_open = replace(whom, facts=replace(whom.facts, incident=incident))
            match action:
                case Announce():
                    await self.announce(action, fact, now_open)
                case Escalate():
                    incident = await self.call(action, fact, before, answer.supervision, now_open)
        return incident

    async def announce(self, action: Announce, fact: Event, whom: Audience) -> None:
        """Publish an event, and its line beside the output (C4)."""
        key = event_key(action.type, fact, whom.facts)
        await self._tell(action.type, _data_of(action, whom.facts), action.text, whom, at=fact.at, key=key)

    async def repaired(self, action: Announce, key: str, at: Moment, whom: Audience) -> None:
        """Enter a repair in the history, and publish it."""
        number = await asyncio.to_thread(self._records.repair_number, key)
        data = {**_data_of(action, whom.facts), "number": number}
        await self._records.enter_repair(key, at, whom.facts.run_id, {**data, "what": action.type})
        await self._tell(action.type, data, action.text, whom, at=at, key=key, level=logging.WARNING)

    async def call(
        self, action: Escalate, fact: Event, before: Supervision, after: Supervision, whom: Audience
    ) -> Incident:
        """Escalate, unless an incident is open. Return the incident that is open then."""
        kind = "ralph.escalated"
        key = event_key(kind, fact, whom.facts) or f"{whom.name}/{kind}/{rfc3339(fact.at)}"
        logins = await asyncio.to_thread(self._logins, whom)
        is_built = self._services.tied is not None
        place = EscalationContext(whom.name, str(whom.definition.directory), logins, is_built)
        return await self.call_for(call_of(action.text, fact, before, after, place), key, fact.at, whom)

    async def call_for(self, call: Escalation, key: str, at: Moment, whom: Audience) -> Incident:
        """Escalate with a known message. While an incident is open it is held back and counted."""
        facts = whom.facts
        incident = incidents.called(facts.incident, call, key, at, facts.run_id)
        if incident.key != key:
            text, data = call.message, {"message": call.message, **_about(incident)}
            kind, key = "incident.held_back", f"{key}/held_back"
            await self._tell(kind, data, text, whom, at=at, key=key, level=logging.ERROR)
            return incident
        data = self._call_data(incident, call.message, whom)
        # The outbox may be lost before this is sent: then it is queued again from the history.
        await self._records.enter(ESCALATION, key, at, {"run_id": facts.run_id, "data": data})
        await self._tell("ralph.escalated", data, call.message, whom, at=at, key=key, level=logging.ERROR)
        return incident

    async def remind(self, incident: Incident, at: Moment, whom: Audience) -> Incident:
        """Escalate again. Return the incident after it."""
        after = incidents.told_again(incident, at)
        text = incidents.reminder_text(after, at)
        data = {**self._call_data(after, text, whom), "reminder": after.reminders, **_about(after)}
        key = incidents.reminder_key(after)
        await self._tell("ralph.escalated", data, text, whom, at=at, key=key, level=logging.ERROR)
        return after

    def _call_data(self, incident: Incident, message: str, whom: Audience) -> dict[str, Any]:
        needs, do = incident.call.needs, incident.call.do
        data = {"message": message, "directory": str(whom.definition.directory), "needs": needs, "do": do}
        return data | ({"desktop": True} if self._services.news.on_desktop else {})

    async def over(self, incident: Incident, why: CloseReason, at: Moment, whom: Audience) -> None:
        """Publish the end of an incident, which escalates nothing."""
        text = incidents.over_text(incident, why, at)
        data = {"message": text, "why": why.value, **_about(incident)}
        await self._tell("incident.closed", data, text, whom, at=at, key=f"{incident.key}/closed")

    async def acknowledged(self, incident: Incident, at: Moment, whom: Audience) -> None:
        text = f"Acknowledged: {incidents.told_of(incident)}"
        data, key = {"message": text, **_about(incident)}, f"{incident.key}/acknowledged"
        await self._tell("incident.acknowledged", data, text, whom, at=at, key=key)

    async def _tell(
        self, kind: str, data: Mapping[str, Any], text: str | None, whom: Audience, *,
        at: Moment, key: str | None, level: int = logging.INFO,
    ) -> None:  # fmt: skip
        """Publish an event; what becomes of an incident is entered in the history first."""
        if key is not None and kind.startswith("incident."):
            entry = {"run_id": whom.facts.run_id, "what": kind.removeprefix("incident."), "data": data}
            await self._records.enter(INCIDENT, key, at, entry)
        if self._untold:
            await self.registered(whom)
        name, run_id, tell = whom.name, whom.facts.run_id, self._services.news.tell
        told = await tell(
            kind, whom.caused(data), ralph=name, run_id=run_id, at=at, key=key, destinations=whom.destinations
        )
        if told and text is not None:
            logger.log(level, "%s", text, extra={"ralph": name})
            if run_id is not None:
                with suppress(OSError):
                    append_regent_line(self._files.runs / run_id, at, text)

    def _logins(self, whom: Audience) -> dict[str, str]:
        """Return the login commands of those agents of the last run that lacked a login. Blocks."""
        found: dict[str, str] = {}
        for entry in self._records.history.newest(_ENTRIES_LOOKED_AT):
            agent = entry.get("agent")
            if entry.get("kind") != "attempt" or entry.get("run_id") != whom.facts.run_id or agent in found:
                continue
            if entry.get("failure_kind") == "fatal" and is_no_login(entry.get("rule"), entry.get("why")):
                command = login_command(str(agent))
                found |= {} if command is None else {str(agent): command}
        return found


def _about(incident: Incident) -> dict[str, Any]:
    return {"since": rfc3339(incident.opened_at), "held_back": incident.held_back}


def _data_of(action: Announce, facts: Facts) -> dict[str, Any]:
    data: dict[str, Any] = {} if action.text is None else {"message": action.text}
    data |= dict(action.data)
    if action.type == "ralph.failed" and action.text is None and (incident := facts.incident) is not None:
        data |= {"message": incident.latest or incident.message, "escalated": True}
    if action.wait_until is not None:
        data["until"] = rfc3339(action.wait_until)
    if action.type == "ralph.exited" and (last := facts.last_exit) is not None:
        data |= {"code": last.code, "signal": last.signal, "outcome": last.outcome}
    if action.type in ("ralph.started", "ralph.adopted"):
        data["pid"] = facts.ralph_pid
    return data

"""What is told of one ralph: its events, the Regent's lines, and a person, once an incident (C2, C4)."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from ralphd.agents.known import is_no_login, login_command
from ralphd.core import incidents
from ralphd.core.delivery import Destination
from ralphd.core.incidents import CloseReason, Escalation, EscalationContext, Incident, call_of
from ralphd.core.supervision.events import Event
from ralphd.core.supervision.model import Announce, Escalate, Supervision
from ralphd.core.time import Moment, rfc3339
from ralphd.daemon.ralph.journal import Journal, event_key
from ralphd.daemon.services import Services
from ralphd.process.log.log import append_regent_line
from ralphd.store.state import Definition, Facts, RalphFiles

logger = logging.getLogger(__name__)

ESCALATION: Final = "escalation"
INCIDENT: Final = "incident"
_ENTRIES_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class Audience:
    """Of whom something is told, and to where."""

    definition: Definition
    facts: Facts
    destinations: tuple[Destination, ...]

    @property
    def name(self) -> str:
        """The ralph's name."""
        return self.definition.name


class Announcer:
    """Tells what was decided, each thing once: history, then events, then the Regent's line."""

    def __init__(self, files: RalphFiles, records: Journal, services: Services) -> None:
        self._files = files
        self._records = records
        self._services = services
        self._untold = False

    def introduce(self) -> None:
        """The ralph is new: told with the first news of it, so that what came to nothing is no news."""
        self._untold = True

    async def registered(self, whom: Audience) -> None:
        """Tell that there is this ralph."""
        self._untold = False
        data = {"directory": str(whom.definition.directory)}
        await self._services.news.tell(
            "ralph.registered", data, ralph=whom.name, destinations=whom.destinations
        )

    async def announce(self, action: Announce, fact: Event, whom: Audience) -> None:
        """Tell the event stream, and what a person reads beside the output (C4)."""
        key = event_key(action.type, fact, whom.facts)
        await self._tell(action.type, _data_of(action, whom.facts), action.text, whom, at=fact.at, key=key)

    async def call(
        self, action: Escalate, fact: Event, before: Supervision, after: Supervision, whom: Audience
    ) -> Incident:
        """Call a person, where no incident is open already; the one that is open then."""
        kind = "ralph.escalated"
        key = event_key(kind, fact, whom.facts) or f"{whom.name}/{kind}/{rfc3339(fact.at)}"
        logins = await asyncio.to_thread(self._logins, whom)
        is_built = self._services.tied is not None
        place = EscalationContext(whom.name, str(whom.definition.directory), logins, is_built)
        return await self.call_for(call_of(action.text, fact, before, after, place), key, fact.at, whom)

    async def call_for(self, call: Escalation, key: str, at: Moment, whom: Audience) -> Incident:
        """The same, where it is known what to say. What is held back is told as an event, and counted."""
        facts = whom.facts
        incident = incidents.called(facts.incident, call, key, at, facts.run_id)
        if incident.key != key:
            data = {
                "message": call.message,
                "held_back": incident.held_back,
                "since": rfc3339(incident.opened_at),
            }
            await self._note(
                "incident.held_back", f"{key}/held_back", at, data, call.message, whom, level=logging.ERROR
            )
            return incident
        data = _call_data(incident, call.message, whom)
        # The outbox may be lost before this is sent: then it is queued again from the history.
        await self._records.enter(ESCALATION, key, at, {"run_id": facts.run_id, "data": data})
        await self._tell("ralph.escalated", data, call.message, whom, at=at, key=key, level=logging.ERROR)
        return incident

    async def remind(self, incident: Incident, at: Moment, whom: Audience) -> Incident:
        """Tell a person again; the incident after it."""
        after = incidents.told_again(incident, at)
        text = incidents.reminder_text(after, at)
        data = _call_data(after, text, whom) | {
            "reminder": after.reminders,
            "held_back": after.held_back,
            "since": rfc3339(after.opened_at),
        }
        key = incidents.reminder_key(after)
        await self._tell("ralph.escalated", data, text, whom, at=at, key=key, level=logging.ERROR)
        return after

    async def over(self, incident: Incident, why: CloseReason, at: Moment, whom: Audience) -> None:
        """Tell that an incident is over; a person is not called for that."""
        text = incidents.over_text(incident, why, at)
        data = {"message": text, "why": why.value, **_about(incident)}
        await self._note("incident.closed", f"{incident.key}/closed", at, data, text, whom)

    async def acknowledged(self, incident: Incident, at: Moment, whom: Audience) -> None:
        """Tell that a person knows."""
        text = f"Acknowledged: {incidents.told_of(incident)}"
        data = {"message": text, **_about(incident)}
        await self._note("incident.acknowledged", f"{incident.key}/acknowledged", at, data, text, whom)

    async def _note(
        self,
        kind: str,
        key: str,
        at: Moment,
        data: Mapping[str, Any],
        text: str,
        whom: Audience,
        *,
        level: int = logging.INFO,
    ) -> None:
        """Enter and tell what becomes of an incident."""
        entry = {"run_id": whom.facts.run_id, "what": kind.removeprefix("incident."), "data": data}
        await self._records.enter(INCIDENT, key, at, entry)
        await self._tell(kind, data, text, whom, at=at, key=key, level=level)

    async def _tell(
        self,
        kind: str,
        data: Mapping[str, Any],
        text: str | None,
        whom: Audience,
        *,
        at: Moment,
        key: str | None,
        level: int = logging.INFO,
    ) -> None:
        if self._untold:
            await self.registered(whom)
        told = await self._services.news.tell(
            kind,
            data,
            ralph=whom.name,
            run_id=whom.facts.run_id,
            at=at,
            key=key,
            destinations=whom.destinations,
        )
        if told and text is not None:
            logger.log(level, "%s", text, extra={"ralph": whom.name})
            self._line(at, text, whom.facts)

    def _line(self, at: Moment, text: str, facts: Facts) -> None:
        """The Regent's line beside the output of the run that it is about (C4)."""
        if facts.run_id is not None:
            with suppress(OSError):
                append_regent_line(self._files.runs / facts.run_id, at, text)

    def _logins(self, whom: Audience) -> dict[str, str]:
        """The commands to log in to those agents of the last run that could not work without. Blocks."""
        found: dict[str, str] = {}
        for entry in islice(self._records.history.backwards(), _ENTRIES_LOOKED_AT):
            agent = entry.get("agent")
            if entry.get("kind") != "attempt" or entry.get("run_id") != whom.facts.run_id or agent in found:
                continue
            if entry.get("failure_kind") == "fatal" and is_no_login(entry.get("rule"), entry.get("why")):
                command = login_command(str(agent))
                found |= {} if command is None else {str(agent): command}
        return found


def _call_data(incident: Incident, message: str, whom: Audience) -> dict[str, Any]:
    needs, do = incident.call.needs, incident.call.do
    return {"message": message, "directory": str(whom.definition.directory), "needs": needs, "do": do}


def _about(incident: Incident) -> dict[str, Any]:
    return {"since": rfc3339(incident.opened_at), "held_back": incident.held_back}


def _data_of(action: Announce, facts: Facts) -> dict[str, Any]:
    data: dict[str, Any] = {} if action.text is None else {"message": action.text}
    data |= dict(action.data)
    if action.wait_until is not None:
        data["until"] = rfc3339(action.wait_until)
    if action.type == "ralph.exited" and (last := facts.last_exit) is not None:
        data |= {"code": last.code, "signal": last.signal, "outcome": last.outcome}
    if action.type in ("ralph.started", "ralph.adopted"):
        data["pid"] = facts.ralph_pid
    return data

"""The open incident of one ralph between two facts: reminders, acknowledgement, recovery."""

import asyncio
from typing import TYPE_CHECKING, Final

from ralphd.core import incidents
from ralphd.core.incidents import CloseReason, Incident
from ralphd.core.time import Moment
from ralphd.process.machine import wait_at_most

if TYPE_CHECKING:
    from ralphd.daemon.ralph.record import RalphRecord
    from ralphd.daemon.services import Services

LONGEST_SLEEP_S: Final = 30.0
"""Reminders follow the wall clock, which can be set, so it is looked at this often (H5)."""
_MINUTE_S: Final = 60.0


class Incidents:
    """Watches an open incident. ``alone`` is held while the ralph is changed."""

    def __init__(self, account: "RalphRecord", services: "Services", alone: asyncio.Lock) -> None:
        self._account, self._services, self._alone = account, services, alone
        self._news = asyncio.Event()
        self._seen: Incident | None = None

    def heed(self) -> None:
        """Compute the next reminder again: something has happened."""
        if self._account.facts.incident is not None or self._seen is not None:
            self._news.set()

    async def watch(self) -> None:
        """Remind, and close what has recovered, until cancelled. Sleeps while no incident is open."""
        while True:
            self._seen = self._account.facts.incident
            await wait_at_most(self._sleep_s(), self._news)
            self._news.clear()
            if self._account.facts.incident is not None and not self._services.stopping.is_set():
                async with self._alone:
                    await self._look()

    async def acknowledge(self) -> None:
        """Note that a person knows of the open incident, if there is one."""
        async with self._alone:
            incident, at = self._account.facts.incident, self._services.clock.now()
            if incident is None:
                return
            after = incidents.acknowledged(incident, at)
            if after != incident:
                await self._account.telling.acknowledged(after, at, self._account.told())
            if (why := incidents.settled_by_a_person(after, self._account.supervision)) is not None:
                await self._close(after, why, at)
            elif after != incident:
                await self._account.note_incident(after)
        self._news.set()

    def _sleep_s(self) -> float | None:
        if (incident := self._account.facts.incident) is None:
            return None
        at = self._tell_at(incident)
        left_s = LONGEST_SLEEP_S if at is None else at - self._services.clock.now()
        return min(max(left_s, 0.0), LONGEST_SLEEP_S)

    def _tell_at(self, incident: Incident) -> Moment | None:
        every_s = self._account.configuration.notify.reminder_minutes * _MINUTE_S
        return incidents.tell_at(incident, self._account.supervision, every_s)

    async def _look(self) -> None:
        account, now = self._account, self._services.clock.now()
        if (incident := account.facts.incident) is None:
            return
        if self._has_come_through(incident):
            await self._close(incident, CloseReason.WORKS, now)
            return
        incident = incidents.by_the_clock(incident, now)
        at = self._tell_at(incident)
        if at is not None and at <= now:
            incident = await account.telling.remind(incident, now, account.told())
        if incident is not account.facts.incident:
            await account.note_incident(incident)

    def _has_come_through(self, incident: Incident) -> bool:
        account, facts = self._account, self._account.facts
        began_at, sign_at = facts.started_at, facts.last_output_at
        return incidents.has_come_through(
            incident, account.supervision, started_at=began_at, last_sign_at=sign_at, policy=account.policy
        )

    async def _close(self, incident: Incident, why: CloseReason, at: Moment) -> None:
        await self._account.telling.over(incident, why, at, self._account.told())
        await self._account.note_incident(None)

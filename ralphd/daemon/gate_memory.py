"""What a gate knows, in memory and in ``gate.json`` alike."""

import asyncio
from dataclasses import replace

from ralphd.daemon.account import Account
from ralphd.daemon.services import Services
from ralphd.errors import NewerState
from ralphd.store.files import Broken
from ralphd.store.gate_file import GateState, load_gate, save_gate


class GateMemory:
    """``state`` is what is so; ``save`` makes it another one, and what is written last is what is so last."""

    def __init__(self, account: Account, services: Services) -> None:
        self._path = account.files.gate_file
        self._services = services
        self._topic = f"gate of {account.definition.name}"
        self._saving = asyncio.Lock()
        self._saved: GateState | None = None
        try:
            self.state = load_gate(self._path)
        except (Broken, NewerState):  # put aside, and told, when the ralph was loaded
            self.state = GateState()
        self._baseline = (self.state.baseline, self.state.since)

    async def save(self, state: GateState) -> str | None:
        """Write it down. What a full disk does not take is told (F3), and answered in words."""
        self.state = state = self._since(state)
        fault = None
        async with self._saving:
            latest = self.state
            if latest != self._saved:
                try:
                    await asyncio.to_thread(save_gate, self._path, latest)
                    self._saved = latest
                except OSError as error:
                    self._saved, fault = None, f"it cannot be written down: {error.strerror or error}"
        self._services.trouble(self._topic, fault)
        return fault

    def _since(self, state: GateState) -> GateState:
        """With the moment at which the baseline became what it is; one that is put back has its own."""
        baseline, since = self._baseline
        if state.baseline is not baseline and state.since == since:
            state = replace(state, since=self._services.clock.now())
        self._baseline = (state.baseline, state.since)
        return state

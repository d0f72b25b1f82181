"""The pool of agents: who may be asked, who has a cooldown and until when, who returns (L2, L3)."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

from ralphd.core.loop.model import Cooldown, LoopState
from ralphd.core.time import Moment, rfc3339
from ralphd.dataclass import dataclass

FIRST_PROBE_S = 15 * 60.0
LONGEST_PROBE_S = 4 * 3600.0
"""An agent with an unknown reset is probed after 15, 30, 60, … minutes, then every four hours."""
_MOST_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True)
class Pool:
    """The agents in the order in which they are asked, and their cooldowns."""

    agents: tuple[str, ...]
    out: tuple[Cooldown, ...] = ()

    def turned(self, last: str | None) -> "Pool":
        """Return the pool with the agent after ``last`` first, and ``last`` at the end (L3)."""
        if last not in self.agents:
            return self
        after = self.agents.index(last) + 1
        return replace(self, agents=self.agents[after:] + self.agents[:after])

    def is_in(self, agent: str, at: Moment) -> bool:
        """Return whether an agent may be asked at that moment."""
        entry = self.entry(agent)
        return entry is None or entry.back or (entry.until is not None and entry.until <= at)

    def entry(self, agent: str) -> Cooldown | None:
        """Return the cooldown of an agent that is out, or that returned and has not worked since."""
        return next((each for each in self.out if each.agent == agent), None)

    def first(self, at: Moment, *, but: Sequence[str] = ()) -> str | None:
        """Return the first agent, other than ``but``, that may be asked at that moment."""
        return next((each for each in self.agents if each not in but and self.is_in(each, at)), None)

    def present(self, at: Moment) -> tuple[str, ...]:
        """Return all agents that may be asked at that moment."""
        return tuple(each for each in self.agents if self.is_in(each, at))

    def next_return(self) -> Cooldown | None:
        """Return the cooldown that ends first, of those that end at a known moment."""
        return min(self._timed(), key=lambda each: each.until or 0.0, default=None)

    def put_out(self, agent: str, reason: str, until: Moment | None, *, guessed: bool = False) -> "Pool":
        """Start a cooldown until that moment; None: until you act."""
        return self._with(agent, Cooldown(agent, reason, until, self._next_probe(agent), guessed=guessed))

    def hold(self, agent: str, reason: str, until: Moment, *, for_slot: bool = False) -> "Pool":
        """Start a cooldown that another ralph of the account caused: it is no failure of this one (Q2)."""
        before = self.entry(agent)
        probes = 0 if before is None else before.probes
        return self._with(agent, Cooldown(agent, reason, until, probes, for_slot=for_slot))

    def let_in(self, agent: str) -> "Pool":
        """Let the agent be asked again; its probes stay counted until it has worked."""
        before = self.entry(agent)
        return self if before is None else self._with(agent, replace(before, back=True))

    def due(self, agent: str, at: Moment) -> "Pool":
        """End the agent's cooldown now: a person does not want to wait for it."""
        before = self.entry(agent)
        return self if before is None else self._with(agent, replace(before, until=at))

    def without_slots(self) -> "Pool":
        """Forget who waits for a slot: nobody knows whether it is free by now."""
        return replace(self, out=tuple(each for each in self.out if not each.for_slot))

    def worked(self, agent: str) -> "Pool":
        """Forget the agent's cooldown: it has worked."""
        return self._with(agent, None)

    def returned(self, at: Moment) -> tuple[str, ...]:
        """Return the agents whose cooldown is over and which were not let in yet."""
        return tuple(each.agent for each in self._timed() if each.until is not None and each.until <= at)

    def probe_s(self, agent: str) -> float:
        """Return how long to leave an agent alone whose reset is unknown: 15, 30, 60, … minutes."""
        return min(FIRST_PROBE_S * 2.0 ** min(self._next_probe(agent), 10), LONGEST_PROBE_S)

    def _next_probe(self, agent: str) -> int:
        before = self.entry(agent)
        return 0 if before is None else before.probes + 1

    def _timed(self) -> list[Cooldown]:
        absent = (each for each in self.out if each.agent in self.agents and not each.back)
        return [each for each in absent if each.until is not None]

    def _with(self, agent: str, entry: Cooldown | None) -> "Pool":
        others = tuple(each for each in self.out if each.agent != agent)
        return replace(self, out=others if entry is None else (*others, entry))


def rotation_words(agents: Sequence[str]) -> str:
    """Return the rotation in a sentence for the start of a loop."""
    if len(agents) == 1:
        return f"rotation with one agent: {agents[0]} is asked every time"
    return f"rotation: {', '.join(agents)} take turns, an iteration each"


def changes_at(memory: LoopState, at: Moment) -> Moment:
    """Return the next moment at which time alone changes the pool."""
    return min((out.until for out in memory.out if out.until is not None and out.until > at), default=inf)


def pool_view(memory: LoopState, at: Moment) -> dict[str, Any] | None:
    """Return the pool as people and programs see it; None before a loop has reported who is in it."""
    pool = Pool(memory.agents, memory.out)
    if not pool.agents:
        return None
    agents = []
    for name in pool.agents:
        out = None if pool.is_in(name, at) else pool.entry(name)
        out = None if out is not None and out.for_slot else out  # the agent can work, its account has no slot
        until = None if out is None or out.until is None else rfc3339(out.until)
        cooldown = {"until": until, "reason": None if out is None else _shown(out.reason)}
        agent = {"name": _shown(name), "in": out is None, **cooldown, "last": name == memory.last_agent}
        agents.append(agent)
    return {"strategy": "rotate" if memory.rotates else "fallback", "agents": agents}


def _shown(text: str) -> str:
    return text[:_MOST_SHOWN_CHARS].encode(errors="replace").decode()  # no lone surrogates in JSON

"""The pool of agents: who may be asked, who is out and until when, who comes back (L2, L3)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ralphd.core.loop.state import Cooldown, LoopState
from ralphd.core.time import Moment, rfc3339

FIRST_PROBE_S = 15 * 60.0
LONGEST_PROBE_S = 4 * 3600.0
"""An agent whose reset nobody knows is tried after 15, 30, 60, … minutes, then every four hours."""
_MOST_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True)
class Pool:
    """The agents in the order in which they are asked, and those that are out."""

    agents: tuple[str, ...]
    out: tuple[Cooldown, ...] = ()

    def turned(self, last: str | None) -> "Pool":
        """The pool with the agent after ``last`` in front, and ``last`` at the end (L3)."""
        if last not in self.agents:
            return self
        after = self.agents.index(last) + 1
        return replace(self, agents=self.agents[after:] + self.agents[:after])

    def is_in(self, agent: str, at: Moment) -> bool:
        """Whether an agent may be asked now."""
        found = self.entry(agent)
        return found is None or found.back or (found.until is not None and found.until <= at)

    def entry(self, agent: str) -> Cooldown | None:
        """What is known of an agent that is out, or came back and has not worked since."""
        return next((each for each in self.out if each.agent == agent), None)

    def first(self, at: Moment, *, but: Sequence[str] = ()) -> str | None:
        """The first agent that may be asked now, and is none of ``but``."""
        return next((each for each in self.agents if each not in but and self.is_in(each, at)), None)

    def present(self, at: Moment) -> tuple[str, ...]:
        """All who may be asked now."""
        return tuple(each for each in self.agents if self.is_in(each, at))

    def next_return(self) -> Cooldown | None:
        """Who comes back first, of those who are out until a moment."""
        waiting = [
            each
            for each in self.out
            if each.agent in self.agents and not each.back and each.until is not None
        ]
        return min(waiting, key=lambda each: each.until or 0.0, default=None)

    def put_out(self, agent: str, reason: str, until: Moment | None) -> "Pool":
        """The agent is out until then; None: until a person acts."""
        before = self.entry(agent)
        entry = Cooldown(agent, reason, until, probes=0 if before is None else before.probes + 1)
        return self._with(agent, entry)

    def let_in(self, agent: str) -> "Pool":
        """The agent may be asked again; it is remembered until it has worked."""
        before = self.entry(agent)
        return self if before is None else self._with(agent, replace(before, back=True))

    def due(self, agent: str, at: Moment) -> "Pool":
        """The agent's time out is over now: a person does not want to wait for it any longer."""
        before = self.entry(agent)
        return self if before is None else self._with(agent, replace(before, until=at))

    def worked(self, agent: str) -> "Pool":
        """The agent has worked: whatever kept it out is over."""
        return self._with(agent, None)

    def returned(self, at: Moment) -> tuple[str, ...]:
        """The agents whose time out is over, and who were not let in yet."""
        return tuple(
            each.agent
            for each in self.out
            if each.agent in self.agents and not each.back and each.until is not None and each.until <= at
        )

    def probe_s(self, agent: str) -> float:
        """How long to leave an agent alone whose reset is unknown: 15, 30, 60, … minutes."""
        before = self.entry(agent)
        probes = 0 if before is None else before.probes + 1
        return min(FIRST_PROBE_S * 2.0 ** min(probes, 10), LONGEST_PROBE_S)

    def _with(self, agent: str, entry: Cooldown | None) -> "Pool":
        others = tuple(each for each in self.out if each.agent != agent)
        return replace(self, out=others if entry is None else (*others, entry))


def rotation_words(agents: Sequence[str]) -> str:
    """Whose turn it is in a rotation, in a sentence for its start."""
    if len(agents) == 1:
        return f"rotation with one agent: {agents[0]} is asked every time"
    return f"rotation: {', '.join(agents)} take turns, an iteration each"


def changes_at(memory: LoopState, at: Moment) -> Moment:
    """When the pool is another one than at that moment, as far as time alone changes it."""
    return min((out.until for out in memory.out if out.until is not None and out.until > at), default=inf)


def pool_view(memory: LoopState, at: Moment) -> dict[str, Any] | None:
    """The pool as people and programs are shown it; None where nobody has told yet who is in it."""
    pool = Pool(memory.agents, memory.out)
    if not pool.agents:
        return None
    strategy = "rotate" if memory.rotates else "fallback"
    agents = [_agent_view(pool, each, memory.last_agent, at) for each in pool.agents]
    return {"strategy": strategy, "agents": agents}


def _agent_view(pool: Pool, agent: str, last: str | None, at: Moment) -> dict[str, Any]:
    """One of them. Of one that is in, what once kept it out is over and not told."""
    out = None if pool.is_in(agent, at) else pool.entry(agent)
    return {
        "name": _shown(agent),
        "in": out is None,
        "until": None if out is None or out.until is None else rfc3339(out.until),
        "reason": None if out is None else _shown(out.reason),
        "last": agent == last,
    }


def _shown(text: str) -> str:
    """A text that JSON in UTF-8 can hold, and not too long."""
    return text[:_MOST_SHOWN_CHARS].encode(errors="replace").decode()

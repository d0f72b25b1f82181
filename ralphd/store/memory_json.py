"""``loop.json``: what a loop remembers, as JSON and back; every value is looked at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from ralphd.core.ledger import Memory, Out, UnderWay
from ralphd.core.moments import parse_rfc3339
from ralphd.store.checkpoint_file import read
from ralphd.store.versions import finite, moment_text

MEMORY_VERSION: Final = 1
MEMORY_FILE: Final = "loop.json"
_MOST_CHARS: Final = 4000

T = TypeVar("T")


def look_into(path: Path) -> Memory | None:
    """What the ``loop.json`` of a loop that may live tells; None for what tells nothing. It is left alone."""
    found = read(path)
    if found is None or found.get("version") != MEMORY_VERSION:
        return None
    try:
        return memory_of(found)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None


def memory_of(found: Mapping[str, Any]) -> Memory:
    """What the object tells. Of what is no such object: KeyError, TypeError, ValueError, AttributeError,
    OverflowError.
    """
    began_at = found["began_at"]
    return Memory(
        iteration=count_of(found["iteration"]),
        cost_usd=amount_of(found["cost_usd"]),
        began_at=None if began_at is None else parse_rfc3339(began_at),
        idle_successes=count_of(found["idle_successes"]),
        out=tuple(map(_out, of_kind(list, found["out"]))),
        last_agent=None if (last := found.get("last_agent")) is None else of_kind(str, last),
        agents=tuple(of_kind(str, each) for each in of_kind(list, found.get("agents", []))),
        rotates=of_kind(bool, found.get("rotates", False)),
        under_way=None if (begun := found.get("under_way")) is None else _under_way(begun),
        list_file=None if (file := found.get("list_file")) is None else of_kind(str, file),
        judged=None if (boundary := found.get("judged")) is None else of_kind(str, boundary),
    )


def _under_way(found: Mapping[str, Any]) -> UnderWay:
    return UnderWay(
        iteration=count_of(found["iteration"]),
        attempt=count_of(found["attempt"]),
        agent=of_kind(str, found["agent"]),
        task_id=of_kind(str, found["task"]),
        title=of_kind(str, found["title"]),
        began_at=parse_rfc3339(found["began_at"]),
    )


def _out(found: Mapping[str, Any]) -> Out:
    until = found["until"]
    return Out(
        agent=of_kind(str, found["agent"]),
        reason=of_kind(str, found["reason"]),
        until=None if until is None else parse_rfc3339(until),
        probes=count_of(found["probes"]),
        back=of_kind(bool, found["back"]),
    )


def memory_json(memory: Memory) -> dict[str, Any]:
    """The object that ``memory_of`` reads."""
    return {
        "version": MEMORY_VERSION,
        "iteration": memory.iteration,
        "cost_usd": finite(memory.cost_usd),
        "began_at": moment_text(memory.began_at),
        "idle_successes": memory.idle_successes,
        "last_agent": memory.last_agent,
        "agents": list(memory.agents),
        "rotates": memory.rotates,
        "list_file": memory.list_file,
        "judged": memory.judged,
        "under_way": None if memory.under_way is None else _under_way_json(memory.under_way),
        "out": [
            {
                "agent": out.agent,
                "reason": out.reason[:_MOST_CHARS],
                "until": moment_text(out.until),
                "probes": out.probes,
                "back": out.back,
            }
            for out in memory.out
        ],
    }


def _under_way_json(begun: UnderWay) -> dict[str, Any]:
    return {
        "iteration": begun.iteration,
        "attempt": begun.attempt,
        "agent": begun.agent,
        "task": begun.task_id[:_MOST_CHARS],
        "title": begun.title[:_MOST_CHARS],
        "began_at": moment_text(begun.began_at),
    }


def of_kind(kind: type[T], value: object) -> T:
    """``value``, when it is of that kind. Raises ValueError."""
    if not isinstance(value, kind):
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def count_of(value: object) -> int:
    """A number from 0 on. Raises ValueError."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def amount_of(value: object) -> float:
    """A finite amount from 0 on. Raises ValueError, TypeError."""
    if type(value) not in (int, float) or finite(amount := float(str(value))) != amount or amount < 0:
        raise ValueError(f"{value!r:.40} is no amount")
    return amount

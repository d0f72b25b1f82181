"""What a process of a supervised run may request of the daemon, and how often its refusals are reported.

A run may read, and report for itself. Everything else is refused unless the user's own file permits it
(``[regent] runs_may``): an agent must not stop or reconfigure its own supervision, by accident or on purpose.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final

from ralphd.core.supervision.model import RunId
from ralphd.core.time import Moment
from ralphd.dataclass import dataclass

UNKNOWN_RUN: Final = RunId("unknown")
"""The run of a process that cannot be examined: it counts as within a run."""
REFUSAL_EVERY_S: Final = 60.0
REPORT: Final = "reports"
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_WORDS = frozenset(("start", "stop", "restart", "pause", "resume", "skip-wait", "reload", "undo", "ack",
                    "tasks", "notes", REPORT))  # fmt: skip
_OF_DAEMON = {"shutdown": "regent stop", "reload": "regent reload", "deliveries": "webhooks replay",
              "landing": "land", "fleet": "fleet"}  # fmt: skip
UNANNOUNCED: Final = frozenset(
    ["reload", "rm", "trees rm", "tasks", "notes", "regent reload", "webhooks add", "webhooks remove"]
)
"""Requests that change something, and have no event of their own."""


_ENDERS = frozenset({"systemctl", "loginctl", "busctl", "kill", "pkill", "killall"})
_STARTERS = frozenset({"sh", "bash", "dash", "sudo", "env", "timeout", "nohup", "python", "python3"})


@dataclass(frozen=True, slots=True)
class Caller:
    """The process that sent a request, and the run of this daemon that it belongs to, if any."""

    pid: int
    uid: int
    run_id: RunId | None = None
    ralph: str | None = None
    command: str = ""
    device: str = ""
    """The device of the page that it sent the request for."""

    def shown(self) -> dict[str, Any]:
        """Return it as events and the history have it: the key ``by``."""
        by = {"pid": self.pid, "uid": self.uid, "run_id": self.run_id, "command": self.command}
        return by | ({"device": self.device} if self.device else {})

    def __str__(self) -> str:
        if self.device and self.run_id is None:  # a run could name any device
            return f'device "{self.device}"'
        command = f" ({self.command})" if self.command else ""
        return f"pid {self.pid}{command}, uid {self.uid}" + (f", run {self.run_id}" if self.run_id else "")


@dataclass(frozen=True, slots=True)
class RequestedAction:
    """What a request asks for: one word, and the ralph that it names."""

    action: str
    ralph: str | None = None

    def __str__(self) -> str:
        return self.action + (f" {self.ralph}" if self.ralph else "")


def requested(method: str, path: str) -> RequestedAction | None:
    """Return what a request would change; None if it only reads. An unknown route is a ``request``."""
    if method in _READS:
        return None
    match path.removeprefix("/v1/").split("/"):
        case ["ralphs" | "trees"]:
            return RequestedAction("start")
        case ["trees", name]:
            return RequestedAction("trees rm", name)
        case ["ralphs", name]:
            return RequestedAction("rm" if method == "DELETE" else "request", name)
        case ["ralphs", name, word, *_] if word in _WORDS:
            return RequestedAction(word, name)
        case ["webhooks", *rest]:
            word = "remove" if method == "DELETE" else "test" if rest else "add"
            return RequestedAction(f"webhooks {word}")
        case [word, *_] if word in _OF_DAEMON:
            return RequestedAction(_OF_DAEMON[word])
        case _:
            return RequestedAction("request")


def can_end_services(words: Sequence[str]) -> bool:
    """Return whether a command line is that of a program that ends services, also as a script or by sudo."""
    program, *rest = (word.rpartition("/")[2] for word in words[:2])
    return program in _ENDERS or (program in _STARTERS and rest[:1] != [] and rest[0] in _ENDERS)


def is_permitted(asked: RequestedAction, caller: Caller, runs_may: Collection[str]) -> bool:
    """Return whether the daemon carries the request out; the route of reports checks the run, too."""
    if caller.run_id is None:
        return True
    is_own = asked.ralph is not None and asked.ralph == caller.ralph
    return (
        "all" in runs_may
        or (asked.action == REPORT and is_own)
        or (asked.action in ("stop", "pause") and is_own and f"{asked.action}-self" in runs_may)
        or (asked.action == "start" and "start" in runs_may)
    )


@dataclass(slots=True)
class _Reported:
    at: Moment
    held: int
    caller: Caller
    asked: RequestedAction


class RefusalCounter:
    """Bounds the reports about refusals: one per run and action in REFUSAL_EVERY_S, with their number."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str | None, str], _Reported] = {}

    def count(self, caller: Caller, asked: RequestedAction, at: Moment) -> int:
        """Count a refusal. Return how many the report made now stands for; 0: make none."""
        key = (caller.run_id, asked.action)
        last = self._reported.get(key)
        if last is not None and 0 <= at - last.at < REFUSAL_EVERY_S:
            last.held += 1
            return 0
        self._reported[key] = _Reported(at, 0, caller, asked)
        return 1 + (last.held if last else 0)

    def due(self, at: Moment) -> list[tuple[Caller, RequestedAction, int]]:
        """Return the refusals that were counted and not reported since the last report, when it is old."""
        old = [key for key, each in self._reported.items() if not 0 <= at - each.at < REFUSAL_EVERY_S]
        gone = [self._reported.pop(key) for key in old]
        return [(each.caller, each.asked, each.held) for each in gone if each.held]


def refusal_text(caller: Caller, asked: RequestedAction, count: int) -> str:
    """Return the message about refused requests."""
    times = "" if count == 1 else f", {count} times"
    return f"Refused: ralphctl {asked} from within run {caller.run_id}{times} — {caller}"

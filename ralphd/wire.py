"""What travels over the socket: names, states, events, exit codes, and where the socket is.

Shared by the daemon and ``ralphctl``. Standard library only, and little of that: ``ralphctl status`` loads
this file, so neither ``typing`` nor ``dataclasses`` nor ``pathlib`` nor ``re`` is imported at run time.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import UnionType


API = "/v1"
MAX_BODY_BYTES = 1 << 20
MAX_NAME_CHARS = 63

STATES = (
    "idle",
    "starting",
    "running",
    "testing",
    "waiting_for_retry",
    "pausing",
    "paused",
    "stopping",
    "stopped",
    "failed",
    "done",
)
SETTLED_STATES = frozenset({"idle", "paused", "stopped", "failed", "done"})
"""States in which no run lives and none will start by itself (a paused ralph may have a resume time)."""

EVENT_TYPES = (
    "daemon.started",
    "daemon.stopping",
    "daemon.degraded",
    "state.recovered",
    "ralph.registered",
    "ralph.started",
    "ralph.adopted",
    "ralph.exited",
    "ralph.retrying",
    "ralph.escalated",
    "ralph.stall_warning",
    "ralph.stalled",
    "ralph.paused",
    "ralph.resumed",
    "ralph.stopped",
    "ralph.done",
    "ralph.failed",
    "iteration.started",
    "iteration.finished",
    "attempt.finished",
    "wait.started",
    "wait.ended",
    "tests.passed",
    "tests.failed",
    "commit.kept",
    "commit.reverted",
    "commit.restored",
    "guard.blocked",
    "agent.exhausted",
    "agent.returned",
    "incident.held_back",
    "incident.acknowledged",
    "incident.closed",
    "config.drifted",
    "log.gap",
)

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_LIMIT = 5
EXIT_PAUSED = 75
EXIT_TIMED_OUT = 124
EXIT_INTERRUPTED = 130

_NAME_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_NAME_REST = _NAME_FIRST | frozenset("._-")


def is_name(text: str) -> bool:
    """Whether ``text`` is a ralph's name: ``^[a-z0-9][a-z0-9._-]{0,62}$``."""
    return 0 < len(text) <= MAX_NAME_CHARS and text[0] in _NAME_FIRST and _NAME_REST.issuperset(text)


def status_exit_code(states: "list[str]") -> int:
    """What ``status`` ends with for ralphs in these states: 1 before 75 before 0 [002-US-012]."""
    if "failed" in states:
        return EXIT_FAILED
    return EXIT_PAUSED if "paused" in states else EXIT_OK


# A ralph's view: each key and its kind, in order. The daemon builds the view from these tables, the offline
# reader checks files against them, and a test compares the API's schema with them.

TEXT = str | None
STATE_KEYS: "dict[str, type | UnionType]" = {
    "ralph_pid": int | None,
    "iteration": int,
    "consecutive_errors": int,
    "last_output_at": TEXT,
    "last_commit": TEXT,
    "total_cost_usd": float,
    "version": int,
    "name": str,
    "state": str,
    "goal": str,
    "mode": str,
    "branch": TEXT,
    "started_at": TEXT,
    "finished_at": TEXT,
    "passed": bool | None,
    "agent": TEXT,
    "pool": dict | None,
    "task": dict | None,
    "wait": dict | None,
    "restarts": int,
    "reverts": int,
    "last_exit": dict | None,
    "pause_reason": TEXT,
    "run_id": TEXT,
    "message": TEXT,
    "last_change": dict | None,
    "incident": dict | None,
}
"""The keys that ``regent-state.json`` shows; the first six are those of the file's first version."""
VIEW_KEYS: "dict[str, type | UnionType]" = STATE_KEYS | {
    "directory": str,
    "command": list,
    "tree_means": TEXT,
    "checkpoint": dict | None,
    "drift": list,
    "guard": dict | None,
    "notes": list,
    "resources": dict | None,
}
"""The keys of a view in the API. ``resources`` is there only if it was requested."""
POOL_AGENT_KEYS: "dict[str, type | UnionType]" = {
    "name": str,
    "in": bool,
    "until": TEXT,
    "reason": TEXT,
    "last": bool,
}
INCIDENT_KEYS: "dict[str, type | UnionType]" = {
    "opened_at": str,
    "message": str,
    "needs": str,
    "do": str,
    "held_back": int,
    "latest": TEXT,
    "reminders": int,
    "told_at": str,
    "acknowledged_at": TEXT,
}


def fits(value: object, kind: "type | UnionType") -> bool:
    """Return whether a value from JSON is of a kind above. A bool is not a number; an int is also a float."""
    if isinstance(value, bool):
        return kind in (bool, bool | None)
    return isinstance(value, kind) or (kind is float and isinstance(value, int))


def state_directory(environ: "Mapping[str, str]") -> str:
    """The daemon's state directory for this environment."""
    if given := environ.get("RALPHD_STATE_DIR"):
        return os.path.abspath(given)
    base = environ.get("XDG_STATE_HOME") or os.path.join(_home(environ), ".local", "state")
    return os.path.join(base, "ralphd")


def socket_path(environ: "Mapping[str, str]") -> str:
    """Where the daemon of this environment listens."""
    return environ.get("RALPHD_SOCKET") or os.path.join(state_directory(environ), "ralphd.sock")


def socket_candidates(environ: "Mapping[str, str]", signpost: str | None = None) -> "Iterator[str]":
    """Where a client looks for the socket, best first.

    ``signpost`` is the socket that a live ``.ralph/lock`` of the working directory names, if there is one.
    """
    if given := environ.get("RALPHD_SOCKET"):
        yield given
    if signpost:
        yield signpost
    yield os.path.join(state_directory(environ), "ralphd.sock")
    yield "/run/ralphd/ralphd.sock"


def _home(environ: "Mapping[str, str]") -> str:
    return environ.get("HOME") or os.path.expanduser("~")

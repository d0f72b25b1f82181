"""The names that the daemon and ``ralphctl`` share: states, events, exit codes, and where the socket is.

Standard library only, and little of that: ``ralphctl status`` loads this file, so neither ``typing`` nor
``dataclasses`` nor ``pathlib`` nor ``re`` is imported at run time. A new event is one row of EVENTS.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import UnionType

    Kinds = dict[str, type | UnionType]

API = "/v1"
MAX_BODY_BYTES = 1 << 20
MAX_NAME_CHARS = 63
DEVICE_HEADER = "Ralphd-Device"
"""On requests of the page: the name of the device, percent-encoded."""
AUTO_AGENTS = ("codex", "gemini", "claude", "opencode")
"""What ``--fallback auto`` stands for, in order."""
LANDED_BRANCH = "ralph/landed"
"""The branch of the landing queue: what landed waits there until the target can follow."""

STATES = (
    *("idle", "starting", "running", "testing", "waiting_for_retry"),
    *("pausing", "paused", "stopping", "stopped", "failed", "done"),
)
SETTLED_STATES = frozenset({"idle", "paused", "stopped", "failed", "done"})
"""States in which no run lives and none will start by itself (a paused ralph may have a resume time)."""

_UNTITLED = ("", 2, "")
EVENTS = {
    **dict.fromkeys(("daemon.started", "daemon.stopping"), _UNTITLED),
    "daemon.degraded": ("has a problem", 4, "warning"),
    **dict.fromkeys(("state.recovered", "ralph.registered"), _UNTITLED),
    **dict.fromkeys(("ralph.started", "ralph.adopted", "ralph.exited"), _UNTITLED),
    "ralph.retrying": ("failed and will be restarted", 3, "repeat"),
    "ralph.escalated": ("needs you", 5, "rotating_light"),
    "ralph.stall_warning": _UNTITLED,
    "ralph.stalled": ("hung and was killed", 4, "warning"),
    "ralph.pausing": ("is being paused", 2, "double_vertical_bar"),
    "ralph.paused": ("is paused", 3, "double_vertical_bar"),
    "ralph.resumed": _UNTITLED,
    "ralph.stopped": ("is stopped", 2, ""),
    "ralph.done": ("is done", 3, "white_check_mark"),
    "ralph.failed": ("has failed", 4, "x"),
    **dict.fromkeys(("iteration.started", "iteration.finished", "attempt.finished"), _UNTITLED),
    **dict.fromkeys(("wait.started", "wait.ended", "tests.passed"), _UNTITLED),
    "tests.failed": ("tests failed", 3, "x"),
    "tests.weakened": ("tests were weakened", 3, "warning"),
    "commit.kept": _UNTITLED,
    "commit.reverted": ("a commit was reverted", 3, "leftwards_arrow_with_hook"),
    "commit.restored": _UNTITLED,
    "repository.repaired": ("the repository was restored", 4, "warning"),
    "file.restored": ("files were restored", 3, "leftwards_arrow_with_hook"),
    "guard.blocked": ("commits were not judged", 4, "warning"),
    **dict.fromkeys(("landing.queued", "landing.testing", "landing.followed"), _UNTITLED),
    "landing.landed": ("landed", 2, "white_check_mark"),
    "landing.pushed": ("is pushed", 2, "arrow_up"),
    "landing.refused": ("does not land", 3, "x"),
    **dict.fromkeys(("fleet.joined", "fleet.lost", "fleet.back"), _UNTITLED),
    "fleet.host.silent": ("a machine is silent", 3, "warning"),
    **dict.fromkeys(("item.claimed", "item.released", "item.done"), _UNTITLED),
    "item.taken_over": ("was taken over", 3, "repeat"),
    "item.held": ("needs you", 4, "rotating_light"),
    "fleet.fenced": ("lost its lease", 4, "warning"),
    "sandbox.degraded": ("runs without a sandbox", 3, "warning"),
    **dict.fromkeys(("agent.exhausted", "agent.returned", "quota.limited", "quota.open"), _UNTITLED),
    "agent.refused": ("tried to control its supervision", 3, "no_entry"),
    **dict.fromkeys(("incident.held_back", "incident.acknowledged", "incident.closed"), _UNTITLED),
    **dict.fromkeys(("config.drifted", "request.accepted", "log.gap"), _UNTITLED),
}
"""Every type of event: its title where it is sent to a person, ntfy's priority for it, and ntfy's tag.

Without a title, people get an event only by naming its type, not through ``*``. Priority 5 overrides "do not
disturb", 2 makes no sound.
"""
EVENT_TYPES = tuple(EVENTS)

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
    """Return whether ``text`` is a ralph's name: ``^[a-z0-9][a-z0-9._-]{0,62}$``."""
    return 0 < len(text) <= MAX_NAME_CHARS and text[0] in _NAME_FIRST and _NAME_REST.issuperset(text)


def ralph_path(name: str) -> str:
    """Return the path of a ralph in the API: of ``NAME`` here, or ``HOST/NAME`` in the fleet."""
    return f"/fleet/ralphs/{name}" if "/" in name else f"/ralphs/{name}"


def status_exit_code(states: "list[str]") -> int:
    """Return the exit code of ``status`` for ralphs in these states: 1 before 75 before 0."""
    if "failed" in states:
        return EXIT_FAILED
    return EXIT_PAUSED if "paused" in states else EXIT_OK


# A ralph's view: each key and its kind, in order. The daemon builds the view from these tables, the offline
# reader checks files against them, and the schema of the API is made from them.

TEXT = str | None
STATE_KEYS: "Kinds" = {
    "ralph_pid": int | None,
    **dict.fromkeys(("iteration", "consecutive_errors"), int),
    **dict.fromkeys(("last_output_at", "last_commit"), TEXT),
    "total_cost_usd": float,
    "version": int,
    **dict.fromkeys(("name", "state", "goal", "mode"), str),
    **dict.fromkeys(("branch", "started_at", "finished_at"), TEXT),
    "passed": bool | None,
    "agent": TEXT,
    **dict.fromkeys(("pool", "task", "tasks", "wait"), dict | None),
    **dict.fromkeys(("restarts", "reverts"), int),
    "last_exit": dict | None,
    **dict.fromkeys(("pause_reason", "run_id", "message"), TEXT),
    **dict.fromkeys(("last_change", "incident"), dict | None),
}
"""The keys that ``regent-state.json`` shows; the first six are those of the file's first version."""
VIEW_KEYS: "Kinds" = STATE_KEYS | {
    "directory": str,
    "command": list,
    "tree_means": TEXT,
    **dict.fromkeys(("sandbox", "checkpoint"), dict | None),
    "drift": list,
    **dict.fromkeys(("guard", "landing"), dict | None),
    "notes": list,
    **dict.fromkeys(("seen", "resources"), dict | None),
}
"""The keys of a view in the API. ``resources`` is there only if it was requested."""
POOL_AGENT_KEYS: "Kinds" = {"name": str, "in": bool, "until": TEXT, "reason": TEXT, "last": bool}
INCIDENT_KEYS: "Kinds" = {
    **dict.fromkeys(("opened_at", "message", "needs", "do"), str),
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


def wrong_system() -> str:
    """Return why nothing can be supervised here, or an empty text. macOS has no pidfd, nor /proc."""
    needs = "ralphd needs Linux, and a Python built for Linux 5.3 or later: this one has no os.pidfd_open"
    return "" if hasattr(os, "pidfd_open") else needs


def state_directory(environ: "Mapping[str, str]") -> str:
    """Return the daemon's state directory for this environment."""
    if given := environ.get("RALPHD_STATE_DIR"):
        return os.path.abspath(given)
    home = environ.get("HOME") or os.path.expanduser("~")
    given = environ.get("XDG_STATE_HOME", "")  # a relative one is to be ignored (XDG Base Directory)
    base = given if given.startswith("/") else os.path.join(home, ".local", "state")
    return os.path.join(base, "ralphd")


def socket_path(environ: "Mapping[str, str]") -> str:
    """Return where the daemon of this environment listens."""
    return environ.get("RALPHD_SOCKET") or os.path.join(state_directory(environ), "ralphd.sock")


def socket_candidates(environ: "Mapping[str, str]", build: str | None = None) -> "Iterator[str]":
    """Yield the paths where a client looks for the socket, best first.

    ``build`` is the socket of a ``ralphctl build`` in the working directory, if one runs there.
    """
    if given := environ.get("RALPHD_SOCKET"):
        yield given
    if build:
        yield build
    yield os.path.join(state_directory(environ), "ralphd.sock")
    yield "/run/ralphd/ralphd.sock"

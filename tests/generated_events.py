"""``docs/events.md``: every event type on the wire, when it is told, and what its data holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from ralphd.wire import EVENT_TYPES


@dataclass(frozen=True, slots=True)
class Told:
    """When an event is told; the keys that its ``data`` always has, and those that it has now and then."""

    when: str
    data: tuple[str, ...] = ()
    at_times: tuple[str, ...] = ()


def _told(when: str, data: str = "", at_times: str = "") -> Told:
    return Told(when, tuple(data.split()), tuple(at_times.split()))


_JUDGED = "iteration task verdict why commits reverted"

TOLD: Mapping[str, Told] = {
    "daemon.started": _told("it answers", "pid version"),
    "daemon.stopping": _told("it was asked to end", "runs"),
    "daemon.degraded": _told("something is missing", "message"),
    "state.recovered": _told(
        "a broken file was replaced, or what a run left half done in the repository was mended",
        at_times="file kept_as rebuilt_from message",
    ),
    "ralph.registered": _told("a ralph is new", "directory"),
    "ralph.started": _told("a run began", "pid"),
    "ralph.adopted": _told("a run of an earlier daemon was taken over", "message pid"),
    "ralph.exited": _told("a run ended", "code signal outcome"),
    "ralph.stall_warning": _told("a run is silent, and its processes are looked at from now on", "message"),
    "ralph.stalled": _told("a run hangs or takes too long, and is ended for it", "message failure_kind"),
    "ralph.retrying": _told("it failed and is started again later", "message until"),
    "ralph.escalated": _told(
        "a person is called, once an incident, or reminded of it ([when](notifications.md))",
        "message directory needs do",
        "reminder held_back since",
    ),
    "incident.held_back": _told("it called again while its incident was open", "message held_back since"),
    "incident.acknowledged": _told("a person knows (`ralphctl ack`)", "message since held_back"),
    "incident.closed": _told(
        "the incident is over; `why` is `works`, `known` or `stopped`", "message why since held_back"
    ),
    "ralph.paused": _told("it is being paused, or is", "message", "until"),
    "ralph.resumed": _told("it goes on after a pause", "message"),
    "ralph.stopped": _told("it stopped as asked, or by itself since it got nowhere", "message"),
    "ralph.done": _told("it is done", "message"),
    "ralph.failed": _told("nothing runs until a person acts", at_times="message"),
    "iteration.started": _told("a run has reported that it begins one", "iteration task"),
    "iteration.finished": _told(
        "a run has reported that it has finished one", "iteration failed summary task complete commits"
    ),
    "attempt.finished": _told(
        "a run has reported the end of an agent; the keys are those of the history",
        "iteration task attempt phase agent outcome failure_kind category hint rule why code cost_usd "
        "cost_source tokens_in tokens_out model session duration_s reset_at commits next",
    ),
    "tests.passed": _told(
        "the tests of an iteration passed, or those before the first run",
        "tests",
        f"baseline {_JUDGED} refs",
    ),
    "tests.failed": _told("they failed", "tests", f"baseline message {_JUDGED} refs"),
    "commit.kept": _told(
        "an iteration's commits stay; the keys are those of the history", f"message {_JUDGED} tests refs"
    ),
    "commit.reverted": _told("commits were reverted", f"message {_JUDGED} tests refs"),
    "commit.restored": _told(
        "a person has put back what was reverted (`ralphctl undo`)", "message iteration task commits made"
    ),
    "guard.blocked": _told(
        "commits were not judged, or a run left something half done", "message", f"{_JUDGED} refs tests"
    ),
    "agent.exhausted": _told(
        "an agent is not asked before a moment, or before a person acts", "message agent reason until"
    ),
    "agent.returned": _told("it may be asked again", "message agent"),
    "wait.started": _told(
        "nothing runs until a moment, or a run has reported that it waits", "until", "message"
    ),
    "wait.ended": _told("the wait is over", at_times="message"),
    "config.drifted": _told(
        "a ralph's configuration files were changed, and wait for `ralphctl reload`", "message drift do"
    ),
}
"""Those that this version tells. A new type needs its line here."""

INTRODUCTION = """\
# Events

Written by `make docs` from the types in `ralphd/wire.py`; a test fails when it is stale, and another one
compares it with what a daemon tells. Do not edit it.

What happens is told as an event. `ralphctl events` prints them, `GET /v1/events` streams them
([its form](files.md#events)), webhooks send those that their `on` names: a type, `*`, or all of a kind, such
as `ralph.*`. The daemon keeps them for 30 days.

Of the keys of `data`, those in brackets are not always there. `message` is what people read, `do` a command
to type, `until` the moment at which something goes on by itself, `needs` what a person has to do.

| type | told when | `data` |
| --- | --- | --- |
"""


def events_page() -> str:
    """The text of ``docs/events.md``."""
    rows = [
        f"| `{kind}` | {TOLD[kind].when} | {_data(TOLD[kind])} |\n" for kind in EVENT_TYPES if kind in TOLD
    ]
    rest = ", ".join(f"`{kind}`" for kind in EVENT_TYPES if kind not in TOLD)
    known = f"\nKnown, and told by no part of this version: {rest}.\n" if rest else ""
    return INTRODUCTION + "".join(rows) + known


def _data(told: Told) -> str:
    keys = [*(f"`{key}`" for key in told.data), *(f"(`{key}`)" for key in told.at_times)]
    return ", ".join(keys) or "-"

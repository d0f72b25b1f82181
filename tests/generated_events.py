"""``docs/events.md``: every event type on the wire, when it is published, and the keys of its data."""

from collections.abc import Mapping
from dataclasses import dataclass

from ralphd.wire import EVENT_TYPES


@dataclass(frozen=True, slots=True)
class Told:
    """When an event is published; the keys that its ``data`` always has, and the optional ones."""

    when: str
    data: tuple[str, ...] = ()
    at_times: tuple[str, ...] = ()


def _told(when: str, data: str = "", at_times: str = "") -> Told:
    return Told(when, tuple(data.split()), tuple(at_times.split()))


_LANDING = "message target number ralph branch head state why tries commit undoes queued_at ended_at"
_ITEM = "item branch token commit"
_JUDGED = "iteration task verdict why commits reverted"

TOLD: Mapping[str, Told] = {
    "daemon.started": _told("the daemon accepts requests", "pid version"),
    "daemon.stopping": _told("the daemon begins to shut down", "runs", "by"),
    "daemon.degraded": _told("a part of the daemon does not work; `message` names it", "message"),
    "state.recovered": _told(
        "a broken file was replaced, or a repository that a run left half changed was repaired",
        at_times="file kept_as rebuilt_from message",
    ),
    "ralph.registered": _told("a ralph was registered", "directory", "by"),
    "ralph.started": _told("a run started", "pid", "by"),
    "ralph.adopted": _told("the daemon adopted a run of an earlier daemon", "message pid"),
    "ralph.exited": _told("a run ended", "code signal outcome", "by"),
    "ralph.stall_warning": _told(
        "a run is silent, and its processes are inspected from now on; or it waits for more than a day",
        "message",
    ),
    "ralph.stalled": _told("a run hangs or exceeds its time, and is ended", "message failure_kind"),
    "ralph.retrying": _told("a run failed and will be restarted", "message until"),
    "ralph.escalated": _told(
        "an alert for a person, once per incident, or a reminder ([when](notifications.md))",
        "message directory needs do",
        "reminder held_back since desktop by",
    ),
    "incident.held_back": _told(
        "an alert was suppressed because its incident is open", "message held_back since", "by"
    ),
    "incident.acknowledged": _told(
        "a person acknowledged the incident (`ralphctl ack`)", "message since held_back", "by"
    ),
    "incident.closed": _told(
        "the incident is over; `why` is `works`, `known` or `stopped`", "message why since held_back", "by"
    ),
    "ralph.pausing": _told("a pause was requested, and takes effect after the iteration", "message", "by"),
    "ralph.paused": _told("it is paused", "message", "until by"),
    "ralph.resumed": _told("it continues after a pause", "message", "by"),
    "ralph.stopped": _told("it was stopped by a request, or because it made no progress", "message", "by"),
    "ralph.done": _told("it is done", "message"),
    "ralph.failed": _told("it failed; nothing runs until a person acts", at_times="message escalated by"),
    "iteration.started": _told("a run reported that an iteration begins", "iteration task"),
    "iteration.finished": _told(
        "a run reported that an iteration has finished", "iteration failed summary task complete commits"
    ),
    "attempt.finished": _told(
        "a run reported the end of an agent process; the keys are those of the history",
        "iteration task attempt phase agent outcome failure_kind category hint rule why code cost_usd "
        "cost_source tokens_in tokens_out model session duration_s reset_at commits next",
    ),
    "tests.passed": _told(
        "the tests of an iteration passed, or those before the first run",
        "tests",
        f"baseline {_JUDGED} refs",
    ),
    "tests.failed": _told("these tests failed", "tests", f"baseline message {_JUDGED} refs"),
    "tests.weakened": _told(
        "an iteration changed what a test expects, or fewer tests ran ([guard](guard.md))",
        "message",
        f"{_JUDGED} refs tests",
    ),
    "commit.kept": _told(
        "the commits of an iteration are kept; the keys are those of the history",
        f"message {_JUDGED} tests refs",
    ),
    "commit.reverted": _told("commits were reverted", f"message {_JUDGED} tests refs"),
    "repository.repaired": _told(
        "an iteration destroyed the git directory or lost commits of the branch, and they were restored",
        "message why",
        "number undo left refs branch lost reapplied conflicts ref",
    ),
    "file.restored": _told(
        "an iteration deleted ignored files, changed hooks, or settings that run a command; restored",
        "message files number",
        "undo",
    ),
    "commit.restored": _told(
        "a person re-applied reverted commits, or undid a repair (`ralphctl undo`)",
        "message iteration task commits made",
        "repair ref by",
    ),
    "sandbox.degraded": _told(
        "a run has no sandbox although `[sandbox] level` is `auto`; once per reason", "message level reason"
    ),
    "landing.queued": _told("a branch is in the landing queue, or waits for you there", _LANDING),
    "landing.testing": _told("a branch is merged, and its tests run", f"{_LANDING} test_run"),
    "landing.landed": _told("the target has a branch", f"{_LANDING} tail"),
    "landing.pushed": _told("a branch is pushed to the remote, for a pull request", f"{_LANDING} tail"),
    "landing.refused": _told(
        "a branch conflicts, its tests fail, or the remote rejects it", f"{_LANDING} tail"
    ),
    "landing.followed": _told("the target is merged into the branch of another ralph", "message branch head"),
    "guard.blocked": _told(
        "commits were not judged, a run left something half done, or a branch of a remote lost commits",
        "message",
        f"{_JUDGED} refs tests number undo",
    ),
    "agent.exhausted": _told(
        "an agent is not used until `until`, or until a person acts", "message agent reason until"
    ),
    "agent.refused": _told(
        "a process of a run requested what a run may not request; `count` are its requests since the last"
        " such event, at most one a minute",
        "message action count by",
    ),
    "quota.limited": _told(
        "an attempt of a built-in loop met a limit of its account, and no other one starts until then",
        "message account agent until met_by",
    ),
    "quota.open": _told("a probe after the reset was answered", "message account agent"),
    "fleet.joined": _told("the machine is connected to its hub since the daemon's start", "host"),
    "fleet.lost": _told("the connection to the hub is lost; what runs continues", "host"),
    "fleet.back": _told("the hub is connected again", "host"),
    "fleet.host.silent": _told("another machine shows no sign of life", "host", "item"),
    "item.claimed": _told("this machine has an item", _ITEM),
    "item.taken_over": _told("this machine has an item of a machine that is gone", f"{_ITEM} previous"),
    "item.released": _told("this machine gave an item back", f"{_ITEM} why refs state"),
    "item.done": _told("an item is done, or has failed: `state`", f"{_ITEM} why refs state"),
    "item.held": _told("an item needs a person", f"{_ITEM} why", "refs state"),
    "fleet.fenced": _told(
        "another machine has the branch: the ralph is stopped, its work is saved under `refs`",
        f"{_ITEM} by refs is_saved",
    ),
    "agent.returned": _told("the agent is used again", "message agent"),
    "wait.started": _told("nothing runs until `until`, or a run reported that it waits", "until", "message"),
    "wait.ended": _told("the wait is over", at_times="message by"),
    "config.drifted": _told(
        "configuration files of a ralph were changed and need `ralphctl reload`", "message drift do"
    ),
    "request.accepted": _told(
        "a request without an event of its own was carried out: reload, rm, tasks, notes, webhooks",
        "message action by",
    ),
}
"""The events that this version publishes. A new type needs a line here."""

INTRODUCTION = """\
# Events

Written by `make docs` from the types in `ralphd/wire.py`; a test fails when it is stale, and another one
compares it with the events that a daemon publishes. Do not edit it.

The daemon publishes everything that happens as an event. `ralphctl events` prints events, `GET /v1/events`
streams them ([their format](files.md#events)), and webhooks send those that match their `on`: a type, `*`, or
all of a kind, such as `ralph.*`. The daemon keeps events for 30 days.

Keys of `data` in brackets are optional. `message` is a text for people, `do` a command to type, `until` the
time at which the ralph continues by itself, `needs` what a person has to do, `by` the process whose request
caused the event: `pid`, `uid`, `run_id` (null outside of runs), `command`.

| type | published when | `data` |
| --- | --- | --- |
"""


def events_page() -> str:
    """The text of ``docs/events.md``."""
    rows = [
        f"| `{kind}` | {TOLD[kind].when} | {_data(TOLD[kind])} |\n" for kind in EVENT_TYPES if kind in TOLD
    ]
    rest = ", ".join(f"`{kind}`" for kind in EVENT_TYPES if kind not in TOLD)
    known = f"\nKnown, but not published by this version: {rest}.\n" if rest else ""
    return INTRODUCTION + "".join(rows) + known


def _data(told: Told) -> str:
    keys = [*(f"`{key}`" for key in told.data), *(f"(`{key}`)" for key in told.at_times)]
    return ", ".join(keys) or "-"

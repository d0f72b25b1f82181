"""One message per incident, whatever flaps; and no first call is ever lost (C2)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core import incidents
from ralphd.core.gate.verdict import Baseline, Result, Verdict, VerdictKind
from ralphd.core.incidents import QUIET_S, Cause, CloseReason, Escalation, Incident
from ralphd.core.supervision.events import (
    BaselineTested,
    Committed,
    Event,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    StartRequested,
    StopRequested,
    VerdictReached,
)
from ralphd.core.supervision.exit_policy import outcome
from ralphd.core.supervision.model import (
    Done,
    Failed,
    Goal,
    Paused,
    Policy,
    Reason,
    RunReports,
    Step,
    Stopped,
    Supervision,
    Tally,
    Waiting,
)
from ralphd.core.supervision.reports import Heartbeat, IterationFinished
from tests.core.supervision.scenes import (
    EXIT_0,
    EXIT_1,
    HUNG,
    NOW,
    PAUSING,
    POLICY,
    RUN,
    RUNNING,
    ralph,
    report,
)

GAVE_UP = Escalation("gave up", "a look", "ralphctl explain demo")
BLOCKED = Escalation("not judged", "a look", "ralphctl verdicts demo", Cause.GUARD, stands=False)
DEAD = ralph(Failed("gave up"))
LIVES = ralph(RUNNING)
HOUR_S = 3600.0


def an_incident(call: Escalation = GAVE_UP, at: float = NOW, **changes: object) -> Incident:
    """An incident that was just opened by ``call``."""
    return replace(incidents.called(None, call, "k1", at, RUN), **changes)  # type: ignore[arg-type]


def again(
    now: Incident | None, call: Escalation = GAVE_UP, key: str = "k2", *, after_s: float = 60.0
) -> Incident:
    """The incident after another call."""
    return incidents.called(now, call, key, NOW + after_s, RUN)


def verdict(kind: VerdictKind, tests: tuple[str, ...] = ("green",), **said: bool) -> VerdictReached:
    """What a judgement with a run of the tests said."""
    verdict = Verdict(kind, "why", Baseline.GREEN, tests=tests, run_id=RUN, at=NOW)
    return VerdictReached(replace(verdict, **said))  # type: ignore[arg-type]


# --- what is told, and what is held back --------------------------------------------------------------


def test_the_first_call_is_told_and_further_ones_are_held_back_and_counted() -> None:
    first = an_incident()
    third = again(again(first), Escalation("gave up otherwise", "n", "d"), "k3")

    assert (first.key, first.held_back, first.opened_at, first.told_at) == ("k1", 0, NOW, NOW)
    assert (third.key, third.held_back, third.message, third.latest) == (
        "k1", 2, "gave up", "gave up otherwise",
    )  # fmt: skip
    assert third.call.needs == "n"
    assert incidents.told_of(third) == (
        "gave up — 2 more alerts were held back, the last one: gave up otherwise"
    )


def test_a_call_that_is_told_anew_after_a_death_of_the_daemon_counts_once() -> None:
    first = an_incident()
    assert again(first, key="k1") == first


def test_a_ralph_that_stops_altogether_is_told_though_one_is_open_over_which_it_went_on() -> None:
    worse = again(replace(again(an_incident(BLOCKED), BLOCKED), acknowledged_at=NOW), key="k3")
    assert (worse.key, worse.held_back, worse.acknowledged_at) == ("k3", 1, None)
    assert again(worse, BLOCKED, "k4").key == "k3"
    assert worse == Incident("k3", NOW + 60, NOW + 60, "gave up", GAVE_UP, RUN, 1, "not judged")


@pytest.mark.parametrize("asked", [StartRequested, ResumeRequested, RestartRequested, SkipWaitRequested])
def test_what_a_person_starts_and_fails_at_once_is_told_a_quarter_of_an_hour_after_the_last_message(
    asked: type[StartRequested],
) -> None:
    started = incidents.heeded(an_incident(), asked(NOW + 30))
    failed = again(started)

    assert started.taken_up
    assert incidents.tell_at(started, DEAD, HOUR_S) is None  # they are at it
    assert (failed.key, failed.held_back, failed.taken_up) == ("k1", 1, False)
    assert incidents.tell_at(failed, DEAD, 0) == NOW + QUIET_S
    assert incidents.tell_at(failed, DEAD, 60) == NOW + 60  # who asked for reminders hears of it with them
    assert incidents.tell_at(failed, DEAD, HOUR_S) == NOW + QUIET_S
    assert incidents.tell_at(again(failed, key="k3", after_s=70), DEAD, 0) == NOW + QUIET_S
    assert incidents.tell_at(incidents.heeded(failed, asked(NOW + 90)), LIVES, 0) is None
    assert incidents.tell_at(incidents.told_again(failed, NOW + QUIET_S), DEAD, 0) is None


@pytest.mark.parametrize("after_s", [QUIET_S, HOUR_S, -1.0])
def test_what_a_person_started_and_fails_later_is_a_new_incident_and_told_at_once(after_s: float) -> None:
    """Also where the clock was set back: nobody knows how long ago the last message was."""
    started = incidents.heeded(an_incident(), StartRequested(NOW))
    assert again(started, after_s=after_s) == replace(an_incident(at=NOW + after_s), key="k2")


def test_other_requests_take_nothing_up_nor_does_a_start_of_what_works() -> None:
    assert incidents.heeded(an_incident(), StopRequested(NOW)) == an_incident()
    assert incidents.heeded(an_incident(BLOCKED), StartRequested(NOW)) == an_incident(BLOCKED)


def test_what_nobody_has_started_has_no_message_of_its_own() -> None:
    assert again(an_incident()).due_at is None


def test_a_failure_at_the_moment_of_the_message_is_held_back() -> None:
    started = incidents.heeded(an_incident(), StartRequested(NOW))
    assert again(started, after_s=0.0).held_back == 1


# --- reminders ----------------------------------------------------------------------------------------


def test_a_reminder_comes_as_often_as_is_asked_for_and_never_by_itself() -> None:
    incident = an_incident()
    assert incidents.tell_at(incident, DEAD, 0) is None
    assert incidents.tell_at(incident, DEAD, HOUR_S) == NOW + HOUR_S
    assert incidents.tell_at(incident, DEAD, 0.001) == NOW + 1
    late = incidents.told_again(incident, NOW + 5.5 * HOUR_S)  # the daemon was away: one message, not five
    assert incidents.tell_at(late, DEAD, HOUR_S) == NOW + 6.5 * HOUR_S
    assert (late.reminders, incidents.reminder_key(late)) == (1, "k1/reminder/1")


@pytest.mark.parametrize(
    ("now", "call", "reminds"),
    [
        (DEAD, GAVE_UP, True),
        (ralph(Paused("guard")), GAVE_UP, True),
        (ralph(Paused("usage_limit", NOW + 60)), GAVE_UP, False),
        (LIVES, GAVE_UP, False),
        (LIVES, BLOCKED, True),
        (ralph(Waiting(Reason.CRASH, NOW, NOW + 30)), GAVE_UP, False),
        (ralph(Stopped(), Goal.STOPPED), GAVE_UP, False),
    ],
)
def test_nobody_is_reminded_of_what_goes_on_without_them(
    now: Supervision, call: Escalation, reminds: bool
) -> None:
    incident = an_incident(call)
    assert incidents.needs_a_person(incident, now) is reminds
    assert not incidents.needs_a_person(incidents.acknowledged(incident, NOW), now)


def test_a_clock_that_was_set_back_puts_no_message_far_off() -> None:
    incident = an_incident(due_at=NOW + QUIET_S)
    assert incidents.by_the_clock(incident, NOW + 1) is incident
    after = incidents.by_the_clock(incident, NOW - 86400)
    assert (after.told_at, after.due_at) == (NOW - 86400, NOW - 86400 + QUIET_S)
    assert incidents.by_the_clock(an_incident(), NOW - 5).due_at is None


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "under a minute"), (59, "under a minute"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"),
        (7800, "2 h 10 min"), (86400, "1 d"), (86400 * 3 + 3600 * 4, "3 d 4 h"),
    ],
)  # fmt: skip
def test_a_reminder_says_since_when(seconds: float, said: str) -> None:
    text = incidents.reminder_text(an_incident(), NOW + seconds)
    assert text == f"Ralph has needed you for {said}: gave up"


# --- acknowledged -------------------------------------------------------------------------------------


def test_what_is_acknowledged_stays_so_and_is_over_when_the_ralph_runs() -> None:
    known = incidents.acknowledged(an_incident(due_at=NOW + 5), NOW + 10)
    assert (known.acknowledged_at, known.due_at) == (NOW + 10, None)
    assert incidents.acknowledged(known, NOW + 99) is known
    assert incidents.settled_by_a_person(known, DEAD) is None
    assert incidents.settled_by_a_person(known, ralph(Paused("guard"))) is None
    assert incidents.settled_by_a_person(known, LIVES) is CloseReason.KNOWN
    assert incidents.settled_by_a_person(an_incident(), LIVES) is None
    assert incidents.settled_by_a_person(known, ralph(RUNNING, Goal.STOPPED)) is None


def test_a_stop_by_a_person_ends_it_and_one_by_itself_or_by_the_daemon_does_not() -> None:
    incident = an_incident()
    assert incidents.settled_by_a_person(incident, ralph(Stopped(), Goal.STOPPED)) is CloseReason.STOPPED
    assert incidents.settled_by_a_person(incident, ralph(Stopped("no progress"), Goal.STOPPED)) is None
    assert incidents.settled_by_a_person(incident, ralph(Stopped())) is None


# --- over ---------------------------------------------------------------------------------------------

FINISHED = report(IterationFinished(number=1))
HEALTHY = replace(EXIT_1, committed=True)
LONG = replace(EXIT_1, started_at=NOW - 700, last_sign_at=NOW - 5)
ONCE = Tally(iteration=1)
WAITS = Waiting(Reason.CRASH, NOW, NOW + 30)
PAUSES = Waiting(Reason.ITERATION_PAUSE, NOW, NOW + 1)


def answered(before: Supervision, event: Event, after: Supervision) -> Step:
    """The step from one to the other."""
    meaning = outcome(before.state, event.ending, before.said) if isinstance(event, RunEnded) else None
    return Step(after, exit_meaning=meaning)


@pytest.mark.parametrize(
    ("before", "event", "after", "works"),
    [
        (LIVES, FINISHED, LIVES, True),
        (LIVES, FINISHED, ralph(PAUSING), False),
        (LIVES, report(IterationFinished(number=1, failed=True)), LIVES, False),
        (LIVES, report(Heartbeat()), LIVES, False),
        (ralph(RUNNING, said=RunReports(reverted=True, judged=f"{RUN}/1")), FINISHED, LIVES, False),
        (ralph(RUNNING, said=RunReports(reverted=True, judged=f"{RUN}/0")), FINISHED, LIVES, True),
        (LIVES, Committed(NOW, RUN, 1), ralph(RUNNING, tally=ONCE), True),
        (ralph(RUNNING, tally=ONCE), Committed(NOW, RUN, 1), ralph(RUNNING, tally=ONCE), False),
        (LIVES, RunEnded(EXIT_1), ralph(WAITS), False),
        (LIVES, RunEnded(HEALTHY), ralph(WAITS), True),
        (LIVES, RunEnded(HEALTHY), DEAD, True),
        (LIVES, RunEnded(LONG), ralph(WAITS), True),
        (ralph(HUNG), RunEnded(LONG), ralph(WAITS), False),
        (LIVES, RunEnded(EXIT_0), ralph(PAUSES), True),
        (ralph(RUNNING, said=RunReports(reverted=True)), RunEnded(EXIT_0), ralph(PAUSES), False),
        (LIVES, RunEnded(EXIT_0), ralph(Done()), True),
        (DEAD, StartRequested(NOW), LIVES, False),
        (LIVES, verdict(VerdictKind.KEPT), LIVES, False),
    ],
)
def test_it_is_over_when_the_ralph_has_got_something_done(
    before: Supervision, event: Event, after: Supervision, works: bool
) -> None:
    """By what the count of failures starts anew (C3); a start alone is none of it."""
    said = incidents.over(an_incident(), before, event, answered(before, event, after), POLICY)
    assert said is (CloseReason.WORKS if works else None)


@pytest.mark.parametrize(
    ("event", "judges"),
    [
        (FINISHED, False),
        (verdict(VerdictKind.KEPT), True),
        (verdict(VerdictKind.REVERTED), True),
        (verdict(VerdictKind.UNTESTED, calls=True), False),
        (verdict(VerdictKind.UNTESTED, pauses=True), False),
        (verdict(VerdictKind.KEPT, ()), False),
        (BaselineTested(NOW, "b", Result.GREEN), True),
        (BaselineTested(NOW, "b", Result.RED), False),
        (RunEnded(EXIT_0), False),
    ],
)
def test_what_the_guard_could_not_do_it_has_to_do_again(event: Event, judges: bool) -> None:
    after = ralph(Done()) if isinstance(event, RunEnded) else LIVES
    said = incidents.over(an_incident(BLOCKED), LIVES, event, Step(after), POLICY)
    assert said is (CloseReason.WORKS if judges else None)


@pytest.mark.parametrize(
    ("now", "call", "lived_s", "through"),
    [
        (LIVES, GAVE_UP, 601.0, True),
        (LIVES, GAVE_UP, 600.0, False),
        (LIVES, GAVE_UP, None, False),
        (LIVES, BLOCKED, 601.0, False),
        (ralph(HUNG), GAVE_UP, 601.0, False),
        (DEAD, GAVE_UP, 601.0, False),
        (ralph(RUNNING, said=RunReports(hello=True)), GAVE_UP, 601.0, False),
        (ralph(RUNNING, said=RunReports(iterates=True)), GAVE_UP, 601.0, False),
    ],
)
def test_a_command_that_tells_nothing_has_come_through_when_it_has_printed_for_so_long(
    now: Supervision, call: Escalation, lived_s: float | None, through: bool
) -> None:
    sign = None if lived_s is None else NOW + lived_s
    said = incidents.has_come_through(
        an_incident(call), now, started_at=NOW, last_sign_at=sign, policy=Policy()
    )
    assert said is through


def test_the_end_says_what_it_was_and_what_was_held_back() -> None:
    text = incidents.over_text(again(an_incident()), CloseReason.WORKS, NOW + 7800)
    assert text == "Ralph works again, 2 h 10 min after the alert: gave up — 1 more alert was held back"


# --- over any history ---------------------------------------------------------------------------------

STEPS = st.one_of(
    st.sampled_from(["gives up", "is blocked", "works", "a person starts it", "a person acknowledges"]),
    st.sampled_from([1.0, 60.0, 600.0, QUIET_S, 2 * HOUR_S]),
)


class Night:
    """What happens to one ralph, and whom it calls: each message is held against the promise."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._at, self._now, self._calls = NOW, LIVES, 0
        self._incident: Incident | None = None
        self._is_told = False  # and nothing has happened since that makes another message news

    def calls(self, call: Escalation) -> None:
        """It gives up, or goes on unjudged."""
        self._calls += 1
        before, key = self._incident, f"k{self._calls}"
        self._now = DEAD if call.stands else self._now
        self._incident = incidents.called(before, call, key, self._at, RUN)
        is_told = self._incident.key == key
        is_worse = before is not None and call.stands and not before.call.stands
        assert is_told or before is not None, "the first call of all was not told"
        assert is_told or not is_worse, "it stopped altogether, and nobody was told"
        assert not is_told or not self._is_told or is_worse, "two messages for one incident"
        if before is not None and not is_told:
            assert self._incident.held_back == before.held_back + 1, "a call was lost"
        self._is_told = self._is_told or is_told

    def works(self) -> None:
        """It gets something done."""
        self._now, self._incident, self._is_told = LIVES, None, False

    def is_started(self) -> None:
        """By a person."""
        self._now, self._is_told = LIVES, False
        if self._incident is not None:
            self._incident = incidents.heeded(self._incident, StartRequested(self._at))
        self._settle()

    def is_acknowledged(self) -> None:
        """By a person: no message of it comes from now on."""
        if self._incident is not None:
            self._incident = incidents.acknowledged(self._incident, self._at)
            assert incidents.tell_at(self._incident, self._now, self._every_s) is None
        self._settle()

    def passes(self, seconds: float) -> None:
        """Time."""
        self._at += seconds
        incident = self._incident
        due = None if incident is None else incidents.tell_at(incident, self._now, self._every_s)
        if incident is None or due is None or due > self._at:
            return
        assert self._every_s or not self._is_told, "a reminder that nobody asked for"
        assert due - incident.told_at >= min(self._every_s or QUIET_S, QUIET_S), "too soon"
        self._incident, self._is_told = incidents.told_again(incident, self._at), True

    def _settle(self) -> None:
        if self._incident is not None and incidents.settled_by_a_person(self._incident, self._now):
            self._incident, self._is_told = None, False


@given(st.lists(STEPS, max_size=40), st.sampled_from([0.0, 300.0, HOUR_S]))
def test_there_is_one_message_an_incident_and_no_first_call_is_lost(
    steps: list[str | float], every_s: float
) -> None:
    night = Night(every_s)
    for step in steps:
        match step:
            case "gives up":
                night.calls(GAVE_UP)
            case "is blocked":
                night.calls(BLOCKED)
            case "works":
                night.works()
            case "a person starts it":
                night.is_started()
            case "a person acknowledges":
                night.is_acknowledged()
            case float():
                night.passes(step)
            case _:
                pytest.fail(f"{step}?")


def test_what_is_stored_of_an_incident_keeps_its_words() -> None:
    assert [*Cause] == ["run", "guard"]
    assert [*CloseReason] == ["works", "known", "stopped"]
    assert Incident("k", 1.0, 2.0, "m", GAVE_UP) == Incident(
        "k", 1.0, 2.0, "m", GAVE_UP, None, 0, "", 0, None, False, None
    )

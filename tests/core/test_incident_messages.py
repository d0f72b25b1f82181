"""A message says what happened, what it needs from a person, and the command to type."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from ralphd.core.gate.verdict import Baseline, Result, Verdict, VerdictKind
from ralphd.core.incidents import (
    Cause,
    Escalation,
    EscalationContext,
    call_of,
    of_a_bug,
    of_an_end,
    shell_word,
)
from ralphd.core.supervision.events import BaselineTested, Event, RunEnded, SpawnFailed, VerdictReached, Woke
from ralphd.core.supervision.model import Failed, LastWord, Paused, RunReports, Stopped, Supervision
from tests.core.supervision.scenes import LOST, NOW, RUN, RUNNING, ended, ralph

DEAD = ralph(Failed("why"))
CLAUDE = {"claude": "claude auth login"}


def called(
    event: Event,
    *,
    said: RunReports | None = None,
    after: Supervision = DEAD,
    logins: Mapping[str, str] | None = None,
) -> Escalation:
    """What is told of an escalation of the ralph ``demo``."""
    place = EscalationContext("demo", "/srv/my demo", logins or {})
    return call_of("it happened", event, ralph(RUNNING, said=said), after, place)


def after(code: int, reason: str = "") -> tuple[RunEnded, RunReports]:
    """A run that ended with this code, and had said so if it gave a reason."""
    word = LastWord(code, reason) if reason else None
    return RunEnded(ended(code=code)), RunReports(hello=True, last_word=word)


@pytest.mark.parametrize(
    ("end", "do", "needs"),
    [
        (after(1), "ralphctl explain demo", "look at why"),
        (after(1, "tasks_failed"), "less '/srv/my demo/.ralph/progress.md'", "failed tasks"),
        (after(78), "ralphctl -C '/srv/my demo' config check", "configuration"),
        (after(78, "configuration"), "ralphctl -C '/srv/my demo' config check", "configuration"),
        (after(78, "review"), "ralphctl explain demo", "look at why"),
        (after(2), "ralphctl logs demo", "command"),
        (after(126), "ralphctl logs demo", "command"),
        (after(127), "ralphctl logs demo", "command"),
        ((RunEnded(LOST), RunReports()), "ralphctl explain demo", "look at why"),
    ],
)
def test_after_the_end_of_a_run_the_command_fits_the_end(
    end: tuple[RunEnded, RunReports], do: str, needs: str
) -> None:
    call = called(end[0], said=end[1])
    assert (call.message, call.do, call.stands, call.cause) == ("it happened", do, True, Cause.RUN)
    assert needs in call.needs
    assert "ralphctl start demo" in call.needs


def test_a_missing_login_is_told_with_the_agents_own_command_and_the_start() -> None:
    event, said = after(1, "no_agent")
    one = called(event, said=said, logins=CLAUDE)
    assert one.do == "claude auth login && ralphctl start demo"
    assert one.needs == "a login of claude; then start it again"
    two = called(event, said=said, logins=CLAUDE | {"codex": "codex login"})
    assert two.do == "claude auth login && codex login && ralphctl start demo"
    assert two.needs.startswith("a login of claude and codex")
    none = called(event, said=said)  # its message says why: no credit, not installed
    assert (one.message, none.message) == ("it happened", "it happened")
    assert (none.do, none.needs) == ("ralphctl start demo", "a working agent; then start it again")


def test_a_task_list_that_a_person_has_to_look_at_is_resumed_afterwards() -> None:
    event, said = after(75, "task_list")

    assert called(event, said=said) == Escalation(
        "it happened",
        "a look at the task list; when it is as you want it: ralphctl resume demo",
        "ralphctl logs demo",
    )


def test_the_guard_sends_people_to_its_verdicts() -> None:
    verdict = Verdict(VerdictKind.UNTESTED, "a conflict", Baseline.GREEN, pauses=True)
    event = VerdictReached(replace(verdict, at=NOW, run_id=RUN))
    paused = called(event, after=ralph(Paused("guard")))
    assert (paused.do, paused.cause, paused.stands) == ("ralphctl verdicts demo", Cause.GUARD, True)
    assert "ralphctl resume demo" in paused.needs
    assert paused.message == "it happened"
    goes_on = called(replace(event, verdict=replace(verdict, pauses=False, calls=True)))
    assert (goes_on.do, goes_on.cause, goes_on.stands) == ("ralphctl verdicts demo", Cause.GUARD, False)
    assert "continues" in goes_on.needs
    assert goes_on.message == "it happened"


def test_what_cannot_be_started_is_started_again_by_hand() -> None:
    tests = called(BaselineTested(NOW, "b", Result.CANNOT_RUN))
    assert (tests.message, tests.do, tests.cause) == ("it happened", "ralphctl start demo", Cause.GUARD)
    assert "test_command" in tests.needs
    assert called(SpawnFailed(NOW, "gone")) == Escalation(
        "it happened", "a fix of its command; then start it again", "ralphctl start demo"
    )


def test_anything_else_says_where_to_look() -> None:
    assert called(Woke(NOW)) == Escalation(
        "it happened", "a look at the cause; then start it again", "ralphctl explain demo", stands=True
    )
    assert called(Woke(NOW), after=ralph(RUNNING)).stands is False
    assert called(Woke(NOW), after=ralph(Stopped())).stands is True
    assert of_a_bug("it failed") == Escalation(
        "it failed", "a look at the log of ralphd, which has the traceback", "ralphctl regent logs"
    )


def test_a4_a_run_that_may_have_ended_the_daemon_is_named_with_its_command() -> None:
    assert of_an_end("r000001-3fa9c1d2", "demo", 4711, "pkill -f ralphd") == Escalation(
        "ralphd received SIGTERM while run r000001-3fa9c1d2 ran pkill -f ralphd (pid 4711),"
        " which may have caused it",
        "a look at what the run did",
        "ralphctl logs demo",
        stands=False,
    )


@pytest.mark.parametrize(
    ("text", "word"),
    [("/srv/a-b_c.d", "/srv/a-b_c.d"), ("a b", "'a b'"), ("it's", "'it'\\''s'"), ("", "''"), ("é", "'é'")],
)
def test_a_directory_is_one_word_of_the_command(text: str, word: str) -> None:
    assert shell_word(text) == word


def test_who_is_called_by_a_build_is_given_commands_that_work_without_its_daemon() -> None:
    place = EscalationContext("demo", "/srv/my demo", CLAUDE, is_built=True)
    end, said = after(1, "no_agent")
    login = call_of("it happened", end, ralph(RUNNING, said=said), DEAD, place)
    assert login.do == "claude auth login && ralphctl -C '/srv/my demo' build"
    end, said = after(1)
    failed = call_of("it happened", end, ralph(RUNNING, said=said), DEAD, place)
    assert failed.do == "ralphctl -C '/srv/my demo' logs"
    assert failed.needs.endswith(", then: ralphctl -C '/srv/my demo' build")
    assert (place.resume, place.look("verdicts")) == (place.start, "ralphctl -C '/srv/my demo' verdicts")


def test_a_lost_task_list_needs_a_look_and_a_resume() -> None:
    end, said = after(75, "task_list")
    call = called(end, said=said, after=ralph(Paused("task_list", None, "lost")))
    assert (call.do, call.stands) == ("ralphctl logs demo", True)
    assert call.needs == "a look at the task list; when it is as you want it: ralphctl resume demo"

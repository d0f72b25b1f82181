"""What a run says of its own end, and what then comes of it: E1, E2, L10, L11."""

from dataclasses import replace

import pytest

from ralphd.core.supervision.events import RunEnded
from ralphd.core.supervision.exit_policy import failure_kind, outcome
from ralphd.core.supervision.explain import explain_end
from ralphd.core.supervision.model import (
    Announce,
    Done,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    LastWord,
    Outcome,
    Paused,
    Policy,
    Restart,
    RunReports,
    Spawn,
    State,
    Step,
    Stopped,
    Supervision,
    Tally,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import (
    AgentExhausted,
    AgentReturned,
    IterationFinished,
    IterationStarted,
    answer,
)
from tests.core.supervision.scenes import (
    EXIT_0,
    EXIT_1,
    NEXT_RUN,
    NOW,
    PAUSING,
    POLICY,
    RUN,
    RUNNING,
    STOPPING,
    USAGE_LIMIT,
    after_end,
    ended,
    escalations,
    orders,
    ralph,
    report,
    texts,
    told,
    types,
)

NO_AGENT = LastWord(1, "no_agent", "no agent is left: claude is not logged in")
NO_PROGRESS = LastWord(0, "no_progress", "two iterations in a row have committed nothing")
OWN_LOOP = Policy(own_loop=True)


def ends(
    ending: ExitFacts, word: LastWord, *, hello: bool = True, policy: Policy = POLICY, state: State = RUNNING
) -> Step:
    """What comes of the end of a run that has said ``word`` before."""
    return after_end(ending, policy, said=RunReports(hello=hello, last_word=word), state=state)


def test_a_last_word_is_kept_until_the_run_ends_or_goes_on() -> None:
    said = told(ralph(RUNNING), [report(NO_AGENT)])
    assert said.supervision.said.last_word == NO_AGENT
    assert said.actions == ()

    goes_on = told(said.supervision, [report(IterationStarted(2), "2")])
    assert goes_on.supervision.said.last_word is None


def test_a_run_that_says_why_it_gives_up_fails_at_once_and_a_person_is_called_once() -> None:
    answered = ends(EXIT_1, NO_AGENT)

    assert answered.supervision.state == Failed(
        "Ralph gave up: no agent is left: claude is not logged in. Fix that, then start it again"
    )
    assert escalations(answered) == [answered.supervision.state.why]
    assert orders(answered) == ()
    assert answered.supervision.tally.consecutive_errors == 1
    assert types(answered) == ["ralph.exited", "ralph.failed"]


def test_the_same_code_without_a_word_is_a_crash_and_retried() -> None:
    assert isinstance(after_end(EXIT_1, said=RunReports(hello=True)).supervision.state, Waiting)


@pytest.mark.parametrize("ending", [ended(signal=9), ended(code=3), ExitFacts(RUN, NOW)])
def test_a_word_counts_only_where_the_run_ends_as_it_said(ending: ExitFacts) -> None:
    assert isinstance(ends(ending, NO_AGENT).supervision.state, Waiting)


def test_l10_a_run_that_gets_nowhere_is_stopped_and_says_why() -> None:
    answered = ends(EXIT_0, NO_PROGRESS, policy=Policy(restart=Restart.ALWAYS))

    why = "no progress: two iterations in a row have committed nothing"
    assert answered.supervision == Supervision(Goal.STOPPED, Stopped(why))
    assert texts(answered) == [f"Ralph stopped: {why}"]
    assert types(answered) == ["ralph.exited", "ralph.stopped"]
    assert Spawn() not in answered.actions


def test_l10_that_holds_unsupervised_too() -> None:
    answered = ends(EXIT_0, NO_PROGRESS, policy=Policy(supervised=False))

    assert isinstance(answered.supervision.state, Stopped)


def test_what_was_asked_for_outweighs_what_the_run_says() -> None:
    assert ends(EXIT_1, NO_AGENT, state=STOPPING).supervision.state == Stopped()
    assert ends(EXIT_1, NO_AGENT, state=PAUSING).supervision.state == Paused("requested")


def test_e1_the_reason_and_the_reset_of_a_pause_are_those_that_the_run_says() -> None:
    word = LastWord(75, "usage_limit", "claude is at its limit", NOW + 600)
    answered = ends(replace(USAGE_LIMIT, pause_reason="outage"), word)

    until = NOW + 600 + POLICY.reset_margin_s
    assert answered.supervision.state == Paused("usage_limit", until, "claude is at its limit")
    assert orders(answered) == (WakeAt(until),)
    assert texts(answered) == ["Ralph paused: claude is at its limit"]


def test_e1_the_built_in_loop_has_added_the_margin_and_logged_the_pause() -> None:
    word = LastWord(75, "usage_limit", "claude is at its limit", NOW + 660)
    answered = ends(USAGE_LIMIT, word, policy=replace(POLICY, own_loop=True))

    assert answered.supervision.state == Paused("usage_limit", NOW + 660, "claude is at its limit")
    assert texts(answered) == []
    message = ("message", "Ralph paused: claude is at its limit")
    assert Announce("ralph.paused", None, NOW + 660, (message,)) in answered.actions


@pytest.mark.parametrize("supervised", [True, False])
def test_a_loop_whose_list_is_lost_again_and_again_pauses_and_calls(supervised: bool) -> None:
    word = LastWord(75, "task_list", "the task list was lost")
    ending = replace(USAGE_LIMIT, pause_reason="error", resume_at=None)
    answered = ends(ending, word, policy=replace(POLICY, own_loop=True, supervised=supervised))

    assert answered.supervision.state == Paused("task_list", None, "the task list was lost")
    text = "Ralph paused: the task list was lost"
    assert [each for each in answered.actions if isinstance(each, Escalate)] == [Escalate(text)] * supervised
    assert texts(answered) == [text], "one line of the log"


@pytest.mark.parametrize(
    ("saved", "resume_at"), [("usage_limit", NOW + 7200 + POLICY.reset_margin_s), ("outage", None)]
)
def test_e1_a_reset_that_it_does_not_say_is_that_of_its_checkpoint_where_that_is_of_the_same(
    saved: str, resume_at: float | None
) -> None:
    answered = ends(replace(USAGE_LIMIT, pause_reason=saved), LastWord(75, "usage_limit"))

    assert answered.supervision.state == Paused("usage_limit", resume_at)


def test_e2_a_limit_is_told_in_the_words_of_the_run() -> None:
    answered = ends(ended(code=5), LastWord(5, "limit", "max_iterations = 3 reached"))

    assert answered.supervision.state == Done("limit", "max_iterations = 3 reached")
    assert texts(answered) == ["Ralph stopped: max_iterations = 3 reached"]


def test_e2_a_refusal_says_why() -> None:
    answered = ends(ended(code=78), LastWord(78, "configuration", "PROMPT.md is empty"))

    assert answered.supervision.state == Failed("Ralph refused to run (exit 78): PROMPT.md is empty")
    assert len(escalations(answered)) == 1


def test_a_good_end_is_told_with_what_the_run_says_of_it() -> None:
    assert texts(ends(EXIT_0, LastWord(0, "complete", "all tasks are done"))) == [
        "Ralph is done: all tasks are done"
    ]


@pytest.mark.parametrize(
    ("ending", "word", "meant", "kind"),
    [
        (EXIT_1, NO_AGENT, Outcome.GAVE_UP, "fatal"),
        (EXIT_0, NO_PROGRESS, Outcome.NO_PROGRESS, None),
        (EXIT_0, LastWord(0, "complete"), Outcome.DONE, None),
        (ended(code=5), LastWord(5, "limit"), Outcome.LIMIT, None),
    ],
)
def test_the_outcome_of_such_an_end(
    ending: ExitFacts, word: LastWord, meant: Outcome, kind: str | None
) -> None:
    assert outcome(RUNNING, ending, RunReports(hello=True, last_word=word)) is meant
    assert failure_kind(meant) == kind


@pytest.mark.parametrize(
    ("ending", "word", "rule", "words"),
    [
        (EXIT_1, NO_AGENT, "E2", "no agent is left"),
        (EXIT_0, NO_PROGRESS, "L10", "committed nothing"),
        (
            ended(code=75),
            LastWord(75, "outage", "nobody answers"),
            "E1",
            "it reported outage: nobody answers",
        ),
        (ended(code=78), LastWord(78, "configuration", "PROMPT.md"), "E2", "reported: PROMPT.md"),
    ],
)
def test_explain_gives_the_words_of_the_run(ending: ExitFacts, word: LastWord, rule: str, words: str) -> None:
    said = RunReports(hello=True, last_word=word)
    after = after_end(ending, said=said).supervision
    explained = explain_end(ending, outcome(RUNNING, ending, said), said, after, POLICY, None)

    assert explained.rule == rule
    assert words in explained.because


# the built-in loop's iterations


def finishes(now: Supervision, number: int, report_id: str = "1", policy: Policy = OWN_LOOP) -> Supervision:
    return told(now, [report(IterationFinished(number), report_id)], policy).supervision


def test_an_iteration_of_the_built_in_loop_that_is_finished_again_after_a_crash_counts_once() -> None:
    first = finishes(finishes(ralph(RUNNING), 1), 2, "2")
    assert first.tally.iteration == 2

    killed = told(first, [RunEnded(ended(signal=9))], OWN_LOOP).supervision
    again = replace(killed, state=replace(RUNNING, run_id=NEXT_RUN))
    body = replace(report(IterationFinished(2)), run_id=NEXT_RUN)
    repeated = told(again, [body], OWN_LOOP).supervision
    assert repeated.tally.iteration == 2

    following = told(repeated, [replace(report(IterationFinished(3), "2"), run_id=NEXT_RUN)], OWN_LOOP)
    assert following.supervision.tally.iteration == 3


def test_a_command_that_counts_from_1_in_each_run_has_all_of_them_counted() -> None:
    again = finishes(finishes(ralph(RUNNING), 1, policy=POLICY), 1, "2", policy=POLICY)

    assert again.tally == Tally(iteration=2)


def test_a_limit_ends_the_run_at_its_boundary_and_its_own_5_says_the_same() -> None:
    policy = replace(OWN_LOOP, max_iterations=1)
    stopping = finishes(ralph(RUNNING, said=RunReports(hello=True, signals=True)), 1, policy=policy)
    assert answer(stopping, "1").value == "stop"

    word = report(LastWord(5, "limit", "its own words"), "2")
    answered = told(stopping, [word, RunEnded(ended(code=5))], policy)

    assert answered.supervision.state == Done("limit", "max_iterations = 1 reached")
    assert answered.supervision.tally.iteration == 1


# agents


def test_an_agent_that_is_out_is_told_with_its_reason_and_its_reset() -> None:
    answered = told(ralph(RUNNING), [report(AgentExhausted("claude", "weekly limit", NOW + 60))])

    assert answered.actions == (
        Announce(
            "agent.exhausted",
            "claude is not used until 2026-11-21T20:01:00.000000Z: weekly limit",
            data=(
                ("agent", "claude"),
                ("reason", "weekly limit"),
                ("until", "2026-11-21T20:01:00.000000Z"),
            ),
        ),
    )
    assert texts(told(ralph(RUNNING), [report(AgentExhausted("claude", "not logged in"))])) == [
        "claude is not used until you act: not logged in"
    ]


def test_an_agent_that_is_back_is_told() -> None:
    answered = told(ralph(RUNNING), [report(AgentReturned("claude"))])

    assert answered.actions == (
        Announce("agent.returned", "claude is available again", data=(("agent", "claude"),)),
    )


def test_the_built_in_loop_prints_that_an_agent_is_back_and_only_the_event_has_the_text() -> None:
    answered = told(ralph(RUNNING), [report(AgentReturned("claude"))], OWN_LOOP)

    data = (("message", "claude is available again"), ("agent", "claude"))
    assert answered.actions == (Announce("agent.returned", None, data=data),)

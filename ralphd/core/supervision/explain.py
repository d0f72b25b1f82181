"""Why a run's end led to the state after it, in words: the rule, the figures, what was missing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.supervision.exit_policy import heard, in_words, last_word
from ralphd.core.supervision.model import (
    Done,
    ExitFacts,
    Failed,
    Outcome,
    Overdue,
    Paused,
    Policy,
    RunReports,
    Stopped,
    Supervision,
    Waiting,
)
from ralphd.core.time import rfc3339


def explain_end(
    ending: ExitFacts,
    meant: Outcome,
    said: RunReports,
    after: Supervision,
    policy: Policy,
    silence: Explanation | None,
) -> Explanation:
    """Explain why a run's end led to the state ``after`` it."""
    ending = heard(ending, said)
    explained = _ended(ending, meant, said, after, policy)
    figures = (*_end_figures(ending, after, policy), *explained.figures)
    if meant in (Outcome.STALLED, Outcome.TIMED_OUT) and silence is not None:
        return replace(
            silence, figures=(*silence.figures, *figures), done=f"{silence.done}; {explained.done}"
        )
    return replace(explained, figures=figures, silence=silence)


_SAID_SO: Final[Mapping[Outcome, tuple[str, str, str]]] = {
    Outcome.LIMIT: ("E2", "Your limit was reached", "exit 5 of a run that sent hello means a limit"),
    Outcome.REFUSED: ("E2", "Ralph refused to run", "exit 2 or 78 of a run that sent hello is not retried"),
    Outcome.GAVE_UP: ("E2", "Ralph gave up", "exit 1 with a reported reason is not retried"),
    Outcome.NO_PROGRESS: (
        "L10",
        "Ralph stopped without progress",
        "a run that reports this is not restarted",
    ),
}
"""Rule, title and reason of the ends that a run has words of its own for."""


def _ended(
    ending: ExitFacts, meant: Outcome, said: RunReports, after: Supervision, policy: Policy
) -> Explanation:
    how, done = in_words(ending), _done(after, policy)
    if not policy.supervised and meant is not Outcome.ASKED:
        return Explanation("P6", f"Ralph ended ({how})", "enabled = false: reported only", done=done)
    if isinstance(after.state, Done) and after.state.limit is not None:
        return Explanation("E4", f"Your limit was reached ({how})", after.state.limit, done=done)
    match meant:
        case Outcome.DONE if policy.mode.value == "iteration":
            return Explanation(
                "E4", f"The iteration is finished ({how})", _iteration_words(ending), done=done
            )
        case Outcome.DONE:
            because = "exit 0 means that the work is done" + _word_words(ending, said)
            return Explanation("E1", f"Ralph is done ({how})", because, done=done)
        case Outcome.PAUSED:
            return Explanation(
                "E1",
                f"Ralph paused ({how})",
                f"exit 75 means paused; {_pause_words(ending, said)}",
                done=done,
            )
        case Outcome.LIMIT | Outcome.REFUSED | Outcome.GAVE_UP | Outcome.NO_PROGRESS:
            rule, title, because = _SAID_SO[meant]
            return Explanation(rule, f"{title} ({how})", because + _word_words(ending, said), done=done)
        case Outcome.ASKED:
            return Explanation(
                "E3", f"Ralph ended, as requested ({how})", "requested, so it is not a failure", done=done
            )
        case Outcome.STALLED | Outcome.TIMED_OUT:
            overdue = Overdue.STALL if meant is Outcome.STALLED else Overdue.TIMEOUT
            return Explanation(
                "H4" if overdue is Overdue.STALL else "H6",
                f"Ralph was ended by the supervisor ({overdue.value})",
                "the evidence is no longer available",
                done=done,
            )
        case Outcome.FAILED | Outcome.LOST:
            return _failed(ending, meant, said, after, policy, done)


def _failed(
    ending: ExitFacts, meant: Outcome, said: RunReports, after: Supervision, policy: Policy, done: str
) -> Explanation:
    gave_up = not isinstance(after.state, Waiting)
    because = "an exit status other than 0 and 75, or a signal that ralphd did not send, is a failure"
    if meant is Outcome.LOST:
        because = "its shim is gone without an exit record: that never counts as a success (S6)"
    return Explanation(
        "C2" if gave_up else "C1",
        f"Ralph failed ({in_words(ending)})",
        because,
        missing=("exit 0", *(_healthy_words(said, policy) if after.tally.consecutive_errors > 1 else ())),
        done=done,
    )


def _healthy_words(said: RunReports, policy: Policy) -> tuple[str, ...]:
    if said.hello or said.iterates:
        return ("a new commit", "a finished iteration")
    return ("a new commit", f"output or activity later than {policy.healthy_after_s:g} s after its start")


def _iteration_words(ending: ExitFacts) -> str:
    if ending.complete:
        return "no task is open, or the end was declared"
    return "exit 0 means that this iteration is finished; a task is open, or the end was not declared"


def _word_words(ending: ExitFacts, said: RunReports) -> str:
    word = last_word(ending, said)
    return "" if word is None else f"; reported: {word.why or word.reason}"


def _pause_words(ending: ExitFacts, said: RunReports) -> str:
    if (word := last_word(ending, said)) is not None:
        return f"it reported {word.reason}" + (f": {word.why}" if word.why else "")
    return f"checkpoint reason: {ending.pause_reason}" if ending.pause_reason else "no reason is known"


def _end_figures(ending: ExitFacts, after: Supervision, policy: Policy) -> tuple[Figure, ...]:
    figures = [Figure("ended with", in_words(ending))]
    if ending.started_at is not None:
        figures.append(Figure("lived for", in_seconds(ending.at - ending.started_at)))
        last = (
            "nothing printed"
            if ending.last_sign_at is None
            else f"{in_seconds(ending.at - ending.last_sign_at)} before its end"
        )
        figures.append(Figure("last output", last))
    figures.append(Figure("commits", "at least one" if ending.committed else "none"))
    figures.append(
        Figure(
            "consecutive failures", str(after.tally.consecutive_errors), f"gives up at {policy.max_retries}"
        )
    )
    return tuple(figures)


def _done(after: Supervision, policy: Policy) -> str:
    match after.state:
        case Waiting(reason=reason, until=until):
            return f"the next run starts at {rfc3339(until)} ({reason.value.replace('_', ' ')})"
        case Paused(reason=reason, resume_at=float() as until):
            return f"paused ({reason}) until {rfc3339(until)}"
        case Paused(reason=reason):
            return f"paused ({reason}), until you resume it"
        case Failed():
            called = "you are alerted; " if policy.supervised else ""
            return f"{called}nothing starts until you act"
        case Done():
            return "nothing left to do"
        case Stopped():
            return "nothing runs until you start it"
        case _:
            return "the next run starts now"

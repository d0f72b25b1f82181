"""Why a run's end led to the state after it, in words: the rule, the figures, what was missing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ralphd.core.explanation import Explanation, Figure, in_seconds
from ralphd.core.supervision import model
from ralphd.core.supervision.exit_policy import heard, in_words, last_word
from ralphd.core.supervision.model import ExitFacts, Outcome, Overdue, Policy, RunReports, Supervision
from ralphd.core.time import rfc3339


def explain_end(
    ending: ExitFacts, meant: Outcome, said: RunReports, after: Supervision, policy: Policy,
    silence: Explanation | None,
) -> Explanation:  # fmt: skip
    """Explain why a run's end led to the state ``after`` it."""
    ending = heard(ending, said)
    explained = replace(_ended(ending, meant, said, after, policy), done=_done(after, policy))
    figures = (*_end_figures(ending, after, policy), *explained.figures)
    if meant in (Outcome.STALLED, Outcome.TIMED_OUT) and silence is not None:
        done = f"{silence.done}; {explained.done}"
        return replace(silence, figures=(*silence.figures, *figures), done=done)
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
    how = in_words(ending)
    if not policy.supervised and meant is not Outcome.ASKED:
        return Explanation("P6", f"Ralph ended ({how})", "enabled = false: reported only")
    if isinstance(after.state, model.Done) and after.state.limit is not None:
        return Explanation("E4", f"Your limit was reached ({how})", after.state.limit)
    match meant:
        case Outcome.DONE if policy.mode.value == "iteration":
            return Explanation("E4", f"The iteration is finished ({how})", _iteration_words(ending))
        case Outcome.DONE:
            because = "exit 0 means that the work is done" + _word_words(ending, said)
            return Explanation("E1", f"Ralph is done ({how})", because)
        case Outcome.PAUSED:
            because = f"exit 75 means paused; {_pause_words(ending, said)}"
            return Explanation("E1", f"Ralph paused ({how})", because)
        case Outcome.LIMIT | Outcome.REFUSED | Outcome.GAVE_UP | Outcome.NO_PROGRESS:
            rule, title, because = _SAID_SO[meant]
            return Explanation(rule, f"{title} ({how})", because + _word_words(ending, said))
        case Outcome.ASKED:
            because = "requested, so it is not a failure"
            return Explanation("E3", f"Ralph ended, as requested ({how})", because)
        case Outcome.STALLED | Outcome.TIMED_OUT:
            rule, overdue = ("H4", Overdue.STALL) if meant is Outcome.STALLED else ("H6", Overdue.TIMEOUT)
            title = f"Ralph was ended by the supervisor ({overdue.value})"
            return Explanation(rule, title, "the evidence is no longer available")
        case Outcome.FAILED | Outcome.LOST:
            return _failed(ending, meant, said, after, policy)


def _failed(
    ending: ExitFacts, meant: Outcome, said: RunReports, after: Supervision, policy: Policy
) -> Explanation:
    rule = "C1" if isinstance(after.state, model.Waiting) else "C2"
    because = "an exit status other than 0 and 75, or a signal that ralphd did not send, is a failure"
    if meant is Outcome.LOST:
        because = "its shim is gone without an exit record: that never counts as a success (S6)"
    missing = ("exit 0", *(_healthy_words(said, policy) if after.tally.consecutive_errors > 1 else ()))
    return Explanation(rule, f"Ralph failed ({in_words(ending)})", because, missing=missing)


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
        last = "nothing printed"
        if ending.last_sign_at is not None:
            last = f"{in_seconds(ending.at - ending.last_sign_at)} before its end"
        figures.append(Figure("last output", last))
    figures.append(Figure("commits", "at least one" if ending.committed else "none"))
    errors, limit = str(after.tally.consecutive_errors), f"gives up at {policy.max_retries}"
    return (*figures, Figure("consecutive failures", errors, limit))


def _done(after: Supervision, policy: Policy) -> str:
    match after.state:
        case model.Waiting(reason=reason, until=until):
            return f"the next run starts at {rfc3339(until)} ({reason.value.replace('_', ' ')})"
        case model.Paused(reason=reason, resume_at=float() as until):
            return f"paused ({reason}) until {rfc3339(until)}"
        case model.Paused(reason=reason):
            return f"paused ({reason}), until you resume it"
        case model.Failed():
            called = "you are alerted; " if policy.supervised else ""
            return f"{called}nothing starts until you act"
        case model.Done(why="complete"):
            return "nothing left to do"
        case model.Stopped() | model.Done():  # at a limit of the user's, tasks may be open
            return "nothing runs until you start it"
        case _:
            return "the next run starts now"

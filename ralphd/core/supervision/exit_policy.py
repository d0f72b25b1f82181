"""What the end of a run leads to (E1 to E5, C1 to C3)."""

from dataclasses import replace
from signal import Signals

from ralphd.core.supervision import model
from ralphd.core.supervision.backoff import crash_wait, was_healthy
from ralphd.core.supervision.reports import limit_reached, wait_ended
from ralphd.core.supervision.transitions import GUARD, PAUSED_ON_REQUEST, RESTARTING, STOPPED, give_up, spawn
from ralphd.core.time import Moment

# What the end of a run means, and how it reads (E1 to E3).

NO_PROGRESS = "no_progress"
"""The reason of a run that ended well, and got nowhere (L10)."""
COMPLETE = "complete"
"""The reason of a run that has nothing left to do."""
TRY_AGAIN_LATER = 75

_ENDED_WITH = {0: model.Outcome.DONE, 75: model.Outcome.PAUSED}
_HELLO_ENDED_WITH = {2: model.Outcome.REFUSED, 5: model.Outcome.LIMIT, 78: model.Outcome.REFUSED}
_ENDED_FOR = {model.Overdue.STALL: model.Outcome.STALLED, model.Overdue.TIMEOUT: model.Outcome.TIMED_OUT}
_EXIT_WORDS = {126: "found, but not executable", 127: "command not found"}


def outcome(state: model.State, ending: model.ExitFacts, said: model.RunReports) -> model.Outcome:
    """Return what ``ending`` means for a ralph in ``state``, whose run has reported ``said``.

    What we did comes first (E3, K1), unless the run was quicker and ended well by itself; then what was
    observed. 2, 5 and 78 mean something only from a run that said hello (E2): ``make`` fails with 2.
    """
    assert isinstance(state, model.HAS_A_RUN)
    if isinstance(state, model.Stopping | model.Pausing):
        # A pause, or a start, that a person asked for meanwhile outweighs the limit it was stopped for.
        for_limit = said.limit is not None and isinstance(state, model.Stopping) and not state.again
        if for_limit and (word := last_word(ending, said)) is not None and word.reason == COMPLETE:
            return model.Outcome.DONE  # the last task was done in the iteration that reached the limit (L10)
        return model.Outcome.LIMIT if for_limit else model.Outcome.ASKED
    if isinstance(state, model.Running) and state.overdue is not None and ending.code != 0:
        return _ENDED_FOR[state.overdue]
    if ending.lost:
        return model.Outcome.LOST
    if ending.signal is None and ending.code is not None:
        word = last_word(ending, said)
        if word is not None and word.code == 0 and word.reason == NO_PROGRESS:
            return model.Outcome.NO_PROGRESS
        if word is not None and word.code == 1:
            return model.Outcome.GAVE_UP
        if said.hello and ending.code in _HELLO_ENDED_WITH:
            return _HELLO_ENDED_WITH[ending.code]
        return _ENDED_WITH.get(ending.code, model.Outcome.FAILED)
    return model.Outcome.FAILED


def last_word(ending: model.ExitFacts, said: model.RunReports) -> model.LastWord | None:
    """Return what the run announced of its end, if it then ended that way."""
    word = said.last_word
    return word if word is not None and ending.signal is None and word.code == ending.code else None


def heard(ending: model.ExitFacts, said: model.RunReports) -> model.ExitFacts:
    """Add what the run announced of its pause; without that its checkpoint counts."""
    word = last_word(ending, said)
    if word is None or word.code != TRY_AGAIN_LATER:
        return ending
    saved = ending.resume_at if ending.pause_reason == word.reason else None
    resume_at = saved if word.resume_at is None else word.resume_at
    return replace(ending, pause_reason=word.reason, resume_at=resume_at)


def failure_kind(meant: model.Outcome) -> str | None:
    match meant:
        case model.Outcome.GAVE_UP:
            return "fatal"
        case model.Outcome.STALLED | model.Outcome.TIMED_OUT:
            return "stall" if meant is model.Outcome.STALLED else "timeout"
        case model.Outcome.FAILED | model.Outcome.LOST:
            return "unknown"
        case _:
            return None


def in_words(ending: model.ExitFacts) -> str:
    """Describe how a run ended: ``exit 1``, ``exit 127: command not found``, ``SIGKILL``, ``lost``."""
    if ending.lost:
        return "lost: its exit status is unknown"
    if ending.signal is not None:
        known = ending.signal in set(Signals)
        return Signals(ending.signal).name if known else f"signal {ending.signal}"
    words = _EXIT_WORDS.get(ending.code or 0)
    return f"exit {ending.code}: {words}" if words else f"exit {ending.code}"


PROBE_AFTER_S = 900.0
"""The first look whether a limit of unknown end is over."""
PUT_RIGHT = "Fix that, then start it again"
_HOW = {
    model.Outcome.STALLED: "Ralph hung and was killed",
    model.Outcome.TIMED_OUT: "Ralph exceeded its time limit and was ended",
}


def run_ended(current: model.Supervision, ending: model.ExitFacts, policy: model.Policy) -> model.Step:
    """Answer the end of the run that lived; the end of another run changes nothing."""
    if not isinstance(current.state, model.HAS_A_RUN) or current.state.run_id != ending.run_id:
        return model.Step(current)
    ending = heard(ending, current.said)
    meant = outcome(current.state, ending, current.said)
    over = replace(current, tally=_tally_after(current, ending, meant, policy))
    answer = _after_end(over, ending, meant, policy)
    actions = (*wait_ended(current), model.Announce("ralph.exited"))
    supervision = replace(answer.supervision, said=model.RunReports())
    return model.Step(supervision, (*actions, *answer.actions), exit_meaning=meant)


def _tally_after(
    current: model.Supervision, ending: model.ExitFacts, meant: model.Outcome, policy: model.Policy
) -> model.Tally:
    if was_healthy(policy, ending, current.said, meant):
        return replace(current.tally, consecutive_errors=0)
    if meant is model.Outcome.STALLED:  # what its iterations had cleared stands again
        errors = current.tally.consecutive_errors + current.said.errors_cleared
        return replace(current.tally, consecutive_errors=errors)
    return current.tally


def _after_end(
    current: model.Supervision, ending: model.ExitFacts, meant: model.Outcome, policy: model.Policy
) -> model.Step:
    word = last_word(ending, current.said)
    if not policy.supervised and meant is not model.Outcome.ASKED:
        return _after_unwatched_end(current, ending, meant, policy)
    match meant:
        case model.Outcome.ASKED:
            return _after_asked_end(_counted(current, ending, policy))
        case model.Outcome.DONE:
            return _after_good_end(current, ending, policy)
        case model.Outcome.PAUSED:
            return _after_pause(current, ending, policy)
        case model.Outcome.LIMIT:
            return _limited(_counted(current, ending, policy), current.said.limit, word)
        case model.Outcome.REFUSED:
            return give_up(current, f"Ralph refused to run ({in_words(ending)})" + _because(word))
        case model.Outcome.GAVE_UP:
            errors = current.tally.consecutive_errors + 1
            counted = replace(current, tally=replace(current.tally, consecutive_errors=errors))
            return give_up(counted, f"Ralph gave up{_because(word)}. {PUT_RIGHT}")
        case model.Outcome.NO_PROGRESS:
            return _stopped_by_itself(current, word)
        case model.Outcome.FAILED | model.Outcome.LOST | model.Outcome.STALLED | model.Outcome.TIMED_OUT:
            return _after_failure(current, ending, meant, policy)


def _counted(current: model.Supervision, ending: model.ExitFacts, policy: model.Policy) -> model.Supervision:
    """Count the iteration where a run is one; elsewhere reports or commits are counted."""
    if policy.mode is not model.Mode.ITERATION or ending.code != 0:
        return current
    return replace(current, tally=replace(current.tally, iteration=current.tally.iteration + 1))


def _because(word: model.LastWord | None) -> str:
    return "" if word is None else f": {word.why or word.reason}"


def _limited(current: model.Supervision, limit: str | None, word: model.LastWord | None) -> model.Step:
    limit = limit or (word.why if word is not None else None) or None
    text = f"Ralph stopped: {limit or 'your limit was reached'}"
    return current.enter(model.Done("limit", limit), model.Announce("ralph.done", text))


def _after_unwatched_end(
    current: model.Supervision, ending: model.ExitFacts, meant: model.Outcome, policy: model.Policy
) -> model.Step:
    """P6: announce how it ended, nothing else."""
    word = last_word(ending, current.said)
    match meant:
        case model.Outcome.DONE:
            return _done(current, "Ralph is done")
        case model.Outcome.LIMIT:
            return _limited(current, current.said.limit, word)
        case model.Outcome.PAUSED:
            return _paused(current, ending, policy, resume_at=None)
        case model.Outcome.NO_PROGRESS:
            return _stopped_by_itself(current, word)
        case _:
            how = f"Ralph exited ({in_words(ending)})" + _because(word)
            return current.enter(model.Failed(how), model.Announce("ralph.failed", how))


def _after_asked_end(current: model.Supervision) -> model.Step:
    match current.state:
        case model.Pausing() if current.said.guard is not None:
            announcement = model.Announce("ralph.paused", f"Ralph paused: {current.said.guard}")
            return current.enter(model.Paused(GUARD, None, current.said.guard), announcement)
        case model.Pausing():
            return current.enter(model.Paused("requested"), PAUSED_ON_REQUEST)
        case model.Stopping(again=True):
            return spawn(current, RESTARTING)
        case _:
            return current.enter(model.Stopped(), STOPPED)


def _after_good_end(current: model.Supervision, ending: model.ExitFacts, policy: model.Policy) -> model.Step:
    counted = _counted(current, ending, policy)
    tally = counted.tally if current.said.reverted else replace(counted.tally, consecutive_errors=0)  # C3
    finished = replace(counted, tally=tally)
    if policy.restart is model.Restart.NEVER:
        return _done(finished, "Ralph is done")
    if policy.mode is model.Mode.ITERATION and ending.complete:
        return _done(finished, "Ralph is done: no task is open")
    if policy.mode is model.Mode.LOOP and policy.restart is model.Restart.ON_FAILURE:
        return _done(finished, "Ralph is done" + _because(last_word(ending, current.said)))
    if limit := limit_reached(tally, ending.at, policy):
        return _limited(finished, limit, None)
    reason = model.Reason.ITERATION_PAUSE if policy.mode is model.Mode.ITERATION else model.Reason.RESTART
    return _wait(finished, reason, ending.at, policy.iteration_pause_s)


def _after_pause(current: model.Supervision, ending: model.ExitFacts, policy: model.Policy) -> model.Step:
    """Exit 75 (E1): a usage limit with a known reset ends by itself, a margin after the reset.

    The built-in loop has added the margin. A reset in the past was wrong: it is probed like an unknown one.
    """
    if ending.pause_reason != "usage_limit" or ending.resume_at is None:
        return _paused(current, ending, policy, resume_at=None)
    resume_at = ending.resume_at + (0.0 if policy.own_loop else policy.reset_margin_s)
    resume_at = resume_at if resume_at > ending.at else ending.at + PROBE_AFTER_S
    return _paused(current, ending, policy, resume_at=resume_at)


def _paused(
    current: model.Supervision, ending: model.ExitFacts, policy: model.Policy, *, resume_at: Moment | None
) -> model.Step:
    reason = ending.pause_reason or "exit 75, no reason is known"
    word = last_word(ending, current.said)
    why = "" if word is None else word.why
    text = f"Ralph paused: {why or reason.replace('_', ' ')}"
    is_logged = policy.own_loop and word is not None and word.resume_at is not None  # by the loop
    told = (None, resume_at, (("message", text),)) if is_logged else (text, resume_at)
    wake = () if resume_at is None else (model.WakeAt(resume_at),)
    return current.enter(model.Paused(reason, resume_at, why), model.Announce("ralph.paused", *told), *wake)


def _stopped_by_itself(current: model.Supervision, word: model.LastWord | None) -> model.Step:
    """L10: it ended well and got nowhere; started again it would do the same."""
    why = "no progress" + _because(word)
    announcement = model.Announce("ralph.stopped", f"Ralph stopped: {why}")
    return model.Step(replace(current, goal=model.Goal.STOPPED, state=model.Stopped(why)), (announcement,))


def _after_failure(
    current: model.Supervision, ending: model.ExitFacts, meant: model.Outcome, policy: model.Policy
) -> model.Step:
    failures = current.tally.consecutive_errors + 1
    counted = replace(current, tally=replace(current.tally, consecutive_errors=failures))
    how = _HOW.get(meant) or f"Ralph exited ({in_words(ending)})"
    if policy.restart is model.Restart.NEVER or policy.max_retries == 0:
        return give_up(counted, f"{how} — not restarted, as configured")
    if failures >= policy.max_retries:
        times = "1 failure" if failures == 1 else f"{failures} failures in a row"
        return give_up(counted, f"{how} — giving up after {times}")
    if limit := limit_reached(counted.tally, ending.at, policy):
        return _limited(counted, limit, None)
    wait = crash_wait(policy, counted.tally, failures, ending.at)
    return counted.enter(wait, *_tell_retry(how, wait, failures, policy), model.WakeAt(wait.until))


def _tell_retry(
    how: str, wait: model.Waiting, failures: int, policy: model.Policy
) -> tuple[model.Announce, ...]:
    delay = f"retrying in {_seconds(wait.until - wait.since)}s"
    attempt = f"(attempt {failures + 1}/{policy.max_retries})"
    if wait.reason is model.Reason.RESTART_LIMIT:
        delay = f"max_restarts_per_hour = {policy.max_restarts_per_hour} reached, {delay}"
    return (
        model.Announce("ralph.retrying", f"{how} — {delay} {attempt}", wait_until=wait.until),
        model.Announce("wait.started", wait_until=wait.until),
    )


def _seconds(delay_s: float) -> str:
    """``30``, ``0.1``, ``1000000``: a difference of two moments carries noise that nobody meant."""
    return f"{delay_s:.3f}".rstrip("0").rstrip(".")


def _done(current: model.Supervision, text: str) -> model.Step:
    return current.enter(model.Done(), model.Announce("ralph.done", text))


def _wait(current: model.Supervision, reason: model.Reason, at: Moment, delay_s: float) -> model.Step:
    return current.enter(model.Waiting(reason, at, at + delay_s), model.WakeAt(at + delay_s))

"""What the end of a run leads to (E1 to E5, C1 to C3)."""

from collections.abc import Sequence
from dataclasses import replace
from signal import Signals

from ralphd.core.supervision import model
from ralphd.core.supervision.backoff import crash_wait, was_healthy
from ralphd.core.supervision.model import Announce, ExitFacts, Outcome, Policy, RunReports, Step, Supervision
from ralphd.core.supervision.reports import limit_reached, wait_ended
from ralphd.core.supervision.transitions import GUARD, PAUSED_ON_REQUEST, RESTARTING, STOPPED, give_up, spawn
from ralphd.core.text import first_names, one_line
from ralphd.core.time import Moment

# What the end of a run means, and how it reads (E1 to E3).

NO_PROGRESS = "no_progress"
"""The reason of a run that ended well, and got nowhere (L10)."""
COMPLETE = "complete"
"""The reason of a run that has nothing left to do."""
TRY_AGAIN_LATER = 75
TASK_LIST = "task_list"
"""The last word of a loop that pauses since its agent removes the task list again and again."""

_ENDED_WITH = {0: Outcome.DONE, 75: Outcome.PAUSED}
_NAME_CHARS = 80
_HELLO_ENDED_WITH = {2: Outcome.REFUSED, 5: Outcome.LIMIT, 78: Outcome.REFUSED}
_ENDED_FOR = {model.Overdue.STALL: Outcome.STALLED, model.Overdue.TIMEOUT: Outcome.TIMED_OUT}
_FAILURE_KINDS = {Outcome.GAVE_UP: "fatal", Outcome.STALLED: "stall", Outcome.TIMED_OUT: "timeout"}
_FAILURE_KINDS |= dict.fromkeys((Outcome.FAILED, Outcome.LOST), "unknown")
_EXIT_WORDS = {126: "found, but not executable", 127: "command not found"}


def outcome(state: model.State, ending: ExitFacts, said: RunReports) -> Outcome:
    """Return what ``ending`` means for a ralph in ``state``, whose run has reported ``said``.

    What we did comes first (E3, K1), unless the run was quicker and ended well by itself; then what was
    observed. 2, 5 and 78 mean something only from a run that said hello (E2): ``make`` fails with 2.
    """
    assert isinstance(state, model.HAS_A_RUN)
    if isinstance(state, model.Pausing):
        return Outcome.ASKED
    if isinstance(state, model.Stopping):
        # A pause, or a start, that a person asked for meanwhile outweighs the limit it was stopped for.
        for_limit = said.limit is not None and not state.again
        by_itself = for_limit or (said.off_schedule and state.again)
        if by_itself and (word := last_word(ending, said)) is not None and word.reason == COMPLETE:
            return Outcome.DONE  # the last task was done in the iteration that reached the limit (L10)
        return Outcome.LIMIT if for_limit else Outcome.ASKED
    if isinstance(state, model.Running) and state.overdue is not None and ending.code != 0:
        return _ENDED_FOR[state.overdue]
    if ending.lost:
        return Outcome.LOST
    if ending.signal is None and ending.code is not None:
        word = last_word(ending, said)
        if word is not None and word.code == 0 and word.reason == NO_PROGRESS:
            return Outcome.NO_PROGRESS
        if word is not None and word.code == 1:
            return Outcome.GAVE_UP
        if said.hello and ending.code in _HELLO_ENDED_WITH:
            return _HELLO_ENDED_WITH[ending.code]
        return _ENDED_WITH.get(ending.code, Outcome.FAILED)
    return Outcome.FAILED


def last_word(ending: ExitFacts, said: RunReports) -> model.LastWord | None:
    """Return what the run announced of its end, if it then ended that way."""
    word = said.last_word
    return word if word is not None and ending.signal is None and word.code == ending.code else None


def heard(ending: ExitFacts, said: RunReports) -> ExitFacts:
    """Add what the run announced of its pause; without that its checkpoint counts."""
    word = last_word(ending, said)
    if word is None or word.code != TRY_AGAIN_LATER:
        return ending
    saved = ending.resume_at if ending.pause_reason == word.reason else None
    resume_at = saved if word.resume_at is None else word.resume_at
    return replace(ending, pause_reason=word.reason, resume_at=resume_at)


def failure_kind(meant: Outcome) -> str | None:
    return _FAILURE_KINDS.get(meant)


def in_words(ending: ExitFacts) -> str:
    """Describe how a run ended: ``exit 1``, ``exit 127: command not found``, ``SIGKILL``, ``lost``."""
    if ending.lost:
        return "lost: its exit status is unknown"
    if ending.signal is not None:
        return Signals(ending.signal).name if ending.signal in set(Signals) else f"signal {ending.signal}"
    words = _EXIT_WORDS.get(ending.code or 0)
    return f"exit {ending.code}: {words}" if words else f"exit {ending.code}"


PROBE_AFTER_S = 900.0
"""The first look whether a limit of unknown end is over."""
PUT_RIGHT = "Fix that, then start it again"
_HOW = {
    Outcome.STALLED: "Ralph hung and was killed",
    Outcome.TIMED_OUT: "Ralph exceeded its time limit and was ended",
}


def run_ended(current: Supervision, ending: ExitFacts, policy: Policy) -> Step:
    """Answer the end of the run that lived; the end of another run changes nothing."""
    if not isinstance(current.state, model.HAS_A_RUN) or current.state.run_id != ending.run_id:
        return Step(current)
    ending = heard(ending, current.said)
    meant = outcome(current.state, ending, current.said)
    over = replace(current, tally=_tally_after(current, ending, meant, policy))
    answer = _after_end(over, ending, meant, policy)
    actions = (*wait_ended(current), Announce("ralph.exited"))
    supervision = replace(answer.supervision, said=RunReports())
    return Step(supervision, (*actions, *answer.actions), exit_meaning=meant)


def _tally_after(current: Supervision, ending: ExitFacts, meant: Outcome, policy: Policy) -> model.Tally:
    if was_healthy(policy, ending, current.said, meant):
        return replace(current.tally, consecutive_errors=0)
    if meant is Outcome.STALLED:  # what its iterations had cleared stands again
        errors = current.tally.consecutive_errors + current.said.errors_cleared
        return replace(current.tally, consecutive_errors=errors)
    return current.tally


def _after_end(current: Supervision, ending: ExitFacts, meant: Outcome, policy: Policy) -> Step:
    word = last_word(ending, current.said)
    if not policy.supervised and meant is not Outcome.ASKED:
        return _after_unwatched_end(current, ending, meant, policy)
    match meant:
        case Outcome.ASKED:
            return _after_asked_end(_counted(current, ending, policy), ending, policy)
        case Outcome.DONE:
            return _after_good_end(current, ending, policy)
        case Outcome.PAUSED:
            return _after_pause(current, ending, policy)
        case Outcome.LIMIT:
            return _limited(_counted(current, ending, policy), ending, current.said.limit)
        case Outcome.REFUSED:
            return give_up(current, f"Ralph refused to run ({in_words(ending)})" + _because(word))
        case Outcome.GAVE_UP:
            errors = current.tally.consecutive_errors + 1
            counted = replace(current, tally=replace(current.tally, consecutive_errors=errors))
            return give_up(counted, f"Ralph gave up{_because(word)}. {PUT_RIGHT}")
        case Outcome.NO_PROGRESS:
            return _stopped_by_itself(current, word)
        case Outcome.FAILED | Outcome.LOST | Outcome.STALLED | Outcome.TIMED_OUT:
            return _after_failure(current, ending, meant, policy)


def _counted(current: Supervision, ending: ExitFacts, policy: Policy) -> Supervision:
    """Count the iteration where a run is one; elsewhere reports or commits are counted."""
    if policy.mode is not model.Mode.ITERATION or ending.code != 0:
        return current
    return replace(current, tally=replace(current.tally, iteration=current.tally.iteration + 1))


def _because(word: model.LastWord | None) -> str:
    return "" if word is None else f": {word.why or word.reason}"


def _limited(current: Supervision, ending: ExitFacts, limit: str | None) -> Step:
    word = last_word(ending, current.said)
    limit = limit or (word.why if word is not None else None) or None
    text = f"Ralph stopped: {limit or 'your limit was reached'}"
    return _done(current, ending, text, model.Done("limit", limit))


def _after_unwatched_end(current: Supervision, ending: ExitFacts, meant: Outcome, policy: Policy) -> Step:
    """P6: announce how it ended, nothing else."""
    word = last_word(ending, current.said)
    match meant:
        case Outcome.DONE:
            return _done(current, ending, "Ralph is done")
        case Outcome.LIMIT:
            return _limited(current, ending, current.said.limit)
        case Outcome.PAUSED:
            return _paused(current, ending, policy, resume_at=None)
        case Outcome.NO_PROGRESS:
            return _stopped_by_itself(current, word)
        case _:
            how = f"Ralph exited ({in_words(ending)})" + _because(word)
            return current.enter(model.Failed(how), Announce("ralph.failed", how))


def _after_asked_end(current: Supervision, ending: ExitFacts, policy: Policy) -> Step:
    match current.state:
        case model.Pausing() if current.said.guard is not None:
            announcement = Announce("ralph.paused", f"Ralph paused: {current.said.guard}")
            return current.enter(model.Paused(GUARD, None, current.said.guard), announcement)
        case model.Pausing():
            return current.enter(model.Paused("requested"), PAUSED_ON_REQUEST)
        case model.Stopping(again=True):
            return spawn(current, RESTARTING)
        case _ if current.goal is model.Goal.RUNNING and policy.supervised and _has_reset(ending):
            return _after_pause(current, ending, policy)  # only the daemon ends: the next one waits, too
        case _:
            return current.enter(model.Stopped(), STOPPED)


def _after_good_end(current: Supervision, ending: ExitFacts, policy: Policy) -> Step:
    counted = _counted(current, ending, policy)
    tally = counted.tally if current.said.reverted else replace(counted.tally, consecutive_errors=0)  # C3
    finished = replace(counted, tally=tally)
    if policy.restart is model.Restart.NEVER:
        return _done(finished, ending, "Ralph is done")
    if policy.mode is model.Mode.ITERATION and ending.complete:
        return _done(finished, ending, "Ralph is done: no task is open")
    if policy.mode is model.Mode.LOOP and policy.restart is model.Restart.ON_FAILURE:
        return _done(finished, ending, "Ralph is done" + _because(last_word(ending, current.said)))
    if limit := limit_reached(tally, ending.at, policy):
        return _limited(finished, ending, limit)
    reason = model.Reason.ITERATION_PAUSE if policy.mode is model.Mode.ITERATION else model.Reason.RESTART
    waiting = model.Waiting(reason, ending.at, ending.at + policy.iteration_pause_s)
    return finished.enter(waiting, model.WakeAt(waiting.until))


def _has_reset(ending: ExitFacts) -> bool:
    is_limit = ending.code == TRY_AGAIN_LATER and ending.pause_reason == "usage_limit"
    return is_limit and ending.resume_at is not None


def _after_pause(current: Supervision, ending: ExitFacts, policy: Policy) -> Step:
    """Exit 75 (E1): a usage limit with a known reset ends by itself, a margin after the reset.

    The built-in loop has added the margin. A reset in the past was wrong: it is probed like an unknown one.
    """
    if ending.resume_at is None or not _has_reset(ending):
        return _paused(current, ending, policy, resume_at=None)
    resume_at = ending.resume_at + (0.0 if policy.own_loop else policy.reset_margin_s)
    resume_at = resume_at if resume_at > ending.at else ending.at + PROBE_AFTER_S
    return _paused(current, ending, policy, resume_at=resume_at)


def _paused(current: Supervision, ending: ExitFacts, policy: Policy, *, resume_at: Moment | None) -> Step:
    reason = ending.pause_reason or "exit 75, no reason is known"
    word = last_word(ending, current.said)
    why = "" if word is None else word.why
    text = f"Ralph paused: {why or reason.replace('_', ' ')}"
    needs_you = policy.supervised and word is not None and word.reason == TASK_LIST
    calls = (model.Escalate(text),) if needs_you else ()
    is_logged = bool(calls) or (policy.own_loop and word is not None and word.resume_at is not None)
    told = (None, resume_at, (("message", text),)) if is_logged else (text, resume_at)
    wake = () if resume_at is None else (model.WakeAt(resume_at),)
    return current.enter(model.Paused(reason, resume_at, why), *calls, Announce("ralph.paused", *told), *wake)


def _stopped_by_itself(current: Supervision, word: model.LastWord | None) -> Step:
    """L10: it ended well and got nowhere; started again it would do the same."""
    why = "no progress" + _because(word)
    announcement = Announce("ralph.stopped", f"Ralph stopped: {why}")
    return Step(replace(current, goal=model.Goal.STOPPED, state=model.Stopped(why)), (announcement,))


def _after_failure(current: Supervision, ending: ExitFacts, meant: Outcome, policy: Policy) -> Step:
    failures = current.tally.consecutive_errors + 1
    counted = replace(current, tally=replace(current.tally, consecutive_errors=failures))
    how = _HOW.get(meant) or f"Ralph exited ({in_words(ending)})"
    if policy.restart is model.Restart.NEVER or policy.max_retries == 0:
        return give_up(counted, f"{how} — not restarted, as configured")
    if failures >= policy.max_retries:
        times = "1 failure" if failures == 1 else f"{failures} failures in a row"
        return give_up(counted, f"{how} — giving up after {times}")
    if limit := limit_reached(counted.tally, ending.at, policy):
        return _limited(counted, ending, limit)
    wait = crash_wait(policy, counted.tally, failures, ending.at)
    return counted.enter(wait, *_tell_retry(how, wait, failures, policy), model.WakeAt(wait.until))


def _tell_retry(how: str, wait: model.Waiting, failures: int, policy: Policy) -> tuple[Announce, ...]:
    # 30, 0.1, 1000000: a difference of two moments carries noise that nobody meant
    delay_s = f"{wait.until - wait.since:.3f}".rstrip("0").rstrip(".")
    delay = f"retrying in {delay_s}s"
    attempt = f"(attempt {failures + 1}/{policy.max_retries})"
    if wait.reason is model.Reason.RESTART_LIMIT:
        delay = f"max_restarts_per_hour = {policy.max_restarts_per_hour} reached, {delay}"
    return (
        Announce("ralph.retrying", f"{how} — {delay} {attempt}", wait_until=wait.until),
        Announce("wait.started", wait_until=wait.until),
    )


def _done(current: Supervision, ending: ExitFacts, text: str, done: model.Done | None = None) -> Step:
    left = "; ".join(filter(None, (uncommitted_words(ending.uncommitted), ending.unpushed)))
    announcement = Announce("ralph.done", f"{text}, but {left}" if left else text)
    return current.enter(replace(done or model.Done(), uncommitted=left), announcement)


def uncommitted_words(names: Sequence[str]) -> str:
    """Return one line about files that were not committed, with the next step; empty without names."""
    shown = first_names([one_line(name, _NAME_CHARS) for name in names], 2)
    what = "1 file was" if len(names) == 1 else f"{len(names)} files were"
    return f"{what} not committed: {shown}; next: git status" if names else ""

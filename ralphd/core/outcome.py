"""What the end of a run means, and how it is told (E1 to E3)."""

from dataclasses import replace

from ralphd.core.model import (
    HAS_A_RUN,
    Ending,
    LastWord,
    Outcome,
    Overdue,
    Pausing,
    Running,
    Said,
    State,
    Stopping,
)

NO_PROGRESS = "no_progress"
"""The reason of a run that ended well, and got nowhere (L10)."""
COMPLETE = "complete"
"""The reason of a run that has nothing left to do."""
TRY_AGAIN_LATER = 75

_ENDED_WITH = {0: Outcome.DONE, 75: Outcome.PAUSED}
_HELLO_ENDED_WITH = {2: Outcome.REFUSED, 5: Outcome.LIMIT, 78: Outcome.REFUSED}
_ENDED_FOR = {Overdue.STALL: Outcome.STALLED, Overdue.TIMEOUT: Outcome.TIMED_OUT}
_EXIT_WORDS = {126: "found, but not executable", 127: "command not found"}
_SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}


def outcome(state: State, ending: Ending, said: Said) -> Outcome:
    """What ``ending`` means for a ralph that was in ``state``, and whose run ``said`` so much.

    What we did comes first (E3, K1), unless the run was quicker and ended well by itself; then what was
    seen; 2, 5 and 78 mean something only from a run that said hello (E2): ``make`` fails with 2.
    """
    assert isinstance(state, HAS_A_RUN)
    if isinstance(state, Stopping | Pausing):
        # A pause, or a start, that a person asked for meanwhile outweighs the limit it was stopped for.
        for_limit = said.limit is not None and isinstance(state, Stopping) and not state.again
        if for_limit and (word := last_word(ending, said)) is not None and word.reason == COMPLETE:
            return Outcome.DONE  # the last task was done in the iteration that reached the limit (L10)
        return Outcome.LIMIT if for_limit else Outcome.ASKED
    if isinstance(state, Running) and state.overdue is not None and ending.code != 0:
        return _ENDED_FOR[state.overdue]
    if ending.lost:
        return Outcome.LOST
    if ending.signal is None and ending.code is not None:
        if (word := last_word(ending, said)) is not None and (meant := _meant_by(word)) is not None:
            return meant
        if said.hello and ending.code in _HELLO_ENDED_WITH:
            return _HELLO_ENDED_WITH[ending.code]
        return _ENDED_WITH.get(ending.code, Outcome.FAILED)
    return Outcome.FAILED


def _meant_by(word: LastWord) -> Outcome | None:
    """What a run's last word makes of a code that would mean something else without it (L10, L11)."""
    if word.code == 0 and word.reason == NO_PROGRESS:
        return Outcome.NO_PROGRESS
    return Outcome.GAVE_UP if word.code == 1 else None


def last_word(ending: Ending, said: Said) -> LastWord | None:
    """What the run said of this end, where it then ended so."""
    word = said.last_word
    return word if word is not None and ending.signal is None and word.code == ending.code else None


def heard(ending: Ending, said: Said) -> Ending:
    """The end with what the run itself said of its pause; where it did not, its checkpoint counts."""
    word = last_word(ending, said)
    if word is None or word.code != TRY_AGAIN_LATER:
        return ending
    saved = ending.resume_at if ending.pause_reason == word.reason else None
    resume_at = saved if word.resume_at is None else word.resume_at
    return replace(ending, pause_reason=word.reason, resume_at=resume_at)


def failure_kind(meant: Outcome) -> str | None:
    """The failure kind of a run that we know the kind of: ``stall``, ``timeout``, ``fatal``, ``unknown``."""
    match meant:
        case Outcome.GAVE_UP:
            return "fatal"
        case Outcome.STALLED | Outcome.TIMED_OUT:
            return "stall" if meant is Outcome.STALLED else "timeout"
        case Outcome.FAILED | Outcome.LOST:
            return "unknown"
        case _:
            return None


def in_words(ending: Ending) -> str:
    """How a run ended, for a person: ``exit 1``, ``exit 127: command not found``, ``SIGKILL``, ``lost``."""
    if ending.lost:
        return "lost: nobody saw how it ended"
    if ending.signal is not None:
        return _SIGNAL_NAMES.get(ending.signal, f"signal {ending.signal}")
    words = _EXIT_WORDS.get(ending.code or 0)
    return f"exit {ending.code}: {words}" if words else f"exit {ending.code}"

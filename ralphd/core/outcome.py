"""What the end of a run means, and how it is told (E1 to E3)."""

from ralphd.core.model import HAS_A_RUN, Ending, Outcome, Overdue, Pausing, Running, Said, State, Stopping

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
        return Outcome.LIMIT if for_limit else Outcome.ASKED
    if isinstance(state, Running) and state.overdue is not None and ending.code != 0:
        return _ENDED_FOR[state.overdue]
    if ending.lost:
        return Outcome.LOST
    if ending.signal is None and ending.code is not None:
        if said.hello and ending.code in _HELLO_ENDED_WITH:
            return _HELLO_ENDED_WITH[ending.code]
        return _ENDED_WITH.get(ending.code, Outcome.FAILED)
    return Outcome.FAILED


def failure_kind(meant: Outcome) -> str | None:
    """The failure kind of a run that we know the kind of: ``stall``, ``timeout``, ``unknown``; else None."""
    match meant:
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

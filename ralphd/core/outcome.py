"""What the end of a run means, and how it is told (E1 to E3)."""

from ralphd.core.model import HAS_A_RUN, Ending, Outcome, Pausing, State, Stopping

_ENDED_WITH = {0: Outcome.DONE, 75: Outcome.PAUSED}
_HELLO_ENDED_WITH = {2: Outcome.REFUSED, 5: Outcome.LIMIT, 78: Outcome.REFUSED}
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


def outcome(state: State, ending: Ending) -> Outcome:
    """What ``ending`` means for a ralph that was in ``state``.

    What we asked for comes first (E3); then what was seen; 2, 5 and 78 mean something only from a run that
    said hello (E2): ``make`` fails with 2.
    """
    assert isinstance(state, HAS_A_RUN)
    if isinstance(state, Stopping | Pausing):
        return Outcome.ASKED
    if ending.lost:
        return Outcome.LOST
    if ending.stalled:
        return Outcome.STALLED
    if ending.signal is None and ending.code is not None:
        if ending.said_hello and ending.code in _HELLO_ENDED_WITH:
            return _HELLO_ENDED_WITH[ending.code]
        return _ENDED_WITH.get(ending.code, Outcome.FAILED)
    return Outcome.FAILED


def in_words(ending: Ending) -> str:
    """How a run ended, for a person: ``exit 1``, ``exit 127: command not found``, ``SIGKILL``, ``lost``."""
    if ending.lost:
        return "lost: nobody saw how it ended"
    if ending.signal is not None:
        return _SIGNAL_NAMES.get(ending.signal, f"signal {ending.signal}")
    words = _EXIT_WORDS.get(ending.code or 0)
    return f"exit {ending.code}: {words}" if words else f"exit {ending.code}"

"""Which of a person's variables a run is given."""

from collections.abc import Mapping

_DENIED = frozenset(
    {
        # the terminal that the person sits at, and the run does not
        *("TERM", "TERMCAP", "TERMINFO", "COLORTERM", "COLUMNS", "LINES", "WINDOWID", "GPG_TTY"),
        *("SSH_TTY", "SSH_CONNECTION", "SSH_CLIENT", "STY", "WINDOW"),
        # the shell's own
        *("_", "OLDPWD", "PWD", "SHLVL"),
        # what a supervisor told the daemon or the shell, not the run
        *("NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MANAGERPID", "FDSTORE"),
        *("RALPH_RUN_ID", "RALPH_NAME", "RALPH_ATTEMPT_ID"),
    }
)
_DENIED_PREFIXES = ("TERM_", "VTE_", "TMUX", "ZELLIJ", "LD_", "RALPHD_", "LISTEN_", "WATCHDOG_")


def for_runs(environ: Mapping[str, str]) -> dict[str, str]:
    """What of ``environ`` a run gets: all but what belongs to something else.

    That is the terminal, the shell, the dynamic linker, systemd, and ralphd itself. ``SSH_AUTH_SOCK`` and the
    like stay: a loop that pushes needs them. Idempotent.
    """
    return {name: value for name, value in environ.items() if _is_passed_on(name)}


def _is_passed_on(name: str) -> bool:
    return bool(name) and name not in _DENIED and not name.startswith(_DENIED_PREFIXES)

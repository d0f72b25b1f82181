"""A run gets a person's environment, but for what belongs to the terminal, the shell, systemd and ralphd."""

import subprocess
import sys

import pytest

from ralphd.config.values import for_runs

KEPT = [
    *(
        "PATH",
        "HOME",
        "LANG",
        "SSH_AUTH_SOCK",
        "ANTHROPIC_API_KEY",
        "VIRTUAL_ENV",
        "RALPH_REGENT_MAX_RETRIES",
    ),
    *("GIT_AUTHOR_NAME", "XDG_CONFIG_HOME", "TERMINUS", "PWDX", "http_proxy", "BASH_FUNC_x%%"),
]
DENIED = [
    *(
        "TERM",
        "TERMCAP",
        "COLUMNS",
        "LINES",
        "TERM_PROGRAM",
        "COLORTERM",
        "SSH_TTY",
        "SSH_CONNECTION",
        "SSH_CLIENT",
    ),
    *(
        "TMUX",
        "TMUX_PANE",
        "STY",
        "WINDOW",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "RALPHD_SOCKET",
        "RALPHD_FAILPOINTS",
    ),
    *("RALPH_RUN_ID", "RALPH_NAME", "RALPH_ATTEMPT_ID", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID"),
    *("WATCHDOG_USEC", "INVOCATION_ID", "JOURNAL_STREAM", "_", "OLDPWD", "PWD", "SHLVL", ""),
]


@pytest.mark.parametrize("name", KEPT)
def test_a_variable_of_the_persons_own_is_passed_on(name: str) -> None:
    assert for_runs({name: "x"}) == {name: "x"}


@pytest.mark.parametrize("name", DENIED)
def test_a_variable_of_something_else_is_not(name: str) -> None:
    assert for_runs({name: "x"}) == {}


def test_a_short_command_can_ask_for_it_without_loading_pydantic() -> None:
    program = (
        "import sys; from ralphd.config.values import for_runs, fit_name; "
        "for_runs({}); fit_name(''); sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=30).returncode == 0

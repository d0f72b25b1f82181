"""A run gets a person's environment, but for what belongs to the terminal, the shell, systemd and ralphd."""

import subprocess
import sys
from pathlib import Path

import pytest

from ralphd.config.values import for_runs, run_environment

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
    *(
        "CLAUDECODE",
        "RALPH_RUN_ID",
        "RALPH_NAME",
        "RALPH_ATTEMPT_ID",
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
    ),
    *("WATCHDOG_USEC", "INVOCATION_ID", "JOURNAL_STREAM", "_", "OLDPWD", "PWD", "SHLVL", ""),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"),
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


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The virtual environment that ralphd is installed in."""
    own = tmp_path / "ralphd-env"
    (own / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(own))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    return own


def test_ralphds_own_python_is_hidden_from_runs_and_ralphctl_is_not(own: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(own / "bin")
    theirs = {
        "PATH": f"{own}/bin:/usr/bin::bin:{tmp_path}/link:{own}-2/bin",
        "PYTHONPATH": f"{own}/lib:/srv/lib",
        "PYTHONHOME": str(own),
        "VIRTUAL_ENV": str(own),
        "HOME": str(tmp_path),
    }

    found = run_environment(theirs, Path("/work"), Path("/state/bin"))

    assert found == {
        "PATH": f"/usr/bin::bin:{own}-2/bin:/state/bin",
        "PYTHONPATH": "/srv/lib",
        "HOME": str(tmp_path),
    }
    assert run_environment(found, Path("/work"), Path("/state/bin")) == found


def test_an_environment_of_the_project_or_of_the_system_stays(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = {"PATH": f"{own}/bin:/usr/bin", "VIRTUAL_ENV": str(own), "PYTHONHOME": "/usr"}
    kept = theirs | {"PATH": f"{own}/bin:/usr/bin:/state/bin"}

    assert run_environment(theirs, tmp_path, Path("/state/bin")) == kept
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert run_environment(theirs, Path("/work"), Path("/state/bin")) == kept
    monkeypatch.setattr(sys, "prefix", "/conda")
    other = run_environment({"VIRTUAL_ENV": "/project/.venv"}, Path("/work"), Path("/state:x/bin"))
    assert other == {"VIRTUAL_ENV": "/project/.venv", "PATH": "/bin:/usr/bin"}

"""``ralphctl completion``: the shells complete by click's own script."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, view

SHELLS = ("bash", "zsh", "fish")
LINES: Mapping[str, set[str]] = {
    "ralphctl sta": {"start", "status"},
    "ralphctl regent st": {"start", "stop", "status"},
    "ralphctl verdicts --lim": {"--limit"},
    "ralph stop ": {"api", "web-2"},
    "ralph ps w": {"web-2"},
    "ralphctl -C /tmp --json logs -f w": {"web-2"},
    "ralphctl --version sto": {"stop"},
    "ralphctl logs --stream ": {"stdout", "stderr", "regent"},
    "ralphctl wait api --for p": {"paused"},
    "ralphctl completion z": {"zsh"},
    "ralphctl logs -n ": set(),
    "ralphctl config set regent.max_re": {"regent.max_retries", "regent.max_restarts_per_hour"},
    "ralphctl config unset agents.codex.m": {"agents.codex.model"},
    "ralphctl start --agent cl": {"claude"},
    "ralphctl start --fallback claude,gem": {"claude,gemini"},
    "ralphctl webhooks test ": set(),
}


@pytest.fixture
def shell_environment(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The programs on PATH, and a state directory with two ralphs and what is not one."""
    for name in ("api", "web-2", "Web", "$(touch evil)", "we b"):
        (tmp_path / "state" / "ralphs" / name).mkdir(parents=True)
    (tmp_path / "state" / "ralphs" / "webfile").touch()
    (tmp_path / "bin").mkdir()
    for program in ("ralphctl", "ralph"):
        path = tmp_path / "bin" / program
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m ralphctl "$@"\n')
        path.chmod(0o755)
    return environment | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


@pytest.fixture
def scripts(ctl: Ctl, tmp_path: Path) -> Path:
    """A directory with the script of each shell, by its name."""
    for shell in SHELLS:
        printed = ctl("completion", shell)
        assert (printed.returncode, printed.stderr) == (0, "")
        (tmp_path / shell).write_text(printed.stdout)
    return tmp_path


def asked(line: str) -> str:
    """The lines of bash that press TAB at the end of ``line``."""
    words = [*line.split(), *[""] * line.endswith(" ")]
    return (
        f"COMPREPLY=(); COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        f'_{words[0]}_completion {words[0]}; echo "${{COMPREPLY[*]}}"'
    )


def completed(lines: Mapping[str, set[str]], scripts: Path, environment: dict[str, str]) -> list[set[str]]:
    """What bash completes each line with."""
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join([f". {scripts / 'bash'}", *map(asked, lines)])],
        env=environment, cwd=scripts, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stderr == ""
    return [set(answer.split()) for answer in done.stdout.splitlines()]


def test_bash_completes_commands_options_names_and_keys(
    scripts: Path, shell_environment: dict[str, str]
) -> None:
    answers = completed(LINES, scripts, shell_environment)

    assert dict(zip(LINES, answers, strict=True)) == LINES
    assert not (scripts / "evil").exists()


def test_bash_serves_both_programs(scripts: Path) -> None:
    script = f". {scripts / 'bash'}; complete -p ralphctl ralph"
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=30)

    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["ralphctl", "ralph"]


def test_a_daemon_names_its_ralphs_and_webhooks(
    scripts: Path, shell_environment: dict[str, str], daemon: FakeDaemon
) -> None:
    hooks = [{"name": "home", "where": "ntfy.sh"}, {"name": "slack", "where": "slack"}]
    daemon.views = {"far": view(name="far")}
    daemon.on("GET /v1/webhooks", lambda request: Answer({"webhooks": hooks}))
    sent = [{"id": id_, "event": {"type": "ralph.done"}, "name": "home"} for id_ in (41, 42, 51)]
    daemon.on("GET /v1/deliveries", lambda request: Answer({"deliveries": sent}))
    lines = {
        "ralph stop ": {"far"},
        "ralph webhooks test ": {"home", "slack"},
        "ralph webhooks remove h": {"home"},
        "ralph webhooks replay 4": {"41", "42"},
        "ralph config set agents.strategy ": {"fallback", "rotate"},
        "ralph config set regent.enabled t": {"true"},
    }

    assert completed(lines, scripts, shell_environment) == list(lines.values())


@pytest.mark.parametrize(
    ("line", "kind"),
    [("ralphctl -C ", "dir"), ("ralphctl start n", "dir"), ("ralphctl init ", "dir"),
     ("ralphctl config check ", "dir"), ("ralphctl classify o", "file"), ("ralphctl build -- ./l", "file"),
     ("ralphctl webhooks add --secret-file ", "file")],
)  # fmt: skip
def test_paths_are_left_to_the_shell(line: str, kind: str, ctl: Ctl) -> None:
    words = [*line.split(), *[""] * line.endswith(" ")]
    variables = {"_RALPHCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}

    assert ctl(more=variables).stdout == f"{kind},{words[-1]}\n"


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_names(scripts: Path, shell_environment: dict[str, str]) -> None:
    asks = "; ".join(f"complete -C '{line}' | string split -f1 \\t; echo END" for line in LINES)

    done = subprocess.run(
        ["fish", "--no-config", "-c", f". {scripts / 'fish'}; {asks}"],
        env=shell_environment, cwd=scripts, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    answers = [set(part.split()) for part in done.stdout.split("END\n")[:-1]]
    assert dict(zip(LINES, answers, strict=True)) == LINES


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_registers_both_programs(scripts: Path) -> None:
    script = f'compdef() {{ print "$@" }}; . {scripts / "zsh"}'

    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=30)

    assert (done.stdout, done.stderr) == ("_ralphctl_completion ralphctl\n_ralph_completion ralph\n", "")


def test_a_missing_shell_is_named_in_one_line(ctl: Ctl) -> None:
    said = ctl("completion").stderr
    assert said.startswith("error: Missing argument '{bash|zsh|fish}'. Choose from: bash, zsh, fish\n")

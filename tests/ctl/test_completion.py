"""`ralphctl completion`: the scripts name all there is and start nothing, and the shells complete by them."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from ralphctl.cli import TABLE
from ralphctl.root import cli
from ralphctl.shells import bash, fish, zsh
from ralphctl.shells.places import Offer, Place, places
from tests.ctl.conftest import Ctl

BASH = shutil.which("bash") or "bash"
SHELLS = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}


@cache
def known() -> tuple[Place, ...]:
    """All places of the real commands."""
    return tuple(places(cli))


def place(typed: str) -> Place:
    """One of them."""
    return next(each for each in known() if each.typed == typed)


@pytest.fixture
def registered(tmp_path: Path) -> Path:
    """A state directory with two ralphs, and what could not be one."""
    for name in ("api", "web-2", "Web", "$(touch evil)", "we b"):
        (tmp_path / "known" / "ralphs" / name).mkdir(parents=True)
    (tmp_path / "known" / "ralphs" / "webfile").touch()
    return tmp_path / "known"


LINES: Mapping[str, set[str]] = {
    "ralphctl regent st": {"start", "stop", "status"},
    "ralphctl verdicts --lim": {"--limit"},
    "ralph stop ": {"api", "web-2"},
    "ralphctl -C /tmp --json logs -f w": {"web-2"},
    "ralphctl logs --stream ": {"stdout", "stderr", "regent"},
    "ralphctl wait api --for p": {"paused"},
    "ralphctl completion z": {"zsh"},
    "ralphctl logs -n ": set(),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_names_every_command_and_option(shell: str) -> None:
    text = SHELLS[shell](known(), "0")

    assert {each.path[0] for each in known() if each.path} == set(TABLE)
    assert len(known()) > len(TABLE) + 10  # the subcommands of regent, config, notify
    for each in known():
        assert f"'{each.typed}'" in text.replace("\\'", "'")
        for flag in each.flags:
            assert (flag if shell != "fish" else f"'{flag.lstrip('-')}'") in text


def test_what_follows_is_read_from_the_commands_themselves() -> None:
    assert place("stop").with_ralphs
    assert not place("regent stop").with_ralphs
    assert place("start").with_ralphs
    assert place("start").offer is place("config check").offer is Offer.DIRECTORIES
    assert place("classify").offer is Offer.FILES
    assert place("completion").choices == ("bash", "zsh", "fish")
    assert "ps" in place("").hidden
    assert {"-C", "--socket"} <= set(place("regent status").valued)
    assert "--follow" not in place("logs").valued


def test_bash_completes_commands_options_and_names(registered: Path, ctl: Ctl, tmp_path: Path) -> None:
    made = ctl("completion", "bash")
    assert made.returncode == 0, made.stderr
    (tmp_path / "script").write_text(made.stdout)
    equals = {
        "ralphctl logs --stream = s": {"stdout", "stderr"},
        "ralphctl logs --stream =": LINES["ralphctl logs --stream "],
    }
    cases = {**LINES, **equals}
    asks = "\n".join(
        f"COMP_WORDS=({line}{' ' * line.endswith(' ')}{chr(39) * 2 * line.endswith(' ')});"
        ' COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _ralphctl; echo "${COMPREPLY[*]}"'
        for line in cases
    )

    done = subprocess.run(
        [BASH, "--norc", "-u", "-c", f". {tmp_path / 'script'}\n{asks}\ncomplete -p ralph ralphctl"],
        env={"RALPHD_STATE_DIR": str(registered), "PATH": "/nowhere"},  # nothing could be started
        cwd=tmp_path, capture_output=True, text=True, timeout=30,
    )  # fmt: skip

    assert done.stderr == ""
    *answers, ralph, ralphctl = done.stdout.splitlines()
    assert {line: set(answer.split()) for line, answer in zip(cases, answers, strict=True)} == cases
    assert ralph.split()[:3] == ralphctl.split()[:3] == ["complete", "-F", "_ralphctl"]
    assert not (tmp_path / "evil").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_names(registered: Path, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(fish.script(known(), "0"))
    asks = "; ".join(f"complete -C '{line}' | string split -f1 \\t; echo END" for line in LINES)

    done = subprocess.run(
        ["fish", "--no-config", "-c", f". {tmp_path / 'script'}; {asks}"],
        env={**os.environ, "RALPHD_STATE_DIR": str(registered), "HOME": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    answers = [set(part.split()) for part in done.stdout.split("END\n")[:-1]]
    assert dict(zip(LINES, answers, strict=True)) == LINES


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(zsh.script(known(), "0"))
    script = f'compdef() {{ print "$@" }}; . {tmp_path / "script"}; whence -w _ralphctl'

    done = subprocess.run(["zsh", "-f", "-c", script], capture_output=True, text=True, timeout=30)

    assert (done.stdout, done.stderr) == ("_ralphctl ralphctl ralph\n_ralphctl: function\n", "")


@pytest.mark.parametrize("shell", [zsh, fish])
def test_what_is_quoted_stays_one_word(shell: object) -> None:
    odd = Place((), (("it's", "a \\ and: $(b)"),), (), (), (), Offer.NOTHING, with_ralphs=False)

    text = (zsh if shell is zsh else fish).script([odd], "0")

    assert ("it'\\''s" if shell is zsh else "it\\'s") in text
    assert "$(b)'" in text

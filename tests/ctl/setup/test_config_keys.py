"""config get, explain and edit: one key in words, and a file that a person's slip cannot lose."""

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphd.config.keys import SECTIONS, keys_of
from tests.ctl.conftest import Ctl
from tests.ctl.golden_files import Golden, Printed
from tests.terminal import Terminal

BEFORE = "# mine\n[regent]\nmax_retries = 7  # seven\n"


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "ralph.toml"
    path.write_text(BEFORE)
    return path


@pytest.fixture
def edited(ctl: Ctl, tmp_path: Path, toml: Path) -> "Edited":
    return Edited(ctl, tmp_path)


class Edited:
    """``config edit`` with a script as the editor; ``kept`` is what it left in the temporary directory."""

    def __init__(self, ctl: Ctl, tmp_path: Path) -> None:
        self._ctl, self._script, self._folder = ctl, tmp_path / "editor", tmp_path / "tmp"
        self._folder.mkdir()

    def __call__(self, script: str, *words: str) -> Printed:
        self._script.write_text(f"#!/bin/sh\n{script}\n")
        self._script.chmod(0o700)
        more = {"EDITOR": f"{self._script} --flag", "VISUAL": "", "TMPDIR": str(self._folder)}
        return self._ctl("config", "edit", *words, more=more)

    @property
    def kept(self) -> list[str]:
        return [path.read_text() for path in self._folder.glob("*/*")]


def test_get_prints_the_value_in_force(ctl: Ctl, toml: Path) -> None:
    assert ctl("config", "get", "regent.max_retries").stdout == "7\n"
    assert ctl("config", "get", "ralph.prompt_file").stdout == "PROMPT.md\n"
    assert ctl("config", "get", "agents.claude.model").stdout == "\n"
    reply = ctl("--json", "config", "get", "regent.max_retries")
    assert json.loads(reply.stdout) == {"key": "regent.max_retries", "value": 7, "origin": "ralph.toml:3"}


def test_a_value_of_a_repository_does_not_reach_a_terminal_raw(
    toml: Path, environment: dict[str, str]
) -> None:
    toml.write_text('[regent]\ntest_command = "a\\u001b]52;c;aGk=\\u0007b"\n')
    argv = (sys.executable, "-m", "ralphctl", "config", "get", "regent.test_command")
    with Terminal(argv, cwd=toml.parent, environment=environment) as terminal:
        terminal.shows("a^[]52;c;aGk=^Gb")


def test_an_environment_and_an_address_are_never_printed(ctl: Ctl, toml: Path) -> None:
    toml.write_text('[agents.claude]\nenv = { API_KEY = "s3cret" }\n')
    assert "s3cret" not in ctl("config", "get", "agents.claude.env").stdout
    assert "s3cret" not in ctl("config", "explain", "agents.claude.env").stdout
    toml.write_text('[[webhooks]]\nurl = "https://a.example/s3cret"\n')
    for words in (["show"], ["get", "webhooks[0].url"], ["explain", "webhooks[0].url"]):
        assert "s3cret" not in ctl("config", *words).stdout
        assert "s3cret" not in ctl("--json", "config", *words).stdout


def test_explain_says_what_a_key_means_and_where_it_is_set(ctl: Ctl, toml: Path, golden: Golden) -> None:
    golden(
        ctl("config", "explain", "regent.max_retries"), ctl("config", "explain", "logs.total_bytes"),
        ctl("config", "explain", "agents.primary"), ctl("config", "explain", "git"),
        ctl("config", "explain", "webhooks[0].url"), ctl("config", "get", "regent"),
        ctl("config", "get", "regent.max_retrys"), ctl("config", "get", "nothing.here"),
    )  # fmt: skip


def test_every_key_has_an_explanation(ctl: Ctl, tmp_path: Path) -> None:
    for section in SECTIONS:
        out = ctl("config", "explain", section).stdout
        assert all(key.dotted in out for key in keys_of(section).values())


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [("slots", "2", "slots = 2"), ("keep_free", "0.2", "keep_free = 0.2"), ("env", '{A="b"}', 'A = "b"')],
)
def test_the_keys_of_an_account_are_set_and_explained(
    name: str, value: str, written: str, ctl: Ctl, environment: dict[str, str]
) -> None:
    key = f"accounts.work.{name}"
    assert f"ralphctl config set --user {key}" in ctl("config", "explain", key).stdout
    assert f"accounts.NAME.{name} " in ctl("config", "explain", "accounts").stdout
    reply = ctl("config", "set", "--user", key, value)
    assert reply.returncode == 0, reply.stderr
    assert written in Path(environment["HOME"], ".config/ralph/config.toml").read_text()
    assert ctl("config", "get", key).stdout.strip() in (value, '{"A" = "(not shown)"}')


def test_an_edit_without_faults_is_saved(edited: Edited, toml: Path) -> None:
    toml.chmod(0o640)
    reply = edited('test "$1" = --flag; sed -i "s/= 7/= 9/" "$2"')
    assert (reply.returncode, reply.stdout) == (0, "ralph.toml: saved (regent.max_retries)\n"), reply.stderr
    assert toml.read_text() == BEFORE.replace("7", "9", 1)
    assert stat.S_IMODE(toml.stat().st_mode) == 0o640
    assert edited.kept == []


@pytest.mark.parametrize(
    ("script", "code", "text"),
    [
        ('sed -i "s/= 7/= many/" "$2"', 78, "max_retries = many"),
        ('echo "[regent]" > "$2"; echo "max_retrys = 1" >> "$2"', 78, "max_retrys"),
        ('printf "a = \\"\\377\\"" > "$2"', 78, None),
        ('sed -i "s/= 7/= 9/" "$2"; exit 3', 2, "= 9"),
        ('echo "# other" > ralph.toml; sed -i "s/= 7/= 9/" "$2"', 75, "= 9"),
    ],
    ids=["not toml", "unknown key", "not utf-8", "editor failed", "changed meanwhile"],
)
def test_a_fault_changes_nothing_and_keeps_the_text(
    script: str, code: int, text: str | None, edited: Edited, toml: Path
) -> None:
    reply = edited(script)
    assert reply.returncode == code, reply.stderr
    assert toml.read_text() in (BEFORE, "# other\n")
    assert "your text is kept in " in reply.stderr
    if text is not None:
        assert text in edited.kept[0]


def test_no_change_and_no_editor_leave_nothing_behind(edited: Edited, toml: Path, ctl: Ctl) -> None:
    assert edited("true").stdout == "ralph.toml: no value changed\n"
    more = {"EDITOR": "/not/there", "VISUAL": "", "TMPDIR": str(toml.parent / "tmp")}
    missing = ctl("config", "edit", more=more)
    assert (missing.returncode, "EDITOR=nano" in missing.stderr) == (2, True)
    assert list((toml.parent / "tmp").iterdir()) == []
    assert toml.read_text() == BEFORE


@pytest.mark.parametrize(
    "script", ['rm "$2"', 'rm "$2"; mkdir "$2"', 'rm "$2"; mkfifo "$2"', 'rm -r "$(dirname "$2")"']
)
def test_an_editor_that_leaves_no_file_changes_nothing(script: str, edited: Edited, toml: Path) -> None:
    reply = edited(script)
    assert (reply.returncode, reply.stderr.count("the editor left no file")) == (2, 1), reply.stderr
    assert "Traceback" not in reply.stderr and toml.read_text() == BEFORE and edited.kept == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_edited(make: Callable[[Path], None], edited: Edited, toml: Path) -> None:
    toml.unlink()
    make(toml)
    reply = edited("true")
    assert (reply.returncode, "ralph.toml is not a file that you can read" in reply.stderr) == (1, True)
    assert "Traceback" not in reply.stderr and edited.kept == []


def test_an_editor_with_an_open_quote_is_refused(toml: Path, ctl: Ctl) -> None:
    reply = ctl("config", "edit", more={"EDITOR": "ed1 'x", "VISUAL": ""})
    assert (reply.returncode, "cannot run the editor: No closing quotation" in reply.stderr) == (2, True)
    assert "Traceback" not in reply.stderr and toml.read_text() == BEFORE


def test_your_own_file_is_made_private(edited: Edited, environment: dict[str, str]) -> None:
    reply = edited('printf "[logs]\\ntotal_bytes = 5000000\\n" > "$2"', "--user")
    assert reply.returncode == 0, reply.stderr
    assert "next: ralphctl regent reload" in reply.stdout
    own = Path(environment["HOME"], ".config", "ralph", "config.toml")
    assert stat.S_IMODE(own.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        ("--user notify.allow_private true", ["ralphctl regent reload"]),
        ("--user logs.total_bytes 5000000", ["ralphctl regent reload"]),
        ("--user fleet.slots 2", ["ralphctl regent reload"]),
        ("--user webhooks[0].url https://a.example/x", ["ralphctl regent reload"]),
        ("--user notify.reminder_minutes 5", ["ralphctl reload api", "ralphctl reload web"]),
        ("notify.reminder_minutes 5", ["ralphctl reload api"]),
        ("--user agents.timeout_seconds 50", ["ralphctl reload api", "ralphctl reload web"]),
        ("--user regent.max_retries 2", ["ralphctl reload web"]),
        ("regent.max_retries 2", ["ralphctl reload api"]),
    ],
)
def test_a_change_suggests_only_what_it_needs(words: str, steps: list[str], ctl: Ctl, tmp_path: Path) -> None:
    for name, state in {"api": "running", "web": "paused", "old": "done", "bad": "failed"}.items():
        (tmp_path / name).mkdir()
        home = tmp_path / "state" / "ralphs" / name
        home.mkdir(parents=True)
        (home / "ralph.json").write_text(json.dumps({"directory": str(tmp_path / name), "command": []}))
        (home / "regent-state.json").write_text(json.dumps({"state": state}))
    (tmp_path / "api" / "ralph.toml").write_text("[regent]\nmax_retries = 7\n")
    reply = ctl("config", "set", *words.split(), cwd=tmp_path / "api")
    lines = [line for line in reply.stdout.splitlines() if "next:" in line]
    assert [line.split("next: ")[1].split("  (")[0] for line in lines] == steps, reply

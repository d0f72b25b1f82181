"""``ralphctl config set`` and ``unset``: one key changes, comments and order stay, faults are refused."""

import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphctl.cli import root
from ralphctl.setup import config_edit
from ralphctl.setup.config_edit import ChangedMeanwhile, ConfigEdit, edit_key, edited_text
from ralphctl.setup.config_show import next_steps, warnings
from ralphd.errors import ConfigFaults, DirectoryUnusable, UsageError
from tests.config.conftest import Place
from tests.ctl.golden_files import Golden, printed, typed

MINE = """\
#:schema x
# my own words

[regent]   # supervision
max_retries = 5     # five is right
test_command = 'make "all"'

# about the agents
[agents.claude]
args = [
  "--one",   # first
  "--two",
]

[[webhooks]]
url = "https://example.com/a"

[git]
auto_push = true
"""


class Person:
    """Somebody who sets keys in a directory and its home."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.environ = {"HOME": str(place.home)}

    def sets(self, key: str, value: str | None, *, user: bool = False) -> ConfigEdit:
        return edit_key(key, value, directory=self.place.directory, environ=self.environ, users_own=user)

    def unsets(self, key: str) -> ConfigEdit:
        return self.sets(key, None)

    def warned(self, edit: ConfigEdit) -> list[str]:
        return warnings(edit, self.place.directory, self.environ)

    def refused(self, key: str, value: str, *, user: bool = False) -> str:
        with pytest.raises(ConfigFaults) as told:
            self.sets(key, value, user=user)
        assert told.value.exit_code == 78
        return told.value.why

    @property
    def toml(self) -> Path:
        return self.place.directory / "ralph.toml"


@pytest.fixture
def person(place: Place) -> Person:
    return Person(place)


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("regent.max_retries", "7", "max_retries = 5 ", "max_retries = 7 "),
        ("regent.test_command", "tox", "'make \"all\"'", '"tox"'),
        ("regent.enabled", "no", "the agents\n", "the agents\nenabled = false\n"),
        ("git.auto_push", "off", "auto_push = true", "auto_push = false"),
        ("agents.claude.model", "opus", ']\n\n[[', ']\nmodel = "opus"\n\n[['),
        (
            "webhooks[0].on",
            "ralph.*,tests.failed",
            'com/a"\n',
            'com/a"\non = ["ralph.*", "tests.failed"]\n',
        ),
        (
            "notify.reminder_minutes",
            "5",
            "auto_push = true\n",
            "auto_push = true\n\n[notify]\nreminder_minutes = 5\n",
        ),
        (
            "webhooks[1].url",
            "https://example.com/b",
            "[git]",
            '[[webhooks]]\nurl = "https://example.com/b"\n[git]',
        ),
    ],
)  # fmt: skip
def test_one_key_is_set_and_every_other_line_stays(
    person: Person, key: str, value: str, old: str, new: str
) -> None:
    person.place.project(MINE)
    assert person.sets(key, value).is_changed
    assert person.toml.read_text() == MINE.replace(old, new)
    assert person.place.load()


@pytest.mark.parametrize(
    ("key", "value", "typed"),
    [
        ("regent.retry_backoff_seconds", "1e1", 10),
        ("ralph.max_cost_usd", "12.5", 12.5),
        ("ralph.command", "./loop.sh 'a b'", ["./loop.sh", "a b"]),
        ("ralph.command", '["./loop.sh"]', ["./loop.sh"]),
        ("agents.fallback", "codex, gemini", ["codex", "gemini"]),
        ("agents.fallback", "", []),
        ("agents.claude.env", '{A = "b"}', {"A": "b"}),
        ("agents.claude.env.A_B", "c", "c"),
        ("regent.test_command", "5", "5"),
    ],
)
def test_a_value_is_written_as_the_type_of_its_key_into_a_file_that_is_made(
    person: Person, key: str, value: str, typed: object
) -> None:
    assert person.sets(key, value).was is None
    tree = tomllib.loads(person.toml.read_text())
    for part in key.split("."):
        tree = tree[part]
    assert tree == typed
    assert stat.S_IMODE(person.toml.stat().st_mode) & 0o022 == 0
    assert person.place.load()


def test_what_check_would_not_accept_is_refused_in_its_words(person: Person, golden: Golden) -> None:
    person.place.project(MINE)
    wrong = (
        ("regent.max_retires", "1"),
        ("regnt.max_retries", "1"),
        ("max_retries", "1"),
        ("regent.max_retries", "-1"),
        ("regent.max_retries", "many"),
        ("regent.enabled", "5"),
        ("ralph.mode", "lop"),
        ("agents.Claude.model", "x"),
        ("webhooks[0].url", "ftp://x"),
        ("webhooks[1].url", "https://example.com/a"),
        ("logs.run_bytes", "5000000"),
        ("webhooks[1].format", "json"),
    )
    faults = {f"{key} = {value}": person.refused(key, value) for key, value in wrong}
    address = "https://example.com/c"
    for key in ("", "a..b", "webhooks[x].url", "webhooks[2].url"):
        with pytest.raises(UsageError) as told:
            person.sets(key, address)
        faults[f"{key} = {address}"] = str(told.value)
    golden(faults)
    assert person.toml.read_text() == MINE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("webhooks[0].secret", "hunter2"),
        ("webhooks[0].secret_env", "whsec_aHVudGVyMg=="),
        ("webhooks[0].secret_file", "whsec_aHVudGVyMg=="),
        ("webhooks[0].secret_env", "hunter2!"),
    ],
)
def test_a_secret_is_named_and_never_held(person: Person, key: str, value: str) -> None:
    person.place.project(MINE)
    with pytest.raises(UsageError) as told:
        person.sets(key, value)
    assert value not in str(told.value)
    assert person.toml.read_text() == MINE
    assert person.sets("webhooks[0].secret_env", "HOOK_SECRET").now == '"HOOK_SECRET"'


def test_what_may_be_a_secret_or_a_slip_is_warned_of(person: Person) -> None:
    edit = person.sets("agents.claude.env.API_KEY", "sk-1")
    assert (edit.now, edit.was) == ("(not shown)", None)
    assert "often committed" in person.warned(edit)[0]
    assert person.warned(person.sets("agents.claude.env.LANG", "C")) == []
    assert person.warned(person.unsets("agents.claude.env.API_KEY")) == []
    [unknown] = person.warned(person.sets("agents.primary", "claud"))
    assert "agents.primary: 'claud' is not a known agent, did you mean claude?" in unknown
    person.unsets("agents.primary")
    [no_tests] = person.warned(person.sets("regent.rollback_on_test_failure", "yes"))
    assert no_tests.startswith("rollback_on_test_failure is set, but test_command is not; no ralph can be")
    person.sets("webhooks[0].url", "https://a.example/s3cret")
    assert person.unsets("webhooks").was == "(not shown)"


@pytest.mark.parametrize("text", ["[regent\n", "x = 1\nx = 2\n", "a.b" * 40, "\udcff"])
def test_a_broken_file_is_told_and_not_touched(person: Person, text: str) -> None:
    person.place.project("")
    person.toml.write_bytes(text.encode(errors="surrogateescape"))
    before = person.toml.read_bytes()
    with pytest.raises(ConfigFaults) as told:
        person.sets("regent.max_retries", "1")
    assert told.value.what == "ralph.toml cannot be changed: nothing was written"
    assert "ralph.toml" in told.value.why
    assert person.toml.read_bytes() == before


def test_a_file_with_another_fault_can_be_mended_key_by_key(person: Person) -> None:
    person.place.project("[regent]\nmax_retires = 5\nenabled = 1\n")
    person.sets("regent.max_retries", "5")
    person.sets("regent.enabled", "true")
    person.unsets("regent.max_retires")
    assert person.toml.read_text() == "[regent]\nenabled = true\nmax_retries = 5\n"


def test_unset_takes_out_one_key_and_says_what_is_not_there(person: Person) -> None:
    person.place.project(MINE)
    assert person.unsets("regent.max_retries").was == "5"
    assert person.toml.read_text() == MINE.replace("max_retries = 5     # five is right\n", "")
    assert not person.unsets("regent.max_retries").is_changed
    with pytest.raises(ConfigFaults):
        person.unsets("regent.max_retires")


@pytest.mark.parametrize("key", ["git", "webhooks[0]", "webhooks[1]", "regent"])
def test_the_comments_above_the_next_section_stay(person: Person, key: str) -> None:
    about = {"regent": "# of CI\n[regent]\nmax_retries = 5 # five\n\n"}
    about["webhooks[0]"] = '# first\n\n# hook\n[[webhooks]]\nurl = "https://example.com/a"\n\n'
    about["webhooks[1]"] = '# second\n[[webhooks]]\nurl = "https://example.com/b"\n\n'
    about["git"] = "# of git\n[git]\nauto_push = false\n# the end\n"
    person.place.project(text := "".join(about.values()))
    person.unsets(key)
    left = person.toml.read_text()
    assert [line for line in left.splitlines() if line.startswith("#")] == [
        line for line in text.splitlines() if line.startswith("#")
    ]
    assert len(left) < len(text)


def test_of_webhooks_with_sections_between_no_comment_is_doubled(person: Person) -> None:
    other = '[git]\nauto_push = false\n\n[[webhooks]]\nurl = "https://example.com/b"\n# of ralph\n[ralph]\n'
    person.place.project('[[webhooks]]\nurl = "https://example.com/a"\n' + other)
    person.unsets("webhooks[0]")
    assert person.toml.read_text().count("# of ralph") == 1


def test_after_the_last_webhook_is_unset_another_can_be_added_by_hand(person: Person) -> None:
    person.place.project(MINE)
    person.unsets("webhooks[0]")
    assert person.toml.read_text() == MINE.replace('[[webhooks]]\nurl = "https://example.com/a"\n\n', "")
    person.toml.write_text(person.toml.read_text() + '[[webhooks]]\nurl = "https://example.com/b"\n')
    assert [hook.url for hook in person.place.load().webhooks] == ["https://example.com/b"]


def test_the_nearest_file_is_the_one_that_is_changed(person: Person) -> None:
    above = person.place.directory
    (above / ".git").mkdir()
    person.place.project(MINE)
    inside = above / "deep" / "down"
    inside.mkdir(parents=True)
    edit = edit_key("regent.max_retries", "6", directory=inside, environ=person.environ, users_own=False)
    assert edit.file == person.toml.resolve()


@pytest.mark.parametrize("key", ["regent.max_retries", "notify.reminder_minutes"])
def test_the_marks_of_a_windows_editor_stay(person: Person, key: str) -> None:
    person.place.project("").write_bytes(b"\xef\xbb\xbf" + MINE.replace("\n", "\r\n").encode())
    person.sets(key, "6")
    text = person.toml.read_bytes().decode()
    assert text.startswith("\ufeff#:schema x\r\n")
    assert text.count("\n") == text.count("\r\n")
    assert tomllib.loads(text[1:]) == tomllib.loads(edited_text(MINE, tuple(key.split(".")), 6, person.toml))
    person.sets(key, "5")
    person.toml.write_bytes(b"\xef\xbb\xbf")
    person.sets(key, "6")
    assert person.toml.read_text().startswith("\ufeff[")


def test_the_mode_and_a_link_stay_and_your_own_file_is_private(person: Person, place: Place) -> None:
    person.place.project(MINE).chmod(0o640)
    real = place.home / "dotfiles.toml"
    person.toml.rename(real)
    person.toml.symlink_to(real)
    person.sets("regent.max_retries", "6")
    assert person.toml.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    edit = person.sets("logs.total_bytes", "5000000", user=True)
    assert stat.S_IMODE(edit.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(edit.file.parent.stat().st_mode) == 0o700
    assert [path.name for path in edit.file.parent.iterdir()] == ["config.toml"]


def test_a_file_that_somebody_else_writes_meanwhile_is_left_to_them(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*edit: Any) -> str:
        person.place.project("# theirs\n")
        return edited_text(*edit)

    person.place.project(MINE)
    with monkeypatch.context() as patched:
        patched.setattr(config_edit, "edited_text", meanwhile)
        with pytest.raises(ChangedMeanwhile):
            person.sets("regent.max_retries", "6")
    monkeypatch.setattr(os, "fsync", _full)
    with pytest.raises(DirectoryUnusable, match="nothing was changed"):
        person.sets("regent.max_retries", "6")
    assert person.toml.read_text() == "# theirs\n"
    assert [path.name for path in person.place.directory.iterdir()] == ["ralph.toml"]


def _full(descriptor: int) -> None:
    raise OSError(28, os.strerror(28))


KEYS = {
    "regent.max_retries": "7",
    "agents.claude.model": "m",
    "git.repair": "abort",
    "webhooks[0].format": "json",
}
PIECES = (
    "[regent]\nenabled = true\n",
    "[agents]\nprimary = 'claude' # x\n",
    "[agents.claude]\nmodel = 'a'\n",
    "[agents.codex.env]\nA = '''\n[git]\n'''\n",
    "# alone\n",
    "[git]\n",
    "[[webhooks]]\nurl = 'https://example.com/1'\n",
    "[[webhooks]]\nurl = 'https://example.com/2'\non = [ '*' ]\n",
    "\n",
)


@settings(max_examples=40)
@given(st.permutations(PIECES), st.integers(0, len(PIECES)), st.sampled_from(sorted(KEYS)), st.booleans())
def test_whatever_the_order_of_a_file_no_line_is_lost_and_no_other_key_changes(
    pieces: list[str], count: int, key: str, inline: bool
) -> None:
    text = ("git = { auto_push = true }\n" if inline else "") + "".join(pieces[:count])
    text = text.replace("[git]\n", "") if inline else text
    path = {"webhooks[0].format": ("webhooks", 0, "format")}.get(key, tuple(key.split(".")))
    value = int(KEYS[key]) if KEYS[key].isdigit() else KEYS[key]

    after = edited_text(text, path, value, Path("ralph.toml"))

    tree: Any = tomllib.loads(after)
    for part in path:
        tree = tree[part]
    assert tree == value
    lost = [
        line for line in text.splitlines() if line and line not in after and line.split(" ")[0] not in key
    ]
    assert [line for line in lost if not line.startswith("git =")] == []


# --- the command ----------------------------------------------------------------------------------------


def test_the_command_says_what_was_changed_what_counts_more_and_what_to_type(
    person: Person,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    home = tmp_path / "state" / "ralphs" / "demo"
    home.mkdir(parents=True)
    (home / "ralph.json").write_text(f'{{"directory": "{person.place.directory}"}}')
    (home / "regent-state.json").write_text('{"state": "paused"}')
    monkeypatch.setenv("HOME", str(person.place.home))
    monkeypatch.setenv("RALPHD_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RALPH_REGENT_MAX_RETRIES", "9")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.chdir(person.place.directory)

    change = ["config", "set", "regent.max_retries", "4"]
    replies = []
    for words in (change, [*change, str(person.place.directory)]):
        assert root.run(words) == 0
        replies.append(printed(typed(words), 0, *capsys.readouterr()))
    golden(*replies)
    with pytest.raises(ConfigFaults):
        root.run(["config", "set", "regent.max_retries", "-1"])
    assert root.run(["config", "unset", "regent.max_retries", "--json"]) == 0
    assert '"ralphs": [\n    "demo"\n  ]' in capsys.readouterr().out


def test_your_own_file_is_of_all_ralphs_and_lies_below_the_projects(
    person: Person, golden: Golden, tmp_path: Path
) -> None:
    person.place.project(MINE)
    edit = person.sets("regent.max_retries", "3", user=True)
    golden(person.warned(edit))
    home = tmp_path / "state" / "ralphs" / "far"
    home.mkdir(parents=True)
    (home / "ralph.json").write_text('{"directory": "/nowhere"}')
    (home / "regent-state.json").write_text('{"state": "running"}')
    environ = person.environ | {"RALPHD_STATE_DIR": str(tmp_path / "state")}
    key = ["regent.max_retries"]
    assert next_steps(edit.file, key, environ, users_own=True) == (False, ["far"])
    assert next_steps(person.toml, key, environ, users_own=False) == (False, [])

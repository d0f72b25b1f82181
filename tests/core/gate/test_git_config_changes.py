"""Which settings of git run a command, and which of them an iteration changed."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.gate.git_config_changes import HOOKS_PATH, changed_commands, is_restored, runs_command

COMMANDS = [
    ("core.hookspath", ".husky"),
    ("core.hookspath", "true"),
    ("core.fsmonitor", "/tmp/x"),
    ("core.sshcommand", "sh -c x"),
    ("core.editor", "x"),
    ("core.pager", "x"),
    ("pager.log", "less; x"),
    ("credential.helper", "!x"),
    ("credential.https://a.example/b.helper", "x"),
    ("filter.x.clean", "x"),
    ("filter.lfs.clean", "git-lfs clean -- %f; x"),
    ("diff.external", "x"),
    ("diff.a.b.textconv", "x"),
    ("diff.x.command", "x"),
    ("merge.x.driver", "x"),
    ("mergetool.x.cmd", "x"),
    ("gpg.program", "x"),
    ("gpg.ssh.program", "x"),
    ("include.path", "/tmp/x"),
    ("includeif.gitdir:/x/\n.path", "x"),
    ("alias.st", "!x"),
    ("submodule.x.update", "!x"),
    ("protocol.ext.allow", "always"),
    ("protocol.allow", "user"),
    ("remote.origin.uploadpack", "x"),
    ("remote.origin.receivepack", "x"),
    ("remote.origin.vcs", "x"),
    ("remote.origin.url", "ext::sh -c x"),
    ("url.ext::sh -c x .insteadof", "https://a.example/"),
    ("sequence.editor", "x"),
    ("trailer.x.cmd", "x"),
    ("sendemail.smtpserver", "/tmp/x"),
]
HONEST = [
    ("user.name", "Ralph"),
    ("remote.origin.url", "https://a.example/b.git"),
    ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
    ("branch.main.merge", "refs/heads/main"),
    ("core.fsmonitor", "true"),
    ("pager.log", "false"),
    ("alias.st", "status"),
    ("filter.lfs.clean", "git-lfs clean -- %f"),
    ("filter.lfs.required", "true"),
    ("protocol.ext.allow", "never"),
    ("submodule.x.update", "rebase"),
    ("diff.algorithm", "histogram"),
    ("core.autocrlf", "input"),
]


@pytest.mark.parametrize(("key", "value"), COMMANDS)
def test_a_setting_with_a_command_counts(key: str, value: str) -> None:
    assert runs_command(key, value)
    assert changed_commands({}, {key: (value,)}) == changed_commands({key: (value,)}, {}) == [key]


@pytest.mark.parametrize(("key", "value"), HONEST)
def test_an_honest_setting_does_not_count(key: str, value: str) -> None:
    assert not runs_command(key, value)
    assert changed_commands({}, {key: (value,)}) == []


@given(st.dictionaries(st.sampled_from([key for key, _ in COMMANDS + HONEST]), st.tuples(st.text())))
def test_equal_settings_have_no_changes(settings: dict[str, tuple[str]]) -> None:
    assert changed_commands(settings, dict(settings)) == []


@given(st.tuples(st.text()), st.tuples(st.text()))
def test_a_changed_hooks_path_always_counts(before: tuple[str], after: tuple[str]) -> None:
    changed = changed_commands({"core.hookspath": before}, {"core.hookspath": after})
    assert changed == ([] if before == after else ["core.hookspath"])


@pytest.mark.parametrize(
    ("name", "is_protected", "is_stuck", "restored"),
    [
        ("hooks", False, False, True),
        ("hooks/pre-commit", False, False, True),
        ("hooks/pre-commit", True, False, True),
        ("core.fsmonitor", False, True, False),
        ("core.fsmonitor", True, False, True),
        ("config", False, True, False),
        (HOOKS_PATH, False, False, False),
        (HOOKS_PATH, False, True, True),
        (HOOKS_PATH, True, False, True),
    ],
)
def test_hooks_are_restored_at_each_level(
    name: str, is_protected: bool, is_stuck: bool, restored: bool
) -> None:
    assert is_restored(name, seen=True, is_protected=is_protected, is_stuck=is_stuck) is restored
    assert not is_restored(name, seen=False, is_protected=is_protected, is_stuck=is_stuck)


@pytest.mark.parametrize("key", ["core.worktree", "core.bare"])
def test_a_setting_that_leads_git_elsewhere_is_always_restored(key: str) -> None:
    assert changed_commands({}, {key: ("/other",)}) == [key]
    assert is_restored(key, seen=True, is_protected=False, is_stuck=False)
    assert not is_restored(key, seen=False, is_protected=True, is_stuck=False)


def test_a_setting_with_a_hostile_name_takes_linear_time() -> None:
    began = time.process_time()

    assert not runs_command("sendemail." + "." * 300_000, "x")

    assert time.process_time() - began < 5  # it took half a minute

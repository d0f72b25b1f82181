"""Which sandbox a run gets (A1)."""

import pytest

from ralphd.core.sandbox import LEVELS, SandboxChoice, SandboxFacts, choose, is_lowered, note_on, view_of

USER, ROOT = SandboxFacts(abi=7), SandboxFacts(abi=7, is_root=True)
OLD, BARE = SandboxFacts(abi=3), SandboxFacts()


@pytest.mark.parametrize("machine", [USER, ROOT, SandboxFacts(abi=6), SandboxFacts(7, True, has_sudo=True)])
def test_auto_is_signals_where_the_kernel_restricts_them(machine: SandboxFacts) -> None:
    assert choose("auto", machine) == SandboxChoice("signals")


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (BARE, "no Landlock"),
        (OLD, "ABI 3 cannot restrict signals"),
        (SandboxFacts(7, has_sudo=True), "sudo works without a password"),
    ],
)
def test_auto_is_none_with_its_reason_elsewhere(machine: SandboxFacts, words: str) -> None:
    choice = choose("auto", machine)

    assert (choice.level, choice.required, choice.fault) == ("none", False, "")
    assert words in choice.reason
    assert choice.reason in (note_on(choice.level, choice.reason) or "")


def test_a_requested_level_is_never_dropped() -> None:
    assert choose("signals", USER) == SandboxChoice("signals", required=True)
    assert choose("signals", SandboxFacts(7, has_sudo=True)).required
    assert "no Landlock" in choose("signals", BARE).fault
    assert "cannot restrict" in choose("signals", OLD).fault
    assert "not part of this version" in choose("write", ROOT).fault
    assert "not part of this version" in choose("box", ROOT).fault


def test_none_needs_no_reason_and_no_note() -> None:
    choice = choose("none", BARE)

    assert choice == SandboxChoice()
    assert note_on(choice.level, choice.reason) is None
    assert note_on("signals", "") is None


def test_the_projects_file_only_raises_the_level() -> None:
    lowered = [(own, his) for own in LEVELS for his in LEVELS if is_lowered(own, his)]

    assert ("auto", "none") in lowered
    assert ("signals", "auto") in lowered
    assert not {("auto", "signals"), ("none", "auto"), ("box", "box")} & set(lowered)


def test_the_view_names_the_means() -> None:
    assert view_of("signals", "") == {"level": "signals", "means": "landlock", "reason": None}
    assert view_of("none", "why") == {"level": "none", "means": None, "reason": "why"}

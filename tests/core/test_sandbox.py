"""Which sandbox a run gets (A1)."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.sandbox import (
    LEVELS,
    SandboxChoice,
    SandboxFacts,
    choose,
    default_writable,
    is_lowered,
    note_on,
    outermost,
    restricted,
    view_of,
)

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
    assert choose("write", ROOT) == SandboxChoice("write", required=True)
    assert "cannot restrict" in choose("write", OLD).fault
    assert choose("box", BARE) == SandboxChoice("box", required=True)  # needs no Landlock
    assert choose("box", SandboxFacts(7, no_box="no bwrap")).fault == '[sandbox] level = "box": no bwrap'


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
    assert view_of("box", "")["means"] == "bubblewrap"
    assert view_of("none", "why") == {"level": "none", "means": None, "reason": "why"}


def test_caches_and_the_agents_own_state_are_writable() -> None:
    environ = {"XDG_CACHE_HOME": "/big", "PIP_CACHE_DIR": "/big/pip", "CODEX_HOME": "/codex/"}
    stated = ("~/.claude", "$CODEX_HOME", "/srv/y", "$UNSET/unset", "relative")
    paths = default_writable("/home/me", environ, stated)

    assert {"/home/me/.cache", "/home/me/.npm", "/big", "/home/me/.claude", "/codex", "/srv/y"} <= set(paths)
    assert "/big/pip" not in outermost(paths)
    assert not [path for path in paths if not path.startswith("/") or path.endswith(("unset", "relative"))]


def test_a_path_that_holds_the_state_directory_takes_none_below_it_along() -> None:
    paths = default_writable("/home/me", {}, ("~/.local", "~/.local/bin"))
    chosen = restricted(WRITE, ("/w",), paths, "/home/me/.local/state/ralphd").writable
    assert {"/home/me/.local/bin", "/home/me/.local/share/pnpm"} <= set(chosen)
    assert "/home/me/.local" not in chosen


@pytest.mark.parametrize("value", ["/", "/home", "/home/me", "/home/me/", "/home/me/.", "", ".", "cache"])
def test_a_variable_never_makes_the_home_directory_writable(value: str) -> None:
    with_it = default_writable("/home/me", {"XDG_CACHE_HOME": value}, ())

    assert with_it == default_writable("/home/me", {}, ())


WRITE = SandboxChoice("write", required=True)


def test_what_a_run_may_write_holds_no_state_directory() -> None:
    choice = restricted(WRITE, ("/srv/work", "/srv/work/.git"), ("/tmp", "/dev/shm"), "/tmp/state")

    assert choice == SandboxChoice("write", required=True, writable=("/srv/work", "/dev/shm"))


@pytest.mark.parametrize("needed", ["/", "/home", "/home/me/state", "/home/me/state/x"])
def test_a_needed_path_with_the_state_directory_is_a_fault(needed: str) -> None:
    choice = restricted(WRITE, ("/srv/work", needed), (), "/home/me/state")

    assert (choice.level, choice.writable) == ("none", ())
    assert f"has to write {needed}, and the state directory /home/me/state" in choice.fault


FOLDERS = st.lists(st.sampled_from("abc"), max_size=3).map(lambda names: "/" + "/".join(names))


@given(st.lists(FOLDERS, max_size=6))
def test_outermost_paths_cover_all_and_none_is_in_another(paths: list[str]) -> None:
    kept = outermost(paths)

    assert all(any(posixpath.commonpath([path, each]) == each for each in kept) for path in paths)
    pairs = [(one, each) for one in kept for each in kept if one != each]
    assert not [1 for one, each in pairs if posixpath.commonpath([one, each]) == each]


@given(st.lists(FOLDERS, min_size=1, max_size=4), st.lists(FOLDERS, max_size=4), FOLDERS)
def test_no_run_may_write_the_state_directory_or_what_holds_it(
    needed: list[str], optional: list[str], hidden: str
) -> None:
    for path in restricted(WRITE, needed, optional, hidden).writable:
        assert posixpath.commonpath([path, hidden]) not in (path, hidden)

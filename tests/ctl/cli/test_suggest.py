"""What an unknown word is answered with: never a command that changes something for one that only looks."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ralphctl.cli import suggest
from ralphctl.cli.overview import TABLE
from ralphctl.cli.suggest import command_for, distance, farness, only_looks, option_for

TYPED = {word: command for command, words in suggest._ALIASES["commands"].items() for word in words.split()}
LOOKING = sorted({*suggest._LOOKS, *(word for word, command in TYPED.items() if only_looks(command))})
OPTIONS = ["--now", "--no-wait", "--wait-timeout", "--all", "--json", "--socket", "--help", "--force", "-C"]


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("tpo", "top"), ("tops", "top"), ("atop", "top"), ("watch", "status --watch"), ("stat", "status"),
        ("stats", "status --resources"), ("statsu", "status"), ("strat", "start"), ("stpo", "stop"),
        ("kill", "stop --now"), ("down", "stop"), ("up", "start"), ("delete", "rm"),
        ("describe", "explain"),
        ("get", "status"), ("tail", "logs -f"), ("edit", "config edit"), ("LOG", "logs"),
        ("add", "tasks add"), ("tell", "note"), ("pr", "diff"),
        ("restat", "restart"), ("zzzz", ""), ("x", ""),
    ],
)  # fmt: skip
def test_the_words_of_other_tools_and_slips(word: str, command: str) -> None:
    assert command_for(word, TABLE, is_root=True) == command


def test_every_alias_names_a_command_of_its_kind() -> None:
    known = set(TABLE) | {"cost", "webhooks", "--help", "--version"}
    assert all(command.split()[0] in known for command in suggest._ALIASES["commands"])
    for name, entry in TABLE.items():
        assert only_looks(name) or entry.section != "Inspect", f"{name} looks: name it in aliases.toml"


@pytest.mark.parametrize("group", ["regent", "webhooks", "config", ""])
@pytest.mark.parametrize("word", LOOKING)
def test_a_word_that_looks_never_gets_a_command_that_changes(word: str, group: str) -> None:
    tables = {
        "": list(TABLE), "regent": ["start", "stop", "restart", "reload", "status", "logs", "install"],
        "webhooks": ["list", "add", "remove", "test", "deliveries", "replay"],
        "config": ["show", "get", "explain", "check", "set", "unset", "edit", "schema"],
    }  # fmt: skip
    table = [name for name in tables[group] if name != word]
    proposed = command_for(word, table, is_root=not group)
    assert not proposed or only_looks(proposed)


@given(st.one_of(st.text(string.ascii_lowercase, max_size=9), st.sampled_from(LOOKING)), st.data())
def test_what_changes_is_nearer_than_anything_that_looks(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word)))
    word = data.draw(st.sampled_from([word, word[:at] + "q" + word[at:], word[:at] + word[at + 1 :]]))
    assume(word not in TABLE)
    proposed = command_for(word, TABLE, is_root=True)
    if not proposed or only_looks(proposed):
        return
    words = {proposed, *(each for each, to in TYPED.items() if to == proposed)}
    looking = [each for each in (*LOOKING, *TABLE) if each in TABLE or each in TYPED]
    nearest = min(farness(word, each) for each in words)
    assert all(nearest < farness(word, each) for each in looking if only_looks(TYPED.get(each, each)))


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--nwo", "--now"), ("--kill", ""), ("--forse", "--force"), ("--al", "--all"), ("--alll=1", "--all"),
        ("--timeout", "--wait-timeout"), ("--output", "--json"), ("--cwd", "-C"), ("--lines", ""), ("-x", ""),
        ("--everything", ""), ("--soket=a", "--socket"),
    ],
)  # fmt: skip
def test_the_option_that_was_meant(option: str, meant: str) -> None:
    assert option_for(option, OPTIONS) == meant


@given(st.text(string.ascii_lowercase, max_size=9))
def test_a_strong_option_is_proposed_for_one_slip_only(word: str) -> None:
    proposed = option_for(f"--{word}", OPTIONS)
    assert proposed not in suggest._STRONG_OPTIONS or distance(f"--{word}", proposed) <= 1


@given(*(st.text("abc", max_size=6),) * 3)
def test_the_distance_is_one(one: str, other: str, third: str) -> None:
    assert distance(one, other) == distance(other, one)
    assert (distance(one, other) == 0) == (one == other)
    assert distance(one + third, other + third) <= distance(one, other)
    assert distance("stop", "stpo") == 1 and distance("top", "stop") == 1

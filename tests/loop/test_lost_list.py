"""The task list is lost during an attempt: the loop restores it, and pauses where that is of no use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.loop.nights import Night, night_in, shown


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    """A night with two tasks."""
    with night_in(tmp_path) as night:
        night.tasks(2)
        yield night


def test_a_list_that_an_agent_removes_and_commits_is_restored(night: Night) -> None:
    night.plays({"do": "claim", "runs": "git rm -q prd.json && git commit -qm tidy"})

    code, log = night.ends()

    assert code == 0, log
    assert night.open() == 0
    assert night.did() == [("claude", "claim"), ("claude", "task"), ("claude", "task")]
    assert night.git("log", "--format=%s").split("\n")[-4:-1] == ["Restore prd.json", "tidy", "start"]
    lost = "the attempt lost the task list (prd.json is not there); prd.json is restored: leave it there"
    assert log.count(lost) == 1
    assert shown(log, lost, "failed (agent incomplete): the agent finished, but lost the task list")
    first, second, third = (call.prompt for call in night.calls())
    assert lost not in first
    assert second.count(lost) == 1
    assert lost not in third
    assert night.failures() == [0, 0]


WAYS: dict[str, tuple[str, str, str]] = {
    "removed": ("rm prd.json", "prd.json is not there", ""),
    "staged": ("git rm -q prd.json", "prd.json is not there", ""),
    "link": ("ln -sf /etc/hostname prd.json", "lies outside the working directory", "prd.json.replaced-1"),
    "fifo": ("rm prd.json; mkfifo prd.json", "is not a regular file", "prd.json.replaced-1"),
    "folder": (
        "rm prd.json; mkdir prd.json; echo x > prd.json/x",
        "is not a regular file",
        "prd.json.replaced-1/x",
    ),
    "garbage": ("echo '{' > prd.json", "is not JSON", "prd.json.replaced-1"),
    "empty": ("echo '{\"userStories\": []}' > prd.json", "prd.json lists no task", "prd.json.replaced-1"),
    "too large": ("head -c 2000000 /dev/zero > prd.json", "is larger than 1 MiB", "prd.json.replaced-1"),
}


@pytest.mark.parametrize("way", WAYS)
def test_whatever_replaces_the_list_is_put_aside(night: Night, way: str) -> None:
    command, why, aside = WAYS[way]
    before = (night.directory / "prd.json").read_text()
    night.plays(
        {"do": "claim", "runs": command},
        {"do": "claim", "runs": "cp prd.json ../seen; git status -s > ../status"},
    )

    code, log = night.ends()

    assert code == 0, log
    assert shown(log, "the attempt lost the task list (", why)
    assert (night.root / "seen").read_text() == before
    assert "prd.json\n" not in (night.root / "status").read_text()
    if aside:
        assert os.path.lexists(night.directory / aside)
        assert f"what was there is in {aside.partition('/')[0]}" in log


def test_a_list_lost_in_three_iterations_in_a_row_pauses_the_loop(night: Night) -> None:
    night.configure("retries_before_fallback = 0\n")
    night.plays(*[{"do": "claim", "runs": "rm prd.json"}] * 9)

    code, log = night.ends()

    assert code == 75, log
    assert len(night.calls()) == 3
    assert "paused: the task list was lost in 3 iterations in a row: prd.json is not there" in log
    assert night.kept("checkpoint.json")["pause_reason"] == "error"
    assert night.open() == 2, "restored all the same"


def test_a_list_that_a_person_removes_stays_removed(night: Night) -> None:
    night.configure("retries_before_fallback = 0\n")
    night.plays({"do": "rate_limit", "holds_s": 3}, *["claim"] * 9)
    loop = night.start()
    night.calls(1)
    saved = night.home / "checkpoint.json"
    wait_for(lambda: '"rate_limit"' in saved.read_text(), timeout_s=30, what="the end of the attempt")
    night.git("rm", "-q", "prd.json")
    night.git("commit", "-qm", "of a person")

    code, log = night.end(loop)

    assert code == 75, log
    assert "the task list was lost in 3 iterations in a row: prd.json is not there" in log
    assert night.git("log", "-1", "--format=%s") == "of a person\n"
    assert not (night.directory / "prd.json").exists()
    assert len(night.calls()) == 4

"""Whatever of a build is killed, and when: nothing of it stays alive, and what is left can be read (P5)."""

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ralphctl.service.daemon import SHIMS_LIMIT_S
from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.builds import Build, all_gone, build_in, kill
from tests.whole.harness import Daemon
from tests.whole.person import Person


@pytest.fixture
def build(daemon: Daemon) -> Iterator[Build]:
    """A build to be started."""
    with build_in(daemon) as build:
        yield build


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Somebody at another terminal."""
    return Person(daemon)


def family_of(build: Build) -> dict[str, int]:
    """The pids of the family player, once it has told all of them."""
    build.start("--", *player("family"))

    def told() -> dict[str, int] | None:
        found = {line.split()[0]: int(line.split()[1]) for line in build.out().splitlines() if " " in line}
        return found if len(found) == 6 else None

    build.says("Ctrl-C stops it")
    return wait_for(told, timeout_s=30, what=f"six pids in {build.words()}") or {}


def test_a_killed_build_leaves_nothing_and_says_that_it_was_stopped(build: Build, person: Person) -> None:
    family = family_of(build)
    record, ralphd = build.run_record(), build.ralphd

    kill(build.pid)
    build.exit_code()

    build.nothing_is_left([*family.values(), record["pid"], record["shim_pid"], ralphd])
    assert build.exit_record()["signal"] == signal.SIGKILL
    assert (build.state()["state"], build.state()["goal"]) == ("stopped", "stopped")
    reply = person("status", cwd=build.directory)
    assert "no daemon; last known" in reply.stderr
    assert "demo  stopped" in reply.stdout
    assert "ralphctl build" in reply.stdout


def test_a_killed_ralphd_ends_the_build_and_nobody_says_that_it_still_runs(
    build: Build, person: Person
) -> None:
    family = family_of(build)
    record = build.run_record()

    kill(build.ralphd)

    assert build.ends_leaving_nothing() == 1
    assert all_gone([*family.values(), record["pid"], record["shim_pid"]])
    assert "its ralphd ended unexpectedly" in build.words()
    assert build.exit_record()["signal"] == signal.SIGKILL
    assert "demo  stopped" in person("status", cwd=build.directory).stdout


def test_a_killed_shim_is_a_lost_run_and_the_next_one_follows(build: Build) -> None:
    build.witnessed()
    first = build.run_record()

    kill(first["shim_pid"])

    build.witness.started(2)
    assert not is_alive(first["pid"])
    build.witness.end(0)
    assert build.ends_leaving_nothing() == 0
    assert "lost" in build.out()


def test_what_a_killed_shim_cannot_sweep_is_gone_with_the_build(build: Build) -> None:
    family = family_of(build)
    first = build.run_record()

    kill(first["shim_pid"])
    wait_for(lambda: build.out().count("leader") == 2, timeout_s=30, what="a second run")
    build.send(signal.SIGQUIT)

    assert build.ends_leaving_nothing() == 130
    assert all_gone(list(family.values()))  # one of them has an empty environment, and so no cookie


def test_build_and_ralphd_killed_together_leave_nothing(build: Build, person: Person) -> None:
    family = family_of(build)
    ralphd = build.ralphd
    os.kill(ralphd, signal.SIGSTOP)

    kill(build.pid)
    kill(ralphd)
    build.exit_code()

    build.nothing_is_left([*family.values(), ralphd])
    assert "demo  stopped" in person("status", cwd=build.directory).stdout


def test_the_next_build_after_a_killed_one_waits_for_its_end_and_runs_alone(build: Build) -> None:
    build.witnessed("--stubborn")
    kill(build.pid)
    build.exit_code()

    build.witnessed()  # fails where two are there at a time
    build.witness.end(0)

    assert build.ends_leaving_nothing() == 0


def test_the_next_build_after_a_killed_ralphd_knows_how_the_run_ended_and_restarts_nothing(
    build: Build,
) -> None:
    build.witnessed()
    kill(build.ralphd)
    assert build.ends_leaving_nothing() == 1

    build.witnessed()
    build.witness.end(0)

    assert build.ends_leaving_nothing() == 0
    assert len(build.witness.starts()) == 2
    history = (build.place / "ralphs" / "demo" / "history.jsonl").read_text().splitlines()
    ends = [entry for line in history if (entry := json.loads(line))["kind"] == "run"]
    assert [(entry["code"], entry["signal"]) for entry in ends] == [(None, signal.SIGKILL), (0, None)]
    assert not [line for line in history if "escalation" in line]


def test_a_ralphd_that_dies_before_anything_runs_is_told(build: Build) -> None:
    build.start("--", *player("witness", build.witness.record))
    wait_for(lambda: _has_a_ralphd(build), timeout_s=30, what="a ralphd")

    kill(build.ralphd)

    assert build.ends_leaving_nothing() == 1
    assert "ralphd" in build.words()
    assert "Traceback" not in build.words()


def _has_a_ralphd(build: Build) -> bool:
    return any(lock.read_text() for lock in build.daemon.state.glob("build/*/lock"))


def test_only_the_build_holds_the_end_by_which_all_are_tied(build: Build) -> None:
    build.witnessed()
    record = build.run_record()

    (pipe,) = {inode for inode, way in _pipes(build.ralphd) if way == os.O_RDONLY} & {
        inode for inode, way in _pipes(build.pid) if way == os.O_WRONLY
    }

    holders = [(pid, way) for pid in _pids() for inode, way in _pipes(pid) if inode == pipe]
    assert sorted(holders) == sorted(
        [(build.pid, os.O_WRONLY), (build.ralphd, os.O_RDONLY), (record["shim_pid"], os.O_RDONLY)]
    )
    build.send(signal.SIGQUIT)
    assert build.ends_leaving_nothing() == 130


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _pipes(pid: int) -> list[tuple[int, int]]:
    """The pipes that a process holds, and how: O_RDONLY, O_WRONLY."""
    found = []
    with suppress(OSError):  # gone, or not ours to look into
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed while we looked: the others count still
                about = entry.stat()
                if stat.S_ISFIFO(about.st_mode):
                    info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text().split()
                    found.append((about.st_ino, int(info[info.index("flags:") + 1], 8) & os.O_ACCMODE))
    return found


def test_ralphd_and_shim_killed_together_leave_nothing_and_nobody_waits_for_the_dead(build: Build) -> None:
    family = family_of(build)
    record, began = build.run_record(), time.monotonic()

    os.kill(build.ralphd, signal.SIGSTOP)  # or it would see to the lost run first
    kill(record["shim_pid"])
    kill(build.ralphd)

    assert build.ends_leaving_nothing() == 1
    assert all_gone([*family.values()])
    assert time.monotonic() - began < SHIMS_LIMIT_S
    assert "its ralphd ended unexpectedly" in build.words()


def test_a_killed_ralphd_leaves_no_socket(build: Build) -> None:
    build.witnessed()

    kill(build.ralphd)

    assert build.ends_leaving_nothing() == 1
    assert not (build.place / "ralphd.sock").exists()


@pytest.mark.parametrize("who", ["ralphd", "shim", "both"])
def test_one_that_was_stopped_by_somebody_is_no_hindrance_to_the_end(build: Build, who: str) -> None:
    family = family_of(build)
    pids = {"ralphd": build.ralphd, "shim": build.run_record()["shim_pid"]}
    for pid in pids.values() if who == "both" else [pids[who]]:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()

    build.send(signal.SIGQUIT)

    assert build.ends_leaving_nothing() == 130
    assert all_gone([*family.values(), *pids.values()])
    assert time.monotonic() - began < SHIMS_LIMIT_S
    assert build.exit_record()["signal"] == signal.SIGKILL
    assert build.state()["state"] == "stopped"

"""``quota/ACCOUNT.json``: one truth for all loops of the host, whoever is killed (Q2)."""

import json
import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from ralphd.core.quota import clock as quota
from ralphd.core.quota.model import AccountRules, HoldKind, QuotaClock, QuotaLimit, QuotaWindow
from ralphd.errors import NewerState
from ralphd.store.shared.quota import MEMBERS, QuotaFiles, QuotaMember, quota_directory

RULES = AccountRules(slots=2, keep_free=0.1)


def limit(clock: QuotaClock) -> tuple[QuotaClock, None]:
    return quota.limit_met(clock, QuotaLimit(2e9, 2e9 - 60, "usage limit", "a.1")), None


def ask(member: QuotaMember, at: float) -> HoldKind | None:
    def decide(clock: QuotaClock) -> tuple[QuotaClock, HoldKind | None]:
        asked = quota.ask(clock, member.by, at, AccountRules())
        return asked.clock, None if asked.hold is None else asked.hold.kind

    return member.change("work", decide)


def test_a_clock_comes_back_as_it_was_written(tmp_path: Path) -> None:
    member = QuotaMember(tmp_path / "quota", "a.1")

    def change(clock: QuotaClock) -> tuple[QuotaClock, QuotaClock]:
        clock = quota.reported(limit(clock)[0], (QuotaWindow("five_hour", 0.5, 1e9, 2e9),))
        clock = quota.ask(quota.named(clock, "claude", is_stable=True), "a.1", 2e9 - 30, RULES).clock
        return clock, clock

    written = member.change("work", change)

    assert member.peek("work") == written
    assert QuotaFiles(tmp_path / "quota").clocks() == [written]
    path = tmp_path / "quota" / "work.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["limit"]["until"] == "2033-05-18T03:33:20.000000Z"


def test_a_loop_that_has_left_is_forgotten_and_its_limit_is_not(tmp_path: Path) -> None:
    first, second = QuotaMember(tmp_path, "a.1"), QuotaMember(tmp_path, "b.1")
    assert ask(first, 1.0) is None
    assert first.peek("work").working[0].by == "a.1"
    first.change("work", limit)
    first.leave()
    assert second.peek("work").working == ()
    assert ask(second, 2e9 - 30) is HoldKind.LIMIT
    assert [path.name for path in (tmp_path / MEMBERS).iterdir()] == ["b.1"]


def test_a_newer_file_is_left_as_it_is(tmp_path: Path) -> None:
    member = QuotaMember(tmp_path, "a.1")
    (tmp_path / "work.json").write_text('{"version": 2}')
    with pytest.raises(NewerState):
        member.change("work", limit)
    assert (tmp_path / "work.json").read_text() == '{"version": 2}'
    assert member.peek("work").limit is None


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', '{"version": 1, "account": "other"}', "{"])
def test_a_damaged_file_counts_as_open_and_is_replaced(tmp_path: Path, text: str) -> None:
    member = QuotaMember(tmp_path, "a.1")
    (tmp_path / "work.json").write_text(text)
    assert member.peek("work") == QuotaClock("work")
    assert ask(member, 1.0) is None
    assert [each.by for each in member.peek("work").working] == ["a.1"]


def test_what_is_no_clock_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "A b.json").write_text("{}")
    os.mkfifo(tmp_path / "pipe.json")
    assert [clock.account for clock in QuotaFiles(tmp_path).clocks()] == ["pipe"]
    assert QuotaFiles(tmp_path / "missing").clocks() == []


def test_names_that_lead_elsewhere_are_dead(tmp_path: Path) -> None:
    assert QuotaFiles(tmp_path).dead(["../../etc/passwd", "gone.1", ""]) == {"../../etc/passwd", "gone.1", ""}


def test_a_build_shares_the_clocks_of_the_state_directory() -> None:
    state = Path("/home/me/.local/state/ralphd")
    assert quota_directory(state) == state / "quota"
    assert quota_directory(state / "build" / "demo-0123abcd") == state / "quota"
    assert quota_directory(Path("/home/me/build/ralphd")) == Path("/home/me/build/ralphd/quota")


def _race(directory: Path, by: str, answers: "multiprocessing.Queue[tuple[str, str | None]]") -> None:
    member = QuotaMember(directory, by)
    answers.put((by, ask(member, 3e9)))
    answers.close()
    answers.join_thread()
    os.pause() if hasattr(os, "pause") else multiprocessing.Event().wait()


def test_of_many_processes_one_becomes_the_probe(tmp_path: Path) -> None:
    QuotaMember(tmp_path, "a.1").change("work", limit)
    spawned = multiprocessing.get_context("spawn")
    answers: multiprocessing.Queue[tuple[str, str | None]] = spawned.Queue()
    loops = [spawned.Process(target=_race, args=(tmp_path, f"r{number}.1", answers)) for number in range(4)]
    try:
        for loop in loops:
            loop.start()
        asked = dict(answers.get(timeout=60) for _ in loops)
        assert sorted(asked.values(), key=str) == [None, *[HoldKind.PROBE] * 3]
        [probe] = [by for by, hold in asked.items() if hold is None]
        loops[int(probe[1 : probe.index(".")])].kill()
        loops[int(probe[1 : probe.index(".")])].join(30)
        assert ask(QuotaMember(tmp_path, "next.1"), 3e9) is None, "the killed probe has left its place"
    finally:
        for loop in loops:
            loop.kill()
            loop.join(30)

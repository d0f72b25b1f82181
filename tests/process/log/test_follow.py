"""Following a log: all of it, once, in order, soon, and at little cost, whatever happens to its files."""

import asyncio
import random
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from ralphd.core.supervision.model import RunId
from ralphd.core.time import rfc3339
from ralphd.process.log import arrival
from ralphd.process.log.log import LogReader, RalphLog, append_regent_line, prune
from ralphd.process.log.records import Cursor, Item, LogQuery
from ralphd.process.log.segments import Runs
from tests.helpers import eventually
from tests.process.log.written_logs import (
    Follower,
    cursor_of,
    end_run,
    gaps,
    line,
    read,
    run_directory,
    shown,
    texts,
    write,
    write_regent,
)


async def test_a_follower_sees_what_was_there_and_then_what_comes(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"1") + line(b"2"))
    follower = Follower(tmp_path, LogQuery(tail=1))
    await eventually(lambda: follower.texts == [b"2"])

    write(run, 1, line(b"3"))
    write_regent(run, line(b"said", stream="regent"))
    write(run, 2, line(b"4"))
    await eventually(lambda: len(follower.texts) == 4)

    assert sorted(texts(await follower.stop())) == [b"2", b"3", b"4", b"said"]


async def test_a_line_is_seen_soon_after_it_is_written(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, b"")
    follower = Follower(tmp_path)
    delays = []
    for number in range(9):
        write(run, 1, line(b"%d" % number))
        written_at = time.monotonic()
        await follower.sees(number + 1)
        delays.append(time.monotonic() - written_at)
    await follower.stop()

    assert sorted(delays)[4] <= 1.0  # `make bench` measures it; here the machine may be busy


@pytest.mark.parametrize("instances", [True, False])
async def test_without_a_watch_a_follower_looks_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instances: bool
) -> None:
    looks, following = [0], LogReader.next

    def counted(reader: LogReader) -> list[Item] | None:
        looks[0] += 1
        return following(reader)

    monkeypatch.setattr(LogReader, "next", counted)
    if not instances:
        monkeypatch.setattr(arrival, "_LIBC", SimpleNamespace(inotify_init1=lambda flags: -1))
    runs = tmp_path / "runs"  # missing: nothing can be watched
    follower, began = Follower(runs), time.monotonic()
    await eventually(lambda: looks[0] > 8)
    took_s = time.monotonic() - began
    write(run_directory(runs, 1), 1, line(b"1"))
    await follower.sees(1)

    assert looks[0] - 8 <= (time.monotonic() - began) / 0.02 + 4, "40 times a second, not all the time"
    assert took_s >= 0.1
    await follower.stop()


async def test_a_follower_waits_for_the_first_run_and_goes_on_into_later_ones(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    follower = Follower(runs)
    await asyncio.sleep(0)
    for number in (1, 2, 3):
        run = run_directory(runs, number)
        write(run, 1, line(b"%d" % number))
        end_run(run)
        append_regent_line(run, time.time(), f"ended {number}")
        await follower.sees(2 * number)

    assert texts(await follower.stop()) == [b"1", b"ended 1", b"2", b"ended 2", b"3", b"ended 3"]


async def test_following_from_any_cursor_gives_the_rest_while_the_log_is_written_and_rotated(
    tmp_path: Path,
) -> None:
    run = run_directory(tmp_path, 1)
    dice = random.Random(7)
    followers = [Follower(tmp_path)]
    places: list[Cursor | None] = [None]
    for number in range(300):
        segment = number // 50 + 1
        whole = line(b"%d" % number, at=number)
        cut = dice.randrange(len(whole))
        write(run, segment, whole[:cut])
        if dice.random() < 0.1:
            await asyncio.sleep(0.001)
        write(run, segment, whole[cut:])
        if number % 60 == 59:
            seen = cursor_of(read(tmp_path)[-dice.randrange(1, 20)])
            places.append(seen)
            followers.append(Follower(tmp_path, LogQuery(cursor=seen)))
    await eventually(lambda: all(f.texts[-1:] == [b"299"] for f in followers))

    everything = read(tmp_path)
    assert texts(everything) == [b"%d" % number for number in range(300)]
    for follower, place in zip(followers, places, strict=True):
        first = next((n + 1 for n, item in enumerate(everything) if cursor_of(item) == place), 0)
        assert await follower.stop() == everything[first:]


async def test_a_follower_that_is_overtaken_by_rotation_gets_a_gap_and_goes_on(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"1"))
    follower = Follower(tmp_path)
    await eventually(lambda: follower.texts == [b"1"])

    for segment in (2, 3, 4):
        write(run, segment, line(b"%d" % segment))
    for segment in (1, 2, 3):
        (run / f"log.{segment:06d}").unlink()
    await eventually(lambda: follower.texts[-1:] == [b"4"])

    items = await follower.stop()
    assert texts(items) == [b"1", b"4"]
    assert gaps(items) == ["output is missing here: segments 2 to 3 are no longer kept"]


async def test_a_follower_keeps_a_segment_that_is_deleted_under_it_to_its_end(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, b"".join(line(b"x" * 1000, at=n) for n in range(500)))
    write(run, 2, line(b"last"))
    following = RalphLog(tmp_path).follow(LogQuery(), stopping=asyncio.Event())

    items = await anext(following)
    (run / "log.000001").unlink()
    while texts(items)[-1:] != [b"last"]:
        items += await anext(following)
    await following.aclose()

    assert len(texts(items)) == 501
    assert gaps(items) == []


async def test_pruning_under_a_follower_loses_nothing_it_has_not_told(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    for number in range(1, 6):
        run = run_directory(tmp_path, number)
        for segment in range(1, 4):
            write(run, segment, line(b"x" * 100) * 10)
        end_run(run)
        prune([tmp_path], total_bytes=3000, keep_runs=2, living=[])
    await eventually(lambda: any(cursor_of(item).run_id.startswith("r000005") for item in follower.items))
    await eventually(lambda: cursor_of(follower.items[-1]).segment == 3)

    items = await follower.stop()
    assert len(texts(items)) == 150 or gaps(items)


async def test_a_follower_survives_that_a_ralph_is_forgotten_and_registered_anew(tmp_path: Path) -> None:
    old = run_directory(tmp_path, 7)
    write(old, 1, line(b"old"))
    write_regent(old, line(b"said", stream="regent"))
    follower = Follower(tmp_path)
    await follower.sees(2)

    old.rename(tmp_path / "away")
    await asyncio.sleep(0.1)
    assert len(follower.items) == 2, "that it was forgotten is no gap"
    write(run_directory(tmp_path, 1), 1, line(b"new"))
    await follower.sees(3)
    assert sorted(follower.texts) == [b"new", b"old", b"said"]

    assert gaps(await follower.stop()) == [f"run {old.name} was removed while it was read"]


async def test_a_follower_ends_soon_when_it_is_told_to_stop(tmp_path: Path) -> None:
    write(run_directory(tmp_path, 1), 1, line(b"1"))
    follower = Follower(tmp_path)
    await eventually(lambda: follower.texts)

    asked_at = time.monotonic()
    await follower.stop()

    assert time.monotonic() - asked_at < 5


async def test_a_follower_ends_once_the_asked_time_is_over(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    early, late = rfc3339(1_000_000_000.5)[:-1], rfc3339(1_000_000_002.0)[:-1]
    write(run, 1, f"{early}000Z stdout F early\n{late}000Z stdout F late\n".encode())

    follower = Follower(tmp_path, LogQuery(until=1_000_000_001.0))
    await asyncio.wait_for(follower.task, 2)

    assert follower.texts == [b"early"]


async def test_batches_are_small(tmp_path: Path) -> None:
    write(run_directory(tmp_path, 1), 1, line(b"") * 5000)
    stopping = asyncio.Event()

    sizes = []
    async for batch in RalphLog(tmp_path).follow(LogQuery(), stopping=stopping):
        sizes.append(len(batch))
        if sum(sizes) == 5000:
            stopping.set()

    assert max(sizes) <= 1000


async def test_looking_for_a_line_that_is_not_there_lets_others_go_on(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"x" * 100) * 40_000)
    follower = Follower(tmp_path, LogQuery(grep="not there", tail=1))

    lags = []
    for _ in range(30):
        began_at = time.monotonic()
        await asyncio.sleep(0)
        lags.append(time.monotonic() - began_at)
    await follower.stop()

    assert sorted(lags)[15] < 0.5


async def test_following_plain_text_gives_every_byte(tmp_path: Path) -> None:
    run = run_directory(tmp_path, 1)
    stopping = asyncio.Event()
    following = RalphLog(tmp_path).follow(LogQuery(as_text=True), stopping=stopping)
    out = b""
    for number in range(20):
        write(run, number // 5 + 1, line(b"%d" % number, flag="P" if number % 3 else "F"))
        out += shown(await asyncio.wait_for(anext(following), 2))
    await following.aclose()

    assert out == b"".join(b"%d" % n + (b"" if n % 3 else b"\n") for n in range(20))


async def test_between_runs_a_follower_looks_less_often_and_still_sees_the_next_run_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, first_after = [], Runs.first_after

    def counted(runs: Runs, run_id: RunId | None, *, last: RunId | None = None) -> RunId | None:
        looks.append(run_id)
        return first_after(runs, run_id, last=last)

    run = run_directory(tmp_path, 1)
    write(run, 1, line(b"1"))
    end_run(run)
    follower = Follower(tmp_path)
    await follower.sees(1)
    await asyncio.sleep(1.1)
    with monkeypatch.context() as patched:
        patched.setattr(Runs, "first_after", counted)
        await asyncio.sleep(0.5)
    assert len(looks) <= 4

    write(run_directory(tmp_path, 2), 1, line(b"2"))
    began_at = time.monotonic()
    await follower.sees(2)
    await follower.stop()
    assert time.monotonic() - began_at < 5


def open_files() -> list[str]:
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the listing itself
            links.append(str(descriptor.readlink()))
    return links


async def test_readers_leave_no_descriptor_open(tmp_path: Path) -> None:
    for number in (1, 2):
        write(run_directory(tmp_path, number), 1, line(b"x" * 100) * 2000)

    whole = RalphLog(tmp_path).read(LogQuery())
    part = RalphLog(tmp_path).read(LogQuery())
    following = RalphLog(tmp_path).follow(LogQuery(), stopping=asyncio.Event())
    assert len(list(whole)) == 4000
    next(part)
    await anext(following)
    part.close()
    await following.aclose()

    assert [each for each in open_files() if each.startswith(str(tmp_path))] == []

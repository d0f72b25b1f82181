"""What a command says is kept to the byte, in records, within a bound, whatever the disk does (S4, F4)."""

import errno
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphd.core.time import parse_rfc3339
from ralphd.process.log.log import RalphLog
from ralphd.process.shim import PIPE_BYTES, READ_BYTES, Log, Stamp, Stream
from ralphd.process.spawn import Run
from tests.helpers import eventually
from tests.players import player
from tests.process.runs import RECORD_HEAD, Stage, log_bytes, names, output, records, said

PART = 16 * 1024
RECORD = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) [FP] .*", re.DOTALL)


async def test_200_mb_of_output_are_logged_to_the_byte_when_there_is_room(
    stage: Stage, tmp_path: Path
) -> None:
    run = await stage.spawn(player("flood", tmp_path / "count", 200_000_000, 5000), run_bytes=1 << 30)

    record = await run.ended()

    counted = int((tmp_path / "count").read_text())
    assert counted == record.log_bytes == 200_000_000
    assert record.dropped_bytes == 0
    kept = count = 0
    for segment in sorted(run.directory.path.glob("log.*")):
        for line in segment.read_bytes().split(b"\n")[:-1]:
            assert int(line[RECORD_HEAD : RECORD_HEAD + 12]) == count
            kept += len(line) - RECORD_HEAD + 1
            count += 1
    assert kept == counted


SIZE_OF_STDOUT = """
import fcntl, sys
size_at_first = fcntl.fcntl(1, fcntl.F_GETPIPE_SZ)
for _ in range(int(sys.argv[2])):
    sys.stdout.buffer.write((b"x" * 99 + b"\\n") * 10_000)
    sys.stdout.buffer.flush()
    if fcntl.fcntl(1, fcntl.F_GETPIPE_SZ) > size_at_first:
        break
open(sys.argv[1], "w").write(f"{size_at_first} {fcntl.fcntl(1, fcntl.F_GETPIPE_SZ)}")
"""


@pytest.mark.parametrize(("megabytes", "size"), [(0, PIPE_BYTES), (200, READ_BYTES)])
async def test_the_pipe_of_a_flood_is_made_larger(
    stage: Stage, tmp_path: Path, megabytes: int, size: int
) -> None:
    command = (sys.executable, "-c", SIZE_OF_STDOUT, str(tmp_path / "sizes"), str(megabytes))
    run = await stage.spawn(command, run_bytes=4 << 20)

    record = await run.ended()

    assert record.code == 0
    assert (tmp_path / "sizes").read_text() == f"{PIPE_BYTES} {size}"


async def test_a_log_stays_within_run_bytes_and_keeps_the_newest(stage: Stage, tmp_path: Path) -> None:
    run = await stage.spawn(player("flood", tmp_path / "count", 20_000_000, 1000), run_bytes=4 << 20)

    record = await run.ended()

    segments = sorted(run.directory.path.glob("log.*"))
    assert sum(segment.stat().st_size for segment in segments) <= 4 << 20
    assert len(segments) > 2
    assert segments[0].name > "log.000001"
    assert (
        segments[-1]
        .read_bytes()
        .split(b"\n")[-2][RECORD_HEAD:]
        .startswith(b"%012d" % (20_000_000 // 1000 - 1))
    )
    assert record.log_bytes == int((tmp_path / "count").read_text())


async def test_each_record_is_a_line_with_the_time_of_its_read(stage: Stage) -> None:
    before = time.time()
    run = await stage.spawn(
        player("says", r"out:one\ntwo\n\n", "wait:0.05", r"err:bad\n", "wait:0.05", r"out:end\n")
    )
    await run.ended()

    lines = log_bytes(run.directory).split(b"\n")[:-1]
    assert all(RECORD.fullmatch(line) for line in lines)
    moments = [parse_rfc3339(line.split(b" ")[0].decode()) for line in lines]
    assert moments == sorted(moments)
    assert before - 0.001 <= moments[0] <= moments[-1] <= time.time()
    assert [(stream, flag, text) for stream, flag, text in records(run.directory)] == [
        ("stdout", "F", b"one"),
        ("stdout", "F", b"two"),
        ("stdout", "F", b""),
        ("stderr", "F", b"bad"),
        ("stdout", "F", b"end"),
    ]


async def test_a_line_without_its_end_is_there_soon_as_a_part_and_goes_on_later(
    stage: Stage, tmp_path: Path
) -> None:
    run = await stage.spawn(player("says", "out:how are ", f"file:{tmp_path / 'go'}", r"out:you?\nfine"))

    await eventually(lambda: records(run.directory) == [("stdout", "P", b"how are ")], timeout_s=2)
    (tmp_path / "go").touch()
    await run.ended()

    assert records(run.directory)[1:] == [("stdout", "F", b"you?"), ("stdout", "P", b"fine")]
    assert output(run.directory) == b"how are you?\nfine"


async def test_dots_that_come_faster_than_parts_are_kept_are_there_before_the_line_ends(
    stage: Stage, tmp_path: Path
) -> None:
    dots = f"while [ ! -e {tmp_path / 'seen'} ]; do printf .; sleep 0.05; done"
    run = await stage.spawn(("/bin/sh", "-c", dots))

    await eventually(lambda: len(records(run.directory)) > 1, timeout_s=5)
    (tmp_path / "seen").touch()
    await run.ended()

    assert {(stream, kind) for stream, kind, _ in records(run.directory)} == {("stdout", "P")}


@pytest.mark.parametrize("length", [PART - 1, PART, PART + 1, 5 * PART, 1_000_000])
async def test_a_long_line_is_kept_in_parts_of_16_kib(stage: Stage, length: int) -> None:
    run = await stage.spawn(player("says", r"out:a\n", f"x:{length}", r"out:\nb\n"))
    await run.ended()

    kept = records(run.directory)
    assert output(run.directory) == b"a\n" + b"x" * length + b"\nb\n"
    assert max(len(text) for _, _, text in kept) <= PART


def test_any_cut_of_the_output_gives_the_same_bytes() -> None:
    said_bytes = b"\n\nshort\n" + b"y" * (3 * PART) + b"\n" + b"z" * PART + b"\n" + b"\0\xff\r\n" + b"tail"
    for step in (1, 7, 4096, PART, PART + 1, 65536):
        source = said_bytes[:3000] if step == 1 else said_bytes
        stream, kept = Stream(b"stdout", Stamp()), b""
        for at in range(0, len(source), step):
            kept += stream.records(source[at : at + step])
        kept += stream.flush()
        lines = kept.split(b"\n")[:-1]
        assert all(len(line) <= PART + RECORD_HEAD for line in lines)
        assert (
            b"".join(line[RECORD_HEAD:] + (b"\n" if line[38:39] == b"F" else b"") for line in lines) == source
        )


async def test_both_streams_keep_their_own_unfinished_lines(stage: Stage) -> None:
    run = await stage.spawn(
        player("says", "out:one ", "err:other ", "wait:0.4", r"out:two\n", r"err:still\n")
    )
    await run.ended()

    assert output(run.directory) == b"one two\n"
    assert output(run.directory, "stderr") == b"other still\n"


async def test_a_run_ends_by_the_drain_limit_when_a_stranger_holds_its_output(stage: Stage) -> None:
    run = await stage.spawn(player("polite"))
    await said(run.directory, b"\n")
    assert run.record is not None
    stranger = os.open(f"/proc/{run.record.pid}/fd/1", os.O_WRONLY)
    try:
        asked_at = time.monotonic()
        run.terminate()
        record = await run.ended()
    finally:
        os.close(stranger)

    assert record.code == 0
    assert 1.5 < time.monotonic() - asked_at < 20


async def test_a_leader_that_exits_while_a_grandchild_holds_its_output_ends_the_run(
    stage: Stage, allow_cgroup: bool
) -> None:
    run = await stage.spawn(player("double_forker", "leave"), allow_cgroup=allow_cgroup)
    started_at = time.monotonic()

    record = await run.ended()

    assert time.monotonic() - started_at < 20
    assert [swept.pid for swept in record.swept] == [(await names(run.directory, 1))["orphan"]]


async def test_what_was_said_just_before_the_end_is_not_lost(stage: Stage) -> None:
    run = await stage.spawn(("/bin/sh", "-c", "printf last; kill -9 $$"))
    await run.ended()

    assert output(run.directory) == b"last"


async def test_the_files_of_a_run_are_its_owners_alone(stage: Stage) -> None:
    run = await stage.spawn(player("exits", 0))
    await run.ended()

    modes = {path.name: path.stat().st_mode & 0o777 for path in run.directory.path.iterdir()}
    assert modes == dict.fromkeys(["exit.json", "intent.json", "lock", "log.000001", "run.json"], 0o600)
    assert run.directory.path.stat().st_mode & 0o777 == 0o700


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Path:
    """A file system of 1 MiB, mounted at ``tmp_path/tiny``; root only."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    path = tmp_path / "tiny"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    return path


@pytest.fixture
def full_disk(tiny_disk: Path, stage: Stage) -> Iterator[Path]:
    """The same, with the stage's runs on it; unmounted afterwards."""
    stage.runs = tiny_disk / "runs"
    yield tiny_disk
    stage.end_all()
    subprocess.run(["umount", "-l", str(tiny_disk)], check=True)


async def test_a_full_disk_neither_stops_the_command_nor_hides_how_it_ended(
    stage: Stage, full_disk: Path, tmp_path: Path
) -> None:
    run = await stage.spawn(player("flood", tmp_path / "count", 3_000_000))

    record = await run.ended()

    assert record.code == 0
    assert record.log_bytes == int((tmp_path / "count").read_text()) == 3_000_000
    kept = len(output(run.directory))
    assert kept > 500_000
    assert kept + record.dropped_bytes == 3_000_000
    assert all(RECORD.fullmatch(line) for line in log_bytes(run.directory).split(b"\n")[:-1])
    assert log_bytes(run.directory).endswith(b"\n")


async def test_a_gap_is_marked_once_there_is_room_again(
    stage: Stage, full_disk: Path, tmp_path: Path
) -> None:
    filler = full_disk / "filler"
    full, told, free = tmp_path / "full", tmp_path / "told", tmp_path / "free"
    gap_in_the_middle = (f"file:{full}", "x:100000", r"out:\n", f"touch:{told}", f"file:{free}")
    run = await stage.spawn(player("says", r"out:before\n", *gap_in_the_middle, r"out:after\n"))
    await said(run.directory, b"before")
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        while True:
            file.write(bytes(4096))
    full.touch()
    await eventually(told.exists)
    await eventually(lambda: nothing_unread(run))
    filler.unlink()
    free.touch()
    record = await run.ended()

    assert record.dropped_bytes > 0
    gap = f"[ralphd] {record.dropped_bytes} bytes of output lost here: {os.strerror(errno.ENOSPC)}".encode()
    assert ("stderr", "F", gap) in records(run.directory)
    assert records(run.directory)[-1] == ("stdout", "F", b"after")
    assert len(output(run.directory)) + record.dropped_bytes == len("before\nafter\n") + 100_001


async def test_output_that_a_full_disk_does_not_take_is_a_sign_of_life(
    stage: Stage, full_disk: Path, tmp_path: Path
) -> None:
    go, end = tmp_path / "go", tmp_path / "end"
    run = await stage.spawn(player("says", f"file:{go}", r"out:step\n", f"file:{end}"))
    log, run_id = RalphLog(stage.runs), run.directory.run_id
    assert log.last_output_at(run_id) is None
    with (full_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    go.touch()
    await eventually(lambda: log.last_output_at(run_id) is not None)
    end.touch()

    assert (await run.ended()).dropped_bytes > 0


async def test_a_full_disk_does_not_hide_the_end_of_a_tree_with_long_names(
    stage: Stage, full_disk: Path, tmp_path: Path
) -> None:
    child, go = stage.home / ("修" * 60), tmp_path / "go"
    child.write_text("#!/bin/sh\nkill -STOP $$\n")
    child.chmod(0o755)
    children = f"for n in $(seq 120); do ./{child.name} & done; echo ready"
    script = f"{children}; while [ ! -e {go} ]; do sleep 0.05; done; exit 3"
    run = await stage.spawn(("/bin/sh", "-c", script))
    await said(run.directory, b"ready")
    with (full_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))
    go.touch()
    record = await run.ended()

    assert (record.code, record.lost) == (3, False)
    assert all(each.command.isascii() for each in record.swept)


async def test_a_full_disk_does_not_hide_the_end_of_a_storm(stage: Stage, full_disk: Path) -> None:
    run = await stage.spawn(player("fork_storm", 300))
    await said(run.directory, b"storm")
    with (full_disk / "filler").open("wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(4096))

    run.kill_tree()
    record = await run.ended()

    assert record.signal == signal.SIGKILL
    assert not record.lost
    assert len(record.swept) >= 100


def nothing_unread(run: Run) -> bool:
    """Whether the shim has read all that the command said."""
    assert run.record is not None
    descriptor = os.open(f"/proc/{run.record.pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    try:
        return struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4))) == (0,)
    finally:
        os.close(descriptor)


def test_a_log_that_cannot_open_its_next_segment_goes_on_in_the_old_one(tmp_path: Path) -> None:
    log = Log(str(tmp_path), 8 << 20, Stamp())
    record = Stamp().now() + b" stdout F " + b"x" * 1000 + b"\n"
    (tmp_path / "log.000002").mkdir()

    for _ in range(2000):
        log.write(record)
    log.close()

    assert (tmp_path / "log.000001").stat().st_size == 2000 * len(record)
    assert log.dropped_bytes == 0

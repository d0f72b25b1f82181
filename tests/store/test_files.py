"""F1 and F2: files are whole or not there, and a broken one is kept out of the way."""

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ralphd.errors import DirectoryUnusable
from ralphd.process.lock import DirectoryLock
from ralphd.store.files import (
    Broken,
    Held,
    Lock,
    make_private_directory,
    read_json,
    remove_leftovers,
    set_aside,
    write_whole,
)
from tests.store.conftest import SmallDisk

WRITE = """
import sys
from pathlib import Path
from ralphd.store.files import write_whole
write_whole(Path(sys.argv[1]), b"new")
"""
HOLD = """
import sys
from pathlib import Path
from ralphd.store.files import Lock
lock = Lock.acquire(Path(sys.argv[1]), "pid 4711")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_file_is_replaced_whole_and_private(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("a longer old text")
    path.chmod(0o644)

    write_whole(path, b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state.json"]


@pytest.mark.parametrize("durable", [True, False])
def test_a_large_file_arrives_whole(tmp_path: Path, durable: bool) -> None:
    data = os.urandom(3_000_000)

    write_whole(tmp_path / "f", data, durable=durable)

    assert (tmp_path / "f").read_bytes() == data


def test_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "state.json"
    victim.write_text("untouched")
    path.symlink_to(victim)

    write_whole(path, b"new")

    assert victim.read_text() == "untouched"
    assert not path.is_symlink()


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".ralph").symlink_to("elsewhere")

    with pytest.raises(OSError, match="Not a directory"):
        write_whole(tmp_path / ".ralph" / "state.json", b"new")

    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(("place", "then"), [("before_rename", b"old"), ("after_rename", b"new")])
def test_a_writer_that_is_killed_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, place: str, then: bytes
) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"old")

    ended = subprocess.run(
        [sys.executable, "-c", WRITE, str(path)],
        env={**os.environ, "RALPHD_FAILPOINTS": f"write.state.json.{place}=kill"},
        check=False,
    )

    assert ended.returncode == -signal.SIGKILL
    assert path.read_bytes() == then
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["state.json"]


def test_only_leftovers_are_removed(tmp_path: Path) -> None:
    for name in (".gitignore", "state.json", ".state.json.0a0b0c0d.mine"):
        (tmp_path / name).touch()

    remove_leftovers(tmp_path)
    remove_leftovers(tmp_path / "not-there")

    assert len(os.listdir(tmp_path)) == 3


def test_a_leftover_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "file").touch()
    (tmp_path / "state" / ".a.00000000.ralphd-tmp").symlink_to(tmp_path / "work")
    (tmp_path / "state" / ".b.00000000.ralphd-tmp").mkdir()

    remove_leftovers(tmp_path / "state")

    assert (os.listdir(tmp_path / "state"), os.listdir(tmp_path / "work")) == ([], ["file"])


def test_a_full_disk_keeps_the_old_file_and_heals(small_disk: SmallDisk) -> None:
    path = small_disk.path / "state.json"
    write_whole(path, b"old")
    small_disk.fill()

    with pytest.raises(OSError, match="No space") as caught:
        write_whole(path, b"x" * 100_000)

    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(small_disk.path)) == ["ballast", "state.json"]
    small_disk.free()
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "state.json") is None


def test_an_object_is_read(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"version": 1}')

    assert read_json(tmp_path / "state.json") == {"version": 1}


@pytest.mark.parametrize(
    "text", [b"", b'{"version": 1', b"[1]", b"null", b"\xff\xfe", b"\x00" * 4096, b"[" * 100_000]
)
def test_a_broken_file_is_kept_and_told(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(text)

    with pytest.raises(Broken) as caught:
        read_json(path)

    assert caught.value.kept_as is not None
    assert caught.value.kept_as.name.startswith("state.json.corrupt-")
    assert caught.value.kept_as.read_bytes() == text
    assert read_json(path) is None


def _link(path: Path) -> None:
    (path.parent / "target").write_text('{"version": 1}')
    path.symlink_to("target")


@pytest.mark.parametrize("make", [_link, os.mkfifo, os.mkdir], ids=["link", "fifo", "directory"])
def test_what_is_no_file_of_ours_is_moved_away_unread(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "state.json"
    make(path)

    with pytest.raises(Broken) as caught:
        read_json(path)

    assert caught.value.kept_as is not None
    assert not os.path.lexists(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"version": 1}')
    os.chown(path, 12345, 12345)

    with pytest.raises(Broken, match="12345"):
        read_json(path)


def test_two_broken_files_of_one_second_are_both_kept(tmp_path: Path) -> None:
    kept = set()
    for text in ("one", "two"):
        (tmp_path / "f").write_text(text)
        kept.add(set_aside(tmp_path / "f"))

    assert {path.read_text() for path in kept if path} == {"one", "two"}


def test_a_private_directory_is_made_or_tightened(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"

    make_private_directory(path)
    path.chmod(0o755)
    make_private_directory(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_or_a_link_in_place_of_a_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    for name, why in (("file", "File exists"), ("link", "symbolic link")):
        with pytest.raises(DirectoryUnusable) as caught:
            make_private_directory(tmp_path / name)
        assert why in caught.value.why
        assert str(tmp_path / name) in caught.value.mend


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_told(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.mkdir()
    os.chown(path, 12345, 12345)

    with pytest.raises(DirectoryUnusable, match="12345"):
        make_private_directory(path)


@contextmanager
def _holder(path: Path) -> Iterator["subprocess.Popen[str]"]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield holder
        finally:
            holder.kill()


def test_a_lock_names_its_owner_and_is_free_when_the_owner_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("an older and much longer text of an owner long gone")

    with _holder(path) as holder:
        with pytest.raises(Held) as caught:
            Lock.acquire(path, "mine")
        assert caught.value.owner_text == "pid 4711"
        holder.kill()
        holder.wait()

    lock = Lock.acquire(path, "mine")
    assert path.read_text() == "mine"
    lock.release()
    Lock.acquire(path, "again").release()


def test_a_lock_is_private_and_not_inherited(tmp_path: Path) -> None:
    lock = Lock.acquire(tmp_path / "lock", "mine")

    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600
    assert not os.get_inheritable(lock.fd)
    lock.release()
    lock.release()


def test_two_threads_that_release_a_lock_close_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = Lock.acquire(tmp_path / "lock", "mine"), DirectoryLock.acquire(tmp_path)
    numbers, closed, close = [lock.fd for lock in locks], list[int](), os.close

    def meanwhile(fd: int) -> None:
        closed.append(fd)
        for lock in locks[: len(closed)]:
            lock.release()
        close(fd)

    monkeypatch.setattr(os, "close", meanwhile)
    for lock in locks:
        lock.release()
    assert closed == numbers


def test_a_lock_notices_that_its_file_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = Lock.acquire(path, "mine")
    assert lock.in_place()

    path.unlink()
    assert not lock.in_place()
    path.touch()
    assert not lock.in_place()
    lock.release()


def test_a_link_in_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("victim")

    with pytest.raises(OSError, match="symbolic"):
        Lock.acquire(tmp_path / "lock", "mine")

    assert not (tmp_path / "victim").exists()


def test_a_lock_can_be_had_on_a_full_disk(small_disk: SmallDisk) -> None:
    path = small_disk.path / "lock"
    path.touch()
    small_disk.fill()

    lock = Lock.acquire(path, "x" * 1000)
    assert lock.in_place()
    lock.release()

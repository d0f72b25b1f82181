"""A hard link in ``.ralph`` shares somebody's other file, which stays as it is."""

import os
from pathlib import Path

import pytest

from ralphd.plain_files import open_plain, read_plain
from ralphd.store.files import Lock
from ralphd.store.mirror import HISTORY_FILE, Mirror


def test_a_lock_is_not_written_through_a_hard_link(tmp_path: Path) -> None:
    profile, lock = tmp_path / ".profile", tmp_path / "lock"
    profile.write_text("export A=1\n")
    lock.hardlink_to(profile)

    held = Lock.acquire(lock, "1\n")
    assert profile.read_text() == "export A=1\n"
    assert lock.read_text() == "1\n"
    held.release()


def test_a_history_is_not_appended_to_through_a_hard_link(tmp_path: Path) -> None:
    original, profile = tmp_path / "history.jsonl", tmp_path / ".profile"
    original.write_text('{"a":1}\n{"b":2}\n')
    profile.write_text("{\n")
    mirror = Mirror(tmp_path / "work")
    mirror.path.parent.mkdir()
    (mirror.make() / HISTORY_FILE).hardlink_to(profile)

    mirror.renew({}, tmp_path / "no-state", original)
    assert profile.read_text() == "{\n"
    assert (mirror.path / HISTORY_FILE).read_text() == original.read_text()


def test_what_a_run_can_write_is_opened_plain_and_bounded(tmp_path: Path) -> None:
    plain, link, fifo, other = (tmp_path / name for name in ("plain", "link", "fifo", "other"))
    plain.write_bytes(b"12345")
    link.symlink_to(plain)
    os.mkfifo(fifo)
    other.hardlink_to(plain)

    assert read_plain(plain, 5) == b"12345"
    for path, most in ((plain, 4), (link, 5), (fifo, 5), (tmp_path, 5), (tmp_path / "none", 5)):
        with pytest.raises(OSError):
            read_plain(path, most)
    with pytest.raises(OSError):
        open_plain(other, os.O_WRONLY | os.O_APPEND)

"""The record: append-only, each key once, whole after a power cut and after a full disk."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphd.store import history as store
from ralphd.store.history import RECENT_KEYS, WAITING_LINES, History, newest_first, repair
from tests.store.conftest import SmallDisk

AT = 1_700_000_000.25


def _keys(history: History) -> list[str]:
    return [entry["key"] for entry in history.backwards()][::-1]


def test_an_entry_is_a_line_with_kind_key_and_time(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"

    assert History(path).append("run", "r1", AT, {"code": 0})

    assert json.loads(path.read_text()) == {
        "kind": "run",
        "key": "r1",
        "at": "2023-11-14T22:13:20.250000Z",
        "code": 0,
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_news_that_is_told_twice_is_entered_once_even_by_another_daemon(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    first = History(path)

    assert first.append("run", "r1", AT, {})
    assert not first.append("run", "r1", AT + 1, {})
    assert not History(path).append("run", "r1", AT + 2, {})
    assert _keys(History(path)) == ["r1"]


def test_only_recent_keys_are_remembered(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = [json.dumps({"kind": "run", "key": f"r{n}"}) for n in range(RECENT_KEYS + 1)]
    path.write_text("\n".join(lines) + "\n")

    history = History(path)

    assert not history.has("r0")
    assert history.has("r1")
    assert history.append("run", "new", AT, {})
    assert not history.has("r1")
    assert history.has("r2")


def test_the_ends_of_old_runs_are_recalled_from_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    first = History(path)
    first.append("run", "r1", AT, {})
    for number in range(RECENT_KEYS + 1):
        first.append("cost", f"{number}", AT, {"run": "r2"})

    history = History(path)
    history.recall(["r1", "r2"])

    assert history.has("r1")
    assert not history.has("r2")
    assert not history.append("run", "r1", AT, {})


@pytest.mark.parametrize("torn", [b'{"kind":"run","key":"r2', b"\x00\x00\x00", b"\xff", b"[1]", b'"text"'])
def test_a_torn_last_line_is_passed_over_and_kept(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "history.jsonl"
    History(path).append("run", "r1", AT, {})
    with path.open("ab") as file:
        file.write(torn)

    history = History(path)
    assert history.append("run", "r3", AT, {})

    assert _keys(history) == ["r1", "r3"]
    assert torn in path.read_bytes().split(b"\n")


def test_a_last_line_that_lost_only_its_end_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    History(path).append("run", "r1", AT, {})
    os.truncate(path, path.stat().st_size - 1)

    history = History(path)

    assert not history.append("run", "r1", AT, {})
    assert history.append("run", "r2", AT, {})
    assert _keys(history) == ["r1", "r2"]


def test_a_file_that_was_removed_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    history.append("run", "r1", AT, {})
    path.unlink()

    assert list(history.backwards()) == []
    assert history.append("run", "r2", AT, {})
    assert _keys(history) == ["r2"]


def test_a_file_name_that_is_no_text_makes_a_line_that_is(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")

    history.append("run", "r1", AT, {"file": "\udcff", "text": "ünï\n"})

    (entry,) = history.backwards()
    assert (entry["file"], entry["text"]) == ("\udcff", "ünï\n")


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").symlink_to("victim")
    history = History(tmp_path / "history.jsonl")

    history.append("run", "r1", AT, {})

    assert history.degraded
    assert not (tmp_path / "victim").exists()


def _a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _a_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("broken", [b"\x00\xff\n", b'{"key":"r', b"[1]\n", b'"text"\n'])
def test_a_broken_record_is_kept_and_its_entries_are_written_anew(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "history.jsonl"
    History(path).append("run", "r1", AT, {})
    with path.open("ab") as file:
        file.write(broken)
    History(path).append("run", "r2", AT, {})
    before = path.read_bytes()

    kept_as = repair(path)

    assert kept_as is not None
    assert kept_as.name.startswith("history.jsonl.corrupt-")
    assert kept_as.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["key"] for line in path.read_bytes().splitlines()] == ["r1", "r2"]
    assert repair(path) is None


@pytest.mark.parametrize("whole", [b"", b'{"key":"r1"}', b'{"key":"r1"}\n\n{"key":"r2"}\n'])
def test_a_whole_record_is_left_as_it_is(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "history.jsonl"
    assert repair(path) is None
    path.write_bytes(whole)

    assert repair(path) is None

    assert path.read_bytes() == whole


@pytest.mark.parametrize("damage", [_a_link, _a_directory, _a_fifo])
def test_what_is_no_plain_file_is_put_aside_unread(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "history.jsonl"
    History(path).append("run", "r1", AT, {})
    damage(path)

    kept_as = repair(path)

    assert kept_as is not None and os.path.lexists(kept_as)
    assert path.read_bytes() == b""
    assert not path.is_symlink()


def test_a_broken_record_stays_where_it_is_while_the_disk_takes_no_new_one(small_disk: SmallDisk) -> None:
    path = small_disk.path / "history.jsonl"
    path.write_bytes(b'{"key":"r1"}\nrubbish\n')
    small_disk.fill()

    with pytest.raises(OSError, match="No space"):
        repair(path)

    assert path.read_bytes() == b'{"key":"r1"}\nrubbish\n'
    assert History(path).has("r1")


def test_a_full_disk_loses_nothing_and_heals(small_disk: SmallDisk) -> None:
    path = small_disk.path / "history.jsonl"
    history = History(path)
    history.append("run", "r1", AT, {})
    small_disk.fill()

    assert history.append("run", "r2", AT, {"text": "x" * 5000})
    assert history.append("run", "r3", AT, {})
    assert not history.append("run", "r3", AT, {})

    assert history.degraded is not None
    assert "No space" in history.degraded
    assert path.read_bytes().endswith(b"\n")
    assert _keys(history) == ["r1", "r2", "r3"]
    assert not history.heal()

    small_disk.free()
    assert history.heal()
    assert history.degraded is None
    assert _keys(History(path)) == ["r1", "r2", "r3"]


def test_what_waits_for_the_disk_is_bounded(tmp_path: Path) -> None:
    history = History(tmp_path / "not-there" / "history.jsonl")

    for n in range(WAITING_LINES + 5):
        history.append("run", f"r{n}", AT, {})

    assert len(_keys(history)) == WAITING_LINES
    assert _keys(history)[-1] == f"r{WAITING_LINES + 4}"


@settings(max_examples=20)  # each makes real files
@given(st.lists(st.text('aé\n\x00\\"{🛡', max_size=20), max_size=10), st.integers(0, 12))
def test_the_newest_entries_are_the_end_of_all(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], limit: int
) -> None:
    path = tmp_path_factory.mktemp("h") / "history.jsonl"
    history = History(path)
    for n, text in enumerate(texts):
        history.append("run", str(n), AT, {"text": text})

    every = [json.loads(line) for line in path.read_bytes().splitlines()] if texts else []
    assert history.newest(limit) == every[::-1][:limit]


def test_the_newest_entries_are_found_across_blocks(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    for n in range(7):
        history.append("run", str(n), AT, {"text": "x" * 40_000})

    assert [entry["key"] for entry in history.newest(4)] == ["6", "5", "4", "3"]
    assert len(history.newest(100)) == 7


@given(lines=st.lists(st.integers(0, 10**12)))
def test_entries_are_read_backwards_whatever_block_they_begin_in(lines: list[int]) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "_BLOCK", 7)
        path = Path(folder) / "history.jsonl"
        path.write_text("".join(f'{{"n": {line}}}\n' for line in lines))

        assert [entry["n"] for entry in newest_first(path)] == lines[::-1]


def test_a_line_of_many_blocks_is_read_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"a" * (40 << 20))
    began = time.process_time()

    assert list(newest_first(path)) == []

    assert time.process_time() - began < 4  # it took the square of its blocks: 8 s

"""``progress.md``: a line an attempt, once, bounded, made good from the history [000-T7]."""

from pathlib import Path

from ralphd.core.record import PROGRESS_HEADER, progress_line
from ralphd.store import history as progress
from ralphd.store.history import History, ProgressFile

AT = 1_700_000_000.25


def enter(history: History, number: int, *, at: float | None = None, agent: str = "claude") -> None:
    data = {"agent": agent, "outcome": "ok", "iteration": number}
    assert history.append("attempt", f"r1/{number}", AT + number if at is None else at, data)


def lines(path: Path) -> list[str]:
    """The lines of attempts, and that the heading is there once."""
    text = path.read_text()
    assert text.startswith(PROGRESS_HEADER)
    assert text.count("# Progress") == 1
    return text.removeprefix(PROGRESS_HEADER).splitlines()


def test_each_attempt_is_a_line_in_its_order(tmp_path: Path) -> None:
    history, path = History(tmp_path / "history.jsonl"), tmp_path / "progress.md"
    kept = ProgressFile(path, history.newest)
    for number in (1, 2, 3):
        enter(history, number)
        kept.follow()

    assert [line.split(" · ")[1] for line in lines(path)] == ["iteration 1", "iteration 2", "iteration 3"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_an_attempt_that_was_entered_before_is_no_second_line(tmp_path: Path) -> None:
    history, path = History(tmp_path / "history.jsonl"), tmp_path / "progress.md"
    kept = ProgressFile(path, history.newest)
    enter(history, 1)
    kept.follow()

    kept.follow(entered=False)
    ProgressFile(path, history.newest).follow(entered=False)

    assert len(lines(path)) == 1


def test_what_a_daemon_that_died_did_not_write_is_added_by_the_next_one(tmp_path: Path) -> None:
    history, path = History(tmp_path / "history.jsonl"), tmp_path / "progress.md"
    kept = ProgressFile(path, history.newest)
    enter(history, 1)
    kept.follow()
    enter(history, 2)
    enter(history, 3, at=AT + 2, agent="codex")  # within the same second
    history.append("run", "r1", AT + 4, {})

    ProgressFile(path, history.newest).follow()

    assert [line.split(" · ")[1:3] for line in lines(path)] == [
        ["iteration 1", "claude"],
        ["iteration 2", "claude"],
        ["iteration 3", "codex"],
    ]


def test_lines_in_the_words_of_an_earlier_version_are_not_written_again(tmp_path: Path, berlin: None) -> None:
    history, path = History(tmp_path / "history.jsonl"), tmp_path / "progress.md"
    enter(history, 1)
    enter(history, 2)
    path.write_text(PROGRESS_HEADER + "- 2023-11-14 22:13:21 in other words\n")

    ProgressFile(path, history.newest).follow()

    assert [line[:27] for line in lines(path)] == [
        "- 2023-11-14 22:13:21 in ot",
        "- 2023-11-14 23:13:22+01:00",
    ]


def test_lines_of_another_zone_are_not_written_again(tmp_path: Path, berlin: None) -> None:
    history, path = History(tmp_path / "history.jsonl"), tmp_path / "progress.md"
    enter(history, 1)
    enter(history, 2)
    text = "- 2023-11-14 17:13:21-05:00 of New York\n- 2023-99-14 22:13:21 no time\n"
    path.write_text(PROGRESS_HEADER + text)

    ProgressFile(path, history.newest).follow()

    assert [line[:27] for line in lines(path)][::2] == [
        "- 2023-11-14 17:13:21-05:00",
        "- 2023-11-14 23:13:22+01:00",
    ]


def test_a_full_one_loses_its_older_half_and_no_part_of_a_line(tmp_path: Path) -> None:
    history, path = History(tmp_path / "history.jsonl"), tmp_path / "progress.md"
    old = [f"- 2023-11-14 22:13:20 · iteration {number} · claude · ok\n" for number in range(30_000)]
    path.write_text(PROGRESS_HEADER + "".join(old))
    assert path.stat().st_size > progress.MAX_PROGRESS_BYTES
    kept = ProgressFile(path, history.newest)
    enter(history, 1)

    kept.follow()

    found = lines(path)
    assert path.stat().st_size < progress.MAX_PROGRESS_BYTES * 0.6
    assert found[-1] == progress_line(history.newest(1)[0]).strip()
    assert [f"{line}\n" for line in found[:-1]] == old[-len(found) + 1 :]


def test_what_lies_in_its_place_is_replaced_and_a_link_is_not_followed(tmp_path: Path) -> None:
    history, path, other = History(tmp_path / "history.jsonl"), tmp_path / "progress.md", tmp_path / "other"
    other.write_text("somebody's")
    path.symlink_to(other)
    enter(history, 1)

    ProgressFile(path, history.newest).follow()

    assert other.read_text() == "somebody's"
    assert not path.is_symlink()
    assert len(lines(path)) == 1


def test_a_place_that_takes_none_is_tried_again_and_nothing_is_missing_then(tmp_path: Path) -> None:
    history, home = History(tmp_path / "history.jsonl"), tmp_path / "home"
    kept = ProgressFile(home / "progress.md", history.newest)
    enter(history, 1)
    kept.follow()
    enter(history, 2)
    kept.follow()
    assert kept.degraded

    home.mkdir()
    kept.follow()

    assert not kept.degraded
    assert len(lines(home / "progress.md")) == 2


def test_reports_leave_no_control_sequence_in_the_file() -> None:
    told = "\x1b]52;c;aGk=\x07\x1b[31mred\x1b[0m \u202eevil\r\x9b2J"
    line = progress_line({"agent": told, "outcome": told, "failure_kind": told, "why": told, "next": told})

    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert "red" in line

"""Files that are broken, gone or from the future cost no run (F2), and neither does a full disk (F3)."""

import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from ralphd.app import own
from ralphd.errors import DirectoryUnusable
from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon, View, daemon_in
from tests.whole.witnesses import Witness

Damage = Callable[[Path], None]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 40)


def another_shape(path: Path) -> None:
    path.write_text('{"version": 1, "supervision": [], "configuration": {}, "command": 7, "directory": null}')


def a_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def missing(path: Path) -> None:
    path.unlink()


DAMAGES = (cut_off, emptied, garbage, another_shape, a_link, missing)


def kept_aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.corrupt-*"))


def damaged_while_down(daemon: Daemon, path: Path, damage: Damage) -> None:
    daemon.kill()
    damage(path)
    daemon.start()


@pytest.mark.parametrize("name", ["regent-state.json", "ralph.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_living_run_goes_on_over_a_broken_file(
    daemon: Daemon, witness: Witness, name: str, damage: Damage
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    path = daemon.files("demo") / name
    damaged_while_down(daemon, path, damage)
    view = daemon.view("demo")
    assert (view["state"], view["ralph_pid"], view["goal"]) == ("running", pid, "running")
    assert [event["data"]["file"] for event in daemon.events("state.recovered")] == [name]
    assert len(kept_aside(path)) == (damage is not missing)
    assert daemon.status()["daemon"]["status"] == "ok"
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)


@pytest.mark.parametrize("name", ["regent-state.json", "ralph.json"])
def test_a_stopped_ralph_stays_stopped_over_a_broken_file(
    daemon: Daemon, witness: Witness, name: str
) -> None:
    daemon.start()
    witness.register()
    daemon.ask("POST", "/v1/ralphs/demo/stop", {})
    daemon.becomes("demo", "stopped")
    damaged_while_down(daemon, daemon.files("demo") / name, garbage)
    view = daemon.view("demo")
    assert (view["state"], view["goal"]) == ("stopped", "stopped")
    assert len(witness.starts()) == 1
    assert len(daemon.history("demo")) == len(daemon.events("ralph.exited")) == 1


@pytest.mark.parametrize("at", [1e300, 3e11])
def test_a_saved_time_that_no_calendar_has_keeps_nobody_from_the_status(
    daemon: Daemon, witness: Witness, at: float
) -> None:
    daemon.start()
    witness.register()
    witness.end(0)
    daemon.becomes("demo", "done")

    def misdated(path: Path) -> None:
        stored = json.loads(path.read_text())
        path.write_text(json.dumps(stored | {"facts": stored["facts"] | {"finished_at": at}}))

    damaged_while_down(daemon, daemon.files("demo") / "regent-state.json", misdated)
    assert [ralph["state"] for ralph in daemon.status()["ralphs"]] == ["done"]
    assert [event["data"]["file"] for event in daemon.events("state.recovered")] == ["regent-state.json"]


def test_broken_events_are_told_though_there_is_no_ralph(daemon: Daemon) -> None:
    daemon.start()
    daemon.kill()
    for beside in daemon.state.glob("events.db-*"):
        beside.unlink()
    garbage(daemon.state / "events.db")
    daemon.start()
    assert [event["data"]["file"] for event in daemon.events("state.recovered")] == ["events.db"]


def test_an_end_is_told_once_over_the_loss_of_the_state(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    witness.end(0)
    daemon.becomes("demo", "done")
    damaged_while_down(daemon, daemon.files("demo") / "regent-state.json", missing)
    assert daemon.view("demo")["state"] == "done"
    witness.account_is_true(0)


@pytest.mark.parametrize("damage", [cut_off, emptied, garbage, a_link, missing])
def test_the_record_is_whole_again_from_what_the_runs_left(
    daemon: Daemon, witness: Witness, damage: Damage
) -> None:
    daemon.start()
    witness.register()
    for count, code in enumerate((3, 4), start=1):
        witness.end(code)
        witness.started(count + 1)
    daemon.becomes("demo", "running")
    path = daemon.files("demo") / "history.jsonl"
    damaged_while_down(daemon, path, damage)
    witness.end(0)
    daemon.becomes("demo", "done")
    runs = daemon.ask("GET", "/v1/ralphs/demo/runs")["runs"]
    assert [entry["code"] for entry in reversed(runs)] == [3, 4, 0]
    assert path.is_file() and not path.is_symlink()
    if damage in (garbage, a_link):
        assert kept_aside(path), "what was broken is kept (F2)"
        assert [event["data"]["file"] for event in daemon.events("state.recovered")] == ["history.jsonl"]
    assert daemon.status()["daemon"]["status"] == "ok"
    if damage in (emptied, a_link, missing):
        witness.account_is_true(3, 4, 0)


@pytest.mark.parametrize("damage", [cut_off, emptied, garbage, missing])
def test_the_events_go_on_rising_in_a_new_store(daemon: Daemon, witness: Witness, damage: Damage) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    before = daemon.events()[-1]["id"]
    daemon.kill()
    for beside in daemon.state.glob("events.db-*"):
        beside.unlink()
    damage(daemon.state / "events.db")
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid
    assert daemon.events("ralph.adopted")[-1]["id"] > before
    assert daemon.status()["daemon"]["status"] == "ok"
    if damage is garbage:
        [told] = daemon.events("state.recovered")
        assert Path(told["data"]["kept_as"]).exists()
    witness.end(0)
    daemon.becomes("demo", "done")
    assert len(daemon.events("ralph.exited")) == 1


@pytest.mark.parametrize("name", ["regent-state.json", "ralph.json"])
def test_a_file_from_the_future_is_left_as_it_is_and_so_is_its_run(
    daemon: Daemon, witness: Witness, name: str
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    other = Witness.of(daemon, "other")
    beside = other.register()["ralph_pid"]
    path = daemon.files("demo") / name
    daemon.kill()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    before = path.read_bytes()
    daemon.start()
    assert daemon.view("other")["ralph_pid"] == beside
    assert daemon.status()["daemon"]["status"] == "degraded"
    assert any("newer" in problem for problem in daemon.status()["daemon"]["problems"])
    reply = daemon.api("POST", "/v1/ralphs", witness.registration())
    assert reply.status == 409 and "newer" in json.dumps(reply.body)
    assert is_alive(pid) and len(witness.starts()) == 1
    daemon.kill()
    assert path.read_bytes() == before and not kept_aside(path)


def test_events_from_the_future_are_refused_in_words_and_nothing_is_touched(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    path = daemon.state / "events.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    daemon.start(wait=False)
    assert daemon.exit_code() > 0
    words = daemon.words().strip().splitlines()[-3:]
    assert any("newer" in line and str(path) in line for line in words), words
    assert "Traceback" not in daemon.words()
    assert path.read_bytes() == before
    assert is_alive(pid)


def test_a_missing_environment_is_told_once_and_the_next_run_starts(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    path = daemon.files("demo") / "env"
    damaged_while_down(daemon, path, missing)
    daemon.restart()
    [told] = daemon.events("state.recovered")
    assert (told["data"]["file"], told["data"]["kept_as"]) == ("env", None)
    assert path.stat().st_mode & 0o777 == 0o600
    witness.end(1)
    witness.started(2)


@pytest.mark.parametrize("damage", [cut_off, emptied, garbage])
def test_a_broken_environment_is_kept_and_told(daemon: Daemon, witness: Witness, damage: Damage) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    path = daemon.files("demo") / "env"
    damaged_while_down(daemon, path, damage)
    assert daemon.view("demo")["ralph_pid"] == pid
    assert [event["data"]["file"] for event in daemon.events("state.recovered")] == ["env"]
    assert len(kept_aside(path)) == 1


@pytest.mark.parametrize("name", ["ralph.json", "regent-state.json", "history.jsonl", "env"])
def test_a_directory_in_place_of_a_file_does_not_keep_the_daemon_down(
    daemon: Daemon, witness: Witness, name: str
) -> None:
    def a_directory(path: Path) -> None:
        path.unlink(missing_ok=True)
        path.mkdir()

    daemon.start()
    pid = witness.register()["ralph_pid"]
    damaged_while_down(daemon, daemon.files("demo") / name, a_directory)
    assert daemon.view("demo")["ralph_pid"] == pid
    daemon.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    daemon.becomes("demo", "stopped")


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("name", ["lock", "ralphd.log"])
def test_what_a_run_put_in_place_of_the_daemons_own_files_keeps_it_not_down(
    daemon: Daemon, witness: Witness, name: str, put: Callable[[Path], None]
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    path = daemon.state / name
    path.unlink()
    put(path)
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid
    assert path.read_text() and len(kept_aside(path)) == 1


@pytest.mark.parametrize("put", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_in_place_of_the_ralphs_is_named_and_left(
    daemon: Daemon, witness: Witness, put: Callable[[Path], None]
) -> None:
    """A daemon that started without its ralphs would leave their runs unsupervised."""
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    ralphs, away = daemon.state / "ralphs", daemon.state / "away"
    ralphs.rename(away)
    put(ralphs)
    daemon.start(wait=False)
    assert daemon.exit_code() == 1
    assert f"mv {ralphs} {ralphs}.old" in daemon.words() and "Traceback" not in daemon.words()
    ralphs.unlink()
    away.rename(ralphs)
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid


def test_a_file_in_place_of_the_landing_queues_costs_no_ralph_its_regent(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    daemon.kill()
    (daemon.state / "landing").touch()
    daemon.start()
    assert daemon.view("demo")["ralph_pid"] == pid


@pytest.mark.parametrize(
    "pinned", [{}, {"version": 1, "values": {"regent": {"max_retries": "x"}}, "origins": {}}, {"version": 99}]
)
def test_a_pinned_configuration_that_is_none_costs_no_other_ralph_its_regent(
    daemon: Daemon, witness: Witness, pinned: dict[str, object]
) -> None:
    daemon.start()
    pid = witness.register()["ralph_pid"]
    other = Witness.of(daemon, "other")
    beside = other.register()["ralph_pid"]

    def with_it(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"configuration": pinned}))

    damaged_while_down(daemon, daemon.files("demo") / "ralph.json", with_it)
    assert daemon.view("other")["ralph_pid"] == beside
    assert is_alive(pid) and len(witness.starts()) == 1


def test_a_run_whose_own_record_is_broken_is_watched_and_keeps_nobody_waiting(
    daemon: Daemon, witness: Witness
) -> None:
    daemon.start()
    witness.register()
    [run] = daemon.run_directories("demo")
    began = time.monotonic()
    damaged_while_down(daemon, run / "run.json", emptied)
    assert time.monotonic() - began < 15.0
    assert daemon.view("demo")["state"] == "running"
    witness.end(0)
    daemon.becomes("demo", "done")
    witness.account_is_true(0)


def test_a_ralph_of_which_nothing_is_left_can_be_registered_anew(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register(start=False)
    damaged_while_down(daemon, daemon.files("demo") / "ralph.json", garbage)
    daemon.ask("POST", "/v1/ralphs", witness.registration())
    witness.started(1)
    assert daemon.status()["daemon"]["status"] == "ok"


# --- the copies in the working directory --------------------------------------------------------------


def test_deleted_copies_are_back_within_ten_seconds_and_a_link_in_their_place_is_not_followed(
    daemon: Daemon, witness: Witness, tmp_path: Path
) -> None:
    daemon.start()
    witness.register()
    witness.end(3)
    witness.started(2)
    other = Witness.of(daemon, "other")
    other.register()
    place, link, target = witness.directory / ".ralph", other.directory / ".ralph", tmp_path / "target"
    names = {".gitignore", "lock", "regent-state.json", "history.jsonl"}
    assert {path.name for path in place.iterdir()} == names
    target.mkdir()
    (target / "lock").write_text("somebody else's")
    third, gone = Witness.of(daemon, "third"), Witness.of(daemon, "gone")
    third.register()
    gone.register()
    shutil.rmtree(place)
    shutil.rmtree(link)
    link.symlink_to(target)
    shutil.rmtree(third.directory / ".ralph")
    (third.directory / ".ralph").write_text("a file of somebody's")
    gone.directory.rename(tmp_path / "elsewhere")
    wait_for(
        lambda: place.exists() and {path.name for path in place.iterdir()} == names,
        timeout_s=10.0,
        what="the copies",
    )
    assert place.stat().st_mode & 0o777 == 0o700
    assert json.loads((place / "lock").read_text())["pid"] == daemon.pid
    daemon.ask("POST", "/v1/ralphs/other/stop", {"now": True})
    daemon.becomes("other", "stopped")
    assert link.is_symlink()
    assert [path.name for path in target.iterdir()] == ["lock"]
    assert (target / "lock").read_text() == "somebody else's"
    for name in ("third", "gone"):
        daemon.ask("POST", f"/v1/ralphs/{name}/stop", {"now": True})
        assert daemon.becomes(name, "stopped")["last_exit"]["outcome"] == "asked"
    assert (third.directory / ".ralph").read_text() == "a file of somebody's"


def test_a_link_that_was_put_in_place_of_the_copies_a_moment_ago_is_not_followed(
    daemon: Daemon, witness: Witness, tmp_path: Path
) -> None:
    """The run ends before the daemon has had a look at what became of its signpost."""
    daemon.start()
    witness.register()
    place, target = witness.directory / ".ralph", tmp_path / "target"
    target.mkdir()
    (target / "lock").write_text("somebody else's")
    shutil.rmtree(place)
    place.symlink_to(target)
    witness.end(0)
    daemon.becomes("demo", "done")
    daemon.ask("DELETE", "/v1/ralphs/demo")
    assert [path.name for path in target.iterdir()] == ["lock"]


def test_the_copy_of_the_record_keeps_up_with_it(daemon: Daemon, witness: Witness) -> None:
    daemon.start()
    witness.register()
    for count in (2, 3):
        witness.end(3)
        witness.started(count)
    original, copy = daemon.files("demo") / "history.jsonl", witness.directory / ".ralph" / "history.jsonl"
    wait_for(lambda: copy.read_bytes() == original.read_bytes(), timeout_s=10.0, what="the same record")
    assert original.read_bytes().count(b"\n") == 2


# --- a full disk --------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose state directory is a file system of its own, of 4 MiB."""
    state = tmp_path / "small" / "state"
    state.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", str(state)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting takes root")
    try:
        with daemon_in(tmp_path / "small") as daemon:
            yield daemon
    finally:
        subprocess.run(["umount", str(state)], check=True)


def fill(directory: Path) -> Path:
    """Take all room there is; the file that has to go for it to come back."""
    ballast = directory / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    return ballast


def test_a_full_disk_neither_ends_nor_blocks_a_run_and_heals_by_itself(small: Daemon) -> None:
    witness = Witness.of(small)
    small.start()
    pid = witness.register("--output", 200_000)["ralph_pid"]
    [run] = small.run_directories("demo")
    ballast = fill(small.state)
    before = witness.written(run)
    wait_for(lambda: witness.written(run) > before + 200_000, what="more output")
    wait_for(lambda: small.status()["daemon"]["status"] == "degraded", timeout_s=12.0, what="degraded")
    assert small.view("demo")["ralph_pid"] == pid
    assert json.loads((small.files("demo") / "regent-state.json").read_text())["run_id"] == run.name
    ballast.unlink()
    wait_for(lambda: small.status()["daemon"]["status"] == "ok", timeout_s=12.0, what="ok again")
    witness.end(0)
    small.becomes("demo", "done")
    log = b"".join(path.read_bytes() for path in sorted(run.glob("log.*")))
    assert b"bytes of output lost here: No space left on device" in log
    witness.account_is_true(0)
    assert len(witness.starts()) == 1


def test_a_crash_on_a_full_disk_is_followed_by_a_restart_when_there_is_room(small: Daemon) -> None:
    witness = Witness.of(small)
    small.start()
    witness.register(retry_backoff_seconds=0.5)
    ballast = fill(small.state)
    witness.end(3)
    wait_for(lambda: small.view("demo")["state"] != "running", what="an end")
    wait_for(lambda: small.status()["daemon"]["status"] == "degraded", what="degraded")
    wait_for(lambda: (small.view("demo")["wait"] or {}).get("reason") == "resources", what="a wait for room")
    assert len(witness.starts()) == 1
    ballast.unlink()
    second = witness.started(2)
    assert small.becomes("demo", "running")["ralph_pid"] == second
    wait_for(lambda: small.status()["daemon"]["status"] == "ok", timeout_s=12.0, what="ok again")
    assert json.loads((small.files("demo") / "regent-state.json").read_text())["ralph_pid"] == second
    witness.account_is_true(3)


def test_an_end_on_a_full_disk_is_not_lost_with_the_daemon(small: Daemon) -> None:
    witness = Witness.of(small)
    small.start()
    witness.register()
    ballast = fill(small.state)
    witness.end(0)
    small.becomes("demo", "done")
    small.kill()
    ballast.unlink()
    small.start()
    assert small.becomes("demo", "done")["last_exit"]["code"] == 0
    witness.account_is_true(0)
    assert small.status()["daemon"]["status"] == "ok"


def test_an_end_that_a_full_disk_did_not_take_is_written_down_without_another_fact(small: Daemon) -> None:
    witness = Witness.of(small)
    small.start()
    witness.register()
    ballast = fill(small.state)
    witness.end(0)
    small.becomes("demo", "done")
    assert small.status()["daemon"]["status"] == "degraded"
    ballast.unlink()
    wait_for(lambda: small.status()["daemon"]["status"] == "ok", timeout_s=12.0, what="ok again")
    witness.account_is_true(0)


@pytest.mark.parametrize("broken", [None, "ralph.json", "regent-state.json"])
def test_a_daemon_starts_and_adopts_on_a_full_disk(small: Daemon, broken: str | None) -> None:
    witness = Witness.of(small)
    small.start()
    pid = witness.register()["ralph_pid"]
    small.kill()
    if broken is not None:
        garbage(small.files("demo") / broken)
    ballast = fill(small.state)
    small.start()
    assert small.view("demo")["ralph_pid"] == pid
    ballast.unlink()
    witness.end(0)
    small.becomes("demo", "done")
    witness.account_is_true(0)


def test_a_stop_is_carried_out_on_a_full_disk(small: Daemon) -> None:
    witness = Witness.of(small)
    small.start()
    pid = witness.register()["ralph_pid"]
    fill(small.state)
    small.ask("POST", "/v1/ralphs/demo/stop", {"now": True})
    small.becomes("demo", "stopped")
    assert not is_alive(pid)


def _is_removed(place: Path) -> bool:
    """Remove a directory; False where the daemon wrote into it meanwhile."""
    try:
        shutil.rmtree(place)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("adopts", [False, True], ids=["registered", "adopted"])
def test_a_deleted_home_is_written_again_and_the_ralph_stays_known(
    daemon: Daemon, witness: Witness, adopts: bool
) -> None:
    daemon.start()
    if adopts:
        witness.register(start=False)
        daemon.restart()
        daemon.ask("POST", "/v1/ralphs/demo/start", {})
        witness.started(1)
    view = daemon.view(witness.name) if adopts else witness.register()
    environment = (daemon.files(witness.name) / "env").read_text()
    wait_for(lambda: _is_removed(daemon.files(witness.name)), what="no file comes while it is removed")

    event = wait_for(lambda: daemon.events("state.recovered"), timeout_s=20, what="the event")[0]

    assert (event["ralph"], event["data"]["rebuilt_from"]) == (witness.name, "memory")
    now = daemon.view(witness.name)
    assert (now["state"], now["ralph_pid"]) == ("running", view["ralph_pid"])
    assert any("deleted; lost: logs, history" in note for note in now["notes"])
    written = daemon.files(witness.name) / "env"
    assert (written.read_text(), written.stat().st_mode & 0o777) == (environment, 0o600)
    assert daemon.status()["daemon"]["status"] == "ok"
    (run,) = wait_for(lambda: daemon.run_directories(witness.name), what="the run's directory")
    wait_for((run / "run.json").exists, what="the run's record")
    daemon.restart()
    again = daemon.view(witness.name)
    assert (again["directory"], again["goal"]) == (view["directory"], "running")
    assert (again["state"], again["ralph_pid"]) == ("running", view["ralph_pid"])
    daemon.ask("POST", f"/v1/ralphs/{witness.name}/stop", {"now": True})
    daemon.becomes(witness.name, "stopped")
    assert not is_alive(view["ralph_pid"])


def test_a_full_disk_is_a_problem_of_health(small: Daemon) -> None:
    small.start()
    assert small.ask("GET", "/v1/health")["status"] == "ok"
    ballast = fill(small.state)

    def health() -> View:
        return dict(small.ask("GET", "/v1/health"))

    def is_full() -> bool:
        return any(each.startswith("disk: only 0 MiB are free for") for each in health()["problems"])

    wait_for(is_full, timeout_s=20, what="a full disk")
    assert health()["status"] == "degraded"
    ballast.unlink()
    wait_for(lambda: health()["status"] == "ok", timeout_s=20, what="a healthy daemon")


def test_a_state_directory_that_takes_no_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("ralphd.app.Lock.acquire", refuse)

    with pytest.raises(DirectoryUnusable) as raised:
        own(tmp_path)
    assert str(tmp_path) in raised.value.what
    assert raised.value.why == "Read-only file system"
    monkeypatch.undo()
    own(tmp_path).release()

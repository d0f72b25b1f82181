"""Much output, as fast as a program writes: nothing is lost where there is room, and it stays in bounds."""

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.players import player
from tests.whole.harness import Daemon, View
from tests.whole.person import Person

LINE = 100
MUCH = 20_000_000
FOLLOWED = 10_000_000
RUN_BYTES = 16 << 20
"""For those that are to stay in bounds; with times, 100-byte lines become about 140."""
ENOUGH_S = 60.0


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    return Person(daemon)


def flood(person: Person, total: int) -> View:
    """A ralph that writes so many bytes and is done; its exit record."""
    daemon, place = person.daemon, person.directory()
    person.starts(place, player("flood", daemon.root / "count", total, LINE))
    daemon.becomes("demo", "done", timeout_s=ENOUGH_S)
    assert int((daemon.root / "count").read_text()) == total
    return dict(json.loads((daemon.run_directories("demo")[0] / "exit.json").read_text()))


def segments(daemon: Daemon) -> list[Path]:
    return sorted(daemon.run_directories("demo")[0].glob("log.*"))


def expected(total: int) -> bytes:
    """What ``flood.py`` writes."""
    lines = (f"{number:012d} ".ljust(LINE - 1, "x") + "\n" for number in range(total // LINE))
    return "".join(lines).encode()


def test_nothing_of_much_output_is_lost_where_there_is_room_for_it(daemon: Daemon, person: Person) -> None:
    daemon.start()
    ended = flood(person, MUCH)
    assert (ended["log_bytes"], ended["dropped_bytes"]) == (MUCH, 0)
    printed = daemon.ask("GET", "/v1/ralphs/demo/logs?tail=all&stream=stdout")
    assert len(printed) == MUCH
    assert printed == expected(MUCH)


def test_output_without_end_stays_in_bounds_and_keeps_the_newest_in_order(
    daemon: Daemon, person: Person
) -> None:
    person.configures(f"[logs]\nrun_bytes = {RUN_BYTES}\n")
    daemon.start()
    ended = flood(person, MUCH)
    assert (ended["log_bytes"], ended["dropped_bytes"]) == (MUCH, 0)
    assert sum(path.stat().st_size for path in segments(daemon)) <= RUN_BYTES
    assert segments(daemon)[0].name != "log.000001"
    said = person("logs", "demo", "--tail", "all", "--stream", "stdout")
    lines = said.stdout.splitlines()
    if not lines[0][:12].isdigit():
        assert "gap in the log" in lines.pop(0)
    kept = [int(line[:12]) for line in lines]
    last = MUCH // LINE - 1
    assert kept == list(range(kept[0], last + 1))
    assert len(kept) * LINE > RUN_BYTES // 2


def test_a_follower_that_is_there_from_the_start_misses_nothing(daemon: Daemon, person: Person) -> None:
    daemon.start()
    go = daemon.root / "go"
    when_told = 'until test -e "$0"; do sleep 0.01; done; exec "$@"'
    command = player("flood", daemon.root / "count", FOLLOWED)
    person.starts(person.directory(), ["/bin/sh", "-c", when_told, str(go), *command])
    with person.watching("logs", "-f", "demo", "--tail", "all", "--stream", "stdout") as follower:
        seen = Gathered(follower)
        go.touch()
        daemon.becomes("demo", "done", timeout_s=ENOUGH_S)
        wait_for(lambda: len(seen.data) >= FOLLOWED, timeout_s=ENOUGH_S, what="the follower's last line")
    assert bytes(seen.data) == expected(FOLLOWED)


def test_a_follower_goes_on_over_a_killed_daemon(daemon: Daemon, person: Person) -> None:
    daemon.start()
    total = 1_000_000
    person.starts(person.directory(), player("flood", daemon.root / "count", total, "--rate", total / 3))
    with person.watching("logs", "-f", "demo", "--tail", "all", "--stream", "stdout") as follower:
        seen = Gathered(follower)
        wait_for(lambda: len(seen.data) > total // 10, what="the first lines")
        daemon.restart()
        wait_for(lambda: len(seen.data) >= total, timeout_s=ENOUGH_S, what="the follower's last line")
    assert bytes(seen.data) == expected(total)


def test_both_streams_keep_their_order(daemon: Daemon, person: Person) -> None:
    daemon.start()
    pieces = [f"{('out', 'err')[number % 2]}:{number}\\n" for number in range(200)]
    person.starts(person.directory(), player("says", *pieces))
    daemon.becomes("demo", "done")
    for stream, first in (("stdout", 0), ("stderr", 1)):
        printed = person("logs", "demo", "--tail", "all", "--stream", stream).stdout.split()
        assert [int(word) for word in printed] == list(range(first, 200, 2))


def test_the_time_of_each_record_never_goes_back(daemon: Daemon, person: Person) -> None:
    daemon.start()
    flood(person, 3_000_000)
    times = re.findall(rb"^\S+", b"".join(path.read_bytes() for path in segments(daemon)), re.MULTILINE)
    assert times == sorted(times)
    assert len(times) == 3_000_000 // LINE


class Gathered:
    """What a process prints, taken as it comes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.data = bytearray()
        assert process.stdout is not None
        self._pipe = process.stdout
        self._thread = threading.Thread(target=self._gather, daemon=True)
        self._thread.start()

    def _gather(self) -> None:
        while part := self._pipe.read1(1 << 16):  # type: ignore[attr-defined]
            self.data += part

"""A daemon as a service: what it tells systemd and when, and what it takes over from it."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ralphd import systemd
from ralphd.api.server import Listener
from ralphd.daemon import lifecycle
from ralphd.daemon.reload import DriftWatch
from ralphd.errors import HandedOverUnusable
from tests.helpers import eventually, is_alive, wait_for
from tests.players import player
from tests.systemd.playing import Manager, Service, listening_at, manager_at
from tests.whole.person import Person

FROZEN_S = 1.5
"""Several times the interval at which the watchdog is told."""


def register(service: Service, command: tuple[str, ...], name: str = "demo", **environment: str) -> None:
    place = service.home / name
    place.mkdir()
    given = {"PATH": os.environ.get("PATH", os.defpath), **environment}
    body = {"directory": str(place), "command": list(command), "environment": given, "name": name}
    service.ask("POST", "/v1/ralphs", body)


# --- what is told ---------------------------------------------------------------------------------------


def test_ready_is_told_when_living_runs_are_adopted_and_requests_are_answered(
    service: Service, manager: Manager
) -> None:
    service.start()
    register(service, player("sleeper"))
    pid = service.view("demo")["ralph_pid"]
    service.kill()

    service.start_as_service(manager, wait=False)
    told = manager.hears("READY=1")

    assert service.api("GET", "/v1/ready").status == 200
    assert service.view("demo")["ralph_pid"] == pid
    assert [event["ralph"] for event in service.events("ralph.adopted")] == ["demo"]
    assert told == ["READY=1", "STATUS=1 running"]
    assert manager.heard[0] == told


def test_an_abstract_address_is_told_too(service: Service) -> None:
    with manager_at(f"@ralphd-test-{os.getpid()}") as manager:
        service.start_as_service(manager)

        assert manager.hears("READY=1") == ["READY=1", "STATUS=no ralphs"]


def test_the_status_says_in_words_what_the_ralphs_do(service: Service, manager: Manager) -> None:
    service.start_as_service(manager, watchdog_s=0.6)
    for name in ("one", "two"):
        register(service, player("sleeper"), name)

    manager.hears("STATUS=2 running")
    service.ask("POST", "/v1/ralphs/two/pause", {})

    assert manager.hears("STATUS=1 running, 1 paused")


def test_a_reload_is_told_with_its_moment_and_its_end(service: Service, manager: Manager) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    service.start_as_service(manager)
    manager.hears("READY=1")

    service.send(signal.SIGHUP)
    manager.hears("READY=1", times=2)

    reloading, moment = manager.heard[1]
    assert reloading == "RELOADING=1"
    name, _, at = moment.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before < int(at) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert [each[0] for each in manager.heard] == ["READY=1", "RELOADING=1", "READY=1"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_its_end_is_told_before_it_comes(number: signal.Signals, service: Service, manager: Manager) -> None:
    service.start_as_service(manager)
    register(service, player("sleeper"))

    service.send(number)
    told = manager.hears("STOPPING=1")

    assert service.exit_code() == 0, service.words()
    assert told[1] == "STATUS=ending: 1 running"
    name, _, limit_us = told[2].partition("=")
    assert name == "EXTEND_TIMEOUT_USEC"
    assert 60 + lifecycle.KILL_LIMIT_S < int(limit_us) / 1e6 <= 95
    service.kill()


def test_a_daemon_goes_on_when_nobody_hears_it(service: Service, short: Path) -> None:
    service.start_as_service(more={"NOTIFY_SOCKET": str(short / "gone"), "WATCHDOG_USEC": "100000"})
    register(service, player("sleeper"))

    service.send(signal.SIGHUP)
    assert service.view("demo")["state"] == "running"
    service.send(signal.SIGTERM)

    assert service.exit_code() == 0, service.words()


def test_a_full_socket_is_waited_for_without_work_and_not_for_long(short: Path) -> None:
    address = str(short / "full")
    full, other = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2))
    with full, other:
        full.bind(address)
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                other.sendto(b"STATUS=", address)
        told, began = systemd.take_over({"NOTIFY_SOCKET": address}), time.thread_time()
        for status in map(str, range(5)):
            told.passed(status)

        assert time.thread_time() - began < systemd.SEND_LIMIT_S


def test_what_is_started_in_the_background_does_not_speak_for_a_service(
    service: Service, manager: Manager
) -> None:
    person = Person(service)
    environment = person.environment | {"NOTIFY_SOCKET": manager.address}
    command = [sys.executable, "-P", "-m", "ralphd", "--background"]
    subprocess.run(command, env=environment, check=True, timeout=60)
    try:
        assert service.status()["daemon"]["status"] == "ok"
        assert manager.listen() == []
    finally:
        assert person("regent", "stop").returncode == 0


# --- the watchdog ---------------------------------------------------------------------------------------


def test_the_watchdog_is_told_thrice_in_its_limit_and_never_by_a_frozen_daemon(
    service: Service, manager: Manager
) -> None:
    service.start_as_service(manager, watchdog_s=0.6)
    began, before = time.monotonic(), manager.pings()
    wait_for(lambda: manager.pings() >= before + 5, timeout_s=30, what="pings")
    assert time.monotonic() - began > 0.6  # and no more often than that

    service.send(signal.SIGSTOP)
    wait_for(lambda: _is_stopped(service.pid), what="a frozen daemon")
    manager.listen()
    assert manager.is_silent_for(FROZEN_S)

    service.send(signal.SIGCONT)
    frozen_at = manager.pings()
    wait_for(lambda: manager.pings() > frozen_at, timeout_s=30, what="pings again")


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


class _Ralph:
    """A ralph whose directory answers once ``may_go_on`` is set."""

    name = "demo"

    def __init__(self, *, hangs: bool = False) -> None:
        self.may_go_on = asyncio.Event()
        if not hangs:
            self.may_go_on.set()
        self.passes = 0
        self.account = self.supervision = self.state = self.definition = self.files = self
        self.hangs = False
        self.directory, self.kind = Path("/far/away"), "running"

    async def restore_home(self) -> None:
        pass

    async def look_round(self) -> None:
        self.passes += 1
        await self.may_go_on.wait()


class _Roster(list[_Ralph]):
    unusable: Mapping[str, Any] = {}

    def __init__(self, ralph: _Ralph) -> None:
        super().__init__([ralph])
        self.looks: dict[str, Any] = {}

    def find(self, _: str) -> _Ralph:
        return self[0]

    def directories(self) -> dict[str, Path]:
        return {}


class _Services:
    news, state_directory = None, Path()

    def __init__(self, told: systemd.Systemd) -> None:
        self.systemd = told
        self.may_go_on = asyncio.Event()
        self.troubles: dict[str, str] = {}

    def trouble(self, topic: str, what: str | None) -> None:
        if what is None:
            self.troubles.pop(topic, None)
        else:
            self.troubles[topic] = what

    async def tell_troubles(self) -> None:
        await self.may_go_on.wait()


@contextmanager
def _passes(ralph: _Ralph, services: _Services) -> Iterator[None]:
    """Look at it again and again."""

    class Events:
        degraded: None = None
        file = SimpleNamespace(is_gone=False)

    async def drift(_: object, account: object) -> None: ...

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DriftWatch, "look", drift)
        patched.setattr(lifecycle, "LATE_S", 0.05)
        work = lifecycle.look_round(cast(Any, _Roster(ralph)), cast(Any, services), cast(Any, Events()))
        loop = asyncio.get_running_loop().create_task(work)
        try:
            yield
        finally:
            loop.cancel()


async def test_a_pass_that_hangs_gets_no_ping(short: Path) -> None:
    with manager_at(str(short / "notify")) as manager:
        services = _Services(systemd.Systemd(manager.address, ping_every_s=0.05))
        ralph = _Ralph()
        with _passes(ralph, services):
            await eventually(lambda: ralph.passes == 1)
            await asyncio.to_thread(manager.is_silent_for, 0.5)
            assert manager.pings() == 0

            services.may_go_on.set()
            await eventually(lambda: manager.pings() > 1)


async def test_a_ralph_whose_directory_hangs_is_a_problem_and_stops_no_ping(short: Path) -> None:
    with manager_at(str(short / "notify")) as manager:
        services = _Services(systemd.Systemd(manager.address, ping_every_s=0.05))
        services.may_go_on.set()
        ralph = _Ralph(hangs=True)
        with _passes(ralph, services):
            await eventually(lambda: manager.pings() > 1)
            assert "/far/away does not answer" in services.troubles["a look at demo"]
            assert (ralph.passes, ralph.hangs) == (1, True)

            ralph.may_go_on.set()
            await eventually(lambda: ralph.passes > 1)
            assert services.troubles == {}


# --- what is taken over ---------------------------------------------------------------------------------


def test_nothing_of_it_reaches_the_shim_or_the_run(service: Service, manager: Manager) -> None:
    names = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}
    with closing(listening_at(service.state / "ralphd.sock")) as given:
        service.start_as_service(manager, watchdog_s=30, sockets=(given,))
        inode = os.fstat(given.fileno()).st_ino
        register(service, player("mirror"), "told", NOTIFY_SOCKET="/run/theirs", LISTEN_FDS="1")
        register(service, player("sleeper"), "alive")
        service.becomes("told", "done")
        printed = service.ask("GET", "/v1/ralphs/told/logs?stream=stdout").decode()

        run = json.loads(printed[printed.index("{") :])
        shim = service.run_record("alive")["shim_pid"]
        words = Path(f"/proc/{shim}/environ").read_bytes().split(b"\0")
        assert not names & set(run["environment"])
        assert not names & {word.partition(b"=")[0].decode() for word in words}
        assert run["environment"]["RALPHD_SOCKET"] == str(service.state / "ralphd.sock")
        assert run["descriptors"] == [0, 1, 2]
        held = [os.readlink(f"/proc/{shim}/fd/{fd}") for fd in os.listdir(f"/proc/{shim}/fd")]
        assert f"socket:[{inode}]" not in held


@pytest.mark.parametrize(
    ("given", "every_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 10.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "1"}, systemd.LEAST_PING_S),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_watchdog_is_told_only_where_this_process_is_meant(
    given: dict[str, str], every_s: float | None
) -> None:
    environ = {**given, "PATH": "/bin"}

    assert systemd.take_over(environ).ping_every_s == every_s
    assert environ == {"PATH": "/bin"}


@pytest.mark.parametrize("count", ["", "0", "-1", "one", "\u0661", "1" * 5000])
def test_sockets_without_a_number_or_for_another_process_are_not_taken(count: str) -> None:
    assert systemd.take_over({"LISTEN_FDS": count, "LISTEN_PID": str(os.getpid())}).sockets == ()
    assert systemd.take_over({"LISTEN_FDS": "1", "LISTEN_PID": "1"}).sockets == ()
    assert systemd.take_over({"LISTEN_FDS": "1"}).sockets == ()


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative", "@"])
def test_an_address_that_is_none_is_no_failure(address: str) -> None:
    told = systemd.take_over({"NOTIFY_SOCKET": address})
    told.ready("no ralphs")

    assert told.address in (None, "@")


# --- a socket that is handed over -----------------------------------------------------------------------


def test_a_socket_that_is_handed_over_is_used_and_left_as_it_is(service: Service) -> None:
    path = service.state / "ralphd.sock"
    with closing(listening_at(path, mode=0o660)) as given:
        inode = path.stat().st_ino
        service.start_as_service(sockets=(given,))
        register(service, player("sleeper"))
        assert service.status()["daemon"]["socket"] == str(path)

        service.send(signal.SIGUSR2)
        assert service.exit_code() == 0, service.words()
        assert (path.stat().st_ino, path.stat().st_mode & 0o777) == (inode, 0o660)

        service.start_as_service(sockets=(given,))
        assert service.view("demo")["state"] == "running"
        service.send(signal.SIGTERM)
        assert service.exit_code() == 0, service.words()
        assert path.stat().st_ino == inode


def test_one_who_calls_before_the_daemon_is_there_is_answered_by_it(service: Service) -> None:
    path = service.state / "ralphd.sock"
    with closing(listening_at(path)) as given, socket.socket(socket.AF_UNIX) as early:
        early.settimeout(30)
        early.connect(str(path))
        early.sendall(b"GET /v1/status HTTP/1.0\r\nHost: ralphd\r\n\r\n")
        service.start_as_service(sockets=(given,))

        assert early.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_file_that_is_gone_is_systemds_to_make_anew(short: Path) -> None:
    given = listening_at(short / "s")
    listener = Listener.handed_over([given.detach()])
    (short / "s").unlink()

    with closing(listener):
        assert listener.is_reachable()
        assert not (short / "s").exists()


def _not_listening(short: Path) -> int:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(str(short / "s"))
    return made.detach()


def _abstract(short: Path) -> int:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(f"\0ralphd-test-{os.getpid()}")
    made.listen()
    return made.detach()


WRONG: Mapping[str, tuple[Callable[[Path], int], str]] = {
    "a file": (lambda short: os.open(short, os.O_RDONLY), "no socket"),
    "a pipe": (lambda _: os.dup(os.pipe()[0]), "no socket"),
    "a datagram socket": (
        lambda _: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).detach(),
        "not a Unix stream socket",
    ),
    "a network socket": (
        lambda _: socket.create_server(("127.0.0.1", 0)).detach(),
        "not a Unix stream socket",
    ),
    "one that does not listen": (_not_listening, "nobody listens"),
    "one without a path": (_abstract, "it has no path"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_listened_on_is_refused_in_words(wrong: str, short: Path) -> None:
    make, why = WRONG[wrong]
    before = set(os.listdir("/proc/self/fd"))
    fd = make(short)

    with pytest.raises(HandedOverUnusable) as told:
        Listener.handed_over([fd])

    assert why in told.value.why
    assert told.value.exit_code == 78
    for left in set(os.listdir("/proc/self/fd")) - before:
        try:
            os.close(int(left))
        except OSError:  # the one that the listing itself had open
            continue


def test_two_sockets_are_one_too_many_and_the_daemon_says_so_and_is_not_tried_again(service: Service) -> None:
    with (
        closing(listening_at(service.state / "one.sock")) as one,
        closing(listening_at(service.state / "two.sock")) as two,
    ):
        service.start_as_service(sockets=(one, two), wait=False)

        assert service.exit_code() == 78
        assert "there are 2 descriptors, and ralphd takes one" in service.words()
        assert not is_alive(service.pid)

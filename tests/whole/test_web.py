"""The page of a real daemon: its process, pairing at a terminal, acts, and attacks that are all refused."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.helpers import is_alive, wait_for
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.web_attacks import ATTACKS, REFUSED, Attackers
from tests.whole.web_stage import WebStage, free_port
from tests.whole.witnesses import Witness


@pytest.fixture
def stage(daemon: Daemon) -> Iterator[WebStage]:
    yield WebStage(daemon, Person(daemon), free_port())


def test_the_page_lives_and_ends_with_its_daemon(stage: WebStage) -> None:
    daemon = stage.daemon
    daemon.start()
    assert not stage.shown()["running"] and "web.listen" in stage.person("web").stdout
    daemon.configure(f'[web]\nlisten = "127.0.0.1:{stage.port}"\n')
    daemon.send(signal.SIGHUP)
    first = stage.ready()
    assert stage.shown()["url"] == f"http://ralphd.localhost:{stage.port}"
    assert stage.browser().get("/").status == 401 and stage.browser().get("/pair").status == 200

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: stage.page_pid() not in (None, first), what="another process of the page")
    second = stage.ready()
    daemon.kill()
    wait_for(lambda: not is_alive(second), timeout_s=2, what="the end of the page")
    assert not daemon.leftovers()

    daemon.start()
    third = stage.ready()
    daemon.configure("")
    daemon.send(signal.SIGHUP)
    wait_for(lambda: not is_alive(third), what="the end of the page")
    daemon.configure(f'[web]\nlisten = "127.0.0.1:{stage.port}"\n')
    daemon.send(signal.SIGHUP)
    fourth = stage.ready()
    daemon.send(signal.SIGTERM)
    assert daemon.exit_code() == 0
    assert not is_alive(fourth)


def test_an_act_is_in_the_history_with_its_device(stage: WebStage) -> None:
    stage.start()
    witness = Witness.of(stage.daemon)
    witness.register()
    browser = stage.browser()
    stage.pair(browser)
    assert "My phone" in stage.person("web", "devices").stdout
    assert browser.get("/").status == browser.get("/ralphs/demo").status == 200
    reply = browser.act(browser.order("pause"))
    assert reply.status == 200 and "demo" in reply.value["words"], reply
    stage.daemon.becomes("demo", "paused")
    (entry,) = [each for each in stage.daemon.history("demo", "request") if each["action"] == "pause"]
    assert entry["by"]["device"] == "My phone"
    assert 'pause by device "My phone"' in stage.person("explain", "demo").stdout
    assert browser.act(browser.order("resume")).status == 200
    refused = browser.act(browser.order("skip-wait"))
    assert refused.status == 409 and refused.value["detail"], refused

    with socket.create_connection(("127.0.0.1", stage.port), timeout=10) as watching:
        watching.sendall(browser.head("GET", "/news", {}))
        seen = b""
        while b"retry" not in seen:
            seen += watching.recv(4096)
        stage.daemon.ask("POST", "/v1/ralphs/demo/pause", {})
        while b'data: {"ralph": "demo"}' not in seen:
            seen += watching.recv(4096)
        assert stage.person("web", "revoke", "My phone").returncode == 0
        began = time.monotonic()
        while not seen.endswith(b"0\r\n\r\n"):  # the last chunk
            seen += watching.recv(4096)
        assert time.monotonic() - began < 3
    assert browser.get("/").status == 401


KILLS_THE_PAGE = "replayed_after_a_crash"


def test_every_attack_is_refused(stage: WebStage) -> None:
    stage.start()
    witness = Witness.of(stage.daemon)
    witness.register()
    owner, looker = stage.browser(), stage.browser()
    stage.let_in(owner)
    stage.let_in(looker, "look", "Tablet")
    by = Attackers(stage, owner, looker)
    slow: list[socket.socket] = []
    assert len(ATTACKS) >= 30
    for name in sorted(ATTACKS, key=lambda name: name != KILLS_THE_PAGE):
        statuses = list(ATTACKS[name](by))
        slow = slow or slow_heads(stage.port)  # they take ten seconds
        assert statuses and set(statuses) <= REFUSED, (name, statuses)
    for connection in slow:
        with connection:
            assert connection.recv(1 << 16) == b""
    assert stage.daemon.view("demo")["state"] == "running" and len(witness.starts()) == 1
    assert owner.get("/").status == looker.get("/").status == 200
    names = {each["name"] for each in json.loads(stage.person("web", "devices", "--json").stdout)["devices"]}
    assert names == {"My phone", "Tablet"}


def slow_heads(port: int) -> list[socket.socket]:
    """Connections that send nothing, or a head that never ends."""
    connections = [socket.create_connection(("127.0.0.1", port), timeout=15) for _ in range(3)]
    connections[1].sendall(b"GET / HTTP/1.1\r\nHost: ralph")
    connections[2].sendall(b"POST /act HTTP/1.1\r\n")
    return connections


def test_connections_are_bounded(stage: WebStage) -> None:
    stage.start()
    every = [socket.create_connection(("127.0.0.1", stage.port), timeout=10) for _ in range(150)]
    try:
        wait_for(lambda: len(select.select(every, [], [], 0)[0]) >= 80, what="the end of most of them")
    finally:
        for each in every:
            each.close()
    wait_for(lambda: stage.browser().get("/pair").status == 200, what="a reply after them")

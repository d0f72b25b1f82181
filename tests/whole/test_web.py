"""The page of a real daemon: its process, pairing at a terminal, acts, and attacks that are all refused."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.helpers import is_alive, wait_for
from tests.terminal import Terminal
from tests.whole.browser import Browser
from tests.whole.harness import Daemon
from tests.whole.person import Person
from tests.whole.witnesses import Witness

CTL = (sys.executable, "-m", "ralphctl")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class Stage:
    """A daemon with a page, and a ralph."""

    daemon: Daemon
    person: Person
    port: int

    def start(self, hosts: str = "[]", name: str = "demo") -> None:
        self.daemon.configure(f'[web]\nlisten = "127.0.0.1:{self.port}"\nhosts = {hosts}\n')
        self.daemon.start()
        self.ready()

    def ready(self) -> int:
        """Wait for the page; the pid of its process."""
        return int(wait_for(lambda: self.shown()["running"] and self.page_pid(), what=self.daemon.words()))

    def shown(self) -> Any:
        return json.loads(self.person("web", "--json").stdout)

    def page_pid(self) -> int | None:
        pids = [pid for pid, line in self.daemon.leftovers() if "ralphctl.web" in line]
        return pids[0] if len(pids) == 1 else None

    def pair(self, browser: Browser, role: str = "act", name: str = "My phone") -> None:
        """Pair a browser: a person scans, compares and types yes."""
        with self.pairing(role) as (terminal, code):
            begun = browser.begin_pairing(code, name, **({} if role == "act" else {"key": None}))
            assert begun.status == 202, begun
            terminal.shows(f"shows the number {begun.value['number']}")
            terminal.shows("Is it yours? [y/N]")
            terminal.type(b"y\n")
            assert browser.finish_pairing(begun.value["ticket"]).value == {"role": role}
            assert terminal.exit_code() == 0, terminal.screen()

    def pairing(self, role: str = "act") -> "PairingTerminal":
        words = (*CTL, "web", "pair", f"--{role}")
        return PairingTerminal(words, cwd=self.daemon.home, environment=self.person.environment)

    def browser(self) -> Browser:
        return Browser(self.port)


class PairingTerminal:
    """A terminal in which ``ralphctl web pair`` runs, and its code."""

    def __init__(self, words: tuple[str, ...], **named: Any) -> None:
        self._terminal = Terminal(words, **named)

    def __enter__(self) -> tuple[Terminal, str]:
        terminal = self._terminal.__enter__()
        terminal.shows("Ctrl-C ends it")
        found = re.search(r"((?:[A-Z2-7]{4}-){3}[A-Z2-7]{4})", terminal.screen())
        assert found, terminal.screen()
        return terminal, found[1]

    def __exit__(self, *about: object) -> None:
        self._terminal.__exit__(*about)


@pytest.fixture
def stage(daemon: Daemon) -> Iterator[Stage]:
    yield Stage(daemon, Person(daemon), free_port())


def test_the_page_lives_and_ends_with_its_daemon(stage: Stage) -> None:
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


def test_an_act_is_in_the_history_with_its_device(stage: Stage) -> None:
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

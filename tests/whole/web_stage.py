"""A daemon with a page, and a person who pairs browsers at a terminal."""

import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ralphd.unix_http import short_address
from tests.helpers import wait_for
from tests.terminal import Terminal
from tests.whole.browser import Browser
from tests.whole.harness import Daemon
from tests.whole.person import Person

CTL = (sys.executable, "-m", "ralphctl")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(slots=True)
class WebStage:
    """A daemon with a page, and a ralph."""

    daemon: Daemon
    person: Person
    port: int

    def start(self, hosts: str = "[]") -> None:
        self.daemon.configure(f'[web]\nlisten = "127.0.0.1:{self.port}"\nhosts = {hosts}\n')
        self.daemon.start()
        self.ready()

    def ready(self) -> int:
        """Wait for the page; the pid of its process."""
        wait_for(self._is_open, timeout_s=20, what=f"the page: {self.daemon.words()}")
        return wait_for(self.page_pid, what="the process of the page") or 0

    def _is_open(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

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

    def let_in(self, browser: Browser, role: str = "act", name: str = "My phone") -> None:
        """Pair a browser as fast as no person can."""
        with self.offer(role) as offer:
            begun = browser.begin_pairing(offer.code, name, **({} if role == "act" else {"key": None}))
            assert offer.said()["number"] == begun.value["number"]
            offer.answer(yes=True)
            assert browser.finish_pairing(begun.value["ticket"]).value == {"role": role}

    @contextmanager
    def offer(self, role: str = "act") -> Iterator["Offer"]:
        """What ``ralphctl web pair`` does, without its terminal."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(20)
            with short_address(str(self.daemon.state / "web" / "control.sock")) as address:
                control.connect(address)
            with control.makefile("rwb", buffering=0) as lines:
                lines.write(json.dumps({"do": "pair", "role": role}).encode() + b"\n")
                yield Offer(json.loads(lines.readline())["code"], control, lines)

    def pairing(self, role: str = "act") -> "PairingTerminal":
        words = (*CTL, "web", "pair", f"--{role}")
        return PairingTerminal(words, cwd=self.daemon.home, environment=self.person.environment)

    def browser(self) -> Browser:
        return Browser(self.port)


@dataclass(frozen=True, slots=True)
class Offer:
    """The terminal's side of a pairing."""

    code: str
    control: socket.socket
    lines: Any

    def said(self) -> Any:
        """The next message of the page."""
        return json.loads(self.lines.readline())

    def answer(self, *, yes: bool) -> None:
        self.lines.write(json.dumps({"yes": yes}).encode() + b"\n")


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

"""What the loop tells its Regent, and the Regent's answers: kept and sent again while the daemon is away.

A thread of its own sends one report after the other, each second again until it is answered; the Regent acts
upon each once, by its id. The loop never waits for it, but where it wants an answer.
"""

import http.client
import json
import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from ralphd.core.gate.verdict_views import VerdictMessage, heard_in
from ralphd.core.supervision.model import Next

logger = logging.getLogger(__name__)

MOST_KEPT = 2000
"""More reports than a night has, while the daemon is away; then the oldest ones are let go, and said."""
RETRY_S = 1.0
ANSWER_LIMIT_S = 30.0
SLOW_LIMIT_S = 3.0
"""An answer that takes long is asked for anew this often: a daemon that is gone is noticed at once, and a
loop that does not want to wait any longer ends within that time."""
_LONGEST_ADDRESS = 107  # sun_path has 108 bytes, the last of them NUL


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """The answer to a report: what to do next, and at a boundary the verdict where there is one."""

    next: Next = Next.CONTINUE
    verdict: VerdictMessage | None = None


class Reports(Protocol):
    """Who hears what the loop does."""

    def report(self, kind: str, *, slowly: bool = False, **fields: Any) -> "Future[ReportAnswer]":
        """Tell it; the future is the answer. ``slowly``: that may take as long as tests do."""
        ...

    def close(self, limit_s: float) -> None:
        """Send what is left, for no longer than ``limit_s``."""
        ...

    @property
    def is_away(self) -> bool:
        """Whether nobody answers at present."""
        ...


@dataclass(slots=True)
class _Letter:
    body: bytes
    id: str = ""
    slowly: bool = False
    answer: "Future[ReportAnswer]" = field(default_factory=Future)


class NoRegent:
    """Nobody supervises this loop: every answer is to go on."""

    is_away = False

    def report(self, kind: str, *, slowly: bool = False, **fields: Any) -> "Future[ReportAnswer]":
        """Nobody hears it."""
        answer: Future[ReportAnswer] = Future()
        answer.set_result(ReportAnswer())
        return answer

    def close(self, limit_s: float) -> None:
        """There is nothing to send."""


class ReportClient:
    """The way to the Regent of ``name`` over the daemon's socket. ``told`` hears when it goes and comes."""

    def __init__(
        self, socket_path: str, name: str, run_id: str, told: Callable[[str], None] = logger.info
    ) -> None:
        self._socket_path = socket_path
        self._target = f"/v1/ralphs/{name}/reports"
        self._run_id = run_id
        self._told = told
        self._letters: queue.Queue[_Letter] = queue.Queue(MOST_KEPT)
        self._count = 0
        self._away = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="reports", daemon=True)
        self._thread.start()

    @property
    def is_away(self) -> bool:
        """Whether nobody answers at present."""
        return self._away

    def report(self, kind: str, *, slowly: bool = False, **fields: Any) -> "Future[ReportAnswer]":
        """Queue a report. A heartbeat is not kept while others wait: they say as much."""
        self._count += 1
        body = {"run_id": self._run_id, "id": str(self._count), "kind": kind, **fields}
        letter = _Letter(json.dumps(body).encode(), str(self._count), slowly)
        if kind == "heartbeat" and not self._letters.empty():
            letter.answer.set_result(ReportAnswer())
            return letter.answer
        while True:
            try:
                self._letters.put_nowait(letter)
                return letter.answer
            except queue.Full:
                with suppress(queue.Empty):
                    self._letters.get_nowait().answer.cancel()
                self._told("the daemon is away for so long that the oldest reports are let go")

    def close(self, limit_s: float) -> None:
        """Send what is left, for no longer than ``limit_s``."""
        self._closing.set()
        with suppress(queue.Full):
            self._letters.put_nowait(_Letter(b""))
        self._thread.join(limit_s)

    def _send_all(self) -> None:
        while (letter := self._letters.get()).body:
            self._send(letter)

    def _send(self, letter: _Letter) -> None:
        while not letter.answer.cancelled():
            try:
                status, reply = self._post(letter)
            except _NoAnswerYet:
                continue
            except (OSError, http.client.HTTPException) as fault:
                self._note_away(str(fault) or type(fault).__name__)
            else:
                if status < 500 and status not in (408, 429):
                    self._answered(letter, status, reply)
                    return
                self._note_away(f"it answered {status}")
            if self._closing.wait(RETRY_S):
                time.sleep(RETRY_S / 10)  # as long as the closing waits

    def _answered(self, letter: _Letter, status: int, reply: Mapping[str, Any]) -> None:
        if self._away:
            self._away = False
            self._told("the daemon answers again")
        if status != 200:
            self._told(f"the daemon refused a report: {reply.get('detail') or reply.get('title') or status}")
        if not letter.answer.cancelled():
            letter.answer.set_result(
                self._in_words_of_ours(letter, reply) if status == 200 else ReportAnswer()
            )

    def _in_words_of_ours(self, letter: _Letter, reply: Mapping[str, Any]) -> ReportAnswer:
        said = reply.get("next")
        answer = Next(said) if said in tuple(Next) else Next.CONTINUE
        return ReportAnswer(answer, heard_in(reply.get("verdict"), f"{self._run_id}/{letter.id}"))

    def _note_away(self, why: str) -> None:
        if not self._away:
            self._away = True
            self._told(f"the daemon does not answer ({why}): reports are kept and sent again")

    def _post(self, letter: _Letter) -> tuple[int, Mapping[str, Any]]:
        """Send it, and wait for the answer. Raises OSError, HTTPException, _NoAnswerYet."""
        connection = _Connection(self._socket_path, SLOW_LIMIT_S if letter.slowly else ANSWER_LIMIT_S)
        try:
            connection.request("POST", self._target, letter.body, {"Content-Type": "application/json"})
            try:
                reply = connection.getresponse()
            except TimeoutError:
                if not letter.slowly:
                    raise
                raise _NoAnswerYet from None
            found = json.loads(reply.read(1 << 20) or b"{}")
        except ValueError as fault:
            raise OSError("what answers does not speak JSON") from fault
        finally:
            connection.close()
        return reply.status, found if isinstance(found, dict) else {}


class _NoAnswerYet(Exception):
    """Whoever has taken the report is still at work on it."""


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket; a long path goes through the open directory."""

    def __init__(self, path: str, limit_s: float) -> None:
        super().__init__("ralphd", timeout=limit_s)
        self._path = path

    def connect(self) -> None:
        """Connect, within the time limit. Raises OSError."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(self.timeout)
        held = None
        try:
            address = self._path
            if len(os.fsencode(address)) > _LONGEST_ADDRESS:
                directory, _, name = address.rpartition("/")
                held = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                address = f"/proc/self/fd/{held}/{name}"
            link.connect(address)
        except BaseException:
            link.close()
            raise
        finally:
            if held is not None:
                os.close(held)
        self.sock = link

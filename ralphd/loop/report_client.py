"""The loop's reports to its Regent: queued, and sent again while the daemon is away.

A thread sends one report after the other, each every second until it is answered; the Regent acts on each
once, by its id. The loop waits for a reply only where it needs one.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import field
from typing import Any

from ralphd.core.gate.verdict import Verdict
from ralphd.core.gate.verdict_views import heard_in
from ralphd.core.supervision.model import Next
from ralphd.dataclass import dataclass
from ralphd.unix_http import BadReply, UnixConnection

logger = logging.getLogger(__name__)

MOST_KEPT = 2000
"""More reports than a night has. While the daemon is away the oldest are dropped, with a message."""
RETRY_S = 1.0
ANSWER_LIMIT_S = 30.0
SLOW_LIMIT_S = 3.0
"""A slow reply is requested again this often: a daemon that ended is noticed soon, and a loop that gives up
waiting ends within that time."""


@dataclass(frozen=True, slots=True)
class RegentReply:
    """What to do next, and at a boundary the verdict, if there is one."""

    next: Next = Next.CONTINUE
    verdict: Verdict | None = None


class Reports:
    """Receives the loop's reports; this one for a loop that nobody supervises: every reply is to continue.

    ``is_away``: the daemon does not answer.
    """

    is_away = False

    def report(self, kind: str, *, slowly: bool = False, **fields: Any) -> "Future[RegentReply]":
        """Queue a report; the future is its reply. ``slowly``: that may take as long as tests do."""
        reply: Future[RegentReply] = Future()
        reply.set_result(RegentReply())
        return reply

    def close(self, limit_s: float) -> None:
        """Send what is left, for no longer than ``limit_s``."""


@dataclass(slots=True)
class _QueuedReport:
    body: bytes
    id: str = ""
    slowly: bool = False
    reply: "Future[RegentReply]" = field(default_factory=Future)


class ReportClient(Reports):
    """Sends reports to the Regent of ``name`` over the daemon's socket; ``log`` gets its absences."""

    def __init__(self, socket: str, name: str, run_id: str, log: Callable[[str], None] = logger.info) -> None:
        self._socket, self._run_id, self._log = socket, run_id, log
        self._target = f"/v1/ralphs/{name}/reports"
        self._queue: queue.Queue[_QueuedReport] = queue.Queue(MOST_KEPT)
        self._count = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="reports", daemon=True)
        self._thread.start()

    def report(self, kind: str, *, slowly: bool = False, **fields: Any) -> "Future[RegentReply]":
        """Queue a report. A heartbeat is dropped while others wait: they prove as much."""
        self._count += 1
        body = {"run_id": self._run_id, "id": str(self._count), "kind": kind, **fields}
        queued = _QueuedReport(json.dumps(body).encode(), str(self._count), slowly)
        if kind == "heartbeat" and not self._queue.empty():
            queued.reply.set_result(RegentReply())
            return queued.reply
        while True:
            try:
                self._queue.put_nowait(queued)
                return queued.reply
            except queue.Full:
                with suppress(queue.Empty):
                    self._queue.get_nowait().reply.cancel()
                self._log("the daemon is away for so long that the oldest reports are let go")

    def close(self, limit_s: float) -> None:
        """Send what is left, for no longer than ``limit_s``."""
        self._closing.set()
        with suppress(queue.Full):
            self._queue.put_nowait(_QueuedReport(b""))
        self._thread.join(limit_s)

    def _send_all(self) -> None:
        while (queued := self._queue.get()).body:
            self._send(queued)

    def _send(self, queued: _QueuedReport) -> None:
        while not queued.reply.cancelled():
            try:
                status, content = self._post(queued)
            except _NoAnswerYet:
                continue
            except (OSError, BadReply) as fault:
                self._note_away(str(fault) or type(fault).__name__)
            else:
                if status < 500 and status not in (408, 429):
                    self._answered(queued, status, content)
                    return
                self._note_away(f"it answered {status}")
            if self._closing.wait(RETRY_S):
                time.sleep(RETRY_S / 10)  # as long as the closing waits

    def _answered(self, queued: _QueuedReport, status: int, content: Mapping[str, Any]) -> None:
        if self.is_away:
            self.is_away = False
            self._log("the daemon answers again")
        reply = RegentReply()
        if status == 200:
            following = content.get("next")
            following = Next(following) if following in tuple(Next) else Next.CONTINUE
            reply = RegentReply(following, heard_in(content.get("verdict"), f"{self._run_id}/{queued.id}"))
        else:
            detail = content.get("detail") or content.get("title") or status
            self._log(f"the daemon refused a report: {detail}")
        if not queued.reply.cancelled():
            queued.reply.set_result(reply)

    def _note_away(self, why: str) -> None:
        if not self.is_away:
            self.is_away = True
            self._log(f"the daemon does not answer ({why}): reports are kept and sent again")

    def _post(self, queued: _QueuedReport) -> tuple[int, Mapping[str, Any]]:
        """Send a report and wait for the reply. Raise OSError, BadReply, _NoAnswerYet."""
        connection = UnixConnection(self._socket, SLOW_LIMIT_S if queued.slowly else ANSWER_LIMIT_S)
        try:
            connection.request("POST", self._target, queued.body, {"Content-Type": "application/json"})
            try:
                reply = connection.getresponse()
            except TimeoutError:
                if not queued.slowly:
                    raise
                raise _NoAnswerYet from None
            with reply:
                content = json.loads(reply.read(1 << 20) or b"{}")
        except ValueError as fault:
            raise OSError("what answers does not speak JSON") from fault
        finally:
            connection.close()
        return reply.status, content if isinstance(content, dict) else {}


class _NoAnswerYet(Exception):
    """The daemon has received the report and still works on it."""

"""The daemon's own log: one line a fact, in ``ralphd.log``, and on stderr in the foreground."""

import logging
import os
import signal
import sys
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path

LOG_BYTES = 10 << 20
KEPT = 3


class LogFormatter(logging.Formatter):
    """``2026-11-21T20:00:00.000Z INFO demo: text``. What could forge a line or move a cursor is escaped."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(about)s%(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """One line, but for a traceback, whose lines follow it."""
        ralph = getattr(record, "ralph", None)
        record.about = f"{ralph}: " if ralph else ""
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line itself."""
        line = super().formatMessage(record)
        return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in line)


class LogFile(RotatingFileHandler):
    """``ralphd.log``, which is made again where somebody has deleted it: its next lines would be lost."""

    def shouldRollover(self, record: logging.LogRecord) -> int:
        if self.stream and not os.path.lexists(self.baseFilename):
            deleted, self.stream = self.stream, self._open()
            deleted.close()
        return super().shouldRollover(record)


def start_logging(path: Path, *, foreground: bool) -> None:
    """Log to ``path`` from now on: 10 MiB and two older files; in the foreground to stderr too."""
    own = LogFile(path, maxBytes=LOG_BYTES, backupCount=KEPT - 1, encoding="utf-8", delay=True)
    handlers: list[logging.Handler] = [own]
    if foreground:
        handlers.append(logging.StreamHandler(sys.stderr))
    for handler in handlers:
        handler.setFormatter(LogFormatter())
    # A full disk must not turn into a traceback on a stream that nobody reads.
    logging.raiseExceptions = False
    logging.basicConfig(level=logging.INFO, handlers=handlers, force=True)
    logging.captureWarnings(True)
    for quiet in ("uvicorn.error", "uvicorn.access", "httpx", "asyncio"):
        logging.getLogger(quiet).setLevel(logging.WARNING)


class LogLimit:
    """Writes warnings about one thing, at most one in EVERY_S; the next one has the number left out."""

    EVERY_S = 60.0

    def __init__(self, logger: logging.Logger) -> None:
        self._logger, self._since, self._left_out = logger, -self.EVERY_S, 0

    def warn(self, text: str) -> None:
        """Write ``text``, or count it."""
        now = time.monotonic()
        if now - self._since < self.EVERY_S:
            self._left_out += 1
            return
        more = f" ({self._left_out} more in the meantime)" if self._left_out else ""
        self._since, self._left_out = now, 0
        self._logger.warning("%s%s", text, more)


# Named places where a test can end this process, to prove that any line may be the last.


_GIVEN = os.environ.get("RALPHD_FAILPOINTS", "")
_ARMED = dict(item.split("=", 1) for item in _GIVEN.split(",") if "=" in item)
_WHEN = os.environ.get("RALPHD_FAILPOINTS_WHEN")


def reach(name: str) -> None:
    """Pass the place called ``name``; when it is armed with ``kill``, end this process with SIGKILL."""
    if _ARMED and _ARMED.get(name) == "kill" and (_WHEN is None or Path(_WHEN).exists()):
        os.kill(os.getpid(), signal.SIGKILL)

"""What a script of a run says to its Regent: the report, sent until it is answered or the time is up.

A report keeps its id over all attempts, so that it is acted upon once however often it arrives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ralphctl import link
from ralphctl.client import Client, Reply
from ralphctl.tell import message
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, ShuttingDown, UsageError

AGAIN_S = 1.0
"""From one attempt to reach the daemon to the next."""
LONGEST_ATTEMPT_S = 3600.0
"""A socket waits for 24 days at most; whoever is more patient asks again."""
WAS_THERE_S = 2.0
"""A daemon that was asked for so long was at work on the answer: it is not away for as long."""
EXIT_UNDELIVERED = DaemonNotRunning.exit_code
EXIT_CODES = {"continue": wire.EXIT_OK, "stop": 10, "pause": wire.EXIT_PAUSED}
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MOST_COUNT, MOST_USD, MOST_SECONDS = 10**9, 10**6, 10**9
"""As the API takes them: said here in the words of the command line."""
_MOST_WORD_CHARS, _MOST_LINE_CHARS, _MOST_TEXT_CHARS = 100, 500, 4000
_MOST_NAMED = 3
_FORMS = "a moment is 2026-11-22T03:00:00Z, or +90s, +15m, +2h from now, or over"


class Undelivered(DaemonNotRunning):
    """The daemon could not be told anything for as long as the script wanted to wait."""

    slug = "undelivered"


@dataclass(frozen=True, slots=True)
class Run:
    """The run that a script belongs to, by its environment."""

    name: str
    run_id: str

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Run:
        """Raises UsageError outside of a run."""
        name, run_id = environ.get("RALPH_NAME", ""), environ.get("RALPH_RUN_ID", "")
        if not is_id(run_id) or not wire.is_name(name):
            raise UsageError(
                "notify is for scripts that a ralph runs, and this is none",
                why="RALPH_NAME and RALPH_RUN_ID are not set here as they are in the environment of a run",
                mend="ralphctl start DIR -- ./loop.sh  (and notify in loop.sh)",
            )
        return cls(name, run_id)


def client_of_run(given: str | None, environ: Mapping[str, str]) -> Client:
    """Who supervises this run: ``--socket``, the environment's, or whoever has taken its place since.

    Another daemon of this user is not asked: it would not know the run.
    """

    def find() -> list[str]:
        if given or not environ.get("RALPHD_SOCKET"):
            return link.candidates(given, environ, _directory())
        signpost = link.signpost(_directory())
        return list(dict.fromkeys(path for path in (environ["RALPHD_SOCKET"], signpost) if path))

    return Client(find)


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # deleted; nothing points anywhere from there
        return "/"


@dataclass(slots=True)
class Postman:
    """Sends one report until it is answered; ``timeout_s`` seconds at most.

    With ``patient`` only the time counts in which the daemon is away: an answer takes as long as it takes.
    """

    client: Client
    name: str
    timeout_s: float
    patient: bool = False
    _began: float = field(default_factory=time.monotonic)
    _said: bool = False

    def deliver(self, report: Mapping[str, object]) -> Reply:
        """The answer. Raises Undelivered when none came in time, and what the daemon refuses."""
        while True:
            asked = time.monotonic()
            try:
                return self.client.report(self.name, report, limit_s=self._attempt_s())
            except (DaemonNotRunning, DaemonBusy, ShuttingDown) as away:
                # One that is away, on its way out, or hangs: the next one, or itself, answers the same id.
                if self.patient and time.monotonic() - asked > WAS_THERE_S:
                    self._began = time.monotonic()
                self._wait(away)

    def _attempt_s(self) -> float:
        if self.patient:
            return LONGEST_ATTEMPT_S
        return min(max(self._left_s(), 0.1), LONGEST_ATTEMPT_S)

    def _left_s(self) -> float:
        return self.timeout_s - (time.monotonic() - self._began)

    def _wait(self, away: DaemonNotRunning | DaemonBusy | ShuttingDown) -> None:
        if (left_s := self._left_s()) <= 0:
            raise Undelivered(
                f"after {self.timeout_s:g} s the report was not delivered: {away.what}",
                why=away.why,
                mend=away.mend,
            ) from away
        if not self._said:
            self._said = True
            message(f"{away.what}; the report is sent again for {self.timeout_s:g} s at most")
        time.sleep(min(AGAIN_S, left_s))


def new_id() -> str:
    """An id that no other report has."""
    return os.urandom(12).hex()


def is_id(text: str) -> bool:
    """Whether the API takes ``text`` for the id of a run or of a report."""
    return bool(text) and text.isprintable() and len(text) <= _MOST_WORD_CHARS


def one_line(text: str, most_chars: int = _MOST_LINE_CHARS) -> str:
    """``text`` as the API takes it for a title or a reason: one line, not too long."""
    shown = "".join(character for character in text if character.isprintable() or character.isspace())
    return " ".join(shown.split())[:most_chars]


def word(text: str | None) -> str | None:
    """``text`` as the API takes it for a name: an agent, a task; None for an empty one."""
    return one_line(text or "", _MOST_WORD_CHARS) or None


def bounded(text: str) -> str:
    """``text`` as the API takes it for a summary; bytes that are no text become question marks.

    It is cut out of what an agent wrote, as often as not amid a character: no boundary is lost for that.
    """
    return text.replace("\0", "").encode(errors="replace").decode()[:_MOST_TEXT_CHARS]


def moment(text: str, now: float) -> str | None:
    """The moment that ``until`` means, in RFC 3339; None for ``over``. Raises UsageError."""
    if text == "over":
        return None
    try:
        at = _from_now(text[1:], now) if text.startswith("+") else datetime.fromisoformat(text)
    except (ValueError, OverflowError) as fault:
        raise UsageError(f"--until {text}: this is no moment", why=_FORMS) from fault
    if at.tzinfo is None:
        raise UsageError(f"--until {text}: the zone is missing", why=_FORMS)
    return at.isoformat()


def _from_now(text: str, now: float) -> datetime:
    unit = _UNITS.get(text[-1:])
    seconds = float(text if unit is None else text[:-1]) * (unit or 1.0)
    if not 0 <= seconds < 1e9:
        raise ValueError(text)
    return datetime.fromtimestamp(now, UTC) + timedelta(seconds=seconds)


def verdict_words(verdict: Mapping[str, Any]) -> str:
    """A verdict on one line: ``reverted abc1234: the tests failed, and pass without it``."""
    about = verdict["reverted"] if verdict["kind"] == "reverted" else verdict["commits"]
    names = [sha[:7] for sha in about[:_MOST_NAMED]]
    more = f" and {len(about) - _MOST_NAMED} more" if len(about) > _MOST_NAMED else ""
    return f"{verdict['kind']}{' ' * bool(names)}{', '.join(names)}{more}: {verdict['why']}"


def without_empty(words: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of the options."""
    return {name: value for name, value in words.items() if value is not None}

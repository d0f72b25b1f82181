"""One ralph on a terminal: its log, its news in panels, and below them how it is now (VW-5).

Threads of its own read and write; the main one heeds keys and signals, and sees the end. Where stdout is no
terminal there are plain lines, and no keys.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from ralphctl import countdown, streams
from ralphctl.client import Client
from ralphctl.controls import Controls
from ralphctl.keys import Keyboard
from ralphctl.lines import events_of, lines_of
from ralphctl.local import place
from ralphctl.screen import Screen
from ralphctl.tell import message
from ralphctl.view import news, region
from ralphctl.view.bell import Bell
from ralphctl.view.drawing import Drawing
from ralphctl.waiting import is_settled
from ralphd.errors import RalphdError

T = TypeVar("T")
View: TypeAlias = dict[str, Any]

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
_DRAW_S = 0.25
"""Four times a second at most, so that a countdown never skips a second."""
_SETTLES_S = 0.3
"""News waits so long for the lines of the log that came before it, and for what follows from it."""
_MOST_NEWS = 200
_PLACES_S = 5.0
"""The task list is read so often at most."""
_REGION_ROWS, _SMALL_LINES = 3, 8
_BACKGROUND_S = 0.5
"""So often it is looked whether the terminal is ours by now."""
_SILENT_S = 5.0
"""A daemon that has not answered for so long is not about to."""
_AWAY_S = 1.0
"""A daemon that is away for less is not worth a word."""


class Over(Exception):
    """There will be nothing more: the log is not to be waited for."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a view comes from: the log from ``begin`` on, events after ``last_event``.

    ``look`` gives how it is now, None while nobody can tell. It may raise Over. ``is_over`` is asked when
    the daemon is away: whether there is no use in waiting for it.
    """

    client: Client
    name: str
    begin: Mapping[str, str]
    last_event: int
    look: Callable[[], View | None]
    is_over: Callable[[], bool] = field(default=lambda: False)


def last_event(client: Client) -> int:
    """The id of the last event there was."""
    past = list(events_of(lines_of(client.past_events(1))))
    return int(past[-1]["id"]) if past else 0


class LiveView:
    """What is shown of one ralph. ``controls`` are set before it is begun."""

    def __init__(self, source: Source, bell: Bell, keyboard: Keyboard) -> None:
        self._source, self._bell, self._keyboard = source, bell, keyboard
        self.screen = Screen(self._unprinted)
        self.controls: Controls | None = None
        self.view: View = {}
        self.is_gone = False
        """Whether it will not be seen any more."""
        self._drawing = (
            Drawing(colour=self.screen.has_colour, utf8=self.screen.is_utf8) if self.screen.is_live else None
        )
        self._news: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST_NEWS)
        self._place: tuple[float, object, tuple[int, int] | None] = (0.0, None, None)
        self._away_since: float | None = None
        self._asked_at: float | None = None
        self._told_away = False
        self._told_wait: float | None = None
        self._stirred, self._stale = threading.Event(), threading.Event()
        self._over = False

    # --- on the main thread ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Show it from now on."""
        self._keyboard.resting = self.screen.rest
        work = [self._follow, self._look, self._refresh_always]
        for each in (*work, self._hear) if self.screen.is_live else work:
            threading.Thread(target=each, daemon=True).start()

    def wait(self, end: Callable[[], T | None], *, beside: Sequence[int] = ()) -> T:
        """Heed keys until ``end`` says why it is over; asked whenever something stirs.

        ``beside`` are descriptors that wake it too.
        """
        while (found := end()) is None:
            again_ms = self._look_at_the_terminal()
            ready = dict(self._poll(beside).poll(again_ms))
            self._bell.hush()
            if ready.get(sys.stdout.fileno(), 0) & (select.POLLERR | select.POLLHUP):
                self.screen.is_broken = True
            elif self._keyboard.is_ours:
                if ready.get(self._keyboard.fd, 0):
                    self._heed(self._keyboard.read())
                self.screen.wake()
            self._stale.set()
        return found

    def _look_at_the_terminal(self) -> float | None:
        """Take it where it is ours by now; else in how many milliseconds to look again."""
        if self._keyboard.look():
            self.screen.wake()
            self._stale.set()
        elif self._keyboard.is_usable:
            return 1000 * _BACKGROUND_S
        return None

    def _poll(self, beside: Sequence[int]) -> select.poll:
        poll = select.poll()
        for descriptor in (self._bell.fd, *beside):
            poll.register(descriptor, select.POLLIN)
        if self._keyboard.is_ours:
            poll.register(self._keyboard.fd, select.POLLIN)
        poll.register(sys.stdout.fileno(), 0)  # POLLERR, POLLHUP: its reader is gone
        return poll

    def _heed(self, keys: bytes) -> None:
        assert self.controls is not None
        for key in keys:
            self.controls.press(key, self.view)
            if self.controls.question is not None:
                if not self.screen.is_live:
                    self.say(self.controls.question.text)
                return  # what was typed, or pasted, together with it has not read it

    def say(self, text: str) -> None:
        """A message on lines of its own, above the region."""
        self.screen.say(text)

    def stir(self) -> None:
        """Look at it now."""
        self._stirred.set()

    def finish(self) -> None:
        """Print what is left of the log, and the news that is left. Blocks as long as its reader takes."""
        if self._drawing is not None:
            self._place_news(self._drawing, 0.0)
        self.screen.finish(self._rest)

    def close(self) -> None:
        """Take the region away; nothing more is shown."""
        self._over = True
        self.screen.close()

    def last_words(self, lines: Sequence[str]) -> str:
        """What to say of its end: a panel where there is a view, else the lines as they are."""
        if self._drawing is None or not sys.stderr.isatty():
            return "\n".join(lines)
        panel = news.last_words(self.view, lines)
        return self._drawing.panel(panel, self.screen.size[0]).removesuffix("\n")

    def _rest(self, cursor: str | None) -> Iterator[dict[str, Any]]:
        source = self._source
        begin = source.begin if cursor is None else {"cursor": cursor}
        return map(json.loads, lines_of(source.client.log(source.name, {**begin, "format": "json"})))

    def _unprinted(self, why: str) -> None:
        name = self._source.name
        with suppress(OSError):
            message(f"what {name} prints cannot be written here: {why}; it goes on, and ralphctl logs has it")

    # --- in threads of their own ----------------------------------------------------------------------

    def _follow(self) -> None:
        """Print what comes. A line of the Regent's mostly means that something has changed."""
        source = self._source
        try:
            for records in streams.log_batches(source.client, source.name, source.begin, on_away=self._away):
                if not self.screen.put(records):
                    break
                if any(record.get("stream") == "regent" for record in records):
                    self._stirred.set()
        except (Over, RalphdError):
            pass
        self._bell.ring()

    def _hear(self) -> None:
        """Keep what happens to it, for panels."""
        source = self._source
        with suppress(Over, RalphdError):
            for event in streams.events(source.client, source.last_event, on_away=self._quietly):
                if event["ralph"] in (source.name, None):
                    self._news.append((time.monotonic(), event))
                    self._stirred.set()
                if self._over:
                    return

    def _away(self) -> None:
        self._quietly()
        self._away_since = time.monotonic()

    def _quietly(self) -> None:
        if self._over or self._source.is_over():
            raise Over

    def _look(self) -> None:
        """Look how it is: at once when something stirs, and soon again, then every second."""
        pause_s = _FIRST_PAUSE_S
        while not self._over:
            self._asked_at = self._asked_at or time.monotonic()
            try:
                view = self._source.look()
            except Over:
                self.is_gone = True
                self._bell.ring()
                return
            if view is not None:
                self._asked_at = None
                self._seen(view)
            if self._stirred.wait(pause_s):
                self._stirred.clear()
                pause_s = _FIRST_PAUSE_S
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _seen(self, view: View) -> None:
        self.view = view
        self._away_since, self._told_away = None, False
        key, now = (view.get("run_id"), view.get("task")), time.monotonic()
        if self.screen.is_live and (key != self._place[1] or now - self._place[0] > _PLACES_S):
            self._place = (now, key, place.of_task(view, os.environ))
        if is_settled(view):
            self._bell.ring()

    def _refresh_always(self) -> None:
        while not self._over:
            self._tell_away()
            if self._drawing is None:
                self._tell_wait(time.time())
            else:
                self._place_news(self._drawing, _SETTLES_S)
                self._refresh(self._drawing)
            self._stale.wait(_DRAW_S)
            self._stale.clear()

    def _refresh(self, drawing: Drawing) -> None:
        if not self.view:
            return
        asked = self.controls.question if self.controls is not None else None
        columns, rows = self.screen.size
        sight = region.Sight(
            place=self._place[2], trouble=self._trouble(), question=asked.text if asked else "",
            has_keys=self._keyboard.is_ours,
        )  # fmt: skip
        most = _REGION_ROWS if rows > _SMALL_LINES else 1
        lines = region.lines(self.view, sight, time.time(), columns, rows=most)
        self.screen.show(drawing.region(lines, columns), must_be_seen=asked is not None)

    def _place_news(self, drawing: Drawing, settled_s: float) -> None:
        """Panels for what is known for so long."""
        events: list[dict[str, Any]] = []
        with suppress(IndexError):  # none left, or another thread has just taken them
            if time.monotonic() - self._news[0][0] >= settled_s:
                while True:
                    events.append(self._news.popleft()[1])
        for panel in news.panels(events, self.view, time.time()):
            self.screen.place(drawing.panel(panel, self.screen.size[0]))

    def _is_away(self) -> bool:
        since = self._away_since
        return since is not None and time.monotonic() - since > _AWAY_S

    def _trouble(self) -> str:
        """Why what is shown may be old; empty when it is not."""
        if self._is_away():
            return "ralphd is away"
        asked_at = self._asked_at
        is_silent = asked_at is not None and time.monotonic() - asked_at > _SILENT_S
        return "ralphd does not answer" if is_silent else ""

    def _tell_away(self) -> None:
        if self._is_away() and not self._told_away and not self._over:
            self._told_away = True
            self.say("ralphd is away: waiting for it, and going on when it is back  (ralphctl regent start)")

    def _tell_wait(self, now: float) -> None:
        """Where nothing can be counted down, a wait is said once."""
        ends = countdown.end_of(self.view)
        if ends is not None and ends != self._told_wait and (said := countdown.beginning(self.view, now)):
            self._told_wait = ends
            self.say(said)

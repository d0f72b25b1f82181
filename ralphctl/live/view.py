"""Show one ralph on a terminal: its log, panels between its lines, and a region with the present state below.

Threads read from the daemon and write; the main thread handles keys and signals and sees the end. Where
stdout is not a terminal there are plain lines and no keys (docs/decisions/0008-build-and-live-view.md).
"""

from __future__ import annotations

import io
import os
import select
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ralphctl.client import streams, waiting
from ralphctl.client.client import Client
from ralphctl.format.humanize import cells, count, cut, duration, moment, usd_words
from ralphctl.format.output import clean
from ralphctl.format.state_text import is_built_in
from ralphctl.live import news, screen
from ralphctl.live.keys import Controls, Keyboard, View
from ralphctl.offline import state as offline
from ralphd import overview, wire
from ralphd.dataclass import dataclass
from ralphd.errors import RalphdError

T = TypeVar("T")

_FIRST_POLL_S, _LONGEST_POLL_S = 0.02, 1.0
_DRAW_S = 0.25
"""The least time between two drawings; with it a countdown never skips a second."""
_SETTLE_S = 0.3
"""How long a panel waits for the lines of the log before it, and for the consequences of its event."""
_MOST_NEWS = 200
_TASK_LIST_S = 5.0
"""The least time between two readings of the task list."""
_REGION_ROWS, _SMALL_LINES = 3, 8
_BACKGROUND_POLL_S = 0.5
_SILENT_S = 5.0
"""A daemon that takes longer to answer is reported."""
_AWAY_S = 1.0
"""A daemon that is away for less is not reported."""
_QUIET_S = 60.0
"""A run that prints nothing for so long is called quiet."""


class ViewClosed(Exception):
    """There will be nothing more to show."""


class LiveView:
    """The live view of one ralph: its log from ``first`` on, its events after ``last_event``, its state.

    A subclass defines ``look`` and ``is_over``, and sets ``controls``.
    """

    controls: Controls
    events = "text"
    """How events of agents are shown: ``raw``, ``text``, or ``verbose``, with the results of tools."""

    def __init__(
        self, client: Client, name: str, first: Mapping[str, str], last_event: int, keyboard: Keyboard
    ) -> None:
        self.client, self.name = client, name
        self.view: View = {}
        self._first, self._last_event = first, last_event
        self.keyboard, self.waker = keyboard, keyboard.waker
        self.screen = screen.Screen(self._unprinted)
        self.is_gone = False
        """True when the ralph will not be seen any more."""
        self._drawing = Drawing(colour=self.screen.has_colour) if self.screen.is_live else None
        self._news: deque[tuple[float, dict[str, Any]]] = deque(maxlen=_MOST_NEWS)
        self._position: tuple[float, object, tuple[int, int] | None] = (0.0, None, None)
        self._away_since: float | None = None
        self._polled_at: float | None = None
        self._reported_wait: float | str | None = None
        self._poll_early, self._stale = threading.Event(), threading.Event()
        self._over = self._has_reported_away = False

    def look(self) -> View | None:
        """Return the state, or None while it is not known. May raise ViewClosed."""
        raise NotImplementedError

    def is_over(self) -> bool:
        """Return whether it is pointless to wait for a daemon that is away."""
        raise NotImplementedError

    # --- on the main thread ---

    def begin(self) -> None:
        self.keyboard.resting = self.screen.rest
        work = [self._follow_log, self._poll_state, self._refresh_always]
        for each in (*work, self._follow_events) if self.screen.is_live else work:
            threading.Thread(target=each, daemon=True).start()

    def wait(self, end: Callable[[], T | None], *, beside: Sequence[int] = ()) -> T:
        """Handle keys until ``end``, called whenever something happens, returns a value. Return that.

        ``beside`` are descriptors whose input wakes it too.
        """
        while (result := end()) is None:
            again_ms = self._look_at_the_terminal()
            ready = dict(self._poll(beside).poll(again_ms))
            self.waker.clear()
            if ready.get(sys.stdout.fileno(), 0) & (select.POLLERR | select.POLLHUP):
                self.screen.is_broken = True
            elif self.keyboard.is_ours:
                if ready.get(self.keyboard.fd, 0):
                    self._press(self.keyboard.read())
                self.screen.wake()
            self._stale.set()
        return result

    def _look_at_the_terminal(self) -> float | None:
        """Take the terminal if it has become ours, else return the milliseconds until the next look."""
        if self.keyboard.look():
            self.screen.wake()
            self._stale.set()
        elif self.keyboard.is_usable:
            return 1000 * _BACKGROUND_POLL_S
        return None

    def _poll(self, beside: Sequence[int]) -> select.poll:
        poll = select.poll()
        for descriptor in (self.waker.fd, *beside):
            poll.register(descriptor, select.POLLIN)
        if self.keyboard.is_ours:
            poll.register(self.keyboard.fd, select.POLLIN)
        poll.register(sys.stdout.fileno(), 0)  # for POLLERR and POLLHUP: its reader is gone
        return poll

    def _press(self, keys: bytes) -> None:
        for key in keys:
            self.controls.press(key, self.view)
            if self.controls.question is not None:
                if not self.screen.is_live:
                    self.say(self.controls.question.text)
                return  # keys typed or pasted with this one cannot be an answer to the question

    def say(self, text: str) -> None:
        """Print a message on lines of its own, above the region."""
        self.screen.say(text)

    def poll_now(self) -> None:
        """Poll the state without waiting for the next turn."""
        self._poll_early.set()

    def finish(self) -> None:
        """Print the rest of the log and the last panels. Block as long as the reader takes."""
        if self._drawing is not None:
            self._print_panels(self._drawing, 0.0)
        self.screen.finish(self._rest)

    def close(self) -> None:
        """Remove the region and show nothing more."""
        self._over = True
        self.screen.close()

    def last_words(self, lines: Sequence[str]) -> str:
        """Return the text about its end: a panel where there is a view, else the lines as they are."""
        if self._drawing is None or not sys.stderr.isatty():
            return "\n".join(lines)
        return self._drawing.panel(news.last_words(self.view, lines), self.screen.size[0]).removesuffix("\n")

    def _rest(self, cursor: str | None) -> Iterator[dict[str, Any]]:
        first = self._first if cursor is None else {"cursor": cursor}
        return self.client.log(self.name, {**first, "events": self.events})

    def _unprinted(self, why: str) -> None:
        what = f"the output of {self.name} cannot be written here: {why}"
        screen.say(f"{what}; it is stored, see ralphctl logs")

    # --- in threads of their own ---

    def _follow_log(self) -> None:
        try:
            first = {**self._first, "events": self.events}
            for records in streams.log_batches(self.client, self.name, first, on_away=self._away):
                if not self.screen.put(records):
                    break
                # The Regent mostly logs changes of the state.
                if any(record.get("stream") == "regent" for record in records):
                    self._poll_early.set()
        except (ViewClosed, RalphdError):
            pass
        self.waker.wake()

    def _follow_events(self) -> None:
        with suppress(ViewClosed, RalphdError):
            for event in streams.events(self.client, self._last_event, on_away=self._check_open):
                if event["ralph"] in (self.name, None):
                    self._news.append((time.monotonic(), event))
                    self._poll_early.set()
                if self._over:
                    return

    def _away(self) -> None:
        self._check_open()
        self._away_since = time.monotonic()

    def _check_open(self) -> None:
        if self._over or self.is_over():
            raise ViewClosed

    def _poll_state(self) -> None:
        """Poll at once after ``poll_now``, again soon, then every second."""
        pause_s = _FIRST_POLL_S
        while not self._over:
            self._polled_at = self._polled_at or time.monotonic()
            try:
                view = self.look()
            except ViewClosed:
                self.is_gone = True
                self.waker.wake()
                return
            if view is not None:
                self._polled_at = None
                self._seen(view)
            if self._poll_early.wait(pause_s):
                self._poll_early.clear()
                pause_s = _FIRST_POLL_S
            pause_s = min(2 * pause_s, _LONGEST_POLL_S)

    def _seen(self, view: View) -> None:
        self.view = view
        self._away_since, self._has_reported_away = None, False
        key, now = (view.get("run_id"), view.get("task")), time.monotonic()
        if self.screen.is_live and (key != self._position[1] or now - self._position[0] > _TASK_LIST_S):
            self._position = (now, key, offline.task_position(view, os.environ))
        if waiting.is_settled(view):
            self.waker.wake()

    def _refresh_always(self) -> None:
        while not self._over:
            if self._is_away() and not self._has_reported_away and not self._over:
                self._has_reported_away = True
                self.say("ralphd is away: waiting for it; the run continues  (ralphctl regent start)")
            if self._drawing is None:
                self._report_wait(time.time())
            else:
                self._print_panels(self._drawing, _SETTLE_S)
                self._refresh(self._drawing)
            self._stale.wait(_DRAW_S)
            self._stale.clear()

    def _refresh(self, drawing: Drawing) -> None:
        if not self.view:
            return
        question = self.controls.question
        columns, rows = self.screen.size
        asked = question.text if question else ""
        context = RegionContext(self._position[2], self._trouble(), asked, self.keyboard.is_ours)
        most = _REGION_ROWS if rows > _SMALL_LINES else 1
        lines = region_lines(self.view, context, time.time(), columns, rows=most)
        self.screen.show(drawing.region(lines, columns), must_be_seen=question is not None)

    def _print_panels(self, drawing: Drawing, settled_s: float) -> None:
        """Print the panels for the events that came at least ``settled_s`` ago."""
        events: list[dict[str, Any]] = []
        with suppress(IndexError):  # none left, or another thread has just taken them
            if time.monotonic() - self._news[0][0] >= settled_s:
                while True:
                    events.append(self._news.popleft()[1])
        if alerts := "".join(map(news.terminal_alert, events)):
            self.screen.put_panel(alerts)
        for panel in news.panels(events, self.view, time.time()):
            self.screen.put_panel(drawing.panel(panel, self.screen.size[0]))

    def _is_away(self) -> bool:
        since = self._away_since
        return since is not None and time.monotonic() - since > _AWAY_S

    def _trouble(self) -> str:
        """Return why the state may be old; empty if it is not."""
        if self._is_away():
            return "ralphd is away"
        polled_at = self._polled_at
        is_silent = polled_at is not None and time.monotonic() - polled_at > _SILENT_S
        return "ralphd does not answer" if is_silent else ""

    def _report_wait(self, now: float) -> None:
        """Print the present wait once, since without a region nothing counts it down."""
        ends, text = screen.wait_ends_at(self.view), screen.wait_announcement(self.view, now)
        if text and (ends or text) != self._reported_wait:
            self._reported_wait = ends or text
            self.say(text)


# --- the region, as text ---

_HINT = "?: keys"
LEAST_WIDTH = 10
_MOST_QUESTION_LINES = 6


@dataclass(frozen=True, slots=True)
class RegionContext:
    """What the region shows beside the view: the task's position, n of m, and an open question.

    ``trouble`` says why the present state is not known.
    """

    task_position: tuple[int, int] | None = None
    trouble: str = ""
    question: str = ""
    has_keys: bool = False


def region_lines(view: View, context: RegionContext, now: float, width: int, *, rows: int = 3) -> list[str]:
    """Return the region for ``width`` columns, of which one stays free, in at most ``rows`` lines.

    A question may take more lines: it is never cut.
    """
    room = max(width - 1, LEAST_WIDTH)
    shown = [_head(view, context, now, room)]
    if context.question:
        return shown + textwrap.wrap(context.question, room)[:_MOST_QUESTION_LINES]
    more = [_wait(view, context, now, room), _task(view, context, room)]
    # the wait comes last, nearest to the keys
    return shown + [line for line in more if line][: max(rows - 1, 0)][::-1]


def _head(view: View, context: RegionContext, now: float, room: int) -> str:
    """Return ``── demo · running · 12m 5s · iteration 4 · claude · $0.42 ────── ?: keys``."""
    inner = room - len("── ")
    parts = _parts(view, context, now)
    while len(parts) > 1 and cells(_joined(parts)) > inner:
        parts.remove(max(parts))
    head = f"── {cut(_joined(parts), inner)} "
    hint = f" {_HINT}" if context.has_keys and cells(head) + len(_HINT) + 3 <= room else ""
    return cut(head + "─" * (room - cells(head) - len(hint)) + hint, room)


def _parts(view: View, context: RegionContext, now: float) -> list[tuple[int, str]]:
    """Return the parts of the head in order, each with its rank: the highest is dropped first."""
    state = str(view.get("state") or "?")
    runs = state not in wire.SETTLED_STATES
    began, printed = moment(view.get("started_at")), moment(view.get("last_output_at"))
    quiet = state == "running" and printed is not None and now - printed >= _QUIET_S and now - printed
    row = overview.Row(view)
    parts = [
        (0, clean(row.name)),
        (1, context.trouble or clean(row.word)),
        (4, duration(now - began) if runs and began is not None else ""),
        (2, _iteration(view)),
        (5, clean(row.agent)),
        (3, usd_words(row.cost_usd) if row.cost_usd else ""),
        (6, f"quiet for {duration(quiet)}" if quiet else ""),
    ]
    return [(rank, text) for rank, text in parts if text]


def _joined(parts: Sequence[tuple[int, str]]) -> str:
    return " · ".join(text for _, text in parts)


def _iteration(view: View) -> str:
    """Return the present iteration if the checkpoint has it, else the number of finished ones."""
    checkpoint, done = view.get("checkpoint"), view.get("iteration")
    present = checkpoint.get("iteration") if isinstance(checkpoint, dict) and is_built_in(view) else None
    if isinstance(present, int) and view.get("state") not in wire.SETTLED_STATES:
        return f"iteration {present}"
    return count(done, "iteration") if isinstance(done, int) and done else ""


def _task(view: View, context: RegionContext, room: int) -> str:
    if not isinstance(view.get("task"), dict) or view.get("state") in wire.SETTLED_STATES:
        return ""
    title = clean(overview.Row(view).task or "?")
    where = f" {context.task_position[0]} of {context.task_position[1]}" if context.task_position else ""
    return cut(f"task{where}: {title}", room)


def _wait(view: View, context: RegionContext, now: float, room: int) -> str:
    texts = screen.countdown_lines(view, now, has_keys=context.has_keys)
    return next((text for text in texts if cells(text) <= room), cut(texts[-1], room) if texts else "")


# --- the region and the panels, drawn ---

_MOST_COLUMNS = 100
_COLOURS = {"error": "red", "warning": "yellow", "info": "blue", "success": "green"}
"""By kind of panel."""
_STYLES = ("color(208)", "default")
"""Of the first line of the region, and of the others."""


class Drawing:
    """Draw panels and the region as strings for one terminal. Rich is imported when a view is made (P3)."""

    def __init__(self, *, colour: bool) -> None:
        from rich.console import Console

        self._lock = threading.Lock()
        self._console = Console(
            file=io.StringIO(), force_terminal=True, color_system="256" if colour else None, width=80,
            highlight=False, markup=False, emoji=False, legacy_windows=False, safe_box=False,
        )  # fmt: skip
        self._last: tuple[Sequence[str], screen.Painted] = ((), screen.NOTHING)

    def region(self, lines: Sequence[str], width: int) -> screen.Painted:
        """Draw the region. The same lines give the same object, without a call of rich."""
        if self._last[0] != lines:
            from rich.text import Text

            texts = [Text(line, style=_STYLES[i > 0], no_wrap=True) for i, line in enumerate(lines)]
            widths = tuple(map(cells, lines))
            text = self._drawn(Text("\n").join(texts), max(width, *widths))
            self._last = (lines, screen.Painted(text.removesuffix("\n"), widths))
        return self._last[1]

    def panel(self, shown: news.Panel, width: int) -> str:
        """Return the panel as lines. It has no sides, so that a command in it can be copied."""
        from rich import box, panel, text

        title = f"{shown.kind}: {shown.title}"
        columns = max(min(width, _MOST_COLUMNS), LEAST_WIDTH)
        is_short = cells(title) + 6 <= columns
        body = "\n".join(shown.lines if is_short else (shown.title, *shown.lines))
        colour = _COLOURS[shown.kind]
        drawn = panel.Panel(
            text.Text(body, overflow="fold"),
            title=text.Text(title if is_short else str(shown.kind), style=f"bold {colour}"),
            title_align="left", box=box.HORIZONTALS, border_style=colour, padding=(0, 0),
        )  # fmt: skip
        return self._drawn(drawn, columns)

    def _drawn(self, what: object, width: int) -> str:
        with self._lock:
            self._console.width = width
            with self._console.capture() as captured:
                self._console.print(what)
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

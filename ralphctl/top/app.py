"""The app of ``top``: keys in, pictures out. The only module that imports textual, an extra."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Key, Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ralphctl.live.keys import Controls, View, ViewKey
from ralphctl.top.feed import TopFeed
from ralphctl.top.page import TopScreen, page, shown_rows
from ralphd import wire

_FRAME_S = 0.5
_MESSAGE_S = 8.0
_MORE = (
    *(("↑ ↓ PgUp PgDn", "select a ralph"), ("Enter", "attach"), ("l", "logs")),
    *(("d", "the changes of its last iteration"), ("e", "explain")),
)
_PROGRAMS = {"enter": ("attach",), "l": ("logs", "--follow"), "d": ("diff",), "e": ("explain",)}
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -10, "pagedown": 10, "home": -10_000, "end": 10_000}


class TopLines(Widget):
    """Lines of text. Only those that differ from the last ones are drawn: most seconds, that is the clock."""

    lines: Sequence[str] = ()

    def show(self, lines: Sequence[str]) -> None:
        """Draw these lines, which are as wide as the screen at most."""
        rows, before = max(len(lines), len(self.lines)), self.lines
        self.lines = lines
        changed = [y for y in range(rows) if before[y : y + 1] != lines[y : y + 1]]
        if changed:
            self.refresh(*(Region(0, y, self.size.width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        """Return one line."""
        text = Text.from_ansi(self.lines[y], no_wrap=True) if y < len(self.lines) else Text()
        return Strip(text.render(self.app.console)).adjust_cell_length(self.size.width)


class TopApp(App[int]):
    """All ralphs on one screen. ``words`` stand before the words of each ``ralphctl`` that a key runs."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "interrupt", priority=True),
        Binding("ctrl+z", "suspend_process", priority=True),
    ]
    CSS = "Screen { overflow: hidden hidden; background: ansi_default; } TopLines { height: 100%; }"

    def __init__(self, feed: TopFeed, *, colour: bool, utf8: bool, words: Sequence[str] = ()) -> None:
        super().__init__(ansi_color=True)
        self._feed, self._colour, self._utf8, self._words = feed, colour, utf8, words
        self._message, self._said_at, self._second = "", 0.0, 0
        self.picture = TopLines()
        self._controls = self._controls_of("")
        self._select(0)

    # --- what is shown ---

    def compose(self) -> ComposeResult:
        """Return the one widget: the picture is text."""
        yield self.picture

    def on_mount(self) -> None:
        """Begin to draw news, twice a second at most, and to heed signals."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(ValueError, RuntimeError):  # tests run it outside of the main thread
                asyncio.get_running_loop().add_signal_handler(number, self.action_interrupt)
        self._feed.start()
        self.set_interval(_FRAME_S, self._draw_news)

    def on_resize(self, event: Resize) -> None:
        """Draw for the new size."""
        self._draw()

    def on_unmount(self) -> None:
        """Read nothing more."""
        self._feed.close()

    def _draw_news(self) -> None:
        if self._feed.is_stale or int(time.time()) != self._second:
            self._draw()

    def _draw(self) -> None:
        self._feed.is_stale, self._second = False, int(time.time())
        self._select(0)  # the selected one may be gone
        question = self._controls.question
        is_fresh = time.monotonic() - self._said_at < _MESSAGE_S
        message = question.text if question else self._message if is_fresh else ""
        log = self._feed.log
        screen = TopScreen(
            self.size.width, self.size.height, self._feed.selected, list(log.lines), log.output_at, message,
            self._feed.trouble, self._colour, self._utf8,
        )  # fmt: skip
        self.picture.show(page(self._feed.model, screen, time.time()))

    def _say(self, text: str) -> None:
        self._message, self._said_at = text, time.monotonic()
        self._feed.stale()

    # --- keys ---

    def on_key(self, event: Key) -> None:
        """Act on one key, and show at once what came of it."""
        key, letter = event.key, event.character or ""
        name = self._feed.selected
        view: View = dict(self._feed.model.views.get(name, {}))
        if self._controls.question is not None and len(letter) == 1:
            self._controls.press(ord(letter), view)
        elif key in _MOVES:
            self._select(_MOVES[key])
        elif key in _PROGRAMS and name:
            key = "l" if key == "enter" and "/" in name else key  # who watches another machine reads its log
            self._run(*_PROGRAMS[key], name)
        elif len(letter) == 1 and (name or letter == "q"):
            self._controls.press(ord(letter), view)
        self._draw()

    def action_interrupt(self) -> None:
        """Leave, as by Ctrl-C or SIGTERM."""
        self.exit(wire.EXIT_INTERRUPTED)

    def _select(self, step: int) -> None:
        """Select the ralph that is ``step`` rows below the selected one; without that, the first."""
        names = [row.name for row in shown_rows(self._feed.model)]
        old = self._feed.selected
        at = min(max(names.index(old) + step, 0), len(names) - 1) if old in names else 0
        if (name := names[at] if names else "") != old:
            self._controls = self._controls_of(name)
            self._feed.select(name)

    def _controls_of(self, name: str) -> Controls:
        return Controls(
            self._feed.client, name, self._say, on_reply=lambda: self._feed.read_soon(name), may_stop=True,
            quit_=ViewKey("q", "leave; all continues (also Ctrl-C)", lambda _: self.exit(wire.EXIT_OK)),
            more=_MORE,
        )  # fmt: skip

    def _run(self, *words: str) -> None:
        """Give the terminal to a command; Ctrl-C ends that one, not this app."""
        before = signal.signal(signal.SIGINT, lambda number, frame: None)
        try:
            with self.suspend():
                command = [sys.executable, "-P", "-m", "ralphctl", *self._words, *words]
                code = subprocess.run(command, check=False).returncode
                if words[0] != "attach" or code not in (wire.EXIT_OK, wire.EXIT_INTERRUPTED):
                    with suppress(EOFError):
                        input("\nEnter returns to top")
        finally:
            signal.signal(signal.SIGINT, before)

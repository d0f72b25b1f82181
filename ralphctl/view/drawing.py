"""Panels and the region as strings, drawn by rich: imported here, and only when there is a view (P3)."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ralphctl.letters import in_ascii
from ralphctl.view.news import Kind, Panel
from ralphctl.view.region import LEAST_WIDTH, cells

_MOST_COLUMNS = 100
_COLOURS = {Kind.ERROR: "red", Kind.WARNING: "yellow", Kind.INFO: "blue", Kind.SUCCESS: "green"}
_HEAD, _MORE = "color(208)", "default"


@dataclass(frozen=True, slots=True)
class Painted:
    """The region as it is written, its last line without an end; ``widths`` are its lines', in columns."""

    text: str
    widths: tuple[int, ...]


NOTHING = Painted("", ())


class Drawing:
    """Draws for one terminal: with ``colour`` or without, in any letters or in ASCII (``utf8`` false)."""

    def __init__(self, *, colour: bool, utf8: bool) -> None:
        from rich import box
        from rich.console import Console

        self._box = box.HORIZONTALS if utf8 else box.ASCII2
        self._utf8 = utf8
        self._lock = threading.Lock()
        self._console = Console(
            file=io.StringIO(), force_terminal=True, color_system="256" if colour else None, width=80,
            highlight=False, markup=False, emoji=False, legacy_windows=False, safe_box=False,
        )  # fmt: skip
        self._last: tuple[tuple[str, ...], Painted] = ((), NOTHING)

    def region(self, lines: Sequence[str], width: int) -> Painted:
        """The lines as they are to stand below the log."""
        shown = tuple(map(self._letters, lines))
        if self._last[0] != shown:
            self._last = (shown, self._region(shown, width))
        return self._last[1]

    def _region(self, lines: Sequence[str], width: int) -> Painted:
        from rich.text import Text

        styles = [_HEAD] + [_MORE] * len(lines)
        drawn = Text("\n").join(
            Text(line, style=style, no_wrap=True) for line, style in zip(lines, styles, strict=False)
        )
        text = self._drawn(drawn, max(width, *map(cells, lines)))
        return Painted(text.removesuffix("\n"), tuple(map(cells, lines)))

    def panel(self, panel: Panel, width: int) -> str:
        """The panel as lines, each with its end."""
        from rich import panel as rich_panel
        from rich.text import Text

        title = f"{panel.kind}: {panel.title}"
        columns = max(min(width, _MOST_COLUMNS), LEAST_WIDTH)
        is_short = cells(title) + 6 <= columns
        body = "\n".join(panel.lines if is_short else (panel.title, *panel.lines))
        colour = _COLOURS[panel.kind]
        drawn = rich_panel.Panel(
            Text(self._letters(body), overflow="fold"),
            title=Text(self._letters(title if is_short else str(panel.kind)), style=f"bold {colour}"),
            title_align="left", box=self._box, border_style=colour, padding=(0, 0),
        )  # fmt: skip
        return self._drawn(drawn, columns)

    def _drawn(self, what: object, width: int) -> str:
        with self._lock:
            self._console.width = width
            with self._console.capture() as captured:
                self._console.print(what)
        return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    def _letters(self, text: str) -> str:
        return text if self._utf8 else in_ascii(text)

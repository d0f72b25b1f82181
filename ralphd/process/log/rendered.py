"""Read a log with the lines of agents' event streams replaced by text. What is stored never changes.

The text itself comes from a function: this module joins the parts of long lines, and leaves alone every line
that cannot be an event, is too long, or has no end.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from ralphd.process.log.records import EVENT_HEAD, Gap, LogQuery, LogRecord, LogText

Item: TypeAlias = LogText | LogRecord | Gap
Render: TypeAlias = Callable[[str, str], str | None]
"""Return the text for a line and its time: empty for nothing to show, None for a line that is no event."""

MOST_LINE_BYTES: Final = 2 << 20
_MOST_TAIL: Final = 10_000
_REACHES: Final = (1, 8, 64)


class Rendering:
    """Replaces lines, one piece of a log after the other. Between the pieces it keeps unfinished lines."""

    def __init__(self, render: Render) -> None:
        self.replaced = 0
        self._render = render
        self._held: dict[str, list[LogRecord]] = {}
        self._within: set[str] = set()  # streams whose present line is no event
        self._run = ""

    def __call__(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, of an event its text; an event without text is left out."""
        for item in items:
            if not isinstance(item, LogRecord) or item.stream == "regent":
                yield item
            elif item.stream in self._held or item.text.startswith(EVENT_HEAD) or self._within:
                yield from self._record(item)
            else:
                if item.partial:
                    self._run = item.cursor.run_id
                    self._within.add(item.stream)
                yield item

    def rest(self) -> Iterator[LogRecord]:
        """Yield what is held of lines that did not end."""
        for held in self._held.values():
            yield from held
        self._held, self._within = {}, set()

    def _record(self, item: LogRecord) -> Iterator[LogRecord]:
        if item.cursor.run_id != self._run:
            yield from self.rest()
            self._run = item.cursor.run_id
        held = self._held.pop(item.stream, [])
        if item.stream in self._within or not (held or item.text.startswith(EVENT_HEAD)):
            (self._within.add if item.partial else self._within.discard)(item.stream)
            yield item
            return
        held.append(item)
        if not item.partial:
            yield from self._whole(held, item)
        elif len(held) * len(held[0].text) <= MOST_LINE_BYTES:
            self._held[item.stream] = held
        else:
            self._within.add(item.stream)
            yield from held

    def _whole(self, held: list[LogRecord], last: LogRecord) -> Iterator[LogRecord]:
        line = b"".join(each.text for each in held).decode("utf-8", "replace").removesuffix("\r")
        text = self._render(line, last.at)
        if text is None:
            yield from held
            return
        self.replaced += 1
        if text:
            yield replace(last, text=text.encode("utf-8", "replace"))


def rendered(
    read: Callable[[LogQuery], Iterable[Item]], query: LogQuery, render: Callable[[], Render]
) -> Iterator[Item]:
    """Read what a query selects. ``tail`` counts lines that are shown, unless they are far from the end."""
    query = replace(query, whole_events=True)
    wanted = query.tail
    if wanted is None or not 0 < wanted <= _MOST_TAIL:
        rendering = Rendering(render())
        yield from rendering(read(query))
        yield from rendering.rest()
        return
    for reach in _REACHES:
        rendering = Rendering(render())
        items = [*rendering(read(replace(query, tail=reach * wanted))), *rendering.rest()]
        lines = sum(map(_lines, items))
        if not rendering.replaced or lines >= wanted or lines + rendering.replaced < reach * wanted:
            break
    yield from _last(items, wanted) if rendering.replaced else items


def _lines(item: Item) -> int:
    match item:
        case LogText(text=text):
            return text.count(b"\n")
        case LogRecord(partial=True):
            return 0
        case LogRecord(text=text):
            return text.count(b"\n") + 1
        case Gap():
            return 1


def _last(items: list[Item], wanted: int) -> Iterator[Item]:
    kept: deque[Item] = deque()
    for item in reversed(items):
        lines = _lines(item)
        if lines > wanted > 0 and not isinstance(item, Gap):
            item = replace(item, text=b"\n".join(item.text.split(b"\n")[lines - wanted :]))
            lines = wanted
        if lines > wanted:
            break
        kept.appendleft(item)
        wanted -= lines
    yield from kept

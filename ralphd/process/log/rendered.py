"""Read a log with the lines of agents' event streams replaced by text. What is stored never changes.

The text itself comes from a function: this module joins the parts of long lines, and leaves alone every line
that cannot be an event, is too long, or has no end.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from ralphd.process.log.records import EVENT_HEAD, Gap, Item, LogQuery, LogRecord

Render: TypeAlias = Callable[[str, str], str | None]
"""Return the text for a line and its time: empty for nothing to show, None for a line that is no event."""

MOST_PARTS: Final = 128
"""A line in more parts, of 16 KiB each, is shown as it is."""
_MOST_TAIL: Final = 10_000
_REACHES: Final = (1, 8, 64)


class Rendering:
    """Replaces lines, one piece of a log after the other. Between the pieces it keeps unfinished lines."""

    def __init__(self, render: Render) -> None:
        self.replaced = 0
        self._render = render
        self._held: dict[str, list[LogRecord]] = {}
        self._run = ""

    def __call__(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items, of an event its text; an event without text is left out."""
        for item in items:
            if not isinstance(item, LogRecord) or item.stream == "regent":
                yield item
            elif item.stream in self._held or item.text.startswith(EVENT_HEAD):
                yield from self._part(item)
            else:
                yield item

    def rest(self) -> Iterator[LogRecord]:
        """Yield what is held of lines that did not end."""
        held, self._held = self._held, {}
        for parts in held.values():
            yield from parts

    def _part(self, item: LogRecord) -> Iterator[LogRecord]:
        if item.cursor.run_id != self._run:
            yield from self.rest()
            self._run = item.cursor.run_id
        parts = [*self._held.pop(item.stream, ()), item]
        if item.partial and len(parts) < MOST_PARTS:
            self._held[item.stream] = parts
            return
        line = b"".join(part.text for part in parts).decode("utf-8", "replace")
        text = None if item.partial else self._render(line.removesuffix("\r"), item.at)
        if text is None:
            yield from parts
            return
        self.replaced += 1
        if text:
            yield replace(item, text=text.encode("utf-8", "replace"))


def rendered(
    read: Callable[[LogQuery], Iterable[Item]], query: LogQuery, render: Callable[[], Render]
) -> Iterator[Item]:
    """Read what a query selects. ``tail`` counts lines that are shown, unless they are far from the end."""
    wanted = query.tail or 0
    if not 0 < wanted <= _MOST_TAIL:
        rendering = Rendering(render())
        yield from rendering(read(query))
        yield from rendering.rest()
        return
    for reach in _REACHES:
        rendering = Rendering(render())
        items = [*rendering(read(replace(query, tail=reach * wanted))), *rendering.rest()]
        lines = sum(map(_lines, items))
        if not rendering.replaced or not lines < wanted <= lines + rendering.replaced:
            break
    first = len(items)
    while first and wanted > 0:
        first -= 1
        wanted -= _lines(items[first])
    if wanted < 0 and isinstance(cut := items[first], LogRecord):
        items[first] = replace(cut, text=b"\n".join(cut.text.split(b"\n")[-wanted:]))
    yield from items[first:]


def _lines(item: Item) -> int:
    if isinstance(item, Gap):
        return 1
    return item.text.count(b"\n") + (isinstance(item, LogRecord) and not item.partial)


def shown(item: Item) -> dict[str, object]:
    """Return a record or a gap as the API shows it, with the cursor after it."""
    if isinstance(item, Gap):
        return {"gap": item.reason, "cursor": str(item.cursor)}
    assert isinstance(item, LogRecord), "only plain text is read in whole blocks"
    text = item.text.decode("utf-8", "replace")
    place = {"partial": item.partial, "cursor": str(item.cursor)}
    return {"at": item.at, "stream": item.stream, "text": text, **place}

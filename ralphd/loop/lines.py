"""Bytes to lines, and the end of them: both bounded, whatever an agent prints."""

from collections import deque

from ralphd.agents.agent import MAX_LINE_CHARS


class Lines:
    """Puts lines together from pieces of bytes.

    Of a line that is too long the beginning is kept, and told as cut. Bytes that are no UTF-8 are replaced.
    """

    def __init__(self, most_bytes: int = MAX_LINE_CHARS) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._dropped_bytes = 0

    def feed(self, data: bytes) -> list[str]:
        """The lines that are whole now, without their ends."""
        end = data.rfind(b"\n")
        if end < 0:
            self._hold(data)
            return []
        first = data.find(b"\n")
        self._hold(data[:first])
        lines = [self._taken()]
        if end > first:  # decoded at once: a line at a time costs several times as much
            lines += data[first + 1 : end].decode(errors="replace").split("\n")
        self._hold(data[end + 1 :])
        return [line.removesuffix("\r") for line in lines] if b"\r" in data else lines

    def rest(self) -> list[str]:
        """The last line, where it has no end."""
        return [self._taken()] if self._held else []

    def _hold(self, data: bytes) -> None:
        room = self._most_bytes - len(self._held)
        self._held += data[:room]
        self._dropped_bytes += max(len(data) - room, 0)

    def _taken(self) -> str:
        text = self._held.decode(errors="replace")
        if self._dropped_bytes:
            text += f" [cut: {self._dropped_bytes} more bytes]"
        self._held, self._dropped_bytes = bytearray(), 0
        return text


class Tail:
    """The last bytes of a stream."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._pieces = deque[bytes]()
        self._size = self._added = 0

    @property
    def is_cut(self) -> bool:
        """Whether there was more than is kept."""
        return self._added > self._most_bytes

    def add(self, data: bytes) -> None:
        """One more piece."""
        self._pieces.append(data)
        self._size += len(data)
        self._added += len(data)
        while self._size - len(self._pieces[0]) >= self._most_bytes:
            self._size -= len(self._pieces.popleft())

    def data(self) -> bytes:
        """What is kept: ``most_bytes`` at most."""
        return b"".join(self._pieces)[-self._most_bytes :]

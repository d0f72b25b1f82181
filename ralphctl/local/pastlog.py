"""A ralph's log as it is kept on disk: what ``ralphctl logs`` prints where no daemon answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralphd.core.time import parse_rfc3339
from ralphd.process.log.log import RalphLog
from ralphd.process.log.segments import Gap, LogQuery


def records(home: str, words: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The records in the ralph's files below ``home``, as the API words them. ``words`` are its query's."""
    tail = words.get("tail", "all")
    query = LogQuery(
        tail=None if tail == "all" else int(tail),
        since=_moment(words.get("since")),
        until=_moment(words.get("until")),
        stream=words.get("stream"),
        grep=words.get("grep"),
    )
    for line in RalphLog(Path(home) / "runs").read(query):
        if isinstance(line, Gap):
            yield {"gap": line.reason, "cursor": str(line.cursor)}
        else:
            text = line.text.decode("utf-8", "replace")
            said = {"at": line.at, "stream": line.stream, "text": text, "partial": line.partial}
            yield {**said, "cursor": str(line.cursor)}


def _moment(text: str | None) -> float | None:
    return None if text is None else parse_rfc3339(text)

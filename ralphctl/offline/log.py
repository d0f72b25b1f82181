"""Read a ralph's log and verdicts from disk: what ``logs`` and ``verdicts`` print while no daemon answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralphctl.offline import state
from ralphd.core.gate.verdict_views import verdicts as verdicts_in
from ralphd.core.time import parse_rfc3339
from ralphd.store.history import History


def records(directory: str, name: str | None, words: Mapping[str, str]) -> Iterator[dict[str, Any]] | None:
    """Return a ralph's log records as the API words them, for the words of a query.

    The ralph is that of ``directory`` or the nearest one above. None without one, or with another name.
    """
    known = _known(directory, name)
    return None if known is None else _records(known[1] / "runs", words)


def _records(runs: Path, words: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    from ralphd.agents.streams import EventText
    from ralphd.process.log.log import RalphLog  # loads asyncio, which verdicts do without
    from ralphd.process.log.records import LogQuery
    from ralphd.process.log.rendered import rendered, shown

    tail = words.get("tail", "all")
    since = words.get("since")
    until = words.get("until")
    query = LogQuery(
        tail=None if tail == "all" else int(tail),
        since=None if since is None else parse_rfc3339(since),
        until=None if until is None else parse_rfc3339(until),
        stream=words.get("stream"),
        grep=words.get("grep"),
        whole_events=words.get("events") != "raw",
    )
    read = RalphLog(runs).read
    verbose = words.get("events") == "verbose"
    items = rendered(read, query, lambda: EventText(verbose=verbose, grep=query.grep).line)
    return map(shown, items if query.whole_events else read(query))


def verdicts(directory: str, name: str | None, limit: int) -> tuple[str, list[dict[str, Any]]] | None:
    """Return the name of the ralph and its last verdicts; None as for ``records``."""
    known = _known(directory, name)
    return known and (known[0], verdicts_in(History(known[1] / "history.jsonl").backwards(), limit))


def _known(directory: str, name: str | None) -> tuple[str, Path] | None:
    view = state.nearest_view(directory)
    if view is None or name not in (None, view["name"]):
        return None
    home = state.home(view, os.environ)
    return None if home is None else (str(view["name"]), Path(home))

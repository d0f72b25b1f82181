"""What a report is made from, read from files: the same whether a daemon is there or not.

Originals are in the state directory, or in that of ``ralphctl build``; where they cannot be read, the copies
in ``.ralph/`` stand for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphctl import link
from ralphctl.local.diffstat import Diffstat, commits_after, commits_between, diffstat
from ralphctl.local.record import Record, Told
from ralphctl.offline import state as offline
from ralphd import wire
from ralphd.core.night_model import Money, Night
from ralphd.core.night_report import night
from ralphd.core.night_standing import Standing, Tasks, living, standing, tasks_of
from ralphd.core.time import rfc3339

_SHA = re.compile(r"[0-9a-f]{4,64}")
_STATE, _HISTORY, _TASKS = "regent-state.json", "history.jsonl", "tasks.json"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a ralph's files are. ``home`` None: only the copies in its directory can be read."""

    name: str
    directory: str
    home: Path | None
    is_build: bool = False

    def file(self, name: str) -> Path:
        """Where a file of this name is, or its copy."""
        return (Path(self.directory) / ".ralph" if self.home is None else self.home) / name


@dataclass(frozen=True, slots=True)
class Report:
    """All that is told of one ralph. ``commits`` are those that stay, ``changed`` what they changed."""

    place: Place
    view: Mapping[str, Any]
    standing: Standing
    night: Night
    tasks: Tasks | None
    commits: tuple[str, ...]
    changed: Diffstat | None

    @property
    def has_untold_costs(self) -> bool:
        """Whether a command ran that is not the built-in loop, and told of no attempt and no cost."""
        has_run = self.night.runs > 0 or self.standing.runs
        return has_run and self.view.get("command") != [] and self.night.money == Money()


def known(environ: Mapping[str, str]) -> list[Place]:
    """All ralphs that have left files where this user's daemon, or ``ralphctl build``, keeps them."""
    state = Path(wire.state_directory(environ))
    homes = [(home, False) for home in sorted(state.glob("ralphs/*"))]
    homes += [(home, True) for home in sorted(state.glob("build/*/ralphs/*"))]
    return [place for home, is_build in homes if (place := _place(home, is_build)) is not None]


def _place(home: Path, is_build: bool) -> Place | None:
    held = offline.read_file(str(home / "ralph.json"))
    directory = None if held is None else held.get("directory")
    return Place(home.name, directory, home, is_build) if isinstance(directory, str) else None


def here(directory: str, places: list[Place]) -> Place | None:
    """The ralph of ``directory``, or of the nearest one above: of several, the one that worked last."""
    for above in link.upward(directory):
        found = [place for place in places if os.path.realpath(place.directory) == above]
        if found:
            return max(found, key=_worked_at)
        if (view := offline.last_view(above)) is not None:
            return Place(str(view["name"]), above, None)
    return None


def named(name: str, directory: str, places: list[Place]) -> Place | None:
    """The ralph of this name; the daemon's before one of ``build``, which may be that of any directory."""
    mine = here(directory, places)
    if mine is not None and mine.name == name:
        return mine
    found = [place for place in places if place.name == name]
    return max(found, key=lambda place: (not place.is_build, _worked_at(place)), default=None)


def _worked_at(place: Place) -> float:
    try:
        return place.file(_STATE).stat().st_mtime
    except OSError:
        return 0.0


def read(
    place: Place, since: float, until: float, now: float, *, told: Told | None = None, changes: bool = True
) -> Report:
    """Read all that is to be told. ``changes``: git is asked what was changed."""
    definition = {} if place.home is None else offline.read_file(str(place.home / "ralph.json")) or {}
    view = _view(place, definition)
    stands = standing(view)
    record = Record(place.file(_HISTORY))
    entries = record.entries(rfc3339(since), told)
    found = night(entries, since, until, living(view, stands), now=now, source=record)
    commits = _commits(place, found, view) if changes else found.kept
    changed = diffstat(Path(place.directory), commits) if commits and changes else None
    return Report(place, view, stands, found, _tasks(place, definition), commits, changed)


def _view(place: Place, definition: Mapping[str, Any]) -> Mapping[str, Any]:
    held = offline.read_file(str(place.file(_STATE)))
    if held is None:
        view = offline.last_view(place.directory) or {"name": place.name, "state": "idle"}
    else:
        view = offline.view_of(held, place.directory)
    view |= {"name": place.name, "directory": place.directory}
    if isinstance(definition.get("command"), list):
        view["command"] = definition["command"]
    if _has_daemon(place):
        return view
    return offline.without_daemon(view, ended_with_it=place.is_build)


def _has_daemon(place: Place) -> bool:
    """Whether a daemon holds the state directory now."""
    if place.home is None:
        return link.signpost_in(place.directory) is not None
    try:
        return link.is_flocked((place.home.parent.parent / "lock").stat().st_ino)
    except OSError:
        return False


def _tasks(place: Place, definition: Mapping[str, Any]) -> Tasks | None:
    from ralphctl.local.found import task_list

    ralph, agents = (_section(definition, name) for name in ("ralph", "agents"))
    asked, most = ralph.get("tasks"), agents.get("max_task_failures")
    plan = task_list(Path(place.directory), asked if isinstance(asked, str) else "auto")
    kept = (offline.read_file(str(place.file(_TASKS))) or {}).get("tasks")
    ledger = kept if isinstance(kept, dict) else {}
    return tasks_of(plan, ledger, most_failures=most if isinstance(most, int) else 0)


def _section(definition: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    held: Any = definition
    for key in ("configuration", "values", name):
        held = held.get(key) if isinstance(held, dict) else None
    return held if isinstance(held, dict) else {}


def _commits(place: Place, found: Night, view: Mapping[str, Any]) -> tuple[str, ...]:
    """What stays; of a command that tells no commits, those since the last run before.

    Where none was before, those that are younger than the span.
    """
    last = view.get("last_commit")
    if found.kept or found.reverted or not (isinstance(last, str) and _SHA.fullmatch(last)):
        return found.kept
    directory = Path(place.directory)
    if found.head_before is None:
        return tuple(commits_after(directory, found.since, last) or ())
    return tuple(commits_between(directory, found.head_before, last) or ())

"""The watch over an attempt's silence and its length, as the loop judges its agents (H1 to H6, L6)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ralphd.core.classify import OurDoing
from ralphd.core.model import Moment
from ralphd.core.silence import agent_named
from ralphd.core.watch import Finding, Limits
from ralphd.git.worktree import WorkTree
from ralphd.loop.endings import Endings, Order
from ralphd.loop.hearing import Hearing
from ralphd.loop.news import News
from ralphd.process.attempt import AgentProcess
from ralphd.process.clock import Clock
from ralphd.process.watch import Observer
from ralphd.process.watching import Subject, Watching
from ralphd.store.evidence import save

LAST_LINES = 20
OURS: Mapping[Finding, OurDoing] = {Finding.STALL: OurDoing.STALL, Finding.TOO_LONG: OurDoing.TIMEOUT}


@dataclass(frozen=True, slots=True)
class Watched:
    """An attempt that is watched: who it is, where it works, how long to be patient (``timeout_s`` 0: for
    ever), and where its evidence goes."""

    id: str
    agent: str
    directory: Path
    keep: Path
    limits: Limits
    timeout_s: float
    began_at: Moment


def watching(
    watched: Watched, process: AgentProcess, hearing: Hearing, endings: Endings, *, news: News, clock: Clock
) -> Watching:
    """The watch, which orders the end; nothing is looked at before its ``run``."""
    return Watching(
        Subject(
            id=watched.id,
            began_at=watched.began_at,
            age_s=0.0,
            limits=replace(watched.limits, max_run_s=watched.timeout_s),
            observer=lambda since: Observer(process, WorkTree(watched.directory, since=since)),
            last_output=lambda: hearing.last_life_at,
            last_lines=lambda: tuple(hearing.lines)[-LAST_LINES:],
            keep=lambda sighting: save(watched.keep, sighting),
            warn=news.warn,
            end=lambda found, title: endings.end(Order(OURS[found], title)),
            who=agent_named(watched.agent),
        ),
        clock,
    )

"""``docs/performance.md``, whole: what was measured, on what, how to read it, and what was not."""

import os
import platform
import textwrap
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.bench.bench import Bench
from tests.bench.peers.install import VERSIONS, node_version
from tests.bench.table import OURS, Line, Verdict, cells

PAGE = Path(__file__).parents[2] / "docs/performance.md"
WIDTH = 115
HEAD = (
    "Written by `make bench` for the machine it ran on. If you run it, it writes this page again for your"
    " machine. It measures ralphd and other supervisors from PyPI and npm in the same bench run, with the"
    " same programs to supervise."
)
HOW_TO_READ = (
    "A *row* is one measurement. A *peer* is one of the other supervisors. A *child* is a program that a"
    " supervisor runs. The *daemon* is the supervisor's main process; ralphd also has a *shim*, a small"
    " process, for each child.",
    "The number in brackets after a peer's figure is ralphd's figure divided by the peer's. Below 1,"
    " ralphd needs less than the peer; above 1, it needs more. **Compare these ratios**: times and CPU"
    " differ between machines, and by 10 to 30 % between two bench runs.",
    "The column `machine` shows what this machine needs without any supervisor, measured in the same"
    " bench run. No supervisor can need less.",
    "Figures are medians. If a row is measured in several rounds, each supervisor takes its turn in every"
    " round, so that a busy minute affects all alike.",
    "CPU is the CPU time that the kernel counts for a process and its threads. Other work on the machine"
    " changes it little.",
    "Most goals were set on a faster machine. For some goals that are missed, the list below the table"
    " compares ralphd's figure with another one of the same bench run, and says what that ratio was for the"
    " goal when it was set.",
    "† marks the goals that must be met: if one is missed, `make bench` fails. Other missed goals are"
    " only listed on this page.",
    "The peers have settings that make them look good where that is fair: supervisord `startsecs=0`;"
    " circus `check_delay=0.1` instead of 5, which makes its restarts 50 times faster and raises its idle"
    " CPU; pm2 without its limit of restarts. All other settings are the defaults.",
    "ralphd does work that the peers do not do: it runs a shim for each child, so that the child survives"
    " a kill -9 of the daemon; it stores a time for every line; and it syncs its state to disk.",
)
NOT_MEASURED = (
    "How long a real disk takes to sync: in the restart row all files are in memory. Ralphs with agents:"
    " the work of an agent costs far more than anything measured here.",
    "systemd, runit and s6, because they come with the system and not from pip or npm. systemd kills"
    " whole control groups, as ralphd does where it may, and can run ralphd.",
    "Peers with settings for a single row, other versions of the peers, other kernels.",
)
LARGE = "500 children: `make bench ARGS=--full` (some minutes longer)."


def text(lines: Sequence[Line], bench: Bench, *, full: bool, took_s: float) -> str:
    """The page."""
    peers = tuple(VERSIONS)
    parts = [
        "# Performance\n", textwrap.fill(HEAD, WIDTH) + "\n",
        "## The machine\n", _listed(_machine(bench, took_s)),
        "## The figures\n", _table(lines, peers), _summary(lines),
        "## How to read it\n", _listed(HOW_TO_READ),
        "## What was done in each row\n", _listed(_hows(lines)),
        "## What was not measured\n", _listed([*NOT_MEASURED, *([] if full else [LARGE]), *_missing(bench)]),
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


def write(page: str) -> None:
    """Put the page into the docs."""
    PAGE.write_text(page, encoding="utf-8")


def _machine(bench: Bench, took_s: float) -> list[str]:
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    there = [f"{kind.name} {VERSIONS[kind.name]}" for kind in bench.peers]
    runs_on = f" (on Node.js {node_version()})" if "pm2" in {kind.name for kind in bench.peers} else ""
    return [
        f"{os.cpu_count()} cores, {memory_gb:.0f} GB, {platform.system()} {platform.release().split('-')[0]},"
        f" {platform.machine()}; Python {platform.python_version()}.",
        f"ralphd {version('ralphd')}; {', '.join(there) or 'no peer was to be had'}{runs_on}.",
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, in {took_s / 60:.1f} minutes. {_load()}",
    ]


def _load() -> str:
    load, cores = os.getloadavg()[1], os.cpu_count() or 1
    if load <= cores:
        return f"Load of the last 5 minutes: {load:.1f}."
    return (
        f"Load of the last 5 minutes: {load:.1f} on {cores} cores, so there was other work: times are too"
        " long here, for all; ratios and CPU hold better."
    )


def _table(lines: Sequence[Line], peers: Sequence[str]) -> str:
    head, *rows = cells(lines, peers)
    ruled = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escaped(cell) for cell in row)} |" for row in ruled) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<=", "≤").replace(">=", "≥").replace("\n", " ")


def _summary(lines: Sequence[Line]) -> str:
    judged = [line for line in lines if line.verdict is not Verdict.NONE]
    missed = [line for line in judged if line.verdict is Verdict.MISSED]
    dearer = [
        f"{line.what}: more than {', '.join(name for name, ratio in line.ratios.items() if ratio > 1)}"
        for line in lines
        if any(ratio > 1 for ratio in line.ratios.values())
    ]
    told = f"{len(judged) - len(missed)} of {len(judged)} goals met."
    if not missed and not dearer:
        return told + "\n"
    return f"{told} What is missed, and where {OURS} needs more than a peer:\n\n" + _listed(
        [*(f"{line.what}: missed" + (line.relative and f"; {line.relative}") for line in missed), *dearer]
    )


def _hows(lines: Sequence[Line]) -> list[str]:
    whats: dict[str, str] = {}
    for line in lines:
        whats.setdefault(line.how, line.what)
    return [f"**{what}**: {how}" for how, what in whats.items() if how]


def _missing(bench: Bench) -> list[str]:
    absent = [f"{name}: not installed when this page was written." for name in bench.absent]
    return absent + [f"Went wrong: {fault}" for fault in bench.faults]


def _listed(items: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(f"- {item}", WIDTH, subsequent_indent="  ") for item in items) + "\n"

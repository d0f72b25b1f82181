"""A soak: the ralphs, the faults, the samples, and what is judged at the end."""

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.helpers import wait_for
from tests.soak.cast import Member
from tests.soak.faults import CONFIGURATION, RUN_BYTES, TOTAL_BYTES, Faults
from tests.soak.samples import Files, Sample, processes
from tests.whole.harness import Daemon, View

STEADY = {"running", "waiting_for_retry", "starting", "testing"}
HARMLESS = (
    "the tests were ended by somebody else, twice",  # by two faults
    "timeout graceful shutdown exceeded",  # a client that reads no more is cut at the end
)
"""No bug: two faults in a row hit the tests of one boundary, and the verdict says so."""
SETTLE_S, STOP_S = 120.0, 120.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long it takes, in seconds, and how often something happens on the average.

    In the middle half the daemon is not ended: its growth needs a long life.
    """

    duration_s: float
    sample_s: float
    fault_s: float
    as_child: bool = True

    def spares_daemon(self, at_s: float) -> bool:
        return 0.25 <= at_s / self.duration_s <= 0.75


@dataclass(slots=True)
class Record:
    """All that was seen."""

    samples: list[Sample] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    ends: int = 0
    iterations: int = 0


class Soak:
    """One soak in a daemon's place. ``full``: where its state directory's file system may be filled."""

    def __init__(
        self, daemon: Daemon, members: Sequence[Member], pace: Pace, seed: int, full: Path | None = None
    ) -> None:
        self.daemon, self.members, self.pace = daemon, members, pace
        self.faults = Faults(daemon, members, seed, full)
        self.record = Record()
        self._rng = random.Random(seed + 1)
        self._files = Files(daemon.state)

    def run(self) -> Record:
        """Play it; return what was seen, the violations included."""
        daemon, record = self.daemon, self.record
        daemon.configure(CONFIGURATION.format(run_bytes=RUN_BYTES, total_bytes=TOTAL_BYTES))
        daemon.start(as_child=self.pace.as_child, wait=False)
        self.faults.await_daemon()
        for member in self.members:
            daemon.ask("POST", "/v1/ralphs", member.prepared(daemon))
        try:
            self._play()
        except (AssertionError, subprocess.TimeoutExpired, KeyboardInterrupt) as fault:
            record.problems.append(f"ended early: {type(fault).__name__} {fault}")
        self.faults.settle()
        self._end()
        record.faults, record.problems = self.faults.done, [*self.faults.problems, *record.problems]
        return record

    def _play(self) -> None:
        begun = time.monotonic()
        sample_at, fault_at = 0.0, self._rng.expovariate(1 / self.pace.fault_s)
        while (at_s := time.monotonic() - begun) < self.pace.duration_s:
            if at_s >= sample_at:
                self.record.samples.append(self._sample(at_s))
                sample_at = at_s + self.pace.sample_s
            if at_s >= fault_at:
                self.faults.one(spare_daemon=self.pace.spares_daemon(at_s))
                fault_at = at_s + self._rng.expovariate(1 / self.pace.fault_s)
            time.sleep(max(0.0, min(sample_at, fault_at, self.pace.duration_s) - (time.monotonic() - begun)))

    def _sample(self, at_s: float) -> Sample:
        sample = Sample(at_s, list(processes(self.daemon.state)), self._files.figures())
        sample.state["processes"] = len(sample.processes)
        for role in ("daemon", "loop"):
            threads = (each.threads for each in sample.processes if each.role == role)
            sample.state[f"{role}_threads"] = max(threads, default=0)
        return sample

    # --- the end ----------------------------------------------------------------------------------------

    def _end(self) -> None:
        """Let all come to rest, stop all, and compare the records."""
        problems = self.record.problems
        try:
            wait_for(self._is_steady, timeout_s=SETTLE_S, what=f"steady ralphs: {self._states()}")
        except AssertionError as fault:
            problems.append(f"{fault}; then: {self._states()}")
        self.daemon.ask("POST", "/v1/shutdown", {"runs": "now"})
        pid = self.faults.daemon_pid
        wait_for(
            lambda: not any(each.life.startswith(f"{pid}-") for each in processes(self.daemon.state)),
            timeout_s=STOP_S,
            what="the daemon's end",
        )
        if left := self.daemon.leftovers():
            problems.append(f"left behind: {left}")
        for member in self.members:
            self._compare(member)
        logs = [path.read_text(errors="replace") for path in self.daemon.state.glob("ralphd.log*")]
        lines = [
            line for text in logs for line in text.splitlines() if not any(each in line for each in HARMLESS)
        ]
        log = "\n".join(lines)
        for sign in ("Traceback", " ERROR "):
            if sign in log:
                at = log.index(sign)
                problems.append(
                    f"{log.count(sign)} {sign.strip()} in the log: {log[max(0, at - 300) : at + 1500]}"
                )

    def _views(self) -> list[View]:
        return list(self.daemon.status()["ralphs"])

    def _states(self) -> Counter[str]:
        return Counter(
            f"{view['name']} {view['state']}" for view in self._views() if view["state"] not in STEADY
        )

    def _is_steady(self) -> bool:
        return not self._states()

    def _compare(self, member: Member) -> None:
        """Each run was alone, and each end is on record once."""
        name, problems = member.name, self.record.problems
        starts = member.starts(self.daemon)
        if beside := [run for word, run in starts if word != "alone"]:
            problems.append(f"{name}: runs beside another one: {beside}")
        ends = Counter(entry["run_id"] for entry in self.daemon.history(name))
        if double := [run for run, count in ends.items() if count > 1]:
            problems.append(f"{name}: ends that are on record twice: {double}")
        if lost := sorted({run for _, run in starts} - ends.keys()):
            problems.append(f"{name}: ends that are not on record: {lost}")
        ran = [run.name for run in self.daemon.run_directories(name) if (run / "run.json").exists()]
        without = [run for run in ran if run not in ends]
        if without:
            problems.append(f"{name}: run directories without an end on record: {without}")
        self.record.ends += len(ends)
        self.record.iterations += len(self.daemon.history(name, "iteration")) if member.is_loop else 0


def as_json(record: Record) -> str:
    """Return the samples and what happened."""
    samples = [
        {
            "at_s": round(sample.at_s, 1),
            "processes": [
                [each.role, each.life, round(each.rss_mb, 2), each.descriptors, each.threads]
                for each in sample.processes
                if each.role != "other"
            ],
            "state": sample.state,
        }
        for sample in record.samples
    ]
    return json.dumps(
        {"faults": record.faults, "problems": record.problems, "ends": record.ends,
         "iterations": record.iterations, "samples": samples},
        separators=(",", ":"),
    )  # fmt: skip

"""By the bytes of a ralph's logs: the last lines, the lines since a moment, following, memory.

The logs are real but for the largest size: a child prints them, and its shim stores them. There, the run is
there many times, as hard links: no reader may open what lies before the lines that it was asked for.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ralphd.core.time import rfc3339
from tests.bench.measure import cpu_s, rss_mb, wait_until
from tests.bench.ours import RALPHCTL, Daemon
from tests.growth.curve import FLAT, Series, Table
from tests.growth.spent import api_ms, await_state, ctl_mb, ctl_ms

SIZES: Final = (10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
COPIES: Final = 9
LINE: Final = (
    "what an agent prints of its work, about as long as a sentence is, or two of them, here and there"
)
MARKERS: Final = 1000
QUIET_S: Final = 2.0
FOLLOWED_S: Final = 4.0
PRINTED_S: Final = 900.0
CONFIGURATION: Final = "[logs]\nrun_bytes = '40GiB'\ntotal_bytes = '400GiB'\n"
SCRIPT: Final = f"""
for size in "$@"; do
    yes {LINE!r} | head -c "$size"; echo; sleep {QUIET_S:g}
    seq -f 'the last lines, number %g' {MARKERS}
    touch "$PLACE/printed.$size"
    while ! test -e "$PLACE/go.$size"; do sleep 0.1; done
done
exec sleep 3600
"""
HOW = (
    "One run prints lines of 100 bytes until its log has that size, is silent for two seconds, and prints"
    f" {MARKERS:,} more. `run_bytes` is 40 GiB. The lines since a moment are those {MARKERS:,}. Following is"
    f" {FOLLOWED_S:g} s of `ralphctl logs -f` in which nothing comes. At the largest size the whole log is"
    " there many times, as hard links, before a new run that prints the same last lines."
)


def measured(root: Path, sizes: Sequence[int] = SIZES, copies: int = COPIES) -> Series:
    """Let one run print, and look at its log at each size."""
    table, daemon = Table(), Daemon(root / "logs", configuration=CONFIGURATION)
    script = daemon.home / "print.sh"
    script.write_text(SCRIPT)
    steps = [str(now - before) for before, now in zip((0, *sizes), sizes, strict=False)]
    environment = {"PLACE": str(daemon.home)}
    try:
        daemon.start()
        for number, size in enumerate(sizes):
            if number == 0:
                daemon.register("printer", ["/bin/sh", str(script), *steps], {}, environment)
            _measure(table, daemon, size, steps[number])
        daemon.ask("POST", "/v1/ralphs/printer/stop", {"now": True})
        await_state(daemon, "printer", "stopped")
        daemon.shut()
        total = _copied(daemon.run_directory("printer"), copies)
        (daemon.home / f"printed.{steps[0]}").unlink()
        script.write_text(SCRIPT.replace('for size in "$@"', f"for size in {steps[0]}"))
        daemon.start()
        daemon.ask("POST", "/v1/ralphs/printer/start", {})
        _measure(table, daemon, total, steps[0])
    finally:
        daemon.close()
    return Series("logs", "By the bytes of the logs", "bytes", HOW, table.curves())


def _copied(run: Path, copies: int) -> int:
    """Link a run so many times below other ids of the same number; return the bytes that seem to be there."""
    for number in range(copies):
        copy = run.with_name(f"{run.name.partition('-')[0]}-{number:08x}")
        copy.mkdir(mode=0o700)
        for file in run.iterdir():
            os.link(file, copy / file.name)
    return (copies + 1) * sum(file.stat().st_size for file in run.glob("log.*"))


def _measure(table: Table, daemon: Daemon, size: int, step: str) -> None:
    printed = daemon.home / f"printed.{step}"
    wait_until(printed.exists, limit_s=PRINTED_S, what=f"{step} bytes", pause_s=0.1)
    since = rfc3339(printed.stat().st_mtime - QUIET_S / 4)
    time.sleep(QUIET_S)
    for what, words in (("logs -n 20", ("-n", "20")), ("logs --since", ("--since", since))):
        table.add(what, "ms CPU", FLAT, size, *ctl_ms(daemon, "logs", "printer", *words))
        table.add(f"{what}, memory of ralphctl", "MB", FLAT, size, ctl_mb(daemon, "logs", "printer", *words))
    target = "/v1/ralphs/printer/logs?tail=20&format=text"
    table.add("the last 20 lines, the daemon alone", "ms CPU", FLAT, size, *api_ms(daemon, target))
    table.add(
        "logs -f while nothing comes, a second", "ms CPU", FLAT, size, *(_followed(daemon) for _ in range(3))
    )
    table.add("memory of the daemon", "MB", FLAT, size, rss_mb(daemon.pid))
    table.add("status, the daemon alone", "ms CPU", FLAT, size, *api_ms(daemon, "/v1/status"))
    (daemon.home / f"go.{step}").touch()


def _followed(daemon: Daemon) -> float:
    words = [str(RALPHCTL), "logs", "printer", "-f", "-n", "5"]
    with subprocess.Popen(words, env=daemon.environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            for _ in range(5):
                process.stdout.readline()
            time.sleep(0.5)
            before = cpu_s(process.pid) + cpu_s(daemon.pid)
            time.sleep(FOLLOWED_S)
            return (cpu_s(process.pid) + cpu_s(daemon.pid) - before) * 1e3 / FOLLOWED_S
        finally:
            process.kill()

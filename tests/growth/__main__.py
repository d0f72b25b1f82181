"""``make growth``: measure how cost grows with size; write ``docs/growth.md`` and its pictures.

    python -m tests.growth                 all series, about an hour and 35 GB of disk
    python -m tests.growth history runs    some of them; the others stay as they were measured last
    python -m tests.growth --page          nothing new: the page again

What was measured is kept in ``tests/growth/measured/``, one file for each series. Everything runs in a
temporary directory, which is removed at the end, with all processes.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench.measure import adopt_orphans, clear_away
from tests.growth import files, history, logs, page, ralphs, runs
from tests.growth.curve import Series
from tests.pages import ROOT

KEPT: Final = ROOT / "tests/growth/measured"
LEAST_FREE: Final = 20 << 30
SERIES: Final[Mapping[str, Callable[[Path], Series]]] = {
    "ralphs": ralphs.measured, "logs": logs.measured, "history": history.measured, "runs": runs.measured,
    "files": files.measured,
}  # fmt: skip


def main() -> int:
    """Measure what is asked for and write the page; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="make growth", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("series", nargs="*", choices=[*SERIES, []], help=", ".join(SERIES))
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    asked = parser.parse_args()
    adopt_orphans()
    KEPT.mkdir(exist_ok=True)
    for name in () if asked.page else asked.series or SERIES:
        _measured(name)
    every = [Series.of_json(json.loads(path.read_text())) for path in map(_kept, SERIES) if path.exists()]
    for path in page.write(every):
        print(f"written: {path.relative_to(ROOT)}")
    missed = [
        f"{each.what} ({series.title})" for series in every for each in series.curves if not each.is_met
    ]
    print("\n".join(f"missed: {what}" for what in missed))
    return int(bool(missed))


def _kept(name: str) -> Path:
    return KEPT / f"{name}.json"


def _measured(name: str) -> None:
    root = Path(tempfile.mkdtemp(prefix="rg-"))
    if shutil.disk_usage(root).free < LEAST_FREE:
        raise SystemExit(f"{root}: less than 20 GB are free")
    begun = time.monotonic()
    try:
        series = SERIES[name](root)
        took_s, day = time.monotonic() - begun, time.strftime("%Y-%m-%d", time.gmtime())
        series = replace(series, at=day, load=os.getloadavg()[1], took_s=took_s)
        _kept(name).write_text(json.dumps(series.as_json(), indent=1) + "\n")
        print(f"{name}: {took_s:.0f} s", flush=True)
    finally:
        clear_away()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())

"""``make soak``: SOAK_S seconds of twenty ralphs with faults, then a table, a plot and the samples.

SEED=N repeats the order of the faults. The state directory is on a tmpfs that gets full, in a mount namespace
of its own, if this user may make one; else the disk has no faults.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.soak import judge, plot
from tests.soak.cast import cast
from tests.soak.soak import Pace, Record, Soak, as_json
from tests.template import EXECUTE
from tests.whole.harness import daemon_in

DEFAULT_S, FAULT_S = 7200.0, 4.0
IN_NAMESPACE = "SOAK_IN_NAMESPACE"
TMPFS_MB = 600


def in_a_namespace() -> None:
    """Become the same program in a mount namespace of its own; return if that is not possible."""
    if IN_NAMESPACE in os.environ:
        return
    words = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", [*words, sys.executable, "-m", "tests.soak", *sys.argv[1:]])


def mounted(place: Path) -> Path | None:
    """Mount a tmpfs for the state directory; None without a namespace for it."""
    if IN_NAMESPACE not in os.environ:
        return None
    place.mkdir(mode=0o700, parents=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_MB}m,mode=700", "soak", str(place)]
    return place if subprocess.run(words, check=False).returncode == 0 else None


def reported(record: Record, out: Path, seed: int) -> list[str]:
    """Write plot and samples, print the table; return what is wrong."""
    rows = list(judge.rows(record.samples))
    minutes = record.samples[-1].at_s / 60
    title = f"{len(cast())} ralphs for {minutes:.0f} min, {sum(record.faults.values())} faults"
    (out / "soak.json").write_text(as_json(record))
    (out / "soak.svg").write_text(plot.svg(record.samples, title))
    faults = [*record.problems, *(row.fault for row in rows if row.fault)]
    print(f"{title}, seed {seed}; {record.ends} ends, {record.iterations} iterations")
    print(", ".join(f"{count} {name}" for name, count in sorted(record.faults.items())))
    print(judge.table(rows))
    print("\n".join([*faults, f"samples and plot: {out}"]), flush=True)
    return faults


def main() -> int:
    """Return 1 if something grows or was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--seconds", type=float, default=DEFAULT_S)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--out", type=Path, help="where soak.svg and soak.json go")
    options = parser.parse_args()
    in_a_namespace()
    os.environ[EXECUTE] = "1"  # whole programs, so that their memory is their own
    out = options.out or Path(tempfile.mkdtemp(prefix="soak-"))
    out.mkdir(parents=True, exist_ok=True)
    pace = Pace(options.seconds, max(1.0, options.seconds / 360), FAULT_S)
    with tempfile.TemporaryDirectory(prefix="ralphd-soak-") as scratch:
        root = Path(scratch) / "soak"
        full = mounted(root / "state")
        try:
            with daemon_in(root) as daemon:
                record = Soak(daemon, cast(), pace, options.seed, full).run()
                faults = reported(record, out, options.seed)
        finally:
            if full is not None:
                subprocess.run(["umount", "-l", str(full)], check=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

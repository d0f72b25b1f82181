"""``python -m tests.sim SEED [--story]``, ``… NIGHT.json [--story]``, ``… --seeds A-B [--workers N]``."""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.sim.cores import REAL, Steps
from tests.sim.faults import Script, script_of
from tests.sim.shrink import shrunk
from tests.sim.story import broken, story

CHUNK = 500
MOST_SHOWN = 3


def main() -> int:
    """0 where every night was good."""
    given = _parser().parse_args()
    if given.seeds is not None:
        return _many(given.seeds, given.workers, Path(given.save))
    night = given.night
    if night is None:
        _parser().error("a seed, a saved night, or --seeds A-B")
    script = script_of(int(night)) if night.isdigit() else Script.from_json(Path(night).read_text())
    found = broken(script)
    if found is None:
        print(story(script) if given.story else "a good night: every promise was kept")
        return 0
    print(told(script, Path(given.save)) if not given.story else story(script))
    return 1


def told(script: Script, directory: Path, steps: Steps = REAL) -> str:
    """A bad night: the smallest one like it, as a story, and how to see it again."""
    smallest = shrunk(script, steps)
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"night-{script.seed}.json"
    file.write_text(smallest.to_json())
    again = f"again: python -m tests.sim {file} --story   (whole: python -m tests.sim {script.seed} --story)"
    return f"{story(smallest, steps)}\n{again}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("night", nargs="?", help="a seed, or a file that holds a night")
    parser.add_argument("--story", action="store_true", help="tell the night as it is, not the smallest one")
    parser.add_argument("--seeds", type=_range, help="many nights: A-B, both included")
    parser.add_argument("--workers", type=int, default=None, help="processes (default: one for each core)")
    parser.add_argument("--save", default="nights", help="where bad nights are kept (default: nights/)")
    return parser


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def bad_nights(seeds: range) -> list[tuple[int, str]]:
    """Those of the seeds whose night breaks a promise, and which."""
    return [(seed, found) for seed in seeds if (found := broken(script_of(seed))) is not None]


def _chunks(seeds: range) -> Iterator[range]:
    return (seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK))


def _many(seeds: range, workers: int | None, directory: Path) -> int:
    began, played, bad = time.monotonic(), 0, 0
    chunks = list(_chunks(seeds))
    with ProcessPoolExecutor(workers) as pool:
        for chunk, found in zip(chunks, pool.map(bad_nights, chunks), strict=True):
            played += len(chunk)
            for seed, words in found:
                bad += 1
                print(f"\r{seed}: {words}")
                if bad <= MOST_SHOWN:
                    print(told(script_of(seed), directory))
            rate = played / (time.monotonic() - began)
            print(
                f"\r{played} of {len(seeds)} nights, {bad} bad, {rate:.0f} a second", end="", file=sys.stderr
            )
    seconds = time.monotonic() - began
    print(f"\n{played} nights of 8 hours in {seconds:.0f} s ({played / seconds:.0f} a second), {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

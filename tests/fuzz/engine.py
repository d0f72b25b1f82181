"""Fuzz each parser for its share of the time, guided by coverage, in a process of its own.

A fault does not end the search: its shortest input is written to a file and printed as Python. Without
atheris (it has no wheel for each Python) the seeded generator of ``mutation.py`` makes the inputs.
"""

import hashlib
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

START_S = 6
"""What a process needs to load and instrument the code."""
GROWTH_SHARE = 0.35
LONGEST_CALL_S = 20
MOST_BYTES = 1 << 16
MEMORY_MB = 3000
SHRINK_S = 3.0
SHOWN_BYTES = 3000
_STATS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")
FUZZ, GROW = "one", "grow"


def run(scratch: Path, seconds: int, seed: int, only: Sequence[str]) -> int:
    """Fuzz all parsers, or those named, for ``seconds`` in all. Print what was found; return the exit code."""
    from tests.fuzz.sets import ALL

    chosen = [ALL[name] for name in only] or list(ALL.values())
    weights = sum(each.weight for each in chosen)
    print(f"parsers: {len(chosen)} in {seconds} s, SEED={seed}", flush=True)
    failed, inputs = [], 0
    for parser in chosen:
        share_s = seconds * parser.weight / weights
        grow_s = max(2.0, share_s * GROWTH_SHARE)
        fuzz_s = max(2, round(share_s - grow_s - 2 * START_S / 3))
        grown = _child(GROW, parser.name, scratch, grow_s, seed)
        fuzzed = _child(FUZZ, parser.name, scratch, fuzz_s, seed)
        stats, done = _STATS.findall(fuzzed), _DONE.search(fuzzed)
        inputs += int(done[1]) if done else 0
        faults = [line for line in (grown + fuzzed).splitlines() if line.startswith("FAULT ")]
        covered = f", {stats[-1][0]} edges, {stats[-1][2]} kept" if stats else ""
        print(f"{parser.name:<18} {done[1] if done else '?'} inputs in {fuzz_s} s{covered}, {len(faults)} faults", flush=True)
        if done is None:
            faults.append(f"FAULT {parser.name}: its process ended early:\n{fuzzed[-3000:]}")
        print("\n".join(faults), end="\n" if faults else "", flush=True)
        failed += [parser.name] if faults else []
    print(f"{inputs} inputs, faults in: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _child(what: str, name: str, scratch: Path, seconds: float, seed: int) -> str:
    """Run one part in a process of its own; return all that it printed."""
    words = [sys.executable, "-m", "tests.fuzz", what, name, "--seconds", str(round(seconds)), "--seed", str(seed)]
    limit_s = 120 + 6 * seconds
    try:
        done = subprocess.run(
            [*words, "--scratch", str(scratch)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, check=False
        )  # fmt: skip
        printed = done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as hung:
        return f"{(hung.stdout or b'').decode(errors='replace')}\nFAULT {name}: {what} did not end within {limit_s:.0f} s\n"
    if done.returncode and "FAULT " not in printed:
        printed += f"\nFAULT {name}: {what} ended with {done.returncode}: {printed[-2000:]}\n"
    return printed


class Search:
    """Calls a parser with inputs, and tells each fault once."""

    def __init__(self, name: str, call: Callable[[bytes], object], found: Path) -> None:
        self.name, self._call, self._found = name, call, found
        self._known: set[str] = set()

    def one(self, data: bytes) -> None:
        if (fault := self._fault(data)) is None:
            return
        key = self._key(fault)
        if key in self._known:
            return
        self._known.add(key)
        short = self._shortened(data, key)
        path = self._found / f"{self.name}-{hashlib.sha256(short).hexdigest()[:8]}"
        path.write_bytes(short)
        where = "".join(traceback.format_tb(fault.__traceback__)[-3:])
        print(f"\nFAULT {self.name}: {type(fault).__name__}: {str(fault)[:300]!r} {where!r}", flush=True)
        print(f"FAULT   @example for {self.name} ({path}): {short[:SHOWN_BYTES]!r}", flush=True)

    def _fault(self, data: bytes) -> Exception | None:
        try:
            self._call(data)
        except Exception as fault:
            return fault
        return None

    @staticmethod
    def _key(fault: Exception) -> str:
        frames = [each for each in traceback.extract_tb(fault.__traceback__) if "/ralph" in each.filename]
        last = frames[-1] if frames else None
        text = re.sub(r"[^a-z ]+", "", str(fault))[:25] if isinstance(fault, AssertionError) else ""
        return f"{type(fault).__name__} {last and (last.filename, last.lineno)} {text}"

    def _shortened(self, data: bytes, key: str) -> bytes:
        """Return the input without the parts that the fault does not need."""
        until, size = time.monotonic() + SHRINK_S, len(data) // 2
        while size and time.monotonic() < until:
            at = 0
            while at < len(data) and time.monotonic() < until:
                rest = data[:at] + data[at + size :]
                fault = self._fault(rest)
                if fault is not None and self._key(fault) == key:
                    data = rest
                else:
                    at += size
            size //= 2
        return data


def fuzz_one(name: str, scratch: Path, seconds: int, seed: int) -> int:
    """Fuzz one parser in this process, which ends with it."""
    try:
        import atheris
    except ImportError:
        return _without_engine(name, scratch, seconds, seed)
    with atheris.instrument_imports(include=["ralphd", "ralphctl"]):
        from tests.fuzz.sets import ALL
    parser, corpus = ALL[name], scratch / f"corpus-{name}"
    corpus.mkdir(exist_ok=True)
    for number, each in enumerate(parser.seeds):
        (corpus / f"seed-{number}").write_bytes(each)
    tokens = scratch / f"tokens-{name}"
    tokens.write_text("\n".join(_quoted(each) for each in parser.tokens if each))
    search = Search(name, parser.call, scratch)
    words = [
        name, f"-max_total_time={seconds}", f"-seed={seed % 2**31}", f"-dict={tokens}", f"-artifact_prefix={scratch}/{name}-",
        f"-timeout={LONGEST_CALL_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={min(MOST_BYTES, parser.most_bytes)}",
        "-print_final_stats=1", str(corpus),
    ]  # fmt: skip
    atheris.Setup(words, search.one)
    atheris.Fuzz()
    return 0


def _quoted(token: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in token[:120]) + '"'


def _without_engine(name: str, scratch: Path, seconds: int, seed: int) -> int:
    from tests.fuzz.mutation import inputs
    from tests.fuzz.sets import ALL

    search, until, count = Search(name, ALL[name].call, scratch), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for data in inputs(ALL[name], seed + count, 500):
            search.one(data)
            count += 1
    print(f"Done {count} runs in {seconds} second(s)")
    return 0


def grow_one(name: str, seconds: int, seed: int) -> int:
    """Check the growth of one parser's time, in an order that the seed makes."""
    from tests.fuzz.growth import faults
    from tests.fuzz.sets import ALL

    for fault in faults(ALL[name], seed=seed, seconds=seconds):
        print(f"\nFAULT {fault}", flush=True)
    return 0

"""Fuzz each parser for its share of the time, guided by coverage, in a process of its own.

A fault does not end the search: its shortest input is written to a file and printed as Python. Without
atheris (it has no wheel for each Python) the seeded generator of ``mutation.py`` makes the inputs.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.mutation import inputs
from tests.fuzz.parsers import COMMON_UNITS, Parser

GROWTH_SHARE = 0.35
LONGEST_CALL_S = 20
MOST_BYTES = 1 << 16
MEMORY_MB = 3000
SHRINK_S = 3.0
SHOWN_BYTES = 3000
_STATS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/")
_DONE = re.compile(r"Done (\d+) runs in (\d+) second")


def run(scratch: Path, seconds: int, seed: int, only: Sequence[str]) -> int:
    """Fuzz all parsers, or those named, for ``seconds`` in all. Print what was found; return the exit code.

    Growth is measured here; the engine has a process of its own, since it changes the code that it loads.
    """
    from tests.fuzz.growth import faults
    from tests.fuzz.sets import ALL, folder

    folder()  # made here, so that it is removed at the end of this process, and not left by a fork
    chosen = [ALL[name] for name in only] or list(ALL.values())
    print(f"parsers: {len(chosen)} in {seconds} s, SEED={seed}", flush=True)
    failed = 0
    for parser in chosen:
        share_s = seconds * GROWTH_SHARE * parser.weight / sum(each.weight for each in chosen)

        def grow(parser: Parser = parser, share_s: float = share_s) -> None:
            for fault in faults(parser, seed=seed, seconds=share_s):
                print(f"FAULT {fault}", flush=True)

        printed = _forked(grow, scratch / "grown", limit_s=120 + 4 * share_s)
        print(printed, end="", flush=True)
        failed |= "FAULT" in printed
    words = [sys.executable, "-m", "tests.fuzz", "engine", *(each.name for each in chosen)]
    left_s = str(round(seconds * (1 - GROWTH_SHARE)))
    ended = subprocess.run(
        [*words, "--seconds", left_s, "--seed", str(seed), "--scratch", str(scratch)], check=False
    )
    return int(failed or ended.returncode != 0)


def fuzz_all(scratch: Path, seconds: int, seed: int, names: Sequence[str]) -> int:
    """Fuzz the parsers one after the other, each in a fork of this process."""
    try:
        import atheris
    except ImportError:
        from tests.fuzz.sets import ALL

        work = _without_engine
    else:
        with atheris.instrument_imports(include=["ralphd", "ralphctl"]), _quiet(scratch / "loaded"):
            from tests.fuzz.sets import ALL

        work = _with_engine
    from tests.fuzz.sets import folder

    folder()
    weights, total, failed = sum(ALL[name].weight for name in names), 0, []
    for name in names:
        share_s = max(2, round(seconds * ALL[name].weight / weights))
        printed = _forked(
            lambda name=name, share_s=share_s: work(ALL[name], scratch, share_s, seed),  # type: ignore[misc]
            scratch / "fuzzed",
            limit_s=60 + 3 * share_s,
        )
        faults = [line for line in printed.splitlines() if line.startswith("FAULT ")]
        stats, done = _STATS.findall(printed), _DONE.search(printed)
        if done is None:
            faults.append(f"FAULT {name}: its process ended early:\n{printed[-3000:]}")
        count, covered = (
            int(done[1]) if done else 0,
            f", {stats[-1][0]} edges, {stats[-1][2]} kept" if stats else "",
        )
        print(f"{name:<18} {count:>8} inputs in {share_s} s{covered}, {len(faults) // 2} faults", flush=True)
        print("\n".join(faults), end="\n" if faults else "", flush=True)
        total += count
        failed += [name] if faults else []
    print(f"{total} inputs, faults in: {', '.join(failed) or 'none'}", flush=True)
    return 1 if failed else 0


def _forked(work: Callable[[], object], output: Path, *, limit_s: float) -> str:
    """Do ``work`` in a fork and return all that it printed. One that does not end is killed."""
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(0)
    until = time.monotonic() + limit_s
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return output.read_text(errors="replace") + f"\nFAULT it did not end within {limit_s:.0f} s\n"
        time.sleep(0.05)
    return output.read_text(errors="replace")


@contextmanager
def _quiet(output: Path) -> Iterator[None]:
    """Send what is printed on stderr to a file: the engine names each module that it loads."""
    sys.stderr.flush()
    before = os.dup(2)
    with output.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


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


def _with_engine(parser: Parser, scratch: Path, seconds: int, seed: int) -> None:
    import atheris

    corpus = scratch / f"corpus-{parser.name}"
    corpus.mkdir(exist_ok=True)
    for number, each in enumerate(parser.seeds):
        (corpus / f"seed-{number}").write_bytes(each)
    tokens = scratch / f"tokens-{parser.name}"
    tokens.write_text("\n".join(_quoted(each) for each in (*parser.tokens, *COMMON_UNITS) if each))
    search = Search(parser.name, parser.call, scratch)
    words = [
        parser.name,
        f"-max_total_time={seconds}",
        f"-seed={seed % 2**31}",
        f"-dict={tokens}",
        f"-artifact_prefix={scratch}/{parser.name}-",
        f"-timeout={LONGEST_CALL_S}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={min(MOST_BYTES, parser.most_bytes)}",
        "-print_final_stats=1",
        str(corpus),
    ]
    atheris.Setup(words, search.one)
    atheris.Fuzz()


def _quoted(token: bytes) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in token[:120]) + '"'


def _without_engine(parser: Parser, scratch: Path, seconds: int, seed: int) -> None:
    search, until, count = Search(parser.name, parser.call, scratch), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        for data in inputs(parser, seed + count, 500):
            search.one(data)
            count += 1
    print(f"Done {count} runs in {seconds} second(s)")

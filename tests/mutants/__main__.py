"""``make mutants``: change the decisions one change at a time, and see whether the tests notice."""

import argparse
import os
import sys
import time
from collections.abc import Collection, Sequence

from tests.mutants.changes import changes
from tests.mutants.survivors import survivors
from tests.mutants.trial import BrokenTestsError, Result, trials

LIST = "tests/mutants/survivors.toml"
CORE = "ralphd/core"
DECISIONS = (
    *(f"supervision/{name}" for name in ("step", "exit_policy", "requests", "transitions", "reports")),
    *("supervision/explain", "supervision/backoff", "incidents", "record", "stall_detector", "stall_report"),
    *(f"loop/{name}" for name in ("step", "transitions", "failures", "phases", "review", "pool", "tasks")),
    *(f"loop/{name}" for name in ("prompt", "model", "inbox")),
    *("plan", "gate/verdict", "gate/step", "gate/verdict_views", "gate/range"),
    *(f"failures/{name}" for name in ("classify", "patterns", "resets", "reset_parsers", "agent_events")),
    *("delivery", "text", "explanation"),
)
TESTS = ("tests/core",)
WANTED = 0.95


def main(arguments: Sequence[str] | None = None) -> int:
    """0: enough was noticed, and the rest is listed. 1: not so. 2: some tests fail without any change."""
    wanted = _parsed(arguments)
    files = wanted.files or [f"{CORE}/{name}.py" for name in DECISIONS]
    began = time.monotonic()
    made = [change for file in files for change in changes(file) if wanted.function in ("", change.function)]
    known = {survivor.key for survivor in survivors()}
    results: list[Result] = []
    broken = []
    try:
        for result in trials(made, wanted.tests, at_once=wanted.workers):
            if isinstance(result, str):
                broken.append(result)
                continue
            results.append(result)
            if not result.noticed and result.change.key not in known:
                print(_as_entry(result), flush=True)
            _tell_progress(len(results), len(made), sum(not each.noticed for each in results))
    except BrokenTestsError as error:
        print(f"make mutants: nothing was tried: {error}", file=sys.stderr)
        return 2
    print(f"\n{len(made)} changes in {time.monotonic() - began:.0f} s\n")
    verdict = _verdict(files, results, known)
    if broken:
        print("\nNot asked, since they fail without any change:", *broken, sep="\n  ")
    return 2 if broken else verdict


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="modules to change, as paths; without any, all decisions")
    parser.add_argument("--function", default="", help="this function only, as CLASS.NAME or NAME")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="the tests that are asked")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many at once")
    return parser.parse_args(arguments)


def _tell_progress(tried: int, of: int, survived: int) -> None:
    if sys.stderr.isatty() or tried % 500 == 0:
        print(f"{tried} of {of} tried, {survived} not noticed", end="\r", file=sys.stderr, flush=True)


def _verdict(files: Sequence[str], results: Sequence[Result], known: Collection[tuple[str, ...]]) -> int:
    missed = [result for result in results if not result.noticed]
    unlisted = [result for result in missed if result.change.key not in known]
    print(f"{'module':40} {'changes':>8} {'noticed':>8} {'survived':>8} {'listed':>8} {'share':>8}")
    for file in files:
        _print_row(file, [result for result in results if result.change.file == file], known)
    _print_row("all", results, known)
    share = _share(results)
    either = 1 - len(unlisted) / len(results) if results else 1.0
    print(f"\n{share:.1%} of the changes are noticed; noticed or listed with a reason: {either:.1%}.")
    if share < WANTED:
        print(f"Too few: at least {WANTED:.0%} of the changes have to be noticed.")
    if unlisted:
        print(f"{len(unlisted)} survivors are not in the list ({LIST}): write a test, or the reason.")
    return 1 if share < WANTED or unlisted else 0


def _print_row(name: str, results: Sequence[Result], known: Collection[tuple[str, ...]]) -> None:
    missed = [result for result in results if not result.noticed]
    listed = sum(result.change.key in known for result in missed)
    noticed = len(results) - len(missed)
    print(f"{name:40} {len(results):8} {noticed:8} {len(missed):8} {listed:8} {_share(results):8.1%}")


def _share(results: Sequence[Result]) -> float:
    return sum(result.noticed for result in results) / len(results) if results else 1.0


def _as_entry(result: Result) -> str:
    """As it would stand in the list."""
    change = result.change
    asked = (
        "no test runs it"
        if not result.ran
        else f"{result.ran} tests run it"
        if change.function
        else "decided at import"
    )
    return "\n".join(
        (
            f"# line {change.first}; {asked}",
            "[[survivor]]",
            f"file = {_quoted(change.file)}",
            f"function = {_quoted(change.function)}",
            f"before = {_quoted(change.before)}",
            f"after = {_quoted(change.after)}",
            'reason = ""',
            "",
        )
    )


def _quoted(text: str) -> str:
    return f"'{text}'" if "'" not in text else "'''" + text + "'''"


if __name__ == "__main__":
    sys.exit(main())

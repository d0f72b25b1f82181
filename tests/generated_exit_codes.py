"""``docs/exit-codes.md``: the exit codes of ``ralphctl``, and what the end of a run means."""

import importlib
import pkgutil
from collections.abc import Iterator

import ralphctl
from ralphctl.commands import notify
from ralphd import wire
from ralphd.core.supervision.exit_policy import in_words, outcome
from ralphd.core.supervision.model import ExitFacts, Outcome, RunId, Running, RunReports
from ralphd.errors import RalphdError, WithinRun

MEANS = {
    wire.EXIT_OK: "Success. `status`: no ralph is failed or paused.",
    wire.EXIT_FAILED: "Failed, or refused: stderr has the reason and the remedy. "
    "`status`, `build`: a ralph is `failed`. `wait`: the same, or the expected state is out of reach.",
    wire.EXIT_USAGE: "Wrong arguments.",
    3: "No daemon answers; the message has the command that starts one. `notify`: not delivered in time.",
    4: "No ralph of this name, or none in this directory.",
    wire.EXIT_LIMIT: "`build`: a limit of yours was reached.",
    notify.EXIT_CODES["stop"]: "`notify iteration-finished --wait`: the loop is to stop.",
    69: "A program or a package that the command needs is not installed.",
    wire.EXIT_PAUSED: "Paused, or try again later. `status`, `wait`, `build`: a ralph is paused. "
    "`notify iteration-finished --wait`: the loop is to pause.",
    WithinRun.exit_code: "Refused: typed in a supervised run, which may only read and report for itself.",
    78: "The configuration, or a required file, is not usable.",
    wire.EXIT_TIMED_OUT: "`--wait-timeout` expired. The request itself stays in effect.",
    wire.EXIT_INTERRUPTED: "Interrupted by Ctrl-C. `build`: its ralph was stopped.",
    141: "The reader of the output closed it (SIGPIPE).",
}
"""Every exit code of ``ralphctl`` and ``ralphd``, and what it means."""

ENDS: dict[Outcome, str] = {
    Outcome.DONE: 'done; started again only with `restart = "always"`',
    Outcome.PAUSED: "paused; after a usage limit with a known reset it resumes by itself",
    Outcome.LIMIT: "done: a limit was reached",
    Outcome.REFUSED: "failed at once: a restart would not help",
    Outcome.FAILED: "a failure: restarted, until `max_retries` failures in a row",
}
CODES = (0, 1, 2, 5, 75, 78, 126, 127)

INTRODUCTION = """\
# Exit codes

Written by `make docs` from the code; a test fails when it is stale. Do not edit it.

## Of `ralphctl`

`ralphd` itself exits with 0, 1, 2, 75 and 78, with the same meanings: 75 if another daemon owns the state
directory. For several ralphs, `status` exits with the worst code: 1 before 75 before 0. The third column has
the kinds of error with this code, as in a [problem document](routes.md#problems).

| code | means | errors |
| --- | --- | --- |
"""

OF_A_RUN = """
## Of your command

How the Regent interprets the end of a run that it did not request. A run *that reports* has sent
[`hello`](own-loop.md#reports), as the built-in loop does: only then 2, 5 and 78 mean more than a failure.

| exit code | any command | a run that reports |
| --- | --- | --- |
"""


def exit_codes_page() -> str:
    """The text of ``docs/exit-codes.md``."""
    kinds = {code: sorted(slug for slug, its in errors() if its == code) for code in MEANS}
    rows = [f"| {code} | {means} | {_list(kinds[code])} |\n" for code, means in sorted(MEANS.items())]
    ends = [
        f"| {_code(_ended(code))} | {_follows(code)} | {_follows(code, hello=True)} |\n" for code in CODES
    ]
    ends.append(f"| a signal | {_means(_ended(signal=15))} | {_means(_ended(signal=15), hello=True)} |\n")
    return "".join([INTRODUCTION, *rows, OF_A_RUN, *ends])


def errors() -> Iterator[tuple[str, int]]:
    """Every kind of error of the product by its slug, with the code that ``ralphctl`` ends with."""
    for module in pkgutil.walk_packages(ralphctl.__path__, "ralphctl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    ours = (kind for kind in _below(RalphdError) if not kind.__module__.startswith("tests."))
    yield from {(kind.slug, kind.exit_code) for kind in ours}


def _below(base: type[RalphdError]) -> Iterator[type[RalphdError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from _below(kind)


def _list(slugs: list[str]) -> str:
    return ", ".join(f"`{slug}`" for slug in slugs) or "-"


def _ended(code: int | None = None, signal: int | None = None) -> ExitFacts:
    return ExitFacts(RunId("r000001-3fa9c1d2"), 0.0, code=code, signal=signal)


def _code(ending: ExitFacts) -> str:
    return in_words(ending).removeprefix("exit ")


def _follows(code: int, *, hello: bool = False) -> str:
    return _means(_ended(code), hello=hello)


def _means(ending: ExitFacts, *, hello: bool = False) -> str:
    return ENDS[outcome(Running(ending.run_id), ending, RunReports(hello=hello))]

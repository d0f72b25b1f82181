"""notify: a script that a ralph runs reports to its Regent. docs/own-loop.md shows it in a loop.

A report keeps its id over all attempts, so that it counts once however often it arrives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, LazyGroup, Number, printed_as_json, socket_given, wants_json
from ralphctl.cli.overview import CommandEntry
from ralphctl.client import discovery
from ralphctl.client.client import Client, Reply
from ralphctl.format.output import error, message
from ralphd import wire
from ralphd.errors import DaemonBusy, DaemonNotRunning, RalphdError, ShuttingDown, UsageError

_ANSWER_S, _NEXT_S = 10.0, 60.0
AGAIN_S = 1.0
"""Between two attempts to reach the daemon."""
LONGEST_ATTEMPT_S = 3600.0
"""A socket waits for 24 days at most; a longer wait is several attempts."""
WAS_THERE_S = 2.0
"""A daemon that held the request for so long was at work on it, and was not away."""
EXIT_CODES = {"continue": wire.EXIT_OK, "stop": 10, "pause": wire.EXIT_PAUSED}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SECONDS, _USD, _COUNT = Number(10**9), Number(10**6), click.IntRange(0, 10**9)
"""The API's own bounds, checked here for a message in the words of the command line."""
_MOST_WORD_CHARS, _MOST_LINE_CHARS, _MOST_TEXT_CHARS = 100, 500, 4000
_MOST_NAMED = 3
_FORMS = "a moment is 2026-11-22T03:00:00Z, or +90s, +15m, +2h from now, or over"


class Undelivered(DaemonNotRunning):
    """The report was not delivered within the time that the script allows."""

    slug = "undelivered"


def run_here(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the ralph's name and the run's id, from the environment. Raise UsageError outside of a run."""
    name, run_id = environ.get("RALPH_NAME", ""), environ.get("RALPH_RUN_ID", "")
    if not is_id(run_id) or not wire.is_name(name):
        raise UsageError(
            "notify is for scripts that a ralph runs, and this is none",
            why="RALPH_NAME and RALPH_RUN_ID are not set here as they are in the environment of a run",
            mend="ralphctl start DIR -- ./loop.sh  (and notify in loop.sh)",
        )
    return name, run_id


def client_of_run(given: str | None, environ: Mapping[str, str]) -> Client:
    """Return a client of the run's daemon: ``--socket``, the environment's, or its successor.

    Another daemon of this user does not know the run, so its socket is not tried.
    """

    def find() -> list[str]:
        if given or not environ.get("RALPHD_SOCKET"):
            return discovery.candidates(given, environ, _directory())
        signpost = discovery.lock_owner_above(_directory())
        return list(dict.fromkeys(path for path in (environ["RALPHD_SOCKET"], signpost) if path))

    return Client(find)


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # deleted; nothing points anywhere from there
        return "/"


def delivered(
    client: Client, name: str, report: Mapping[str, object], *, timeout_s: float, patient: bool
) -> Reply:
    """Send a report until it is answered, for ``timeout_s`` seconds at most; return the answer.

    With ``patient`` only the time counts in which the daemon is away; the answer itself is unbounded.
    Raise Undelivered if none came in time, and what the daemon refuses.
    """
    began, has_told = time.monotonic(), False
    while True:
        asked = time.monotonic()
        # A patient report is bounded by the socket alone.
        limit_s = LONGEST_ATTEMPT_S if patient else max(began + timeout_s - asked, 0.1)
        try:
            return client.report(name, report, limit_s=min(limit_s, LONGEST_ATTEMPT_S))
        except (DaemonNotRunning, DaemonBusy, ShuttingDown) as away:
            # Away, ending, or hanging: the same daemon or the next one answers the same id.
            now = time.monotonic()
            began = now if patient and now - asked > WAS_THERE_S else began
            if (left_s := began + timeout_s - now) <= 0:
                what = f"after {timeout_s:g} s the report was not delivered: {away.what}"
                raise Undelivered(what, why=away.why, mend=away.mend) from away
            if not has_told:
                has_told = True
                message(f"{away.what}; the report is sent again for {timeout_s:g} s at most")
        time.sleep(min(AGAIN_S, left_s))


def is_id(text: str) -> bool:
    """Return whether the API accepts ``text`` as the id of a run or of a report."""
    return bool(text) and text.isprintable() and len(text) <= _MOST_WORD_CHARS


def one_line(text: str, most_chars: int = _MOST_LINE_CHARS) -> str:
    """Return ``text`` as a title or a reason: one line, cut to ``most_chars``."""
    shown = "".join(character for character in text if character.isprintable() or character.isspace())
    return " ".join(shown.split())[:most_chars]


def word(text: str | None) -> str | None:
    """Return ``text`` as the name of an agent or a task; None if it is empty."""
    return one_line(text or "", _MOST_WORD_CHARS) or None


def bounded(text: str) -> str:
    """Return ``text`` as a summary; bytes that are not text become question marks.

    Scripts cut it out of an agent's output, often within a character. That must not cost the report.
    """
    return text.replace("\0", "").encode(errors="replace").decode()[:_MOST_TEXT_CHARS]


def moment(text: str, now: float) -> str | None:
    """Return the moment that ``--until`` means, in RFC 3339; None for ``over``. Raise UsageError."""
    if text == "over":
        return None
    try:
        at = _from_now(text[1:], now) if text.startswith("+") else datetime.fromisoformat(text)
    except (ValueError, OverflowError) as fault:
        raise UsageError(f"--until {text}: this is no moment", why=_FORMS) from fault
    if at.tzinfo is None:
        raise UsageError(f"--until {text}: the zone is missing", why=_FORMS)
    return at.isoformat()


def _from_now(text: str, now: float) -> datetime:
    unit_s = _UNITS_S.get(text[-1:])
    seconds = float(text) if unit_s is None else float(text[:-1]) * unit_s
    if not 0 <= seconds < 1e9:
        raise ValueError(text)
    return datetime.fromtimestamp(now, UTC) + timedelta(seconds=seconds)


def verdict_words(verdict: Mapping[str, Any]) -> str:
    """Return ``reverted abc1234: the tests failed, and pass without it``."""
    about = verdict["reverted"] if verdict["kind"] == "reverted" else verdict["commits"]
    names = [sha[:7] for sha in about[:_MOST_NAMED]]
    more = f" and {len(about) - _MOST_NAMED} more" if len(about) > _MOST_NAMED else ""
    return f"{verdict['kind']}{' ' * bool(names)}{', '.join(names)}{more}: {verdict['why']}"


def without_empty(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in words.items() if value is not None}


notify = LazyGroup(
    "notify",
    table={
        "hello": CommandEntry("notify:hello", "First of all: what this run understands."),
        "iteration-started": CommandEntry("notify:iteration_started", "An iteration begins."),
        "attempt-finished": CommandEntry("notify:attempt_finished", "An agent has ended."),
        "iteration-finished": CommandEntry("notify:iteration_finished", "An iteration is finished. Go on?"),
        "waiting": CommandEntry("notify:waiting", "This run waits until a moment."),
        "cost": CommandEntry("notify:cost", "So much was spent."),
        "heartbeat": CommandEntry("notify:heartbeat", "This run lives."),
    },
    help="For scripts that a ralph runs: tell its Regent what the script is doing.",
    epilog="Exit codes: 0 told, 1 refused, 2 usage or outside of a run, 3 not delivered in time, 4 no such "
    "ralph any more; of iteration-finished --wait: 0 continue, 10 stop, 75 pause. A heartbeat ends with 0 in "
    "any case but 2.",
    no_args_is_help=True,
)


def _common(function: Any) -> Any:
    """Add ``--id`` and ``--wait-timeout``."""
    function = click.option(
        "--id", "report_id", metavar="ID", help="Sent again under the same id it counts once."
    )(function)
    return click.option(
        "--wait-timeout", type=_SECONDS, metavar="S", default=None,
        help="Try for S seconds while the daemon is away (10; 60 with --wait).",
    )(function)  # fmt: skip


def _report(
    kind: str,
    words: Mapping[str, Any],
    *,
    report_id: str | None,
    wait_timeout: float | None,
    patient: bool = False,
) -> Mapping[str, Any]:
    """Deliver a report and return its answer. ``patient``: the answer may take as long as tests do."""
    name, run_id = run_here(os.environ)
    if report_id and not is_id(report_id):
        raise click.UsageError("--id has to be one line of 100 characters at most")
    limit_s = wait_timeout if wait_timeout is not None else (_NEXT_S if patient else _ANSWER_S)
    client = client_of_run(socket_given(), os.environ)
    report = {"run_id": run_id, "id": report_id or os.urandom(12).hex(), "kind": kind, **words}
    reply = delivered(client, name, report, timeout_s=limit_s, patient=patient and wait_timeout is None)
    printed_as_json(reply)
    answer: Mapping[str, Any] = reply.value
    return answer


@click.command(cls=CommonCommand)
@click.option("--signals", is_flag=True, help="It knows SIGUSR1 (pause) and SIGUSR2 (skip the wait).")
@click.option("--agent", metavar="NAME", shell_complete=completers.agents, help="The agent it runs.")
@_common
def hello(signals: bool, agent: str | None, **delivery: Any) -> None:
    """Say first of all what this run understands.

    From then on the exit codes 2, 5 and 78 of the run mean what they mean for Ralph: 5 a limit, 2 and 78 a
    fault that no restart mends. With --signals it gets SIGUSR1 for a pause, SIGUSR2 to skip a wait, and
    SIGTERM as a request to end after its iteration.
    """
    _report("hello", without_empty({"signals": signals, "agent": word(agent)}), **delivery)


@click.command("iteration-started", cls=CommonCommand)
@click.option("--iteration", type=_COUNT, metavar="N", help="Its number, by your own count.")
@click.option("--task", metavar="ID", help="The task it works on.")
@click.option("--title", metavar="TEXT", default="", help="What that task is called.")
@click.option("--agent", metavar="NAME", shell_complete=completers.agents, help="The agent that works.")
@_common
def iteration_started(
    iteration: int | None, task: str | None, title: str, agent: str | None, **delivery: Any
) -> None:
    """An iteration begins: status shows its task, and a stop waits for its end."""
    task_id = word(task) or word(title)  # a plan without ids names its tasks by their text
    on = None if task_id is None else {"id": task_id, "title": one_line(title)}
    words = {"iteration": iteration, "task": on, "agent": word(agent)}
    _report("iteration-started", without_empty(words), **delivery)


@click.command("attempt-finished", cls=CommonCommand)
@click.option(
    "--agent", metavar="NAME", shell_complete=completers.agents, required=True, help="Which agent it was."
)
@click.option("--outcome", metavar="WORD", help="How it ended: done, failed, or a word of yours.")
@click.option("--failure-kind", metavar="KIND", help="Why it failed: rate_limit, timeout, agent_crash, …")
@click.option("--exit-code", type=click.IntRange(-64, 255), metavar="N", help="What it ended with.")
@click.option("--cost", type=_USD, metavar="USD", help="What it has cost.")
@click.option("--duration", type=_SECONDS, metavar="S", help="How long it worked.")
@_common
def attempt_finished(
    agent: str,
    outcome: str | None,
    failure_kind: str | None,
    exit_code: int | None,
    cost: float | None,
    duration: float | None,
    **delivery: Any,
) -> None:
    """One agent process has ended. Without --outcome it failed if kind or exit code say so."""
    words = {
        "agent": word(agent) or "unknown",
        "outcome": word(outcome) or ("failed" if failure_kind or exit_code else "done"),
        "failure_kind": word(failure_kind),
        "exit_code": exit_code,
        "cost_usd": cost,
        "duration_s": duration,
    }
    _report("attempt-finished", without_empty(words), **delivery)


@click.command("iteration-finished", cls=CommonCommand)
@click.option("--iteration", type=_COUNT, metavar="N", help="Its number, by your own count.")
@click.option("--failed", is_flag=True, help="It came to nothing.")
@click.option("--summary", metavar="TEXT", help="What was done, for the history.")
@click.option("--wait", is_flag=True, help="Print continue, stop or pause, and exit with 0, 10 or 75.")
@_common
def iteration_finished(
    iteration: int | None, failed: bool, summary: str | None, wait: bool, **delivery: Any
) -> int:
    """An iteration is finished: it is counted, and a stop or a pause that was asked for takes place here.

    With --wait it prints what to do next, continue, stop or pause, and exits with 0, 10 or 75; what became
    of the iteration's commits, where they are judged, is said on stderr. Without, it prints nothing, judges
    nothing, and a loop that was to end is asked to by SIGTERM when its next iteration starts.
    """
    text = None if summary is None else bounded(summary)
    words = without_empty({"iteration": iteration, "failed": failed, "summary": text})
    if not wait:
        words["wait"] = False
    answer = _report("iteration-finished", words, patient=wait, **delivery)
    if not wait:
        return 0
    if (verdict := answer.get("verdict")) is not None:
        message(verdict_words(verdict))
    then = str(answer["next"])
    if not wants_json():
        click.echo(then)
    return EXIT_CODES[then]


@click.command(cls=CommonCommand)
@click.option("--until", metavar="MOMENT", required=True, help="2026-11-22T03:00:00Z, +90s, +2h, or over.")
@click.option("--reason", metavar="TEXT", help="What it waits for.")
@_common
def waiting(until: str, reason: str | None, **delivery: Any) -> None:
    """This run waits until MOMENT: status counts it down, and its silence is no hang meanwhile.

    The wait is over at that moment, with --until over, or with the next iteration.
    """
    words: dict[str, Any] = {"until": moment(until, time.time())}
    if reason is not None:
        words["reason"] = one_line(reason)
    _report("waiting", words, **delivery)


@click.command(cls=CommonCommand)
@click.argument("usd", type=_USD, metavar="USD")
@_common
def cost(usd: float, **delivery: Any) -> None:
    """USD dollars were spent since the last such report; attempt-finished --cost counts by itself."""
    _report("cost", {"usd": usd}, **delivery)


@click.command(cls=CommonCommand)
@_common
def heartbeat(**delivery: Any) -> None:
    """This run lives. Once it has sent one, it is judged by them: none for long enough is a hang.

    One that is lost is followed by the next, so what keeps it from being delivered is told on stderr, and
    the exit code is 0 all the same.
    """
    run_here(os.environ)
    try:
        _report("heartbeat", {}, **delivery)
    except RalphdError as fault:
        error(fault)

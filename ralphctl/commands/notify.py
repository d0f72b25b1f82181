"""notify: reports from a script that a ralph runs to the daemon. docs/own-loop.md shows them in a loop.

A report keeps its id over all attempts to send it, so that it counts once however often it arrives.
"""

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click

from ralphctl.cli import completers
from ralphctl.cli.click_ext import CommonCommand, LazyGroup, Number, printed_as_json, socket_given, wants_json
from ralphctl.client import discovery
from ralphctl.client.client import Client, Reply
from ralphctl.format.gate_text import commit_words
from ralphctl.format.output import error, message
from ralphd import errors, wire

_ANSWER_S, _NEXT_S = 10.0, 60.0
AGAIN_S = 1.0
"""Between two attempts to reach the daemon."""
LONGEST_ATTEMPT_S = 3600.0
"""A socket waits for 24 days at most; a longer wait is several attempts."""
WAS_THERE_S = 2.0
"""A daemon that held the request for longer than this was working on it, not away."""
EXIT_CODES = {"continue": wire.EXIT_OK, "stop": 10, "pause": wire.EXIT_PAUSED}
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SECONDS, _USD, _COUNT = Number(10**9), Number(10**6), click.IntRange(0, 10**9)
"""The API's own bounds, checked here for a message in the words of the command line."""
_MOST_WORD_CHARS, _MOST_LINE_CHARS, _MOST_TEXT_CHARS = 100, 500, 4000
_FORMS = "use 2026-11-22T03:00:00Z, or +90s, +15m, +2h from now, or over"


class Undelivered(errors.DaemonNotRunning, slug="undelivered"):
    """The report was not delivered within the time that the script allows."""


def run_here(environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the ralph's name and the run's id, from the environment. Raise UsageError outside of a run."""
    name, run_id = environ.get("RALPH_NAME", ""), environ.get("RALPH_RUN_ID", "")
    if not is_id(run_id) or not wire.is_name(name):
        why = "RALPH_NAME and RALPH_RUN_ID are not set here"
        mend = "ralphctl start DIR -- ./loop.sh  (and call notify in loop.sh)"
        raise errors.UsageError("notify works only in a script that a ralph runs", why=why, mend=mend)
    return name, run_id


def client_of_run(given: str | None, environ: Mapping[str, str]) -> Client:
    """Return a client of the run's daemon: ``--socket``, the environment's, or its successor.

    Another daemon of this user does not know the run: its socket is not tried.
    """

    def find() -> list[str]:
        try:
            directory = discovery.here()
        except errors.DirectoryUnusable:  # deleted
            directory = "/"
        if given or not environ.get("RALPHD_SOCKET"):
            return discovery.candidates(given, environ, directory)
        build = discovery.build_socket(environ, directory)
        return list(dict.fromkeys(path for path in (environ["RALPHD_SOCKET"], build) if path))

    return Client(find)


def delivered(
    client: Client, name: str, report: Mapping[str, object], *, timeout_s: float, patient: bool
) -> Reply:
    """Send a report until it is answered, for at most ``timeout_s`` seconds; return the answer.

    With ``patient``, only the time without a daemon counts, and the answer may take any time. Raise
    Undelivered after the timeout, and the error with which the daemon refuses the report.
    """
    began, has_told = time.monotonic(), False
    while True:
        asked = time.monotonic()
        # A patient report is bounded by the socket alone.
        limit_s = LONGEST_ATTEMPT_S if patient else max(began + timeout_s - asked, 0.1)
        try:
            return client.report(name, report, limit_s=min(limit_s, LONGEST_ATTEMPT_S))
        except (errors.DaemonNotRunning, errors.DaemonBusy, errors.ShuttingDown) as away:
            # Away, shutting down, or hanging: this daemon or the next one answers the same id.
            now = time.monotonic()
            began = now if patient and now - asked > WAS_THERE_S else began
            if (left_s := began + timeout_s - now) <= 0:
                what = f"the report was not delivered within {timeout_s:g} s: {away.what}"
                raise Undelivered(what, why=away.why, mend=away.mend) from away
            if not has_told:
                has_told = True
                message(f"{away.what}; retrying for at most {timeout_s:g} s")
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

    Scripts cut it from an agent's output, often within a character, which must not lose the report.
    """
    return text.replace("\0", "").encode(errors="replace").decode()[:_MOST_TEXT_CHARS]


def moment(text: str, now: float) -> str | None:
    """Return the moment that ``--until`` means, in RFC 3339; None for ``over``. Raise UsageError."""
    if text == "over":
        return None
    try:
        at = _from_now(text[1:], now) if text.startswith("+") else datetime.fromisoformat(text)
    except (ValueError, OverflowError) as fault:
        raise errors.UsageError(f"--until: cannot parse {text!r} as a time", why=_FORMS) from fault
    if at.tzinfo is None:
        raise errors.UsageError(f"--until: {text!r} has no time zone", why=_FORMS)
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
    return f"{verdict['kind']} {commit_words([sha[:7] for sha in about])}".rstrip() + f": {verdict['why']}"


def without_empty(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in words.items() if value is not None}


F = TypeVar("F", bound=Callable[..., Any])


@click.group(
    cls=LazyGroup,
    epilog="Exit codes: 0 delivered, 1 refused, 2 usage or outside of a run, 3 not delivered in time, 4 the "
    "ralph was removed; iteration-finished --wait: 0 continue, 10 stop, 75 pause. heartbeat: 0 or 2.",
)
def notify() -> None:
    """Report from a script that a ralph runs to the daemon that supervises it."""


_wait_help = "Try for S seconds while the daemon is away (10; 60 with --wait)."
_wait_option = click.option("--wait-timeout", type=_SECONDS, metavar="S", help=_wait_help)
_id_option = click.option("--id", "report_id", metavar="ID", help="Reports with the same id count once.")
_iteration_option = click.option("--iteration", type=_COUNT, metavar="N", help="Its number, as you count.")


def _common(function: Any) -> Any:
    """Add ``--id`` and ``--wait-timeout``."""
    return _wait_option(_id_option(function))


def _agent_option(purpose: str, *, required: bool = False) -> Callable[[F], F]:
    who = completers.agents
    return click.option("--agent", metavar="NAME", shell_complete=who, required=required, help=purpose)


def _report(kind: str, words: Mapping[str, Any], *, patient: bool = False, **delivery: Any) -> Any:
    """Deliver a report and return its answer. ``patient``: the answer may take as long as tests do."""
    name, run_id = run_here(os.environ)
    report_id, wait_timeout = delivery["report_id"], delivery["wait_timeout"]
    if report_id and not is_id(report_id):
        raise click.UsageError("--id has to be one line of at most 100 characters")
    limit_s = wait_timeout if wait_timeout is not None else (_NEXT_S if patient else _ANSWER_S)
    client = client_of_run(socket_given(), os.environ)
    report = {"run_id": run_id, "id": report_id or os.urandom(12).hex(), "kind": kind, **words}
    reply = delivered(client, name, report, timeout_s=limit_s, patient=patient and wait_timeout is None)
    printed_as_json(reply)
    return reply.value


@click.command(cls=CommonCommand)
@click.option("--signals", is_flag=True, help="The script handles SIGUSR1 (pause), SIGUSR2 (skip the wait).")
@_agent_option("The agent that the script runs.")
@_common
def hello(signals: bool, agent: str | None, **delivery: Any) -> None:
    """Announce what the script supports. Send this first.

    After it, the exit codes 2, 5 and 78 of the run mean what they mean for Ralph: 5 a limit, 2 and 78 a fault
    that no restart fixes. With --signals the script receives SIGUSR1 for a pause, SIGUSR2 to skip a wait, and
    SIGTERM as a request to end after its iteration.
    """
    _report("hello", without_empty({"signals": signals, "agent": word(agent)}), **delivery)


@click.command("iteration-started", cls=CommonCommand)
@_iteration_option
@click.option("--task", metavar="ID", help="The task of the iteration.")
@click.option("--title", metavar="TEXT", default="", help="The title of the task.")
@_agent_option("The agent that works.")
@_common
def iteration_started(
    iteration: int | None, task: str | None, title: str, agent: str | None, **delivery: Any
) -> None:
    """Report that an iteration begins: status shows its task, and a stop waits for its end."""
    task_id = word(task) or word(title)  # a plan without ids names its tasks by their text
    on = None if task_id is None else {"id": task_id, "title": one_line(title)}
    words = {"iteration": iteration, "task": on, "agent": word(agent)}
    _report("iteration-started", without_empty(words), **delivery)


@click.command("attempt-finished", cls=CommonCommand)
@_agent_option("The agent.", required=True)
@click.option("--outcome", metavar="WORD", help="How it ended: done, failed, or a word of your own.")
@click.option("--failure-kind", metavar="KIND", help="Why it failed: rate_limit, timeout, agent_crash, …")
@click.option("--exit-code", type=click.IntRange(-64, 255), metavar="N", help="Its exit code.")
@click.option("--cost", "cost_usd", type=_USD, metavar="USD", help="What it cost.")
@click.option("--duration", "duration_s", type=_SECONDS, metavar="S", help="How long it worked.")
@_common
def attempt_finished(agent: str, report_id: str | None, wait_timeout: float | None, **facts: Any) -> None:
    """Report that an agent process has ended.

    Without --outcome it failed if --failure-kind is given or the exit code is not 0.
    """
    outcome = word(facts["outcome"]) or ("failed" if facts["failure_kind"] or facts["exit_code"] else "done")
    facts |= {"outcome": outcome, "failure_kind": word(facts["failure_kind"])}
    words = {"agent": word(agent) or "unknown", **without_empty(facts)}
    _report("attempt-finished", words, report_id=report_id, wait_timeout=wait_timeout)


@click.command("iteration-finished", cls=CommonCommand)
@_iteration_option
@click.option("--failed", is_flag=True, help="The iteration failed.")
@click.option("--summary", metavar="TEXT", help="What was done, for the history.")
@click.option("--wait", is_flag=True, help="Print continue, stop or pause, and exit with 0, 10 or 75.")
@_common
def iteration_finished(
    iteration: int | None, failed: bool, summary: str | None, wait: bool, **delivery: Any
) -> int:
    """Report the end of an iteration, at which a requested stop or pause takes effect.

    With --wait, print what to do next (continue, stop or pause), exit with 0, 10 or 75, and print the verdict
    on the iteration's commits, if they are tested, on stderr. Without it, print nothing and test nothing; a
    loop that has to end receives SIGTERM when its next iteration starts.
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
@click.option("--until", metavar="TIME", required=True, help="2026-11-22T03:00:00Z, +90s, +2h, or over.")
@click.option("--reason", metavar="TEXT", help="What it waits for.")
@_common
def waiting(until: str, reason: str | None, **delivery: Any) -> None:
    """Report that the script waits until TIME: status shows it, and silence does not count as a hang.

    The wait ends at that time, with --until over, or with the next iteration.
    """
    words: dict[str, Any] = {"until": moment(until, time.time())}
    if reason is not None:
        words["reason"] = one_line(reason)
    _report("waiting", words, **delivery)


@click.command(cls=CommonCommand)
@click.argument("usd", type=_USD, metavar="USD")
@_common
def cost(usd: float, **delivery: Any) -> None:
    """Report USD dollars spent since the last such report. attempt-finished --cost counts separately."""
    _report("cost", {"usd": usd}, **delivery)


@click.command(cls=CommonCommand)
@_common
def heartbeat(**delivery: Any) -> None:
    """Report that the script is alive. After the first heartbeat, missing ones count as a hang.

    A lost heartbeat is followed by the next one: if it cannot be delivered, the reason is printed on stderr,
    and the exit code is still 0.
    """
    run_here(os.environ)
    try:
        _report("heartbeat", {}, **delivery)
    except errors.RalphdError as fault:
        error(fault)

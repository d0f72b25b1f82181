"""notify: what a script that a ralph runs tells its Regent. docs/own-loop.md shows it in a loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ralphctl import completers, reporting
from ralphctl.entry import Entry
from ralphctl.grammar import Command, LazyGroup, Number, print_reply, socket_given, wants_json
from ralphctl.reporting import Postman, Run
from ralphctl.tell import error, message
from ralphd.errors import RalphdError

F = TypeVar("F", bound=Callable[..., Any])

_PLACE = "ralphctl.commands.notify"
_ANSWER_S, _NEXT_S = 10.0, 60.0


_SECONDS, _USD = Number(reporting.MOST_SECONDS), Number(reporting.MOST_USD)
_COUNT = click.IntRange(0, reporting.MOST_COUNT)

notify = LazyGroup(
    "notify",
    table={
        "hello": Entry(f"{_PLACE}:hello", "First of all: what this run understands."),
        "iteration-started": Entry(f"{_PLACE}:iteration_started", "An iteration begins."),
        "attempt-finished": Entry(f"{_PLACE}:attempt_finished", "An agent has ended."),
        "iteration-finished": Entry(f"{_PLACE}:iteration_finished", "An iteration is finished. Go on?"),
        "waiting": Entry(f"{_PLACE}:waiting", "This run waits until a moment."),
        "cost": Entry(f"{_PLACE}:cost", "So much was spent."),
        "heartbeat": Entry(f"{_PLACE}:heartbeat", "This run lives."),
    },
    help="For scripts that a ralph runs: tell its Regent what the script is doing.",
    epilog="Exit codes: 0 told, 1 refused, 2 usage or outside of a run, 3 not delivered in time, 4 no such "
    "ralph any more; of iteration-finished --wait: 0 continue, 10 stop, 75 pause. A heartbeat ends with 0 in "
    "any case but 2.",
    no_args_is_help=True,
)


def _common(function: F) -> F:
    """``--id`` and ``--wait-timeout``."""
    function = click.option(
        "--id", "report_id", metavar="ID", help="Sent again under the same id it counts once."
    )(function)
    return click.option(
        "--wait-timeout", type=_SECONDS, metavar="S", default=None,
        help="Try for S seconds while the daemon is away (10; 60 with --wait).",
    )(function)  # fmt: skip


def _tell(
    kind: str,
    report_id: str | None,
    timeout_s: float | None,
    words: Mapping[str, Any],
    *,
    patient: bool = False,
) -> Mapping[str, Any]:
    """Deliver a report; its answer, with what to do next. ``patient``: the answer may take its time."""
    run = Run.here(os.environ)
    if report_id and not reporting.is_id(report_id):
        raise click.UsageError("--id has to be one line of 100 characters at most")
    limit_s = timeout_s if timeout_s is not None else (_NEXT_S if patient else _ANSWER_S)
    client = reporting.client_of_run(socket_given(), os.environ)
    postman = Postman(client, run.name, limit_s, patient=patient and timeout_s is None)
    head = {"run_id": run.run_id, "id": report_id or reporting.new_id(), "kind": kind}
    reply = postman.deliver({**head, **words})
    if wants_json():
        print_reply(reply)
    told: Mapping[str, Any] = reply.value
    return told


@click.command(cls=Command)
@click.option("--signals", is_flag=True, help="It knows SIGUSR1 (pause) and SIGUSR2 (skip the wait).")
@click.option("--agent", metavar="NAME", shell_complete=completers.agents, help="The agent it runs.")
@_common
def hello(signals: bool, agent: str | None, report_id: str | None, wait_timeout: float | None) -> None:
    """Say first of all what this run understands.

    From then on the exit codes 2, 5 and 78 of the run mean what they mean for Ralph: 5 a limit, 2 and 78 a
    fault that no restart mends. With --signals it gets SIGUSR1 for a pause, SIGUSR2 to skip a wait, and
    SIGTERM as a request to end after its iteration.
    """
    _tell(
        "hello",
        report_id,
        wait_timeout,
        reporting.without_empty({"signals": signals, "agent": reporting.word(agent)}),
    )


@click.command("iteration-started", cls=Command)
@click.option("--iteration", type=_COUNT, metavar="N", help="Its number, by your own count.")
@click.option("--task", metavar="ID", help="The task it works on.")
@click.option("--title", metavar="TEXT", default="", help="What that task is called.")
@click.option("--agent", metavar="NAME", shell_complete=completers.agents, help="The agent that works.")
@_common
def iteration_started(
    iteration: int | None,
    task: str | None,
    title: str,
    agent: str | None,
    report_id: str | None,
    wait_timeout: float | None,
) -> None:
    """An iteration begins: status shows its task, and a stop waits for its end."""
    task_id = reporting.word(task) or reporting.word(
        title
    )  # a plan without ids names its tasks by their text
    on = None if task_id is None else {"id": task_id, "title": reporting.one_line(title)}
    words = {"iteration": iteration, "task": on, "agent": reporting.word(agent)}
    _tell("iteration-started", report_id, wait_timeout, reporting.without_empty(words))


@click.command("attempt-finished", cls=Command)
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
    report_id: str | None,
    wait_timeout: float | None,
) -> None:
    """One agent process has ended. Without --outcome it failed if kind or exit code say so."""
    words = {
        "agent": reporting.word(agent) or "unknown",
        "outcome": reporting.word(outcome) or ("failed" if failure_kind or exit_code else "done"),
        "failure_kind": reporting.word(failure_kind),
        "exit_code": exit_code,
        "cost_usd": cost,
        "duration_s": duration,
    }
    _tell("attempt-finished", report_id, wait_timeout, reporting.without_empty(words))


@click.command("iteration-finished", cls=Command)
@click.option("--iteration", type=_COUNT, metavar="N", help="Its number, by your own count.")
@click.option("--failed", is_flag=True, help="It came to nothing.")
@click.option("--summary", metavar="TEXT", help="What was done, for the history.")
@click.option("--wait", is_flag=True, help="Print continue, stop or pause, and exit with 0, 10 or 75.")
@_common
def iteration_finished(
    iteration: int | None,
    failed: bool,
    summary: str | None,
    wait: bool,
    report_id: str | None,
    wait_timeout: float | None,
) -> int:
    """An iteration is finished: it is counted, and a stop or a pause that was asked for takes place here.

    With --wait it prints what to do next, continue, stop or pause, and exits with 0, 10 or 75; what became
    of the iteration's commits, where they are judged, is said on stderr. Without, it prints nothing, judges
    nothing, and a loop that was to end is asked to by SIGTERM when its next iteration starts.
    """
    told = None if summary is None else reporting.bounded(summary)
    words = reporting.without_empty({"iteration": iteration, "failed": failed, "summary": told})
    if not wait:
        words["wait"] = False
    answer = _tell("iteration-finished", report_id, wait_timeout, words, patient=wait)
    if not wait:
        return 0
    if (verdict := answer.get("verdict")) is not None:
        message(reporting.verdict_words(verdict))
    then = str(answer["next"])
    if not wants_json():
        click.echo(then)
    return reporting.EXIT_CODES[then]


@click.command(cls=Command)
@click.option("--until", metavar="MOMENT", required=True, help="2026-11-22T03:00:00Z, +90s, +2h, or over.")
@click.option("--reason", metavar="TEXT", help="What it waits for.")
@_common
def waiting(until: str, reason: str | None, report_id: str | None, wait_timeout: float | None) -> None:
    """This run waits until MOMENT: status counts it down, and its silence is no hang meanwhile.

    The wait is over at that moment, with --until over, or with the next iteration.
    """
    words: dict[str, Any] = {"until": reporting.moment(until, time.time())}
    if reason is not None:
        words["reason"] = reporting.one_line(reason)
    _tell("waiting", report_id, wait_timeout, words)


@click.command(cls=Command)
@click.argument("usd", type=_USD, metavar="USD")
@_common
def cost(usd: float, report_id: str | None, wait_timeout: float | None) -> None:
    """USD dollars were spent since the last such report; attempt-finished --cost counts by itself."""
    _tell("cost", report_id, wait_timeout, {"usd": usd})


@click.command(cls=Command)
@_common
def heartbeat(report_id: str | None, wait_timeout: float | None) -> None:
    """This run lives. Once it has sent one, it is judged by them: none for long enough is a hang.

    One that is lost is followed by the next, so what keeps it from being delivered is told on stderr, and
    the exit code is 0 all the same.
    """
    Run.here(os.environ)
    try:
        _tell("heartbeat", report_id, wait_timeout, {})
    except RalphdError as fault:
        error(fault)

"""Writes the files that say what the code does: ``python -m tests.generated --write``.

``docs/states.md``: what ``ralphd.core.supervision.step.step`` answers to each event in each state.
``docs/routes.md``: what the daemon answers to, from its OpenAPI document (``tests.generated_routes``).
``docs/configuration.md``: every key, from the specs (``tests.generated_configuration``).
``docs/commands.md``, ``docs/events.md``, ``docs/exit-codes.md``: from help, wire and errors.
``docs/rules.md``: from ``tests/requirements.md``.
``systemd/``: the units that ``ralphctl.local.units`` makes, for who packages ralphd.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path

from ralphctl.local import units
from ralphd.core.gate.verdict import Baseline, Result, Verdict, VerdictKind
from ralphd.core.supervision.events import (
    BaselineTested,
    CommitsRestored,
    Committed,
    DaemonStarted,
    DaemonStopping,
    Event,
    FellSilent,
    GraceOver,
    JudgementBegan,
    JudgementOver,
    LeftBehind,
    Overran,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RunEnded,
    SkipWaitRequested,
    Spawned,
    SpawnFailed,
    SpawnPostponed,
    StartRequested,
    StopRequested,
    Woke,
)
from ralphd.core.supervision.model import (
    HAS_A_RUN,
    Action,
    Announce,
    ControlSignal,
    Done,
    Escalate,
    ExitFacts,
    Failed,
    Goal,
    KillAfter,
    KillTree,
    LastWord,
    Mode,
    Overdue,
    PassOn,
    Paused,
    Pausing,
    Policy,
    Reason,
    ReportedWait,
    Restart,
    RunId,
    Running,
    RunReports,
    Spawn,
    Starting,
    State,
    Stopped,
    Stopping,
    Supervision,
    Tally,
    Terminate,
    Waiting,
    WakeAt,
)
from ralphd.core.supervision.reports import (
    AgentExhausted,
    AgentReturned,
    AttemptFinished,
    Cost,
    Heartbeat,
    Hello,
    IterationFinished,
    IterationStarted,
    Report,
    Reported,
    WaitingUntil,
)
from ralphd.core.supervision.requests import why_not
from ralphd.core.supervision.step import step
from ralphd.core.supervision.transitions import Step
from ralphd.core.time import Moment
from tests.generated_commands import commands_page
from tests.generated_configuration import configuration_page
from tests.generated_events import events_page
from tests.generated_exit_codes import exit_codes_page
from tests.generated_routes import routes_page
from tests.generated_rules import rules_page

ROOT = Path(__file__).parent.parent
T: Moment = 1_800_000_000.0
RUN = RunId("r000001-3fa9c1d2")
WITHIN_A_WAIT, AFTER_IT, BEFORE_IT = T + 10, T + 100_000, T - 86_400

SCENES: Mapping[str, Supervision] = {
    "idle": Supervision(),
    "starting, a person waits for the answer": Supervision(Goal.RUNNING, Starting(before=Stopped())),
    "starting, by itself": Supervision(Goal.RUNNING, Starting()),
    "starting, and a stop was asked for": Supervision(Goal.STOPPED, Starting(before=Stopped())),
    "starting, and a pause was asked for": Supervision(Goal.PAUSED, Starting(before=Stopped())),
    "running": Supervision(Goal.RUNNING, Running(RUN)),
    "running, after two failures in a row": Supervision(Goal.RUNNING, Running(RUN), Tally(2, 2)),
    "running, and reports its iterations": Supervision(
        Goal.RUNNING, Running(RUN), Tally(2, 2), RunReports(iterates=True)
    ),
    "running, and knows our signals": Supervision(
        Goal.RUNNING, Running(RUN), said=RunReports(hello=True, signals=True, iterates=True)
    ),
    "running, and waits, as it reported": Supervision(
        Goal.RUNNING,
        Running(RUN),
        said=RunReports(hello=True, signals=True, wait=ReportedWait("rate_limit", T + 30)),
    ),
    "running, and says that it gives up (1)": Supervision(
        Goal.RUNNING,
        Running(RUN),
        said=RunReports(hello=True, signals=True, last_word=LastWord(1, "no_agent", "no agent is left")),
    ),
    "running, and says that it gets nowhere (0)": Supervision(
        Goal.RUNNING,
        Running(RUN),
        said=RunReports(
            hello=True, signals=True, last_word=LastWord(0, "no_progress", "nothing was committed")
        ),
    ),
    "running, ended as a stall": Supervision(Goal.RUNNING, Running(RUN, Overdue.STALL)),
    "running, ended for its length": Supervision(Goal.RUNNING, Running(RUN, Overdue.TIMEOUT)),
    "waiting_for_retry": Supervision(Goal.RUNNING, Waiting(Reason.CRASH, T, T + 30), Tally(1)),
    "waiting_for_retry, between two iterations": Supervision(
        Goal.RUNNING, Waiting(Reason.ITERATION_PAUSE, T, T + 30)
    ),
    "pausing": Supervision(Goal.PAUSED, Pausing(RUN, T, T + 30)),
    "pausing, at the next boundary": Supervision(
        Goal.PAUSED, Pausing(RUN, T, None, asked=False), said=RunReports(iterates=True)
    ),
    "paused, on request": Supervision(Goal.PAUSED, Paused("requested")),
    "paused, until a limit's reset": Supervision(Goal.RUNNING, Paused("usage_limit", T + 3600)),
    "paused, by a run that ended with 75": Supervision(Goal.RUNNING, Paused("usage_limit")),
    "stopping": Supervision(Goal.STOPPED, Stopping(RUN, T, T + 30)),
    "stopping, at the next boundary": Supervision(
        Goal.STOPPED, Stopping(RUN, T, None, asked=False), said=RunReports(iterates=True)
    ),
    "stopping, told so at a boundary": Supervision(
        Goal.STOPPED, Stopping(RUN, T, T + 30, asked=False), said=RunReports(iterates=True)
    ),
    "stopping, at a limit of the user's own": Supervision(
        Goal.RUNNING,
        Stopping(RUN, T, T + 30, asked=False),
        said=RunReports(iterates=True, limit="5 iterations, as you asked"),
    ),
    "stopping, to start again": Supervision(Goal.RUNNING, Stopping(RUN, T, T + 30, again=True)),
    "stopping, with the daemon": Supervision(Goal.RUNNING, Stopping(RUN, T, T + 30)),
    "stopped": Supervision(Goal.STOPPED, Stopped()),
    "stopped, with the daemon": Supervision(Goal.RUNNING, Stopped()),
    "failed": Supervision(Goal.RUNNING, Failed("exit 1")),
    "done": Supervision(Goal.RUNNING, Done()),
}


def _end(code: int | None = None, *, signal: int | None = None) -> ExitFacts:
    return ExitFacts(RUN, T + 5, code=code, signal=signal)


def _report(what: Report) -> Event:
    return Reported(T + 5, RUN, "1", "digest", what)


def _verdict(kind: VerdictKind, why: str, *, pauses: bool = False) -> Event:
    verdict = Verdict(kind, why, Baseline.GREEN, pauses=pauses)
    reverted = ("abc1234",) if kind is VerdictKind.REVERTED else ()
    return JudgementOver(T + 5, RUN, verdict, 4, None, ("abc1234",), reverted, ("green",))


_PAUSE = replace(_end(75), pause_reason="usage_limit")
ENDS: Mapping[str, Event] = {
    "the run ends with 0": RunEnded(_end(0)),
    "the run ends with 1": RunEnded(_end(1)),
    "the run ends with 1, after a new commit": RunEnded(replace(_end(1), committed=True)),
    "the run ends with 2 or 78": RunEnded(_end(2)),
    "the run ends with 5": RunEnded(_end(5)),
    "the run ends with 75: a usage limit, reset known": RunEnded(replace(_PAUSE, resume_at=T + 3600)),
    "the run ends with 75: a usage limit, reset unknown": RunEnded(_PAUSE),
    "the run ends by a signal": RunEnded(_end(signal=9)),
    "the run is lost": RunEnded(_end()),
}
REPORTS: Mapping[str, Event] = {
    "it reports: hello": _report(Hello(signals=True)),
    "it reports: an iteration begins": _report(IterationStarted(4)),
    "it reports: an attempt has ended": _report(AttemptFinished("claude", "done")),
    "it reports: an iteration is finished": _report(IterationFinished(4)),
    "it reports: an iteration has failed": _report(IterationFinished(4, failed=True)),
    "it reports: it waits": _report(WaitingUntil(T + 60, "rate_limit")),
    "it reports: it waits no longer": _report(WaitingUntil(None)),
    "it reports: what it cost": _report(Cost(0.5)),
    "it reports: an agent is exhausted": _report(AgentExhausted("claude", "usage limit", T + 3600)),
    "it reports: an agent is back": _report(AgentReturned("claude")),
    "it reports: its last word": _report(LastWord(1, "no_agent", "no agent is left")),
    "it reports: it lives": _report(Heartbeat()),
}
EVENTS: Mapping[str, Event] = {
    "start": StartRequested(T),
    "stop": StopRequested(T),
    "stop --now": StopRequested(T, now=True),
    "pause": PauseRequested(T),
    "resume": ResumeRequested(T),
    "restart": RestartRequested(T),
    "skip-wait": SkipWaitRequested(T),
    "the daemon is asked to end": DaemonStopping(T),
    "the daemon is asked to end now": DaemonStopping(T, now=True),
    "a daemon starts, no run lives": DaemonStarted(T + 10),
    "a daemon starts, the run lives": DaemonStarted(T + 10, RUN),
    "the command runs": Spawned(T, RUN),
    "the command cannot be started": SpawnFailed(T, "why"),
    "the machine cannot start it just now": SpawnPostponed(T, "why"),
    **ENDS,
    **REPORTS,
    "its tests begin": JudgementBegan(T + 5, RUN),
    "the tests before the first run begin": JudgementBegan(T, None),
    "they are green": BaselineTested(T, "t1", Result.GREEN),
    "they are red": BaselineTested(T, "t1", Result.RED),
    "they cannot be run": BaselineTested(T, "t1", Result.CANNOT_RUN, "exit 127"),
    "they were not to go on": BaselineTested(T, "t1", None),
    "the verdict is: kept": _verdict(VerdictKind.KEPT, "the tests pass"),
    "the verdict is: reverted": _verdict(VerdictKind.REVERTED, "the tests failed, and pass without it"),
    "the verdict is: a person has to look": _verdict(VerdictKind.UNTESTED, "a conflict in a.py", pauses=True),
    "what was reverted is put back": CommitsRestored(T + 5, "f1", RUN, 2, None, ("abc1234",), ("def5678",)),
    "its end left something in the repository": LeftBehind(
        T + 5, RUN, ("removed .git/index.lock",), ("a rebase is half done",)
    ),
    "it has fallen silent": FellSilent(T + 5, RUN, "what was seen"),
    "it hangs": Overran(T + 5, RUN, Overdue.STALL, "what was seen"),
    "it is longer than it may be": Overran(T + 5, RUN, Overdue.TIMEOUT, "what was seen"),
    "it has made a commit": Committed(T + 5, RUN, 1),
    "the grace is over": GraceOver(T + 30, RUN),
    "woken too early": Woke(WITHIN_A_WAIT),
    "woken, the moment has come": Woke(AFTER_IT),
    "woken, the clock was set back a day": Woke(BEFORE_IT),
}
POLICIES: Mapping[str, Policy] = {
    'restart = "always"': Policy(restart=Restart.ALWAYS),
    'restart = "never"': Policy(restart=Restart.NEVER),
    'mode = "iteration"': Policy(mode=Mode.ITERATION),
    "max_retries = 0": Policy(max_retries=0),
    "enabled = false": Policy(supervised=False),
}
INTRODUCTION = """\
# What follows what

Written by `make docs` from `ralphd.core.supervision.step.step`; a test fails when it is stale. Do not edit it.

Each heading is a state, with the goal: what is wanted. Each row holds the events that change something or
lead to an order, for a ralph with the default policy. The wait, the stop or the pause of a heading began at
+0 s; a daemon starts at +10 s, and a run ends at +5 s. The state is written down before the orders are
carried out, one by one. *Tell* goes to the event stream, with what the Regent says to people in quotes;
*call a person* is the escalation.
"""


def states_page() -> str:
    """The text of ``docs/states.md``."""
    parts = [INTRODUCTION, *(_section(name, now) for name, now in SCENES.items()), _policies()]
    return "\n".join(parts)


def _section(name: str, now: Supervision) -> str:
    answers, silent, refused = dict[str, str](), list[str](), dict[str, list[str]]()
    for heard, event in EVENTS.items():
        answer = step(now, event, Policy())
        if (why := why_not(now, event)) is not None:
            refused.setdefault(why, []).append(heard)
        elif answer == Step(now):
            silent.append(heard)
        else:
            answers[heard] = _answer(now, answer)
    refusals = "\n".join(f"- Refused: {_list(heard)}: {why}." for why, heard in refused.items())
    blocks = [f"## {name}", f"Goal: {now.goal}.", _table("event", answers), refusals]
    nothing = f"Changes nothing: {_list(silent)}." if silent else ""
    return "\n\n".join(block for block in [*blocks, nothing] if block) + "\n"


def _policies() -> str:
    now = SCENES["running"]
    answers = {
        f"{key}: {heard}": _answer(now, step(now, event, policy))
        for key, policy in POLICIES.items()
        for heard, event in ENDS.items()
        if step(now, event, policy) != step(now, event, Policy())
    }
    head = "## running, by policy\n\nWhere an end leads elsewhere than by default."
    return f"{head}\n\n{_table('policy and event', answers)}\n"


def _table(head: str, answers: Mapping[str, str]) -> str:
    """One row an answer, with all the events that lead to it."""
    heard_by_answer: dict[str, list[str]] = {}
    for heard, answer in answers.items():
        heard_by_answer.setdefault(answer, []).append(heard)
    rows = [f"| {_list(heard)} | {answer} |" for answer, heard in heard_by_answer.items()]
    return "\n".join([f"| {head} | then | orders |", "| --- | --- | --- |", *rows])


def _list(heard: list[str]) -> str:
    for all_of, in_short in (
        (ENDS, "the run ends, however it does"),
        (REPORTS, "it reports, whatever it is"),
    ):
        if set(all_of) <= set(heard):
            heard = [*(one for one in heard if one not in all_of), in_short]
    return "; ".join(heard)


def _answer(now: Supervision, answer: Step) -> str:
    then = _in_words(answer.supervision.state)
    if answer.supervision.goal is not now.goal:
        then += f"; goal: {answer.supervision.goal}"
    then += "".join(f"; {noted}" for noted in _noted(now, answer.supervision))
    return f"{then} | {', '.join(map(_order, answer.actions)) or '-'}"


def _noted(before: Supervision, after: Supervision) -> list[str]:
    """What else is written down while the run lives: what it said, what was counted."""
    if not isinstance(after.state, HAS_A_RUN):
        return []
    parts = ((before.said, after.said), (before.tally, after.tally))
    return [
        f"{field.name.replace('_', ' ')} noted"
        for was, now in parts
        for field in fields(was)
        if getattr(was, field.name) != getattr(now, field.name) and field.name != "answered"
    ]


def _in_words(state: State) -> str:
    match state:
        case Waiting(reason=reason, since=since, until=until):
            return f"{state.kind} ({reason}) for {until - since:g} s"
        case Paused(reason=reason, resume_at=None):
            return f"{state.kind} ({reason})"
        case Paused(reason=reason, resume_at=float() as resume_at):
            return f"{state.kind} ({reason}) until {_after(resume_at)}"
        case Stopping(kill_at=kill_at, again=again):
            return f"{state.kind}{', to start again' * again}{_deadline(kill_at, asked=state.asked)}"
        case Pausing(kill_at=kill_at):
            return f"{state.kind}{_deadline(kill_at, asked=state.asked)}"
        case Running(overdue=Overdue() as overdue):
            return f"{state.kind}, ended by us ({overdue})"
        case Starting(before=before, kill=kill):
            asked = "" if before is None else ", a person waits for the answer"
            return f"{state.kind}{asked}{', to be killed when it is there' * kill}"
        case Done(why=why):
            return f"{state.kind} ({why})"
        case _:
            return state.kind


def _deadline(kill_at: Moment | None, *, asked: bool) -> str:
    if kill_at is None:
        return ", at its next boundary"
    return f", {'killed' if asked else 'asked by a signal'} at {_after(kill_at)}"


def _order(action: Action) -> str:
    match action:
        case Spawn():
            return "start a run"
        case Terminate():
            return "ask it to end"
        case PassOn(wish=wish):
            return (
                "ask it to pause (SIGUSR1)" if wish is ControlSignal.PAUSE else "ask it not to wait (SIGUSR2)"
            )
        case KillTree():
            return "kill the tree"
        case KillAfter(delay_s=delay_s):
            return f"grace of {delay_s:g} s"
        case WakeAt(at=at):
            return f"wake at {_after(at)}"
        case Escalate(text=text):
            return f'call a person: "{text}"'
        case Announce(type=kind, text=None):
            return f"tell `{kind}`"
        case Announce(type=kind, text=text):
            return f'tell `{kind}` "{text}"'


def _after(moment: Moment) -> str:
    return f"{moment - T:+g} s"


PAGES: Mapping[Path, Callable[[], str]] = {
    ROOT / "docs" / "states.md": states_page,
    ROOT / "docs" / "routes.md": routes_page,
    ROOT / "systemd" / "ralphd.service": lambda: units.system_service(units.PACKAGED, "ralph"),
    ROOT / "systemd" / "ralphd.socket": lambda: units.system_socket("ralph"),
    ROOT / "systemd" / "user" / "ralphd.service": lambda: units.user_service(units.PACKAGED),
    ROOT / "docs" / "configuration.md": configuration_page,
    ROOT / "docs" / "commands.md": commands_page,
    ROOT / "docs" / "events.md": events_page,
    ROOT / "docs" / "exit-codes.md": exit_codes_page,
    ROOT / "docs" / "rules.md": rules_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or say how to."""
    if arguments != ["--write"]:
        print("python -m tests.generated --write", file=sys.stderr)
        return 2
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

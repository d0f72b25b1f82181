"""What a person is told who is called: what happened, what it needs from them, and the command to type."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ralphd.core.events import BaselineTested, Event, JudgementOver, RunEnded, SpawnFailed
from ralphd.core.model import Failed, LastWord, Paused, Supervision
from ralphd.core.outcome import last_word

_PLAIN = re.compile(r"[\w@%+=:,./~-]+", re.ASCII)


class Cause(StrEnum):
    """Who calls: the supervision of the runs, or the guard, which cannot judge what was committed."""

    RUN = "run"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class Call:
    """One call. ``stands``: nothing goes on before a person acts."""

    message: str
    needs: str
    do: str
    cause: Cause = Cause.RUN
    stands: bool = True


@dataclass(frozen=True, slots=True)
class Place:
    """The ralph that calls. ``logins`` are the commands by which those of its agents log in that have to.

    ``is_built``: its daemon is that of a ``ralphctl build`` (P5), which has gone when somebody reads this.
    """

    name: str
    directory: str
    logins: Mapping[str, str]
    is_built: bool = False

    @property
    def start(self) -> str:
        """The command that has it work again."""
        return self._here("build") if self.is_built else f"ralphctl start {self.name}"

    @property
    def resume(self) -> str:
        """The command that has it go on after a pause."""
        return self.start if self.is_built else f"ralphctl resume {self.name}"

    @property
    def explain(self) -> str:
        """The command that shows why."""
        return self._here("logs") if self.is_built else f"ralphctl explain {self.name}"

    def look(self, what: str) -> str:
        """A command that works without a daemon too."""
        return self._here(what) if self.is_built else f"ralphctl {what} {self.name}"

    def _here(self, what: str) -> str:
        return f"ralphctl -C {shell_word(self.directory)} {what}"


def call_of(text: str, event: Event, before: Supervision, after: Supervision, place: Place) -> Call:
    """What to tell of an escalation: its ``text``, and what follows from the event that led to it."""
    stands = isinstance(after.state, Failed | Paused) or not _goes_on(after)
    match event:
        case JudgementOver():
            return _of_guard(text, place, pauses=event.verdict.pauses)
        case BaselineTested():
            needs = "[regent] test_command has to be put right in ralph.toml; then start it again"
            return Call(text, needs, place.start, Cause.GUARD)
        case SpawnFailed():
            needs = "its command has to be put right; then start it again"
            return Call(text, needs, place.start)
        case RunEnded():
            return _of_end(text, event, before, place)
        case _:
            needs = "a look at why; then start it again"
            return Call(text, needs, place.explain, stands=stands)


def _goes_on(now: Supervision) -> bool:
    return getattr(now.state, "run_id", None) is not None


def _of_guard(text: str, place: Place, *, pauses: bool) -> Call:
    see = place.look("verdicts")
    if pauses:
        needs = f"a look at its commits; when the repository is as you want it: {place.resume}"
        return Call(text, needs, see, Cause.GUARD)
    needs = "a look when you have time: Ralph goes on, and these commits are not judged"
    return Call(text, needs, see, Cause.GUARD, stands=False)


def _of_end(text: str, event: RunEnded, before: Supervision, place: Place) -> Call:
    start = place.start
    word = last_word(event.ending, before.said)
    if word is not None and word.reason == "no_agent":
        return _of_no_agent(text, place)
    if word is not None and word.reason == "tasks_failed":
        needs = f"a look at the tasks that failed, which progress.md tells; then start it again: {start}"
        return Call(text, needs, f"less {shell_word(place.directory + '/.ralph/progress.md')}")
    if _is_configuration(event, word):
        needs = f"its configuration has to be put right; then start it again: {start}"
        return Call(text, needs, f"ralphctl -C {shell_word(place.directory)} config check")
    if event.ending.code in (2, 126, 127):
        needs = f"its command has to be put right; then start it again: {start}"
        return Call(text, needs, place.look("logs"))
    needs = f"a look at why it failed; then start it again: {start}"
    return Call(text, needs, place.explain)


def _is_configuration(event: RunEnded, word: LastWord | None) -> bool:
    return event.ending.code == 78 and (word is None or word.reason == "configuration")


def _of_no_agent(text: str, place: Place) -> Call:
    start = place.start
    if not place.logins:
        return Call(text, "an agent that can work; then start it again", start)
    agents = " and ".join(place.logins)
    needs = f"{agents} {'has' if len(place.logins) == 1 else 'have'} to be logged in; then start it again"
    return Call(text, needs, " && ".join([*place.logins.values(), start]))


def of_a_bug(text: str) -> Call:
    """The Regent itself has failed."""
    return Call(text, "a look at the log of ralphd: it has the traceback", "ralphctl regent logs")


def shell_word(text: str) -> str:
    """``text`` as one word of a shell."""
    return text if _PLAIN.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'"

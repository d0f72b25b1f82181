"""A night: what goes wrong on its stage by the script, what people ask for, and the morning after."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from ralphd.core.gate.verdict import Result
from ralphd.core.loop.inbox import with_note, with_task
from ralphd.core.supervision.events import (
    Event,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    SkipWaitRequested,
    StartRequested,
    StopRequested,
)
from ralphd.core.supervision.model import SETTLED, Done, Paused, Pausing, Restart, Stopping
from ralphd.core.supervision.requests import why_not
from ralphd.core.time import Moment
from tests.sim.faults import NIGHT_S, OF_PEOPLE, OF_SERVICE, OF_TESTS, OF_THE_NEXT_ATTEMPT, Fault, What
from tests.sim.mutiny import MUTINIES
from tests.sim.stage import Stage

DAWN_S: Final = NIGHT_S
LONGEST_MORNING_S: Final = 48 * 3600.0
"""When all is well again the list is done by then: probes of unknown limits come every four hours."""
MOST_STARTS: Final = 40
_REQUESTS: Final[dict[What, Callable[[Moment], Event]]] = {
    What.STOP: StopRequested,
    What.STOP_NOW: lambda at: StopRequested(at, now=True),
    What.START: StartRequested,
    What.PAUSE: PauseRequested,
    What.RESUME: ResumeRequested,
    What.RESTART: RestartRequested,
    What.SKIP_WAIT: SkipWaitRequested,
}


class Night(Stage):
    """Plays a script from its beginning to its end; raises ``Broken`` as soon as a promise is."""

    _starts = 0

    # playing

    def play(self) -> None:
        """From the evening until the work is done, or nobody can say any more why it is not."""
        for fault in self.script.faults:
            self.agenda.after(fault.at_s, partial(self._happens, fault))
        self.agenda.after(DAWN_S, self._dawns)
        self._daemon_starts()
        self._do(lambda: self.ask(What.START))
        while not self._is_over():
            if self.agenda.next_s() is None:
                self.checks.broken("goes on", "nothing will ever happen any more")
            self._do(self.agenda.pop())
            self.checks.after_event()
        self.checks.at_the_end()

    def _is_over(self) -> bool:
        if self.clock.awake_s > DAWN_S + LONGEST_MORNING_S:
            self.checks.broken("finishes", "two days after the last fault the list is still not done")
        daemon = self.daemon
        if daemon is None or self.loop is not None or daemon.living is not None or not daemon.is_started:
            return False
        if self.landing.is_on and not self.landing.is_settled:
            return False
        if not self.is_work_done:
            return self.is_dawn and self.checks.nothing_more_can_be_done
        return isinstance(daemon.supervision.state, SETTLED) or self.policy.restart is Restart.ALWAYS

    # people

    def ask(self, what: What) -> None:
        """Somebody types a command; where nobody answers, or it does not fit, nothing comes of it."""
        daemon = self.daemon
        if daemon is None or daemon.is_ending or not daemon.is_started:
            return
        if what in (What.ADD_TASK, What.NOTE):
            self._send(what)
            return
        state = daemon.supervision.state
        if what is What.START and not isinstance(state, (*SETTLED, Paused, Pausing, Stopping)):
            return  # the host answers that it runs already
        event = _REQUESTS[what](self.clock.wall())
        if why_not(daemon.supervision, event) is None:
            self.tell("people", what.value)
            self.checks.asked(what)
            daemon.handle(event)
            self.checks.answered(what)

    def _send(self, what: What) -> None:
        """Somebody adds to the work: the daemon writes the inbox, which only the built-in loop reads."""
        if self.script.setting.command:
            return
        self.tell("people", what.value)
        change, now = with_task if what is What.ADD_TASK else with_note, self.clock.wall()
        self.disk.inbox = change(self.disk.inbox, now, f"more at {self.local(now)}")

    # the night

    def _happens(self, fault: Fault) -> None:
        what = fault.what
        if what in OF_PEOPLE:
            self.ask(what)
        elif what is What.REVIEW_HANGS:
            self.review_fails += fault.count or 1
        elif self._has_tests(what):
            self._tests(what)
        elif what in OF_SERVICE:
            self._service_fails(fault)
        elif what in OF_THE_NEXT_ATTEMPT:
            attempt = None if self.loop is None else self.loop.attempt
            if attempt is None:
                self.waiting.append(fault)
            else:
                attempt.befall(fault)
        else:
            self._machine(fault)

    def _has_tests(self, what: What) -> bool:
        setting = self.script.setting
        return what in OF_TESTS and (setting.gate or (setting.branches > 0 and what is not What.WEAKENS))

    def _tests(self, what: What) -> None:
        """What the next commit does, who else commits, what the next run of the tests shows."""
        repository = self.repository if self.script.setting.gate else self.landing
        self.tell("the night", what.value)
        match what:
            case What.BREAKS:
                self.repository.next_breaks = True
            case What.WEAKENS:
                self.repository.next_hides = True
            case What.LEAVES_DIRT:
                self.repository.next_is_dirty = True
            case What.COMMITS | What.BREAKS_TOO:
                if self.script.setting.gate:
                    self.somebody_commits(breaks=what is What.BREAKS_TOO)
                else:
                    self.landing.somebody_pushes(breaks=what is What.BREAKS_TOO)
            case What.UNDOES:
                if self.daemon is not None and self.daemon.is_started and not self.daemon.is_ending:
                    self.daemon.gate.undo()
            case What.TESTS_FLAKE:
                repository.surprises.append(Result.RED)
            case What.TESTS_HANG:
                repository.surprises.append(Result.TIMED_OUT)
            case _:
                repository.surprises.append(Result.ENDED)

    def _service_fails(self, fault: Fault) -> None:
        agent = None if fault.what is What.OUTAGE else fault.agent
        until = self.clock.true() + fault.lasts_s
        self.tell("the night", f"{fault.what} ({agent or 'all'}), until {self.local(until)}")
        self.services.begin(fault.what, agent, until, told=fault.told)
        attempt = None if self.loop is None else self.loop.attempt
        if attempt is not None and agent in (None, attempt.agent):
            attempt.meets_now()

    def _machine(self, fault: Fault) -> None:
        loop, what = self.loop, fault.what
        self.tell("the night", f"{what}" + (f", {fault.lasts_s:g} s" if fault.lasts_s else ""))
        match what:
            case What.LOOP_KILLED if loop is not None and fault.count:
                self._loop_fuse.left = fault.count
            case What.LOOP_KILLED if loop is not None:
                self.run_exits(loop.run, signal=9)
            case What.LOOP_HANGS if loop is not None:
                loop.is_hung = True
                loop.run.last_output_at = self.clock.wall()
                if self.daemon is not None:
                    self.daemon.look_at_run()
            case What.RUN_LOST if loop is not None:
                self.run_exits(loop.run)
            case What.DAEMON_KILLED if fault.count:
                self._down_for_s, self._daemon_fuse.left = fault.lasts_s, fault.count
            case What.DAEMON_KILLED | What.DAEMON_LEAVES:
                self._daemon_dies(fault.lasts_s)
            case What.DAEMON_ENDS if self.daemon is not None and not self.daemon.is_ending:
                self._down_for_s = fault.lasts_s
                self.daemon.is_told_to_end()
            case What.REBOOT:
                self._daemon_dies(fault.lasts_s)
                if loop is not None:
                    self.run_exits(loop.run)
                if self.disk.gate.test_run is not None:
                    self.tests_end_s = self.clock.awake_s
                    self.repository.surprises.appendleft(Result.ENDED)
            case What.SUSPEND:
                self.clock.sleep(fault.lasts_s)
                self._clock_jumped()
            case What.CLOCK_BACK | What.CLOCK_AHEAD:
                self.clock.set(fault.lasts_s if what is What.CLOCK_AHEAD else -fault.lasts_s)
                self._clock_jumped()
            case what if what in MUTINIES:
                self.mutiny.happens(what)
            case What.NO_RESOURCES:
                self._lacks_until_s = self.clock.awake_s + fault.lasts_s
            case _:
                pass  # .ralph holds copies; and what is not there cannot be killed

    def _clock_jumped(self) -> None:
        self.checks.clock_jumped()
        if self.daemon is not None:
            self.daemon.clock_jumped()
        if self.loop is not None:
            self.loop.clock_jumped()
        for other in self.accounts.others:
            other.clock_jumped()

    # the morning

    def _dawns(self) -> None:
        """All is well again; whoever rests for a person is seen to."""
        self.tell("the night", "is over: nothing goes wrong any more")
        self.is_dawn = True
        self.waiting.clear()
        self.services.heal()
        self.review_fails = 0
        if self.script.setting.gate:
            self.repository.surprises.clear()
            self.repository.next_breaks = self.repository.next_hides = self.repository.next_is_dirty = False
            self.repository.fix()
        if self.landing.is_on:
            self.landing.fix()
        self._daemon_fuse.left = self._loop_fuse.left = 0
        self._see_to_it()

    def _see_to_it(self) -> None:
        self.agenda.after(600.0, self._see_to_it)
        daemon = self.daemon
        if daemon is None or daemon.is_ending:
            return
        match daemon.supervision.state:
            case Done(why="complete") if self.is_work_done:
                return
            case Paused(resume_at=None):
                self.ask(What.RESUME)
            case state if isinstance(state, SETTLED) and self._starts < MOST_STARTS:
                self.checks.seen_to(state)
                self._starts += 1
                self.list.is_empty = False
                self.ask(What.START)

"""The scenes: each does one thing to the loop or its daemon, shows it, and checks that the promise held."""

import os
import re
from collections.abc import Sequence

from ralphctl.demo import furniture, traces
from ralphctl.demo.stage import Stage, eventually
from ralphctl.demo.telling import Teller
from ralphctl.words import count
from ralphd.errors import RalphdError

_FIRST_COMMIT_AT = 10  # lines of loop.sh
_UNWATCHED_LINES = 10


class Demo:
    """One performance on a stage."""

    def __init__(self, stage: Stage, tell: Teller) -> None:
        self._stage = stage
        self._tell = tell

    def play(self) -> None:
        """All scenes, in order. Raises DemoFailed at the first thing that does not hold."""
        self._welcome()
        self._starts()
        self._works()
        self._crashes()
        self._loses_its_daemon()
        self._is_stopped()
        self._does_tasks()
        self._guards()
        self._leaves_nothing()

    def _welcome(self) -> None:
        self._tell.title("ralphd: keeps a coding agent's loop running, and honest")
        self._tell.say(
            f"A private daemon, home directory and git repository: ~ is {self._stage.home} here, and is "
            "removed at the end. Nothing of yours is touched; no agent, no key, no network is used."
        )

    def _starts(self) -> None:
        self._tell.scene("Supervise a loop you have")
        self._tell.say(
            "~/project/loop.sh is a shell script that behaves as agents do: it works and commits, crashes "
            "once, does not end at SIGTERM, and leaves a server behind in a session of its own."
        )
        self._run("ralphctl start ~/project -- ./loop.sh")
        daemon = self._daemon_pid()
        self._tell.holds(
            traces.parent_of(daemon) is not None,
            f"one command; the daemon (pid {daemon}) was started by it",
            "the daemon is not there",
        )

    def _works(self) -> None:
        self._tell.scene("It works, and commits")
        eventually(lambda: self._stage.printed() > _FIRST_COMMIT_AT, "the loop made its first commit")
        said = self._run("git -C ~/project log --oneline")
        self._tell.holds(
            len(said.splitlines()) >= 2,
            "the loop is your program, unchanged",
            "the loop has committed nothing",
        )

    def _crashes(self) -> None:
        self._tell.scene("It crashes, and is started again")
        self._tell.say("At line 25 it exits with 1. Waiting for that (ralph.toml says: 1 s until the retry).")
        eventually(lambda: len(self._stage.servers()) == 2, "the loop was started again after its crash")
        eventually(lambda: self._stage.view()["state"] == "running", "the loop runs again")
        said = self._run("ralphctl logs project --stream regent")
        self._tell.holds(
            "retrying in 1s" in said and "Restarting" in said,
            "restarted, and the log says so where it happened",
            "the log does not tell of the restart",
        )
        self._tell_swept(self._stage.servers()[:1], "the server it had left behind")

    def _loses_its_daemon(self) -> None:
        self._tell.scene("The daemon is killed; the loop does not notice")
        before = self._loop_pid()
        self._run("ralphctl status project")
        self._run("kill -9 $(cat ~/.local/state/ralphd/lock)")
        eventually(self._is_unwatched, "the killed daemon is gone")
        since = self._stage.printed()
        eventually(lambda: self._stage.printed() >= since + _UNWATCHED_LINES, "the loop goes on printing")
        printed = self._stage.printed() - since
        self._tell.holds(
            traces.parent_of(before) is not None,
            f"no daemon, and the loop (pid {before}) has printed {printed} lines since",
            f"the loop (pid {before}) died with its daemon",
        )
        self._run("ralphctl regent start")
        self._run("ralphctl status project")
        after = self._loop_pid()
        self._tell.holds(
            after == before,
            f"pid {before} before, pid {after} after: adopted, not started again",
            f"the loop was pid {before} and is pid {after} now",
        )
        self._tell_lines()

    def _is_stopped(self) -> None:
        self._tell.scene("Stop it, with all that it started")
        loop, server = self._loop_pid(), self._stage.servers()[-1]
        self._tell.say(
            f"The loop (pid {loop}) ignores SIGTERM; ralph.toml gives it 2 s. Its server (pid {server}) has "
            f"left it: session {os.getsid(server)}, parent {traces.parent_of(server)}."
        )
        self._tell.holds(
            os.getsid(server) != os.getsid(loop) and traces.parent_of(server) != loop,
            "a signal to the loop and its process group would not reach that server",
            "the server is still in the session of the loop",
        )
        self._run("ralphctl stop project")
        self._run("ralphctl logs project --grep SIGTERM")
        self._tell.holds(
            traces.parent_of(loop) is None,
            f"asked first, then killed: the loop (pid {loop}) is gone",
            f"the loop (pid {loop}) is still alive",
        )
        self._tell_swept([server], "its server")
        self._tell_lines()

    def _does_tasks(self) -> None:
        self._tell.scene("No loop of your own? One is built in")
        self._tell.say(
            "~/tasks has a prompt, five tasks in prd.json, and two agents that are made up: programs that do "
            "their task and commit. The first meets a rate limit, is killed once, and uses up its plan."
        )
        self._run("ralphctl start ~/tasks")
        eventually(self._waits_for_the_limit, "the loop waits for the rate limit")
        self._run("ralphctl status tasks")
        self._run("ralphctl wait tasks")
        self._run("ralphctl logs tasks")
        self._tell_tasks()

    def _waits_for_the_limit(self) -> bool:
        wait = self._stage.view("tasks")["wait"] or {}
        return "rate limit" in wait.get("reason", "")

    def _tell_tasks(self) -> None:
        """Each task was done once, and each failure was taken for what it is."""
        said = self._run("git -C ~/tasks log --format=%s --reverse --grep T-")
        expected = [f"T-{number}: {title}" for number, title in enumerate(furniture.TITLES, start=1)]
        self._tell.holds(
            said.splitlines() == expected,
            f"{count(len(expected), 'task')}, {count(len(expected), 'commit')}: each done once",
            f"these are not the commits of {count(len(expected), 'task')}, each once",
        )
        attempts = self._stage.attempts()
        failed = [entry["failure_kind"] for entry in attempts if entry["failure_kind"]]
        self._tell.holds(
            failed == ["rate_limit", "agent_crash", "usage_limit"],
            "waited out the rate limit, tried again after the crash, went on with the second agent",
            f"the failures were taken for {', '.join(failed) or 'none'}",
        )
        self._tell.holds(
            [entry["agent"] for entry in attempts][-2:] == ["second", "second"],
            "the first agent is left alone until its limit resets, three hours from now",
            "the first agent was asked although its limit was reached",
        )

    def _guards(self) -> None:
        self._tell.scene("A commit breaks the tests at two in the morning")
        self._tell.say(
            "~/guarded has a calculator, tests, one task, an agent in a hurry, and the guard switched on. "
            f"{furniture.NOTES} there holds a line of yours that is not committed."
        )
        self._run("ralphctl start ~/guarded")
        self._run("ralphctl wait guarded")
        said = self._run("ralphctl logs guarded --stream regent")
        self._tell.holds(
            "The tests end with: add.sh 2 3 is not 5" in said and "reverting commit" in said,
            "the tests ran after the iteration, and the log says what was reverted, and why",
            "the log does not tell of a revert",
        )
        self._run("git -C ~/guarded log --format='%h %s' --reverse")
        self._run("ralphctl verdicts guarded")
        subjects = self._stage.run("git -C ~/guarded log --format=%s --reverse").splitlines()
        hasty = furniture.HASTY_SUBJECT
        self._tell.holds(
            subjects[1:] == [hasty, f'Revert "{hasty}"', furniture.RIGHT_SUBJECT],
            "the bad commit came and went; the next prompt said why, and the task was done anew",
            "these are not the commit, its revert, and the right one",
        )
        notes = (self._stage.home / "guarded" / furniture.NOTES).read_text()
        self._tell.holds(
            notes == furniture.NOT_COMMITTED,
            f"the line in {furniture.NOTES} is there, and still not committed",
            f"{furniture.NOTES} was changed",
        )

    def _leaves_nothing(self) -> None:
        self._tell.scene("Nothing is left")
        self._run("ralphctl status")
        self._run("ralphctl regent stop")
        left = self._stage.left()
        self._tell.holds(
            not left,
            f"looked in /proc for this daemon, its shims, the loop and all below: {len(left)} found",
            "still alive: " + ", ".join(f"{trace.pid} ({trace.command})" for trace in left),
        )

    def _run(self, command: str) -> str:
        return self._tell.command(command, self._stage.run)

    def _tell_swept(self, servers: Sequence[int], who: str) -> None:
        swept = {process["pid"]: process["command"] for process in self._stage.swept()}
        for pid in servers:
            self._tell.holds(
                traces.parent_of(pid) is None and pid in swept,
                f"{who} (pid {pid}) went with its run: exit.json says it swept '{swept.get(pid)}'",
                f"{who} (pid {pid}) outlived its run",
            )

    def _tell_lines(self) -> None:
        """Every line that the loop says it printed is in the log, once, in order."""
        printed = self._stage.printed()
        # The loop has printed a line a moment before it is in the log.
        eventually(lambda: len(self._logged()) >= printed, f"the log has {printed} lines")
        logged = self._logged()
        expected = list(range(1, max(printed, len(logged)) + 1))
        missing = len(set(expected) - set(logged))
        self._tell.holds(
            logged == expected,
            f"{count(printed, 'line')} printed so far, {missing} missing in the log, none twice",
            f"{printed} lines printed, {len(logged)} in the log, {missing} missing",
        )

    def _logged(self) -> list[int]:
        matches = (re.fullmatch(r"line (\d+)", line) for line in self._stage.log_lines())
        return [int(match[1]) for match in matches if match]

    def _daemon_pid(self) -> int:
        return int(self._stage.client.status().value["daemon"]["pid"])

    def _loop_pid(self) -> int:
        return int(self._stage.view()["ralph_pid"])

    def _is_unwatched(self) -> bool:
        traces.reap()
        try:
            self._daemon_pid()
        except RalphdError:
            return True
        return False

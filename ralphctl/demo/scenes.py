"""The scenes of the demo: each does one thing to a loop or its daemon, shows it, and checks the result."""

import json
import os
import re

from ralphctl.demo.printer import DemoPrinter
from ralphctl.demo.sandbox import Sandbox, eventually, parent_of
from ralphctl.offline import processes

_FIRST_COMMIT_AT, _UNWATCHED_LINES = 10, 10  # lines of loop.sh


class Demo:
    """One performance in a sandbox."""

    def __init__(self, sandbox: Sandbox, printer: DemoPrinter) -> None:
        self._sandbox, self._printer = sandbox, printer
        self._say, self._check, self._scene = printer.say, printer.check, printer.scene
        self._ralph = sandbox.client.ralph

    def play(self) -> None:
        """Play all scenes in order. Raise DemoFailed at the first thing that does not hold."""
        self._printer.title("ralphd runs coding agents unattended")
        self._say(
            f"The demo has its own daemon, repositories and home directory: ~ is {self._sandbox.home} and is "
            "removed at the end. It touches none of your files and uses no agent, no key and no network."
        )
        self._start()
        self._work()
        self._crash()
        self._lose_the_daemon()
        self._stop()
        self._do_tasks()
        self._guard()
        self._leave_nothing()

    def _start(self) -> None:
        self._scene("Supervise your own loop")
        self._say(
            "~/project/loop.sh is a shell script that behaves as agents do: it works and commits, crashes "
            "once, ignores SIGTERM, and leaves a server behind in a session of its own."
        )
        self._run("ralphctl start ~/project -- ./loop.sh")
        daemon = self._daemon = int(self._sandbox.client.status().value["daemon"]["pid"])
        self._check(parent_of(daemon), f"one command started the loop and the daemon (pid {daemon})")

    def _work(self) -> None:
        self._scene("The loop works and commits")
        eventually(lambda: self._printed() > _FIRST_COMMIT_AT, "the loop made its first commit")
        commits = self._run("git -C ~/project log --oneline").splitlines()
        self._check(len(commits) >= 2, "the loop runs unchanged")

    def _crash(self) -> None:
        self._scene("The loop crashes and is restarted")
        self._say("At line 25 it exits with 1. ralph.toml sets the wait before a restart to 1 s.")
        eventually(lambda: len(self._servers()) == 2, "the loop was started again after its crash")
        eventually(lambda: self._ralph("project").value["state"] == "running", "the loop runs again")
        log = self._run("ralphctl logs project --stream regent")
        is_logged = "retrying in 1s" in log and "Restarting" in log
        self._check(is_logged, "restarted, and the log shows it where it happened")
        self._check_swept(self._servers()[0], "the server that it had left behind")

    def _lose_the_daemon(self) -> None:
        self._scene("The daemon is killed; the loop continues")
        before = self._loop_pid()
        self._run("ralphctl status project", "kill -9 $(cat ~/.local/state/ralphd/lock)")
        eventually(lambda: parent_of(self._daemon) is None, "the killed daemon is gone")
        since = self._printed()
        eventually(lambda: self._printed() >= since + _UNWATCHED_LINES, "the loop keeps printing")
        alone = f"no daemon, and the loop (pid {before}) has printed {self._printed() - since} lines since"
        self._check(parent_of(before), alone, f"the loop (pid {before}) died with its daemon")
        self._run("ralphctl regent start", "ralphctl status project")
        after = self._loop_pid()
        self._check(after == before, f"pid {before} before, pid {after} after: adopted, not restarted")
        self._check_log()

    def _stop(self) -> None:
        self._scene("Stop the loop and every process it started")
        loop, server = self._loop_pid(), self._servers()[-1]
        self._say(
            f"The loop (pid {loop}) ignores SIGTERM; ralph.toml gives it 2 s. Its server (pid {server}) has "
            f"detached itself: session {os.getsid(server)}, parent {parent_of(server)}."
        )
        has_left = os.getsid(server) != os.getsid(loop) and parent_of(server) != loop
        self._check(has_left, "a signal to the loop's process group would not reach that server")
        self._run("ralphctl stop project", "ralphctl logs project --grep SIGTERM")
        self._check(parent_of(loop) is None, f"SIGTERM, then SIGKILL: the loop (pid {loop}) is gone")
        self._check_swept(server, "its server")
        self._check_log()

    def _do_tasks(self) -> None:
        self._scene("The built-in loop")
        self._say(
            "~/tasks has a prompt, five tasks in prd.json, and two scripted agents, which do their task and "
            "commit. The first one meets a rate limit, is killed once, and reaches its usage limit."
        )
        self._run("ralphctl start ~/tasks")
        eventually(lambda: "rate limit" in str(self._ralph("tasks").value["wait"]), "it waits for the limit")
        self._run("ralphctl status tasks", "ralphctl wait tasks", "ralphctl logs tasks")
        commits = self._run("git -C ~/tasks log --format=%s --reverse --grep T-").splitlines()
        plan = json.loads("".join(self._sandbox.lines("tasks/prd.json")))["userStories"]
        wanted = [f"{task['id']}: {task['title']}" for task in plan]
        self._check(commits == wanted, "5 tasks, 5 commits: each done once")
        history = self._sandbox.lines(self._sandbox.state_directory / "ralphs" / "tasks" / "history.jsonl")
        attempts = [entry for entry in map(json.loads, history) if entry["kind"] == "attempt"]
        failures = [entry["failure_kind"] for entry in attempts if entry["failure_kind"]]
        holds = "waited for the rate limit, retried after the crash, continued with the second agent"
        self._check(failures == ["rate_limit", "agent_crash", "usage_limit"], holds)
        is_alone = [entry["agent"] for entry in attempts][-2:] == ["second", "second"]
        self._check(is_alone, "the first agent is not started until its limit resets, three hours from now")

    def _guard(self) -> None:
        self._scene("A commit breaks the tests at two in the morning")
        self._say(
            "~/guarded has a calculator, tests, one task, a careless agent, and the guard enabled. notes.txt "
            "there has a line that is not committed."
        )
        self._run("ralphctl start ~/guarded", "ralphctl wait guarded")
        log = self._run("ralphctl logs guarded --stream regent")
        logged = "The tests' last line: add.sh 2 3 is not 5" in log and "reverting commit" in log
        self._check(logged, "the tests ran after the iteration, and the log shows what was reverted, and why")
        self._run("git -C ~/guarded log --format='%h %s' --reverse", "ralphctl verdicts guarded")
        bad = "add.sh adds four numbers"
        subjects = self._sandbox.run("git -C ~/guarded log --format=%s --reverse").splitlines()
        holds = "the bad commit was reverted, the next prompt had the reason, and the task was done again"
        self._check(subjects[1:] == [bad, f'Revert "{bad}"', "add.sh adds up to four numbers"], holds)
        notes = self._sandbox.lines("guarded/notes.txt")
        self._check(notes == ["Buy milk."], "the line in notes.txt is still there, and still not committed")

    def _leave_nothing(self) -> None:
        self._scene("Nothing is left")
        self._run("ralphctl status", "ralphctl regent stop")
        holds = "0 processes left: no daemon, no shim, no loop"
        self._check(processes.none_left(), holds, "a process is still alive")

    def _run(self, *commands: str) -> str:
        """Show and run commands. Return the output of the last one."""
        output = ""
        for command in commands:
            self._printer.command(command)
            output = self._sandbox.run(command)
            self._printer.output(output)
        return output

    def _check_swept(self, server: int, what: str) -> None:
        swept = {
            process["pid"]: process["command"]
            for record in self._sandbox.state_directory.glob("ralphs/project/runs/*/exit.json")
            for process in json.loads(record.read_text())["swept"]
        }
        holds = f"{what} (pid {server}) ended with its run: exit.json lists '{swept.get(server)}' as swept"
        self._check(parent_of(server) is None and server in swept, holds)

    def _check_log(self) -> None:
        """Check that every line the loop counted as printed is in the log, once and in order."""
        printed = self._printed()
        # The loop counts a line a moment before it is in the log.
        eventually(lambda: len(self._logged()) >= printed, f"the log has {printed} lines")
        logged = self._logged()
        holds = f"{printed} lines printed so far, 0 missing in the log, none twice"
        self._check(logged == list(range(1, len(logged) + 1)), holds)

    def _logged(self) -> list[int]:
        query = {"tail": "all", "stream": "stdout"}
        log = b"".join(self._sandbox.client.log_text("project", query)).decode(errors="replace")
        return [int(number) for number in re.findall(r"^line (\d+)$", log, re.MULTILINE)]

    def _printed(self) -> int:
        return len(self._sandbox.lines("printed"))

    def _servers(self) -> list[int]:
        return [int(line) for line in self._sandbox.lines("servers")]

    def _loop_pid(self) -> int:
        return int(self._ralph("project").value["ralph_pid"])

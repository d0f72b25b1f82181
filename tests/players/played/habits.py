"""What a played agent does in a call: its good work, and every way in which agents spoil a night."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tests.players.played.record import Step
from tests.players.played.tasks import do_task, git
from tests.players.played.texts import Failure
from tests.players.played.voices import Voice, put

BOUND_S = 120
PROMISE = "<promise>COMPLETE</promise>"
Habit = Callable[["Play"], int]


class Play:
    """One call: who speaks, what was asked, and the step of the script."""

    def __init__(self, voice: Voice, prompt: str, step: Step, number: int) -> None:
        self.voice = voice
        self.prompt = prompt
        self.step = step
        self.number = number

    def seconds(self, name: str, otherwise: float) -> float:
        return float(self.step.get(name, otherwise))


def play(this: Play) -> int:
    """Do what the step says; gives the exit status."""
    voice, step = this.voice, this.step
    voice.cost_usd = float(step.get("cost_usd", 0.01))
    voice.tokens = tuple(step.get("tokens", (1200, 84)))
    habit = HABITS[step.get("do", "task")]
    if habit in (empty, silent, stubborn, crash_then_hang, think):
        return habit(this)
    voice.started()
    _extras(this)
    return habit(this)


def _extras(this: Play) -> None:
    """What may come with any habit that speaks: a slow start, floods, broken lines, a child left behind."""
    voice, step = this.voice, this.step
    time.sleep(this.seconds("takes_s", 0))
    if step.get("echo_prompt"):
        voice.echo(this.prompt)
    for attempt in range(1, int(step.get("retries", 0)) + 1):
        voice.retrying(attempt, 10, 0.05)
        time.sleep(0.05)
    if talk := step.get("talks_of"):
        voice.use("cat notes.txt", talk)
        voice.say(f"The notes say: {talk}")
    if megabytes := step.get("output_mb"):
        for _ in range(int(megabytes * 16)):
            voice.use("seq 99999", "x" * 65000)
    if step.get("long_line_mb"):
        put(b'{"type":"text","text":"' + b"y" * int(step["long_line_mb"] * 1_000_000) + b'"}\n')
    if step.get("broken_lines"):
        put(
            b'{"type":"assistant","message":{"content":[{"type":"te\n[]\nnull\n{}\n"text"\n\x00\xff\xfe\xed\xa0\x80\n\n'
        )
    if step.get("escape_codes"):
        put(b"\x1b]0;title\x07\x1b[2J\x1b[31mred\x1b[0m \x1b]52;c;aGk=\x07 \x9b5n\r\n")
    if text := step.get("stderr"):
        put(f"{text}\n".encode(), 2)
    if step.get("leave_child"):
        _leave_a_child()
    if step.get("delete_untracked"):
        import subprocess

        subprocess.run(["git", "clean", "-fdxq", *step.get("clean_paths", ())], check=False, timeout=60)


def _leave_a_child() -> None:
    """A process with a session of its own and no parent here, as a dev server is; its pid goes to a file."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.alarm(BOUND_S)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            with open(f"{os.environ['PLAYED_SCRIPT']}.children", "a", encoding="utf-8") as file:
                file.write(f"{os.getpid()}\n")
            while True:
                signal.pause()
        os._exit(0)
    os.wait()


def task(this: Play) -> int:
    if this.step.get("detaches"):
        git("checkout", "--quiet", "--detach")
    done = do_task(this.prompt, this.step.get("files", {}), this.number)
    this.voice.use("make test", "5 passed")
    return this.voice.good(this.step.get("says", f"Done: {done}. All tests pass."))


def fail(this: Play) -> int:
    """Give up as the CLI does: ``do`` is the kind, ``hint: false`` leaves out when to come back."""
    left = this.step.get("left_s")
    wait = None if left is None or not this.step.get("hint", True) else max(round(left, 2), 0.01)
    failure = Failure(this.step["do"], wait_s=wait, resets_in_s=wait)
    if this.step["do"] == "rate_limit" and left is None:
        failure.wait_s = this.step.get("seconds")
    return this.voice.bad(failure)


def crash(this: Play) -> int:
    for path, text in this.step.get("leaves", {}).items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)
    put(this.step.get("message", "Segmentation fault\n").encode(), 2)
    if number := this.step.get("signal"):
        os.kill(os.getpid(), int(number))
    return int(this.step.get("exit", 1))


def crash_then_hang(this: Play) -> int:
    """A message on stderr after which nothing comes any more."""
    this.voice.started()
    put(this.step.get("message", "Error: No messages returned\n").encode(), 2)
    _hang(this)


def silent(this: Play) -> int:
    _hang(this)


def stubborn(this: Play) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    _hang(this)


def think(this: Play) -> int:
    """Work for ``seconds`` without a word, writing a file now and then; then end well."""
    until = time.monotonic() + this.seconds("seconds", 1)
    count = 0
    while time.monotonic() < until:
        count += 1
        with open("thinking.txt", "w", encoding="utf-8") as file:
            file.write(f"thought {count}\n")
        time.sleep(this.seconds("every_s", 0.1))
    os.remove("thinking.txt")
    this.voice.started()
    return task(this)


def empty(_this: Play) -> int:
    return 0


def claim(this: Play) -> int:
    """Say that it is done, or what else it ``says``, and only do what it ``runs``."""
    if command := this.step.get("runs"):
        os.system(command)
    return this.voice.good(this.step.get("says", "All done, and all tests pass."))


def promise(this: Play) -> int:
    """The promise on a line of its own, whatever is open; with ``after_task`` the task is done first."""
    if this.step.get("after_task"):
        do_task(this.prompt, this.step.get("files", {}), this.number)
    return this.voice.good(f"Everything is done.\n\n{PROMISE}\n")


def parrot(this: Play) -> int:
    """Say the whole prompt again, and do nothing."""
    return this.voice.good(this.prompt)


def retry_loop(this: Play) -> int:
    """Try again by itself for ``seconds``, then give up with ``kind``, or with ``recovers`` do the task."""
    until, attempt = time.monotonic() + this.seconds("seconds", 1), 0
    while time.monotonic() < until:
        attempt += 1
        this.voice.retrying(attempt, 1000, 0.1)
        time.sleep(0.1)
    if this.step.get("recovers"):
        return task(this)
    return this.voice.bad(Failure(this.step.get("kind", "overloaded")))


def empty_steps(this: Play) -> int:
    """One empty answer after another, for ever (or for ``seconds``)."""
    until = time.monotonic() + this.seconds("seconds", BOUND_S)
    while time.monotonic() < until:
        this.voice.empty_step()
        time.sleep(0.05)
    return 1


def result_then_hang(this: Play) -> int:
    """Do the task, tell the result, and never end."""
    task(this)
    _hang(this)


def _hang(_this: Play) -> NoReturn:
    while True:  # the alarm that was set at the start ends it
        signal.pause()


HABITS: dict[str, Habit] = {
    "task": task,
    **dict.fromkeys(("rate_limit", "usage_limit", "overloaded", "econnreset", "fatal", "context"), fail),
    "crash": crash,
    "crash_then_hang": crash_then_hang,
    "hang": silent,
    "hang_stubborn": stubborn,
    "think": think,
    "empty": empty,
    "claim": claim,
    "promise": promise,
    "parrot": parrot,
    "retry_loop": retry_loop,
    "empty_steps": empty_steps,
    "result_then_hang": result_then_hang,
}

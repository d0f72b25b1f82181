"""Why a command cannot be started, in words that say what to do (E5)."""

import errno
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from ralphd.errors import CommandNotStartable
from ralphd.process.rundir import StartFault

LONGEST_LINE = 256

LACKING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EIO}
)
"""What a machine can lack for a while; a start that fails for it is tried again (F3)."""

WhyAndMend: TypeAlias = tuple[str, str]


def not_startable(
    command: tuple[str, ...], directory: Path, environment: Mapping[str, str], fault: StartFault | None
) -> CommandNotStartable:
    """The error to show for a start that failed; ``fault`` is None when the shim itself gave no answer."""
    why, mend = _why_and_mend(command, directory, environment, fault)
    return CommandNotStartable(f"cannot start {command[0]}", why=why, mend=mend)


def environment_of(path: Path | None, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment that a run gets, as far as it can be read."""
    try:
        base = dict(os.environ) if path is None else dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        base = {}
    return {**base, **extra}


def _why_and_mend(
    command: tuple[str, ...], directory: Path, environment: Mapping[str, str], fault: StartFault | None
) -> WhyAndMend:
    if fault is None:
        return "the process beside it ended before it was started", "again"
    stage, _, text = fault.text.partition(": ")
    if stage == "chdir":
        return _of_chdir(fault.errno, text, directory)
    if stage == "exec":
        program = _program(command[0], directory, environment)
        if program is None:
            return _of_nothing(fault.errno, text, command[0], directory)
        return _of_exec(fault.errno, text, program)
    if stage.startswith("/"):  # a file of its run directory, or the one that holds its environment
        return fault.text, f"ralphctl start {shlex.join((str(directory), '--', *command))}"
    return fault.text, "ralphctl regent logs"


def _of_chdir(number: int, text: str, directory: Path) -> WhyAndMend:
    if number in (errno.ENOENT, errno.ENOTDIR):
        return f"the directory {directory} is gone", "put it back, or start in another directory"
    return f"{directory}: {text}", f"namei -l {directory}  (who may enter it)"


def _of_nothing(number: int, text: str, name: str, directory: Path) -> WhyAndMend:
    """There is no file of that name, or none that can be seen."""
    if "/" not in name:
        return f"{name} is not on PATH", f"give its path, as in ./{name}"
    path = directory / name
    if number == errno.ENOENT:
        relative = "" if name.startswith("/") else f"; a relative one begins in {directory}"
        return f"there is no {path}", f"the path of a program that is there{relative}"
    return f"{path}: {text}", f"namei -l {path}  (what is on the way to it)"


def _of_exec(number: int, text: str, program: Path) -> WhyAndMend:
    if number == errno.ENOENT:
        return _of_interpreter(program)
    if number == errno.ENOEXEC:
        return _of_format(program)
    if number == errno.EACCES:
        return _of_access(program)
    mends = {
        errno.E2BIG: "fewer or shorter arguments, or a smaller environment",
        errno.ETXTBSY: "again, once nobody writes to it any more",
    }
    return f"{program}: {text}", mends.get(number, f"ls -l {program}")


def _of_format(program: Path) -> WhyAndMend:
    if _beginning(program).startswith(b"\x7fELF"):
        return f"{program} is no program for this machine", "one that is built for it"
    return f"{program} is no program, and as a script it has no #! line", "put #!/bin/sh on its first line"


def _of_interpreter(program: Path) -> WhyAndMend:
    """The program is there, but what is to run it is not."""
    interpreter = _interpreter(program)
    if interpreter is None:
        return f"{program} asks for a loader, which is not there", "a program that is built for this machine"
    if interpreter.endswith("\r"):
        return f"the lines of {program} end as on Windows (CR LF)", f"sed -i 's/\\r$//' {program}"
    return f"{program} asks for {interpreter}, which is not there", "install it, or mend the #! line"


def _of_access(program: Path) -> WhyAndMend:
    if program.is_dir():
        return f"{program} is a directory", f"a program in it, as in {program}/NAME"
    if not os.access(program, os.X_OK):
        return f"{program} is not executable", f"chmod +x {program}"
    interpreter = _interpreter(program)
    if interpreter is not None and not os.access(interpreter, os.X_OK):
        return f"{program} asks for {interpreter}, which is not executable", "mend the #! line"
    return f"{program}: {os.strerror(errno.EACCES)}", f"findmnt -T {program}  (is it mounted noexec?)"


def _program(name: str, directory: Path, environment: Mapping[str, str]) -> Path | None:
    """The file that a name stands for, looked for as the system does."""
    if "/" in name:
        candidates = [directory / name]
    else:
        folders = environment.get("PATH", os.defpath).split(":")
        candidates = [directory / folder / name for folder in folders]
    return next((path for path in candidates if _exists(path)), None)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # as on the way through a directory that may not be searched
        return False


def _interpreter(program: Path) -> str | None:
    """What the ``#!`` line of a script names, with a carriage return where it has one."""
    first = _beginning(program).split(b"\n")[0]
    words = first[2:].replace(b"\t", b" ").split(b" ") if first.startswith(b"#!") else []
    return next((os.fsdecode(word) for word in words if word), None)


def _beginning(program: Path) -> bytes:
    try:
        with program.open("rb") as file:
            return file.read(LONGEST_LINE)
    except OSError:
        return b""

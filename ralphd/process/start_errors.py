"""Read how a start went, and explain why a command cannot be started, in words that say what to do (E5).

The kernel's errno is ambiguous: ENOENT may mean the program, its interpreter or its loader. So the file is
examined after the fact, and the user reads which of them is missing.
"""

import asyncio
import errno
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ralphd.errors import CommandNotStartable
from ralphd.plain_files import open_plain, peek
from ralphd.process.machine import wait_at_most
from ralphd.process.rundir import StartFault

LONGEST_LINE = 256

LACKING = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EIO)
"""What a machine can lack for a while; a start that fails for it is retried (F3)."""

ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP)
"""What is wrong about a file itself; it does not pass."""
NO_THREAD = "can't start new thread"

LOWER_LEVEL = '[sandbox] level = "auto"  (in the file that sets it)'

Advice: TypeAlias = tuple[str, str]
"""The reason, and what to try."""


def not_startable(
    command: tuple[str, ...], directory: Path, environment: Mapping[str, str], fault: StartFault | None
) -> CommandNotStartable:
    """Return the error to show for a failed start; ``fault`` is None if the shim itself gave no answer."""
    why, mend = _advice(command, directory, environment.get("PATH", os.defpath), fault)
    return CommandNotStartable(f"cannot start {command[0]}", why=why, mend=mend)


def is_lack(fault: BaseException) -> bool:
    """Return whether the machine is the cause, which may pass, and not a bug: memory, threads, the disk."""
    if isinstance(fault, BaseExceptionGroup):
        return all(map(is_lack, fault.exceptions))
    if isinstance(fault, OSError):
        return fault.errno not in ABSENT
    return isinstance(fault, MemoryError) or NO_THREAD in str(fault)


async def read_report(descriptor: int, limit_s: float) -> bytes | None:
    """Return what a new process writes about its start, empty at end of file; None after ``limit_s``."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await wait_at_most(limit_s, readable)
    finally:
        loop.remove_reader(descriptor)
    os.set_blocking(descriptor, False)  # after a timeout: it is there if this process was stopped meanwhile
    with suppress(BlockingIOError):
        return os.read(descriptor, 64)
    return None


def environment_of(path: Path | None, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a run, as far as it can be read."""
    base = os.environ if path is None else peek(path) or {}
    return {**{name: value for name, value in base.items() if isinstance(value, str)}, **extra}


def _advice(command: tuple[str, ...], directory: Path, search: str, fault: StartFault | None) -> Advice:
    if fault is None:
        return "the process beside it ended before it was started", "again"
    stage, _, text = fault.text.partition(": ")
    if stage == "chdir" and fault.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"the directory {directory} is gone", "put it back, or start in another directory"
    if stage == "chdir":
        return f"{directory}: {text}", f"namei -l {directory}  (who may enter it)"
    if stage == "sandbox":
        return f"its sandbox cannot be set up: {text}", LOWER_LEVEL
    if stage == "exec":
        if (program := _program(command[0], directory, search)) is not None:
            return _of_program(fault.errno, text, program)
        return _of_name(fault.errno, text, command[0], directory)
    if stage.startswith("/"):  # a file of its run directory, or its environment file
        return fault.text, f"ralphctl start {shlex.join((str(directory), '--', *command))}"
    return fault.text, "ralphctl regent logs"


def _of_name(number: int, text: str, name: str, directory: Path) -> Advice:
    if any(each in " ;|&<>" for each in name):  # a line of the shell, typed in quotes
        return f"no program is named {name!r}", f"ralphctl start {directory} -- sh -c {shlex.quote(name)}"
    if "/" not in name:
        return f"{name} is not on PATH", f"install it, or give its path, as in ./{name}"
    path = directory / name
    if number == errno.ENOENT:
        relative = "" if name.startswith("/") else f"; a relative one begins in {directory}"
        return f"there is no {path}", f"the path of a program that is there{relative}"
    return f"{path}: {text}", f"namei -l {path}  (what is on the way to it)"


def _of_program(number: int, text: str, program: Path) -> Advice:
    beginning = b""
    with suppress(OSError), open_plain(program.resolve()) as file:
        beginning = file.read(LONGEST_LINE)
    first = beginning.split(b"\n")[0]  # a carriage return stays in the name
    words = first[2:].replace(b"\t", b" ").split(b" ") if first.startswith(b"#!") else []
    interpreter = next((os.fsdecode(word) for word in words if word), "")
    match number:
        case errno.ENOENT if not interpreter:
            return f"{program} needs a loader that does not exist", "a program that is built for this machine"
        case errno.ENOENT if interpreter.endswith("\r"):
            return f"the lines of {program} end as on Windows (CR LF)", f"sed -i 's/\\r$//' {program}"
        case errno.ENOENT:
            why = f"{program} needs {interpreter}, which does not exist"
            return why, "install it, or correct the #! line"
        case errno.ENOEXEC if beginning.startswith(b"\x7fELF"):
            return f"{program} is not a program for this machine", "a program built for this machine"
        case errno.ENOEXEC:
            why = f"{program} is neither a program nor a script: it has no #! line"
            return why, "put #!/bin/sh on its first line"
        case errno.EACCES if program.is_dir():
            return f"{program} is a directory", f"a program in it, as in {program}/NAME"
        case errno.EACCES if not os.access(program, os.X_OK):
            return f"{program} is not executable", f"chmod +x {program}"
        case errno.EACCES if interpreter and not os.access(interpreter, os.X_OK):
            return f"{program} asks for {interpreter}, which is not executable", "correct the #! line"
        case errno.EACCES:
            return f"{program}: {os.strerror(number)}", f"findmnt -T {program}  (is it mounted noexec?)"
        case errno.E2BIG:
            return f"{program}: {text}", "fewer or shorter arguments, or a smaller environment"
        case errno.ETXTBSY:
            return f"{program}: {text}", "again, once nobody writes to it any more"
    return f"{program}: {text}", f"ls -l {program}"


def _program(name: str, directory: Path, search: str) -> Path | None:
    """Return the file that ``name`` stands for, searched on the PATH ``search`` as execvp does."""
    folders = [""] if "/" in name else search.split(":")
    # os.path.exists: a directory that may not be searched has nothing for us.
    return next(filter(os.path.exists, (directory / folder / name for folder in folders)), None)

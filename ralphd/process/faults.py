"""Why a command cannot be started, in words that say what to do (E5)."""

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ralphd.errors import CommandNotStartable
from ralphd.process.rundir import StartFault

LONGEST_LINE = 256

LACKING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EIO}
)
"""What a machine can lack for a while; a start that fails for it is tried again (F3)."""


def not_startable(
    command: tuple[str, ...], directory: Path, environment: Mapping[str, str], fault: StartFault | None
) -> CommandNotStartable:
    """The error to show for a start that failed; ``fault`` is None when the shim itself gave no answer."""
    what = f"cannot start {command[0]}"
    if fault is None:
        return CommandNotStartable(
            what, why="the process beside it ended before it was started", mend="again"
        )
    stage, _, text = fault.text.partition(": ")
    if stage == "chdir":
        return CommandNotStartable(what, why=f"{directory}: {text}")
    if stage != "exec":
        return CommandNotStartable(what, why=fault.text)
    program = _program(command[0], directory, environment)
    why, mend = _of_exec(fault.errno, text, command[0], program, directory)
    return CommandNotStartable(what, why=why, mend=mend)


def environment_of(path: Path | None, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment that a run gets, as far as it can be read."""
    try:
        base = dict(os.environ) if path is None else dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        base = {}
    return {**base, **extra}


def _of_exec(number: int, text: str, name: str, program: Path | None, directory: Path) -> tuple[str, str]:
    if number == errno.ENOENT and program is None:
        if "/" in name:
            return f"there is no {directory / name}", ""
        return f"{name} is not on PATH", f"give its path, as in ./{name}"
    if program is None:
        return text, ""
    if number == errno.ENOENT:
        return f"{program} asks for {_interpreter(program) or 'a loader'}, which is not there", ""
    if number == errno.ENOEXEC:
        return (
            f"{program} is no program, and as a script it has no #! line",
            "put #!/bin/sh on its first line",
        )
    if number == errno.EACCES and program.is_dir():
        return f"{program} is a directory", ""
    if number == errno.EACCES and not os.access(program, os.X_OK):
        return f"{program} is not executable", f"chmod +x {program}"
    return f"{program}: {text}", ""


def _program(name: str, directory: Path, environment: Mapping[str, str]) -> Path | None:
    """The file that a name stands for, looked for as the system does."""
    if "/" in name:
        candidates = [directory / name]
    else:
        folders = environment.get("PATH", os.defpath).split(":")
        candidates = [directory / folder / name for folder in folders]
    return next((path for path in candidates if path.exists()), None)


def _interpreter(program: Path) -> str | None:
    """What the ``#!`` line of a script names."""
    try:
        with program.open("rb") as file:
            first = file.read(LONGEST_LINE).split(b"\n")[0]
    except OSError:
        return None
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None

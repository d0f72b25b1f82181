"""The checkpoint of the built-in loop before a start: find it, check it, ask what becomes of it.

The loop resumes from the original in the ralph's own directory. The copy in ``.ralph/``, where agents write,
counts only if there is no original. Nothing is started or discarded here: the answer is part of the request
that starts the ralph.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ralphctl.format import checkpoint_text, humanize
from ralphctl.format.output import BOLD, DIM, clean, columns, has_colour, is_foreground, message, paint
from ralphctl.offline.state import CHECKPOINT_FILE, CHECKPOINT_VERSION
from ralphd import wire
from ralphd.dataclass import dataclass
from ralphd.errors import NewerState, RalphdError, UsageError
from ralphd.plain_files import peek


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint on disk. ``fault`` says why it cannot be resumed from.

    ``is_copy``: it is the copy in the working directory, and there is no original.
    """

    path: Path
    content: Mapping[str, Any]
    fault: str = ""
    is_newer: bool = False
    is_copy: bool = False


def find(directory: str, homes: list[Path], *, reported: object = None) -> SavedCheckpoint | None:
    """Return the checkpoint that a start in ``directory`` resumes from, or has to set aside.

    ``homes`` are where its original may be; ``reported`` is the daemon's view of it, if it is not readable.
    """
    originals = [home / CHECKPOINT_FILE for home in homes]
    for path in originals:
        if os.path.lexists(path):
            return checked(path, Path(directory))
    if isinstance(reported, dict):
        return SavedCheckpoint(originals[0] if originals else Path(CHECKPOINT_FILE), reported)
    copy = Path(directory) / ".ralph" / CHECKPOINT_FILE
    return replace(checked(copy, Path(directory)), is_copy=True) if os.path.lexists(copy) else None


def checked(path: Path, directory: Path) -> SavedCheckpoint:
    """Read and verify the checkpoint at ``path``, which exists."""
    from ralphd.store.checkpoint import CheckpointManager

    if (held := peek(path)) is None:
        return SavedCheckpoint(path, {}, "it is damaged: not a file with one JSON object")
    if isinstance(version := held.get("version"), int) and version > CHECKPOINT_VERSION:
        known = f"version {version}, and this one knows {CHECKPOINT_VERSION}"
        return SavedCheckpoint(path, held, f"it was written by a newer ralphd ({known})", is_newer=True)
    faults = CheckpointManager(path.parent, directory).verify(held)
    return SavedCheckpoint(path, held, f"it is damaged: {'; '.join(faults)}" if faults else "")


def runs_built_in(directory: str, flags: Mapping[str, object]) -> bool:
    """Return whether a registration without a command runs the built-in loop. Raise ConfigFaults."""
    from ralphd.config.configuration import load  # loads pydantic; needed only where there is a checkpoint

    return not load(Path(directory), flags=flags, environ=os.environ).ralph.command


_MOST_FILES = 200
_REF = re.compile(r"refs/ralph/[A-Za-z0-9._/-]{1,200}")


class StartDeclined(RalphdError, slug="not-started", exit_code=wire.EXIT_FAILED):
    """The user declined to start without the checkpoint."""


def resume_options(function: Any) -> Any:
    """Add ``--resume`` and ``--no-resume``."""
    afresh = click.option("--no-resume", is_flag=True, help="Start afresh; a checkpoint is kept aside.")
    resume = click.option("--resume", is_flag=True, help="Resume from the checkpoint without asking.")
    return resume(afresh(function))


def wish_of(resume: bool, no_resume: bool, command: list[str] | None) -> bool | None:
    """Return what the two options ask for; None for neither. Raise UsageError."""
    if resume and no_resume:
        raise UsageError("--resume and --no-resume are both given", mend="one of them, or none to be asked")
    given = "--resume" if resume else "--no-resume" if no_resume else ""
    if given and command is not None:
        what = f"{given} is for the built-in loop, and a command is given"
        why = "a command of your own keeps its checkpoints by itself"
        raise UsageError(what, why=why, mend=f"leave out {given}, or leave out the command")
    return resume if given else None


def settle(saved: SavedCheckpoint | None, wish: bool | None, *, command: str) -> bool | None:
    """Return what to send with the start: True to resume, False to start afresh, None for neither.

    ``command`` is what was typed, for advice. Raise KeyboardInterrupt for Ctrl-C at the question, and
    StartDeclined and NewerState if nothing is to be started.
    """
    if saved is None:
        if wish:
            message("there is no checkpoint: starting afresh")
        return wish
    if saved.fault:
        return _settle_unusable(saved, wish, command)
    if wish is None and not (is_boundary(saved.content) or _is_limit_over(saved.content)) and can_ask():
        wish = _ask(saved)
    if wish is False:
        message(f"starting afresh; the checkpoint is {_kept(saved)}")
        return False
    where = checkpoint_text.brief(saved.content, time.time())
    advice = "" if wish else f"  ({command} --no-resume starts afresh)"
    message(f"resuming from the checkpoint: {where}{advice}")
    return wish


def is_boundary(checkpoint: Mapping[str, Any]) -> bool:
    """Return whether it was saved between two iterations, as by a stop: nothing is half done."""
    reason = checkpoint.get("pause_reason")
    is_asked = reason in ("interrupted", "user_requested") and not checkpoint.get("task")
    return reason == "iteration_boundary" or is_asked


def _is_limit_over(checkpoint: Mapping[str, Any]) -> bool:
    resets = humanize.moment(checkpoint.get("resume_at"))
    return checkpoint.get("pause_reason") == "usage_limit" and resets is not None and resets <= time.time()


def _kept(saved: SavedCheckpoint) -> str:
    where = "the ralph's own directory" if saved.is_copy else clean(saved.path.parent)
    return f"kept as checkpoint.discarded-*.json in {where}"


def can_ask() -> bool:
    """Return whether a person can answer: this is the foreground of a terminal to read and to write."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return is_foreground(sys.stdin.fileno())


def _settle_unusable(saved: SavedCheckpoint, wish: bool | None, command: str) -> bool | None:
    if wish is not False:
        message(f"the checkpoint cannot be used: {clean(saved.fault)}\n  {clean(saved.path)}")
        answer = ask_line("Start without it? [y/N] ") if can_ask() else None
        if answer is None and saved.is_newer:
            what = "nothing was started: the checkpoint is of a newer version"
            mend = f"install the newer ralphd again; or {command} --no-resume, which keeps it aside"
            raise NewerState(what, why=f"{saved.path}: {saved.fault}", mend=mend)
        if answer is not None and answer.lower() not in ("y", "yes"):
            raise StartDeclined("nothing was started", mend=f"less {saved.path}, then {command}")
    if not saved.is_copy:
        message(f"starting without the checkpoint; it is {_kept(saved)}")
        return False
    from ralphd.store.files import set_aside

    kept_as = set_aside(saved.path)  # before the loop writes its own there
    where = "could not be put aside" if kept_as is None else f"is kept as {clean(kept_as)}"
    message(f"starting without the checkpoint; it {where}")
    return None


def _ask(saved: SavedCheckpoint) -> bool | None:
    """Return True to resume, False to discard, None at the end of input. Raise KeyboardInterrupt."""
    _print_rows(saved)
    while True:
        if (answer := ask_line("Resume, Discard, or View details? [R/d/v] ")) is None:
            return None
        word = answer.strip().lower()
        if "resume".startswith(word):
            return True
        if "discard".startswith(word):
            return False
        if "view".startswith(word):
            _print_all(saved)
        else:
            message("  r (or Enter): resume from it. d: start afresh, it is kept aside. v: show all of it.")


def confirmed(question: str, *, enter: bool = False) -> bool:
    """Ask on the terminal; ``enter`` is the answer of Enter, the end of input is a no.

    Raise KeyboardInterrupt.
    """
    while (answer := ask_line(f"{question} ")) is not None:
        if answer.lower() in ("", "y", "yes", "n", "no"):
            return answer[:1] in ("y", "Y") or (enter and not answer)
        message("type y or n; Enter selects the capital letter")
        question = question.rpartition("\n")[2]
    return False


def ask_line(question: str) -> str | None:
    """Return what the user types; None at the end of input. Raise KeyboardInterrupt."""
    try:  # Ctrl-C is an answer from the first word of the question on
        width = (columns(sys.stderr) or 80) - 1  # a terminal may not know its size
        lines = [line for each in question.split("\n") for line in humanize.wrapped(each, width)]
        sys.stderr.write("\n".join(lines) + " ")
        sys.stderr.flush()
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        message("\nnothing was changed, and nothing was started")
        raise
    except UnicodeDecodeError:
        return "?"
    except OSError:
        line = ""
    if not line:
        message("")
        return None
    return line.strip()


def _print_rows(saved: SavedCheckpoint) -> None:
    on, now = has_colour(sys.stderr), time.time()
    message(paint("A checkpoint is here:", BOLD, on=on))
    for label, text in checkpoint_text.rows(saved.content, now):
        message(f"  {paint(f'{label:<12}', DIM, on=on)} {text}")


def _print_all(saved: SavedCheckpoint) -> None:
    content = json.dumps(saved.content, indent=2, ensure_ascii=False).splitlines()
    lines = [f"{clean(saved.path)}:", *(f"  {clean(line)}" for line in content)]
    files = names if isinstance(names := saved.content.get("uncommitted_files"), list) else []
    lines += ["Not committed when it was saved:"] if files else []
    lines += [f"  {clean(name)}" for name in files[:_MOST_FILES]]
    lines += [f"  … and {len(files) - _MOST_FILES} more"] if len(files) > _MOST_FILES else []
    message("\n".join(lines))
    ref = saved.content.get("snapshot_ref")
    if isinstance(ref, str) and _REF.fullmatch(ref):  # people paste what they read here
        message("Its snapshot of that work, which neither answer throws away:")
        message(f"  git show --stat {ref}")
        message(f"  git diff {ref}  (from it to what is here now)")
        message(f"  git restore --overlay --source={ref} -- :/  (put its files over those that are here)")
    else:
        message("It has no snapshot: there was nothing to keep when it was saved.")

"""The question before a loop starts where a checkpoint is: resume, discard, or look at it first (L13).

Nothing is started or thrown away here: the answer travels with the request that starts the ralph.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from typing import Any

import click

from ralphctl import checkpoint_words
from ralphctl.local import checkpoint
from ralphctl.local.checkpoint import Found
from ralphctl.tell import BOLD, DIM, clean, has_colour, message, paint
from ralphd import wire
from ralphd.errors import NewerState, RalphdError, UsageError

_RESUME, _DISCARD, _VIEW = "resume", "discard", "view"
_MOST_FILES = 200
_REF = re.compile(r"refs/ralph/[A-Za-z0-9._/-]{1,200}")


class NotStarted(RalphdError):
    """A person did not want to start without what the checkpoint holds."""

    slug, exit_code = "not-started", wire.EXIT_FAILED


def resume_options(function: Any) -> Any:
    """``--resume`` and ``--no-resume``."""
    function = click.option("--no-resume", is_flag=True, help="Start afresh; a checkpoint is kept aside.")(
        function
    )
    return click.option("--resume", is_flag=True, help="Go on from the checkpoint, without a question.")(
        function
    )


def wish_of(resume: bool, no_resume: bool, command: list[str] | None) -> bool | None:
    """What the two options ask for; None for neither. Raises UsageError."""
    if resume and no_resume:
        raise UsageError("--resume and --no-resume are both given", mend="one of them, or none to be asked")
    given = "--resume" if resume else "--no-resume" if no_resume else ""
    if given and command is not None:
        raise UsageError(
            f"{given} is for the built-in loop, and a command is given",
            why="a command of your own keeps its checkpoints by itself",
            mend=f"leave out {given}, or leave out the command",
        )
    return resume if given else None


def settle(found: Found | None, wish: bool | None, *, command: str) -> bool | None:
    """What to send with the start: True to go on, False to start afresh, None where nothing is to be said.

    ``command`` is what was typed, for advice. Raises KeyboardInterrupt for Ctrl-C at the question, NotStarted
    and NewerState where it is not to be started.
    """
    if found is None:
        if wish:
            message("no checkpoint is here: it starts afresh")
        return wish
    if found.fault:
        return _settle_unusable(found, wish, command)
    if wish is None and can_ask():
        wish = _ask(found)
    if wish is False:
        message(f"starting afresh; the checkpoint is {_kept(found)}")
        return False
    where = checkpoint_words.brief(found.content, time.time())
    advice = "" if wish else f"  ({command} --no-resume starts afresh)"
    message(f"resuming from the checkpoint: {where}{advice}")
    return wish


def _kept(found: Found) -> str:
    where = "the ralph's own directory" if found.is_copy else clean(str(found.path.parent))
    return f"kept as checkpoint.discarded-TIME.json in {where}"


def can_ask() -> bool:
    """Whether a person is there to answer: a terminal to read and to write, in the foreground of it."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


def _settle_unusable(found: Found, wish: bool | None, command: str) -> bool | None:
    if wish is not False:
        message(f"the checkpoint cannot be used: {clean(found.fault)}\n  {clean(str(found.path))}")
        if can_ask():
            _or_not_at_all(found, command)
        elif found.is_newer:
            raise _newer(found, command)
    if not found.is_copy:
        message(f"starting without the checkpoint; it is {_kept(found)}")
        return False
    kept_as = checkpoint.put_aside(found)
    where = "could not be put aside" if kept_as is None else f"is kept as {clean(str(kept_as))}"
    message(f"starting without the checkpoint; it {where}")
    return None


def _or_not_at_all(found: Found, command: str) -> None:
    """Ask whether to start without it. Raises NotStarted, NewerState."""
    answer = _line("Start without it? [y/N] ")
    if answer is None and found.is_newer:
        raise _newer(found, command)
    if answer is not None and answer.lower() not in ("y", "yes"):
        raise NotStarted("nothing was started", mend=f"less {found.path}, then {command}")


def _newer(found: Found, command: str) -> NewerState:
    return NewerState(
        "nothing was started: the checkpoint is of a newer version",
        why=f"{found.path}: {found.fault}",
        mend=f"install the newer ralphd again; or {command} --no-resume, which keeps it aside",
    )


def _ask(found: Found) -> bool | None:
    """True to resume, False to discard, None where nobody answers any more. Raises KeyboardInterrupt."""
    _show(found)
    while True:
        answer = _line("Resume, Discard, or View details? [R/d/v] ")
        if answer is None:
            return None
        match _meant(answer):
            case "resume":
                return True
            case "discard":
                return False
            case "view":
                _show_all(found)
            case _:
                message(
                    "  r (or Enter): go on from it. d: start afresh, it is kept aside. v: show all of it."
                )


def _meant(answer: str) -> str:
    word = answer.strip().lower()
    return next((each for each in (_RESUME, _DISCARD, _VIEW) if each.startswith(word)), "")


def _line(question: str) -> str | None:
    """What a person types; None at the end of what can be read. Raises KeyboardInterrupt."""
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
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


def _show(found: Found) -> None:
    on, now = has_colour(sys.stderr), time.time()
    message(paint("A checkpoint is here:", BOLD, on=on))
    for label, text in checkpoint_words.rows(found.content, now):
        message(f"  {paint(f'{label:<12}', DIM, on=on)} {text}")


def _show_all(found: Found) -> None:
    """The whole checkpoint, the files that are not committed, and how to look at the snapshot."""
    message(f"{clean(str(found.path))}:")
    for line in json.dumps(found.content, indent=2, ensure_ascii=False).splitlines():
        message(f"  {clean(line)}")
    _show_files(found.content)
    ref = found.content.get("snapshot_ref")
    if isinstance(ref, str) and _REF.fullmatch(ref):  # people paste what they read here
        message("Its snapshot of that work, which neither answer throws away:")
        message(f"  git show --stat {ref}")
        message(f"  git diff {ref}  (from it to what is here now)")
        message(f"  git restore --overlay --source={ref} -- :/  (put its files over those that are here)")
    else:
        message("It has no snapshot: there was nothing to keep when it was saved.")


def _show_files(content: Mapping[str, Any]) -> None:
    files = content.get("uncommitted_files")
    if not isinstance(files, list) or not files:
        return
    message("Not committed when it was saved:")
    for name in files[:_MOST_FILES]:
        message(f"  {clean(str(name))}")
    if len(files) > _MOST_FILES:
        message(f"  … and {len(files) - _MOST_FILES} more")

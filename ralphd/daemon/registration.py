"""Check a registration before anything is changed, and the gate's settings with it.

Faults are raised to the person who registers or starts a ralph, not found at night by the first verdict.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from ralphd import wire
from ralphd.config.configuration import Configuration, load
from ralphd.config.keys import FLAGS
from ralphd.config.values import fit_name, run_environment
from ralphd.core.sandbox import BOX
from ralphd.dataclass import dataclass
from ralphd.errors import BadName, DirectoryBusy, DirectoryUnusable, NameTaken, UsageError
from ralphd.git.diagnostics import WILL_PAUSE, in_the_way, unsupported
from ralphd.git.repo import Repository, head
from ralphd.process.tree import enabled_controllers
from ralphd.store.mirror import Mirror
from ralphd.store.state import Definition

if TYPE_CHECKING:
    from ralphd.daemon.services import Services

CHECK_S = 30.0
"""Less than a client waits for an answer."""


def notes_on_gate(directory: Path, configuration: Configuration) -> list[str]:
    """Return the notes on a ralph's gate for its owner. Raises ConfigFaults. Blocks."""
    if not (configuration.regent.enabled and configuration.regent.rollback_on_test_failure):
        return []
    configuration.check_guard()
    if Repository.find(directory) is None:
        return ["the guard is off: this is not a git repository"]
    lacks = [f"the guard cannot do everything here: {line}" for line in unsupported(directory)]
    return lacks + [WILL_PAUSE + line for line in in_the_way(directory)]


def notes_beside(directory: Path, configuration: Configuration, known: Mapping[str, Path]) -> tuple[str, ...]:
    """Return a note for each ralph in the same work tree, which a guard judges as a whole. Blocks."""
    if not configuration.regent.rollback_on_test_failure or (own := Repository.find(directory)) is None:
        return ()
    below = own.top or directory  # elsewhere nothing is read: another file system may hang
    others = [name for name, path in known.items() if path != directory and path.is_relative_to(below)]
    same = [name for name in others if (found := Repository.find(known[name])) and found.git == own.git]
    words = "works in the same work tree, and the guard judges both together: --worktree gives each its own"
    return tuple(f"{name} {words}" for name in same)


@dataclass(frozen=True, slots=True)
class Registration:
    """The request for a new ralph.

    ``command`` empty: the one in the configuration, and without that the built-in loop. ``resume`` False puts
    the loop's checkpoint aside. ``name`` None: one is derived from the directory's. ``environment`` holds
    secrets: it stays out of ``repr``, logs and replies.
    """

    directory: str
    command: list[str]
    name: str | None = None
    flags: dict[str, object] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict, repr=False)
    start: bool = True
    resume: bool | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registration that was checked. ``notes`` are for its owner."""

    definition: Definition
    environment: Mapping[str, str] = field(repr=False)
    notes: tuple[str, ...] = ()


async def checked(registration: Registration, known: Mapping[str, Path], services: "Services") -> Candidate:
    """Return the candidate. Raise DirectoryUnusable too if the check of its directory takes CHECK_S."""
    # A thread of its own that nobody joins, one per directory: a file system that hangs must neither occupy
    # the threads of others nor delay the end of the daemon.
    result: Future[Candidate] = Future()
    result.set_running_or_notify_cancel()
    # Its thread may live on for a moment: the next request must not take it for one that hangs.
    result.add_done_callback(lambda _: setattr(threading.current_thread(), "name", "checked"))
    name = f"check of {registration.directory}"

    def check() -> None:
        try:
            result.set_result(candidate(registration, known, services))
        except BaseException as fault:
            result.set_exception(fault)

    try:
        if any(each.name == name for each in threading.enumerate()):
            raise TimeoutError
        threading.Thread(target=check, name=name, daemon=True).start()
        async with asyncio.timeout(CHECK_S):
            return await asyncio.wrap_future(result)
    except TimeoutError as error:
        why = f"checking it takes longer than {CHECK_S:g} s: its file system may hang"
        mend = f"ls {registration.directory}  (mount it again if this hangs too)"
        raise DirectoryUnusable(f"{registration.directory} does not answer", why=why, mend=mend) from error


def candidate(registration: Registration, known: Mapping[str, Path], services: "Services") -> Candidate:
    """Check a registration; change nothing. Raises RalphdError.

    ``known`` maps the names of all ralphs to their directories.
    """
    directory = _usable(Path(registration.directory), services.state_directory)
    environment = run_environment(registration.environment, directory, services.commands)
    configuration = load(directory, flags=registration.flags, environ=registration.environment)
    name = _name(registration.name, configuration.project.name, directory, known)
    command = tuple(registration.command) or configuration.ralph.command
    if command[:1] == ("",):
        raise UsageError("the first word of the command is empty", mend="ralphctl start DIR -- ./loop.sh")
    notes = notes_on(directory, configuration, command, environment)
    notes += notes_beside(directory, configuration, known)
    idle = [flag for flag in registration.flags if FLAGS.get(flag, flag).startswith(("agents.", "phases."))]
    if command and idle:
        notes += (f"no effect on a command of your own: --{', --'.join(idle)}",)
    pinned, at = configuration.pinned(), services.clock.now()
    definition = Definition(name, directory, command, pinned, at, flags=registration.flags)
    return Candidate(definition, environment, notes)


def _usable(directory: Path, state_directory: Path) -> Path:
    if not directory.is_absolute():
        raise DirectoryUnusable(f"{directory} is not an absolute path", mend=f"give it as /…/{directory}")
    try:
        real = directory.resolve(strict=True)
    except OSError as error:
        why, mend = error.strerror or str(error), f"mkdir -p {directory}"
        raise DirectoryUnusable(f"{directory} cannot be used", why=why, mend=mend) from error
    if not real.is_dir():
        raise DirectoryUnusable(f"{directory} is not a directory", mend=f"name its directory: {real.parent}")
    if not os.access(real, os.W_OK | os.X_OK):
        why = "a ralph works in it, and ralphd keeps .ralph/ there"
        mend = f"chmod u+wx {directory}, or run ralphd as its owner"
        raise DirectoryUnusable(f"{directory} is not writable for uid {os.geteuid()}", why=why, mend=mend)
    if state_directory.resolve().is_relative_to(real):
        what = f"{directory} holds ralphd's own state ({state_directory})"
        mend = "choose a directory below it, or set RALPHD_STATE_DIR to another place"
        raise DirectoryUnusable(what, why="an agent could delete it there", mend=mend)
    mirror = Mirror(real)
    if mirror.exists():
        mirror.refuse_newer()
    return real


def _name(given: str | None, configured: str, directory: Path, known: Mapping[str, Path]) -> str:
    mine = next((name for name, path in known.items() if path == directory), None)
    if given is None:
        return mine or free_name(fit_name(configured or directory.name), known.__contains__)
    if not wire.is_name(given):
        why = "lower-case letters, digits, '.', '_' and '-', 63 at most, a letter or digit first"
        raise BadName(f"{given[:80]!r} is not a name for a ralph", why=why, mend=f"--name {fit_name(given)}")
    if given in known and known[given] != directory:
        mend = f"--name {free_name(given, known.__contains__)}, or ralphctl rm {given}"
        raise NameTaken(f"the name {given} belongs to the ralph in {known[given]}", mend=mend)
    if mine is not None and mine != given:
        why = "one ralph works in a directory"
        mend = f"ralphctl start {mine}, or ralphctl rm {mine}"
        raise DirectoryBusy(f"{directory} is the directory of the ralph {mine}", why=why, mend=mend)
    return given


def free_name(name: str, is_taken: Callable[[str], bool]) -> str:
    """Return ``name``, with a number if it is taken."""
    free, number = name, 1
    while is_taken(free):
        number += 1
        free = f"{name[: wire.MAX_NAME_CHARS - 1 - len(str(number))]}-{number}"
    return free


def notes_on(
    directory: Path, configuration: Configuration, command: tuple[str, ...], environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the notes for the owner of a ralph that is registered, started again or reloaded.

    Raises RalphdError where the built-in loop, or the gate, cannot work.
    """
    notes: list[str] = []
    if not command:  # a daemon of other commands does not load the loop
        from ralphd.daemon.builtin import notes_on_loop

        notes += notes_on_loop(directory, configuration, environment)
    notes += notes_on_gate(directory, configuration)
    if lacking := configuration.run_limits().unavailable(enabled_controllers()):
        notes.append(lacking)
    if configuration.ralph.schedule and command and configuration.ralph.mode == "loop":
        notes.append(
            "outside its schedule a run of this command ends after an iteration that it reports;"
            " a command that reports none is not ended"
        )
    if not configuration.sandbox.net and (level := configuration.sandbox.level) != BOX:
        notes.append(f'sandbox.net = false has no effect: [sandbox] level is "{level}", not "{BOX}"')
    if command and (configuration.git.auto_push or configuration.git.auto_pull_rebase):
        notes.append("auto_push and auto_pull_rebase are for the built-in loop: this command has to do both")
    if head(directory) is None:
        notes.append("not a git repository: commits cannot show what Ralph does")
    return tuple(notes)

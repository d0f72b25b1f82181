"""``ralphctl init``: looks at a directory, and writes what a ralph there begins with. Runs nothing of it.

Nothing that exists is written over. All that could be in the way is looked at before anything is written, and
where writing fails in the middle, what was written is taken away again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ralphctl.local import config, init_text
from ralphctl.local.found import task_list
from ralphctl.local.found_agents import FoundAgent, found_agents
from ralphctl.local.found_git import FoundGit, found_git
from ralphctl.local.found_tests import FoundTests, found_tests
from ralphctl.local.init_text import SCHEMA_FILE, Choices
from ralphd.agents.known import agent_of, check_names, fallback_chain, missing_program, spec_of
from ralphd.config.configuration import Configuration, load, sources
from ralphd.core.plan import Plan
from ralphd.errors import DirectoryUnusable, RalphdError, UsageError
from ralphd.store.files import write_whole
from ralphd.store.mirror import NAME as MIRROR
from ralphd.store.mirror import Mirror

TOML: Final = "ralph.toml"
_READABLE_BY_ALL: Final = 0o644  # whatever the umask: what a group may write is not believed


class AlreadyThere(RalphdError):
    """``ralph.toml`` is there, and something was asked for that would be written into it."""

    slug = "already-there"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for by flags; None and empty for what was left open."""

    agent: str = ""
    fallback: tuple[str, ...] = ()
    test_command: str | None = None
    rolls_back: bool | None = None
    pushes: bool | None = None
    pulls: bool | None = None

    @property
    def are_any(self) -> bool:
        """Whether anything was asked for."""
        return self != Wishes()


@dataclass(frozen=True, slots=True)
class Found:
    """What there is. ``has_toml``: a ``ralph.toml`` that stays as it is; ``configuration`` holds now.

    ``above`` is the ``ralph.toml`` of a directory above that held here until now, or empty.
    """

    directory: Path
    has_toml: bool
    configuration: Configuration
    agents: tuple[FoundAgent, ...]
    tests: tuple[FoundTests, ...]
    tasks: Plan | None
    git: FoundGit
    above: str

    @property
    def usable_tests(self) -> FoundTests | None:
        """The best command for the tests that would do."""
        return next((each for each in self.tests if not each.fault), None)


@dataclass(frozen=True, slots=True)
class Written:
    """What was made, and what was there already; ``kept`` is where the ``ralph.toml`` before is."""

    made: tuple[str, ...]
    left_alone: tuple[str, ...]
    kept: str = ""


def look(
    directory: Path,
    environ: Mapping[str, str],
    wishes: Wishes,
    *,
    force: bool,
    slow: Callable[[], None] = lambda: None,
) -> Found:
    """See what is there. Raises RalphdError for what is in the way, and for wishes that cannot be met.

    Blocks for as long as agents take to tell their version; ``slow`` is called where that is over a second.
    """
    has_toml = _check_way(directory, environ, force=force)
    if has_toml and wishes.are_any and not force:
        raise AlreadyThere(
            f"{TOML} is there already, and stays as it is: nothing was written",
            mend="ralphctl config set KEY VALUE  (changes one key)\n"
            "ralphctl init --force  (writes it anew; the old one is kept beside it)",
        )
    _check_wishes(directory, environ, wishes)
    is_new = force or not has_toml
    configuration = load(None if is_new else directory, environ=environ)
    _check_named_place(directory / (configuration.ralph.prompt_file if not is_new else "PROMPT.md"))
    return Found(
        directory,
        not is_new,
        configuration,
        found_agents(environ, slow=slow),
        found_tests(directory, environ.get("PATH", os.defpath)),
        task_list(directory, configuration.ralph.tasks),
        found_git(directory, environ),
        _above(directory, environ) if is_new else "",
    )


def choices(found: Found, wishes: Wishes) -> Choices:
    """What follows from flags and from what was found, where nobody was asked: nothing that is a risk.

    Raises UsageError for a rollback without tests.
    """
    tests = found.usable_tests
    command = wishes.test_command if wishes.test_command is not None else tests.command if tests else ""
    if wishes.rolls_back and not command.strip():
        raise UsageError(
            "--rollback needs the tests, and no command for them was found",
            mend="ralphctl init --rollback --test-command 'make test'",
        )
    installed = [agent.name for agent in found.agents]
    agent = wishes.agent or (installed[0] if installed else found.configuration.agents.primary)
    return Choices(
        agent,
        wishes.fallback,
        command,
        rolls_back=bool(wishes.rolls_back),
        pushes=bool(wishes.pushes),
        pulls=bool(wishes.pulls),
    )


def write(found: Found, chosen: Choices) -> Written:
    """Write what is missing. Raises DirectoryUnusable; then nothing was written."""
    prompt = found.configuration.ralph.prompt_file if found.has_toml else "PROMPT.md"
    tasks = found.tasks.file if found.tasks else ""
    tests = found.configuration.regent.test_command if found.has_toml else chosen.test_command
    texts = {prompt: init_text.prompt_text(test_command=tests, tasks=tasks)}
    if not _wants_prompt(found, prompt):
        texts = {}
    if not found.has_toml:
        texts[TOML] = init_text.toml_text(chosen, tasks=tasks)
    made: list[str] = []
    kept = ""
    try:
        _make_own(found.directory, made)
        kept = _put_aside(found.directory / TOML) if TOML in texts else ""
        made += [name for name, text in texts.items() if _create(found.directory / name, text)]
    except OSError as fault:
        _take_away(found.directory, made, kept)
        raise _unwritable(found.directory, fault) from fault
    there = [name for name in (TOML, prompt) if name not in made and os.path.lexists(found.directory / name)]
    left_alone = (*there, *((tasks,) if tasks and tasks not in there else ()))
    return Written(tuple(made), tuple(dict.fromkeys(left_alone)), kept)


def _wants_prompt(found: Found, prompt: str) -> bool:
    """Whether it is ours to write: not with a command of one's own, nor outside of the directory."""
    inside = (found.directory / prompt).resolve().is_relative_to(found.directory.resolve())
    return inside and not (found.has_toml and found.configuration.ralph.command)


def missing(found: Found, chosen: Choices, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What is not installed of the agents that will be asked, in words."""
    named = found.configuration.agents.named
    if found.has_toml:
        asked = (found.configuration.agents.primary, *found.configuration.agents.fallback)
    else:
        asked = (chosen.agent, *chosen.fallback)
    chain = (asked[0], *fallback_chain(asked[0], asked[1:], named))
    agents = (agent_of(name, spec_of(name, named), outside=environ) for name in chain)
    told = (missing_program(agent, environ) for agent in agents)
    return tuple(each for each in told if each)


def _check_way(directory: Path, environ: Mapping[str, str], *, force: bool) -> bool:
    """Whether there is a ``ralph.toml``. Raises DirectoryUnusable for whatever else is in the way."""
    if directory.resolve() in (Path("/"), Path(environ.get("HOME") or "/").resolve()) and not force:
        raise DirectoryUnusable(
            f"{directory} is {'the root of everything' if directory.resolve() == Path('/') else 'your home'}",
            why="an agent works on all that is in its directory, without asking",
            mend="ralphctl init DIR  (a project's directory; --force to do it here all the same)",
        )
    if not os.access(directory, os.W_OK | os.X_OK):
        raise DirectoryUnusable(f"{directory} cannot be written to", mend=f"ls -ld {directory}")
    Mirror(directory).exists()
    return _check_named_place(directory / TOML)


def _check_named_place(path: Path) -> bool:
    """Whether a file is there. Raises DirectoryUnusable for anything else in its place."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.is_symlink():
            return False
        raise DirectoryUnusable(
            f"{path} is a link to nothing", why="no link is written through", mend=f"rm {path}"
        ) from None
    except OSError as fault:
        raise DirectoryUnusable(f"{path} cannot be looked at", why=fault.strerror or "") from fault
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
        raise DirectoryUnusable(f"{path} is {kind}, and a file belongs there", mend=f"mv {path} {path}.old")
    return True


def _above(directory: Path, environ: Mapping[str, str]) -> str:
    nearest = sources(directory, environ=environ)[-1]
    return str(nearest) if nearest.parent != directory.resolve() and os.path.lexists(nearest) else ""


def _check_wishes(directory: Path, environ: Mapping[str, str], wishes: Wishes) -> None:
    """Raises UnknownAgent and ConfigFaults, in the words of ``config check``."""
    flags: dict[str, object] = {
        "agents.primary": wishes.agent or None,
        "agents.fallback": wishes.fallback or None,
        "regent.test_command": wishes.test_command,
    }
    agents = load(None, flags=flags, environ=environ).agents
    if wishes.agent or wishes.fallback:
        chain = fallback_chain(agents.primary, wishes.fallback, agents.named)
        check_names((agents.primary, *chain), agents.named)


def _make_own(directory: Path, made: list[str]) -> None:
    """``.ralph/``, ignored by git, and the schema in it, which is made anew each time. Raises OSError too."""
    schema = Path(MIRROR) / SCHEMA_FILE
    paths = (Path(MIRROR) / ".gitignore", schema)
    made += [str(path) for path in paths if not os.path.lexists(directory / path)]
    Mirror(directory).make()
    write_whole(directory / schema, (config.schema() + "\n").encode(), durable=False)


def _put_aside(toml: Path) -> str:
    """Keep the ``ralph.toml`` that is there beside the new one; its name then."""
    if not os.path.lexists(toml):
        return ""
    kept = toml.with_name(f"{toml.name}.kept-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}")
    toml.rename(kept)
    return kept.name


def _create(path: Path, text: str) -> bool:
    """Write a file that is not there, whole or not at all; whether it was written. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _READABLE_BY_ALL
        )
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return True


def _take_away(directory: Path, made: list[str], kept: str) -> None:
    for name in made:
        with suppress(OSError):
            (directory / name).unlink(missing_ok=True)
    with suppress(OSError):
        (directory / MIRROR).rmdir()  # unless something was in it
    if kept:
        (directory / kept).rename(directory / TOML)


def _unwritable(directory: Path, fault: OSError) -> DirectoryUnusable:
    return DirectoryUnusable(
        f"{directory} cannot be written to: nothing was written",
        why=fault.strerror or str(fault),
        mend=f"ls -ld {directory}; df -h {directory}",
    )

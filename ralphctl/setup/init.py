"""Decide and write what ``ralphctl init`` puts into a directory: ``ralph.toml``, ``PROMPT.md``, ``.ralph/``.

No existing file is overwritten. Everything that could be in the way is checked before the first write, and a
failed write is undone.
"""

import os
import re
import textwrap
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ralphctl.setup import config_show, detect
from ralphd.agents.known import agent_of, check_names, fallback_chain, missing_program, spec_of
from ralphd.config.configuration import Configuration, load, sources
from ralphd.config.keys import keys_of
from ralphd.config.layers import DEFAULT
from ralphd.config.values import toml_value
from ralphd.core.plan import PROMISE, Plan
from ralphd.dataclass import dataclass
from ralphd.errors import DirectoryUnusable, RalphdError, UsageError
from ralphd.store.files import write_whole
from ralphd.store.mirror import Mirror

_TOML, _SCHEMA = "ralph.toml", ".ralph/ralph.schema.json"
_TEMPLATES = Path(__file__).parent
_RISKS = {
    "rolls_back": ("regent", "rollback_on_test_failure"),
    "pushes": ("git", "auto_push"),
    "pulls": ("git", "auto_pull_rebase"),
}


class AlreadyThere(RalphdError, slug="already-there"):
    """``ralph.toml`` exists, and a flag asks for something that would change it."""


@dataclass(frozen=True, slots=True)
class InitChoices:
    """What the flags ask for, None and empty where they leave it open. ``decide`` leaves nothing open."""

    agent: str | None = None
    fallback: tuple[str, ...] = ()
    test_command: str | None = None
    rolls_back: bool | None = None
    pushes: bool | None = None
    pulls: bool | None = None


class InitProject(NamedTuple):
    """What the directory holds. ``has_toml``: its ``ralph.toml`` stays, and ``configuration`` is in force.

    ``above`` is the ``ralph.toml`` of a parent directory that was in force so far, or empty. ``protect`` are
    the patterns of its test files, where the usual names do not cover them.
    """

    directory: Path
    has_toml: bool
    configuration: Configuration
    agents: tuple[detect.DetectedAgent, ...]
    tests: tuple[detect.DetectedTests, ...]
    tasks: Plan | None
    git: detect.DetectedGit
    above: str
    protect: tuple[str, ...]

    def is_set(self, key: str) -> bool:
        """Return whether ``key`` is decided: by a flag, by the user's own file, or by ``ralph.toml``."""
        return self.has_toml or self.configuration.origins[key] != DEFAULT


class InitResult(NamedTuple):
    """The files written, those that existed, and the name under which the old ``ralph.toml`` is kept."""

    made: list[str]
    left_alone: list[str]
    kept: str


def inspect(directory: Path, environ: Mapping[str, str], wishes: InitChoices, *, force: bool) -> InitProject:
    """Return what the directory holds. Raise RalphdError for obstacles, and for flags that cannot be met.

    Block for as long as agents take to print their version.
    """
    here, home = directory.resolve(), Path(environ.get("HOME") or "/").resolve()
    if here in (Path("/"), home) and not force:
        what = f"{directory} is {'the root of everything' if here == Path('/') else 'your home'}"
        why = "an agent works on all that is in its directory, without asking"
        mend = "ralphctl init DIR  (a project's directory; --force to do it here all the same)"
        raise DirectoryUnusable(what, why=why, mend=mend)
    Mirror(directory).exists()  # raises for anything but a directory
    has_toml = _is_file(directory / _TOML) and not force
    if has_toml and wishes != InitChoices():
        mend = "ralphctl config set KEY VALUE  (changes one key)\n"
        mend += "ralphctl init --force  (writes a new one; the old one is renamed)"
        raise AlreadyThere(f"{_TOML} exists already: nothing was written", mend=mend)
    flags: dict[str, object] = {"agents.primary": wishes.agent, "agents.fallback": wishes.fallback or None}
    flags["regent.test_command"] = wishes.test_command
    flags |= {".".join(key): getattr(wishes, name) for name, key in _RISKS.items()}
    configuration = load(directory if has_toml else None, flags=flags, environ=environ)
    if wishes.agent or wishes.fallback:
        primary, named = configuration.agents.primary, configuration.agents.named
        check_names((primary, *fallback_chain(primary, wishes.fallback, named)), named)
    _is_file(directory / configuration.ralph.prompt_file)
    nearest = sources(directory, environ=environ)[-1]
    above = "" if has_toml or nearest.parent == here or not nearest.exists() else str(nearest)
    agents, git = detect.detect_agents(environ), detect.detect_git(directory, environ)
    tests = detect.detect_tests(directory, environ.get("PATH", os.defpath))
    tasks = detect.task_list(directory, configuration.ralph.tasks)
    protect = () if has_toml else detect.detect_protect(directory)
    return InitProject(directory, has_toml, configuration, agents, tests, tasks, git, above, protect)


def missing_prompt(directory: Path, flags: Mapping[str, object], environ: Mapping[str, str]) -> str:
    """Return the prompt file that the built-in loop lacks in ``directory``. Empty if it is there, for a
    command of ralph.toml's, and with faults in the configuration, which a start reports.
    """
    with suppress(RalphdError):
        ralph = load(directory, flags=flags, environ=environ).ralph
        return "" if ralph.command or (directory / ralph.prompt_file).exists() else ralph.prompt_file
    return ""


def decide(project: InitProject, wishes: InitChoices, ask: Callable[[str, str], bool]) -> InitChoices:
    """Fill in what the flags leave open; ``ask(name, tests)`` answers for each risk that has a meaning here.

    Raise UsageError for a rollback without tests.
    """
    agents, tests = project.configuration.agents, project.configuration.regent.test_command
    if not project.is_set("regent.test_command"):
        tests = next((each.command for each in project.tests if not each.fault), "")
    if wishes.rolls_back and not tests.strip():
        text = "--rollback needs a test command, and none was found"
        raise UsageError(text, mend="ralphctl init --rollback --test-command 'make test'")
    is_open = project.agents and not project.is_set("agents.primary")
    agent = project.agents[0].name if is_open else agents.primary
    risks: list[bool] = []
    for name, (section, option) in _RISKS.items():
        has_meaning = bool(tests if name == "rolls_back" else project.git.upstream)
        is_asked = has_meaning and not (project.git.fault or project.is_set(f"{section}.{option}"))
        risks.append(ask(name, tests) if is_asked else project.configuration.tree()[section][option])
    return InitChoices(agent, agents.fallback, tests, *risks)


def missing_agents(project: InitProject, choices: InitChoices, environ: Mapping[str, str]) -> list[str]:
    """Return what is not installed of the agents that will be used, in words."""
    named, primary = project.configuration.agents.named, choices.agent or ""
    chain = (primary, *fallback_chain(primary, choices.fallback, named))
    used = (agent_of(name, spec_of(name, named), outside=environ) for name in chain)
    return [words for agent in used if (words := missing_program(agent, environ))]


def write(project: InitProject, choices: InitChoices) -> InitResult:
    """Write what is missing. Raise DirectoryUnusable; then nothing was written."""
    directory, has_toml, configuration = project[:3]
    prompt, tests = configuration.ralph.prompt_file, choices.test_command or ""
    tasks = project.tasks.file if project.tasks else ""
    is_inside = (directory / prompt).resolve().is_relative_to(directory.resolve())
    texts = {} if has_toml else {_TOML: toml_text(choices, project, tasks=tasks)}
    if is_inside and not (has_toml and configuration.ralph.command):
        texts = {prompt: prompt_text(test_command=tests, tasks=tasks)} | texts
    made = [name for name in (".ralph/.gitignore", _SCHEMA) if not os.path.lexists(directory / name)]
    kept = ""
    try:
        Mirror(directory).make()
        write_whole(directory / _SCHEMA, (config_show.schema() + "\n").encode(), durable=False)
        if _TOML in texts and os.path.lexists(directory / _TOML):
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            kept = (directory / _TOML).rename(directory / f"{_TOML}.kept-{stamp}").name
        for name, text in texts.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
                made.append(name)
                path.chmod(path.stat().st_mode & 0o644)  # ralphd does not trust what a group may write
                file.write(text)
    except OSError as fault:
        for name in made:
            with suppress(OSError):
                (directory / name).unlink()
        if kept:
            (directory / kept).rename(directory / _TOML)
        text = f"cannot write to {directory}: nothing was written"
        mend = f"ls -ld {directory}; df -h {directory}"
        raise DirectoryUnusable(text, why=fault.strerror or str(fault), mend=mend) from fault
    old = dict.fromkeys(name for name in (_TOML, prompt, tasks) if name and name not in made)
    return InitResult(made, [name for name in old if os.path.lexists(directory / name)], kept)


def toml_text(choices: InitChoices, project: InitProject, *, tasks: str) -> str:
    """Return ``ralph.toml`` from its template, each key with its description. ``tasks`` may be empty.

    What the user's own file sets is a comment. Without patterns so is ``protect``: an empty list looks as if
    nothing was protected.
    """
    values = {name: toml_value(getattr(choices, name)) for name in InitChoices.__dataclass_fields__}
    values["found_tasks"] = f"Found: {tasks}." if tasks else "None found: the prompt alone is the task."
    values["protect"] = toml_value(project.protect or ("check_*.py",))
    values["found_tests"] = "" if choices.test_command else "None found."

    def explained(row: re.Match[str]) -> str:
        section, name, value, remark = row.groups(default="")
        text = f"{keys_of(section)[name].schema['description']} {remark.format(**values)}".strip()
        if is_own := project.configuration.origins[f"{section}.{name}"].text.startswith("/"):
            value, text = toml_value(project.configuration.tree()[section][name]), f"{text} In your own file:"
        comment = textwrap.fill(text, 80, initial_indent="# ", subsequent_indent="# ")
        mark = "# " if is_own or (name == "protect" and not project.protect) else ""
        return f"{comment}\n{mark}{name} = {value if is_own else value.format(**values)}"

    template = (_TEMPLATES / "ralph.toml.in").read_text()
    return re.sub(r"(?m)^(\w+)\.(\w+) = (.+?)(?:  # (.+))?$", explained, template)


def prompt_text(*, test_command: str, tasks: str) -> str:
    """Return the prompt to begin with, ``PROMPT.md``, from its template."""
    is_quotable = test_command and test_command.isprintable() and "`" not in test_command
    tests = f"the tests (`{test_command}`)" if is_quotable else "the tests"
    template = (_TEMPLATES / "prompt.md").read_text()
    return template.format(tests=tests, tasks=tasks or "TASKS.md", promise=PROMISE)


def _is_file(path: Path) -> bool:
    """Return whether a file is there. Raise DirectoryUnusable for anything else in its place."""
    if path.is_file() or not os.path.lexists(path):
        return path.is_file()
    kind = "a directory" if path.is_dir() else "a special file" if path.exists() else "a broken link"
    raise DirectoryUnusable(f"{path} is {kind}, not a regular file", mend=f"mv {path} {path}.old")

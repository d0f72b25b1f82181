"""init: what a ralph begins with, written into a directory. Needs no daemon; runs only agents' --version."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ralphctl.fast import here
from ralphctl.grammar import Command, wants_json
from ralphctl.resumption import can_ask
from ralphctl.tell import clean, columns, message, note
from ralphctl.words import count
from ralphd.errors import DirectoryUnusable

if TYPE_CHECKING:
    from ralphctl.local.init import Found, Wishes, Written
    from ralphctl.local.init_text import Choices

_PUSH = (
    "Push what is kept, after every iteration?",
    "others, and what is deployed from there, get it while you sleep; what is out can be reverted, "
    "not taken back",
)
_PULL = (
    "Pull with rebase before every iteration?",
    "commits of others come in unseen, your own unpushed ones are written anew, and a conflict stops Ralph",
)
_ROLLBACK = (
    "Revert commits that break the tests ({tests})?",
    "tests that fail by chance undo good work; `ralphctl undo` puts it back",
)
_LABEL = 7


@click.command(cls=Command)
@click.argument("directory", required=False, metavar="[DIR]")
@click.option("--agent", metavar="NAME", help="The agent to begin with; the first that is installed.")
@click.option("--fallback", metavar="A,B", help="The next agents, in order; none when left out.")
@click.option("--test-command", metavar="COMMAND", help="The tests; told from the files when left out.")
@click.option("--push/--no-push", default=None, help="Push what is kept. Asked; no.")
@click.option("--pull/--no-pull", default=None, help="Pull with rebase before an iteration. Asked; no.")
@click.option("--rollback/--no-rollback", default=None, help="Revert commits that break the tests. Asked.")
@click.option("-y", "--yes", is_flag=True, help="Ask nothing: every question as Enter would answer it.")
@click.option("--force", is_flag=True, help="Write ralph.toml anew; the old one is kept beside it.")
def init(
    directory: str | None,
    agent: str | None,
    fallback: str | None,
    test_command: str | None,
    push: bool | None,
    pull: bool | None,
    rollback: bool | None,
    yes: bool,
    force: bool,
) -> None:
    """Write what a ralph in DIR (this directory) begins with: ralph.toml, PROMPT.md, .ralph/.

    \b
      ralphctl init                    look at what is here, ask, write
      ralphctl init ~/project --yes    ask nothing
      ralphctl init --no-push --no-pull --rollback --test-command 'make test'

    Nothing that exists is written over, and nothing of yours is run. Without a terminal nothing is asked:
    what no flag turns on stays off.
    """
    from ralphctl.local import init as local
    from ralphctl.registration import flags_of

    chain = flags_of({"fallback": fallback}).get("fallback")
    wishes = local.Wishes(
        agent=agent or "",
        fallback=tuple(map(str, chain)) if isinstance(chain, list) else (),
        test_command=test_command,
        rolls_back=rollback,
        pushes=push,
        pulls=pull,
    )
    place = _directory(directory)
    found = local.look(place, os.environ, wishes, force=force, slow=_tell_slow)
    chosen = local.choices(found, wishes)
    if not wants_json():
        click.echo("\n".join(_found_lines(found)))
    chosen = _settled(found, wishes, chosen, yes=yes)
    written = local.write(found, chosen)
    missing = local.missing(found, chosen, os.environ)
    notes = _notes(found, chosen, missing)
    if wants_json():
        click.echo(_as_json(found, chosen, written, notes))
        return
    click.echo("\n".join(_written_lines(written)))
    for line in notes:
        note(line)
    for does, how in _next(found, chosen, written, directory, can_start=not missing):
        click.echo(f"  next: {how}  ({does})")


def _directory(given: str | None) -> Path:
    directory = Path(given or here()).absolute()
    if not directory.is_dir():
        is_file = directory.exists()
        raise DirectoryUnusable(
            f"{directory} is no directory",
            why="it is a file" if is_file else "it is not there",
            mend="ralphctl init DIR" if is_file else f"mkdir -p {shlex.quote(str(directory))}",
        )
    return directory


def _tell_slow() -> None:
    from ralphctl.local.found_agents import LIMIT_S

    message(f"asking the agents for their versions ({LIMIT_S:.0f} s at most) ...")


# --- what is asked ------------------------------------------------------------------------------------------


def _settled(found: Found, wishes: Wishes, chosen: Choices, *, yes: bool) -> Choices:
    """What is decided in the end: by flags, else by a person, else by what Enter would say, else no."""
    if found.has_toml or found.git.fault or not (yes or (can_ask() and not wants_json())):
        return chosen
    tests, has_upstream = chosen.test_command, bool(found.git.upstream)
    usable = bool(tests) and (wishes.test_command is not None or found.usable_tests is not None)
    if wishes.rolls_back is None and usable:
        question, risk = _ROLLBACK
        asked = question.format(tests=clean(tests))
        chosen = replace(chosen, rolls_back=True if yes else _ask(asked, risk, enter=True))
    if wishes.pushes is None and has_upstream and not yes:
        chosen = replace(chosen, pushes=_ask(*_PUSH, enter=False))
    if wishes.pulls is None and has_upstream and not yes:
        chosen = replace(chosen, pulls=_ask(*_PULL, enter=False))
    return chosen


def _ask(question: str, risk: str, *, enter: bool) -> bool:
    """Yes or no; ``enter`` is what Enter means, and the end of input is a no. Raises KeyboardInterrupt."""
    message("\n".join(("", *_filled(question), *_filled(f"risk: {risk}", "  "))))
    while True:
        sys.stderr.write("[Y/n] " if enter else "[y/N] ")
        sys.stderr.flush()
        try:
            line = sys.stdin.readline()
        except KeyboardInterrupt:
            message("\nnothing was written")
            raise
        except (OSError, UnicodeDecodeError):
            line = "?\n"
        if not line:
            message("")
            return False
        word = line.strip().lower()
        if word in ("", "y", "yes", "n", "no"):
            return word[:1] == "y" if word else enter
        message("y or n, or Enter for the one in capitals")


# --- what is said -------------------------------------------------------------------------------------------


def _found_lines(found: Found) -> Iterator[str]:
    agents = ", ".join(agent.words for agent in found.agents) or "none on PATH"
    yield from _filled(f"found in {clean(str(found.directory))}")
    for label, text in (
        ("agents", agents),
        ("tests", _tests_words(found)),
        ("tasks", _tasks_words(found)),
        ("git", _git_words(found)),
    ):
        yield from _filled(clean(text), f"  {label:<{_LABEL}}", " " * (_LABEL + 2))


def _tests_words(found: Found) -> str:
    if not found.tests:
        return "none found; --test-command 'make test' says how they are run"
    first, *others = found.tests
    text = f"{first.command}  ({first.source}{'; ' + first.fault if first.fault else ''})"
    return text + (f"; not chosen: {', '.join(each.command for each in others)}" if others else "")


def _tasks_words(found: Found) -> str:
    plan = found.tasks
    if plan is None:
        return "no list; the prompt alone is the task"
    if plan.fault:
        return plan.fault
    return f"{plan.file}: {count(len(plan.tasks), 'task')}, {len(plan.open)} open"


def _git_words(found: Found) -> str:
    git = found.git
    if git.fault:
        return git.fault
    inside = "" if Path(git.root) == found.directory.resolve() else f"; a part of {git.root}"
    commits = "" if git.has_commit else ", no commit yet"
    upstream = f", upstream {git.upstream}" if git.upstream else ", no upstream"
    return (git.branch or "no branch (detached HEAD)") + commits + upstream + inside


def _notes(found: Found, chosen: Choices, missing: tuple[str, ...]) -> list[str]:
    """What a person should know before going to bed."""
    git, notes = found.git, list(missing)
    if found.above:
        notes.append(f"until now {found.above} held here; from now on the new ralph.toml does")
    if git.fault:
        notes.append(f"{git.fault}: no commits, so nothing can be reverted, pushed or taken back: {git.mend}")
    elif not git.has_identity:
        notes.append('git knows no author: git config user.name "…", git config user.email "…"')
    if not git.fault and not git.upstream and (chosen.pushes or chosen.pulls):
        notes.append(
            "the branch has no upstream: nothing is pushed or pulled before git push -u REMOTE BRANCH"
        )
    return notes


def _written_lines(written: Written) -> Iterator[str]:
    if written.kept:
        yield from _filled(f"kept the old ralph.toml as {written.kept}")
    if written.made:
        yield from _filled(f"wrote {clean(', '.join(written.made))}")
    if written.left_alone:
        yield from _filled(f"left alone {clean(', '.join(written.left_alone))}")


def _next(
    found: Found, chosen: Choices, written: Written, given: str | None, *, can_start: bool
) -> Iterator[tuple[str, str]]:
    """What to type now, with what it does."""
    base, where = Path(given or ""), f" {_path(Path(given))}" if given else ""
    if found.tasks is None and not (found.has_toml and found.configuration.ralph.command):
        yield "and a line for each task", f"echo '- [ ] what is to be done' >> {_path(base / 'TASKS.md')}"
    if prompt := next((name for name in written.made if name.endswith(".md")), ""):
        yield "say what an agent has to know here", f"${{EDITOR:-vi}} {_path(base / prompt)}"
    if not (found.has_toml or found.git.fault or chosen.rolls_back) and chosen.test_command:
        change = f"regent.rollback_on_test_failure true{where}"
        yield "revert commits that break the tests", f"ralphctl config set {change}"
    mine = [name for name in written.made if not name.startswith(".ralph/")]
    if mine and not found.git.fault:
        git = f"git -C{where}" if given else "git"
        names = " ".join(map(shlex.quote, mine))
        yield "no clean-up takes it then", f"{git} add {names} && {git} commit -m ralph"
    if not can_start:
        yield "when its agent is installed, this says whether all is well", "ralphctl doctor"
    yield "then go to bed; in the morning: ralphctl report", f"ralphctl start{where}"


def _path(path: Path) -> str:
    return clean(shlex.quote(str(path)))


def _as_json(found: Found, chosen: Choices, written: Written, notes: list[str]) -> str:
    tasks = found.tasks
    told = {
        "directory": str(found.directory),
        "agents": [asdict(agent) for agent in found.agents],
        "tests": [asdict(tests) for tests in found.tests],
        "tasks": tasks and {"file": tasks.file, "tasks": len(tasks.tasks), "open": len(tasks.open),
                            "fault": tasks.fault},
        "git": asdict(found.git),
        "chosen": None if found.has_toml else asdict(chosen),
        "written": written.made,
        "left_alone": written.left_alone,
        "kept_as": written.kept or None,
        "notes": notes,
    }  # fmt: skip
    return json.dumps(told, indent=2, ensure_ascii=False)


def _filled(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """A text in lines that fit the terminal; in one where there is none."""
    width = columns(sys.stdout)
    if width is None:
        return [first + text]
    more = (first if rest is None else rest) if width >= 40 else "  "
    return textwrap.wrap(
        text,
        max(20, width),
        initial_indent=first,
        subsequent_indent=more,
        break_long_words=False,  # a path that is broken cannot be copied
        break_on_hyphens=False,
    ) or [first.rstrip()]

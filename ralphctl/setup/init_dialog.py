"""What ``ralphctl init`` prints and asks: what it detected, a question for each risk, and the next steps."""

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ralphctl.format.humanize import count
from ralphctl.format.output import clean
from ralphctl.offline.checkpoint import confirmed
from ralphctl.setup.init import InitChoices, InitProject, InitResult

_QUESTIONS = {
    "rolls_back": "Revert commits that break the tests ({tests})?",
    "pushes": "Push kept commits after every iteration?",
    "pulls": "Pull with rebase before every iteration?",
}
_RISKS = {
    "rolls_back": "flaky tests revert good work; `ralphctl undo` re-applies it",
    "pushes": "others, and deployments from that branch, receive commits that nobody has reviewed; a pushed "
    "commit can be reverted, not withdrawn",
    "pulls": "commits of others arrive unreviewed, your unpushed commits are rebased, and a conflict pauses "
    "the loop",
}


def ask(choice: str, tests: str, *, yes: bool) -> bool:
    """Ask on the terminal, or answer as Enter would for ``yes``. The end of input is a no.

    Raise KeyboardInterrupt for Ctrl-C.
    """
    enter = choice == "rolls_back"
    if yes:
        return enter
    question = f"\n{_QUESTIONS[choice].format(tests=clean(tests))}\n  risk: {_RISKS[choice]}\n"
    return confirmed(question + ("[Y/n]" if enter else "[y/N]"), enter=enter)


def detected_lines(project: InitProject, given: str = "") -> Iterator[str]:
    """Yield what was detected, one row per subject; ``given`` is the test command of the command line."""
    git, plan = project.git, project.tasks
    agents = ", ".join(f"{each.name} {each.version or '(version unknown)'}" for each in project.agents)
    tests = "none found; give them with --test-command 'make test'"
    if given:
        tests = f"{given}  (--test-command)"
    elif project.tests:
        first, *others = project.tests
        tests = f"{first.command}  ({first.source}{'; ' + first.fault if first.fault else ''})"
        tests += f"; not chosen: {', '.join(each.command for each in others)}" if others else ""
    tasks = "no list found; the prompt alone is the task"
    if plan is not None:
        tasks = plan.fault or f"{plan.file}: {count(len(plan.tasks), 'task')}, {len(plan.open)} open"
    state = (git.branch or "no branch (detached HEAD)") + ("" if git.has_commit else ", no commit yet")
    state += f", upstream {git.upstream}" if git.upstream else ", no upstream"
    state += "" if Path(git.root) == project.directory.resolve() else f"; inside {git.root}"
    yield f"found in {clean(project.directory)}"
    rows = {"agents": agents or "none on PATH", "tests": tests, "tasks": tasks, "git": git.fault or state}
    for label, text in rows.items():
        yield f"  {label:<7}{clean(text)}"


def written_lines(result: InitResult) -> Iterator[str]:
    """Yield which files were renamed, written and kept."""
    kept = [result.kept] if result.kept else []
    rows = {"renamed the old ralph.toml to": kept, "wrote": result.made, "kept": result.left_alone}
    yield from (f"{words} {clean(', '.join(names))}" for words, names in rows.items() if names)


def notes(project: InitProject, choices: InitChoices) -> Iterator[str]:
    """Yield what a person should know before leaving the ralph alone for the night."""
    git = project.git
    if project.above:
        yield f"the new ralph.toml replaces {project.above} here"
    if git.fault:
        yield f"{git.fault}: commits cannot be tracked, reverted or pushed. Try: {git.mend}"
        return
    if not git.has_identity:
        yield 'git has no author: git config user.name "…"; git config user.email "…"'
    if not git.upstream and (choices.pushes or choices.pulls):
        yield "the branch has no upstream: nothing is pushed or pulled before git push -u REMOTE BRANCH"


def next_lines(
    project: InitProject, choices: InitChoices, result: InitResult, given: str | None, *, can_start: bool
) -> Iterator[str]:
    """Yield the commands to type now. ``given`` is the directory as it was typed."""
    base, where = Path(given or ""), f" {_quoted(Path(given))}" if given else ""
    plan, file = project.tasks, base / (project.tasks.file if project.tasks else "TASKS.md")
    runs_own = project.has_toml and project.configuration.ralph.command
    has_none = not runs_own and (plan is None or not (plan.tasks or plan.fault))
    if has_none and file.suffix != ".json":
        yield f"echo '- [ ] the first task' >> {_quoted(file)}  (one line per task)"
    if prompt := next((name for name in result.made if name.endswith(".md")), ""):
        yield f"${{EDITOR:-vi}} {_quoted(base / prompt)}  (add what an agent has to know about this project)"
    if choices.test_command and not (project.has_toml or project.git.fault or choices.rolls_back):
        key = "regent.rollback_on_test_failure"
        yield f"ralphctl config set {key} true{where}  (revert commits that break the tests)"
    mine = [name for name in result.made if not name.startswith(".ralph/")]
    if mine and not runs_own and plan is not None and not Path(plan.file).is_absolute():
        mine.append(plan.file)
    if mine and not project.git.fault:
        git = f"git -C{where}" if given else "git"
        yield f"{git} add {shlex.join(mine)} && {git} commit -m ralph  (so that git clean cannot delete them)"
    if not can_start:
        yield "ralphctl doctor  (when the agent is installed: checks everything)"
    if plan is not None and plan.tasks and not plan.open:
        yield f"ralphctl start{where}  (once {clean(plan.file)} has open tasks: all are done)"
    elif plan is not None and (has_none or plan.fault):
        once = "can be read" if plan.fault else "has a task"
        yield f"ralphctl start{where}  (once {clean(plan.file)} {once})"
    else:
        yield f"ralphctl start{where}  (then go to bed; in the morning: ralphctl report)"


def as_data(
    project: InitProject, choices: InitChoices, result: InitResult, notes: list[str]
) -> dict[str, object]:
    """Return everything as one JSON object."""
    plan = project.tasks
    return {
        "directory": str(project.directory),
        "agents": [each._asdict() for each in project.agents],
        "tests": [each._asdict() for each in project.tests],
        "tasks": plan and {"file": plan.file, "tasks": len(plan.tasks), "open": len(plan.open),
                           "fault": plan.fault},
        "git": project.git._asdict(),
        "chosen": None if project.has_toml else asdict(choices),
        "written": result.made,
        "left_alone": result.left_alone,
        "kept_as": result.kept or None,
        "notes": notes,
    }  # fmt: skip


def _quoted(path: Path) -> str:
    return clean(shlex.quote(str(path)))

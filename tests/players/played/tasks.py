"""Doing a task as an agent does: a file, a tick in every list that has it, a commit."""

import json
import os
import re
from typing import Any

LISTS = ("fix_plan.md", ".ralph/fix_plan.md", "IMPLEMENTATION_PLAN.md", "TASKS.md", "PLAN.md")
_BOX = re.compile(r"^(\s*[-*] \[) (\] .*)$", re.MULTILINE)
_HEADING = re.compile(r"^## (Task \d+.*)\n(?!Status: done)", re.MULTILINE)
_GIT_LIMIT_S = 60


def do_task(prompt: str, files: dict[str, str], number: int) -> str:
    """Do the task that the prompt names, else the first that is open, and write ``files``; gives its id."""
    task = _task(prompt) or f"call-{number}"
    name = re.sub(r"[^\w.-]+", "-", task)[:60]
    for path, text in {f"work/{name}.txt": f"{task}, by call {number}\n", **files}.items():
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    _tick(task)
    commit(f"{task}: done")
    return task


def commit(message: str) -> None:
    """Commit all there is, as an agent does; where there is no repository, nothing."""
    if not os.path.exists(".git"):
        return
    who = ("-c", "user.name=Player", "-c", "user.email=player@example.invalid", "-c", "commit.gpgsign=false")
    git("add", "-A")
    git(*who, "commit", "-qm", message)


def git(*words: str) -> None:
    """One call of git, whatever comes of it."""
    import subprocess

    subprocess.run(
        ["git", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=_GIT_LIMIT_S,
    )


def _task(prompt: str) -> str | None:
    """The id of the one story that the prompt names, else of the first open task of any list."""
    stories = _stories()
    named = {story["id"] for story in stories if re.search(rf"\b{re.escape(story['id'])}\b", prompt)}
    if len(named) == 1:
        return str(named.pop())
    for story in stories:
        if story.get("passes") is not True:
            return str(story["id"])
    for path in LISTS:
        text = _read(path)
        boxes = [match[2].removeprefix("] ") for match in _BOX.finditer(text)]
        if boxes:  # several loops may share a list, each with a task of its own
            return next((each for each in boxes if f"{each}\n" in prompt), boxes[0])
        if match := _HEADING.search(text):
            return match[1]
    return None


def _tick(task: str) -> None:
    plan = json.loads(_read("prd.json") or "{}")
    if any(story["id"] == task for story in plan.get("userStories", ())):
        for story in plan["userStories"]:
            story["passes"] = story.get("passes") is True or story["id"] == task
        _write("prd.json", json.dumps(plan, indent=2) + "\n")
    for path in LISTS:
        if text := _read(path):
            _write(path, _ticked(text, task))


def _ticked(text: str, task: str) -> str:
    """``text`` with the box or the heading of this task ticked."""
    name = re.escape(task)
    ticked = re.sub(rf"^(\s*[-*] \[) (\] (?:\*\*)?{name}\b.*)$", r"\1x\2", text, count=1, flags=re.MULTILINE)
    if ticked != text:
        return ticked
    return re.sub(
        rf"^(## {name}.*\n)(?!Status: done)", r"\1Status: done\n", text, count=1, flags=re.MULTILINE
    )


def _stories() -> list[dict[str, Any]]:
    stories: list[dict[str, Any]] = json.loads(_read("prd.json") or "{}").get("userStories", [])
    return stories


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)

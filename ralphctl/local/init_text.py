"""What ``ralphctl init`` writes: ``ralph.toml``, with what its keys mean, and a prompt to begin with."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ralphd.config.keys import keys_of
from ralphd.config.values import toml_value
from ralphd.core.plan import PROMISE

SCHEMA_FILE = "ralph.schema.json"
SCHEMA_LINE = f"#:schema .ralph/{SCHEMA_FILE}"
"""By which editors find the schema: a path from the file itself, since there is no host that has it."""

_WIDTH = 80
_TIMEOUT_S, _ITERATION_TIMEOUT_S = 3600, 5400

Row: TypeAlias = tuple[str, object, str]
"""A key, its value, and what is said of it beside what the reference says."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What was decided, by a person, by flags, or by what was found."""

    agent: str
    fallback: tuple[str, ...] = ()
    test_command: str = ""
    rolls_back: bool = False
    pushes: bool = False
    pulls: bool = False


def toml_text(choices: Choices, *, tasks: str) -> str:
    """``ralph.toml``. ``tasks`` is the task list that was found, or empty."""
    parts = [f"{SCHEMA_LINE}\n" + _comment(_HEAD)]
    for section, rows in _sections(choices, tasks):
        parts.append(f"[{section}]\n" + "\n".join(_row(section, row) for row in rows))
    return "\n\n".join((*parts, _WEBHOOK)) + "\n"


_HEAD = (
    "How Ralph runs here. It was written by `ralphctl init` and is yours to change; a key that is not here "
    "has its default. `ralphctl config show` prints every value and where it comes from, `ralphctl config "
    "check` what is wrong. A ralph that is known already takes a change up by `ralphctl reload`."
)
_WEBHOOK = """# One message when a person is needed, and none otherwise:
# [[webhooks]]
# url = "https://example.com/hook"
# secret_env = "RALPH_HOOK_SECRET\""""


def _sections(choices: Choices, tasks: str) -> Iterator[tuple[str, Sequence[Row]]]:
    found = f"Found: {tasks}." if tasks else "None was found: the prompt alone is the task."
    yield (
        "ralph",
        (
            ("prompt_file", "PROMPT.md", ""),
            ("tasks", "auto", found),
            ("max_iterations", 0, ""),
            ("max_cost_usd", 0, ""),
            ("max_runtime_seconds", 0, ""),
        ),
    )
    yield (
        "agents",
        (
            ("primary", choices.agent, ""),
            ("fallback", choices.fallback, "Each is another vendor that gets the code."),
            ("timeout_seconds", _TIMEOUT_S, ""),
            ("iteration_timeout_seconds", _ITERATION_TIMEOUT_S, ""),
        ),
    )
    yield (
        "regent",
        (
            ("test_command", choices.test_command, "" if choices.test_command else "None was found."),
            (
                "rollback_on_test_failure",
                choices.rolls_back,
                "`ralphctl undo` puts back what was reverted.",
            ),
        ),
    )
    yield (
        "git",
        (
            ("auto_push", choices.pushes, "To the branch's upstream, never forced."),
            ("auto_pull_rebase", choices.pulls, "Then commits of others come in unseen."),
        ),
    )


def _row(section: str, row: Row) -> str:
    name, value, more = row
    says = str(keys_of(section)[name].schema.get("description", ""))
    return _comment(f"{says} {more}") + f"\n{name} = {toml_value(value)}"


def _comment(text: str) -> str:
    return textwrap.fill(text.strip(), _WIDTH, initial_indent="# ", subsequent_indent="# ")


def prompt_text(*, test_command: str, tasks: str) -> str:
    """``PROMPT.md``: what the agent is told in every iteration, until a person writes something better."""
    can_be_quoted = test_command.isprintable() and "`" not in test_command
    tests = f"the tests (`{test_command}`)" if test_command and can_be_quoted else "the tests"
    return _PROMPT.format(tests=tests, tasks=tasks or "TASKS.md", promise=PROMISE)


_PROMPT = """\
You work on the project in this directory, alone: nobody answers questions.
Do one task, well, and end.

1. Take the task that is given below; where none is, the first open one in
   {tasks}. Before you change anything, read the code that it touches, and
   look whether somebody has begun it.
2. Do that task and nothing beside it. Write tests for what you change.
3. Run {tests}.
   All of them have to pass. Never skip, weaken or delete a test to get there.
4. Mark the task as done in {tasks}, and commit that together with the
   work. Say in the message what was done and why.
5. End what you have started: servers, watchers, background jobs.

Where something is in your way (a missing login, an unclear task, a broken
tool), do not guess. Say in {tasks}, with the task, what is blocked, by what,
and what you need from a person; commit what is whole, and end.

Only when no task is open any more, end your answer with
`{promise}` on a line of its own.
"""

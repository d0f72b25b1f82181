"""``docs/routes.md``: the routes of the daemon, from its own OpenAPI document."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ralphd.api.app import create_app
from ralphd.errors import BY_SLUG, PROBLEM_PREFIX, RalphdError

if TYPE_CHECKING:
    from ralphd.daemon.host import Host

Json = Mapping[str, Any]

MEANINGS: Mapping[str, str] = {
    "allow_private": "also private and loopback addresses, if the user's own file allows it",
    "body format": "what is sent: the event, or a text for Slack or an ntfy topic",
    "body branch": "of a worktree, by default `ralph/NAME`; to land: instead of the branch of the ralph",
    "body ralph": "a ralph of the repository",
    "pr": "only push the branch, for a pull request",
    "body number": "the number of the landing; default: the last one",
    "body tasks": "ids of the task list: only these are done; default: all",
    "from_ref": "the revision at which the branch begins; default: HEAD of the directory's branch",
    "count": "this number of ralphs, each in a worktree, which share the task list",
    "keep": "first save commits and files under `refs/ralph/trees/NAME`",
    "command": "program and arguments, without a shell; empty: the command of the configuration",
    "cursor": "continue after this place of an earlier reply; `tail` is ignored",
    "directory": "the working directory, an absolute path",
    "environment": "the variables of its runs; readable only by the owner, never shown",
    "flags": "configuration keys, or their flags, with values",
    "ends": "with `follow`: end when nothing of the ralph runs any more",
    "events": "JSON events of agents: `raw`, as printed; `text`; `verbose`, with edits and results of tools",
    "follow": "keep the stream open for new entries",
    "format": "`text`: bytes as they were printed; `json`: one object per line",
    "grep": "only lines that contain this text; not a pattern",
    "last-event-id": "begin after this event",
    "id": "the id",
    "iteration": "of this iteration, by the run's own count; null: the last revert that was not undone",
    "repair": "instead: the repair of this number; 0: the last repair that was not undone",
    "limit": "the number of entries",
    "name": "the ralph's name",
    "repo": "the address of a git remote that the machines can push to",
    "base": "the branch at which it begins",
    "priority": "higher goes first",
    "max_tries": "after so many machines failed with it, a person is needed",
    "need": "what a machine must have: `labels`, `agents`, `cpus`, `memory_bytes`, `disk_bytes`",
    "prefer": "rather these machines",
    "machine": "a machine of the fleet",
    "item": "the id of an item",
    "verb": "what is requested",
    "now": "kill the process tree at once instead of sending SIGTERM first",
    "on": "the events to send; `*` matches any letters",
    "replay": "begin with this number of earlier events",
    "resume": "false: the built-in loop sets its checkpoint aside and starts from the beginning",
    "resources": "include CPU time and memory of each process tree",
    "runs": "`finish`: end them as by a stop; `leave`: leave them to the next daemon; `now`: kill them",
    "secret_env": "a variable of the daemon's environment that holds the secret",
    "secret_file": "the absolute path of a file that holds the secret",
    "since": "not before this time; of events: after this id",
    "start": "false: register only",
    "stream": "only this stream",
    "tail": "the last lines: a number, or `all`; 100 if neither `since` nor `cursor` is given",
    "until": "not after this time",
    "url": "the destination, http or https",
    "text": "the task in one line, or the note",
}
"""The purpose of each parameter and each field of a body."""

REPORTED: Mapping[str, str] = {
    "agent": "the name of the agent",
    "branch": "the branch that the iteration begins on",
    "attempt": "the number of the attempt in the iteration, from 1",
    "phase": "the name of the phase; none without phases",
    "code": "the exit code that the run will end with",
    "commits": "the commits made in it: their number; of `iteration-finished`: abbreviated, oldest first",
    "complete": "the task is done",
    "cost_source": "the source of the cost; with `unknown` the cost is not stored",
    "cost_usd": "its cost, in dollars",
    "duration_s": "its duration, in seconds",
    "exit_code": "its exit code; a signal as a negative number",
    "failed": "it failed: the failure count is not reset",
    "failure_kind": "why it failed; none for a success",
    "head": "the full sha of the commit at which the iteration begins; default HEAD",
    "id": "unique among the reports of the run; the same id gets the same answer again",
    "iteration": "its number, by the run's own count",
    "kind": "the kind of report",
    "model": "the model that it used",
    "next": "what follows, as text",
    "outcome": "how it ended, in the run's own words",
    "reason": "the reason for the wait, for an agent's absence or for the end of the run: one word",
    "ended_at": "when it ended, if the report comes later; never after the arrival of the report",
    "reset_at": "when the limit that it met resets",
    "resume_at": "when the limit resets for which the run pauses",
    "rule": "the rule that classified its failure",
    "run_id": "the run that reports: `RALPH_RUN_ID` of its environment",
    "session": "the session id for a resume",
    "signals": "it handles SIGUSR1 (pause) and SIGUSR2 (skip the wait)",
    "summary": "what was done",
    "task": "the task",
    "tokens_in": "input tokens",
    "tokens_out": "output tokens",
    "until": "the end, with a zone; null: the wait is over; of an agent: until a person acts",
    "usd": "the cost since the last such report",
    "wait": "the run does nothing before the answer, so that the commits can be judged",
    "why": "why it failed, or why the run ends, as text",
}
"""The same for the fields of a report."""

INTRODUCTION = """\
# Routes

Written by `make docs` from the daemon's OpenAPI document; a test fails when it is stale. Do not edit it.

HTTP over the Unix socket, JSON both ways. The document itself is at `/openapi.json`:

```console
$ curl --silent --unix-socket ~/.local/state/ralphd/ralphd.sock http://ralphd/openapi.json
{"openapi":…
```

Unlisted fields and parameters are refused (422), and so are bodies over 1 MiB (413), bodies without a JSON
content type (415), and requests with an `Origin` header (403). Each refusal is a problem document; the last
section lists them. A time is RFC 3339 in UTC.
"""


@cache
def document() -> Json:
    """The OpenAPI document."""
    return create_app(cast("Host", None)).openapi()


def routes_page() -> str:
    """The text of ``docs/routes.md``."""
    operations = [
        (method, path, one)
        for path, methods in document()["paths"].items()
        for method, one in methods.items()
    ]
    heads = [f"| {_call(*each[:2])} | {_first(each[2]['description'])} |" for each in operations]
    overview = ["| route | does |", "| --- | --- |", *heads]
    parts = [*(_operation(*each) for each in operations), _replies(), _problems()]
    return "\n".join([INTRODUCTION, *overview, "", *parts])


def _call(method: str, path: str) -> str:
    return f"`{method.upper()} {path}`"


def _first(text: str) -> str:
    return _plain(text.partition("\n\n")[0])


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


def _operation(method: str, path: str, one: Json) -> str:
    said = "\n\n".join(map(_plain, one["description"].split("\n\n")))
    takes = [*_parameters(one), *_fields(one)]
    table = (
        ["| takes | in | is | default | for |", "| --- | --- | --- | --- | --- |", *takes] if takes else []
    )
    blocks = [f"## {_call(method, path)}", said, "\n".join(table), f"Answers: {_answers(one)}."]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _parameters(one: Json) -> Iterator[str]:
    for each in one.get("parameters", []):
        yield _row(each["name"], each["in"], each["schema"], needed=each.get("required", False))


def _fields(one: Json) -> Iterator[str]:
    if "requestBody" not in one:
        return
    schema = one["requestBody"]["content"]["application/json"]["schema"]
    if "oneOf" in schema:
        yield from _reported(schema["discriminator"]["mapping"])
        return
    schema = _resolved(schema)
    for name, field in schema.get("properties", {}).items():
        yield _row(name, "body", field, needed=name in schema.get("required", ()))


def _reported(kinds: Mapping[str, str]) -> Iterator[str]:
    """The fields of a body of several kinds, each with those that it is for."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind, where in kinds.items():
        schema = _resolved({"$ref": where})
        for name, field in schema["properties"].items():
            what = ", ".join(f"`{each}`" for each in kinds) if name == "kind" else _kind(field)
            default = "(needed)" if name in schema.get("required", ()) else _default(field)
            rows.setdefault((name, what, default), []).append(kind)
    for (name, what, default), given in rows.items():
        only = "" if len(given) == len(kinds) else " of " + ", ".join(f"`{kind}`" for kind in given)
        yield f"| `{name}` | body{only} | {what} | {default} | {REPORTED[name]} |"


def _row(name: str, where: str, schema: Json, *, needed: bool) -> str:
    default = "(needed)" if needed else _default(schema)
    meaning = MEANINGS.get(f"{where} {name}") or MEANINGS[name]
    return f"| `{name}` | {where} | {_kind(schema)} | {default} | {meaning} |"


def _default(schema: Json) -> str:
    found = schema.get("default")
    return "-" if found is None else f"`{str(found).lower() if isinstance(found, bool) else found}`"


def _resolved(schema: Json) -> Json:
    """The schema behind a reference, or behind the first alternative that is no null."""
    if "anyOf" in schema:
        return _resolved(next(each for each in schema["anyOf"] if each.get("type") != "null"))
    if "$ref" not in schema:
        return schema
    found: Json = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _kind(schema: Json) -> str:
    """What a value has to be, in words."""
    match schema:
        case {"anyOf": alternatives}:
            return " or ".join(_kind(each) for each in alternatives)
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"$ref": where}:
            name = where.rpartition("/")[2]
            if not name.endswith("View"):
                return "object of " + ", ".join(f"`{field}`" for field in _resolved(schema)["properties"])
            return f"[{name}](#{name.lower()})"
        case {"pattern": pattern}:
            return f"`{pattern}`".replace("|", "\\|")
        case {"maxLength": most}:
            return f"string of at most {most} characters"
        case {"minimum": low, "maximum": high}:
            return f"{low:.0f} to {high:.0f}" if high < 1 << 53 else f"{low:.0f} or more"
        case {"items": items}:
            return f"list of {_kind(items)}"
        case _:
            return str(schema.get("type", "anything"))


def _answers(one: Json) -> str:
    good = [
        f"{status} {_body(answer)}" for status, answer in one["responses"].items() if status.startswith("2")
    ]
    return ", ".join([*good, "422 and others: a problem"])


def _body(answer: Json) -> str:
    content = answer.get("content", {})
    if not content:
        return "without a body"
    media = ", ".join(f"`{kind}`" for kind in content)
    schema = next(iter(content.values())).get("schema", {})
    return _kind(schema) if "$ref" in schema else media


def _replies() -> str:
    shown = {
        name: found for name, found in document()["components"]["schemas"].items() if name.endswith("View")
    }
    return "\n".join(["## Replies", "", *(_reply(name, found) for name, found in shown.items())])


def _reply(name: str, schema: Json) -> str:
    rows = [f"| `{key}` | {_kind(field)} |" for key, field in schema["properties"].items()]
    return "\n".join(
        [f"### {name}", "", _plain(schema["description"]), "", "| key | is |", "| --- | --- |", *rows, ""]
    )


def _problems() -> str:
    """The kinds of problem; one of no kind of its own is not among them, for it is never sent."""
    rows = [
        f"| `{PROBLEM_PREFIX}{slug}` | {kind.status} | {kind.exit_code} | {_first(kind.__doc__ or '')} |"
        for slug, kind in BY_SLUG.items()
        if kind is not RalphdError
    ]
    head = (
        "`application/problem+json` (RFC 9457): `type`, `title`, `status`, `detail` (what happened), `why`,\n"
        "`try` (what to do), and `errors`, each `{where, what}`, if fields are wrong. The exit\n"
        "code is that of `ralphctl`.\n"
    )
    table = ["| type | status | exit code | means |", "| --- | --- | --- | --- |", *rows]
    return "\n".join(["## Problems", "", head, *table, ""])

"""``docs/routes.md``: what the daemon answers to, from its own OpenAPI document."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ralphd.api.app import create_app
from ralphd.errors import BY_SLUG, PROBLEM_PREFIX, RalphdError

if TYPE_CHECKING:
    from ralphd.daemon.host import Host

Json = Mapping[str, Any]

MEANINGS: Mapping[str, str] = {
    "allow_private": "private and loopback addresses too, where the user's own file allows it",
    "body format": "what is sent: the event, or words as Slack or an ntfy topic takes them",
    "command": "the words to execute, no shell; empty: the one in the configuration",
    "cursor": "go on after this place, as an earlier reply gave it; makes `tail` void",
    "directory": "the working directory, an absolute path",
    "environment": "the variables of its runs; kept for the owner alone, shown nowhere",
    "flags": "configuration keys, or the flags that stand for them, with their values",
    "follow": "go on with what comes",
    "format": "`text`: bytes as they were printed; `json`: one object a line",
    "grep": "lines that hold this text; no pattern",
    "last-event-id": "begin after this event",
    "id": "which one",
    "iteration": "of that iteration, by the run's own count; null: what was reverted last and is not back",
    "limit": "how many",
    "name": "the ralph's name",
    "now": "kill the tree instead of asking first",
    "on": "the events to send; `*` stands for any letters",
    "replay": "begin so many events back",
    "resume": "false: the built-in loop begins anew, its checkpoint put aside; else it goes on from there",
    "resources": "with the CPU time and memory of each tree",
    "runs": "`finish`: ended as by a stop; `leave`: left for the next daemon; `now`: killed",
    "secret_env": "a variable of the daemon's environment that holds the secret",
    "secret_file": "an absolute path of a file that holds it",
    "since": "not earlier than this moment; of events: after this id",
    "start": "false: register only",
    "stream": "of this stream only",
    "tail": "the last so many, or `all`; 100 where neither `since` nor `cursor` is given",
    "until": "not later than this moment",
    "url": "where to send to, http or https",
}
"""What each parameter and each field of a body is for."""

REPORTED: Mapping[str, str] = {
    "agent": "the agent by its name",
    "branch": "the branch that the iteration begins on",
    "attempt": "which attempt at the iteration it was, from 1",
    "phase": "which phase of the attempt it was, by its name; none without phases",
    "code": "the exit code that the run is about to end with",
    "commits": "those made in it: how many; of `iteration-finished`: abbreviated, oldest first",
    "complete": "the task is done",
    "cost_source": "where the cost comes from; an `unknown` one is not kept",
    "cost_usd": "what it cost, in dollars",
    "duration_s": "how long it worked, in seconds",
    "exit_code": "what it ended with; a signal as a negative number",
    "failed": "it came to nothing: failures before it are not forgotten",
    "failure_kind": "why it failed; none for a success",
    "head": "the full sha of the commit that the iteration begins at; else where HEAD is",
    "id": "a text that no other report of the run has; sent again, the answer is the same",
    "iteration": "its number, by the run's own count",
    "kind": "what is reported",
    "model": "the model that it used",
    "next": "what follows, in words",
    "outcome": "how it ended, in the run's own word",
    "reason": "what it waits for; why an agent is not asked; why the run ends: a word",
    "ended_at": "when it ended, where that is told later; never after the report came",
    "reset_at": "when the limit is over that it met",
    "resume_at": "when the limit is over that the run rests for",
    "rule": "the rule by which its failure was told",
    "run_id": "the run that reports: `RALPH_RUN_ID` of its environment",
    "session": "what resumes it",
    "signals": "it knows SIGUSR1 (pause) and SIGUSR2 (skip the wait)",
    "summary": "what was done",
    "task": "what it works on",
    "tokens_in": "tokens that it was given",
    "tokens_out": "tokens that it gave",
    "until": "until this moment, with a zone; null: no longer; of an agent: before a person acts",
    "usd": "what was spent since the last such report",
    "wait": "nobody works on before the answer, so that the commits can be judged",
    "why": "why it failed, or why the run ends, in words",
}
"""The same of the fields of a report."""

INTRODUCTION = """\
# Routes

Written by `make docs` from the daemon's OpenAPI document; a test fails when it is stale. Do not edit it.

HTTP over the Unix socket, JSON both ways. The document itself is at `/openapi.json`:

```console
$ curl --silent --unix-socket ~/.local/state/ralphd/ralphd.sock http://ralphd/openapi.json
{"openapi":…
```

Fields and parameters that are not listed are refused (422), and so are bodies over 1 MiB (413), bodies that
do not say they are JSON (415), and requests with an `Origin` header (403). Any refusal is a problem document;
the last section lists them. A moment is RFC 3339 in UTC.
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
        "`try` (what to do), and `errors`, each `{where, what}`, where a request has faults. The exit code\n"
        "is the one that `ralphctl` ends with.\n"
    )
    table = ["| type | status | exit code | means |", "| --- | --- | --- | --- |", *rows]
    return "\n".join(["## Problems", "", head, *table, ""])

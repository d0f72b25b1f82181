"""Each route answers as the OpenAPI document says, to a few seeded requests; `make fuzz` sends more."""

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jsonschema  # type: ignore[import-untyped]  # it has no stubs
import pytest

from tests.fuzz.contracts import CONFIGURATION, NAMES, REPORTER, Stage, tracebacks
from tests.fuzz.mutation import odd_value
from tests.notify.receiver import receiving
from tests.whole.harness import daemon_in

SEED = 20261127
EACH = 2
METHODS = ("get", "post", "put", "delete")
QUERY = {"follow": "false", "limit": "3", "replay": "5", "tail": "5"}

Json = Mapping[str, Any]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with receiving() as receiver, daemon_in(tmp_path / "one") as daemon:
        daemon.configure(CONFIGURATION)
        stage = Stage.new(daemon, receiver.url)
        daemon.start()
        stage.populate()
        yield stage
        stage.stop_all()


def test_every_route_answers_as_its_document_says(stage: Stage) -> None:
    document = stage.daemon.ask("GET", "/openapi.json")
    generator = random.Random(SEED)
    answered = set()
    for path, routes in document["paths"].items():
        for method in set(METHODS) & routes.keys():
            operation = routes[method]
            if operation["operationId"] == "shut_down":
                continue
            for number in range(EACH):
                target = path_of(path, operation, stage, generator)
                body = body_of(operation, document, generator, is_odd=number == EACH - 1)
                changed = stage.harmless.body(target.partition("?")[0], body, stage.run_ids[-1])
                reply = stage.daemon.api(method.upper(), target, changed)
                check(reply.status, reply.body, operation, document)
                answered.add((operation["operationId"], reply.status // 100))
    assert sum(kind == 2 for _, kind in answered) >= 20, "too few requests were carried out"
    assert tracebacks(stage.daemon) == []


def test_a_shutdown_is_answered_as_its_document_says(tmp_path: Path) -> None:
    with daemon_in(tmp_path / "one") as daemon:
        daemon.start()
        document = daemon.ask("GET", "/openapi.json")
        operation = document["paths"]["/v1/shutdown"]["post"]
        for body in ({"runs": "later"}, {"run": "now"}, {"runs": None}, {"runs": "now"}):
            reply = daemon.api("POST", "/v1/shutdown", body)
            check(reply.status, reply.body, operation, document)
            assert reply.status == (202 if body == {"runs": "now"} else 422)
        assert daemon.exit_code() == 0
        assert tracebacks(daemon) == []


def path_of(path: str, operation: Json, stage: Stage, generator: random.Random) -> str:
    """Return a target with known names where the path has parameters, and with a query that ends."""
    for parameter in operation.get("parameters", ()):
        name, schema = parameter["name"], parameter["schema"]
        if parameter["in"] == "path":
            known = {"name": NAMES[generator.randrange(4)], "machine": "alpha", "item": "i-abcd", "id": "1"}
            value = str(generator.choice(schema["enum"])) if "enum" in schema else known.get(name, "x")
            path = path.replace(f"{{{name}}}", quote(value))
    if path.endswith("/reports"):
        path = f"/v1/ralphs/{REPORTER}/reports"
    names = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    words = [f"{name}={QUERY[name]}" for name in names if name in QUERY]
    return path + ("?" + "&".join(words) if words else "")


def body_of(operation: Json, document: Json, generator: random.Random, *, is_odd: bool) -> Any:
    """Return a body by the schema of an operation, None where it takes none; an odd one has a wrong value."""
    if "requestBody" not in operation:
        return None
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    body = value_of(schema, document, generator)
    if is_odd and isinstance(body, dict) and body:
        key = generator.choice(sorted(body))
        odd = odd_value(body[key], generator)
        return body | {key: odd} if json.dumps(odd).isascii() else body
    return body


def value_of(schema: Json, document: Json, generator: random.Random) -> Any:
    """Return a small value that fits a schema, as far as its few keywords here say."""
    if "$ref" in schema:
        return value_of(
            document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], document, generator
        )
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return value_of(generator.choice(schema[key]), document, generator)
    if "const" in schema or "enum" in schema:
        return schema.get("const") or generator.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            known, needed = schema.get("properties", {}), schema.get("required", ())
            chosen = [name for name in known if name in needed or generator.random() < 0.5]
            return {name: value_of(known[name], document, generator) for name in chosen}
        case "array":
            return [
                value_of(schema.get("items", {}), document, generator) for _ in range(generator.randrange(3))
            ]
        case "boolean":
            return generator.random() < 0.5
        case "integer" | "number":
            return generator.randint(int(schema.get("minimum", 0)), min(int(schema.get("maximum", 9)), 9))
        case "null":
            return None
        case _:
            return {"^/": "/x", r"^[0-9a-f]{4,64}$": "abcd"}.get(schema.get("pattern", ""), "abc")


def check(status: int, body: Any, operation: Json, document: Json) -> None:
    """Fail where an answer is not as the document has it."""
    known = operation["responses"]
    about = f"{operation['operationId']}: {status} {body!r:.500}"
    assert status < 500 or status == 503, about
    assert str(status) in known or "default" in known, about
    answers = known.get(str(status)) or known["default"]
    contents = answers.get("content", {})
    if status == 204:
        assert body == b"", about
        return
    schema = next(
        (each["schema"] for kind, each in contents.items() if "json" in kind and "ndjson" not in kind), None
    )
    if schema is None:
        assert isinstance(body, bytes), about
        return
    whole = {"$ref": "#/root", "root": schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(body)

"""The list of keys, made from the specs: names, types, ranges, flags, and those of the user's file only."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from itertools import combinations, pairwise
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ralphd.config import specs
from ralphd.config.values import in_words, shown
from ralphd.dataclass import dataclass

SECTIONS: Mapping[str, type[Any]] = get_type_hints(specs.Sections)
AGENT = "agents.NAME"
ACCOUNT = "accounts.NAME"
NAMED = {"agents": AGENT, "accounts": ACCOUNT}
"""Sections with a table for each name, and the keys of such a table."""
WEBHOOKS = "webhooks"
SECRETS = ("secret_file", "secret_env", "secret_cmd")
SPECS: Mapping[str, type[Any]] = {
    **SECTIONS, AGENT: specs.AgentSpec, ACCOUNT: specs.AccountSpec, WEBHOOKS: specs.WebhookSpec,
}  # fmt: skip

USER_FILE_ONLY = frozenset(
    [
        *("logs.run_bytes", "logs.total_bytes", "regent.runs_may"),
        *("sandbox.proxy", "sandbox.writable", "worktree.max_total_bytes"),
        *("webhooks.allow_private", "webhooks.secret_cmd", "notify.allow_private", "notify.desktop"),
        *(f"limits.{item.name}" for item in fields(specs.LimitsSpec)),
        *(f"fleet.{item.name}" for item in fields(specs.FleetSpec)),
        *(f"web.{item.name}" for item in fields(specs.WebSpec)),
        *(f"{ACCOUNT}.{item.name}" for item in fields(specs.AccountSpec)),
    ]
)
"""What a repository, and so an agent, must not decide."""

FLAGS: Mapping[str, str] = {
    "name": "project.name",
    "agent": "agents.primary",
    "fallback": "agents.fallback",
    "retries-before-fallback": "agents.retries_before_fallback",
    "max-task-failures": "agents.max_task_failures",
    "timeout": "agents.timeout_seconds",
    "iteration-timeout": "agents.iteration_timeout_seconds",
    "phase-3-retry-count": "phases.phase_3_retry_count",
    "max-iterations": "ralph.max_iterations",
    "max-cost": "ralph.max_cost_usd",
}
"""The flags of ``start`` and ``build`` that set a key."""


def is_daemons(dotted: str) -> bool:
    """Return whether the daemon alone acts on a key, so that no ralph has to be reloaded for it."""
    own = ("logs.total_bytes", "regent.runs_may", "notify.allow_private", "notify.desktop")
    return dotted in own or dotted.startswith(("fleet.", "web."))


class BadValue(Exception):
    """A value that its key cannot have. The text names the values that it can have."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of one section. ``default`` is None where the key has to be given."""

    section: str
    name: str
    default: object

    @property
    def dotted(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def shape(self) -> dict[str, Any]:
        """Its type and range as a JSON Schema."""
        return _adapter(self.section, self.name).json_schema()

    @property
    def schema(self) -> dict[str, Any]:
        """The shape with its purpose, read from the source of the specs, which a daemon may outlive."""
        purpose = _purposes()[SPECS[self.section].__name__][self.name]
        return dict(sorted({**self.shape, "description": purpose}.items()))

    def read(self, value: object) -> Any:
        """Return the value as the spec holds it. Raise BadValue in words, with the range."""
        try:
            return _adapter(self.section, self.name).validate_python(value)
        except ValidationError as fault:
            for error in fault.errors():
                if error["type"] == "value_error":
                    raise BadValue(str(error["ctx"]["error"])) from None
            is_value = "" if isinstance(value, dict) or self.name == "env" else f", is {shown(value)}"
            raise BadValue(f"has to be {in_words(self.shape)}{is_value}") from None


@cache
def keys_of(section: str) -> Mapping[str, ConfigKey]:
    """Return the keys of a section by their name, in the order of its spec."""
    keys = {}
    for item in fields(SPECS[section]):
        default = None if item.default is MISSING else item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        keys[item.name] = ConfigKey(section, item.name, default)
    keys.pop("named", None)  # not a key: the tables [agents.NAME]
    return keys


@cache
def _adapter(section: str, name: str) -> TypeAdapter[Any]:
    annotation: Any = get_type_hints(SPECS[section], include_extras=True)[name]
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


@cache
def _purposes() -> Mapping[str, Mapping[str, str]]:
    """Return the text below each field of each spec. Python keeps it nowhere, so it is read in the source."""
    return {
        spec.name: {
            ast.unparse(key.target): " ".join(ast.literal_eval(text.value).split())
            for key, text in pairwise(spec.body)
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
        for spec in ast.parse(inspect.getsource(specs)).body
        if isinstance(spec, ast.ClassDef)
    }


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of ``ralph.toml`` and of the user's file, for editors."""
    properties = {section: _table(section) for section in SECTIONS}
    for section, table in NAMED.items():
        properties[section]["additionalProperties"] = _table(table)
    two_secrets = [{"required": list(pair)} for pair in combinations(SECRETS, 2)]
    webhook = {**_table(WEBHOOKS), "required": ["url"], "not": {"anyOf": two_secrets}}
    properties[WEBHOOKS] = {"type": "array", "items": webhook}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ralph.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _table(section: str) -> dict[str, Any]:
    properties = {}
    for name, key in keys_of(section).items():
        properties[name] = key.schema | ({} if key.default is None else {"default": key.default})
    return {"type": "object", "additionalProperties": False, "properties": properties}

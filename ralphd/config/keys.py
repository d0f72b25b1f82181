"""The list of keys, made from the specs: what is known, what a value has to be, what this version acts on."""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from ralphd.config import specs
from ralphd.config.values import in_words, shown

SECTIONS: Mapping[str, type[Any]] = {
    "project": specs.ProjectSpec,
    "ralph": specs.RalphSpec,
    "regent": specs.RegentSpec,
    "agents": specs.AgentsSpec,
    "retry": specs.RetrySpec,
    "phases": specs.PhasesSpec,
    "git": specs.GitSpec,
    "logs": specs.LogsSpec,
    "notify": specs.NotifySpec,
}
AGENT = "agents.NAME"
WEBHOOKS = "webhooks"
_SPECS: Mapping[str, type[Any]] = {**SECTIONS, AGENT: specs.AgentSpec, WEBHOOKS: specs.WebhookSpec}

_BUILT: Mapping[str, tuple[str, ...]] = {
    "project": ("name",),
    "ralph": (
        *("command", "mode", "prompt_file", "tasks", "restart"),
        *("max_iterations", "max_cost_usd", "max_runtime_seconds", "iteration_pause_seconds"),
    ),
    "regent": (
        *("enabled", "max_retries", "healthy_after_seconds", "max_restarts_per_hour"),
        *("retry_backoff_seconds", "retry_backoff_factor", "retry_backoff_max_seconds"),
        *("stop_timeout_seconds", "stop_deadline_seconds"),
        *("hang_timeout_seconds", "startup_grace_seconds", "max_run_seconds"),
        *("evidence_io_bytes", "evidence_cpu_percent", "evidence_switches_per_s"),
        *("rollback_on_test_failure", "rollback_scope"),
        *("test_command", "test_timeout_seconds", "test_retries"),
    ),
    "agents": (
        *("primary", "fallback", "strategy"),
        *("retries_before_fallback", "max_task_failures", "on_exhausted"),
        *("timeout_seconds", "iteration_timeout_seconds", "heartbeat_seconds", "missed_heartbeats"),
        *("crash_pattern_grace_seconds", "exit_grace_seconds"),
    ),
    AGENT: ("command", "args", "model", "env", "prompt_via", "patterns"),
    "retry": (
        *("same_agent_base_seconds", "transient_retries", "base_seconds", "max_seconds", "jitter"),
        *("rate_limit_seconds", "max_rate_limit_wait_seconds", "reset_margin_seconds"),
        "outage_max_wait_seconds",
    ),
    "phases": (
        *("enabled", "phase_retry_count", "phase_3_retry_count"),
        *("review_command", "max_address_rounds", "on_findings_remaining"),
    ),
    "git": ("auto_pull_rebase", "auto_push", "repair"),
    "logs": ("run_bytes", "total_bytes"),
    "notify": ("allow_private", "reminder_minutes"),
    WEBHOOKS: ("url", "secret_file", "secret_env", "on", "format", "allow_private"),
}
BUILT = frozenset(f"{section}.{name}" for section, names in _BUILT.items() for name in names)
"""What this version acts on. A key that is set and not here is told when the ralph starts."""

USER_FILE_ONLY = frozenset(
    {"logs.run_bytes", "logs.total_bytes", "webhooks.allow_private", "notify.allow_private"}
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


class BadValue(Exception):
    """A value that its key cannot have; the text says what it can have."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of one section. ``default`` is None where the key has to be given."""

    section: str
    name: str
    default: object

    @property
    def dotted(self) -> str:
        """``regent.max_retries``"""
        return f"{self.section}.{self.name}"

    @property
    def schema(self) -> dict[str, Any]:
        """What the value has to be, as JSON Schema."""
        return _adapter(self.section, self.name).json_schema()

    def read(self, value: object) -> Any:
        """The value as the spec holds it. Raises BadValue in words, with the range."""
        try:
            return _adapter(self.section, self.name).validate_python(value)
        except ValidationError as fault:
            raise BadValue(self._why(fault, value)) from None

    def _why(self, fault: ValidationError, value: object) -> str:
        for error in fault.errors():
            if error["type"] == "value_error":
                return str(error["ctx"]["error"])
        wanted = f"has to be {in_words(self.schema)}"
        return wanted if isinstance(value, dict) else f"{wanted}, is {shown(value)}"


@cache
def keys_of(section: str) -> Mapping[str, ConfigKey]:
    """The keys of a section by their name, in the order of its spec."""
    spec = _SPECS[section]
    return {
        item.name: ConfigKey(section, item.name, _default(item))
        for item in fields(spec)
        if item.name != "named"
    }


def _default(item: "Field[Any]") -> object:
    if item.default_factory is not MISSING:
        return item.default_factory()
    return None if item.default is MISSING else item.default


@cache
def _adapter(section: str, name: str) -> TypeAdapter[Any]:
    annotation = get_type_hints(_SPECS[section], include_extras=True)[name]
    return TypeAdapter(annotation, config=ConfigDict(strict=True))


# The form of ``ralph.toml`` as JSON Schema, for editors that complete and check while one types.


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of ``ralph.toml`` and of the user's file."""
    properties = {section: _table(section) for section in SECTIONS}
    properties["agents"]["additionalProperties"] = _table(AGENT)
    properties[WEBHOOKS] = {"type": "array", "items": _webhook()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ralph.toml",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
    }


def _table(section: str) -> dict[str, Any]:
    keys = keys_of(section)
    properties = {name: _property(key) for name, key in keys.items()}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _webhook() -> dict[str, Any]:
    one_secret: Mapping[str, Any] = {"required": ["secret_file", "secret_env"]}
    return {**_table(WEBHOOKS), "required": ["url"], "not": one_secret}


def _property(key: ConfigKey) -> dict[str, Any]:
    if key.default is None:
        return key.schema
    default = list(key.default) if isinstance(key.default, tuple) else key.default
    return {**key.schema, "default": default}

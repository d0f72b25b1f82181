"""The form of ``ralph.toml`` as JSON Schema, for editors that complete and check while one types."""

from collections.abc import Mapping
from typing import Any

from ralphd.config.keys import AGENT, SECTIONS, WEBHOOKS, Key, keys_of


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


def _property(key: Key) -> dict[str, Any]:
    if key.default is None:
        return key.schema
    default = list(key.default) if isinstance(key.default, tuple) else key.default
    return {**key.schema, "default": default}

"""``ralphctl config``: what holds in a directory and where it comes from, whether it is right, and its form.

Works without a daemon: it reads the files and the environment itself, as ``start`` would.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ralphd.config.configuration import Configuration, load
from ralphd.config.keys import schema as json_schema
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME
from ralphd.config.values import toml_value

_NO_EFFECT = "not acted on by this version yet"


def show(directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """Every value with its origin, as TOML with comments. Raises ConfigFaults.

    Variables of agents are named, their values are not shown: they may be secrets.
    """
    configuration = load(directory, environ=environ)
    if as_json:
        return _json(
            {"values": _shown(configuration), "origins": _origins(configuration), **_told(configuration)}
        )
    return "\n".join(_lines(configuration))


def check(directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """That all is right, and which keys have no effect yet. Raises ConfigFaults with all that is wrong."""
    configuration = load(directory, environ=environ)
    if as_json:
        return _json({"faults": [], **_told(configuration)})
    given = {origin for origin in configuration.origins.values() if origin not in (DEFAULT, DIRECTORYS_NAME)}
    sources = sorted({_source(origin.text) for origin in given})
    lines = ["no faults; " + ("set by " + ", ".join(sources) if sources else "nothing is set, all defaults")]
    return "\n".join(lines + [f"{key}: {_NO_EFFECT}" for key in configuration.not_built_yet()])


def schema(*, as_json: bool = False) -> str:
    """JSON Schema of ``ralph.toml``, the same with and without ``as_json``."""
    return _json(json_schema())


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def _told(configuration: Configuration) -> dict[str, list[str]]:
    return {"not_built_yet": configuration.not_built_yet()}


def _origins(configuration: Configuration) -> dict[str, str]:
    return {key: origin.text for key, origin in configuration.origins.items()}


def _source(origin: str) -> str:
    """``ralph.toml`` of ``ralph.toml:12``."""
    head, _, line = origin.rpartition(":")
    return head if line.isdigit() else origin


def _shown(configuration: Configuration) -> dict[str, Any]:
    tree = configuration.tree()
    for name in configuration.agents.named:
        agent = tree["agents"][name]
        agent["env"] = dict.fromkeys(agent["env"], "(not shown)")
    return tree


def _lines(configuration: Configuration) -> Iterator[str]:
    tree = _shown(configuration)
    webhooks = tree.pop("webhooks")
    for section, values in tree.items():
        named = configuration.agents.named if section == "agents" else {}
        yield from _table(
            configuration, f"[{section}]", section, {k: v for k, v in values.items() if k not in named}
        )
        for name in named:
            yield from _table(configuration, f"[agents.{name}]", f"agents.{name}", values[name])
    for index, hook in enumerate(webhooks):
        yield from _table(configuration, "[[webhooks]]", f"webhooks[{index}]", hook)


def _table(configuration: Configuration, head: str, path: str, values: Mapping[str, Any]) -> Iterator[str]:
    ineffective = configuration.not_built_yet()
    yield head
    for key, value in values.items():
        dotted = f"{path}.{key}"
        origin = configuration.origins.get(dotted) or configuration.origins[path]
        note = f"; {_NO_EFFECT}" if dotted in ineffective else ""
        yield f"{key} = {toml_value(value)}".ljust(40) + f"  # {origin.text}{note}"
    yield ""

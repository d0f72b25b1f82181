"""Show and check the configuration of a directory, and print the JSON Schema of ``ralph.toml``.

No daemon is needed: files and environment are read here, as ``start`` would read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphctl.offline import state as offline
from ralphd.config import files
from ralphd.config.configuration import Configuration, home_of, load
from ralphd.config.keys import schema as json_schema
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME
from ralphd.config.values import toml_value
from ralphd.errors import ConfigFaults

if TYPE_CHECKING:
    from ralphctl.setup.config_edit import ConfigEdit

_NO_EFFECT = "not acted on by this version yet"
_SECRET_VARIABLE = re.compile(r"(?i)agents\..*\.env\..*(?:KEY|TOKEN|SECRET|PASSW).*")


def show(directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """Return every value with its origin, as TOML with comments. Raise ConfigFaults.

    Agents' environment variables appear by name only: their values may be secrets.
    """
    configuration = load(directory, environ=environ)
    tree = configuration.tree()
    for name in configuration.agents.named:
        tree["agents"][name]["env"] = dict.fromkeys(tree["agents"][name]["env"], "(not shown)")
    if not as_json:
        return "\n".join(_toml_lines(configuration, tree))
    origins = {key: origin.text for key, origin in configuration.origins.items()}
    return _json({"values": tree, "origins": origins, "not_built_yet": configuration.not_built_yet()})


def check(directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """Return which sources set a value and which keys have no effect yet. Raise ConfigFaults."""
    configuration = load(directory, environ=environ)
    if as_json:
        return _json({"faults": [], "not_built_yet": configuration.not_built_yet()})
    given = {origin for origin in configuration.origins.values() if origin not in (DEFAULT, DIRECTORYS_NAME)}
    sources = sorted({_source(origin.text) for origin in given})
    lines = ["no faults; " + ("set by " + ", ".join(sources) if sources else "nothing is set, all defaults")]
    return "\n".join(lines + [f"{key}: {_NO_EFFECT}" for key in configuration.not_built_yet()])


def schema() -> str:
    """Return the JSON Schema of ``ralph.toml``."""
    return _json(json_schema())


def known_ralphs(file: Path, environ: Mapping[str, str], *, users_own: bool) -> list[str]:
    """Return the names of the ralphs that were started with this file and have to be reloaded."""
    home = home_of(environ)
    return [
        str(view["name"])
        for view in offline.registered_views(environ)
        if users_own or files.project_file(Path(view["directory"]), home) == file
    ]


def warnings(edit: ConfigEdit, directory: Path, environ: Mapping[str, str]) -> list[str]:
    """Return what is unwise about an edit, and why it may not take effect in ``directory``, in sentences."""
    name, is_project = edit.file.name, edit.file.name == files.PROJECT_FILE
    sentences = []
    if is_project and edit.now is not None and _SECRET_VARIABLE.fullmatch(edit.key):
        sentences = [f"{name} is often committed; a secret belongs in the environment of ralphctl start"]
    try:
        configuration = load(directory, environ=environ)
    except ConfigFaults as fault:
        return [*sentences, f"{fault.what}, and nothing is started with that: ralphctl config check"]
    origin = configuration.origins.get(edit.key, DEFAULT).text
    is_of_project = Path(_source(origin)).name == files.PROJECT_FILE
    if origin.startswith("environment ") or (is_of_project and not is_project):
        sentences.append(f"here {edit.key} is set by {origin}, and that counts more")
    if edit.key in configuration.not_built_yet():
        sentences.append(f"{edit.key}: {_NO_EFFECT}")
    return sentences


def _source(origin: str) -> str:
    """``ralph.toml`` of ``ralph.toml:12``."""
    head, _, line = origin.rpartition(":")
    return head if line.isdigit() else origin


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def _toml_lines(configuration: Configuration, tree: dict[str, Any]) -> Iterator[str]:
    webhooks = tree.pop("webhooks")
    for section, values in tree.items():
        named = configuration.agents.named if section == "agents" else {}
        scalars = {key: value for key, value in values.items() if key not in named}
        yield from _table_lines(configuration, f"[{section}]", section, scalars)
        for name in named:
            yield from _table_lines(configuration, f"[agents.{name}]", f"agents.{name}", values[name])
    for index, webhook in enumerate(webhooks):
        yield from _table_lines(configuration, "[[webhooks]]", f"webhooks[{index}]", webhook)


def _table_lines(
    configuration: Configuration, header: str, path: str, values: Mapping[str, Any]
) -> Iterator[str]:
    yield header
    for name, value in values.items():
        key = f"{path}.{name}"
        origin = configuration.origins.get(key) or configuration.origins[path]
        note = f"; {_NO_EFFECT}" if key in configuration.not_built_yet() else ""
        yield f"{name} = {toml_value(value)}".ljust(40) + f"  # {origin.text}{note}"
    yield ""

"""Show and check the configuration of a directory, and print the JSON Schema of ``ralph.toml``.

No daemon is needed: files and environment are read here, as ``start`` would read them.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ralphctl.format.output import wrapped_table
from ralphctl.offline import state as offline
from ralphd.agents.identity import with_account
from ralphd.agents.known import agent_of, fallback_chain, spec_of
from ralphd.config import files
from ralphd.config import keys as known
from ralphd.config.configuration import HIDDEN, Configuration, config_faults, home_of, load
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME, ConfigFault, variable_of
from ralphd.config.values import in_words, toml_value
from ralphd.errors import ConfigFaults, UnknownAgent, UsageError

if TYPE_CHECKING:
    from ralphctl.setup.config_edit import ConfigEdit

_APPLIES_AT_START = frozenset({"idle", "stopped", "failed", "done"})
_SECRET_VARIABLE = re.compile(r"(?i)(?:agents|accounts)\..*\.env\..*(?:KEY|TOKEN|SECRET|PASSW).*")


def show(directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """Return every value with its origin, as TOML with comments. Raise ConfigFaults.

    Environment variables of agents appear by name only, and no webhook's address: these may be secrets.
    """
    configuration = load(directory, environ=environ)
    tree = configuration.tree()
    tree[known.WEBHOOKS] = [{**hook, "url": HIDDEN} for hook in tree[known.WEBHOOKS]]
    for section in known.NAMED:
        for name in getattr(configuration, section).named:
            tree[section][name]["env"] = dict.fromkeys(tree[section][name]["env"], HIDDEN)
    if not as_json:
        return "\n".join(_toml_lines(configuration, tree))
    origins = {key: origin.text for key, origin in configuration.origins.items()}
    return _json({"values": tree, "origins": origins, "not_built_yet": []})


def check(directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """Return which sources set a value. Raise ConfigFaults."""
    configuration = load(directory, environ=environ)
    if faults := list(_agent_faults(configuration, environ)):
        raise config_faults(faults)
    configuration.check_guard()
    if as_json:
        return _json({"faults": [], "not_built_yet": []})
    given = {origin for origin in configuration.origins.values() if origin not in (DEFAULT, DIRECTORYS_NAME)}
    sources = sorted({_source(origin.text) for origin in given})
    return "no faults; " + ("set by " + ", ".join(sources) if sources else "all values are defaults")


def faults(found: ConfigFaults) -> str:
    """Return what ``check`` prints as JSON where there are faults."""
    return _json({"faults": found.why.splitlines() or [found.what], "not_built_yet": []})


def _agent_faults(configuration: Configuration, environ: Mapping[str, str]) -> Iterator[ConfigFault]:
    agents, accounts = configuration.agents, configuration.accounts.named
    others = fallback_chain(agents.primary, agents.fallback, agents.named)
    for key, names in (("agents.primary", (agents.primary,)), ("agents.fallback", others)):
        for name in names:
            try:
                agent_of(name, with_account(name, spec_of(name, agents.named), accounts), outside=environ)
            except (ConfigFaults, UnknownAgent) as fault:
                text = "; ".join([fault.what, *fault.why.splitlines(), fault.mend])
                yield ConfigFault(configuration.origins[key].text, key, text)


def schema() -> str:
    """Return the JSON Schema of ``ralph.toml``."""
    return _json(known.schema())


def get(key: str, directory: Path, environ: Mapping[str, str], *, as_json: bool = False) -> str:
    """Return the value of one key: a text as it is, anything else as in TOML.

    Raise UsageError, ConfigFaults.
    """
    _, value, origin = _look_up(key, directory, environ)
    if as_json:
        return _json({"key": key, "value": value, "origin": origin})
    return value if isinstance(value, str) else toml_value(value)


def explain(key: str, directory: Path, environ: Mapping[str, str]) -> str:
    """Return what a key means, its default and where it is set; of a section, what its keys mean."""
    if key in (*known.SECTIONS, *known.NAMED.values(), known.WEBHOOKS):
        entries = known.keys_of(key) or known.keys_of(known.NAMED[key])
        rows = [[each.dotted, str(each.schema["description"])] for each in entries.values()]
        return "\n".join(wrapped_table(rows, [max(len(name) for name, _ in rows), 60], colour=False))
    entry, value, origin = _look_up(key, directory, environ)
    own = "--user " if entry.dotted in known.USER_FILE_ONLY else ""
    variables = [variable_of(entry)] if entry.section in known.SECTIONS else []
    options = [f"--{flag} of start and build" for flag, name in known.FLAGS.items() if name == key]
    rows = [
        ["value", in_words(entry.schema)],
        ["default", "none: it has to be set" if entry.default is None else toml_value(entry.default)],
        ["here", f"{toml_value(value)}, set by {origin}" if origin != DEFAULT.text else "the default"],
        ["also", ", ".join([*options, *variables])],
        ["set it", f"ralphctl config set {own}{key} VALUE"],
    ]
    text = textwrap.wrap(str(entry.schema["description"]), 76)
    shown = wrapped_table([row for row in rows if row[1]], [8, 66], colour=False, indent="  ")
    return "\n".join([key, *(f"  {line}" for line in text), *shown])


def _look_up(key: str, directory: Path, environ: Mapping[str, str]) -> tuple[known.ConfigKey, Any, str]:
    """Return the key, its value in force as JSON holds it, and its origin."""
    from ralphctl.setup import config_edit

    entry = config_edit.key_at(path := config_edit.key_path(key))
    if entry is None and len(path) > 1:
        config_edit.check_value(path, "", users_own=True, what=f"unknown key {key}")
    configuration = load(directory, environ=environ)
    values = {name: value for name, value, _ in configuration.values()}
    if entry is None or (entry.section == known.WEBHOOKS and key not in values):
        mend = f"ralphctl config explain {key}" if key in known.SECTIONS else "ralphctl config show"
        raise UsageError(f"{key} is not a key", mend=mend)
    value = values.get(key, entry.default)
    origin = configuration.origins.get(key) or configuration.origins.get(key.rpartition(".")[0], DEFAULT)
    value = dict.fromkeys(value, HIDDEN) if isinstance(value, dict) else value
    value = HIDDEN if entry.dotted == f"{known.WEBHOOKS}.url" and value else value
    return entry, list(value) if isinstance(value, tuple) else value, origin.text


def next_steps(
    file: Path, keys: Sequence[str], environ: Mapping[str, str], *, users_own: bool
) -> tuple[bool, list[str]]:
    """Return whether the daemon has to read the user's file again for a change of ``keys`` to take effect,
    and the ralphs that have to be reloaded: of those that run, wait or are paused, the ones for which no
    nearer source sets all of these keys.
    """
    daemons = [key for key in keys if known.is_daemons(key) or (users_own and key.startswith(known.WEBHOOKS))]
    home, mine = home_of(environ), [key for key in keys if key not in daemons]

    def is_for(directory: Path) -> bool:
        if not users_own:
            return files.project_file(directory, home) == file
        project = files.project_file(directory, home)
        nearer = files.layer(project, directory, home, users_own=False).settings if project else {}
        return not all(key in nearer for key in mine)

    stored = [view for is_build, view in offline.stored_views(environ) if not is_build] if mine else []
    live = (view for view in stored if view["state"] not in _APPLIES_AT_START)
    return bool(daemons), sorted(str(view["name"]) for view in live if is_for(Path(view["directory"])))


def edit_line(edit: ConfigEdit, file: str) -> str:
    """Return what an edit changed, in one line; ``file`` is the name of the file as it is shown."""
    if not edit.is_changed:
        return f"{file}: {edit.key} is {edit.now or 'not set'} already; nothing was changed"
    was = "" if edit.was is None else f"  (was {edit.was})"
    return f"{file}: {edit.key} {'removed' if edit.now is None else f'= {edit.now}'}{was}"


def warnings(edit: ConfigEdit, directory: Path, environ: Mapping[str, str]) -> list[str]:
    """Return what is unwise about an edit, and why it may not take effect in ``directory``, in sentences."""
    name, is_project = edit.file.name, edit.file.name == files.PROJECT_FILE
    sentences = []
    if is_project and edit.now is not None and _SECRET_VARIABLE.fullmatch(edit.key):
        sentences = [f"{name} is often committed; put a secret into the environment of ralphctl start"]
    try:
        configuration = load(directory, environ=environ)
        configuration.check_guard()
    except ConfigFaults as fault:
        return [*sentences, f"{fault.what}; no ralph can be started here: ralphctl config check"]
    sentences += map(str, _agent_faults(configuration, environ))
    origin = configuration.origins.get(edit.key, DEFAULT).text
    is_of_project = Path(_source(origin)).name == files.PROJECT_FILE
    if origin.startswith("environment ") or (is_of_project and not is_project):
        sentences.append(f"no effect here: {origin} sets {edit.key} and takes precedence")
    return sentences


def _source(origin: str) -> str:
    """``ralph.toml`` of ``ralph.toml:12``."""
    return re.sub(r":\d+$", "", origin)


def _json(data: object) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False)


def _toml_lines(configuration: Configuration, tree: dict[str, Any]) -> Iterator[str]:
    webhooks = tree.pop("webhooks")
    for section, values in tree.items():
        named = getattr(configuration, section).named if section in known.NAMED else {}
        scalars = {key: value for key, value in values.items() if key not in named}
        if scalars:
            yield from _table_lines(configuration, f"[{section}]", section, scalars)
        for name in named:
            yield from _table_lines(configuration, f"[{section}.{name}]", f"{section}.{name}", values[name])
    for index, webhook in enumerate(webhooks):
        yield from _table_lines(configuration, "[[webhooks]]", f"webhooks[{index}]", webhook)


def _table_lines(
    configuration: Configuration, header: str, path: str, values: Mapping[str, Any]
) -> Iterator[str]:
    yield header
    for name, value in values.items():
        key = f"{path}.{name}"
        origin = configuration.origins.get(key) or configuration.origins[path]
        yield f"{name} = {toml_value(value)}".ljust(40) + f"  # {origin.text}"
    yield ""

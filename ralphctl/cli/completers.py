"""Words for click's shell completion, passed to ``shell_complete=``: ralphs, keys, iterations, paths.

A TAB may take 200 ms, so each completer imports what it needs, and a daemon gets half a second to answer.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click import Context, Parameter
from click.shell_completion import CompletionItem

from ralphctl.client import discovery
from ralphd import wire
from ralphd.errors import RalphdError

META_SOCKET = "ralphctl.socket"
_LIMIT_S = 0.5


def ralphs(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Complete a ralph's name: those of the daemon, or without one those in the state directory."""
    try:
        names = [view["name"] for view in _answer(context, "/status")["ralphs"]]
    except RalphdError:
        names = [path.name for path in Path(wire.state_directory(os.environ), "ralphs").glob("*/")]
    return sorted(name for name in names if name.startswith(incomplete) and wire.is_name(name))


def webhooks(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete a webhook's name, explained by its address."""
    hooks = _listed(context, "/webhooks", "webhooks")
    return _fitting(incomplete, ((hook["name"], hook["where"]) for hook in hooks))


def keys(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Complete a key of ralph.toml."""
    from ralphd.config.keys import AGENT, SECTIONS, keys_of

    names = [key.dotted for section in SECTIONS for key in keys_of(section).values()]
    if incomplete.startswith("agents."):
        from ralphd.agents.known import KNOWN

        names += [f"agents.{agent}.{name}" for agent in KNOWN for name in keys_of(AGENT)]
    return [name for name in names if name.startswith(incomplete)]


def values(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Complete the value of a key that has few of them."""
    from ralphd.config.keys import AGENT, SECTIONS, keys_of

    section, _, name = str(context.params.get("key") or "").rpartition(".")
    table = keys_of(section if section in SECTIONS else AGENT)
    schema = table[name].schema if name in table else {}
    words = ["true", "false"] if schema.get("type") == "boolean" else schema.get("enum", ())
    return [word for word in words if word.startswith(incomplete)]


def deliveries(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Complete the number of a delivery, explained by its event and webhook."""
    found = _listed(context, "/deliveries?limit=100", "deliveries")
    explained = ((str(each["id"]), f"{each['event']['type']}, {each['name']}") for each in found)
    return _fitting(incomplete, explained)


def ralphs_or_iterations(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Complete ``undo [NAME] [N]``: a ralph, and the iterations with reverted commits."""
    words = context.params.get("words") or ()
    names = [] if words else ralphs(context, parameter, incomplete)
    try:
        here = discovery.of_directory(_answer(context, "/status")["ralphs"], discovery.here()) or {}
        name = words[0] if words else here["name"]
        judged = _answer(context, f"/ralphs/{name}/verdicts?limit=100")["verdicts"]
    except (RalphdError, KeyError):
        judged = []
    numbers = [str(each["iteration"]) for each in judged if each.get("reverted") and not each.get("undone")]
    return names + [number for number in numbers if number.startswith(incomplete)]


def agents(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Complete an agent's name, the last one of a list ``A,B``."""
    from ralphd.agents.known import KNOWN

    before, comma, name = incomplete.rpartition(",")
    return [before + comma + agent for agent in KNOWN if agent.startswith(name)]


def kept_files(context: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Complete the name of a file that the vault of the directory keeps."""
    from ralphctl.offline.vault import copy_of

    known = copy_of(Path(context.params.get("directory") or discovery.here()), os.environ)
    return [name for name in (sorted(known[1].kept) if known else ()) if name.startswith(incomplete)]


def files(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(incomplete, type="file")]


def ralphs_and_directories(context: Context, parameter: Parameter, incomplete: str) -> list[Any]:
    names = map(CompletionItem, ralphs(context, parameter, incomplete))
    return [*directories(context, parameter, incomplete), *names]


def directories(context: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem[str]]:
    return [CompletionItem(incomplete, type="dir")]


def _fitting(incomplete: str, explained: Iterable[tuple[str, str]]) -> list[CompletionItem[str]]:
    return [CompletionItem(word, help=help) for word, help in explained if word.startswith(incomplete)]


def _listed(context: Context, path: str, key: str) -> list[Any]:
    """Return the list in the daemon's answer; empty without a daemon."""
    try:
        return list(_answer(context, path)[key])
    except RalphdError:
        return []


def _answer(context: Context, path: str) -> Any:
    from ralphctl.client import transport

    sockets = discovery.candidates(context.meta.get(META_SOCKET), os.environ, discovery.here())
    return json.loads(transport.get(sockets, path, timeout_s=_LIMIT_S))

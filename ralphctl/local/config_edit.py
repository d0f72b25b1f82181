"""``ralphctl config set`` and ``unset``: one key of a file, by its name and its value in words.

The value is read as a variable of the environment is, and has to be what ``check`` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ralphctl.local.config_file import ConfigFile, refused, value_at
from ralphd.config import files
from ralphd.config.configuration import HIDDEN, home_of
from ralphd.config.keys import AGENT, SECTIONS, WEBHOOKS, ConfigKey, keys_of
from ralphd.config.layers import ConfigFault, KeyPath, dotted, from_text, tree_layer
from ralphd.config.values import toml_value
from ralphd.errors import UsageError

_PART: Final = re.compile(r"([^.\[\]]+)((?:\[\d{1,4}\])?)")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRETS: Final = ("secret_file", "secret_env")
_SECRET_WORDS: Final = ("secret", "token", "password", "key")
_OF_A_SECRET: Final = re.compile(r"(?i)KEY|TOKEN|SECRET|PASSW")


@dataclass(frozen=True, slots=True)
class Edit:
    """One change: the file, the key, its value before and after (None: not set) as they may be shown."""

    path: Path
    key: str
    was: str | None
    now: str | None
    is_changed: bool
    warning: str = ""


def set_key(key: str, value: str, *, directory: Path, environ: Mapping[str, str], users_own: bool) -> Edit:
    """Have ``key`` be ``value`` in ``ralph.toml``, or in the user's own file.

    The file is made where there is none. Raises ConfigFaults, UsageError, DirectoryUnusable,
    ChangedMeanwhile; then nothing was written.
    """
    path = _path_of(key)
    _refuse_secret(path, value)
    typed = _typed(path, value, users_own=users_own)
    return _edited(target(directory, environ, users_own=users_own), path, typed, environ, users_own=users_own)


def unset_key(key: str, *, directory: Path, environ: Mapping[str, str], users_own: bool) -> Edit:
    """Have ``key`` not be set in the file, so that what is below it holds. Raises as ``set_key``."""
    path = _path_of(key)
    return _edited(target(directory, environ, users_own=users_own), path, None, environ, users_own=users_own)


def _edited(
    place: Path, path: KeyPath, value: object, environ: Mapping[str, str], *, users_own: bool
) -> Edit:
    """The edit, made where there is anything to change."""
    file = ConfigFile.read(place, environ, users_own=users_own)
    before = value_at(file.tree, path)
    if before is None and value is None:
        _known(path, users_own=True)
    is_changed = before != value or type(before) is not type(value)
    if is_changed:
        file.change(path, value)
    warning = _warning(path, place) if value is not None and not users_own else ""
    return Edit(place, dotted(path), _shown(path, before), _shown(path, value), is_changed, warning)


def target(directory: Path, environ: Mapping[str, str], *, users_own: bool) -> Path:
    """The file that is meant: the user's own, else the nearest ``ralph.toml``, else a new one."""
    home = home_of(environ)
    if users_own:
        return files.user_file(environ, home)
    return files.project_file(directory, home) or directory.resolve() / files.PROJECT_FILE


# --- the key and the value ------------------------------------------------------------------------------


def _path_of(key: str) -> KeyPath:
    """``regent.max_retries``, ``agents.claude.model``, ``webhooks[0].url``. Raises UsageError."""
    found: list[str | int] = []
    for part in key.split("."):
        match = _PART.fullmatch(part)
        if match is None:
            raise UsageError(
                f"{key!r} is no key",
                why="a key is SECTION.NAME",
                mend="ralphctl config show  (lists them all)",
            )
        found += [match[1], *([int(match[2][1:-1])] if match[2] else [])]
    return tuple(found)


def _key_at(path: KeyPath) -> ConfigKey | None:
    """The entry in the list of keys; None for what is not in it, and for one variable of an agent."""
    match path:
        case (str(section), str(name)) if section in SECTIONS:
            return keys_of(section).get(name)
        case ("agents", str(), str(name)):
            return keys_of(AGENT).get(name)
        case ("webhooks", int(), str(name)):
            return keys_of(WEBHOOKS).get(name)
    return None


def _is_variable(path: KeyPath) -> bool:
    return len(path) == 4 and path[0] == "agents" and path[2] == "env"


def _typed(path: KeyPath, value: str, *, users_own: bool) -> Any:
    """The value as TOML has it. Raises ConfigFaults in the words of ``check``."""
    key = _key_at(path)
    typed = from_text(key, value) if key else value
    if isinstance(typed, float) and typed.is_integer():
        typed = int(typed)
    _known(path, typed, users_own=users_own)
    return typed


def _known(path: KeyPath, value: object = None, *, users_own: bool) -> None:
    """Raise ConfigFaults for a key that is not known, or a value that it cannot have."""
    key = _key_at(path)
    if value is None and (key is not None or _is_variable(path)):
        return
    tree: Any = value
    for part in reversed(path):
        tree = [tree] if isinstance(part, int) else {part: tree}
    layer = tree_layer(tree, lambda _: "", users_own=users_own, resolve=str)
    shown = [fault for fault in layer.faults if fault.text != "has no url"]
    if shown:
        raise refused([ConfigFault("", dotted(path), fault.text) for fault in shown])


def _refuse_secret(path: KeyPath, value: str) -> None:
    """A secret is named in a file of configuration, never held by it. Raises UsageError, without it."""
    name = str(path[-1])
    is_webhooks = path[0] == WEBHOOKS
    is_one = is_webhooks and (
        name in _SECRET_WORDS
        or (name in _SECRETS and value.startswith("whsec_"))
        or (name == "secret_env" and value != "" and not _VARIABLE.fullmatch(value))
    )
    if is_one:
        raise UsageError(
            f"{dotted(path)} cannot hold a secret: nothing was written",
            why="a file of configuration is committed, copied and shown",
            mend="set secret_file to the name of a file that holds it, or secret_env to that of a variable",
        )


# --- what is said of it ----------------------------------------------------------------------------------


def _shown(path: KeyPath, value: object) -> str | None:
    if value is None:
        return None
    is_hidden = isinstance(value, dict) or "env" in path[2:3] or path[-1] == "url"
    return HIDDEN if is_hidden else toml_value(value)


def _warning(path: KeyPath, place: Path) -> str:
    """What is unwise about it, in words."""
    if _is_variable(path) and _OF_A_SECRET.search(str(path[3])):
        return f"{place.name} is often committed; a secret belongs in the environment of ralphctl start"
    return ""

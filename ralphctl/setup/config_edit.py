"""Set or unset one key of a configuration file. Comments and layout stay as well as tomlkit keeps them.

The new text is parsed and validated before it replaces the old file: an edit that would change another key or
add a fault is refused, and nothing is written.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit

from ralphd.config import files
from ralphd.config.configuration import HIDDEN, home_of
from ralphd.config.keys import AGENT, SECTIONS, WEBHOOKS, ConfigKey, keys_of
from ralphd.config.layers import ConfigFault, KeyPath, dotted, from_text, tree_layer
from ralphd.config.values import toml_value
from ralphd.errors import ConfigFaults, DirectoryUnusable, RalphdError, UsageError
from ralphd.store.files import write_whole


class ChangedMeanwhile(RalphdError):
    """The file was written by another program between our read and our write."""

    slug, exit_code = "changed-meanwhile", 75


@dataclass(frozen=True, slots=True)
class ConfigEdit:
    """One edit. ``was`` and ``now`` are the values as they may be shown; None means not set."""

    file: Path
    key: str
    was: str | None
    now: str | None
    is_changed: bool


def edit_key(
    key: str, value: str | None, *, directory: Path, environ: Mapping[str, str], users_own: bool
) -> ConfigEdit:
    """Set ``key`` to ``value``, or unset it for None, in the ``ralph.toml`` in force or the user's own file.

    A missing file is created. Raise ConfigFaults, UsageError, DirectoryUnusable or ChangedMeanwhile; then
    nothing was written.
    """
    path, home = _key_path(key), home_of(environ)
    typed = None if value is None else _typed(path, value, users_own=users_own)
    file = files.user_file(environ, home) if users_own else files.project_file(directory, home)
    file = file or directory.resolve() / files.PROJECT_FILE
    faults = files.layer(file, file.parent, home, users_own=users_own).faults
    broken = [fault for fault in faults if not fault.key]
    _refuse(broken, f"{file.name} cannot be changed: nothing was written", f"correct it by hand: {file}")
    text = file.read_bytes().decode() if file.exists() else ""
    before: Any = tomllib.loads(text)
    try:
        for part in path:
            before = before[part]
    except (LookupError, TypeError):
        before = None
    if before is None and value is None and _key_at(path) is None:
        _check_value(path, "", users_own=True)  # raises the fault of an unknown key
    is_changed = before != typed or type(before) is not type(typed)
    if is_changed:
        edited = edited_text(text, path, typed, file)
        after = files.layer_of(edited, file, home, users_own=users_own).faults
        known = {(fault.key, fault.text) for fault in faults}
        new = [each for each in after if (each.key, each.text) not in known]
        _refuse([ConfigFault("", each.key, each.text) for each in new])
        _write(file, text, edited, users_own=users_own)
    return ConfigEdit(file, dotted(path), _shown(path, before), _shown(path, typed), is_changed)


def edited_text(text: str, path: KeyPath, value: object, file: Path) -> str:
    """Return ``text`` with ``value`` at ``path``, None to remove it. ``file`` is for messages only.

    Raise UsageError for a webhook beyond the next one, and where tomlkit would change another key too.
    """
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        expected, document = tomllib.loads(text), tomlkit.parse(text)
        count = len(expected.get(WEBHOOKS, ()))
        if len(path) > 1 and isinstance(path[1], int) and path[1] > count:
            raise UsageError(
                f"there is no {dotted(path)}: nothing was written",
                why=f"{file.name} has {count} of them, counted from 0",
                mend=f"{WEBHOOKS}[{count}] is a new one",
            )
        _put(expected, path, value)
        _put(document, path, value)
        edited = tomlkit.dumps(document)
        if tomllib.loads(edited) == expected:
            return edited
    raise UsageError(
        f"{dotted(path)} cannot be changed in {file.name} by a program: nothing was written",
        why="the file is written in a way in which another key would change too",
        mend=f"correct it by hand: {file}",
    )


def _key_path(key: str) -> KeyPath:
    """``regent.max_retries``, ``agents.claude.model``, ``webhooks[0].url``"""
    path = tuple(int(at) if at else name for name, at in re.findall(r"([^.\[\]]+)|\[(\d{1,4})\]", key))
    if dotted(path) != key or key[:1] in ("", "["):
        raise UsageError(
            f"{key!r} is no key", why="a key is SECTION.NAME", mend="ralphctl config show  (lists them all)"
        )
    return path


def _key_at(path: KeyPath) -> ConfigKey | None:
    match path:
        case (str(section), str(name)) if section in SECTIONS:
            return keys_of(section).get(name)
        case ("agents", str(), str(name)):
            return keys_of(AGENT).get(name)
        case ("webhooks", int(), str(name)):
            return keys_of(WEBHOOKS).get(name)
    return None


def _typed(path: KeyPath, value: str, *, users_own: bool) -> Any:
    name = path[-1]
    if path[0] == WEBHOOKS and (
        name in ("secret", "token", "password", "key")
        or (name in ("secret_file", "secret_env") and value.startswith("whsec_"))
        or (name == "secret_env" and value and not re.fullmatch(r"[A-Za-z_]\w*", value, re.ASCII))
    ):
        raise UsageError(
            f"{dotted(path)} cannot hold a secret: nothing was written",
            why="a file of configuration is committed, copied and shown",
            mend="set secret_file to the name of a file that holds it, or secret_env to that of a variable",
        )
    typed = from_text(key, value) if (key := _key_at(path)) else value
    typed = int(typed) if isinstance(typed, float) and typed.is_integer() else typed
    _check_value(path, typed, users_own=users_own)
    return typed


def _check_value(path: KeyPath, value: object, *, users_own: bool) -> None:
    """Raise ConfigFaults for an unknown key and for a value that the key cannot have."""
    tree: dict[str, Any] = {}
    _put(tree, path, value)
    layer = tree_layer(tree, lambda _: "", users_own=users_own, resolve=str)
    _refuse([ConfigFault("", dotted(path), each.text) for each in layer.faults if each.text != "has no url"])


def _refuse(faults: list[ConfigFault], what: str = "nothing was written", mend: str = "") -> None:
    if faults:
        raise ConfigFaults(what, why="\n".join(map(str, faults)), mend=mend)


def _put(tree: Any, path: KeyPath, value: object) -> None:
    """Set or, for None, delete what lies at ``path``. The same code edits plain and tomlkit containers."""
    first, rest = path[0], path[1:]
    if rest and (first in tree if isinstance(first, str) else first < len(tree)):
        _put(tree[first], rest, value)
    elif value is None:
        del tree[first]
    else:
        for part in reversed(rest):
            value = {part: value} if isinstance(part, str) else [value]
        if isinstance(first, str):
            tree[first] = value
        else:
            tree.append(value)


def _shown(path: KeyPath, value: object) -> str | None:
    is_hidden = isinstance(value, dict) or "env" in path[2:3] or path[-1] == "url"
    return None if value is None else HIDDEN if is_hidden else toml_value(value)


def _write(file: Path, before: str, after: str, *, users_own: bool) -> None:
    """Replace the file whole, keeping its mode, its owner where permitted, and a symbolic link to it."""
    real = Path(os.path.realpath(file))
    if (real.read_bytes() if real.exists() else b"") != before.encode():
        raise ChangedMeanwhile(f"{real} was changed meanwhile: nothing was written", mend="the same again")
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = real.stat() if real.exists() else None
        write_whole(real, after.encode())
        if status is not None:
            with suppress(PermissionError):
                os.chown(real, status.st_uid, status.st_gid)
        real.chmod(stat.S_IMODE(status.st_mode) if status else 0o600 if users_own else 0o644)
    except OSError as fault:
        why, mend = fault.strerror or str(fault), f"ls -ld {real.parent} {real}"
        raise DirectoryUnusable(
            f"{file} cannot be written: nothing was changed", why=why, mend=mend
        ) from fault

"""Set or unset one key of a configuration file, or have a person edit the whole; keep comments and layout.

The new text is parsed and validated before it replaces the old file: an edit that would change another key or
add a fault is refused, and nothing is written.
"""

import os
import re
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tomlkit

from ralphctl.format.output import message
from ralphd.config import files
from ralphd.config.configuration import HIDDEN, home_of
from ralphd.config.keys import NAMED, SECTIONS, WEBHOOKS, ConfigKey, keys_of
from ralphd.config.layers import ConfigFault, KeyPath, dotted, from_text, tree_layer
from ralphd.config.values import toml_value
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults, DirectoryUnusable, RalphdError, UsageError
from ralphd.store.files import write_whole


class ChangedMeanwhile(RalphdError, slug="changed-meanwhile", exit_code=75):
    """The file was written by another program between our read and our write."""


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
    path, home = key_path(key), home_of(environ)
    typed = None if value is None else _typed(path, value, users_own=users_own)
    file = file_of(directory, environ, users_own=users_own)
    faults = files.layer(file, file.parent, home, users_own=users_own).faults
    broken = [fault for fault in faults if not fault.key]
    _refuse(broken, f"{file.name} cannot be changed: nothing was written", "ralphctl config edit")
    whole = file.read_bytes().decode() if file.exists() else ""
    text = whole.removeprefix(files.BYTE_ORDER_MARK)
    before: Any = tomllib.loads(text)
    try:
        for part in path:
            before = before[part]
    except (LookupError, TypeError):
        before = None
    if before is None and value is None and key_at(path) is None:
        check_value(path, "", users_own=True)  # raises the fault of an unknown key
    is_changed = before != typed or type(before) is not type(typed)
    if is_changed:
        edited = edited_text(text, path, typed, file)
        after = files.layer_of(edited, file, home, users_own=users_own).faults
        known, new = ([ConfigFault("", each.key, each.text) for each in these] for these in (faults, after))
        _refuse([each for each in new if each not in known])
        _write(file, whole.encode(), (whole.removesuffix(text) + edited).encode(), users_own=users_own)
    return ConfigEdit(file, dotted(path), _shown(path, before), _shown(path, typed), is_changed)


def file_of(directory: Path, environ: Mapping[str, str], *, users_own: bool) -> Path:
    """Return the ``ralph.toml`` in force in ``directory``, or the user's own file. It may not exist yet."""
    home = home_of(environ)
    file = files.user_file(environ, home) if users_own else files.project_file(directory, home)
    return file or directory.resolve() / files.PROJECT_FILE


def edit_whole(
    edit: Callable[[Path, list[str]], None], *, directory: Path, environ: Mapping[str, str], users_own: bool
) -> tuple[Path, list[str]]:
    """Have ``edit`` change a copy of the file until it has no faults, then save it.

    ``edit`` gets the copy and the faults of the last round. Return the file and the keys that changed. On any
    exception the file stays as it was, and a text that was changed is kept.
    """
    file, home = file_of(directory, environ, users_own=users_own), home_of(environ)
    if file.exists() and not (file.is_file() and os.access(file, os.R_OK)):
        raise DirectoryUnusable(f"{file} is not a file that you can read", mend=f"ls -ld {file}")
    before = file.read_bytes() if file.exists() else b""
    copy, faults = Path(tempfile.mkdtemp(prefix="ralph-edit-")) / file.name, [""]
    copy.write_bytes(before)

    def values(text: bytes) -> dict[str, object]:
        layer = files.layer_of(text.decode(errors="surrogateescape"), file, home, users_own=users_own)
        faults[:] = map(str, layer.faults)
        settings: dict[str, object] = {name: each.value for name, each in layer.settings.items()}
        return settings | {WEBHOOKS: {url: hook for url, (hook, _) in layer.webhooks.items()}}

    old = values(before)
    faults.clear()
    try:
        while True:
            edit(copy, faults)
            if not copy.is_file():
                raise UsageError("the editor left no file: nothing was changed")
            after = copy.read_bytes()
            new = values(after)
            if after == before or not faults:
                break
        if after != before:
            _write(file, before, after, users_own=users_own)
    except BaseException:
        if copy.is_file() and copy.read_bytes() != before:
            message(f"{file} was not changed; your text is kept in {copy}")
        else:
            shutil.rmtree(copy.parent, ignore_errors=True)
        raise
    shutil.rmtree(copy.parent, ignore_errors=True)
    return file, [name for name in old | new if old.get(name) != new.get(name)]


def edited_text(text: str, path: KeyPath, value: object, file: Path) -> str:
    """Return ``text`` with ``value`` at ``path``, None to remove it. ``file`` is for messages only.

    Raise UsageError for a webhook beyond the next one, and where tomlkit would change another key too.
    """
    with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
        expected, document = tomllib.loads(text), tomlkit.parse(text)
        count = len(expected.get(WEBHOOKS, ()))
        if len(path) > 1 and isinstance(path[1], int) and path[1] > count:
            why, mend = f"{file.name} has {count} [[webhooks]]", f"{WEBHOOKS}[{count}] adds one"
            raise UsageError(f"{dotted(path)} does not exist: nothing was written", why=why, mend=mend)
        _put(expected, path, value)
        _put(document, path, value)
        edited = _with_comments(text, tomlkit.dumps(document)) if value is None else tomlkit.dumps(document)
        if text.count("\n") == text.count("\r\n") > 0:  # tomlkit ends a new line with LF
            edited = re.sub(r"\r?\n", "\r\n", edited)
        if tomllib.loads(edited) == expected:
            return edited
    what = f"{dotted(path)} cannot be changed in {file.name} by a program: nothing was written"
    raise UsageError(what, why="in its layout another key would change too", mend="ralphctl config edit")


def _with_comments(text: str, edited: str) -> str:
    """Return ``edited`` with the comments above the next table: tomlkit removes them with a table."""
    old, new = text.splitlines(keepends=True), edited.splitlines(keepends=True)
    at = len(new) - len(os.path.commonprefix([old[::-1], new[::-1]]))  # noqa: RUF071 - lists of lines
    gone = old[at : at + len(old) - len(new)] if old[:at] == new[:at] else []
    last = max((i for i, line in enumerate(gone) if line.strip()[:1] not in ("", "#")), default=-1)
    return "".join([*new[:at], *gone[last + 1 :], *new[at:]])


def key_path(key: str) -> KeyPath:
    """``regent.max_retries``, ``agents.claude.model``, ``webhooks[0].url``"""
    path = tuple(int(at) if at else name for name, at in re.findall(r"([^.\[\]]+)|\[(\d{1,4})\]", key))
    if dotted(path) != key or key[:1] in ("", "["):
        mend = "ralphctl config show  (lists all keys)"
        raise UsageError(f"{key!r} is not a key", why="a key is SECTION.NAME", mend=mend)
    return path


def key_at(path: KeyPath) -> ConfigKey | None:
    match path:
        case (str(section), str(name)) if section in SECTIONS:
            return keys_of(section).get(name)
        case (str(section), str(), str(name)) if section in NAMED:
            return keys_of(NAMED[section]).get(name)
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
        what = f"{dotted(path)} cannot hold a secret: nothing was written"
        mend = "set secret_file to the name of a file with the secret, or secret_env to that of a variable"
        raise UsageError(what, why="the file is copied, shown", mend=mend)
    typed = from_text(key, value) if (key := key_at(path)) else value
    typed = int(typed) if isinstance(typed, float) and typed.is_integer() else typed
    check_value(path, typed, users_own=users_own)
    return typed


def check_value(path: KeyPath, value: object, *, users_own: bool, what: str = "nothing was written") -> None:
    """Raise ConfigFaults for an unknown key and for a value that the key cannot have."""
    tree: dict[str, Any] = {}
    _put(tree, path, value)
    faults = tree_layer(tree, lambda _: "", users_own=users_own, resolve=str).faults
    _refuse([ConfigFault("", dotted(path), each.text) for each in faults if each.text != "has no url"], what)


def _refuse(faults: list[ConfigFault], what: str = "nothing was written", mend: str = "") -> None:
    if faults:
        raise ConfigFaults(what, why="\n".join(map(str, faults)), mend=mend)


def _put(tree: Any, path: KeyPath, value: object) -> None:
    """Set or, for None, delete what lies at ``path``. The same code edits plain and tomlkit containers."""
    first, rest = path[0], path[1:]
    if rest and (first in tree if isinstance(first, str) else first < len(tree)):
        _put(tree[first], rest, value)
        if isinstance(tree[first], list) and not tree[first]:  # `webhooks = []` would forbid [[webhooks]]
            del tree[first]
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
    is_hidden = isinstance(value, dict) or "env" in path[2:3] or path[-1] in ("url", WEBHOOKS)
    return None if value is None else HIDDEN if is_hidden else toml_value(value)


def _write(file: Path, before: bytes, after: bytes, *, users_own: bool) -> None:
    """Replace the file whole, keeping its mode, its owner where permitted, and a symbolic link to it."""
    real = Path(os.path.realpath(file))
    if (real.read_bytes() if real.exists() else b"") != before:
        what = f"{real} was changed by another program: nothing was written"
        raise ChangedMeanwhile(what, mend="repeat the command")
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = real.stat() if real.exists() else None
        write_whole(real, after)
        if status is not None:
            with suppress(PermissionError):
                os.chown(real, status.st_uid, status.st_gid)
        real.chmod(stat.S_IMODE(status.st_mode) if status else 0o600 if users_own else 0o644)
    except OSError as fault:
        what, why = f"{file} cannot be written: nothing was changed", fault.strerror or str(fault)
        raise DirectoryUnusable(what, why=why, mend=f"ls -ld {real.parent} {real}") from fault

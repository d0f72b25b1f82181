"""The one codec of the state files: frozen dataclasses to plain JSON values and back, every value checked.

pydantic takes the shape from the dataclass and validates as strictly as JSON allows: no bool for a number, no
number for a text. Where a file differs from memory (times, names and order of keys), ``Codec`` is given the
difference, because ``core``, where most of the dataclasses are, does not import pydantic.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from ralphd import diagnostics
from ralphd.core.time import parse_rfc3339, rfc3339
from ralphd.dataclass import dataclass
from ralphd.plain_files import peek, sync_directory
from ralphd.store import files, mirror
from ralphd.store.files import Broken, as_json

T = TypeVar("T")


class Unfit(ValueError):
    """A value that does not have the shape. ``faults`` has at most one fault for each top-level key."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(eq=False)
class Codec(Generic[T]):
    """Values of type ``shape`` as JSON.

    ``moments`` are the keys whose float is RFC 3339 text in the file. ``names`` has the key of a field that
    is called otherwise there. ``last`` names the keys that come after all others, in order. ``newer`` are
    the top-level keys that an older file may lack; None: all that have a default. With ``most``, numbers are
    finite and between 0 and ``most``; longer texts than ``most_chars`` are cut when they are written.
    """

    shape: Any
    moments: Collection[str] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    last: str = ""
    newer: Collection[str] | None = None
    most: float | None = None
    most_chars: int | None = None

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        return TypeAdapter(self.shape)  # some milliseconds: made when it is needed

    @cached_property
    def _ranks(self) -> dict[str, int]:
        return {key: rank for rank, key in enumerate(self.last.split(), 1)}

    def dump(self, value: T) -> dict[str, Any]:
        """Return the JSON object for ``value``. A number that JSON cannot hold becomes 0 under ``most``."""
        plain: dict[str, Any] = self._written(self._adapter.dump_python(value, mode="json"))
        return plain

    def load(self, stored: object) -> T:
        """Return the value in a JSON object. Unknown keys are passed over. Raises Unfit."""
        faults: dict[str, str] = {}
        if isinstance(stored, Mapping) and self.newer is not None:
            for each in fields(self.shape):
                key = self.names.get(each.name, each.name)
                if key not in stored and key not in self.newer:
                    faults[key] = f"{key} is missing"
        try:
            # Only from JSON does the strict mode take a list for a tuple and a text for an enum.
            value = self._adapter.validate_json(as_json(self._read(stored, (), faults)), strict=True)
        except RecursionError as error:
            raise Unfit(["nested too deeply"]) from error
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                where = [self.names.get(str(part), str(part)) for part in fault["loc"]] or ["the whole"]
                what = " is missing" if fault["type"] == "missing" else f": {fault['msg']}"
                faults.setdefault(where[0], ": ".join(where) + what)
        else:
            self._check(value, "", faults)
        if faults:
            raise Unfit(list(faults.values()))
        return value

    def _written(self, value: Any, key: str = "") -> Any:
        match value:
            case dict():
                names = {name: self.names.get(name, name) for name in value}
                ordered = sorted(names.items(), key=lambda item: self._ranks.get(item[1], 0))
                return {key: self._written(value[name], name) for name, key in ordered}
            case list():
                return [self._written(each) for each in value]
            case float() | int() if key in self.moments:
                return rfc3339(value)
            case float() if self.most is not None and not math.isfinite(value):
                return 0.0
            case str():
                return value[: self.most_chars]
        return value

    def _read(self, value: Any, where: tuple[str, ...], faults: dict[str, str]) -> Any:
        match value:
            case dict():
                names = {key: name for name, key in self.names.items()}
                items = value.items()
                return {names.get(key, key): self._read(each, (*where, key), faults) for key, each in items}
            case list():
                return [self._read(each, where, faults) for each in value]
            case None:
                return None
            case _ if where and where[-1] in self.moments:
                try:
                    return parse_rfc3339(value)
                except (TypeError, ValueError, OverflowError):
                    faults.setdefault(where[0], f"{': '.join(where)}: not a time: {value!r:.40}")
                    return 0.0  # passes the validation, which would report it a second time
        return value

    def _check(self, value: object, key: str, faults: dict[str, str]) -> None:
        # After validation, so that unknown keys are passed over whatever they hold.
        if is_dataclass(value):
            for each in fields(value):
                name = key or self.names.get(each.name, each.name)
                if each.name not in self.moments:
                    self._check(getattr(value, each.name), name, faults)
        elif isinstance(value, tuple):
            for item in value:
                self._check(item, key, faults)
        elif isinstance(value, int | float) and self.most is not None and not 0 <= value <= self.most:
            faults.setdefault(key, f"{key}: not a number from 0 on: {value!r:.40}")


FAULTS = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What a reader of parsed JSON raises for content that it does not understand."""


def load_file(path: Path, version: int, read: Callable[[dict[str, Any]], T]) -> T | None:
    """Return what ``read`` makes of the object in a file; None without a file.

    Raises Broken for anything else, which is then set aside, and NewerState (F2).
    """
    if (stored := files.read_json(path)) is None:
        return None
    files.refuse_newer(path, stored.get("version"), version)
    try:
        if type(stored.get("version")) is not int or stored["version"] < 1:
            raise ValueError("no version")
        return read(stored)
    except FAULTS as fault:
        why = f"{fault.args[0]} is missing" if isinstance(fault, KeyError) else str(fault)
        raise Broken(path, why, files.set_aside(path)) from fault


def peek_file(path: Path, version: int, read: Callable[[dict[str, Any]], T]) -> T | None:
    """Return the same for a file that somebody else writes: None for a damaged one, which is left alone."""
    stored = peek(path)
    if stored is None or stored.get("version") != version:
        return None
    try:
        return read(stored)
    except FAULTS:
        return None


@dataclass(eq=False)
class LoopFile(Generic[T]):
    """A JSON file that the loop keeps between its runs, with a copy in ``copy_in``/.ralph/ if that is given.

    ``empty`` stands for a missing file. ``what`` names the file to people and ``loss`` says what a damaged
    one costs; ``fault`` then says what became of it, and is empty if the last ``load`` found all well.
    ``failpoint`` is the stem of the failpoints after a write. Every method raises NewerState for a file of a
    newer version, which stays as it is, and blocks.
    """

    path: Path
    dump: Callable[[Any], dict[str, Any]]
    read: Callable[[dict[str, Any]], T]
    empty: T
    failpoint: str
    what: str
    loss: str
    copy_in: Path | None = None
    version: int = 1
    fault: str = field(default="", init=False)
    _is_loaded: bool = field(default=False, init=False)

    def load(self) -> T:
        """Return what the file holds; a damaged one is set aside (F2)."""
        self.fault = ""
        try:
            stored = load_file(self.path, self.version, self.read)
        except Broken as broken:
            kept = f"is kept as {broken.kept_as}" if broken.kept_as else "could not be moved away"
            self.fault = f"{self.what} in {self.path} is damaged ({broken.why}) and {kept}; {self.loss}"
            stored = None
        self._is_loaded = True
        return self.empty if stored is None else stored

    def save(self, value: T) -> None:
        """Replace the file, durably, and its copy. Raises OSError; then the old file is as it was."""
        self._refuse_newer()
        data = as_json({"version": self.version, **self.dump(value)})
        files.write_whole(self.path, data)
        diagnostics.reach(f"{self.failpoint}_saved")
        if self.copy_in is not None:
            mirror.put(self.copy_in, self.path.name, data)

    def clear(self) -> None:
        """Remove the file, durably, and its copy. Raises OSError."""
        self._refuse_newer()
        if self.copy_in is not None:
            # The copy goes first: a copy without an original looks like a checkpoint to be taken over.
            mirror.drop(self.copy_in, self.path.name)
        self.path.unlink(missing_ok=True)
        sync_directory(self.path.parent)
        diagnostics.reach(f"{self.failpoint}_cleared")

    def _refuse_newer(self) -> None:
        if not self._is_loaded:
            self.load()

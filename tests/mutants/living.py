"""How a change gets into code that is loaded already."""

import dataclasses
import importlib
import inspect
import sys
import types
from typing import Any

from tests.mutants.change import Change


class BreaksImportError(Exception):
    """The changed statement cannot be run at all: whoever imports the module notices."""


def put_in(change: Change) -> bool:
    """Let the loaded module be what its changed text says; False where that cannot be done."""
    module = importlib.import_module(change.module)
    if not change.function:
        return _put_in_statement(module, change)
    function = _function(module, change.function)
    changed = _code_of(compile(change.source, function.__code__.co_filename, "exec"), change.function)
    assert changed is not None
    function.__code__ = changed
    for value in vars(module).values():
        if callable(clear := getattr(value, "cache_clear", None)):
            clear()
    return True


def _function(module: types.ModuleType, path: str) -> types.FunctionType:
    found: Any = module
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    found = getattr(found, "fget", found) or found
    found = inspect.unwrap(getattr(found, "__func__", found))
    assert isinstance(found, types.FunctionType)
    return found


def _code_of(code: types.CodeType, name: str) -> types.CodeType | None:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            if inner.co_qualname == name:
                return inner
            if name.startswith(f"{inner.co_qualname}.") and (found := _code_of(inner, name)):
                return found
    return None


def _put_in_statement(module: types.ModuleType, change: Change) -> bool:
    """Run the changed statement beside the module, and take over what is other than before."""
    beside = dict(vars(module))
    try:
        exec(compile(change.statement, str(module.__file__), "exec", dont_inherit=True), beside)
    except Exception as error:
        raise BreaksImportError(change.after) from error
    others = {name: new for name, new in beside.items() if _is_other(module, name, new)}
    if not others.keys() <= vars(module).keys():
        return False  # it has names that the loaded module lacks
    taken = [_take_over(name, vars(module)[name], new) for name, new in others.items()]
    return bool(taken) and all(taken)


def _is_other(module: types.ModuleType, name: str, new: object) -> bool:
    return not name.startswith("__") and vars(module).get(name) is not new


def _take_over(name: str, old: Any, new: Any) -> bool:
    if isinstance(old, type):
        return isinstance(new, type) and _take_over_defaults(old, new)
    if isinstance(old, types.FunctionType):
        old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        old.clear()
        old.update(new)
        return True
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        if names.get(name) is old:
            names[name] = new
    return True


def _take_over_defaults(old: type, new: type) -> bool:
    """The defaults of a dataclass are its constructor's; of other classes nothing can be taken over."""
    if not dataclasses.is_dataclass(old):
        return False
    before, after = vars(old).get("__init__"), vars(new).get("__init__")
    if before is None or after is None or repr(before.__defaults__) == repr(after.__defaults__):
        return False
    before.__defaults__ = after.__defaults__
    return True

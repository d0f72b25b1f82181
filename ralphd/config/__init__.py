"""Reads ``ralph.toml``, the user's file, the environment and flags, once, into frozen specs.

Nothing is imported here before it is asked for: ``values`` serves commands that must not
load pydantic.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralphd.config.configuration import Configuration, Difference, differences, load, sources
    from ralphd.config.keys import schema
    from ralphd.config.layers import Origin
    from ralphd.config.values import fit_name, for_runs

__all__ = [
    "Configuration",
    "Difference",
    "Origin",
    "differences",
    "fit_name",
    "for_runs",
    "load",
    "schema",
    "sources",
]

_HOMES = {
    "Configuration": "configuration",
    "Difference": "configuration",
    "Origin": "layers",
    "differences": "configuration",
    "fit_name": "values",
    "for_runs": "values",
    "load": "configuration",
    "schema": "keys",
    "sources": "configuration",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ralphd.config.{_HOMES[name]}"), name)

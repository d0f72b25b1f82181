"""Reads ``ralph.toml``, the user's file, the environment and flags, once, into frozen specs.

Nothing is imported here before it is asked for: ``names`` and ``environment`` serve commands that must not
load pydantic.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralphd.config.configuration import Configuration, differences, load
    from ralphd.config.environment import for_runs
    from ralphd.config.json_schema import schema
    from ralphd.config.layers import Origin
    from ralphd.config.names import fit_name

__all__ = ["Configuration", "Origin", "differences", "fit_name", "for_runs", "load", "schema"]

_HOMES = {
    "Configuration": "configuration",
    "Origin": "layers",
    "differences": "configuration",
    "fit_name": "names",
    "for_runs": "environment",
    "load": "configuration",
    "schema": "json_schema",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ralphd.config.{_HOMES[name]}"), name)

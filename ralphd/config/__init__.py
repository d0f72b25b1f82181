"""Reads ``ralph.toml``, the user's file, the environment and flags, once, into frozen specs.

Nothing is imported here before it is asked for: ``names`` and ``environment`` serve commands that must not
load pydantic.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralphd.config.compare import Difference, differences
    from ralphd.config.configuration import Configuration, load, sources
    from ralphd.config.environment import for_runs
    from ralphd.config.json_schema import schema
    from ralphd.config.layers import Origin
    from ralphd.config.names import fit_name

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
    "Difference": "compare",
    "Origin": "layers",
    "differences": "compare",
    "fit_name": "names",
    "for_runs": "environment",
    "load": "configuration",
    "schema": "json_schema",
    "sources": "configuration",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ralphd.config.{_HOMES[name]}"), name)

"""What a change of a configuration file means: which ralphs have yet to take it up, what counts more."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ralphctl.offline import state as offline
from ralphd.config.configuration import home_of, load
from ralphd.config.files import project_file
from ralphd.errors import ConfigFaults


def known_ralphs(file: Path, environ: Mapping[str, str], *, users_own: bool) -> list[str]:
    """The ralphs that go by this file, by name: each is pinned to what it said when they were started."""
    home = home_of(environ)
    return [
        str(view["name"])
        for view in offline.registered_views(environ)
        if users_own or project_file(Path(view["directory"]), home) == file
    ]


def obstacles(key: str, file: Path, directory: Path, environ: Mapping[str, str]) -> list[str]:
    """Why a key may not hold in ``directory`` as this file has it, in sentences."""
    try:
        configuration = load(directory, environ=environ)
    except ConfigFaults as fault:
        return [f"{fault.what}, and nothing is started with that: ralphctl config check"]
    told = []
    origin = configuration.origins.get(key)
    if origin is not None and _is_above(origin.text, file):
        told.append(f"here {key} is set by {origin.text}, and that counts more")
    if key in configuration.not_built_yet():
        told.append(f"{key}: not acted on by this version yet")
    return told


def _is_above(origin: str, file: Path) -> bool:
    """Whether a value comes from something that lies over this file."""
    source = origin.rpartition(":")[0] if origin.rpartition(":")[2].isdigit() else origin
    if source.startswith(("environment ", "flag ")):
        return True
    is_project = Path(source).name == "ralph.toml"
    return is_project and file.name != "ralph.toml"

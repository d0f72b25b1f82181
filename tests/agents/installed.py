"""The real agent CLIs, as their makers publish them: ``python -m tests.agents.installed`` gets them.

They go into ``.agents/`` of the project, which git does not see, in the versions of ``versions.json``. What
cannot be had is said in words, and its tests are skipped.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

PLACE = Path(__file__).parents[2] / ".agents"
INSTALL_S = 600.0
_NICE = 10
_CACHE = PLACE / "npm-cache"
_VERSIONS: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name("versions.json").read_text())


def program(agent: str) -> Path:
    """The program of an agent, whether it is there or not."""
    return PLACE / agent / "node_modules" / ".bin" / agent


def why_not(agent: str) -> str | None:
    """Why an agent cannot be run; None where it is there, in the version that is asked for."""
    wanted = _VERSIONS[agent]
    try:
        package = PLACE / agent / "node_modules" / wanted["package"] / "package.json"
        found = json.loads(package.read_text())["version"]
    except (OSError, ValueError, KeyError):
        return f"{agent} is not installed; make test-agents gets it, with npm and a network"
    if found != wanted["version"] or not program(agent).exists():
        return f"{agent} is {found}, wanted is {wanted['version']}; make test-agents gets it"
    return None


def main() -> int:
    """Get what is not there. Never an error: the tests say what they had to leave out."""
    absent = [agent for agent in _VERSIONS if why_not(agent)]
    if absent and shutil.which("npm") is None:
        print(f"there is no npm here, so these are left out: {', '.join(absent)}")
        return 0
    for agent in absent:
        _install(agent)
    shutil.rmtree(_CACHE, ignore_errors=True)
    return 0


def _install(agent: str) -> None:
    wanted = _VERSIONS[agent]
    name = f"{wanted['package']}@{wanted['version']}"
    print(f"getting {name} (once) …", flush=True)
    shutil.rmtree(PLACE / agent, ignore_errors=True)
    (PLACE / agent).mkdir(parents=True)
    options = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    places = ["--prefix", str(PLACE / agent), "--cache", str(_CACHE)]
    try:
        subprocess.run(
            ["nice", "-n", str(_NICE), "npm", "install", *options, *places, name],
            check=True, timeout=INSTALL_S, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as fault:
        print(f"{name} cannot be installed, and is left out: {_words(fault)}")


def _words(fault: Exception) -> str:
    said = getattr(fault, "stderr", None) or b""
    lines = [line for line in said.decode(errors="replace").splitlines() if "error" in line.lower()]
    return (lines or [str(fault)])[0][:200]


if __name__ == "__main__":
    raise SystemExit(main())

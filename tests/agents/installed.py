"""The real agent CLIs, as their makers publish them: ``python -m tests.agents.installed`` gets them.

They go into ``.agents/`` of the project, which git does not see, in the versions of ``versions.json``. What
cannot be had is said in words, and its tests are skipped.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PLACE = Path(__file__).parents[2] / ".agents"
INSTALL_S = 600.0
_NICE = 10
_CACHE = PLACE / "npm-cache"
_VERSIONS: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name("versions.json").read_text())


def program(agent: str) -> Path:
    """The program of an agent, whether it is there or not."""
    return PLACE / agent / ("bin" if "pip" in _VERSIONS[agent] else "node_modules/.bin") / agent


def why_not(agent: str) -> str | None:
    """Why an agent cannot be run; None where it is there, in the version that is asked for."""
    wanted = _VERSIONS[agent]
    try:
        found = _installed_pip(agent) if "pip" in wanted else _installed_npm(agent)
    except (OSError, ValueError, KeyError):
        return f"{agent} is not installed; make test-agents gets it, with npm or pip and a network"
    if found != wanted["version"] or not program(agent).exists():
        return f"{agent} is {found}, wanted is {wanted['version']}; make test-agents gets it"
    return None


def main() -> int:
    """Get what is not there. Never an error: the tests say what they had to leave out."""
    absent = [agent for agent in _VERSIONS if why_not(agent)]
    if without := [agent for agent in absent if "npm" in _VERSIONS[agent] and shutil.which("npm") is None]:
        print(f"there is no npm here, so these are left out: {', '.join(without)}")
    for agent in absent:
        if agent not in without:
            _install(agent)
    shutil.rmtree(_CACHE, ignore_errors=True)
    return 0


def _install(agent: str) -> None:
    wanted = _VERSIONS[agent]
    print(f"getting {agent} {wanted['version']} (once) …", flush=True)
    shutil.rmtree(PLACE / agent, ignore_errors=True)
    (PLACE / agent).mkdir(parents=True)
    try:
        for command in _pip(agent) if "pip" in wanted else _npm(agent):
            subprocess.run(
                ["nice", "-n", str(_NICE), *command],
                check=True, timeout=INSTALL_S, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as fault:
        print(f"{agent} cannot be installed, and is left out: {_words(fault)}")


def _npm(agent: str) -> Sequence[Sequence[str]]:
    wanted = _VERSIONS[agent]
    options = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
    places = ["--prefix", str(PLACE / agent), "--cache", str(_CACHE)]
    return [["npm", "install", *options, *places, f"{wanted['npm']}@{wanted['version']}"]]


def _pip(agent: str) -> Sequence[Sequence[str]]:
    """A virtual environment of its own: such an agent pins what it needs to the last digit."""
    wanted, place = _VERSIONS[agent], PLACE / agent
    package = f"{wanted['pip']}=={wanted['version']}"
    return [
        [sys.executable, "-m", "venv", str(place)],
        [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir", package],
    ]


def _installed_npm(agent: str) -> str:
    package = PLACE / agent / "node_modules" / _VERSIONS[agent]["npm"] / "package.json"
    return str(json.loads(package.read_text())["version"])


def _installed_pip(agent: str) -> str:
    name = _VERSIONS[agent]["pip"].replace("-", "_")
    found = next((PLACE / agent).glob(f"lib/python3*/site-packages/{name}-*.dist-info"), None)
    if found is None:
        raise FileNotFoundError(name)
    return found.name.removeprefix(f"{name}-").removesuffix(".dist-info")


def _words(fault: Exception) -> str:
    said = getattr(fault, "stderr", None) or b""
    lines = [line for line in said.decode(errors="replace").splitlines() if "error" in line.lower()]
    return (lines or [str(fault)])[0][:200]


if __name__ == "__main__":
    raise SystemExit(main())

"""Gets the peers, by name and version, from their registries into ``.venv-bench``, which git does not see."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

VENV = Path(__file__).parents[3] / ".venv-bench"
PM2 = VENV / "pm2/node_modules/.bin/pm2"
VERSIONS = {"supervisord": "4.3.0", "circus": "0.19.0", "pm2": "7.0.4"}
INSTALL_S = 120.0
_NPM_CACHE = VENV / "npm-cache"


def install() -> frozenset[str]:
    """Have the peers; the names of those that could be had. What could not is said."""
    if not (VENV / "bin/python").exists() and not _done([sys.executable, "-m", "venv", str(VENV)]):
        return frozenset()
    (VENV / ".gitignore").write_text("*\n")  # a cache, whatever the project ignores
    wanted = {
        "supervisord": (VENV / "bin/supervisord", _pip("supervisor", "supervisord")),
        "circus": (VENV / "bin/circusd", _pip("circus", "circus")),
        "pm2": (PM2, _npm("pm2")),
    }
    found = {name for name, (file, command) in wanted.items() if file.exists() or _done(command)}
    shutil.rmtree(_NPM_CACHE, ignore_errors=True)
    return frozenset(found)


def node_version() -> str:
    """What pm2 runs on."""
    return subprocess.run(
        ["node", "--version"], check=True, timeout=10, capture_output=True, text=True
    ).stdout.strip()  # fmt: skip


def _pip(package: str, name: str) -> Sequence[str]:
    options = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "20"]
    return [str(VENV / "bin/python"), "-m", "pip", "install", *options, f"{package}=={VERSIONS[name]}"]


def _npm(name: str) -> Sequence[str]:
    options = ["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--loglevel=error"]
    patience = ["--fetch-retries=1", "--fetch-timeout=20000"]
    places = ["--prefix", str(VENV / name), "--cache", str(_NPM_CACHE)]
    return ["npm", "install", *options, *patience, *places, f"{name}@{VERSIONS[name]}"]


def _done(command: Sequence[str]) -> bool:
    print(f"getting {command[-1]} (once) …", file=sys.stderr, flush=True)
    try:
        subprocess.run(
            command, check=True, timeout=INSTALL_S, cwd="/", stdin=subprocess.DEVNULL, capture_output=True
        )
    except (OSError, subprocess.SubprocessError) as fault:
        print(f"{command[-1]} cannot be installed: {_why(fault)}", file=sys.stderr)
        return False
    return True


def _why(fault: Exception) -> str:
    said = getattr(fault, "stderr", None) or b""
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if "error" in line.lower()]
    return (lines or [str(fault)])[0][:300]

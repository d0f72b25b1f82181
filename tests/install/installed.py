"""Install ralphd in each way that docs/install.md describes, in a home of its own; `make test-install`."""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ralphd import __version__
from tests import release
from tests.helpers import wait_for
from tests.pages import DOCS, ROOT, fences_of

LOOK = "which -a python3 pip pytest ralphctl; echo env=$VIRTUAL_ENV; exec sleep 1000"
OTHER = "#!/bin/sh\necho another ralph\n"
PYTHON = sys.base_prefix + "/bin/python3"


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pipx and uv are."""
    place = tmp_path_factory.mktemp("tools")
    subprocess.run([PYTHON, "-m", "venv", str(place)], check=True)
    subprocess.run([str(place / "bin" / "pip"), "install", "--quiet", "pipx", "uv"], check=True)
    return place / "bin"


@dataclass(slots=True)
class Home:
    """A home directory; ``bin`` is the directory in which the installed commands are."""

    root: Path
    tools: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def bin(self) -> Path:
        return self.root / ".local" / "bin"

    def __call__(self, *words: str, first: str = "", fails: bool = False) -> str:
        """Run a command, with ``first`` at the beginning of PATH; return its output."""
        kept = {name: text for name, text in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        path = os.pathsep.join([*([first] if first else []), str(self.bin), "/usr/local/bin:/usr/bin:/bin"])
        done = subprocess.run(
            words,
            env={**kept, "HOME": str(self.root), "PATH": path, "UV_PYTHON": PYTHON, **self.more},
            cwd=self.root, timeout=600, check=False,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert bool(done.returncode) is fails, done.stdout
        return done.stdout


@pytest.fixture
def home(tmp_path: Path, tools: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home", tools)
    home.bin.mkdir(parents=True)
    yield home
    shutil.rmtree(tmp_path / "home")


def install(home: Home, way: str, *, again: bool = False) -> None:
    """Install ralphd, or ``again`` upgrade it to the same version, as docs/install.md says."""
    match way:
        case "pipx":
            home(str(home.tools / "pipx"), "install", *(["--force"] if again else []), str(ROOT))
        case "uv":
            home(str(home.tools / "uv"), "tool", "install", *(["--reinstall"] if again else []), str(ROOT))
        case "make":
            home("make", "-C", str(ROOT), "install", f"PYTHON={PYTHON}")
        case "wheel":
            home(PYTHON, "-m", "venv", "env")
            home("env/bin/pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", str(ROOT))
            [wheel] = (home.root / "dist").glob("*.whl")
            assert __version__ in wheel.name
            home("env/bin/pip", "install", "--quiet", *(["--force-reinstall"] if again else []), str(wheel))


def commands_of(home: Home, way: str) -> Path:
    return home.root / "env" / "bin" if way == "wheel" else home.bin


WAYS = pytest.mark.parametrize("way", ["pipx", "uv", "make", "wheel"])


@WAYS
def test_it_works_hides_its_python_from_runs_and_an_upgrade_leaves_them_alone(home: Home, way: str) -> None:
    install(home, way)
    folder = commands_of(home, way)
    for name in ("ralphd", "ralphctl", "ralph"):
        assert home(str(folder / name), "--version").split()[-1] == __version__
    venv = (folder / "ralphd").resolve().parent.parent
    metadata = "import importlib.metadata as m; print(m.version('ralphd'))"
    assert home(str(venv / "bin" / "python3"), "-c", metadata).strip() == __version__
    first, ralphctl = str(venv / "bin"), str(folder / "ralphctl")  # as in an activated environment
    home.more["VIRTUAL_ENV"] = str(venv)
    (home.root / "project").mkdir()
    home(ralphctl, "start", "project", "--", "sh", "-c", LOOK, first=first)
    try:
        wait_for(lambda: "env=" in home(ralphctl, "logs", "project"), timeout_s=30, what="the run's output")
        seen = home(ralphctl, "logs", "project", first=first)
        assert str(venv) not in seen
        assert f"{home.root}/.local/state/ralphd/bin/ralphctl" in seen
        before = pid_of(home, ralphctl)

        install(home, way, again=True)
        home(ralphctl, "regent", "restart", first=first)

        assert pid_of(home, ralphctl) == before
    finally:
        home(ralphctl, "regent", "stop", "--now")


def pid_of(home: Home, ralphctl: str) -> str:
    """The line of `status` with the pid of the run."""
    words = home(ralphctl, "status", "project").split()
    return words[words.index("(pid") + 1]


@WAYS
def test_another_program_called_ralph_is_left_alone(home: Home, way: str) -> None:
    other = home.bin / "ralph"
    other.write_text(OTHER)
    other.chmod(0o755)
    if way == "uv":  # it refuses to install beside another program of that name
        home.more["UV_TOOL_BIN_DIR"] = str(home.root / "ralphd-bin")

    install(home, way)

    assert home("ralph") == "another ralph\n"
    folder = home.root / "ralphd-bin" if way == "uv" else commands_of(home, way)
    assert home(str(folder / "ralphctl"), "--version").split()[-1] == __version__


def test_make_uninstall_leaves_nothing_of_make_install(home: Home) -> None:
    install(home, "make")
    (home.bin / "ralph").unlink()
    (home.bin / "ralph").write_text(OTHER)
    home("ralphctl", "regent", "start")
    assert "ralphctl regent stop" in home("make", "-C", str(ROOT), "uninstall", fails=True)
    home("ralphctl", "regent", "stop")

    home("make", "-C", str(ROOT), "uninstall")

    files = {str(each.relative_to(home.root)) for each in home.root.rglob("*") if not each.is_dir()}
    assert {name for name in files if not name.startswith((".local/state", ".cache", ".rustup"))} == {
        ".local/bin/ralph"
    }


def test_make_installs_the_packages_of_extras_by_hash(home: Home) -> None:
    make = ("make", "-C", str(ROOT), "install", f"PYTHON={PYTHON}")
    assert "the extras are " in home(*make, "EXTRAS=tui mpc", fails=True)
    assert not (home.bin / "ralphctl").exists()
    home(*make)
    assert "make install EXTRAS=mcp" in home("ralphctl", "mcp", fails=True)

    home(*make, "EXTRAS=tui mcp")

    python = str((home.bin / "ralphd").resolve().with_name("python"))
    home(python, "-c", "import mcp, textual, nats, cryptography")
    home(python, "-m", "pip", "check")
    home("sh", "-c", "ralphctl mcp < /dev/null")


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    """The directory in which the sdist and the wheel of a release are."""
    for name, content in release.build_twice(tmp_path / "release", epoch=release.last_commit_at()).items():
        (tmp_path / name).write_bytes(content)
    shutil.rmtree(tmp_path / "release")
    return tmp_path


def test_the_wheel_of_a_release_plays_the_first_night(home: Home, archives: Path) -> None:
    pip = ("env/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    home(PYTHON, "-m", "venv", "env")
    home(*pip, "--require-hashes", "-r", str(ROOT / "constraints.txt"))
    home(*pip, "--no-deps", "--no-index", str(archives / release.WHEEL))
    home("env/bin/python", "-m", "pip", "check")
    where = "import ralphctl, ralphd; print(ralphctl.__file__, ralphd.__file__)"
    assert all(str(home.root / "env") in each for each in home("env/bin/python", "-c", where).split())

    told = home("env/bin/ralphctl", "demo")

    assert "✓ 0 processes left: no daemon, no shim, no loop" in told
    assert told.count("✓") > 15
    assert str(ROOT) not in told


def test_the_sdist_of_a_release_installs_by_itself(home: Home, archives: Path) -> None:
    with tarfile.open(archives / release.SDIST) as archive:
        archive.extractall(home.root, filter="data")

    home("make", "-C", release.NAME, "install", f"PYTHON={PYTHON}")

    shutil.rmtree(home.root / release.NAME)
    assert home("ralphctl", "--version").split()[-1] == __version__
    (home.root / "project").mkdir()
    assert "ralph.toml" in home("ralphctl", "init", "--yes", "project")


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed here")
def test_the_bubblewrap_recipe_hides_the_home_and_keeps_the_project(home: Home) -> None:
    install(home, "make")
    (home.root / "secret").touch()
    project = home.root / "project"
    project.mkdir()
    [recipe] = [each.text for each in fences_of(DOCS / "container.md", "bash") if "bwrap" in each.text]
    look = "sh -c 'ls -A ~ > seen; ralphctl --version >> seen'"

    home("sh", "-c", f"cd project && {recipe.rstrip()} -- {look}")

    seen = (project / "seen").read_text().split()
    assert "secret" not in seen
    assert {"project", __version__} <= set(seen)

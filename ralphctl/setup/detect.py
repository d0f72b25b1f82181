"""Detect what a working directory holds: agents on PATH, test commands, the task list, the state of git.

Nothing of the project is run. An agent may have written every file here: a read is bounded in bytes, opens
regular files only and never leaves the directory, and what cannot be read counts as absent.
"""

import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ralphctl.format.output import clean, message
from ralphctl.offline import state as offline
from ralphctl.offline.processes import ask
from ralphd.core.gate.weakened import TEST_FILES, is_protected
from ralphd.core.plan import AUTO, HEADED_LISTS, LISTS, Plan, has_task_headings, parse
from ralphd.errors import DirectoryUnusable, RalphdError, UsageError
from ralphd.git import repo

_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}(?:-[0-9A-Za-z.-]{1,24})?")

_SWITCH_LIMIT_S = 120.0

_MOST_PATHS = 20_000
_TEST_SCRIPT = re.compile(r"(.+/)?(tests?|specs?|e2e)/(?:.*/)?[^/]+(\.(?:[cm]?[jt]s|[jt]sx|sh|t))", re.DOTALL)
_PYTEST_TOML = ("tool", "pytest", "ini_options", "python_files")
_PYTHON_FILES = re.compile(r"(?m)^python_files[ \t]*=((?:.*\n?)(?:[ \t]+.*\n?)*)")

_NODE_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun", "bun.lockb": "bun"}
_NODE_TESTS = {"npm": "npm test", "pnpm": "pnpm test", "yarn": "yarn test", "bun": "bun run test"}
_PYTHON_LOCKS = {"uv.lock": "uv", "poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}


class DetectedAgent(NamedTuple):
    """An installed agent. ``version`` is empty if it printed none in time."""

    name: str
    program: str
    version: str


class DetectedTests(NamedTuple):
    """A test command for ``/bin/sh -c``, the file that suggests it, and why it would not work (``fault``)."""

    command: str
    source: str
    fault: str = ""


class DetectedGit(NamedTuple):
    """The repository around a directory. With a ``fault`` there is none to work with; the rest is empty then.

    ``root`` is the top of the work tree, ``branch`` is None for a detached HEAD.
    """

    fault: str = ""
    mend: str = ""
    root: str = ""
    branch: str | None = None
    has_commit: bool = False
    upstream: str = ""
    has_identity: bool = False


def detect_agents(environ: Mapping[str, str], *, limit_s: float = 5.0) -> tuple[DetectedAgent, ...]:
    """Return the known agents whose program is on PATH, preferred ones first.

    All are run with ``--version`` at once, for at most ``limit_s``; after a second a message says so.
    """
    # Late: the descriptions of agents load pydantic, and the report wants the task list alone.
    from ralphd.agents.agent import QUIET
    from ralphd.agents.known import KNOWN, agent_of
    from ralphd.config.specs import AgentSpec

    def version_of(program: str) -> str:
        reply = ask([program, "--version"], {**environ, **QUIET}, limit_s)
        match = _VERSION.search(reply.text) if reply is not None else None
        return match[0] if match else ""

    names = {name: agent_of(name, AgentSpec(), outside=environ).program for name in KNOWN}
    paths = {name: shutil.which(each, path=environ.get("PATH", os.defpath)) for name, each in names.items()}
    programs = {name: os.path.abspath(path) for name, path in paths.items() if path}  # noqa: PTH100
    with ThreadPoolExecutor(max_workers=len(programs) or 1) as pool:
        versions = {name: pool.submit(version_of, program) for name, program in programs.items()}
        if wait(versions.values(), timeout=1.0).not_done:
            message(f"asking the agents for their versions ({limit_s:.0f} s at most) ...")
        return tuple(DetectedAgent(name, programs[name], each.result()) for name, each in versions.items())


def detect_git(directory: Path, environ: Mapping[str, str]) -> DetectedGit:
    """Ask git, by commands that take no lock and run nothing of the repository. Block for some seconds."""

    def git(*words: str) -> str:
        return repo.printable(repo.line(directory, *words) or "").strip()

    if shutil.which("git") is None:
        return DetectedGit("git is not installed", "install git")
    root = git("rev-parse", "--show-toplevel")
    if not root and git("rev-parse", "--is-bare-repository") == "true":
        return DetectedGit("a bare git repository", f"git clone {shlex.quote(str(directory))} DIR")
    if not root and repo.Repository.find(directory) is None:
        return DetectedGit("not a git repository", "git init")
    if not root:
        return DetectedGit("git does not read the repository here", "git status")
    current = repo.head(directory) or repo.Head(None, None)
    upstream = git("rev-parse", "--abbrev-ref", "--symbolic-full-name", "@{upstream}")
    identity = (  # the name that git would derive from the machine does not count
        (environ.get(f"GIT_AUTHOR_{part}") and environ.get(f"GIT_COMMITTER_{part}"))
        or git("config", "--get", f"user.{part.lower()}")
        for part in ("NAME", "EMAIL")
    )
    return DetectedGit("", "", root, current.branch, bool(current.commit), upstream, all(identity))


@contextmanager
def on_branch(directory: Path, branch: str) -> Iterator[None]:
    """Switch to ``branch``, created at HEAD if there is none; switch back if the block raises a refusal.

    Git refuses to overwrite changed, untracked and ignored files; other changes stay as they are. Hooks are
    off. Raise UsageError, or DirectoryUnusable where git refuses: then nothing was changed. A daemon that was
    lost is no refusal: its loop may be at work.
    """

    def git(*words: str) -> bool:
        return (repo.answer(directory, *words, limit_s=_SWITCH_LIMIT_S) or (1, b""))[0] == 0

    if shutil.which("git") is None:
        raise DirectoryUnusable("git is not installed", mend="install git, or no --branch")
    if repo.Repository.find(directory) is None:
        raise DirectoryUnusable(f"{directory} is not in a git repository", mend="git init, or no --branch")
    was = repo.head(directory) or repo.Head(None, None)
    new = not git("show-ref", "--verify", f"refs/heads/{branch}")
    tag = new and git("show-ref", "--verify", f"refs/tags/{branch}")
    is_odd = re.fullmatch(r"@|refs/.*|[0-9a-f]{40}|[0-9a-f]{64}", branch)
    if tag or is_odd or repo.line(directory, "check-ref-format", "--branch", branch) != branch:
        raise UsageError(f"{branch!r} is {'a tag' if tag else 'not a valid branch name'}")
    if was.branch == branch:
        yield
        return
    if not git("switch", "--no-guess", "--no-overwrite-ignore", *(("--create",) if new else ()), branch):
        why_not = "changed or untracked files would be overwritten, or the branch is in use elsewhere"
        mend = f"git -C {shlex.quote(str(directory))} switch {shlex.quote(branch)}  (shows the reason)"
        raise DirectoryUnusable(f"git cannot switch to branch {branch}", why=why_not, mend=mend)
    old = was.branch or "a detached HEAD"
    message(clean(f"switched to the {'new ' if new else ''}branch {branch} (was {old})"))
    try:
        yield
    except RalphdError as fault:
        back = ["checkout", "--no-overwrite-ignore", str(was.branch or was.commit), "--"]
        back = back if was.commit else ["symbolic-ref", "HEAD", f"refs/heads/{old}"]
        if fault.status < 500 and git(*back):
            message(clean(f"switched back to {old}"))
            _ = new and git("branch", "--delete", branch)
        raise


def task_list(directory: Path, tasks: str) -> Plan | None:
    """Return the task list that the loop would use (L1), if any. ``tasks`` is a file or ``auto``."""
    if tasks != AUTO:
        text = _read(directory, tasks)
        return Plan(tasks, fault=f"{tasks} cannot be read") if text is None else parse(tasks, text)
    for name in (*LISTS, *HEADED_LISTS):
        text = _read(directory, name)
        if text is not None and (name in LISTS or has_task_headings(text)):
            return parse(name, text)
    return None


def detect_tests(directory: Path, path: str) -> tuple[DetectedTests, ...]:
    """Return every test command that the files suggest, best first, unusable ones last.

    The rules are in ``test_commands.toml``. ``path`` is where programs are looked up.
    """
    own = _own_commands(directory)
    suggested: dict[str, DetectedTests] = {}
    for rule in tomllib.loads((Path(__file__).parent / "test_commands.toml").read_text())["rule"]:
        for name, text in _applies_to(rule, directory):
            command = rule["command"].format(file=name, **own)
            if command in suggested or rule.get("without") in suggested:
                continue
            program = command.split()[0]
            is_path = "/" in program
            usable = os.access(directory / program, os.X_OK) if is_path else shutil.which(program, path=path)
            fault = "" if usable else f"{program} is not {'there' if is_path else 'on PATH'}"
            fault = rule["fault"] if "bad" in rule and re.search(rule["bad"], text) else fault
            source = rule.get("source", "{file}").format(file=name)
            suggested[command] = DetectedTests(command, source, fault)
    return tuple(sorted(suggested.values(), key=lambda tests: bool(tests.fault)))


def detect_protect(directory: Path) -> tuple[str, ...]:
    """Return the patterns of the test files; empty where the usual names cover them, or without git.

    Two kinds of files have other names: those that pytest's configuration names, and scripts in a folder of
    tests, as ``node --test``, mocha and shell scripts have them.
    """
    code, output = repo.answer(directory, "ls-files", "-z", "--full-name") or (1, b"")
    paths = output.decode(errors="replace").split("\0")[:-1][:_MOST_PATHS] if code == 0 else []
    others = [path for path in paths if not is_protected(path, ())]
    named = _python_files(directory)
    wanted = [pattern for pattern in named if any(is_protected(path, [pattern]) for path in others)]
    for path in others:
        if folder := _TEST_SCRIPT.fullmatch(path):
            wanted.append(f"{'*/' if folder[1] else ''}{folder[2]}/*{folder[3]}")
    usual = [pattern for pattern in TEST_FILES if any(is_protected(path, [pattern]) for path in paths)]
    return tuple(dict.fromkeys((*usual, *wanted))) if wanted else ()


def _python_files(directory: Path) -> list[str]:
    """Return the names of test files that pytest's configuration sets."""
    values = [_value("x.toml", _read(directory, "pyproject.toml") or "", *_PYTEST_TOML)]
    texts = (_read(directory, name) or "" for name in ("pytest.ini", "tox.ini", "setup.cfg"))
    values += [match[1] for text in texts if (match := _PYTHON_FILES.search(text))]
    lists = (value if isinstance(value, list) else str(value or "").split() for value in values)
    return [each for words in lists for each in words if isinstance(each, str)]


def _applies_to(rule: Mapping[str, Any], directory: Path) -> Iterator[tuple[str, str]]:
    """Yield each file that a rule applies to, with the text that its patterns are for."""
    names = [name for pattern in rule["files"] for name in _glob(directory, pattern)]
    if "beside" in rule and not any(_glob(directory, pattern) for pattern in rule["beside"]):
        return
    for name in names[:1] if "first" in rule else names:
        text = _read(directory, name) or ""
        if "key" in rule:
            value = _value(name, text, *rule["key"])
            text = "" if value is None else str(value)
        is_match = re.search(rule.get("pattern", ""), text, re.MULTILINE) and ("key" not in rule or text)
        is_excluded = "unless" in rule and re.search(rule["unless"], text)
        if is_match and not is_excluded and ("executable" not in rule or _is_executable(directory / name)):
            yield name, text


def _own_commands(directory: Path) -> dict[str, str]:
    """Return what the placeholders of the rules stand for in this project."""
    package = _read(directory, "package.json") or ""
    manager = str(_value("package.json", package, "packageManager") or "").split("@")[0]  # pnpm@9.1.0
    if manager not in _NODE_TESTS:
        manager = next((each for name, each in _NODE_LOCKS.items() if (directory / name).exists()), "npm")
    lock = next((each for name, each in _PYTHON_LOCKS.items() if (directory / name).exists()), "")
    venvs = [name for name in (".venv", "venv") if _is_executable(directory / name / "bin" / "python")]
    python = f"{lock} run" if lock else f"{venvs[0]}/bin/python -m" if venvs else "python3 -m"
    return {"node": _NODE_TESTS[manager], "pytest": f"{python} pytest"}


def _glob(directory: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.glob(pattern))


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _value(name: str, text: str, *keys: str) -> Any:
    try:
        value = tomllib.loads(text) if name.endswith(".toml") else json.loads(text)
    except (ValueError, RecursionError):
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _read(directory: Path, name: str) -> str | None:
    try:
        root = directory.resolve(strict=True)
        real = (root / name).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # a null byte in the name; a loop of links
        return None
    data = offline.read_bytes(real) if real.is_relative_to(root) else None
    return None if data is None else data.decode("utf-8-sig", errors="replace")

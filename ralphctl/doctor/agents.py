"""Checks of what a ralph works with: agents and their logins, git, repository and configuration.

Whether an agent is logged in is asked of its own command only, and of the answer only yes or no is shown: the
rest may be an address or a key.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from ralphctl.doctor import runner
from ralphctl.doctor.runner import Check, CheckResult, ProgramOutput, Results, failed, ok, unknown, warning
from ralphctl.format.humanize import count
from ralphd.agents import known
from ralphd.agents.agent import Agent, Cli, LaunchSpec
from ralphd.agents.known import login_command
from ralphd.config.configuration import Configuration, load
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME
from ralphd.errors import RalphdError
from ralphd.git import diagnostics, repo
from ralphd.git.repo import Repository

_GIT = (2, 30)
"""``diagnostics`` reports what the guard needs beyond that."""


LOGINS: Mapping[str, tuple[str, ...]] = {
    "claude": ("claude auth status", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "codex": ("codex login status", "CODEX_API_KEY", "OPENAI_API_KEY"),
    "cursor": ("cursor-agent status", "CURSOR_API_KEY"),
    "kiro": ("kiro-cli whoami", "KIRO_API_KEY"),
}
"""The command that reports the login, and the variables with which the agent works without one.

The login of any other agent is not known.
"""
_FIELD = re.compile(r'"loggedin"\s*:\s*(true|false)')
_LOGGED_IN = re.compile(r"\b(?:logged in|authenticated)\b")
_NOT_LOGGED_IN = re.compile(r"\bnot (?:logged in|authenticated)\b")
Loaded: TypeAlias = Configuration | RalphdError


def loaded(directory: Path, environ: Mapping[str, str]) -> Loaded:
    try:
        return load(directory, environ=environ)
    except RalphdError as fault:
        return fault


def agent_checks(loaded: Loaded, environ: Mapping[str, str], limit_s: float) -> Sequence[Check]:
    """Return the checks of each agent that is on PATH or that the configuration names."""
    configuration = loaded if isinstance(loaded, Configuration) else Configuration()
    wanted, named = _wanted(configuration), configuration.agents.named
    aliases = {known.known_as(name) for name in wanted}
    names = [*wanted, *(name for name in known.KNOWN if name not in aliases)]
    try:
        agents = [known.agent_of(name, known.spec_of(name, named), outside=environ) for name in names]
    except RalphdError as fault:
        result = failed("\n".join([fault.what, *fault.why.splitlines()]), fault.mend)
        return [Check("agents", lambda: result)]
    checks = [
        check
        for name, agent in zip(names, agents, strict=True)
        if name in wanted or known.missing_program(agent, environ) is None
        for check in _checks_of(agent, wanted[0] if wanted else "", environ, limit_s)
    ]
    none = f"none of those that ralphd knows is on PATH ({', '.join(known.KNOWN)})"
    install = "npm install -g @anthropic-ai/claude-code, or another"
    return checks or [Check("agents", lambda: warning(none, install))]


def _wanted(configuration: Configuration) -> tuple[str, ...]:
    """Return the agents that the built-in loop would use, if one is configured."""
    is_configured = any(each not in (DEFAULT, DIRECTORYS_NAME) for each in configuration.origins.values())
    if configuration.ralph.command or not is_configured:
        return ()
    agents = configuration.agents
    return (agents.primary, *known.fallback_chain(agents.primary, agents.fallback, agents.named))


def _checks_of(agent: Agent, primary: str, environ: Mapping[str, str], limit_s: float) -> Sequence[Check]:
    path = shutil.which(agent.program, path=environ.get("PATH"))
    if path is None:
        fault = known.missing_program(agent, environ) or f"{agent.program} cannot be found"
        text, _, install = fault.partition("; ")
        missing = (failed if agent.name == primary else warning)(text, install or "ralphctl config show")
        return [Check(f"agent {agent.name}", lambda: missing)]
    program = str(Path(path).absolute())
    if not (isinstance(agent, Cli) and agent.description.program == agent.program):
        return [Check(f"agent {agent.name}", lambda: ok(f"{program}, a command of yours"))]
    environment = {**environ, **agent.launch(LaunchSpec("", Path("/dev/null"))).environment}
    return [
        Check(f"agent {agent.name}", lambda: ok(program)),
        Check(f"login {agent.name}", lambda: _login(agent.name, program, environment, limit_s)),
    ]


def _login(name: str, program: str, environment: Mapping[str, str], limit_s: float) -> CheckResult:
    agent = known.known_as(name) or ""
    if agent not in LOGINS:
        return unknown(f"{agent} has no command that tells; its first attempt will")
    command, *keys = LOGINS[agent]
    answer = runner.ask([program, *command.split()[1:]], environment, limit_s)
    return login_result(name, command, answer, [key for key in keys if environment.get(key)])


def login_result(name: str, command: str, answer: ProgramOutput | None, keys: Sequence[str]) -> CheckResult:
    """Judge an agent's answer; ``keys`` are those of its variables that are set."""
    if answer is None or answer.code is None:
        return unknown(f"{command} did not answer in time", command)
    text = answer.text.lower()
    field = _FIELD.search(text)  # of a JSON object: counts for more than words around it
    if field[1] == "false" if field else _NOT_LOGGED_IN.search(text):
        if keys:
            return unknown(f"not logged in, but {keys[0]} is set: the first attempt shows whether it is good")
        return warning(f"not logged in, says {command}", login_command(name) or "")
    if field or (answer.code == 0 and _LOGGED_IN.search(text)):
        return ok(f"logged in, says {command}")
    return unknown(f"{command} does not tell it clearly", command)


def git(environ: Mapping[str, str], limit_s: float) -> CheckResult:
    path = shutil.which("git", path=environ.get("PATH"))
    if path is None:
        return warning("not on PATH: no guard, no snapshots, no agent that commits", "apt install git")
    answer = repo.answer(Path("/"), "version", limit_s=limit_s)
    version = re.search(r"(\d+)\.(\d+)[\w.]*", answer[1].decode(errors="replace")) if answer else None
    if version is None:
        return failed(f"{path} does not say its version", f"{path} version")
    if (int(version[1]), int(version[2])) < _GIT:
        return warning(f"{version[0]}, older than {_GIT[0]}.{_GIT[1]}", "update git")
    return ok(version[0])


def repository(directory: Path, environ: Mapping[str, str], limit_s: float) -> Results:
    """Check git's settings here, and what the guard cannot do. Names and addresses are not shown."""
    if Repository.find(directory) is None:
        return ok(f"none: {directory} is in no work tree, so there is no guard")
    if shutil.which("git", path=environ.get("PATH")) is None:
        return ()
    if faults := diagnostics.unsupported(directory):
        return [warning(line, "docs/guard.md says what works") for line in faults]

    def output(*words: str) -> bytes:
        answer = repo.answer(directory, *words, limit_s=limit_s)
        return answer[1].strip() if answer is not None and answer[0] == 0 else b""

    missing = [key for key in ("user.name", "user.email") if not output("config", "--get", key)]
    if missing:
        advice = "\n".join(f'git config --global {key} "{key.partition(".")[2].upper()}"' for key in missing)
        return warning(f"{' and '.join(missing)} not set: an agent that commits here fails", advice)
    has_upstream = output("rev-parse", "--abbrev-ref", "@{upstream}")
    upstream = "with an upstream" if has_upstream else "no upstream: nothing is pulled or pushed"
    return ok(f"name and address are set; {upstream}")


def configuration(loaded: Loaded) -> CheckResult:
    if isinstance(loaded, RalphdError):
        text = "\n".join([loaded.what, *loaded.why.splitlines()])
        return failed(text, loaded.mend or "ralphctl config check")
    if idle := loaded.not_built_yet():
        text = f"no faults, but {count(len(idle), 'key')} without effect: {', '.join(idle)}"
        return warning(text, "ralphctl config check")
    return ok("no faults")

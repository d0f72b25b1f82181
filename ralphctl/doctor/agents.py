"""Checks of what a ralph works with: agents and their logins, git, repository and configuration.

Whether an agent is logged in is asked of its own command only, and of the answer only yes or no is shown: the
rest may be an address or a key.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ralphctl.doctor.runner import Check, CheckResult, Results, failed, fault_result, ok, unknown, warning
from ralphctl.offline.processes import ProgramOutput, ask
from ralphd.agents import known
from ralphd.agents.agent import Agent, Cli, LaunchSpec
from ralphd.agents.identity import with_account
from ralphd.config.configuration import Configuration, load
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME
from ralphd.errors import RalphdError
from ralphd.git import diagnostics, repo

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


def agent_checks(configuration: Configuration, environ: Mapping[str, str], limit_s: float) -> Sequence[Check]:
    """Return the checks of each agent that is on PATH or that the configuration names."""
    agents, named = configuration.agents, configuration.agents.named
    is_configured = any(each not in (DEFAULT, DIRECTORYS_NAME) for each in configuration.origins.values())
    has_loop = is_configured and not configuration.ralph.command
    chain = (agents.primary, *known.fallback_chain(agents.primary, agents.fallback, named))
    wanted = chain if has_loop else ()
    aliases = {known.known_as(name) for name in wanted}
    checks: list[Check] = []
    try:
        for name in (*wanted, *(name for name in known.KNOWN if name not in aliases)):
            spec = with_account(name, known.spec_of(name, named), configuration.accounts.named)
            agent = known.agent_of(name, spec, outside=environ)
            if name in wanted or known.missing_program(agent, environ) is None:
                checks += _checks_of(agent, wanted[0] if wanted else "", environ, limit_s)
    except RalphdError as fault:
        result = fault_result(fault)
        return [Check("agents", lambda: result)]
    none = f"no known agent is on PATH ({', '.join(known.KNOWN)})"
    install = "npm install -g @anthropic-ai/claude-code, or another"
    return checks or [Check("agents", lambda: warning(none, install))]


def _checks_of(agent: Agent, primary: str, environ: Mapping[str, str], limit_s: float) -> Sequence[Check]:
    if fault := known.missing_program(agent, environ):
        text, _, install = fault.partition("; ")
        missing = (failed if agent.name == primary else warning)(text, install or "ralphctl config show")
        return [Check(f"agent {agent.name}", lambda: missing)]
    program = str(Path(shutil.which(agent.program, path=environ.get("PATH")) or agent.program).absolute())
    if not (isinstance(agent, Cli) and agent.description.program == agent.program):
        return [Check(f"agent {agent.name}", lambda: ok(f"{program}, your own command"))]
    environment = {**environ, **agent.launch(LaunchSpec("", Path("/dev/null"))).environment}
    login = Check(f"login {agent.name}", lambda: _login(agent.name, program, environment, limit_s))
    return [Check(f"agent {agent.name}", lambda: ok(program)), login]


def _login(name: str, program: str, environment: Mapping[str, str], limit_s: float) -> CheckResult:
    agent = known.known_as(name) or ""
    if agent not in LOGINS:
        return unknown(f"{agent} has no command that reports its login; the first attempt will show it")
    command, *keys = LOGINS[agent]
    answer = ask([program, *command.split()[1:]], environment, limit_s)
    return login_result(name, command, answer, [key for key in keys if environment.get(key)])


def login_result(name: str, command: str, answer: ProgramOutput | None, keys: Sequence[str]) -> CheckResult:
    """Judge an agent's answer; ``keys`` are those of its variables that are set."""
    if answer is None or answer.code is None:
        return unknown(f"{command} did not answer in time", command)
    text = answer.text.lower()
    field = _FIELD.search(text)  # of a JSON object: counts for more than words around it
    if field[1] == "false" if field else _NOT_LOGGED_IN.search(text):
        if keys:
            text = f"not logged in, but {keys[0]} is set: the first attempt will show whether it works"
            return unknown(text)
        return warning(f"not logged in, according to {command}", known.login_command(name) or "")
    if field or (answer.code == 0 and _LOGGED_IN.search(text)):
        return ok(f"logged in, according to {command}")
    return unknown(f"the answer of {command} is not clear", command)


def git(environ: Mapping[str, str]) -> CheckResult:
    if (path := shutil.which("git", path=environ.get("PATH"))) is None:
        return warning("not on PATH: ralphd cannot run the test guard or take snapshots", "apt install git")
    version = re.search(r"(\d+)\.(\d+)[\w.]*", repo.line(Path("/"), "version") or "")
    if version is None:
        return failed(f"{path} does not print its version", f"{path} version")
    if (int(version[1]), int(version[2])) < (2, 34):  # what the guard needs beyond that: ``diagnostics``
        return warning(f"{version[0]}, older than 2.34", "update git")
    return ok(version[0])


def repository(directory: Path, environ: Mapping[str, str], limit_s: float) -> Results:
    """Check git's settings here, and what the guard cannot do. Names and addresses are not shown."""
    if repo.Repository.find(directory) is None:
        return ok(f"none: {directory} is not in a git work tree, so there is no test guard")
    if shutil.which("git", path=environ.get("PATH")) is None:
        return ()
    if faults := diagnostics.unsupported(directory):
        return [warning(line, "read docs/guard.md, Limitations") for line in faults]

    def output(*words: str) -> bytes:
        answer = repo.answer(directory, *words, limit_s=limit_s)
        return answer[1].strip() if answer is not None and answer[0] == 0 else b""

    def is_set(part: str) -> bool:  # as git asks, and init
        variables = (environ.get(f"GIT_{who}_{part.upper()}") for who in ("AUTHOR", "COMMITTER"))
        return all(variables) or bool(output("config", "--get", f"user.{part}"))

    if missing := [f"user.{part}" for part in ("name", "email") if not is_set(part)]:
        advice = "\n".join(f'git config --global {key} "{key.partition(".")[2].upper()}"' for key in missing)
        return warning(f"{' and '.join(missing)} not set: agents cannot commit here", advice)
    has_upstream = output("rev-parse", "--abbrev-ref", "@{upstream}")
    upstream = "the branch has an upstream" if has_upstream else "no upstream: nothing is pulled or pushed"
    return ok(f"user.name and user.email are set; {upstream}")


def configured(directory: Path, environ: Mapping[str, str]) -> tuple[Configuration, CheckResult]:
    """Return the configuration in force, without any of it if it cannot be read, and its check's result."""
    configuration = Configuration()
    try:
        configuration = load(directory, environ=environ)
        configuration.check_guard()
    except RalphdError as fault:
        return configuration, fault_result(fault, "ralphctl config check")
    return configuration, ok("no errors")

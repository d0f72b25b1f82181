"""The agents: which are there, in which version, and whether they say that they are logged in.

A login is asked for by the agent's own command and by nothing else, and of what that prints only yes or no
is told: the rest may be an address or a key.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ralphctl.local.doctor.findings import Finding, Level
from ralphctl.local.doctor.programs import Answer, ask
from ralphctl.local.doctor.rounds import Check
from ralphd.agents import known
from ralphd.agents.agent import Agent, Cli, LaunchSpec
from ralphd.agents.known import login_command
from ralphd.config.configuration import Configuration
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME
from ralphd.config.specs import AgentSpec
from ralphd.errors import RalphdError

_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+(?:[-+][0-9A-Za-z.]{1,20})?)")


@dataclass(frozen=True, slots=True)
class Login:
    """How an agent is asked, as a person would type it, and how its answer is read.

    ``keys`` are the variables by which it works without a login, which its answer may not tell of.
    """

    asked: str
    read: Callable[[Answer], bool | None]
    keys: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """What follows the program's name."""
        return self.asked.split()[1:]


def _json_logged_in(answer: Answer) -> bool | None:
    """The ``loggedIn`` of an object; None where there is none."""
    try:
        said = json.loads(answer.text[answer.text.index("{") :])
    except ValueError:
        return None
    told = said.get("loggedIn") if isinstance(said, dict) else None
    return told if isinstance(told, bool) else None


def _in_words(answer: Answer) -> bool | None:
    """``Logged in …`` with exit 0, or ``Not logged in``."""
    said = answer.text.lower()
    if re.search(r"\bnot (logged in|authenticated)\b", said):
        return False
    return True if answer.code == 0 and re.search(r"\b(logged in|authenticated)\b", said) else None


LOGINS: Mapping[str, Login] = {
    "claude": Login("claude auth status", _json_logged_in, ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")),
    "codex": Login("codex login status", _in_words, ("CODEX_API_KEY", "OPENAI_API_KEY")),
    "cursor": Login("cursor-agent status", _in_words, ("CURSOR_API_KEY",)),
    "kiro": Login("kiro-cli whoami", _in_words, ("KIRO_API_KEY",)),
}
"""The agents with a command that tells; of the others it is not known."""


def checks(
    loaded: Configuration | RalphdError, environ: Mapping[str, str], limit_s: float
) -> Sequence[Check]:
    """A look at each agent that is on PATH or that the configuration names."""
    configuration = loaded if isinstance(loaded, Configuration) else Configuration()
    wanted = _wanted(configuration)
    named = configuration.agents.named
    try:
        agents = [known.agent_of(name, known.spec_of(name, named), outside=environ) for name in wanted]
        agents += [
            agent
            for name in known.KNOWN
            if name not in {known.known_as(each) for each in wanted}
            and known.missing_program(agent := _as_known(name, named, environ), environ) is None
        ]
    except RalphdError as fault:
        told = Finding("agents", Level.FAILED, "\n".join([fault.what, *fault.why.splitlines()]), fault.mend)
        return [Check("agents", lambda: [told])]
    if not agents:
        return [Check("agents", _none)]
    return [check for agent in agents for check in _checks_of(agent, wanted, environ, limit_s)]


def _wanted(configuration: Configuration) -> tuple[str, ...]:
    """Whom the built-in loop would ask, where somebody has configured one."""
    is_configured = any(each not in (DEFAULT, DIRECTORYS_NAME) for each in configuration.origins.values())
    if configuration.ralph.command or not is_configured:
        return ()
    agents = configuration.agents
    return (agents.primary, *known.fallback_chain(agents.primary, agents.fallback, agents.named))


def _as_known(name: str, named: Mapping[str, AgentSpec], environ: Mapping[str, str]) -> Agent:
    return known.agent_of(name, known.spec_of(name, named), outside=environ)


def _none() -> Sequence[Finding]:
    found = f"none of those that ralphd knows is on PATH ({', '.join(known.KNOWN)})"
    return [Finding("agents", Level.WARNING, found, "npm install -g @anthropic-ai/claude-code, or another")]


def _checks_of(
    agent: Agent, wanted: Sequence[str], environ: Mapping[str, str], limit_s: float
) -> Sequence[Check]:
    name = f"agent {agent.name}"
    path = shutil.which(agent.program, path=environ.get("PATH"))
    if path is None:
        told = known.missing_program(agent, environ) or f"{agent.program} cannot be found"
        what, _, install = told.partition("; ")
        level = Level.FAILED if agent.name == wanted[0] else Level.WARNING
        missing = Finding(name, level, what, install or "ralphctl config show")
        return [Check(name, lambda: [missing])]
    program = str(Path(path).absolute())
    if not (isinstance(agent, Cli) and agent.ways.program == agent.program):
        own = Finding(name, Level.OK, f"{program}, a command of yours")
        return [Check(name, lambda: [own])]
    around = {**environ, **agent.launch(LaunchSpec("", Path("/dev/null"))).environment}
    login = f"login {agent.name}"
    return [
        Check(name, lambda: [_version(name, program, ask([program, "--version"], around, limit_s))]),
        Check(login, lambda: [_login(login, known.known_as(agent.name) or "", program, around, limit_s)]),
    ]


def _version(name: str, program: str, answer: Answer | None) -> Finding:
    if answer is None:
        return Finding(name, Level.FAILED, f"{program} cannot be started", f"ls -l {program}")
    if answer.code is None:
        return Finding(
            name, Level.UNKNOWN, f"{program} --version did not end in time", f"{program} --version"
        )
    said = _VERSION.search(answer.text)
    if answer.code != 0 or said is None:
        found = f"{program} --version says none, and ends with {answer.code}"
        return Finding(name, Level.WARNING, found, f"{program} --version")
    return Finding(name, Level.OK, f"{said[1]}, {program}")


def _login(name: str, agent: str, program: str, around: Mapping[str, str], limit_s: float) -> Finding:
    login = LOGINS.get(agent)
    if login is None:
        return Finding(name, Level.UNKNOWN, f"{agent} has no command that tells; its first attempt will")
    answer = ask([program, *login.words], around, limit_s)
    return logged_in(name, login, answer, [key for key in login.keys if around.get(key)])


def logged_in(name: str, login: Login, answer: Answer | None, keys: Sequence[str]) -> Finding:
    """What an answer means; ``keys`` are those of its variables that are set."""
    typed = login.asked
    if answer is None or answer.code is None:
        return Finding(name, Level.UNKNOWN, f"{typed} did not answer in time", typed)
    match login.read(answer):
        case True:
            return Finding(name, Level.OK, f"logged in, says {typed}")
        case False if keys:
            found = f"not logged in, but {keys[0]} is set: whether that one is good shows the first attempt"
            return Finding(name, Level.UNKNOWN, found)
        case False:
            mend = login_command(name.removeprefix("login ")) or ""
            return Finding(name, Level.WARNING, f"not logged in, says {typed}", mend)
        case _:
            return Finding(name, Level.UNKNOWN, f"{typed} does not tell it clearly", typed)

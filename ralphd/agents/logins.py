"""How people log in to the agents that ralphd knows, and by what a missing login is known."""

import re
from collections.abc import Mapping
from typing import Final

from ralphd.agents.known import known_as

_COMMANDS: Final[Mapping[str, str]] = {
    "amp": "amp login",
    "claude": "claude auth login",
    "codex": "codex login",
    "copilot": "copilot login",
    "cursor": "cursor-agent login",
    "gemini": "gemini",
    "kiro": "kiro-cli login",
    "opencode": "opencode auth login",
    "qwen": "qwen",
}
"""Of those that have one; `gemini` and `qwen` ask when they are started by hand."""

_NO_LOGIN: Final = re.compile(
    r"log(?:ged)?[ _-]?in\b|unauthori[sz]ed|authenticat|\bauth\b|oauth|api[ _-]?key|access token",
    re.IGNORECASE,
)


def login_command(agent: str) -> str | None:
    """What a person types to log in to the agent of that name; None where ralphd knows of nothing."""
    known = known_as(agent)
    return None if known is None else _COMMANDS.get(known)


def is_no_login(rule: object, why: object) -> bool:
    """Whether an attempt failed for want of a login, by the rule that told its kind and its reason."""
    return _NO_LOGIN.search(f"{rule} {why}") is not None

"""Which account an agent uses (Q1): one named by the user, else one by a stable id of its login.

A login's tokens change, so the id of the account in the file of the login counts, or the path of that file.
Nothing of the file is kept but a digest of the id; of an API key in the environment, a digest as well.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Final

from ralphd.agents.agent import Agent, Cli
from ralphd.config.specs import AccountSpec, AgentSpec
from ralphd.config.values import printable
from ralphd.core.quota.model import AccountRules
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults
from ralphd.plain_files import read_plain

_MAX_LOGIN_BYTES: Final = 16 << 20
_DIGEST_CHARS: Final = 12
AT: Final = "@"


@dataclass(frozen=True, slots=True)
class Account:
    """An account: ``id`` names its clock, ``agent`` is the CLI.

    ``is_stable``: every machine gives the account this id, so that a fleet can share its clock.
    """

    id: str
    agent: str
    rules: AccountRules = field(default_factory=AccountRules)
    is_stable: bool = True


def account_of(
    agent: Agent, accounts: Mapping[str, AccountSpec], environ: Mapping[str, str]
) -> Account | None:
    """Return the account of a member of the pool; None for a command of the user's own without a name.

    ``environ`` is what the agent gets besides its own variables. Reads the file of the login. Blocks.
    """
    base, _, name = agent.name.partition(AT)
    if name:
        spec = accounts[name]
        return Account(f"{base}{AT}{name}", base, AccountRules(spec.slots, spec.keep_free))
    if not isinstance(agent, Cli):
        return None
    environment = {**environ, **agent.description.environment, **agent.spec.env}
    identity = agent.description.identity
    marks = [f"{each}={environment[each]}" for each in identity.keys if environment.get(each)]
    is_stable = True
    if not marks:
        path = _first_path((*identity.files, *agent.description.state), environment)
        stored = _stored_id(path, identity.id)
        marks, is_stable = [stored or str(path)], bool(stored)
    digest = hashlib.sha256("\0".join(marks).encode(errors="replace")).hexdigest()
    return Account(f"{base}-{digest[:_DIGEST_CHARS]}", base, is_stable=is_stable)


def with_account(name: str, spec: AgentSpec, accounts: Mapping[str, AccountSpec]) -> AgentSpec:
    """Return the spec of a member ``AGENT@ACCOUNT`` with the variables of its account.

    Raise ConfigFaults for an account that is not configured, or that belongs to another agent.
    """
    base, at, account = name.partition(AT)
    if not at:
        return spec
    if account not in accounts:
        what = f"{printable(name)!r}: the account {printable(account)!r} is not defined"
        mend = f"define it in your own file, ralph/config.toml: [accounts.{printable(account)}]"
        raise ConfigFaults(what, why=f"configured are: {', '.join(accounts) or 'none'}", mend=mend)
    if (owner := accounts[account].agent) != base:
        mend = f"write {owner}@{account}, or change [accounts.{account}] agent"
        raise ConfigFaults(f"{printable(name)!r}: the account {account} belongs to {owner}", mend=mend)
    variables = {key: os.path.expanduser(value) for key, value in accounts[account].env.items()}  # noqa: PTH111
    return replace(spec, env={**spec.env, **variables})


def _first_path(places: tuple[str, ...], environ: Mapping[str, str]) -> Path:
    """Return the first place whose variable is set, else the first below the home."""
    for place in places:
        first, _, rest = place.partition("/")
        if first.startswith("$") and (start := environ.get(first[1:])):
            return Path(start, rest)
    below = next((each for each in places if each.startswith("~/")), "~/")
    return Path(environ.get("HOME", "/"), below[2:])


def _stored_id(path: Path, place: str) -> str:
    try:
        value: object = json.loads(read_plain(os.path.realpath(path), _MAX_LOGIN_BYTES)) if place else None
    except (OSError, ValueError, RecursionError):
        return ""
    for name in place.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""

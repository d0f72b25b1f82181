"""The account of an agent: named, or by its login, never by what changes with a token (Q1)."""

import json
from pathlib import Path

import pytest

from ralphd.agents.identity import Account, account_of, with_account
from ralphd.agents.known import agent_of, check_names, fallback_chain, spec_of
from ralphd.config.specs import AccountSpec, AgentSpec
from ralphd.core.quota.model import AccountRules
from ralphd.errors import ConfigFaults, UnknownAgent

WORK = AccountSpec(agent="claude", env={"CLAUDE_CONFIG_DIR": "~/.claude-work"}, keep_free=0.1, slots=3)


def account(name: str, home: Path, spec: AgentSpec | None = None, **environ: str) -> Account | None:
    agent = agent_of(name, spec or AgentSpec(), outside={})
    return account_of(agent, {"work": WORK}, {"HOME": str(home), **environ})


def log_in(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_a_named_account_has_its_name_rules_and_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert account("claude@work", tmp_path) == Account("claude@work", "claude", AccountRules(3, 0.1))
    spec = with_account("claude@work", AgentSpec(env={"A": "1"}), {"work": WORK})
    assert spec.env == {"A": "1", "CLAUDE_CONFIG_DIR": f"{tmp_path}/.claude-work"}
    assert agent_of("claude@work", spec, outside={}).program == "claude"


def test_a_login_keeps_its_account_when_its_tokens_change(tmp_path: Path) -> None:
    for agent, file, content in (
        ("claude", ".claude.json", {"oauthAccount": {"accountUuid": "u-1"}}),
        ("codex", ".codex/auth.json", {"tokens": {"account_id": "u-1"}}),
    ):
        log_in(tmp_path / file, content)
        before = account(agent, tmp_path)
        log_in(tmp_path / file, content | {"last_refresh": "later", "secret": "sk-other"})
        assert account(agent, tmp_path) == before
        assert before is not None and before.id.startswith(f"{agent}-") and "u-1" not in before.id
    other = tmp_path / "other"
    log_in(other / ".claude.json", {"oauthAccount": {"accountUuid": "u-1"}})
    assert account("claude", tmp_path, CLAUDE_CONFIG_DIR=str(other)) == account("claude", tmp_path)
    log_in(other / ".claude.json", {"oauthAccount": {"accountUuid": "u-2"}})
    assert account("claude", tmp_path, CLAUDE_CONFIG_DIR=str(other)) != account("claude", tmp_path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"oauthAccount": 1}', '{"oauthAccount": {"accountUuid": 5}}']
)
def test_without_an_id_the_path_of_the_configuration_counts(tmp_path: Path, content: str) -> None:
    (tmp_path / ".claude.json").write_text(content)
    at_home, elsewhere = account("claude", tmp_path), account("claude", tmp_path / "other")
    assert at_home == account("claude", tmp_path) != elsewhere
    assert account("gemini", tmp_path) not in (account("gemini", tmp_path / "other"), None)


def test_an_api_key_is_an_account_of_its_own_and_is_not_shown(tmp_path: Path) -> None:
    login, key = account("claude", tmp_path), account("claude", tmp_path, ANTHROPIC_API_KEY="sk-secret-1")
    assert key is not None and key != login and "secret" not in key.id
    by_agent = account("claude", tmp_path, AgentSpec(env={"ANTHROPIC_API_KEY": "sk-secret-1"}))
    assert by_agent == key


def test_a_command_of_the_users_own_shares_nothing(tmp_path: Path) -> None:
    assert account("mine", tmp_path, AgentSpec(command=("mine",))) is None


def test_accounts_are_members_of_the_pool() -> None:
    named = {"mine": AgentSpec(command=("mine",)), "claude": AgentSpec(model="m")}
    pool = fallback_chain(
        "claude@work", ["claude@home", "claude@work", "claude", "claude-code", "mine@x"], named
    )
    assert pool[:2] == ("claude@home", "claude") and pool[-1] == "mine@x"
    check_names(("claude@work", "mine@x"), named)
    assert (spec_of("claude@work", named).model, spec_of("mine@x", named).command) == ("m", ("mine",))
    with pytest.raises(UnknownAgent, match="'claud' is not a known agent"):
        check_names(("claud@work",), named)


@pytest.mark.parametrize(
    ("name", "why"),
    [("claude@home", "the account 'home' is not defined"), ("codex@work", "belongs to claude")],
)
def test_an_account_that_does_not_fit_is_a_fault(name: str, why: str) -> None:
    with pytest.raises(ConfigFaults, match=why):
        with_account(name, AgentSpec(), {"work": WORK})

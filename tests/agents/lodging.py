"""A home for the real agents: fresh, with made-up keys, vendors on loopback, and little patience."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ralphd.config.specs import AgentSpec
from tests.agents.installed import program

KEY = "made-up"
# Its own ladder for a 429 is ten retries, of one minute, two, and so on.
_QWEN = {"model": {"generationConfig": {"maxRetries": 0}}, "security": {"auth": {"selectedType": "openai"}}}
# Else the openai library asks three times for each time that aider does.
_AIDER = "- name: openai/made-up\n  edit_format: whole\n  extra_params:\n    max_retries: 0\n"
_SETTINGS = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 2}}


@dataclass(frozen=True, slots=True)
class Lodging:
    """A home below ``root`` with a repository in it; ``url`` is where the vendors are."""

    root: Path
    url: str

    @property
    def home(self) -> Path:
        """What the agents take for the user's home."""
        return self.root / "home"

    @property
    def project(self) -> Path:
        """The working directory, a repository with one commit."""
        return self.home / "project"

    @property
    def scratch(self) -> Path:
        """Where they put what they call temporary."""
        return self.root / "tmp"

    def furnish(self) -> "Lodging":
        """Make all of it."""
        self.project.mkdir(parents=True)
        self.scratch.mkdir()
        self.home.chmod(0o700)
        (self.home / ".gemini").mkdir()
        (self.home / ".gemini" / "settings.json").write_text(json.dumps(_SETTINGS))
        (self.home / ".qwen").mkdir()
        (self.home / ".qwen" / "settings.json").write_text(json.dumps(_QWEN))
        (self.home / ".aider.model.settings.yml").write_text(_AIDER)
        (self.home / ".gitconfig").write_text("[user]\nname = Ralph\nemail = ralph@localhost\n")
        (self.project / "README.md").write_text("A project.\n")
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "begin"]):
            self.git(*words)
        return self

    def git(self, *words: str) -> str:
        """What git says in the project."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *words], cwd=self.project, env=environment, timeout=30, check=True, capture_output=True
        )
        return done.stdout.decode()

    def spec(self, agent: str, *, subscribed: bool = True) -> AgentSpec:
        """``[agents.NAME]`` of an agent here; claude is ``subscribed`` to a plan, or pays by the call."""
        ways = {
            "codex": self._codex, "opencode": self._opencode, "gemini": self._gemini,
            "qwen": self._qwen, "copilot": self._copilot, "aider": self._aider,
        }  # fmt: skip
        args, env = ways.get(agent, lambda: self._claude(subscribed))()
        own = {"HOME": str(self.home), "TMPDIR": str(self.scratch)}  # gemini leaves its errors there
        return AgentSpec(command=(str(program(agent)),), args=args, env={**own, **env})

    def toml(self, agent: str) -> str:
        """The same as a section of ``ralph.toml``."""
        spec = self.spec(agent)
        env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in spec.env.items())
        command, args = json.dumps(spec.command), json.dumps(spec.args)
        return f"[agents.{agent}]\ncommand = {command}\nargs = {args}\nenv = {{ {env} }}\n"

    def _claude(self, subscribed: bool) -> tuple[tuple[str, ...], Mapping[str, str]]:
        key = "CLAUDE_CODE_OAUTH_TOKEN" if subscribed else "ANTHROPIC_API_KEY"
        return (), {"ANTHROPIC_BASE_URL": self.url, key: KEY}

    def _codex(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        provider = {
            "name": '"vendors"', "base_url": f'"{self.url}/v1"', "env_key": '"VENDORS_KEY"',
            "wire_api": '"responses"', "request_max_retries": "2", "stream_max_retries": "2",
        }  # fmt: skip
        table = ",".join(f"{name}={value}" for name, value in provider.items())
        settings = ('model_provider="vendors"', f"model_providers.vendors={{{table}}}")
        words = tuple(word for setting in settings for word in ("-c", setting))
        return ("-m", "gpt-5", *words), {"VENDORS_KEY": KEY}

    def _gemini(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        return ("-m", "gemini-2.5-pro"), {"GOOGLE_GEMINI_BASE_URL": self.url, "GEMINI_API_KEY": KEY}

    def _opencode(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        model = {"name": "made-up", "tool_call": True, "limit": {"context": 128000, "output": 8000}}
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "vendors", "models": {"made-up": model},
            "options": {"baseURL": f"{self.url}/v1", "apiKey": KEY},
        }  # fmt: skip
        settings = {
            "autoupdate": False, "share": "disabled", "model": "vendors/made-up",
            "small_model": "vendors/made-up", "provider": {"vendors": provider},
        }  # fmt: skip
        quiet = ("AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH")
        env = {f"OPENCODE_DISABLE_{name}": "1" for name in quiet}
        return (), {**env, "OPENCODE_CONFIG_CONTENT": json.dumps(settings)}

    def _qwen(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{self.url}/as/qwen/v1", "OPENAI_MODEL": "made-up"}
        return ("--auth-type", "openai"), env

    def _copilot(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        provider = {"BASE_URL": f"{self.url}/as/copilot/v1", "API_KEY": KEY}
        env = {f"COPILOT_PROVIDER_{name}": value for name, value in provider.items()}
        return (), {**env, "COPILOT_MODEL": "made-up", "COPILOT_OFFLINE": "true"}

    def _aider(self) -> tuple[tuple[str, ...], Mapping[str, str]]:
        env = {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{self.url}/as/aider/v1"}
        return ("--model", "openai/made-up"), {**env, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

"""``ralphctl config show``, ``check`` and ``schema``, without a daemon."""

import json
import tomllib

import pytest

from ralphctl.setup import config_show
from ralphd.errors import ConfigFaults
from tests.config.conftest import Place
from tests.ctl.golden_files import Golden

PROJECT = """
[regent]
max_retries = 5
test_command = "make \\"all\\""
[agents.claude]
env = { KEY = "secret-value" }
[notify]
reminder_minutes = 5
[[webhooks]]
url = "https://example.com/"
"""


def test_show_prints_each_value_with_its_origin_and_is_toml(place: Place, golden: Golden) -> None:
    place.project(PROJECT)
    text = config_show.show(place.directory, {"HOME": str(place.home)})
    shown = {line.split(" = ")[0]: line for line in text.splitlines() if " = " in line}

    golden([shown[key] for key in ("max_retries", "reminder_minutes", "stop_timeout_seconds", "url")])
    tree = tomllib.loads(text)
    assert tree["regent"]["test_command"] == 'make "all"'
    assert tree["agents"]["claude"]["env"] == {"KEY": "(not shown)"}


def test_show_as_json_has_values_and_origins(place: Place) -> None:
    place.project(PROJECT)
    told = json.loads(config_show.show(place.directory, {"HOME": str(place.home)}, as_json=True))

    assert told["values"]["regent"]["max_retries"] == 5
    assert told["origins"]["regent.max_retries"] == "ralph.toml:3"
    assert "secret-value" not in json.dumps(told) and "example.com" not in json.dumps(told)


def test_check_says_that_all_is_right(place: Place, golden: Golden) -> None:
    environ = {"HOME": str(place.home)}
    nothing = config_show.check(place.directory, environ)
    place.project(PROJECT)
    golden(nothing, config_show.check(place.directory, environ))
    assert json.loads(config_show.check(place.directory, environ, as_json=True))["faults"] == []


def test_check_raises_all_faults(place: Place, golden: Golden) -> None:
    place.project("[regent]\nmax_retires = 5\nenabled = 1\n")
    with pytest.raises(ConfigFaults) as told:
        config_show.check(place.directory, {"HOME": str(place.home)})
    golden(str(told.value))


def test_check_finds_a_guard_without_tests(place: Place) -> None:
    place.project("[regent]\nrollback_on_test_failure = true\n")
    with pytest.raises(ConfigFaults, match="rollback_on_test_failure is set, but test_command is not"):
        config_show.check(place.directory, {"HOME": str(place.home)})


def test_check_finds_an_account_that_is_not_defined(place: Place) -> None:
    place.user('[accounts.work]\nagent = "codex"\n')
    place.project('[agents]\nprimary = "claude@nope"\nfallback = ["claude@work", "codex@work"]\n')
    with pytest.raises(ConfigFaults) as told:
        config_show.check(place.directory, {"HOME": str(place.home)})
    first, second = told.value.why.splitlines()
    assert first.startswith(
        "ralph.toml:2: agents.primary: 'claude@nope': the account 'nope' is not defined; "
    )
    assert first.endswith("[accounts.nope]")
    assert second.startswith(
        "ralph.toml:3: agents.fallback: 'claude@work': the account work belongs to codex"
    )


@pytest.mark.parametrize(
    ("agents", "fault"),
    [
        ('primary = "claud"', "agents.primary: 'claud' is not a known agent, did you mean claude?"),
        ('fallback = ["auto", "codx"]', "agents.fallback: 'codx' is not a known agent, did you mean codex?"),
        (
            'primary = "mine"\n[agents.mine]\ncommand = ["sh"]\nmodel = "x"',
            "agents.mine.model has no meaning",
        ),
    ],
)
def test_check_finds_an_agent_with_which_nothing_starts(agents: str, fault: str, place: Place) -> None:
    place.project(f"[agents]\n{agents}\n")
    with pytest.raises(ConfigFaults) as told:
        config_show.check(place.directory, {"HOME": str(place.home)})
    assert fault in told.value.why


def test_check_names_what_is_wrong_in_a_file_of_patterns(place: Place) -> None:
    place.project('[agents.claude]\npatterns = "mine.toml"\n')
    (place.directory / "mine.toml").write_text(
        'version = 1\n[[phrase]]\nname = "x"\nmatch = "a"\nknd = "y"\n'
    )
    with pytest.raises(ConfigFaults) as told:
        config_show.check(place.directory, {"HOME": str(place.home)})
    assert "phrase x: knd: unknown key; phrase x: kind: is missing; known are " in told.value.why


def test_check_knows_agents_of_your_own(place: Place) -> None:
    place.project(
        '[agents]\nprimary = "mine"\nfallback = ["auto", "cursor-agent"]\n[agents.mine]\ncommand = ["sh"]\n'
    )
    assert "no faults" in config_show.check(place.directory, {"HOME": str(place.home)})


def test_schema_is_json() -> None:
    assert json.loads(config_show.schema())["title"] == "ralph.toml"

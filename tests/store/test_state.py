"""``ralph.json`` and ``regent-state.json``: what is saved is loaded again, and what of it is shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd import wire
from ralphd.core.incidents import Escalation, Incident
from ralphd.core.record import LastChange
from ralphd.core.supervision.model import (
    Done,
    Failed,
    Goal,
    Paused,
    RunId,
    Running,
    State,
    Stopped,
    Supervision,
)
from ralphd.store.files import Broken
from ralphd.store.state import Definition, Facts, LastExit, RalphFiles, RegentState

RUN = RunId("r000001-3fa9c1d2")
INCIDENT = Incident("key", 1.0, 2.0, "it failed", Escalation("fails still", "a login", "claude /login"))
FACTS = Facts(
    run_id=RUN,
    ralph_pid=5,
    started_at=1.5,
    reflog=(3, "x"),
    last_exit=LastExit(RUN, None, 9, "failed", 1_700_000_000.5),
    last_change=LastChange("commit abc", 5.0),
    incident=INCIDENT,
)


@pytest.fixture
def files(tmp_path: Path) -> RalphFiles:
    files = RalphFiles(tmp_path / "home")
    files.create()
    return files


@pytest.fixture
def definition(tmp_path: Path) -> Definition:
    pinned = {"values": {"regent": {"max_retries": 3}}, "below": -1.5}
    return Definition("demo", tmp_path, ("a", "b"), pinned, 1_700_000_000.25, Goal.RUNNING, {"k": [1, 2.5]})


def test_a_definition_is_loaded_as_it_was_saved(files: RalphFiles, definition: Definition) -> None:
    assert files.load_definition() is None

    files.save_definition(definition)

    assert files.load_definition() == definition


KEYS = {"claude": {"API_KEY": "secret"}, "codex": {"env": "secret"}}


def with_keys(definition: Definition) -> Definition:
    agents = {"primary": "claude", **{name: {"args": [], "env": keys} for name, keys in KEYS.items()}}
    flags = {"agents.claude.env": KEYS["claude"], "agent": "claude"}
    return replace(definition, configuration={"values": {"agents": agents}}, flags=flags)


def test_agents_variables_are_in_env_alone(files: RalphFiles, definition: Definition) -> None:
    files.save_environment({"PATH": "/bin"})
    secret = with_keys(definition)
    files.save_definition(secret)

    assert [
        path.name for path in files.home.iterdir() if path.is_file() and "secret" in path.read_text()
    ] == ["env"]
    assert "secret" not in str(secret.to_json()) and secret == with_keys(definition), "unchanged in memory"
    assert files.load_definition() == secret
    assert files.complete(Definition.from_json(secret.to_json())) == secret
    assert files.load_environment() == {"PATH": "/bin"}
    assert files.environment_file.stat().st_mode & 0o777 == 0o600

    files.save_environment({"PATH": "/usr/bin"})
    assert files.load_definition() == secret
    files.save_definition(definition)
    assert "secret" not in files.environment_file.read_text()


def test_agents_variables_of_an_earlier_version_are_read_and_moved(
    files: RalphFiles, definition: Definition
) -> None:
    old = with_keys(definition)
    plain = old.to_json()
    plain["configuration"] = dict(old.configuration)
    plain["flags"] = dict(old.flags)
    files.definition_file.write_text(json.dumps(plain))
    files.save_environment({"PATH": "/bin"})

    assert files.load_definition() == old
    files.save_definition(old)
    assert "secret" not in files.definition_file.read_text()
    assert files.load_definition() == old


@pytest.mark.parametrize("text", ["", "{", "[]", '{"=agents": 3}', '{"=agents": {"claude": null}}'])
def test_without_agents_variables_a_definition_loads(
    files: RalphFiles, definition: Definition, text: str
) -> None:
    files.save_definition(with_keys(definition))
    files.environment_file.write_text(text)
    loaded = files.load_definition()
    assert loaded is not None
    assert "secret" not in str(loaded.configuration) + str(loaded.flags)


@pytest.mark.parametrize(
    "state", [Running(RUN), Done(), Failed("why"), Stopped(), Stopped("why"), Paused("usage limit", 7.0)]
)
def test_a_state_is_loaded_as_it_was_saved(files: RalphFiles, definition: Definition, state: State) -> None:
    record = RegentState(Supervision(Goal.RUNNING, state), FACTS)

    files.save_record(record, definition)

    assert files.load_record() == record


def test_the_shown_keys_are_those_of_the_table(definition: Definition) -> None:
    shown = RegentState(Supervision(), FACTS).shown(definition)

    assert list(shown) == list(wire.STATE_KEYS)
    assert all(wire.fits(shown[key], kind) for key, kind in wire.STATE_KEYS.items())


def test_an_open_incident_is_shown_with_its_first_message(definition: Definition) -> None:
    shown = RegentState(Supervision(), FACTS).shown(definition)["incident"]

    assert list(shown) == list(wire.INCIDENT_KEYS)
    assert (shown["message"], shown["do"], shown["latest"]) == ("it failed", "claude /login", None)
    assert shown["opened_at"] == "1970-01-01T00:00:01.000000Z"


@pytest.mark.parametrize("text", ["{}", '{"version": 1}', '{"version": 1, "supervision": 5, "facts": {}}'])
def test_a_damaged_state_is_set_aside(files: RalphFiles, text: str) -> None:
    files.state_file.write_text(text)

    with pytest.raises(Broken) as caught:
        files.load_record()

    assert caught.value.kept_as is not None and caught.value.kept_as.read_text() == text
    assert files.load_record() is None


def test_the_mirror_of_a_directory_is_not_made_anew_in_each_round(files: RalphFiles, tmp_path: Path) -> None:
    here = files._mirror_in(tmp_path / "here")

    assert files._mirror_in(tmp_path / "here") is here
    assert files._mirror_in(tmp_path / "there").path == tmp_path / "there" / ".ralph"

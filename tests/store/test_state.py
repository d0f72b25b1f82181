"""``ralph.json`` and ``regent-state.json``: what is saved is loaded again, and what of it is shown."""

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

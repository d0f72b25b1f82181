"""``docs/configuration.md`` leaves no key out, and says of each what the code does with it."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from ralphd.config.keys import ACCOUNT, AGENT, FLAGS, SECTIONS, USER_FILE_ONLY, WEBHOOKS, keys_of
from ralphd.config.layers import environment_layer

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def rows(section: str) -> Mapping[str, list[str]]:
    """The cells of a section's table, by the first word of their first cell."""
    heading = f"## `[[{section}]]`" if section == WEBHOOKS else f"## `[{section}]`"
    table = PAGE.split(f"{heading}\n")[1].split("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {row[0].split("`")[1]: row for row in cells}


@pytest.mark.parametrize("section", [*filter(keys_of, SECTIONS), AGENT, ACCOUNT, WEBHOOKS])
def test_every_key_of_every_section_is_there_once_with_its_marks(section: str) -> None:
    found = rows(section)

    assert list(found) == list(keys_of(section))
    for key in keys_of(section).values():
        head = found[key.name][0]
        assert ("*mine*" in head) is (key.dotted in USER_FILE_ONLY), head


def test_every_flag_is_told_at_its_key() -> None:
    told = {
        flag: f"{section}.{name}"
        for section in filter(keys_of, SECTIONS)
        for name, cells in rows(section).items()
        for flag in re.findall(r"`--([a-z0-9-]+)`", cells[-1])
    }
    assert told == dict(FLAGS)


@pytest.mark.parametrize("section", [section for section in filter(keys_of, SECTIONS) if section != "logs"])
def test_a_variable_that_is_told_sets_its_key(section: str) -> None:
    everyones = {
        name: row for name, row in rows(section).items() if f"{section}.{name}" not in USER_FILE_ONLY
    }
    for name, cells in everyones.items():
        (variable,) = re.findall(r"`(RALPH_[A-Z0-9_]+)`", cells[-1])
        layer = environment_layer({variable: "1"})
        told = {*layer.settings, *(fault.key for fault in layer.faults)}
        assert told == {f"{section}.{name}"}, variable


def test_what_only_the_user_may_set_has_no_variable() -> None:
    assert {cells[-1] for cells in rows("logs").values()} == {"-"}
    assert rows("notify")["allow_private"][-1] == "-"


def test_the_page_names_the_retries_of_phase_3_and_their_limit() -> None:
    cells = rows("phases")["phase_3_retry_count"]

    assert "at most 2 take effect" in cells[3]
    assert cells[-1] == "`--phase-3-retry-count`, `RALPH_PHASES_PHASE_3_RETRY_COUNT`"

"""The schema for editors says what the reader accepts."""

import json

import pytest

from ralphd.config.keys import ACCOUNT, AGENT, NAMED, SECTIONS, USER_FILE_ONLY, keys_of, schema
from ralphd.config.keys import FLAGS as FLAG_KEYS


def test_the_schema_knows_every_section_and_closes_each() -> None:
    found = schema()
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(found["properties"]) == {*SECTIONS, "webhooks"}
    assert found["additionalProperties"] is False
    for section in SECTIONS:
        table = found["properties"][section]
        assert set(table["properties"]) == set(keys_of(section))
        assert table["additionalProperties"] is False or section in NAMED
    assert set(found["properties"]["agents"]["additionalProperties"]["properties"]) == set(
        keys_of("agents.NAME")
    )
    assert found["properties"]["webhooks"]["items"]["required"] == ["url"]
    json.dumps(found)


@pytest.mark.parametrize("section", [*SECTIONS, AGENT, ACCOUNT, "webhooks"])
def test_every_key_says_what_it_is_for_and_its_default_is_one_of_its_values(section: str) -> None:
    for key in keys_of(section).values():
        assert key.schema["description"].endswith("."), key.dotted
        if key.default is not None:
            assert key.read(key.default) == key.default, key.dotted


def test_the_lists_of_keys_name_keys_that_there_are() -> None:
    known = {
        key.dotted for section in [*SECTIONS, AGENT, ACCOUNT, "webhooks"] for key in keys_of(section).values()
    }
    assert known >= USER_FILE_ONLY
    assert set(FLAG_KEYS.values()) <= known

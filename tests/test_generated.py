"""The pages that are written from the code say what the code does now."""

from pathlib import Path

import pytest

from ralphd.wire import EVENT_TYPES
from tests import generated_exit_codes
from tests.generated import PAGES
from tests.generated_events import TOLD


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_what_the_code_says(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), f"{path.name} is stale: make docs"


def test_every_error_ends_with_a_code_that_the_page_explains() -> None:
    codes = {code for _, code in generated_exit_codes.errors()}

    assert codes <= set(generated_exit_codes.MEANS)


def test_what_is_said_of_events_is_of_those_on_the_wire() -> None:
    assert set(TOLD) <= set(EVENT_TYPES)

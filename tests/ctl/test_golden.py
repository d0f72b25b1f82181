"""Golden files: each section has its test, and what differs in each run is not in them."""

from pathlib import Path

import pytest

from tests.ctl.golden_files import FOLDER, path_of, stale

MODULES = sorted(Path(__file__).parent.rglob("test_*.py"))


def test_each_section_has_its_test(request: pytest.FixtureRequest) -> None:
    assert {path_of(module) for module in MODULES} >= {*FOLDER.iterdir()}
    assert {module.name: gone for module in MODULES if (gone := stale(module, request.session))} == {}

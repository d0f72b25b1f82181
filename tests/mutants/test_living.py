"""How a change gets into a module that is loaded: all of it, or not at all, and then that is said."""

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.change import Change
from tests.mutants.cold import named_after
from tests.mutants.living import BreaksImportError, put_in

NAME = "a_module_of_the_mutants"
TEXT = "MOST = 3\n\ndef is_many(number):\n    return number > MOST\n"


@pytest.fixture
def module() -> Iterator[types.ModuleType]:
    made = types.ModuleType(NAME)
    made.__file__ = f"{NAME}.py"
    exec(TEXT, vars(made))
    sys.modules[NAME] = made
    yield made
    del sys.modules[NAME]


def change(function: str, statement: str, source: str = "") -> Change:
    return Change(f"{NAME}.py", function, 1, 1, "", "", statement, source)


def test_a_changed_function_is_put_in(module: types.ModuleType) -> None:
    source = TEXT.replace(">", "<")

    assert put_in(change("is_many", "", source)) and module.is_many(2) and not module.is_many(4)


def test_a_changed_constant_is_put_in(module: types.ModuleType) -> None:
    assert put_in(change("", "MOST = 1\n")) and module.is_many(2)


def test_a_statement_that_cannot_be_run_is_noticed_at_once(module: types.ModuleType) -> None:
    with pytest.raises(BreaksImportError):
        put_in(change("", "MOST = None + 1\n"))
    assert module.MOST == 3


@pytest.mark.parametrize("statement", ["if True:\n    import json as new_name\n", "MOST = MOST\n"])
def test_where_nothing_can_be_put_in_it_is_said(module: types.ModuleType, statement: str) -> None:
    assert not put_in(change("", statement))
    assert not hasattr(module, "new_name") and module.MOST == 3


def test_the_tests_of_a_module_are_those_with_its_name() -> None:
    assert named_after(Path("ralphd/core/gate/step.py")) == ["tests/core/gate/test_step.py"]
    assert named_after(Path("ralphd/core/supervision/transitions.py")) == []

"""Any text becomes a name that the API accepts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.config.values import fit_name
from ralphd.wire import is_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("api", "api"),
        ("My Project", "my-project"),
        ("Café (old)", "cafe-old"),
        ("..hidden", "hidden"),
        ("-_x_-", "x"),
        ("v1.2_final", "v1.2_final"),
        ("名前", "ralph"),
        ("", "ralph"),
        ("/", "ralph"),
        ("x" * 63, "x" * 63),
        ("x" * 64, "x" * 60),
    ],
)
def test_a_name_is_made_fit(text: str, name: str) -> None:
    assert fit_name(text) == name


@given(st.text(max_size=100))
def test_every_text_gives_a_name_and_a_name_gives_itself(text: str) -> None:
    name = fit_name(text)
    assert is_name(name)
    assert fit_name(name) == name

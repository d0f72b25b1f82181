"""Every key has its line, however TOML lets one write it."""

import tomllib
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ralphd.config.files import key_lines
from ralphd.config.layers import KeyPath

TEXT = '''# a comment with [brackets] = and "quotes"
top = 1
"quo\\u0074ed.key" = { inner = 1, deep.er = [ 2,
  3 ] }
[a . "b"]
long = """
[not] a table
x = "y" \\"""
still""""
also = \'\'\'
z = 1\'\'\'\'
[[hooks]]
url = "x#y"   # [z]
[[hooks.parts]]
one = 1
[hooks.more]
two = 2
[[hooks]]
url = 1979-05-27 07:32:00
[[hooks.parts]]
list = [ # a comment ]
  { k = 1 },
]
[a.c.d]
last = true'''


def test_every_way_of_writing_a_key_is_found_on_its_line() -> None:
    lines = key_lines(TEXT)

    assert lines[("top",)] == 2
    assert lines[("quoted.key", "inner")] == lines[("quoted.key", "deep", "er")] == 3
    assert lines[("quoted.key", "deep", "er", 1)] == 4
    assert lines[("a", "b")] == 5
    assert lines[("a", "b", "long")] == 6
    assert lines[("a", "b", "also")] == 10
    assert lines[("hooks", 0, "url")] == 13
    assert lines[("hooks", 0, "parts", 0, "one")] == 15
    assert lines[("hooks", 0, "more", "two")] == 17
    assert lines[("hooks", 1)] == 18
    assert lines[("hooks", 1, "parts", 0, "list", 0, "k")] == 22
    assert lines[("a", "c", "d", "last")] == 25


def test_lines_are_counted_alike_with_carriage_returns() -> None:
    assert key_lines(TEXT.replace("\n", "\r\n")) == key_lines(TEXT)


PARTS = [
    *(
        "\n",
        "\n",
        "#",
        "=",
        "=",
        ".",
        ",",
        "[",
        "]",
        "[[a]]\n",
        "[a.b]\n",
        "[[a.c]]\n",
        "{",
        "}",
        " ",
        "a",
        "b",
    ),
    *("c=1\n", "1", "true", '"', "'", '"""', "'''", "\\\\", '"x"', "x = [1, {y = 2}]\n"),
    'z."q r" = """\n"" """""\n',
]


@given(st.lists(st.sampled_from(PARTS), max_size=25).map("".join))
def test_in_any_text_that_tomllib_reads_exactly_its_keys_are_found(text: str) -> None:
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = key_lines(text)
    assert set(paths(tree)) <= set(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Each key of a tree, and each entry of a list, but for tables that only a header below them implies."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        if not isinstance(part, dict):
            yield (*path, name)
        yield from paths(part, (*path, name))

"""The pictures that the pages show: there, small, whole in themselves, and of what the present code draws."""

import html
import re
from pathlib import Path

import pytest

from ralphctl.format import table_text
from ralphctl.top import page
from tests import pictures
from tests.pages import DOCS, PAGES

MOST_BYTES = 120_000
SHOWN = re.compile(r"!\[([^\]]+)\]\(([^)]+)\)")
FILES = {path.stem: path for path in (DOCS / "pictures").iterdir()}
DRAWN = {
    "top": [*page._HEADS, *page._KEYS.split(), *pictures.FOUR, "needs you:", "tonight", "budget", "night"],
    "status": [*table_text._HEADS, *pictures.FOUR, "Needs you:"],
    "report": [
        "blocked by",
        "forecast",
        "night",
        "Done",
        "Reverted",
        "Where the time went",
        "to restore it:",
    ],
    "night": [*pictures.SHOWN, "Tests failed", "Ralph is done", "4 of 4 tasks"],
}
"""Words that each picture has as long as the code draws what it did when the picture was made."""


def words_of(path: Path) -> str:
    """The text of a drawing, line by line."""
    texts = re.findall(r'<text[^>]* y="([\d.]+)"[^>]*>([^<]*)</text>', path.read_text())
    lines: dict[str, list[str]] = {}
    for y, text in texts:
        lines.setdefault(y, []).append(html.unescape(text).strip())
    return "\n".join(" ".join(" ".join(pieces).split()) for pieces in lines.values())


def test_each_picture_is_on_a_page() -> None:
    named = {(each.parent / path).resolve() for each in PAGES for _, path in SHOWN.findall(each.read_text())}
    assert named == {path.resolve() for path in FILES.values()}
    drawn = {name for name, path in FILES.items() if path.suffix == ".svg"}
    assert {name for name in drawn if not name.startswith(("growth-", "soak"))} == DRAWN.keys()
    assert all(path.stat().st_size <= MOST_BYTES for path in FILES.values())


@pytest.mark.parametrize("name", [*DRAWN])
def test_a_picture_is_small_and_refers_to_nothing_outside(name: str) -> None:
    svg = FILES[name].read_text()
    assert len(svg.encode()) <= MOST_BYTES
    assert not re.search(r"(?:href|src)=|url\((?!#)|@import|<script", svg)


@pytest.mark.parametrize("name", [*DRAWN])
def test_a_picture_has_the_words_of_the_present_code(name: str) -> None:
    shown = words_of(FILES[name])
    assert [word for word in DRAWN[name] if word not in shown] == []


def test_a_text_begins_after_its_spaces() -> None:
    svg = '<text x="10" y="1" textLength="50" clip-path="url(#a)">&#160;&#160;a&lt;b</text>'
    assert pictures.plain(svg) == '<text x="30" y="1" textLength="30" clip-path="url(#a)">a&lt;b</text>'

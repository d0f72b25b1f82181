"""No text that people read falls back into phrases that read as translated (docs/glossary.md has the terms).

A phrase is a place to look at, not a proof of bad English, so a few remain. The number of them may only fall.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.pages import ROOT

AT_MOST = {"strings": 24, "pages": 28}
PHRASES = re.compile(
    r"""\b(?: (?:is|are|was|were|been)[ ]told | tells[ ](?:of|that|nobody)
    | (?:goes|go|going|went)[ ]on | (?:what|as|it|that)[ ]is[ ]so | anew | whoever | what[ ]there[ ]is
    | for[ ]want[ ]of | (?:at|in)[ ]hand | put[ ]right | looks?[ ]round | mend(?:s|ed)? | of[ ]itself
    | (?:is|are)[ ]no[ ](?!longer|more|one)\w+ | he | his | him | (?:is|are|were)[ ]asked[ ]to | by[ ]then
    | one[ ]that | (?:an?[ ])(?:event|line|iteration|incident)[ ]a[ ](?:line|night|file|run) )\b""",
    re.IGNORECASE | re.VERBOSE,
)


def phrases_in(text: str) -> list[str]:
    return [match.group(0) for match in PHRASES.finditer(text)]


def strings_of(path: Path) -> list[str]:
    """Return the strings of a module that are not docstrings: messages, help, keys."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone
    ]


@pytest.mark.parametrize(
    "text", ["it goes on", "nobody IS TOLD", "the error is put right", "an event a line"]
)
def test_such_a_phrase_is_found(text: str) -> None:
    assert len(phrases_in(text)) == 1


@pytest.mark.parametrize("text", ["it continues", "no longer used", "the head of this", "on one line"])
def test_plain_english_is_not(text: str) -> None:
    assert phrases_in(text) == []


def test_messages_are_plain_english() -> None:
    found = {
        str(path.relative_to(ROOT)): phrases
        for package in ("ralphd", "ralphctl")
        for path in sorted((ROOT / package).rglob("*.py"))
        if (phrases := [phrase for text in strings_of(path) for phrase in phrases_in(text)])
    }
    assert sum(map(len, found.values())) <= AT_MOST["strings"], found


def test_pages_are_plain_english() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {
        str(page.relative_to(ROOT)): phrases for page in pages if (phrases := phrases_in(page.read_text()))
    }
    assert sum(map(len, found.values())) <= AT_MOST["pages"], found

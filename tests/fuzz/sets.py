"""All parsers, by name."""

from collections.abc import Mapping

from tests.fuzz import agent_texts, files_read, wire_texts
from tests.fuzz.files_read import folder
from tests.fuzz.parsers import Parser

__all__ = ["ALL", "folder"]

ALL: Mapping[str, Parser] = {
    each.name: each for each in (*agent_texts.PARSERS, *files_read.PARSERS, *wire_texts.PARSERS)
}

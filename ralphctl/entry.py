"""What the help knows of a command before click is imported, and the options that all commands have."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Entry:
    """A command by the place it is loaded from (``package.module:name``) and its line in the help."""

    __slots__ = ("help", "hidden", "place", "section")

    def __init__(self, place: str, help: str, section: str = "Commands", hidden: bool = False) -> None:
        self.place = place
        self.help = help
        self.section = section
        self.hidden = hidden


DIRECTORY_HELP = "Go to DIR first."
SOCKET_HELP = "The daemon's socket."
JSON_HELP = "Print the API's reply."
VERSION_HELP = "Print the version."
HELP_HELP = "Show this message and exit."
"""Click's own words."""


def options() -> Iterator[tuple[str, str]]:
    """The options of ``ralphctl`` itself, as its help shows them."""
    yield "--version", VERSION_HELP
    yield "-C DIR", DIRECTORY_HELP
    yield "--socket PATH", SOCKET_HELP
    yield "--json", JSON_HELP
    yield "-h, --help", HELP_HELP

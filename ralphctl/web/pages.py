"""The faces of the page: a placeholder."""

from html import escape
from typing import Any

from ralphctl.client.client import Client


class Pages:
    """Draws each page as HTML; ``part``: only the content of ``<main>``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def home(self, viewer: Any, *, part: bool = False) -> str:
        """Return the home page."""
        return f"<p>{escape(viewer.name)} sees {len(self._client.views())} ralphs"

    def ralph(self, name: str, viewer: Any, *, part: bool = False) -> str:
        """Return the page of a ralph. Raise UnknownRalph."""
        return f"<p>{escape(self._client.ralph(name).value['name'])}"

    def log(self, name: str, viewer: Any, *, part: bool = False) -> str:
        """Return the end of its log. Raise UnknownRalph."""
        return self.ralph(name, viewer)

    def iteration(self, name: str, number: int, viewer: Any, *, part: bool = False) -> str:
        """Return one iteration. Raise UnknownRalph."""
        return self.ralph(name, viewer)

    def pair(self) -> str:
        """Return the page where a device is paired."""
        return "<p>pair"

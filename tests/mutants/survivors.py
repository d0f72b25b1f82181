"""The list of changes that no test notices, each with the reason why that is well."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True, slots=True)
class Survivor:
    """A change that may survive, by its text, so that it is known again when lines have moved."""

    file: str
    function: str
    before: str
    after: str
    reason: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is known by."""
        return self.file, self.function, self.before, self.after


def survivors(path: Path = LIST) -> list[Survivor]:
    """What is listed. Raises where an entry lacks a key or has another one."""
    return [
        Survivor(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
    ]

"""A person's home and a working directory, both empty, and a way to load what is in them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from ralphd.config.configuration import Configuration, load
from ralphd.errors import ConfigFaults


@dataclass(frozen=True, slots=True)
class Place:
    """A home with a working directory in it."""

    home: Path
    directory: Path

    def project(self, text: str) -> Path:
        return _written(self.directory / "ralph.toml", text)

    def user(self, text: str) -> Path:
        return _written(self.home / ".config" / "ralph" / "config.toml", text)

    def load(
        self, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
    ) -> Configuration:
        return load(self.directory, environ=environ or {}, flags=flags, home=self.home)

    def faults(
        self, environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
    ) -> list[str]:
        with pytest.raises(ConfigFaults) as told:
            self.load(environ, flags)
        assert told.value.exit_code == 78
        return told.value.why.splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    directory = tmp_path / "home" / "my-project"
    directory.mkdir(parents=True)
    return Place(tmp_path / "home", directory)


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return path

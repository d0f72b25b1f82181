"""``ralphctl report --html``: the report as one file that needs no network and no script."""

from collections.abc import Mapping
from pathlib import Path

from ralphd import wire
from ralphd.store.files import make_private_directory, write_whole


def save(html: str, name: str, environ: Mapping[str, str]) -> Path:
    """Write the file to the state directory, in place of an earlier one of this name; return where it is.

    Only its owner can read it. Raises OSError.
    """
    directory = Path(wire.state_directory(environ)) / "reports"
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_private_directory(directory)
    write_whole(directory / f"{name}.html", html.encode(errors="backslashreplace"), durable=False)
    return directory / f"{name}.html"

"""Small programs that play a ralph's command, each with one habit that a supervisor has to live with.

They use the standard library only and are started by path, so that they run under any directory and user:
``player("stubborn")`` gives the argv of ``stubborn.py``. Each one's first lines say what it prints.
"""

import sys
from pathlib import Path


def player(name: str, *arguments: object) -> tuple[str, ...]:
    """The argv that starts ``tests/players/NAME.py`` with these arguments, unbuffered and quick to start."""
    path = Path(__file__).with_name(f"{name}.py")
    assert path.exists(), f"there is no player {name!r}"
    return (sys.executable, "-u", "-S", str(path), *map(str, arguments))

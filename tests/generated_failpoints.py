"""``docs/failpoints.md``: every failpoint of the code, and what a death there is checked with."""

from tests.matrix.names import failpoints
from tests.matrix.rows import ROWS, Row

INTRODUCTION = """\
# Failpoints

Written by `make docs` from the code and from `tests/matrix/rows.py`; a test fails when it is stale.
Do not edit it.

A failpoint is a named line at which a test can kill the process ([how](testing.md#other-lanes)).
`make matrix` kills the daemon at each failpoint of the rows with a scene, starts it again, and checks what
the row names. The tests of the other rows have stages of their own. A failpoint without a row fails a test.
`*` stands for the name of a file, a git command, a signal, a subject of the hub. `make matrix` also kills
the shim at each of its last system calls (`tests/matrix/test_shim.py`).

| failpoints | in | checked | by |
| --- | --- | --- | --- |
"""


def failpoints_page() -> str:
    """The page."""
    return INTRODUCTION + "".join(map(_line, ROWS))


def _line(row: Row) -> str:
    every = {name: place for name, place in failpoints().items() if row.covers(name)}
    names = ", ".join(f"`{name}`" for name in every)
    places = ", ".join(f"`{place.removeprefix('ralphd/')}`" for place in sorted(set(every.values())))
    scene = [] if row.scene is None else [f"scene `{row.scene.__name__}`"]
    by = ", ".join((*scene, *(f"`{path}`" for path in row.tests)))
    return f"| {names} | {places} | {row.checks} | {by} |\n"

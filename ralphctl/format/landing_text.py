"""Landing queues for people: which repository is whose, and which landing is on the target."""

from collections.abc import Sequence
from pathlib import PurePath

from ralphctl.format.humanize import View
from ralphctl.format.output import clean


def repository_names(queues: Sequence[View]) -> list[str]:
    """Return the name of each queue's repository, with as much of its path as tells two of one name apart."""
    paths = [PurePath(str(queue["repository"]).removesuffix("/.git")) for queue in queues]
    return [clean(_tail(path, set(paths) - {path})) for path in paths]


def _tail(path: PurePath, others: set[PurePath]) -> str:
    for count in range(1, len(path.parts)):
        tail = path.parts[-count:]
        if not any(other.parts[-count:] == tail for other in others):
            return str(PurePath(*tail))
    return str(path)

"""What is wrong with the guard of a ralph is told to whoever starts it, not at night by its first verdict."""

from pathlib import Path

from ralphd.config import Configuration
from ralphd.errors import ConfigFaults
from ralphd.git.repo import Repository
from ralphd.git.support import unsupported
from ralphd.git.trouble import in_the_way


def notes_on_gate(directory: Path, configuration: Configuration) -> list[str]:
    """What the owner of a ralph should be told of its guard. Raises ConfigFaults. Blocks."""
    regent = configuration.regent
    if not (regent.enabled and regent.rollback_on_test_failure):
        return []
    if not regent.test_command.strip():
        raise ConfigFaults(
            "rollback_on_test_failure is set, and there is no test_command",
            why="without tests nobody knows which commits to revert",
            mend='[regent] test_command = "make test" in ralph.toml, or rollback_on_test_failure = false',
        )
    if Repository.find(directory) is None:
        return ["the guard is off: this is not a git repository, so there are no commits to judge"]
    lacks = [f"the guard cannot do everything here: {line}" for line in unsupported(directory)]
    return lacks + [f"the guard will pause Ralph at a commit: {line}" for line in in_the_way(directory)]

"""Writes the files that say what the code does: ``python -m tests.generated --write``.

``docs/states.md``: the transitions of a ralph, from the table of supervision (``tests.generated_states``).
``docs/routes.md``: what the daemon answers to, from its OpenAPI document (``tests.generated_routes``).
``docs/configuration.md``: every key, from the specs (``tests.generated_configuration``).
``docs/commands.md``, ``docs/events.md``, ``docs/exit-codes.md``: from help, wire and errors.
``docs/rules.md``: from ``tests/requirements.md``.
``docs/escapes.md``: what a run can reach, from the table of its tests (``tests.process.sandbox.escapes``).
``docs/failpoints.md``: the failpoints of the code and the rows of the matrix (``tests.matrix.rows``).
``docs/faults.md``: the faults of the machine (``tests.faults.table``).
``systemd/``: the units that ``ralphctl.service.units`` makes, for who packages ralphd.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ralphctl.service import units
from tests.faults.table import faults_page
from tests.generated_commands import commands_page
from tests.generated_configuration import configuration_page
from tests.generated_events import events_page
from tests.generated_exit_codes import exit_codes_page
from tests.generated_failpoints import failpoints_page
from tests.generated_routes import routes_page
from tests.generated_rules import rules_page
from tests.generated_states import states_page
from tests.process.sandbox.escapes import escapes_page

ROOT = Path(__file__).parent.parent
PACKAGED = units.Installation(command=("/usr/bin/ralphd",))
PAGES: Mapping[Path, Callable[[], str]] = {
    ROOT / "docs" / "states.md": states_page,
    ROOT / "docs" / "routes.md": routes_page,
    ROOT / "systemd" / "ralphd.service": lambda: units.system_service(PACKAGED, "ralph"),
    ROOT / "systemd" / "ralphd.socket": lambda: units.system_socket("ralph"),
    ROOT / "systemd" / "user" / "ralphd.service": lambda: units.user_service(PACKAGED),
    ROOT / "docs" / "configuration.md": configuration_page,
    ROOT / "docs" / "commands.md": commands_page,
    ROOT / "docs" / "events.md": events_page,
    ROOT / "docs" / "exit-codes.md": exit_codes_page,
    ROOT / "docs" / "rules.md": rules_page,
    ROOT / "docs" / "escapes.md": escapes_page,
    ROOT / "docs" / "failpoints.md": failpoints_page,
    ROOT / "docs" / "faults.md": faults_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages, or say how to."""
    if arguments != ["--write"]:
        print("python -m tests.generated --write", file=sys.stderr)
        return 2
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

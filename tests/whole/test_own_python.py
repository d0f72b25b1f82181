"""No run, test or review command sees the Python that ralphd is installed with; each finds ralphctl (A10)."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole.guarded import Guarded
from tests.whole.harness import Daemon
from tests.whole.loops import loop_in
from tests.whole.person import Person

OWN = Path(sys.executable).parent
LOOK = 'which -a python3 pip pytest ralphctl ralph > "{file}"; echo "env=$VIRTUAL_ENV" >> "{file}"'

pytestmark = pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="ralphd is in a system prefix here")


@pytest.fixture
def person(daemon: Daemon) -> Person:
    return Person(daemon)


def environment(person: Person) -> dict[str, str]:
    """As after `. .venv/bin/activate`."""
    path = os.pathsep.join([str(OWN), person.environment["PATH"]])
    return {"PATH": path, "VIRTUAL_ENV": sys.prefix, "HOME": person.environment["HOME"]}


def check(file: Path, daemon: Daemon) -> None:
    """The programs that a command saw are not ralphd's, but for ralphctl and ralph."""
    wait_for(lambda: file.exists() and "env=" in file.read_text(), what=f"{file}")
    seen = file.read_text().splitlines()
    assert not [line for line in seen if Path(line).is_relative_to(OWN)]
    assert [str(daemon.state / "bin" / name) for name in ("ralphctl", "ralph")] == seen[-3:-1]
    assert seen[-1] == "env="


def test_a_run_and_the_tests_of_the_gate(daemon: Daemon, person: Person) -> None:
    guarded, in_run, in_tests = Guarded.of(daemon), daemon.root / "in-run", daemon.root / "in-tests"
    daemon.start()

    daemon.ask(
        "POST",
        "/v1/ralphs",
        {
            "directory": str(guarded.place),
            "name": "demo",
            "command": ["/bin/sh", "-c", f"{LOOK.format(file=in_run)}; ralphctl notify hello"],
            "environment": environment(person),
            "flags": {
                "regent.rollback_on_test_failure": True,
                "regent.test_command": LOOK.format(file=in_tests),
            },
        },
    )

    check(in_tests, daemon)
    check(in_run, daemon)
    assert daemon.becomes("demo", "done")["last_exit"]["code"] == 0  # its report was accepted


def test_an_agent_and_the_review_command(daemon: Daemon, person: Person) -> None:
    in_agent, in_review = daemon.root / "in-agent", daemon.root / "in-review"
    directory = loop_in(daemon, tasks=1)
    own_file = directory / "ralph.toml"
    work = f"{LOOK.format(file=in_agent)}; sed -i s/...task/[x].task/ TASKS.md; echo done"
    own_file.write_text(
        f'[agents]\nprimary = "sh"\n[agents.sh]\ncommand = {json.dumps(["/bin/sh", "-c", work])}\n'
        f"[phases]\nenabled = true\nreview_command = {json.dumps(LOOK.format(file=in_review))}\n"
    )
    daemon.start()

    daemon.ask(
        "POST", "/v1/ralphs", {"directory": str(directory), "environment": environment(person)}
    )  # fmt: skip

    check(in_agent, daemon)
    check(in_review, daemon)


def test_an_environment_that_an_earlier_version_saved_is_fitted_at_the_next_start(
    daemon: Daemon, person: Person
) -> None:
    directory, file = person.directory(), daemon.root / "in-run"
    daemon.start()
    command = ["/bin/sh", "-c", LOOK.format(file=file)]
    daemon.ask("POST", "/v1/ralphs", {"directory": str(directory), "command": command, "start": False})
    daemon.kill()
    saved = daemon.state / "ralphs" / "demo" / "env"
    saved.write_text(json.dumps(environment(person)))
    daemon.start()

    daemon.ask("POST", "/v1/ralphs/demo/start", {})

    check(file, daemon)

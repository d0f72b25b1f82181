"""What the repository tells of a ralph that says nothing of itself, and when it is done (E4, C3)."""

import subprocess
from pathlib import Path

import pytest

from tests.helpers import wait_for
from tests.whole.harness import Daemon
from tests.whole.person import Person

IDENTITY = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
BY_ITERATION = '[ralph]\nmode = "iteration"\niteration_pause_seconds = 0.05\n'
LOOK_S = 20.0


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Who types at a terminal beside the daemon."""
    daemon.start()
    return Person(daemon)


def git(place: Path, *words: str) -> str:
    ran = subprocess.run(
        ["git", *IDENTITY, "-C", str(place), *words],
        env={"PATH": "/usr/bin:/bin", "HOME": str(place.parent)},
        capture_output=True,
        text=True,
        timeout=10,
        check=True,
    )
    return ran.stdout.strip()


def repository(person: Person) -> Path:
    place = person.directory()
    git(place, "init", "-q", "-b", "main")
    git(place, "commit", "-q", "--allow-empty", "-m", "first")
    return place


COMMITS = "git " + " ".join(IDENTITY) + " commit -q --allow-empty -m"


def test_the_commits_of_an_opaque_command_are_its_iterations(daemon: Daemon, person: Person) -> None:
    place = repository(person)
    loop = f"for n in 1 2 3; do {COMMITS} work-$n; done; git checkout -q -b other; sleep 1000"
    person.starts(place, ["/bin/sh", "-c", loop])
    wait_for(lambda: daemon.view("demo")["iteration"] == 3, timeout_s=LOOK_S, what="three commits")
    view = daemon.view("demo")
    assert view["branch"] == "other"
    assert view["last_commit"] == git(place, "rev-parse", "--short", "HEAD")
    assert view["state"] == "running"


def test_commits_made_while_no_daemon_looks_are_counted_by_the_next(daemon: Daemon, person: Person) -> None:
    place = repository(person)
    gate = person.daemon.root / "gate"
    loop = f"until [ -e {gate} ]; do sleep 0.05; done; {COMMITS} a; {COMMITS} b; echo made; sleep 1000"
    person.starts(place, ["/bin/sh", "-c", loop])
    daemon.kill()
    gate.touch()
    wait_for(lambda: git(place, "rev-list", "--count", "HEAD") == "3", what="the commits")
    daemon.start()
    wait_for(lambda: daemon.view("demo")["iteration"] == 2, timeout_s=LOOK_S, what="two commits counted")
    assert git(place, "log", "-1", "--format=%s") == "b"


def test_a_commit_clears_the_count_of_failures(daemon: Daemon, person: Person) -> None:
    place = repository(person)
    (place / "ralph.toml").write_text("[regent]\nretry_backoff_seconds = 0.1\nmax_retries = 2\n")
    counter = person.daemon.root / "count"
    command = f"echo x >> {counter}; [ $(wc -l < {counter}) -lt 4 ] && {COMMITS} work; exit 1"
    person.starts(place, ["/bin/sh", "-c", command])
    daemon.becomes("demo", "failed")
    assert len(counter.read_text()) == 2 * 4, "three that committed count for one, one more is the end"
    assert daemon.view("demo")["consecutive_errors"] == 2


def test_e4_iterations_go_on_until_the_task_list_is_complete(daemon: Daemon, person: Person) -> None:
    place = person.directory(toml=BY_ITERATION)
    (place / "fix_plan.md").write_text("# Plan\n\n- [x] zero\n- [ ] one\n- [ ] two\n- [ ] three\n")
    person.starts(place, ["/bin/sh", "-c", r"sed -i '0,/- \[ \]/s//- [x]/' fix_plan.md"])
    view = daemon.becomes("demo", "done")
    assert view["iteration"] == 3
    assert "[ ]" not in (place / "fix_plan.md").read_text()


def test_e4_a_promise_ends_it_only_when_no_task_is_open(daemon: Daemon, person: Person) -> None:
    place = person.directory(toml=BY_ITERATION)
    (place / "fix_plan.md").write_text("- [ ] one\n- [ ] two\n")
    command = r"echo '<promise>COMPLETE</promise>'; sed -i '0,/- \[ \]/s//- [x]/' fix_plan.md"
    person.starts(place, ["/bin/sh", "-c", command])
    assert daemon.becomes("demo", "done")["iteration"] == 2


def test_e4_without_a_list_the_promise_is_enough(daemon: Daemon, person: Person) -> None:
    place = person.directory(toml=BY_ITERATION)
    counter = person.daemon.root / "count"
    command = f"echo x >> {counter}; [ $(wc -l < {counter}) -lt 3 ] || echo '<promise>COMPLETE</promise>'"
    person.starts(place, ["/bin/sh", "-c", command])
    assert daemon.becomes("demo", "done")["iteration"] == 3

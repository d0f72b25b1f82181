"""Two daemons of one user land on one repository: that of the user, and the private one of a build."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.helpers import wait_for
from tests.whole.harness import Daemon, daemon_in
from tests.whole.test_landing import LAND_S, Yard
from tests.whole.test_landing_faults import Held


def build_words(*command: str) -> list[str]:
    return [sys.executable, "-m", "ralphctl", "build", "--", *command]


def test_a_red_branch_does_not_land_because_a_build_lands_too(daemon: Daemon) -> None:
    began, go = daemon.root / "began", daemon.root / "go"
    command = f"echo x >> {began}; until test -e {go}; do sleep 0.05; done; ! test -e broken"
    toml = f'[regent]\ntest_command = "{command}"\ntest_retries = 0\n[landing]\nmode = "auto"\n'
    yard = Yard.of(daemon, toml=toml)
    daemon.start()
    yard.ralph("bad", broken="1\n")
    place = daemon.home / "good"
    yard.git("worktree", "add", "-q", "-b", "ralph/good", str(place), "main")
    yard.commit(place, "good", "1\n")
    yard.land("bad")
    wait_for(began.exists, timeout_s=LAND_S, what="the tests of ralph/bad")
    for words in (["true"], ["sleep", "3"]):  # the second one continues the queue of the first
        subprocess.run(
            build_words(*words), cwd=place, env=daemon.environment, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=60, check=True,
        )  # fmt: skip
    go.touch()

    assert (yard.ended(1)[1]["state"], (yard.main / "broken").exists()) == ("refused", False)


def test_a_checkout_in_which_a_build_works_is_left_alone(daemon: Daemon) -> None:
    yard = Yard.of(daemon)
    daemon.start()
    yard.ralph("api", api="1\n")
    before, mark = yard.git("rev-parse", "main"), daemon.root / "runs"
    build = subprocess.Popen(
        build_words("/bin/sh", "-c", f"touch {mark}; exec sleep 60"), cwd=yard.main, env=daemon.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(mark.exists, timeout_s=LAND_S, what="the ralph of the build")
        yard.land("api")
        mine = yard.ended(1)[1]
        assert (yard.git("rev-parse", "main"), (yard.main / "api").exists()) == (before, False), mine
        assert build.poll() is None
    finally:
        build.send_signal(signal.SIGTERM)
        build.wait(60)


def test_a_queued_commit_is_kept_though_another_daemon_queues_too(daemon: Daemon, tmp_path: Path) -> None:
    held = Held(daemon, remote=False)
    yard = held.yard
    place = yard.ralph("api", api="1\n")
    head = yard.git("rev-parse", "ralph/api")
    with daemon_in(tmp_path / "two") as other:
        other.home = daemon.home
        other.start()
        theirs = Yard(other, yard.main)
        theirs.ralph("good", good="1\n")
        yard.land("api")
        held.until_tested()
        theirs.land("good")
        wait_for(lambda: held.runs == 2, timeout_s=LAND_S, what="the tests of ralph/good")
        yard.git("worktree", "remove", "--force", str(place))
        yard.git("branch", "-D", "ralph/api")
        yard.git("reflog", "expire", "--expire=now", "--all")
        yard.git("gc", "-q", "--prune=now")
        assert yard.git("cat-file", "-t", head) == "commit"


def test_what_lands_is_what_was_tested_though_a_run_replaced_an_object(daemon: Daemon) -> None:
    toml = '[regent]\ntest_command = "! grep -q bad code"\ntest_retries = 0\n'
    yard = Yard.of(daemon, remote=True, toml=toml)
    daemon.start()
    place = yard.ralph("api", code="bad\n")
    (place / "other").write_text("good\n")
    bad, good = yard.git("rev-parse", "HEAD:code", at=place), yard.git("hash-object", "-w", "other", at=place)
    (place / "other").unlink()
    yard.git("replace", bad, good, at=place)
    yard.land("api")

    assert yard.ended(1)[1]["state"] == "refused"
    assert "code" not in yard.git("ls-tree", "--name-only", "main", at=yard.main.parent / "origin")


def test_a_target_whose_ralph_toml_is_broken_is_looked_at_again(daemon: Daemon) -> None:
    held = Held(daemon, remote=False)
    yard = held.yard
    yard.ralph("api", api="1\n")
    yard.ralph("web", web="1\n")
    yard.land("api")
    held.until_tested()
    yard.land("web")
    yard.commit(yard.main, "ralph.toml", (yard.main / "ralph.toml").read_text() + "[regent\n")
    held.go.touch()
    wait_for(lambda: yard.queue()["blocked"], timeout_s=LAND_S, what="the queue to be blocked")

    (file,) = daemon.state.glob("landing/*/queue.json")
    assert json.loads(file.read_text())["retry_at"] is not None

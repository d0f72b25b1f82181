"""``ralphctl build``: a ralph in the foreground, its ends and their codes, and who else can see it (P5)."""

import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import is_alive, wait_for
from tests.players import player
from tests.whole.builds import END_S, TOML, Build, build_in
from tests.whole.harness import Daemon
from tests.whole.person import Person, argv


@pytest.fixture
def build(daemon: Daemon) -> Iterator[Build]:
    """A build to be started."""
    with build_in(daemon) as build:
        yield build


@pytest.fixture
def person(daemon: Daemon) -> Person:
    """Somebody at another terminal."""
    return Person(daemon)


# --- its ends -------------------------------------------------------------------------------------------


def test_a_build_that_is_done_ends_with_0_and_leaves_the_output_and_the_last_word(build: Build) -> None:
    build.start("--", *player("says", "out:one\\n", "err:two\\n", "out:three\\n"))

    assert build.ends_leaving_nothing() == 0
    assert {"one", "two", "three"} <= set(build.out().splitlines())
    assert build.out().endswith("🛡️  Regent: Ralph is done\n")
    assert "\x1b" not in build.out() + build.words()
    assert "demo: started" in build.words()
    assert "demo: done" in build.words()
    assert build.state()["state"] == "done"
    made = [build.daemon.state / "build", build.daemon.state]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 2  # else the doctor complains


def test_a_build_that_fails_is_tried_again_told_inline_and_ends_with_1(build: Build) -> None:
    build.start("--", *player("exits", 3))

    assert build.ends_leaving_nothing() == 1
    assert build.out().count("about to end") == 3
    assert "🛡️  Regent: Ralph exited (exit 3) — retrying in 0.05s (attempt 2/3)" in build.out()
    assert "🛡️  Regent: Restarting Ralph..." in build.out()
    assert "demo: failed: Ralph exited (exit 3) — giving up after 3 failures in a row" in build.words()
    assert "ralphctl logs" in build.words()


def test_a_build_that_pauses_ends_with_75_and_goes_on_when_it_is_typed_again(build: Build) -> None:
    build.start("--", *player("exits", 75))
    assert build.ends_leaving_nothing() == 75
    assert "demo: paused" in build.words()
    assert "ralphctl build  (continue)" in build.words()
    assert build.state()["state"] == "paused"

    build.start()
    assert build.ends_leaving_nothing() == 75
    assert "Resuming Ralph..." in build.out()


def test_a_usage_limit_with_a_known_reset_ends_it_with_75_too(build: Build, person: Person) -> None:
    checkpoint = {"version": 1, "pause_reason": "usage_limit", "resume_at": "2999-01-01T00:00:00Z"}
    (build.directory / ".ralph").mkdir()
    (build.directory / ".ralph" / "checkpoint.json").write_text(json.dumps(checkpoint))
    build.start("--", *player("exits", 75))

    assert build.ends_leaving_nothing() == 75
    assert "demo: paused: the agent's usage limit is reached; its limit ends in" in build.words()
    assert "resumes automatically" not in build.words() + person("status", cwd=build.directory).stdout


def test_a_limit_that_was_set_ends_it_with_5(build: Build) -> None:
    (build.directory / "ralph.toml").write_text('[ralph]\nmode = "iteration"\n' + TOML)
    build.start("--max-iterations", "1", "--", *player("exits", 0))

    assert build.ends_leaving_nothing() == 5
    assert "demo: done: a limit of yours was reached" in build.words()


def test_without_a_command_it_is_the_built_in_loop_unless_ralph_toml_has_one(build: Build) -> None:
    build.start("--agent", "nobody")
    assert build.ends_leaving_nothing() != 0
    assert "nobody" in build.words()  # no agent that the loop knows

    (build.directory / "ralph.toml").write_text(
        f"[ralph]\ncommand = {json.dumps(list(player('exits', 0)))}\n"
    )
    build.start()
    assert build.ends_leaving_nothing() == 0


def test_a_command_that_cannot_be_started_is_an_error_and_leaves_nothing(build: Build) -> None:
    build.start("--", "./not-there.sh")

    assert build.ends_leaving_nothing() == 1
    assert "not-there.sh" in build.words()


def test_nobody_who_reads_ends_everything_quietly(build: Build) -> None:
    heard, said = os.pipe()
    build.start("--", *player("says", "out:first\\n", "wait:600"), stdout=said)
    os.close(said)
    with os.fdopen(heard, "rb") as reader:
        assert reader.readline() == b"first\n"

    assert build.ends_leaving_nothing() == 141
    assert "Traceback" not in build.words()
    assert "error" not in build.words()


def test_a_path_too_long_for_a_socket_does_not_matter(daemon: Daemon) -> None:
    name = "a-name-as-long-as-it-may-be-" + "x" * 35
    with build_in(daemon, name) as build:
        build.start("--", *player("says", "out:hello\\n"))
        assert build.ends_leaving_nothing() == 0
        assert len(str(build.place / "ralphd.sock")) > 108
        assert "hello" in build.out()


def test_what_it_printed_can_be_read_afterwards_without_a_daemon(build: Build, person: Person) -> None:
    build.start("--", *player("says", "out:one\\n", "err:two\\n"))
    assert build.exit_code() == 0

    reply = person("logs", cwd=build.directory)
    assert reply.returncode == 0
    assert {"one", "two"} <= set(reply.stdout.splitlines())
    assert reply.stdout.endswith("Ralph is done\n")
    only = person("logs", "demo", "--stream", "stderr", "-n", "1", cwd=build.directory)
    assert only.stdout == "two\n"
    assert person("logs", "-f", cwd=build.directory).returncode == 3
    assert person("logs", "another", cwd=build.directory).returncode == 3


# --- from another terminal ------------------------------------------------------------------------------


def test_another_terminal_sees_it_and_its_log(build: Build, person: Person) -> None:
    build.start("--", *player("says", "out:hello\\n", "wait:600"))
    build.says("hello")

    status = person("status", cwd=build.directory)
    assert status.returncode == 0
    assert f"demo  working for 0s (pid {build.run_record()['pid']})" in status.stdout
    assert person("logs", cwd=build.directory).stdout == "hello\n"
    assert "ralph.started" in person("events", cwd=build.directory).stdout


def test_a_stop_from_another_terminal_is_answered_and_ends_it_with_130(build: Build, person: Person) -> None:
    build.witnessed()

    reply = person("stop", cwd=build.directory)

    assert reply.returncode == 0
    assert "demo: stopped" in reply.stdout
    assert "  next: ralphctl build  (start it again)\n" in reply.stdout  # no daemon is left that knows it
    assert build.ends_leaving_nothing() == 130
    assert "demo: stopped" in build.words()


def test_a_pause_from_another_terminal_is_answered_and_ends_it_with_75(build: Build, person: Person) -> None:
    build.witnessed()

    reply = person("pause", cwd=build.directory)

    assert reply.returncode == 0
    assert "demo: paused: as requested" in reply.stdout
    assert build.ends_leaving_nothing() == 75
    status = person("status", cwd=build.directory)
    assert status.returncode == 75
    assert "ralphctl build  (continue)" in status.stdout


def test_who_waits_elsewhere_hears_of_the_end_though_its_ralphd_is_gone_by_then(
    build: Build, person: Person
) -> None:
    build.witnessed()
    with person.watching("-C", str(build.directory), "wait") as waiting:
        assert waiting.stderr is not None
        assert b"waiting for demo" in waiting.stderr.readline()
        build.witness.end(0)
        assert build.exit_code() == 0
        assert waiting.wait(END_S) == 0


def test_its_ralphd_asked_to_end_stops_the_ralph_and_the_build(build: Build) -> None:
    build.witnessed()

    os.kill(build.ralphd, signal.SIGTERM)

    assert build.ends_leaving_nothing() == 130
    assert build.state()["state"] == "stopped"


# --- beside others --------------------------------------------------------------------------------------


def test_a_ralph_of_the_daemon_in_the_same_directory_is_named_and_left_alone(
    build: Build, person: Person, daemon: Daemon
) -> None:
    daemon.start()
    build.witness.register()
    pid = build.witness.started(1)

    build.start("--", *player("exits", 0))

    assert build.exit_code() == 1
    assert "error: another ralphd already supervises this directory: demo is running" in build.words()
    assert "ralphctl stop demo" in build.words()
    assert is_alive(pid)


def test_a_ralph_of_the_daemon_that_is_stopped_is_no_hindrance(build: Build, daemon: Daemon) -> None:
    daemon.start()
    build.witness.register(start=False)

    build.start("--", *player("exits", 0))

    assert build.exit_code() == 0
    assert daemon.view("demo")["state"] == "idle"


def test_a_second_build_in_the_same_directory_is_refused_and_the_first_goes_on(
    build: Build, daemon: Daemon, person: Person
) -> None:
    build.witnessed()

    second = person("build", "--", *player("exits", 0), cwd=build.directory)

    assert second.returncode == 1
    assert "another terminal already runs ralphctl build in this directory (demo)" in second.stderr
    third = person("build", "--name", "other", "--", *player("exits", 0), cwd=build.directory)
    assert "another ralphd already supervises this directory: demo is running" in third.stderr
    build.witness.end(0)
    assert build.ends_leaving_nothing() == 0


def test_builds_in_two_directories_of_one_name_do_not_meet(daemon: Daemon, person: Person) -> None:
    places = [daemon.home / "one" / "same", daemon.home / "two" / "same"]
    for place in places:
        place.mkdir(parents=True)
    commands = [
        player("says", f"touch:{here}/there", f"file:{other}/there")
        for here, other in zip(places, reversed(places), strict=True)
    ]
    with (
        subprocess.Popen(argv(["build", "--", *commands[0]]), cwd=places[0], env=person.environment) as one,
        subprocess.Popen(argv(["build", "--", *commands[1]]), cwd=places[1], env=person.environment) as two,
    ):
        codes = [one.wait(END_S), two.wait(END_S)]

    assert codes == [0, 0]  # each waited for the other: they ran at the same time
    assert len(list(daemon.state.glob("build/same-*"))) == 2


def test_the_private_ralphd_is_of_no_terminal_and_in_no_directory_of_a_person(build: Build) -> None:
    build.witnessed()
    ralphd = Path(f"/proc/{build.ralphd}")

    assert os.getsid(build.ralphd) == build.ralphd
    assert (ralphd / "cwd").readlink() == build.place
    assert [str((ralphd / "fd" / number).readlink()) for number in "012"] == [
        "/dev/null",
        *[str(build.place / "ralphd.err")] * 2,
    ]
    assert build.place.stat().st_mode & 0o777 == 0o700
    build.witness.end(0)
    assert build.ends_leaving_nothing() == 0


def test_the_log_of_its_ralphd_is_kept(build: Build) -> None:
    build.start("--", *player("exits", 0))
    assert build.exit_code() == 0

    assert "ready: pid" in (build.place / "ralphd.log").read_text()
    assert wait_for(lambda: (build.place / "ralphd.err").read_bytes() == b"")

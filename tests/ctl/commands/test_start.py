"""start: what is sent, what is started again, and what is refused before anything is sent."""

import os
from pathlib import Path

import pytest

from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, problem, view
from tests.ctl.golden_files import Golden

REGISTER = "POST /v1/ralphs"


def accept(daemon: FakeDaemon, **changes: object) -> None:
    daemon.on(REGISTER, lambda _: Answer({**view(), **changes}, 201))


def test_a_command_in_a_directory_is_registered_and_started(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    (tmp_path / "x").mkdir()
    accept(daemon, notes=["not a git repository: commits are not watched"])
    reply = ctl("start", "x", "--", "./loop.sh", "--json", "-C", more={"API_KEY": "k"})
    assert reply.returncode == 0, reply.stderr
    body = daemon.body_of(REGISTER)
    assert body["directory"] == str(tmp_path / "x")
    assert body["command"] == ["./loop.sh", "--json", "-C"]
    assert body["start"] is True
    assert body["environment"]["API_KEY"] == "k"
    assert "name" not in body
    golden(reply)


def test_options_that_are_keys_go_as_keys(daemon: FakeDaemon, ctl: Ctl) -> None:
    accept(daemon)
    reply = ctl(
        "start", "--name", "api", "--agent", "codex", "--fallback", "claude, gemini",
        "--retries-before-fallback", "1", "--max-task-failures", "2", "--timeout", "60",
        "--iteration-timeout", "90.5", "--phase-3-retry-count", "1", "--max-iterations", "9",
        "--max-cost", "2.5", "--", "./loop.sh",
    )  # fmt: skip
    assert reply.returncode == 0, reply.stderr
    body = daemon.body_of(REGISTER)
    assert body["name"] == "api"
    assert body["flags"] == {
        "agent": "codex",
        "fallback": ["claude", "gemini"],
        "retries-before-fallback": 1,
        "max-task-failures": 2,
        "timeout": 60,
        "iteration-timeout": 90.5,
        "phase-3-retry-count": 1,
        "max-iterations": 9,
        "max-cost": 2.5,
    }


def test_the_agents_to_fall_back_to_may_be_left_to_us_and_none_at_all_is_refused(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    accept(daemon)
    assert ctl("start", "--fallback", "auto").returncode == 0
    assert daemon.body_of(REGISTER)["flags"] == {"fallback": ["auto"]}
    reply = ctl("start", "--fallback", " , ")
    golden(reply)
    assert reply.returncode == 2


def test_a_known_ralph_keeps_its_name(daemon: FakeDaemon, ctl: Ctl) -> None:
    accept(daemon)
    daemon.views = {"web": view("web")}
    assert ctl("start", "web", "--name", "other").returncode == 2
    assert ctl("start", "web", "--name", "web").returncode == 0


def test_a_limit_that_json_cannot_carry_is_refused(daemon: FakeDaemon, ctl: Ctl) -> None:
    for text in ("inf", "nan"):
        reply = ctl("start", "--max-cost", text)
        assert (reply.returncode, reply.stderr.splitlines()[0]) == (
            2,
            f"error: --max-cost {text} is not a number",
        )


def test_without_a_command_the_configuration_says_it(daemon: FakeDaemon, ctl: Ctl, tmp_path: Path) -> None:
    accept(daemon)
    assert ctl("start").returncode == 0
    assert daemon.body_of(REGISTER)["command"] == []


def test_a_known_ralph_is_started_again_by_its_name(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view()}
    assert ctl("start", "api", "--max-iterations", "3").returncode == 0
    assert daemon.lines() == ["POST /v1/ralphs/api/start"]
    body = daemon.body_of("POST /v1/ralphs/api/start")
    assert body.pop("environment")["PATH"]
    assert body == {"flags": {"max-iterations": 3}}


def test_inside_a_known_ralphs_directory_it_is_started_again(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    (tmp_path / "api" / "src").mkdir(parents=True)
    daemon.views = {"api": view(directory=str(tmp_path / "api"))}
    assert ctl("start", cwd=tmp_path / "api" / "src").returncode == 0
    assert ctl("start", "api").returncode == 0
    assert daemon.lines() == ["POST /v1/ralphs/api/start"] * 2


def test_a_project_of_its_own_below_a_known_ralph_is_started_itself(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    (own := tmp_path / "api" / "own" / "src").mkdir(parents=True)
    (own.parent / "ralph.toml").touch()
    daemon.views = {"api": view(directory=str(tmp_path / "api"))}
    accept(daemon)
    assert ctl("start", cwd=own.parent).returncode == 0
    assert daemon.body_of(REGISTER)["directory"] == str(own.parent)
    assert ctl("start", cwd=own).returncode == 0
    assert daemon.lines() == [REGISTER] * 2


def test_another_command_for_a_known_ralph_needs_replace(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path, golden: Golden
) -> None:
    accept(daemon)
    daemon.views = {"api": view(directory=str(tmp_path), state="stopped", ralph_pid=None)}
    refused = ctl("start", "--", "./other.sh", "a b")
    assert (refused.returncode, daemon.lines()) == (2, [])
    assert ctl("start", "--replace", "--", "./other.sh", "a b").returncode == 0
    assert daemon.lines() == [REGISTER]
    daemon.views = {"api": view(directory=str(tmp_path))}
    running = ctl("start", "--replace", "--", "./other.sh")
    assert running.returncode == 1
    golden(refused, running)


def test_the_same_command_again_is_never_asked_about(daemon: FakeDaemon, ctl: Ctl, tmp_path: Path) -> None:
    accept(daemon, notes=["replaced the earlier definition of this name"])
    command = view()["command"]
    daemon.views = {"api": view(directory=str(tmp_path), state="stopped", ralph_pid=None)}
    reply = ctl("start", "--", *command)
    assert (reply.returncode, reply.stderr) == (0, "")
    daemon.views = {"api": view(directory=str(tmp_path))}
    assert "already running" in ctl("start", "--", *command).stdout
    assert daemon.lines() == [REGISTER, "POST /v1/ralphs/api/start"]


def test_what_is_neither_a_directory_nor_known_is_refused(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    nobody, nowhere = ctl("start", "nobody"), ctl("start", "/not/there", "--", "./loop.sh")
    golden(nobody, nowhere)
    assert (nobody.returncode, nowhere.returncode) == (4, 1)
    assert not daemon.lines() or daemon.lines() == ["POST /v1/ralphs/nobody/start"]


@pytest.mark.parametrize("typed", ["loop.sh", "./loop.sh"])
def test_a_program_in_the_place_of_the_directory_is_answered_with_the_dashes(
    typed: str, daemon: FakeDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    (tmp_path / "loop.sh").touch()
    assert "  try: ralphctl start -- ./loop.sh" in ctl("start", typed).stderr


def test_a_command_without_the_dashes_is_answered_with_the_right_words(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    replies = [ctl("start", ".", "./loop.sh", "now"), ctl("start", ".", "--")]
    golden(*replies)
    assert {reply.returncode for reply in replies} == {2}
    assert daemon.lines() == []


def test_all_faults_of_a_configuration_are_told_and_it_ends_with_78(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    faults = "ralph.toml:3: regent.max_retires: unknown key, did you mean max_retries?\nralph.toml:9: x: y"
    daemon.on(REGISTER, lambda _: problem("configuration", 422, "2 faults in the configuration", faults))
    reply = ctl("start", "--", "./loop.sh")
    golden(reply)
    assert reply.returncode == 78


def test_a_variable_that_is_not_utf8_is_left_out_and_said(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, environment: dict[str, str]
) -> None:
    accept(daemon)
    reply = ctl("start", "--", "./loop.sh", more={"ODD": os.fsdecode(b"\xff")})
    assert reply.returncode == 0, reply.stderr
    assert "ODD" not in daemon.body_of(REGISTER)["environment"]
    golden(reply)


@pytest.mark.parametrize("name", ["Api", "", "a/b", "x" * 64], ids=["capital", "empty", "slash", "long"])
def test_a_malformed_name_is_refused_before_anything_is_sent(
    name: str, daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    reply = ctl("start", "--name", name, "--", "./loop.sh")
    golden(reply)
    assert reply.returncode == 2
    assert daemon.asked == []


def test_a_start_that_failed_ends_with_1(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    accept(daemon, state="failed", message="exit 2 at once")
    reply = ctl("start", "--", "./loop.sh")
    golden(reply)
    assert reply.returncode == 1

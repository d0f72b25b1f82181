"""stop, restart, pause, resume, skip-wait, rm, wait: one call, the wait for its effect, the words for it."""

import json
import threading
from pathlib import Path

import pytest

from tests.ctl.conftest import Ctl
from tests.ctl.fake import Answer, FakeDaemon, Request, problem, view
from tests.ctl.golden_files import Golden, without_remark


def become_after(daemon: FakeDaemon, line: str, seconds: float, **changes: object) -> None:
    """Answer ``line`` with the present view; ``seconds`` later the ralph has changed."""

    def answer(request: Request) -> Answer:
        def change() -> None:
            daemon.views["api"] = {**daemon.views["api"], **changes}

        threading.Timer(seconds, change).start()
        return Answer(daemon.views["api"], 202)

    daemon.on(line, answer)


def test_stop_waits_until_it_is_so_and_says_what_for_since_when_and_how_to_force_it(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(state="stopping")}
    ending = {"run_id": "r1-a", "code": None, "signal": 15, "outcome": "asked", "at": "2026-11-21T07:00:00Z"}
    become_after(daemon, "POST /v1/ralphs/api/stop", 0.6, state="stopped", last_exit=ending)
    reply = ctl("stop", "api")
    golden(reply)
    assert reply.returncode == 0


def test_a_stop_that_waits_for_a_boundary_says_so_and_since_when_it_was_asked(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    message = "ends when its iteration is finished; asked at 2026-11-21T05:00:00.000000Z"
    daemon.views = {"api": view(state="stopping", message=message)}
    reply = ctl("stop", "api", "--wait-timeout", "0.6")
    golden(reply)
    assert reply.returncode == 124


def test_stop_now_is_asked_for_as_such(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(state="stopped")}
    assert ctl("stop", "--now", "api").returncode == 0
    assert daemon.body_of("POST /v1/ralphs/api/stop") == {"now": True}


def test_a_stop_that_is_not_waited_for_answers_at_once(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view(state="stopping")}
    reply = ctl("stop", "--no-wait", "api")
    golden(reply)
    assert reply.returncode == 0


def test_a_wait_that_runs_out_ends_with_124_and_says_that_only_the_waiting_ended(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(state="stopping")}
    reply = ctl("stop", "--wait-timeout", "0.1", "api")
    golden(reply)
    assert reply.returncode == 124


def test_inside_its_directory_the_name_may_be_left_out(daemon: FakeDaemon, ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / "inner" / "deep").mkdir(parents=True)
    daemon.views = {
        "outer": view("outer", directory=str(tmp_path)),
        "inner": view("inner", directory=str(tmp_path / "inner"), state="stopped"),
    }
    assert ctl("stop", cwd=tmp_path / "inner" / "deep").returncode == 0
    assert ctl("-C", "inner", "stop").returncode == 0
    assert daemon.lines() == ["POST /v1/ralphs/inner/stop"] * 2


def test_outside_of_every_directory_the_only_ralph_is_meant(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(state="stopped")}
    assert ctl("stop").returncode == 0
    assert daemon.lines() == ["POST /v1/ralphs/api/stop"]


def test_outside_of_every_directory_one_of_several_has_to_be_named(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(), "web": view("web")}
    reply = ctl("stop")
    golden(reply)
    assert reply.returncode == 4


def test_restart_waits_for_the_new_run(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view(run_id="r000001-aa")}
    become_after(daemon, "POST /v1/ralphs/api/restart", 0.2, run_id="r000002-bb", ralph_pid=4812)
    reply = ctl("restart", "api")
    golden(without_remark(reply))
    assert reply.returncode == 0


def test_restart_of_one_whose_time_has_not_come_waits_for_no_run(daemon: FakeDaemon, ctl: Ctl) -> None:
    wait = {"reason": "schedule", "until": "2026-11-21T23:00:00Z"}
    daemon.views = {"api": view(state="waiting_for_retry", run_id=None, ralph_pid=None, wait=wait)}
    reply = ctl("restart", "api", "--wait-timeout", "5")
    assert (reply.returncode, "api: waiting until" in reply.stdout) == (0, True), reply


def test_pause_ends_with_the_way_to_go_on(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view(state="pausing")}
    become_after(daemon, "POST /v1/ralphs/api/pause", 0.1, state="paused", pause_reason="requested")
    reply = ctl("pause", "api")
    golden(without_remark(reply))
    assert reply.returncode == 0


def test_pausing_a_loop_that_reports_says_that_it_finishes_its_iteration(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    message = "ends when its iteration is finished; asked at 2026-11-21T05:00:00.000000Z"
    daemon.views = {"api": view(state="pausing", message=message, command=[])}
    become_after(daemon, "POST /v1/ralphs/api/pause", 0.1, state="paused", pause_reason="user_requested")
    golden(without_remark(ctl("pause", "api")))


@pytest.mark.parametrize("command", ["resume", "skip-wait"])
def test_what_needs_no_waiting_answers_at_once(
    command: str, daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view()}
    reply = ctl(command, "api")
    golden(reply)
    assert reply.returncode == 0
    assert daemon.lines() == [f"POST /v1/ralphs/api/{command}"]


def test_a_refusal_of_the_daemon_is_told_in_its_words(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view()}
    daemon.on(
        "POST /v1/ralphs/api/resume",
        lambda _: problem("wrong-state", 409, "api is not paused", "it is running", "ralphctl status api"),
    )
    reply = ctl("resume", "api")
    golden(reply)
    assert reply.returncode == 1


def test_rm_forgets(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.views = {"api": view(state="stopped")}
    daemon.on("DELETE /v1/ralphs/api", lambda _: Answer(b"", 204))
    golden(ctl("rm", "api"))


def test_json_prints_the_last_reply(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view(state="stopped")}
    assert json.loads(ctl("stop", "api", "--json").stdout)["state"] == "stopped"
    assert json.loads(ctl("--json", "stop", "api").stdout)["name"] == "api"


@pytest.mark.parametrize(
    ("state", "goal", "code"),
    [
        ("done", "idle", 0), ("failed", "idle", 1), ("paused", "idle", 75), ("done", "done", 0),
        ("failed", "done", 1), ("stopped", "done", 1), ("paused", "paused", 75), ("stopped", "stopped", 0),
    ],
)  # fmt: skip
def test_wait_ends_when_it_is_so_or_cannot_be_so_any_more(
    state: str, goal: str, code: int, daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(state=state)}
    reply = ctl("wait", "api", "--for", goal)
    golden(reply)
    assert reply.returncode == code


def test_wait_outlives_a_restart_of_the_daemon(daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"api": view()}

    def come_back() -> None:
        daemon.views = {"api": view(state="done")}
        daemon.start()

    looks: list[Request] = []

    def look(request: Request) -> Answer:
        looks.append(request)
        if len(looks) == 3:
            threading.Thread(target=daemon.stop).start()
            threading.Timer(0.6, come_back).start()
        return Answer(daemon.views["api"])

    daemon.on("GET /v1/ralphs/api", look)
    reply = ctl("wait", "api", "--wait-timeout", "10")
    assert reply.returncode == 0, reply.stderr
    assert reply.stderr.count("ralphd is away") == 1


def test_wait_for_a_ralph_nobody_knows_is_no_wait(daemon: FakeDaemon, ctl: Ctl) -> None:
    assert ctl("wait", "nobody").returncode == 4


@pytest.mark.parametrize(
    "words",
    [
        "stop api",
        "logs api",
        "logs -f api",
        "events",
        "events -f",
        "rm api",
        "wait api",
        "start --no-autostart",
    ],
)
def test_without_a_daemon_every_command_names_the_one_that_starts_it(words: str, ctl: Ctl) -> None:
    reply = ctl(*words.split())
    assert (reply.returncode, reply.stderr) == (3, ctl("status").stderr)

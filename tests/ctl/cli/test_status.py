"""status: what it loads, what it says, how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphctl.format import status_text
from ralphctl.offline import state as offline
from ralphd import wire
from tests.ctl.conftest import SEVEN, Ctl
from tests.ctl.fake import FakeDaemon, problem, view
from tests.ctl.golden_files import Golden
from tests.helpers import wait_for

HEAVY = [
    "asyncio", "click", "dataclasses", "httpx", "pathlib", "pydantic", "rich", "ssl", "subprocess",
    "typing", "ralphd.core", "ralphd.config",
]  # fmt: skip
LOADED = (
    "import sys; from ralphctl.main import main; code = main(); "
    "print('\\nLOADED', *sys.modules, file=sys.stderr); sys.exit(code)"
)


def loaded_by(*words: str, environment: dict[str, str], cwd: Path) -> tuple[int, set[str]]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADED, *words], env=environment, cwd=cwd, capture_output=True, text=True
    )
    return done.returncode, set(done.stderr.rpartition("LOADED")[2].split())


def in_directory(tmp_path: Path, **changes: Any) -> Path:
    directory = tmp_path / "api"
    (directory / ".ralph").mkdir(parents=True)
    state = {**view(**changes), "name": "api"}
    (directory / ".ralph" / "regent-state.json").write_text(json.dumps(state))
    return directory


@pytest.mark.parametrize(
    "words", [["status"], ["ps"], ["--json", "status"], ["status", "api", "--resources"]]
)
def test_status_is_answered_before_anything_heavy_is_imported(
    words: list[str], daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    pool = {"strategy": "rotate", "agents": [_AGENT, _OTHER]}
    daemon.views = {"api": view(pool=pool), "web": view("web", state="failed")}
    _, loaded = loaded_by(*words, environment=environment, cwd=tmp_path)
    assert "ralphctl.cli.fast_status" in loaded
    assert not loaded.intersection(HEAVY)


def test_status_without_a_daemon_loads_nothing_heavy_either(
    environment: dict[str, str], tmp_path: Path
) -> None:
    code, loaded = loaded_by("status", environment=environment, cwd=in_directory(tmp_path, state="paused"))
    assert code == 75
    assert not loaded.intersection(HEAVY)


def test_status_of_nothing_loads_nothing_heavy_either(environment: dict[str, str], tmp_path: Path) -> None:
    code, loaded = loaded_by("status", environment=environment, cwd=tmp_path)
    assert code == 3
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([], 0), (["idle"], 0), (["running"], 0), (["done"], 0), (["stopped"], 0), (["waiting_for_retry"], 0),
        (["failed"], 1), (["paused"], 75), (["paused", "failed", "running"], 1), (["running", "paused"], 75),
    ],
)  # fmt: skip
def test_status_exits_with_1_before_75_before_0(
    states: list[str], code: int, daemon: FakeDaemon, ctl: Ctl
) -> None:
    daemon.views = {f"r{i}": view(f"r{i}", state=state) for i, state in enumerate(states)}
    assert ctl("status").returncode == code


def test_one_ralph_is_shown_in_full(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    exit_ = {
        "run_id": "r000011-aa",
        "code": 127,
        "signal": None,
        "outcome": "failed",
        "at": "2026-11-21T03:12:55Z",
    }
    daemon.views = {
        "api": view(restarts=2, consecutive_errors=1, last_exit=exit_, notes=["not a git repository"])
    }
    golden(ctl("status", "api"))


def test_several_are_a_table_and_those_that_wait_for_a_person_are_named(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {"api": view(), "web": view("web", state="failed", message="exit 1, 3 times in a row")}
    golden(ctl("status"))


def test_problems_of_the_daemon_are_shown(
    daemon: FakeDaemon, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.views = {"api": view(), "web": view("web")}
    known = daemon.daemon() | {"status": "degraded", "problems": ["disk: it is full\x1b[2J"]}
    monkeypatch.setattr(daemon, "daemon", lambda: known)
    for words in (["status"], ["status", "api"]):
        assert ctl(*words).stderr == "ralphd is degraded: disk: it is full^[[2J\n", words
    narrow = ctl("status", more={"COLUMNS": "22"}).stderr
    assert narrow == "ralphd is degraded:\ndisk: it is full^[[2J\n"
    assert (ctl("status", "--short").stderr, ctl("status", "--json").stderr) == ("", "")


def test_inside_a_directory_its_ralph_is_shown_and_the_others_are_counted(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    below = tmp_path / "api" / "src"
    below.mkdir(parents=True)
    daemon.views = {"web": view("web", state="failed"), "api": view(directory=str(tmp_path / "api"))}
    shown = ctl("status", cwd=below)
    golden(shown)
    assert shown.returncode == 0
    assert ctl("status", "--all", cwd=below).returncode == 1


def test_json_has_one_shape_for_all_one_and_those_of_a_directory(
    daemon: FakeDaemon, ctl: Ctl, tmp_path: Path
) -> None:
    (tmp_path / "api").mkdir()
    daemon.views = {"api": view(state="paused", directory=str(tmp_path / "api")), "web": view("web")}
    reply = ctl("status", "--json")
    everything = json.loads(reply.stdout)
    assert list(everything) == ["version", "daemon", "ralphs"]
    assert everything["ralphs"] == list(daemon.views.values())
    assert reply.returncode == 75
    one = everything | {"ralphs": [daemon.views["api"]]}
    assert json.loads(ctl("--json", "status", "api").stdout) == one
    assert json.loads(ctl("status", "--json", cwd=tmp_path / "api").stdout) == one
    assert json.loads(ctl("status", "--json", "--all", cwd=tmp_path / "api").stdout) == everything


@pytest.mark.parametrize("name", ["status", "ls", "list", "ps"])
def test_status_has_the_names_of_other_tools(name: str, daemon: FakeDaemon, ctl: Ctl) -> None:
    daemon.views = {"web": view("web"), "api": view(state="failed"), "old": view("old", state="done")}
    assert ctl(name, "-q").stdout.split() == ["api", "web", "old"]
    assert ctl(name, "--running", "-q").stdout.split() == ["web"]


def test_finished_ralphs_are_counted_unless_all_are_finished(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    daemon.views = {
        "api": view(), "old": view("old", state="done"), "e1": view("e1", state="stopped"),
        "e2": view("e2", state="stopped"),
    }  # fmt: skip
    some, every = ctl("status"), ctl("status", "--all")
    del daemon.views["api"]
    golden(some, every, ctl("status"))


def test_a_line_for_a_prompt_shows_no_error(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    wait = {"reason": "usage_limit", "until": "2026-11-21T20:31:00Z"}
    limited = view("infra", state="waiting_for_retry", wait=wait, ralph_pid=4711)
    daemon.views = {"api": view(state="failed"), "web": view("web"), "infra": limited}
    golden(ctl("status", "--short"), ctl("status", "--short", "infra"), ctl("status", "--short", "nobody"))
    daemon.views = {}
    assert ctl("status", "--short").stdout == ""


def test_a_prompt_without_a_daemon_is_silent(ctl: Ctl) -> None:
    reply = ctl("status", "--short")
    assert (reply.stdout, reply.stderr, reply.returncode) == ("", "", 3)


def test_a_format_names_fields_and_a_wrong_one_is_told_with_all_names(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden
) -> None:
    tasks = {"done": 2, "total": 5}
    daemon.views = {"api": view(tasks=tasks, agent="claude"), "web": view("web", state="failed")}
    golden(
        ctl("status", "--format", r"{name}\t{state:8}|{tasks} {agent} {cost} {until}"),
        *(ctl("status", "--format", form) for form in ("{nmae}", "{0}", "{", "{name.x}")),
    )


def test_without_a_daemon_all_ralphs_of_the_state_directory_are_a_table(
    ctl: Ctl, golden: Golden, environment: dict[str, str], tmp_path: Path
) -> None:
    state = Path(wire.state_directory(environment))
    for home, changes in (
        ("ralphs/api", {"state": "failed", "message": "exit 1"}),
        ("ralphs/web", {"state": "done"}),
        ("build/bld-12345678/ralphs/bld", {"state": "paused", "pause_reason": "user_requested"}),
    ):
        kept, name = state / home, home.rpartition("/")[2]
        kept.mkdir(parents=True)
        saved = view(name, goal="stopped", run_id=f"r000001-{name}", ralph_pid=None, **changes)
        definition = {"directory": f"/somewhere/{name}", "command": []}
        (kept / "ralph.json").write_text(json.dumps(definition))
        (kept / "regent-state.json").write_text(json.dumps(saved))
    shown = ctl("status", "--all")
    golden(shown)
    assert shown.returncode == 1
    assert [each["name"] for each in json.loads(ctl("status", "bld", "--json").stdout)["ralphs"]] == ["bld"]


def test_a_refusal_is_told_with_why_and_what_to_do(daemon: FakeDaemon, ctl: Ctl, golden: Golden) -> None:
    daemon.on(
        "GET /v1/ralphs/nobody",
        lambda _: problem("unknown-ralph", 404, "no ralph is called 'nobody'", "w", "t"),
    )
    reply = ctl("status", "nobody")
    golden(reply)
    assert reply.returncode == 4


def test_a_name_that_is_none_is_refused_before_anybody_is_asked(ctl: Ctl, golden: Golden) -> None:
    reply = ctl("status", "../x")
    golden(reply)
    assert reply.returncode == 2


def test_without_a_daemon_the_last_known_is_told(ctl: Ctl, golden: Golden, tmp_path: Path) -> None:
    directory = in_directory(tmp_path, state="paused", pause_reason="usage_limit")
    checkpoint = {
        "version": 1, "created_at": "2026-11-01T04:00:00Z", "iteration": 6, "pause_reason": "usage_limit",
        "task": {"id": "T-3", "title": "Mend \x1b[2Jthe parser", "attempt": 1}, "uncommitted_files": ["a.py"],
    }  # fmt: skip
    (directory / ".ralph" / "checkpoint.json").write_text(json.dumps(checkpoint))
    reply = ctl("status", cwd=directory)
    golden(reply)
    assert reply.returncode == 75
    as_json = json.loads(ctl("status", "--json", cwd=directory).stdout)
    assert as_json["daemon"] is None
    assert as_json["ralphs"][0]["state"] == "paused"


_AGENT = {"name": "co\x1b[2Jdex", "in": True, "until": None, "reason": None, "last": True}
_OTHER = {"name": "claude", "in": False, "until": None, "reason": "no login", "last": False}


def test_without_a_daemon_the_last_known_pool_is_told(tmp_path: Path, golden: Golden) -> None:
    held = {"strategy": "rotate", "agents": [_AGENT, {**_OTHER, "more": 5}]}
    directory = in_directory(tmp_path, state="stopped", pool=held)

    known = offline.last_view(str(directory))

    assert known is not None
    assert known["pool"] == {"strategy": "rotate", "agents": [_AGENT, _OTHER]}
    golden(status_text.ralph(known, SEVEN, step=("x", "y")))


@pytest.mark.parametrize(
    "held",
    [
        *(5, [], {}, {"strategy": "rotate", "agents": []}, {"strategy": "rotate", "agents": {"a": 1}}),
        *({"strategy": [], "agents": [_AGENT]}, {"strategy": "whim", "agents": [_AGENT]}),
        *({"strategy": "rotate", "agents": [{**_AGENT, key: 5}]} for key in _AGENT),
        {"strategy": "rotate", "agents": [{**_AGENT, "in": None}]},
        {"strategy": "rotate", "agents": [_AGENT, {"name": "claude"}]},
    ],
)  # fmt: skip
def test_a_pool_that_cannot_be_is_left_out(held: object, tmp_path: Path) -> None:
    known = offline.last_view(str(in_directory(tmp_path, pool=held)))

    assert known is not None
    assert known["pool"] is None
    assert "agents" not in status_text.ralph(known, 0.0, step=("x", "y"))


@pytest.mark.parametrize(
    ("reason", "code"), [("usage_limit", 75), ("user_requested", 75), ("iteration_boundary", 0)]
)
def test_a_checkpoint_alone_tells_what_is_so(
    reason: str, code: int, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    directory = tmp_path / "api"
    (directory / ".ralph").mkdir(parents=True)
    held = {"version": 1, "created_at": "2026-11-01T04:00:00Z", "iteration": 6, "pause_reason": reason}
    (directory / ".ralph" / "checkpoint.json").write_text(json.dumps(held))
    reply = ctl("status", cwd=directory)
    golden(reply)
    assert reply.returncode == code


def test_where_a_build_worked_no_other_directorys_ralph_is_meant(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    daemon.views = {"web": view(name="web")}
    held = {"version": 1, "name": "api", "state": "paused", "pause_reason": "usage_limit", "run_id": "r1"}
    directory, home = tmp_path / "api", tmp_path / "state" / "build" / "api-1" / "ralphs" / "api"
    for place in (directory / ".ralph", home):
        place.mkdir(parents=True)
        (place / "regent-state.json").write_text(json.dumps(held))
    below = directory / "src"
    below.mkdir()
    reply, refused = ctl("status", cwd=below), ctl("stop", cwd=below)
    golden(reply, refused, ctl("status", "--all", cwd=below))
    named = ctl("status", "api", cwd=below)
    assert (named.returncode, named.stdout, named.stderr) == (75, reply.stdout, reply.stderr)
    assert (reply.returncode, refused.returncode) == (75, 4)
    assert daemon.lines() == []


@pytest.mark.parametrize("text", ["{", '{"version": 2}'], ids=["damaged", "newer"])
def test_a_checkpoint_that_cannot_be_used_is_said(
    text: str, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    directory = in_directory(tmp_path, state="paused", pause_reason="usage_limit")
    (directory / ".ralph" / "checkpoint.json").write_text(text)
    golden(ctl("status", cwd=directory))


def test_the_daemons_word_on_a_checkpoint_comes_before_the_copy(
    daemon: FakeDaemon, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    directory = in_directory(tmp_path, state="paused")
    (directory / ".ralph" / "checkpoint.json").write_text("{")
    told = {"iteration": 9, "pause_reason": "outage", "created_at": "2026-11-21T07:00:00Z"}
    limit = {"reason": "outage", "until": "2999-01-01T00:00:00Z"}
    daemon.views = {
        "api": view(state="paused", pause_reason="outage", wait=limit, command=[], checkpoint=told)
    }
    reply = ctl("status", "api")
    golden(reply)
    assert reply.returncode == 75


def test_the_seeds_own_state_file_is_read_too(ctl: Ctl, golden: Golden, tmp_path: Path) -> None:
    directory = tmp_path / "project"
    (directory / ".ralph").mkdir(parents=True)
    seed = {
        "ralph_pid": os.getpid(), "iteration": 7, "consecutive_errors": 0,
        "last_output_at": "2026-02-23T20:00:00Z", "last_commit": "abc1234", "total_cost_usd": 1.42,
    }  # fmt: skip
    (directory / ".ralph" / "regent-state.json").write_text(json.dumps(seed))
    reply = ctl("status", cwd=directory)
    golden(reply)
    assert reply.returncode == 0


def test_without_a_daemon_a_run_whose_process_is_gone_is_not_said_to_run(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    directory = in_directory(tmp_path, state="running", ralph_pid=os.getpid(), run_id="r000001-00000000")
    golden(ctl("status", cwd=directory))  # the pid is another process's by now: it carries no cookie


def test_without_a_daemon_work_that_tests_set_aside_is_named(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    golden(ctl("status", cwd=in_directory(tmp_path, state="testing", ralph_pid=None)))


def test_without_a_daemon_a_run_that_was_to_end_is_said_to_be_stopped(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    directory = in_directory(tmp_path, state="stopping", goal="stopped", ralph_pid=os.getpid())
    golden(ctl("status", cwd=directory))


def test_without_a_daemon_a_run_that_was_to_be_paused_is_shown_as_paused(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    directory = in_directory(tmp_path, state="pausing", goal="paused", ralph_pid=os.getpid())
    reply = ctl("status", cwd=directory)
    golden(reply)
    assert reply.returncode == 75


def test_without_a_daemon_a_run_that_lives_is_said_to_be_watched_by_nobody(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    cookie = {"RALPH_RUN_ID": "r000001-00000000"}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **cookie}) as run:
        try:
            directory = in_directory(
                tmp_path, state="running", ralph_pid=run.pid, run_id=cookie["RALPH_RUN_ID"]
            )
            wait_for(lambda: b"r000001" in Path(f"/proc/{run.pid}/environ").read_bytes())
            reply = ctl("status", cwd=directory)
        finally:
            run.kill()
    golden(reply, hide={run.pid: "PID"})


@pytest.mark.parametrize("state", ["paused", "waiting_for_retry"])
def test_without_a_daemon_nothing_is_said_to_go_on_by_itself(
    state: str, ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    wait = {"reason": "crash", "until": "2999-01-01T00:00:00Z"}
    golden(ctl("status", cwd=in_directory(tmp_path, state=state, wait=wait, ralph_pid=None)))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"state": 5, "wait": "x", "name": []}', "[" * 100_000, "\0" * 50]
)
def test_a_broken_state_file_never_breaks_status(text: str, ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    (tmp_path / ".ralph" / "regent-state.json").write_text(text)
    reply = ctl("status")
    assert reply.returncode in (0, 3)
    assert "Traceback" not in reply.stderr


def test_a_fifo_in_place_of_the_state_file_does_not_hang_status(ctl: Ctl, tmp_path: Path) -> None:
    (tmp_path / ".ralph").mkdir()
    os.mkfifo(tmp_path / ".ralph" / "regent-state.json")
    assert ctl("status").returncode == 3


def test_with_nothing_to_read_all_places_are_named_and_the_command_that_starts_it(
    ctl: Ctl, golden: Golden
) -> None:
    reply = ctl("status")
    golden(reply)
    assert reply.returncode == 3


def test_watch_shows_it_again_until_it_is_ended(
    daemon: FakeDaemon, environment: dict[str, str], tmp_path: Path
) -> None:
    daemon.views = {"api": view()}
    watch = subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "ralphctl", "status", "-w"],
        env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert watch.stdout is not None
        assert watch.stdout.readline().startswith("api  working")
        daemon.views = {"api": view(state="done")}
        assert any(line.startswith("api  done") for line in watch.stdout)
    finally:
        watch.send_signal(2)
        watch.communicate(timeout=10)
    assert watch.returncode == 130


@pytest.mark.parametrize(
    ("level", "row"), [("signals", False), ("none", False), ("write", True), ("box", True)]
)
def test_a_level_that_limits_writing_is_shown(level: str, row: bool, ctl: Ctl, daemon: FakeDaemon) -> None:
    daemon.views = {"api": view(sandbox={"level": level, "means": "landlock", "reason": None})}
    assert (f"sandbox      {level} (landlock)" in ctl("status", "api").stdout) is row

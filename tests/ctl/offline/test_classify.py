"""classify: what an attempt ended as, from its raw output, without a daemon."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from ralphctl.offline import classify as local
from ralphd.agents.reading import MAX_LINE_CHARS
from ralphd.core.failures.classify import Classification
from ralphd.core.failures.kinds import FailureKind
from ralphd.errors import ConfigFaults, UnknownAgent, UsageError
from tests.ctl.conftest import Ctl
from tests.ctl.golden_files import Golden

NOW = 1_795_266_000.0  # 13:00:00 UTC
LIMIT = "You've hit your session limit · resets 4pm (UTC)\n"


def _judged(
    directory: Path, text: str | bytes, *, agent: str | None = None, code: int = 1, stream: str = "stdout"
) -> Classification:
    log = io.BytesIO(text.encode() if isinstance(text, str) else text)
    return local.judged(
        log,
        agent=agent,
        code=code,
        stream=stream,
        now=NOW,
        environ={"HOME": str(directory)},
        directory=directory,
    )


def test_a_file_is_told_in_short_aligned_lines_with_local_times(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    (tmp_path / "out.log").write_text(
        "Using the native installer\nClaude AI usage limit reached|4102444800\n"
    )

    told = ctl("classify", "--agent", "claude", "out.log")

    golden(told)
    assert told.returncode == 0


def test_a_reset_and_the_wait_are_shown(golden: Golden, tmp_path: Path) -> None:
    golden(local.text_of(_judged(tmp_path, LIMIT), NOW))


def test_json_has_five_keys_and_stdin_is_read(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "ralphctl", "classify", "--json", "--exit", "0", "-"]
    done = subprocess.run(
        command, input=b"All done.\n", cwd=tmp_path, env=environment, capture_output=True, timeout=20
    )

    assert json.loads(done.stdout) == {
        "kind": "ok",
        "reset_at": None,
        "wait_seconds": None,
        "rule": "exit status 0",
        "why": "exit status 0, and no failure on its last lines",
    }


def test_json_tells_the_reset_in_utc(tmp_path: Path) -> None:
    told = json.loads(local.json_of(_judged(tmp_path, LIMIT), NOW))

    assert (told["kind"], told["reset_at"], told["wait_seconds"]) == (
        "usage_limit",
        "2026-11-21T16:00:00.000Z",
        10800.0,
    )


@pytest.mark.parametrize("words", ["nothing.log", ".", "--exit 999 out.log"])
def test_what_cannot_be_classified_is_said_and_ends_with_2(
    ctl: Ctl, golden: Golden, tmp_path: Path, words: str
) -> None:
    (tmp_path / "out.log").write_text("x\n")

    told = ctl("classify", *words.split())

    golden(told)
    assert told.returncode == 2


def test_an_unknown_agent_is_refused_with_those_that_are_known(golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(UnknownAgent) as fault:
        _judged(tmp_path, "x", agent="clod")

    golden(str(fault.value))
    assert fault.value.exit_code == 2


def test_a_binary_file_is_refused(golden: Golden, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as fault:
        _judged(tmp_path, b"\x7fELF\x02\x01\x00\x00")
    golden(str(fault.value))


def test_an_empty_stdout_is_a_crash_and_an_empty_stderr_says_nothing(tmp_path: Path) -> None:
    assert _judged(tmp_path, "", code=0).kind is FailureKind.AGENT_CRASH
    assert _judged(tmp_path, "\n", code=0).rule == "no output"
    assert _judged(tmp_path, "", code=0, stream="stderr").kind is None


def test_without_an_exit_status_the_attempt_is_taken_for_failed(tmp_path: Path) -> None:
    assert _judged(tmp_path, "All done.\n").kind is FailureKind.AGENT_CRASH
    assert _judged(tmp_path, "All done.\n", code=0).kind is None
    assert _judged(tmp_path, "All done.\n", code=-15).rule == "SIGTERM"


_FAILED: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "claude": (
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 529, "result": "x"},
    ),
    "codex": (
        {"type": "thread.started", "thread_id": "t"},
        {"type": "turn.failed", "error": {"message": "unexpected status 529 x"}},
    ),
    "gemini": (
        {"type": "init", "session_id": "g", "model": "m"},
        {"type": "result", "status": "error", "error": {"message": "[API Error: The model is overloaded.]"}},
    ),
    "qwen": (
        {"type": "system", "subtype": "init", "session_id": "q", "qwen_code_version": "0.24.4"},
        {"type": "result", "is_error": True, "error": {"message": "[API Error: 529 Overloaded]"}},
    ),
    "amp": (
        {"type": "system", "subtype": "init", "session_id": "T-1"},
        {"type": "result", "subtype": "error", "is_error": True, "error": "529 Overloaded"},
    ),
    "cursor": (
        {"type": "tool_call", "subtype": "started", "tool_call": {"readToolCall": {"args": {"path": "a"}}}},
        {"type": "result", "subtype": "error", "is_error": True, "result": "529 Overloaded"},
    ),
    "copilot": (
        {"type": "session.error", "data": {"errorType": "query", "message": "529 Overloaded"}},
        {"type": "result", "sessionId": "c", "exitCode": 1},
    ),
    "opencode": (
        {"type": "step_start", "sessionID": "o", "part": {}},
        {"type": "error", "sessionID": "o", "error": {"data": {"message": "x", "statusCode": 529}}},
    ),
}


@pytest.mark.parametrize("agent", _FAILED)
def test_the_agent_is_guessed_from_its_events(tmp_path: Path, agent: str) -> None:
    log = "\n".join(json.dumps(event) for event in _FAILED[agent])

    finding = _judged(tmp_path, log)

    assert finding.kind is FailureKind.TRANSIENT
    assert finding.rule.startswith("final event")


def test_a_run_cut_off_before_its_final_event_is_no_success_and_a_fragment_says_nothing(
    tmp_path: Path,
) -> None:
    init = '{"type":"system","subtype":"init","session_id":"s"}\n'
    heartbeat = '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}\n'

    assert _judged(tmp_path, init + heartbeat, code=0).rule == "no final event"
    assert _judged(tmp_path, heartbeat, code=0).kind is None


def test_a_description_guesses_by_words_of_its_own_and_a_cut_run_of_it_is_no_success(tmp_path: Path) -> None:
    begun = '{"type":"user.message","data":{"content":"Go on."}}\n'

    assert _judged(tmp_path, begun, code=0).rule == "no final event"
    assert _judged(tmp_path, f'{begun}{{"type":"result","exitCode":0}}\n', code=0).kind is None
    assert _judged(tmp_path, f"Aider v0.86.2\n\n{LIMIT}\n", code=0).kind is FailureKind.USAGE_LIMIT


def test_text_is_judged_by_its_last_lines_whoever_printed_it(tmp_path: Path) -> None:
    for name in ("aider", "kiro-cli", "copilot", "wrapper:happy", "general"):
        assert _judged(tmp_path, LIMIT, agent=name, code=0).kind is FailureKind.USAGE_LIMIT


def test_agents_and_patterns_of_the_configuration_hold(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('version = 1\n[[pattern]]\nname = "m"\nkind = "rate_limit"\nmatch = "come back later"\n')
    (tmp_path / "ralph.toml").write_text(
        f'[agents.mine]\ncommand = ["./mine.sh"]\npatterns = "{mine}"\n[agents.codex]\npatterns = "{mine}"\n'
    )

    for agent in ("mine", "codex"):
        assert _judged(tmp_path, "Come back later.\n", agent=agent).kind is FailureKind.RATE_LIMIT
    mine.write_text("version = 7\n")
    with pytest.raises(ConfigFaults, match=r"mine\.toml cannot be used"):
        _judged(tmp_path, "x\n", agent="mine")


def test_a_line_without_an_end_is_cut_and_what_follows_it_is_read(tmp_path: Path) -> None:
    long = b"x" * (MAX_LINE_CHARS + 5) + b"\n" + LIMIT.encode()

    assert _judged(tmp_path, long).kind is FailureKind.USAGE_LIMIT


def test_broken_encodings_and_escape_codes_are_read_and_never_shown_raw(
    ctl: Ctl, golden: Golden, tmp_path: Path
) -> None:
    (tmp_path / "out.log").write_bytes(
        b"\xff\xfe garbage\n\x1b[91m\x1b[1mError: \x1b[0m429 Too Many \x07Requests\n"
    )

    told = ctl("classify", "--stream", "stderr", "out.log")

    golden(told)
    assert "\x1b" not in told.stdout and "\x07" not in told.stdout

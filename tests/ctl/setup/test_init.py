"""``ralphctl init``: what it finds, what it writes, what it leaves alone, and what it asks."""

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ralphctl.cli import root
from ralphctl.setup import config_show, init
from ralphctl.setup.detect import detect_agents, detect_git, detect_protect, detect_tests, task_list
from ralphctl.setup.init import InitChoices
from ralphd.config.configuration import load
from ralphd.core.plan import HEADED_LISTS, LISTS, PROMISE, is_promised
from ralphd.errors import ConfigFaults, DirectoryUnusable, RalphdError, UnknownAgent, UsageError
from ralphd.loop.workdir_files import read_plan
from tests.ctl.golden_files import Golden, Printed, printed, typed, without_remark
from tests.terminal import Terminal

BOXES = "- [ ] one\n- [x] two\n"
Files = Mapping[str, str]


def put(directory: Path, files: Files) -> Path:
    """Write files, scripts as ones that can be executed."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    return directory


def agent(directory: Path, name: str, script: str = "echo 1.2.3") -> Path:
    """A program on PATH."""
    return put(directory, {name: f"#!/bin/sh\n{script}\n"})


def git(directory: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(directory), *words], check=True, capture_output=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    return directory


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A home, and a PATH with claude and git on it."""
    tools = agent(tmp_path / "bin", "claude", 'echo "2.1.330 (Claude Code)"')
    (tmp_path / "home").mkdir(exist_ok=True)
    return {"HOME": str(tmp_path / "home"), "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def alone(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on this process's PATH, with claude, git and make; git has no configuration."""
    tools = agent(Path(environ["PATH"].split(os.pathsep)[0]), "make")
    (tools / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("HOME", environ["HOME"])
    monkeypatch.setenv("PATH", str(tools))
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    return tools


def init_printed(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> Printed:
    """What ``ralphctl init`` prints in this process."""
    code = root.run(["init", *words])
    return without_remark(printed(typed(["init", *words]), code, *capsys.readouterr()), "asking the agents")


def run(place: Path, environ: Mapping[str, str], *, force: bool = False, **flags: Any) -> init.InitResult:
    """What the command does where nobody is asked."""
    wishes = InitChoices(**flags)
    project = init.inspect(place, environ, wishes, force=force)
    return init.write(project, init.decide(project, wishes, lambda choice, tests: False))


# --- the tests of a project -----------------------------------------------------------------------------

PACKAGE = '{"scripts": {"test": "jest"}}'


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"Makefile": ".PHONY: test\nall test: x\n\ttrue\n"}, "make test"),
        ({"justfile": "@test FILTER='':\n  true\n"}, "just test"),
        ({"bin/test": "#!/bin/sh\n"}, "./bin/test"),
        ({"package.json": PACKAGE}, "npm test"),
        ({"package.json": PACKAGE, "yarn.lock": ""}, "yarn test"),
        ({"package.json": PACKAGE, "pnpm-lock.yaml": ""}, "pnpm test"),
        ({"package.json": PACKAGE, "bun.lock": ""}, "bun run test"),
        (
            {"package.json": '{"packageManager": "pnpm@9", "scripts": {"test": "x"}}', "yarn.lock": ""},
            "pnpm test",
        ),
        ({"package.json": PACKAGE, "Makefile": "test:\n"}, "make test"),
        ({"deno.json": '{"tasks": {"test": "x"}}'}, "deno task test"),
        ({"deno.jsonc": "{ // a comment\n}"}, "deno test"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest"),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "uv.lock": ""}, "uv run pytest"),
        ({"pytest.ini": "", ".venv/bin/python": "#!/bin/sh\n"}, ".venv/bin/python -m pytest"),
        ({"tests/test_a.py": "", "requirements.txt": "pytest>=8\n"}, "python3 -m pytest"),
        ({"tox.ini": "[testenv]\n"}, "tox"),
        ({"manage.py": "import django\n"}, "python3 manage.py test"),
        ({"Cargo.toml": ""}, "cargo test"),
        ({"go.mod": ""}, "go test ./..."),
        ({"Gemfile": "", ".rspec": ""}, "bundle exec rspec"),
        ({"Gemfile": "", "Rakefile": "Rake::TestTask.new"}, "bundle exec rake test"),
        ({"mix.exs": ""}, "mix test"),
        ({"build.gradle.kts": "", "gradlew": "#!/bin/sh\n"}, "./gradlew test"),
        ({"pom.xml": ""}, "mvn -q test"),
        ({"a.csproj": ""}, "dotnet test"),
        ({"composer.json": '{"scripts": {"test": "phpunit"}}'}, "composer test"),
    ],
)
def test_the_command_for_the_tests_is_told_from_the_files(place: Path, files: Files, command: str) -> None:
    assert detect_tests(put(place, files), "")[0].command == command


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"Makefile": "test := x\ntests:\n\ttest: x\n# test:\n"},
        {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
        {"package.json": "[1]"},
        {"package.json": "[" * 9999},
        {"pyproject.toml": "= broken"},
        {"bin/test": "not to be executed"},
        {"tests/test_a.py": ""},
    ],
)
def test_where_the_files_tell_of_no_tests_none_is_made_up(place: Path, files: Files) -> None:
    assert detect_tests(put(place, files), "") == ()


def test_tests_that_would_not_do_are_told_and_come_last(place: Path, tmp_path: Path, golden: Golden) -> None:
    tools = agent(tmp_path / "bin", "npm")
    agent(tools, "python3")
    watching = '{"scripts": {"test": "vitest --watch"}}'
    put(place, {"package.json": watching, "Cargo.toml": "", "pytest.ini": ""})

    found = detect_tests(place, str(tools))

    assert [each.command for each in found] == ["python3 -m pytest", "npm test", "cargo test"]
    golden({each.command: each.fault for each in found if each.fault})


# --- task lists, agents, git ----------------------------------------------------------------------------


def test_l1_the_task_list_is_the_one_that_the_loop_will_find(place: Path) -> None:
    for name in reversed((*LISTS, *HEADED_LISTS)):
        text = '{"userStories": [{"id": "1"}]}' if name.endswith(".json") else "## Task 1: a\n"
        put(place, {name: text})
        assert task_list(place, "auto") == read_plan(place, "auto")
    assert task_list(place, "TASKS.md") == read_plan(place, "TASKS.md")
    named = task_list(place, "nix.md")
    assert named is not None and named.fault == "nix.md cannot be read"


def test_agents_are_asked_at_once_within_a_time_and_are_not_believed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = agent(tmp_path / "bin", "claude", 'echo "2.1.330 (Claude Code)"')
    agent(tools, "gemini", "exec sleep 60")
    agent(tools, "codex", "yes no version here")
    agent(tools, "opencode", "printf '\\033[2J1.18.33\\n'")
    began = time.monotonic()

    environ = {"PATH": f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin"}
    found = detect_agents(environ, limit_s=1.2)

    assert [(each.name, each.version) for each in found if each.program.startswith(str(tools))] == [
        ("claude", "2.1.330"),
        ("codex", ""),
        ("gemini", ""),
        ("opencode", "1.18.33"),
    ]
    assert capsys.readouterr().err == "asking the agents for their versions (1 s at most) ...\n"
    assert time.monotonic() - began < 15
    assert detect_agents({"PATH": str(tmp_path)}) == ()


def test_the_state_of_git_is_told(place: Path, environ: dict[str, str]) -> None:
    assert detect_git(place, environ).fault == "not a git repository"
    git(place, "init", "-q", "-b", "main")
    for key, value in (("user.name", "A"), ("user.email", "a@example.com")):
        git(place, "config", key, value)
    found = detect_git(place, environ)
    assert (found.branch, found.has_commit, found.upstream, found.has_identity) == ("main", False, "", True)
    git(place, "commit", "-q", "--allow-empty", "-m", "x")
    git(place, "init", "-q", "--bare", str(place.parent / "o.git"))
    bare = detect_git(place.parent / "o.git", environ)
    assert (bare.fault, bare.mend) == (
        "a bare git repository", f"git clone {place.parent}/o.git DIR"
    )  # fmt: skip
    git(place, "remote", "add", "origin", str(place.parent / "o.git"))
    git(place, "push", "-qu", "origin", "main")
    found = detect_git(place, environ)
    assert (found.has_commit, found.upstream) == (True, "origin/main")


@pytest.mark.parametrize(
    ("files", "patterns"),
    [
        ({"test_a.py": "", "src/b_test.go": "", "web/c.spec.tsx": "", "tests/helper.py": ""}, []),
        ({"pyproject.toml": '[tool.pytest.ini_options]\npython_files = ["check_*.py"]', "test_a.py": ""}, []),
        (
            {
                "pyproject.toml": '[tool.pytest.ini_options]\npython_files = ["check_*.py", 3]\n',
                "conftest.py": "",
                "a/check_b.py": "",
            },
            ["conftest.py", "check_*.py"],
        ),
        ({"pytest.ini": "[pytest]\npython_files =\n  *_check.py\n", "b_check.py": ""}, ["*_check.py"]),
        ({"setup.cfg": "[tool:pytest]\npython_files=t/*.py x.py\n", "t/b.py": ""}, ["t/*.py"]),
        (
            {"test/a.mjs": "", "web/test/unit/b.ts": "", "src/x.test.js": "", "tests/data.json": ""},
            ["*[._-]test.[jt]s", "test/*.mjs", "*/test/*.ts"],
        ),
        ({"tests/run.sh": "", "tests/lib.rs": "", "t.bats": ""}, ["*.bats", "tests/*.rs", "tests/*.sh"]),
        ({"pyproject.toml": "python_files = [", "tests/x.txt": ""}, []),
    ],
)
def test_test_files_with_unusual_names_are_protected(place: Path, files: Files, patterns: list[str]) -> None:
    put(place, files)
    assert detect_protect(place) == (), "not a repository"
    git(place, "init", "-q")
    git(place, "add", "-A")
    assert list(detect_protect(place)) == patterns


def test_protect_is_written_with_paths_from_the_top_of_the_repository(
    place: Path, environ: dict[str, str]
) -> None:
    put(place, {"app/test/run.sh": "", "app/test_a.py": ""})
    git(place, "init", "-q")
    git(place, "add", "-A")
    run(place / "app", environ)
    told = tomllib.loads((place / "app" / "ralph.toml").read_text())
    assert told["regent"]["protect"] == ["test_*.py", "*/test/*.sh"]


# --- what is written ------------------------------------------------------------------------------------


def test_what_is_written_passes_check_and_says_what_its_keys_mean(
    place: Path, environ: dict[str, str]
) -> None:
    put(place, {"TASKS.md": BOXES, "Makefile": "test:\n"})
    before = os.umask(0o002)  # a file that a group may write is not believed
    try:
        written = run(place, environ, pushes=True, fallback=("codex",))
    finally:
        os.umask(before)

    assert written.made == [".ralph/.gitignore", ".ralph/ralph.schema.json", "PROMPT.md", "ralph.toml"]
    assert written.left_alone == ["TASKS.md"]
    assert config_show.check(place, environ) == "no faults; set by ralph.toml"
    text = (place / "ralph.toml").read_text()
    told = tomllib.loads(text)
    assert told["agents"] == {
        "primary": "claude",
        "fallback": ["codex"],
        "timeout_seconds": 3600,
        "iteration_timeout_seconds": 5400,
    }
    assert told["git"] == {"auto_push": True, "auto_pull_rebase": False}
    regent = {"test_command": "make test", "rollback_on_test_failure": False, "protect_tests": "report"}
    assert told["regent"] == regent
    assert '\n# protect = ["check_*.py"]\n' in text
    assert max(map(len, text.splitlines())) <= 80
    line, *_ = text.splitlines()
    assert json.loads((place / line.removeprefix("#:schema ")).read_text())["title"] == "ralph.toml"
    assert (place / ".ralph" / ".gitignore").read_text() == "*\n"


def test_the_prompt_names_the_tests_and_an_echo_of_it_is_no_promise() -> None:
    text = init.prompt_text(test_command="make test", tasks="prd.json")
    assert "`make test`" in text and "prd.json" in text and "blocked" in text
    assert PROMISE in text and not is_promised(text.splitlines())
    assert max(map(len, text.splitlines())) <= 80
    assert "x`y" not in init.prompt_text(test_command="x`y", tasks="")


def test_a_command_with_any_marks_comes_back_as_it_was(place: Path, environ: dict[str, str]) -> None:
    command = 'sh -c "a \\"b\\"" \x07 # é'
    run(place, environ, test_command=command)
    assert tomllib.loads((place / "ralph.toml").read_text())["regent"]["test_command"] == command


OWN = """\
[ralph]
max_cost_usd = 2.5
[accounts.work]
agent = "claude"
[agents]
primary = "claude@work"
fallback = ["codex"]
[regent]
rollback_on_test_failure = true
[git]
auto_push = true
"""


def test_what_the_users_own_file_sets_stays_in_force(place: Path, environ: dict[str, str]) -> None:
    put(Path(environ["HOME"]), {".config/ralph/config.toml": OWN})
    put(place, {"Makefile": "test:\n"})

    run(place, environ)

    new = load(place, environ=environ)
    assert (new.agents.primary, new.agents.fallback) == ("claude@work", ("codex",))
    assert new.ralph.max_cost_usd == 2.5
    assert new.regent.rollback_on_test_failure
    assert new.git.auto_push
    assert new.regent.test_command == "make test"
    text = (place / "ralph.toml").read_text()
    assert 'In your own file:\n# primary = "claude@work"\n' in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_flag_counts_more_than_the_users_own_file(place: Path, environ: dict[str, str]) -> None:
    put(Path(environ["HOME"]), {".config/ralph/config.toml": OWN})
    put(place, {"Makefile": "test:\n"})

    run(place, environ, agent="codex", rolls_back=False, pushes=False)

    told = tomllib.loads((place / "ralph.toml").read_text())
    assert told["agents"]["primary"] == "codex"
    assert not told["regent"]["rollback_on_test_failure"]
    assert not told["git"]["auto_push"]


def test_nothing_that_is_there_is_written_over(place: Path, environ: dict[str, str]) -> None:
    mine = {"PROMPT.md": "mine", "TASKS.md": BOXES, "ralph.toml": '[ralph]\ntasks = "TASKS.md"\n'}
    put(place, mine)
    written = run(place, environ)
    assert written.left_alone == ["ralph.toml", "PROMPT.md", "TASKS.md"]
    assert {name: (place / name).read_text() for name in mine} == mine

    written = run(place, environ, force=True)
    assert (place / written.kept).read_text() == mine.pop("ralph.toml")
    assert {name: (place / name).read_text() for name in mine} == mine
    assert config_show.check(place, environ).startswith("no faults")


def test_with_a_command_of_ones_own_there_is_no_prompt(place: Path, environ: dict[str, str]) -> None:
    put(place, {"ralph.toml": '[ralph]\ncommand = ["./loop.sh"]\n'})
    assert not run(place, environ).made[2:]
    assert not (place / "PROMPT.md").exists()


def test_the_prompt_of_a_ralph_toml_that_is_there_has_its_name(place: Path, environ: dict[str, str]) -> None:
    put(place, {"ralph.toml": '[ralph]\nprompt_file = "docs/what.md"\n[regent]\ntest_command = "x y"\n'})
    assert "docs/what.md" in run(place, environ).made
    assert "`x y`" in (place / "docs" / "what.md").read_text()


def test_what_is_asked_for_and_cannot_be_is_an_error(
    place: Path, environ: dict[str, str], golden: Golden
) -> None:
    errors: list[RalphdError] = []

    def refused(kind: type[RalphdError], **flags: Any) -> None:
        with pytest.raises(kind) as fault:
            run(place, environ, **flags)
        errors.append(fault.value)

    refused(UnknownAgent, agent="claud")
    refused(UsageError, rolls_back=True)
    refused(ConfigFaults, test_command="a\0b")
    put(place, {"ralph.toml": ""})
    refused(init.AlreadyThere, pushes=True)
    put(place, {"ralph.toml": "[regnt]\n"})
    refused(ConfigFaults)
    golden(*map(str, errors))
    assert [path.name for path in place.iterdir()] == ["ralph.toml"]


def test_what_is_in_the_way_is_said_before_anything_is_written(
    place: Path, environ: dict[str, str], golden: Golden, tmp_path: Path
) -> None:
    errors = {}

    def refused(case: str, directory: Path = place) -> None:
        with pytest.raises(DirectoryUnusable) as fault:
            run(directory, environ)
        errors[case] = str(fault.value)

    for name in ("ralph.toml", "PROMPT.md"):
        (place / name).mkdir()
        refused(f"{name} as a directory")
        (place / name).rmdir()
        (place / name).symlink_to("nowhere")
        refused(f"{name} as a link to nothing")
        (place / name).unlink()
    (place / ".ralph").symlink_to(tmp_path)
    refused(".ralph as a link")
    (place / ".ralph").unlink()
    refused("the home", tmp_path / "home")
    golden(errors)
    assert not list(place.iterdir()) and not list((tmp_path / "home").iterdir())
    assert run(tmp_path / "home", environ, force=True).made


def test_what_fails_in_the_middle_is_taken_away_again(
    place: Path, environ: dict[str, str], golden: Golden
) -> None:
    put(place, {".ralph/ralph.schema.json/x": "", "ralph.toml": "# mine\n"})
    with pytest.raises(RalphdError) as fault:
        run(place, environ, force=True)
    golden(str(fault.value))
    assert sorted(path.name for path in place.iterdir()) == [".ralph", "ralph.toml"]
    assert (place / "ralph.toml").read_text() == "# mine\n"
    assert [path.name for path in (place / ".ralph").iterdir()] == ["ralph.schema.json"]


# --- the command ----------------------------------------------------------------------------------------


def test_without_a_terminal_nothing_is_asked_and_what_is_a_risk_stays_off(
    place: Path,
    alone: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    golden: Golden,
) -> None:
    git(place, "init", "-q", "-b", "main")
    put(place, {"Makefile": "test:\n"})
    agent(alone, "gemini", "echo none")
    monkeypatch.chdir(place)

    first = init_printed([], capsys)

    assert first.returncode == 0
    told = tomllib.loads((place / "ralph.toml").read_text())
    assert told["git"] == {"auto_push": False, "auto_pull_rebase": False}
    assert told["regent"]["rollback_on_test_failure"] is False

    golden(first, init_printed(["--force", "--agent", "codex"], capsys))

    told = json.loads(init_printed(["--force", "--yes", "--json", str(place)], capsys).stdout)
    assert (told["chosen"]["rolls_back"], told["chosen"]["pushes"]) == (True, False)
    assert told["written"] == ["ralph.toml"] and told["kept_as"].startswith("ralph.toml.kept-")


def test_on_a_terminal_each_risk_is_a_question_and_ctrl_c_writes_nothing(
    place: Path, environment: dict[str, str], environ: dict[str, str]
) -> None:
    git(place, "init", "-q", "-b", "main")
    put(place, {"Makefile": "test:\n"})
    git(place, "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-mx")
    git(place, "init", "-q", "--bare", str(place.parent / "o.git"))
    git(place, "remote", "add", "origin", str(place.parent / "o.git"))
    git(place, "push", "-qu", "origin", "main")
    argv = [sys.executable, "-P", "-m", "ralphctl", "init"]
    questions = ("Revert commits", "Push kept commits", "Pull with rebase")
    for last in range(len(questions)):
        with Terminal(argv, cwd=place, environment=environment | environ) as terminal:
            for question in questions[:last]:
                terminal.shows(question)
                terminal.type(b"\r")
            terminal.shows(questions[last])
            terminal.type(b"\x03")
            assert terminal.exit_code() == 130
            assert "nothing was changed" in terminal.screen()
        assert sorted(path.name for path in place.iterdir()) == [".git", "Makefile"]

    with Terminal(argv, cwd=place, environment=environment | environ, columns=60) as terminal:
        terminal.shows("Revert commits that break the tests (make test)?")
        terminal.type(b"\r")
        terminal.shows("Push kept commits")
        terminal.type(b"what\r")
        terminal.shows("y or n")
        terminal.type(b"y\r")
        terminal.shows("Pull with rebase")
        terminal.type(b"\r")
        assert terminal.exit_code() == 0
        assert terminal.screen().count("risk: ") == 3
        assert "deployments from that branch, receive\n" in terminal.screen().replace("\r", "")
    told = tomllib.loads((place / "ralph.toml").read_text())
    assert told["regent"]["rollback_on_test_failure"] is True
    assert told["git"] == {"auto_push": True, "auto_pull_rebase": False}


def test_a_list_that_cannot_be_read_comes_before_the_start(
    place: Path, alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(place, {"prd.json": '{"userStories": ['})
    assert "  (once prd.json can be read)\n" in init_printed([str(place)], capsys).stdout


def test_what_a_person_should_know_before_going_to_bed_is_said(
    place: Path, alone: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    git(place, "init", "-q", "-b", "main")
    put(place, {"ralph.toml": "[git]\n", "app/Makefile": "test:\n"})

    reply = init_printed(["--agent", "kiro", "--push", str(place / "app")], capsys)

    golden(reply)
    assert reply.returncode == 0

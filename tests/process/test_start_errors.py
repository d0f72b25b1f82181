"""A command that cannot be started is told with what, why and what to do."""

import os
from pathlib import Path

import pytest

from ralphd.errors import CommandNotStartable
from ralphd.process.spawn import Run
from ralphd.process.start_errors import environment_of
from tests.process.runs import Stage

AS_USER = pytest.mark.skipif(os.geteuid() == 0, reason="root may go everywhere")


async def refused(stage: Stage, *command: str, environment_file: Path | None = None) -> tuple[str, str]:
    """Why starting ``command`` is refused, and what to do; both have to be said."""
    directory = stage.directory()
    spec = stage.spec(directory, command, environment_file=environment_file)
    with pytest.raises(CommandNotStartable) as caught:
        await Run.spawn(directory, spec, None)
    assert caught.value.what == f"cannot start {command[0]}"
    assert caught.value.why
    assert caught.value.mend
    return caught.value.why, caught.value.mend


def script(stage: Stage, text: str, *, mode: int = 0o755) -> Path:
    """``loop.sh`` in the working directory."""
    path = stage.home / "loop.sh"
    path.write_bytes(text.encode())
    path.chmod(mode)
    return path


async def test_a_command_that_is_not_on_the_path_is_told(stage: Stage) -> None:
    why, mend = await refused(stage, "no-such-program")
    assert why == "no-such-program is not on PATH"
    assert mend == "install it, or give its path, as in ./no-such-program"


@pytest.mark.parametrize("line", ["./loop.sh --fast", "while :; do claude -p x; done"])
async def test_a_line_of_the_shell_in_quotes_is_answered_with_the_shell(line: str, stage: Stage) -> None:
    script(stage, "#!/bin/sh\n")
    why, mend = await refused(stage, line)
    assert why == f"no program is named {line!r}"
    assert mend == f"ralphctl start {stage.home} -- sh -c '{line}'"


@pytest.mark.parametrize("name", ["./loop.sh", "tools/../loop.sh", "/no/such/loop.sh"])
async def test_a_missing_file_is_told_with_its_whole_path(name: str, stage: Stage) -> None:
    why, mend = await refused(stage, name)
    assert why == f"there is no {stage.home / name}"
    assert mend.startswith("the path of a program that is there")
    assert (str(stage.home) in mend) == (not name.startswith("/"))


async def test_a_path_through_a_file_is_told(stage: Stage) -> None:
    program = script(stage, "#!/bin/sh\n")
    why, mend = await refused(stage, "./loop.sh/inner")
    assert why == f"{program}/inner: Not a directory"
    assert mend.startswith(f"namei -l {program}/inner")


async def test_a_file_that_is_not_executable_is_told_with_what_to_do(stage: Stage) -> None:
    program = script(stage, "#!/bin/sh\n", mode=0o644)
    assert await refused(stage, "./loop.sh") == (f"{program} is not executable", f"chmod +x {program}")


async def test_a_script_without_its_first_line_is_told(stage: Stage) -> None:
    program = script(stage, "echo hello\n")
    why, mend = await refused(stage, "./loop.sh")
    assert why == f"{program} is neither a program nor a script: it has no #! line"
    assert mend == "put #!/bin/sh on its first line"


async def test_a_missing_interpreter_is_to_be_installed_or_named_anew(stage: Stage) -> None:
    program = script(stage, "#! /no/such/shell -e\n")
    why, mend = await refused(stage, "./loop.sh")
    assert why == f"{program} needs /no/such/shell, which does not exist"
    assert mend == "install it, or correct the #! line"


async def test_a_script_whose_lines_end_as_on_windows_is_told_so(stage: Stage) -> None:
    program = script(stage, "#!/bin/sh\r\necho hello\r\n")
    why, mend = await refused(stage, "./loop.sh")
    assert why == f"the lines of {program} end as on Windows (CR LF)"
    os.system(mend)
    await (await stage.spawn(("./loop.sh",))).ended()


async def test_a_script_whose_interpreter_is_not_executable_is_told(stage: Stage) -> None:
    program, interpreter = script(stage, f"#!{stage.home}/shell\n"), stage.home / "shell"
    interpreter.touch(mode=0o644)
    why, _ = await refused(stage, "./loop.sh")
    assert why == f"{program} asks for {interpreter}, which is not executable"


async def test_a_program_for_another_machine_is_told(stage: Stage) -> None:
    program = script(stage, "\x7fELF and nothing that follows\n")
    why, mend = await refused(stage, "./loop.sh")
    assert why == f"{program} is not a program for this machine"
    assert "#!" not in mend


async def test_a_directory_as_command_is_told(stage: Stage) -> None:
    (stage.home / "loop").mkdir()
    why, mend = await refused(stage, "./loop")
    assert why == f"{stage.home}/loop is a directory"
    assert mend == f"a program in it, as in {stage.home}/loop/NAME"


async def test_more_arguments_than_the_system_takes_are_told(stage: Stage) -> None:
    why, mend = await refused(stage, "/bin/true", "x" * 200_000)
    assert why == "/bin/true: Argument list too long"
    assert mend.startswith("fewer or shorter arguments")


async def test_a_working_directory_that_is_gone_is_told(stage: Stage) -> None:
    stage.home.rmdir()
    why, mend = await refused(stage, "true")
    assert why == f"the directory {stage.home} is gone"
    assert mend == "put it back, or start in another directory"


@AS_USER
async def test_a_working_directory_that_nobody_may_enter_is_told(stage: Stage) -> None:
    stage.home.chmod(0)
    why, mend = await refused(stage, "true")
    stage.home.chmod(0o700)
    assert why == f"{stage.home}: Permission denied"
    assert mend.startswith(f"namei -l {stage.home}")


async def test_a_broken_environment_file_is_told_with_the_start_that_writes_it_anew(
    stage: Stage, tmp_path: Path
) -> None:
    environment = tmp_path / "env"
    environment.write_text("{broken")
    why, mend = await refused(stage, "echo", "two words", environment_file=environment)
    assert why == f"{environment}: Invalid argument"
    assert mend == f"ralphctl start {stage.home} -- echo 'two words'"


@pytest.mark.timeout(30)
async def test_a_program_or_an_env_file_that_is_a_pipe_blocks_nothing(stage: Stage) -> None:
    os.mkfifo(stage.home / "loop.sh", 0o755)
    why, _ = await refused(stage, "./loop.sh")
    assert why.endswith("Permission denied")
    os.mkfifo(stage.home / "env", 0o600)
    assert environment_of(stage.home / "env", {"A": "b"}) == {"A": "b"}

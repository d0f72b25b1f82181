"""``ralphctl mcp`` without the package, and every other command without the time that the package takes."""

import subprocess
import sys

from ralphctl.mcp import server

LIMIT_S = 60.0


def python(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_without_the_package_the_command_that_installs_it_is_printed() -> None:
    blocked = "import sys; sys.modules['mcp'] = None; from ralphctl.main import main; sys.exit(main())"
    done = python(blocked, "mcp")
    assert (done.returncode, done.stdout) == (69, "")
    assert "try: make install EXTRAS=mcp\n" in done.stderr
    assert "-m pip install 'mcp>=2.3,<3'" in done.stderr


def test_no_other_command_imports_the_package() -> None:
    program = "import sys, ralphctl.commands.mcp; from ralphctl.main import main; main(); "
    assert python(program + "sys.exit('mcp' in sys.modules)", "--help").returncode == 0


def test_only_known_tools_can_be_allowed() -> None:
    done = python("import sys; from ralphctl.main import main; sys.exit(main())", "mcp", "--allow", "rm")
    assert done.returncode == 2
    assert "'rm' is not one of act, start" in done.stderr


def test_the_id_of_a_long_message_is_found_at_either_edge() -> None:
    first = b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"x": "aaa'
    last = b'aaa"}, "jsonrpc": "2.0", "id": "a-1"}'
    for head, tail, id in (
        (first, b'aaa"}}', "7"),
        (b'{"method":"m","params":{"id":9,', last, '"a-1"'),
        (b'{"method":"m","params":{"id":9,', b',"id":3}}', "null"),
        (b"xxx", b"xxx", "null"),
    ):
        assert f'"id":{id},"error"' in server._too_long(head, tail)

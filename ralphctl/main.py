"""The way in: ``status`` by the short road, all else through click, each error in the same lines.

Nothing is imported here that ``status`` does not need (P3); a test looks at what is loaded.
"""

import errno
import os
import sys

from ralphctl import fast, tell
from ralphd import wire
from ralphd.errors import RalphdError

_EXIT_BROKEN_PIPE = 141  # what a shell shows for a program that SIGPIPE ended


def main() -> int:
    """Answer the words on the command line; gives the exit code."""
    tell.prepare_streams()
    try:
        code = _answer(sys.argv[1:])
        sys.stdout.flush()
    except RalphdError as error:
        tell.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return wire.EXIT_INTERRUPTED
    except BrokenPipeError:
        _let_stdout_go()
        return _EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _let_stdout_go()
        tell.error(RalphdError("no space left on device", why="the answer is not whole", mend="df -h"))
        return RalphdError.exit_code
    return code


def _answer(arguments: list[str]) -> int:
    if "_RALPHCTL_COMPLETE" in os.environ:
        from ralphctl.commands import completion

        return completion.answer()
    code = fast.status(arguments)
    if code is not None:
        return code
    from ralphctl import cli

    return cli.run(arguments)


def _let_stdout_go() -> None:
    # The interpreter flushes stdout once more at its end and would complain about the closed pipe.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)

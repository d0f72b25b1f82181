"""The entry point: ``status`` and ``--help`` without click, all else through it; every error in one form.

Imports nothing that ``status`` does not need; a test checks what is loaded.
"""

import errno
import gc
import os
import sys

from ralphctl.format import output
from ralphd import wire
from ralphd.errors import RalphdError

_EXIT_BROKEN_PIPE = 141  # what a shell shows for a program that SIGPIPE ended


def main() -> int:
    """Run the command line and return its exit code."""
    output.prepare_streams()
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except RalphdError as error:
        output.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return wire.EXIT_INTERRUPTED
    except BrokenPipeError:
        output.discard(sys.stdout)
        return _EXIT_BROKEN_PIPE
    except UnicodeEncodeError as error:
        if (encoding := sys.getfilesystemencoding()) == "utf-8":
            raise
        why = f"its encoding, {encoding}, lacks a character of a path: {error}"
        output.error(RalphdError("the locale cannot be used", why=why, mend="export LC_ALL=C.UTF-8"))
        return RalphdError.exit_code
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        output.discard(sys.stdout)
        output.error(RalphdError("no space left on device", why="the output is incomplete", mend="df -h"))
        return RalphdError.exit_code
    return code


def _run(arguments: list[str]) -> int:
    if (fault := wire.wrong_system()) and arguments[:1] not in ([], ["--help"], ["--version"]):
        raise RalphdError(fault)
    if "_RALPHCTL_COMPLETE" in os.environ:
        from ralphctl.commands import completion

        return completion.answer()
    gc.disable()  # `status` and `--help` create no garbage, and a collection takes 2 ms of 37
    from ralphctl.cli import fast_status

    if (code := fast_status.run(arguments)) is not None:
        gc.freeze()  # nor does the collection at the interpreter's end find any
        return code
    from ralphctl.cli import overview

    if arguments in ([], ["--help"], ["-h"]):
        print(overview.page())
        return wire.EXIT_OK
    gc.enable()
    from ralphctl.cli import root

    return root.run(arguments)

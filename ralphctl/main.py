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


def main() -> int:
    """Run the command line and return its exit code."""
    output.prepare_streams()
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except RalphdError as error:
        return _shown(error)
    except KeyboardInterrupt:
        return wire.EXIT_INTERRUPTED
    except BrokenPipeError:
        output.discard(sys.stdout)
        return 141  # what a shell shows for a program that SIGPIPE ended
    except UnicodeEncodeError as error:
        if (encoding := sys.getfilesystemencoding()) == "utf-8":
            raise
        why = f"its encoding, {encoding}, lacks a character of a path: {error}"
        return _shown(RalphdError("the locale cannot be used", why=why, mend="export LC_ALL=C.UTF-8"))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            output.discard(sys.stdout)
            what = "no space left on device"
            return _shown(RalphdError(what, why="the output is incomplete", mend="df -h"))
        if not error.filename:
            raise
        return _shown(RalphdError(f"{error.filename} cannot be used", why=error.strerror or ""))
    return code


def _shown(fault: RalphdError) -> int:
    output.error(fault)
    return fault.exit_code


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

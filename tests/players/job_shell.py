"""A shell with one job, as small as can be: the job has the terminal, until it rests.

It says ``shell: it rests`` when the job is stopped, ``shell: read 'WORD'`` for each line, and goes on with
the job in the foreground at ``fg``; a job that does not rest then gets no signal. With ``--background`` the
job begins without the terminal. It ends as the job does.

job_shell.py [--background] COMMAND...
"""

import os
import signal
import sys

arguments = sys.argv[1:]
in_background = arguments[0] == "--background"
command = arguments[1:] if in_background else arguments
signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a shell may set the terminal from where it is

job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    if not in_background:
        os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(command[0], command)


def foreground() -> None:
    """Wait for the job, in front; ends as it does."""
    while True:
        _, status = os.waitpid(job, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            os.tcsetpgrp(0, os.getpgrp())
            sys.exit(os.waitstatus_to_exitcode(status))
        os.tcsetpgrp(0, os.getpgrp())
        print("shell: it rests", flush=True)
        commands()
        os.killpg(job, signal.SIGCONT)


def commands() -> None:
    """Read lines until one says ``fg``; it has the terminal then."""
    while (line := sys.stdin.readline().strip()) != "fg":
        print(f"shell: read {line!r}", flush=True)
    os.tcsetpgrp(0, job)


if in_background:
    commands()
foreground()

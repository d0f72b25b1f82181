"""A tree that does all it can to be left behind; prints ``NAME PID`` for each of it.

``child``, ``setsid`` (a session of its own), ``double`` (two forks and a session), ``stubborn`` (ignores
SIGTERM), ``cleared`` (its environment is empty), ``leader``. All sleep; the leader ignores SIGTERM, or exits
with 3 when told ``leave``.

family.py [leave]
"""

import os
import signal
import sys
import time

FOREVER = "import time; time.sleep(600)"


def say(name: str) -> None:
    os.write(1, f"{name} {os.getpid()}\n".encode())


def rest(name: str) -> None:
    say(name)
    time.sleep(600)


if os.fork() == 0:
    rest("child")
if os.fork() == 0:
    os.setsid()
    rest("setsid")
if (between := os.fork()) == 0:
    os.setsid()
    if os.fork() == 0:
        rest("double")
    os._exit(0)
os.waitpid(between, 0)  # whoever has read all names finds nobody else
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    rest("stubborn")
executed, here = os.pipe()
if os.fork() == 0:
    say("cleared")
    os.execve(sys.executable, [sys.executable, "-S", "-E", "-c", FOREVER], {})
os.close(here)
os.read(executed, 1)  # its end is closed by execve: whoever has read all names finds no environment there
signal.signal(signal.SIGTERM, signal.SIG_IGN)
say("leader")
if "leave" in sys.argv:
    time.sleep(0.3)
    os._exit(3)
time.sleep(600)

"""Named places where a test can end this process, to prove that any line may be the last.

Set ``RALPHD_FAILPOINTS=name=kill,other=kill`` in the environment of the process to be ended; with
``RALPHD_FAILPOINTS_WHEN=PATH`` they hold only from when that file is there.
Unset, which is always so outside tests, a failpoint costs one look into an empty dict.
"""

import os
import signal
from pathlib import Path


def _armed(text: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in text.split(",") if "=" in item)


_ARMED = _armed(os.environ.get("RALPHD_FAILPOINTS", ""))
_WHEN = os.environ.get("RALPHD_FAILPOINTS_WHEN")


def reach(name: str) -> None:
    """Pass the place called ``name``; when it is armed with ``kill``, end this process with SIGKILL."""
    if _ARMED and _ARMED.get(name) == "kill" and (_WHEN is None or Path(_WHEN).exists()):
        os.kill(os.getpid(), signal.SIGKILL)

"""The page of ``ralphctl web``: its process, started again when it ends, as ``[web]`` says.

What speaks to the network is a process of its own, which knows none of the daemon's secrets: it gets its
settings on standard input, and ends when that ends, so that a killed daemon leaves none behind.
"""

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from ralphd.core.text import one_line

if TYPE_CHECKING:
    from ralphd.config.specs import WebSpec
    from ralphd.daemon.services import Services

logger = logging.getLogger(__name__)

_WELL_S: Final = 5.0
_END_S: Final = 2.0
_FIRST_REST_S, _LONGEST_REST_S = 0.5, 300.0
_CHARS: Final = 2000
_VARIABLES: Final = ("HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TZ", "XDG_STATE_HOME", "XDG_DATA_HOME")
"""What the page gets of the daemon's environment, which may hold secrets of webhooks."""


class PageKeeper:
    """Keeps the page's process. Used on the event loop only."""

    def __init__(self, services: "Services") -> None:
        self._services = services
        self._spec: WebSpec | None = None
        self._task: asyncio.Task[None] | None = None

    def follow(self, spec: "WebSpec") -> None:
        """Have the page be as ``spec`` says from now on."""
        if spec != self._spec:
            self._spec, before = spec, self._task
            self._task = asyncio.create_task(self._keep(spec, before), name="web")

    async def close(self) -> None:
        """End the page."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _keep(self, spec: "WebSpec", before: "asyncio.Task[None] | None") -> None:
        if before is not None:  # it may have the port
            before.cancel()
            await asyncio.wait([before])
        self._services.trouble("web", None)
        rest_s, told = _FIRST_REST_S, ""
        while spec.listen:
            began = time.monotonic()
            why = await self._run(spec)
            if why != told:  # else the problem stays as it is: it is reported once
                self._services.trouble("web", None)
            told = why
            self._services.trouble("web", f"the page does not run, and is tried again: {why}")
            rest_s = _FIRST_REST_S if time.monotonic() - began > _WELL_S else min(rest_s * 2, _LONGEST_REST_S)
            await asyncio.sleep(rest_s)

    async def _run(self, spec: "WebSpec") -> str:
        """Run the process until it ends, and return why; when cancelled, end it."""
        state = str(self._services.state_directory)
        settings = {**asdict(spec), "socket": str(self._services.socket_path), "state_directory": state}
        given = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ralphctl.web"),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            cwd="/", env=given | {"RALPHD_STATE_DIR": state}, umask=0o077,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None and process.stderr is not None
        well = asyncio.get_running_loop().call_later(_WELL_S, self._services.trouble, "web", None)
        last = ""
        try:
            process.stdin.write(json.dumps(settings).encode() + b"\n")
            while text := await process.stderr.read(4096):
                last = one_line(text.decode(errors="replace"), _CHARS)
                logger.warning("web: %s", last)
            code = await process.wait()
            return last if code > 0 and last else f"exit status {code}"
        finally:
            well.cancel()
            process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await process.wait()
            if process.returncode is None:
                process.kill()
                await process.wait()

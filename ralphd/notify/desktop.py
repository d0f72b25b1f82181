"""Show alerts on the desktop by ``notify-send`` if ``[notify] desktop`` is set.

Attached terminals show the same alerts by OSC 9 (``ralphctl/live``). Nothing is retried: what nobody sees on
a desktop is still in ``ralphctl status``.
"""

import asyncio
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from html import escape
from pathlib import Path

from ralphd.core.delivery import StoredEvent
from ralphd.notify.client import FactsOf
from ralphd.notify.hub import Hub
from ralphd.notify.payloads import plain_body, title_of

logger = logging.getLogger(__name__)

SHOW_LIMIT_S = 3.0
_BODY_BYTES = 1000
_COMMAND = ("notify-send", "--app-name=ralphd", "--urgency=critical", "--")


async def show_alerts(hub: Hub, facts_of: FactsOf, environ: Mapping[str, str]) -> None:
    """Show each alert until the hub closes. Report a fault in the log once, not for each alert."""
    fault: str | None = None
    async with hub.subscribe() as events:
        async for event in events:
            if event.data.get("desktop"):
                before, body = fault, plain_body(event, await facts_of(event), _BODY_BYTES)
                fault = await asyncio.to_thread(_show, event, body, environ)
                if fault is not None and fault != before:
                    logger.warning("desktop notifications are not shown: %s", fault)


def _show(event: StoredEvent, body: str, environ: Mapping[str, str]) -> str | None:
    """Return None, or why nothing was shown. Blocks."""
    bus = Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}", "bus")
    address = environ.get("DBUS_SESSION_BUS_ADDRESS") or (f"unix:path={bus}" if bus.exists() else None)
    program = shutil.which(_COMMAND[0], path=environ.get("PATH"))
    if program is None:
        return "notify-send is not installed"
    if address is None:
        return "the user has no desktop session"
    command = [program, *_COMMAND[1:], title_of(event), escape(body, quote=False)]
    session = {**environ, "DBUS_SESSION_BUS_ADDRESS": address}
    try:
        subprocess.run(command, env=session, input=b"", capture_output=True, timeout=SHOW_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"notify-send failed: {getattr(error, 'strerror', None) or 'the desktop did not accept it'}"
    return None

"""Alerts on the desktop: by ``notify-send`` in a session, and one line in the log without one."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest

from ralphd.core.alert import AlertFacts
from ralphd.core.delivery import StoredEvent
from ralphd.notify import desktop
from ralphd.notify.hub import Hub

ALERT = StoredEvent(
    1, "ralph.escalated", "2026-11-21T20:00:00.000000Z", "demo", "r1",
    {"message": "giving up <b>", "do": "ralphctl explain demo", "desktop": True},
)  # fmt: skip
QUIET = StoredEvent(2, "ralph.escalated", ALERT.at, "demo", "r1", {"message": "other"})


async def facts_of(event: StoredEvent) -> AlertFacts:
    return AlertFacts("buildbox", last_lines=("boom",))


async def shown(environ: Mapping[str, str], *events: StoredEvent) -> None:
    hub = Hub()
    showing = asyncio.create_task(desktop.show_alerts(hub, facts_of, environ))
    await asyncio.sleep(0)
    for event in events:
        hub.publish(event)
    hub.close()
    await showing


@pytest.fixture
def session(tmp_path: Path) -> dict[str, str]:
    """A session with a ``notify-send`` that writes down how it was called."""
    program = tmp_path / "notify-send"
    program.write_text(f"""#!/bin/sh\nfor word; do echo "$word"; done >>{tmp_path}/called\n""")
    program.chmod(0o755)
    return {"PATH": f"{tmp_path}:/usr/bin:/bin", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere"}


async def test_an_alert_is_shown_as_plain_text(session: dict[str, str], tmp_path: Path, berlin: None) -> None:
    await shown(session, QUIET, ALERT)

    assert (tmp_path / "called").read_text().splitlines() == [
        "--app-name=ralphd",
        "--urgency=critical",
        "--",
        "demo: needs you",
        "giving up &lt;b&gt;",
        "$ ralphctl explain demo",
        "buildbox · 2026-11-21 21:00 CET",
        "| boom",
    ]


@pytest.mark.parametrize(
    ("missing", "why"), [("PATH", "not installed"), ("DBUS_SESSION_BUS_ADDRESS", "no desktop session")]
)
async def test_without_a_session_the_log_has_one_line(
    session: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, missing: str, why: str
) -> None:
    environ = session | {"XDG_RUNTIME_DIR": str(tmp_path), missing: ""}

    await shown(environ, ALERT, ALERT, ALERT)

    (record,) = [each for each in caplog.records if each.name == desktop.__name__]
    assert record.levelno == logging.WARNING
    assert why in record.getMessage()


async def test_a_desktop_that_refuses_or_hangs_is_left(
    session: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desktop, "SHOW_LIMIT_S", 0.1)
    for body in ("exit 1", "exec sleep 60"):
        (tmp_path / "notify-send").write_text(f"#!/bin/sh\n{body}\n")
        await shown(session, ALERT)
    (tmp_path / "notify-send").write_text("#!/not/there\n")
    await shown(session, ALERT)

    assert [
        each.getMessage().rpartition(": ")[2] for each in caplog.records if each.name == desktop.__name__
    ] == [
        "the desktop did not accept it",
        "the desktop did not accept it",
        "No such file or directory",
    ]

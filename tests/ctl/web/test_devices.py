"""What a device is, what it may have signed, and when it is out."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphctl.web.devices import (
    DEVICE_DAYS,
    MOST_DEVICES,
    Device,
    Devices,
    Signatures,
    device_name,
    public_point,
    unbase64,
)
from ralphd.errors import DaemonBusy, Forbidden, NewerState, RalphdError, UsageError
from tests.whole.browser import Browser, base64url

ORIGIN = "http://ralphd.localhost:1"


class Clock:
    """A clock that stands until it is set."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


def paired(
    tmp_path: Path, role: str = "act", clock: Clock | None = None
) -> tuple[Browser, Device, Signatures]:
    browser, clock = Browser(1), clock or Clock()
    point = public_point(browser.jwk)
    device = Device("d1", "Phone", "act" if role == "act" else "look", "", point, clock.at)
    return browser, device, Signatures(tmp_path, clock)


def order(browser: Browser, at: float, **more: object) -> bytes:
    return browser.order("stop", "demo", **{"at": at, **more})


def test_a_session_is_kept_as_a_hash_only(tmp_path: Path) -> None:
    devices = Devices(tmp_path / "web")
    device, session = devices.add("My phone", "look", None)
    file = tmp_path / "web" / "devices.json"
    assert session not in file.read_text() and len(session) >= 43
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert devices.find(session) == device and devices.find("") is None
    assert devices.find(device.session) is None


def test_another_process_revokes_at_once(tmp_path: Path) -> None:
    page, terminal = Devices(tmp_path), Devices(tmp_path)
    first, session = page.add("a", "act", "04")
    second, _ = page.add("a", "act", "04")
    assert [each.name for each in terminal.all()] == ["a", "a 2"]
    assert terminal.revoke("a") == ["a"] and terminal.revoke("a") == []
    assert page.find(session) is None and not page.is_paired(first) and page.is_paired(second)
    assert terminal.revoke(None) == ["a 2"] and page.all() == ()


def test_a_device_is_out_after_a_year(tmp_path: Path) -> None:
    clock = Clock()
    devices = Devices(tmp_path, clock)
    _, session = devices.add("a", "look", None)
    clock.at += DEVICE_DAYS * 86_400 - 1
    assert devices.find(session)
    clock.at += 2
    assert devices.find(session) is None


def test_devices_are_bounded(tmp_path: Path) -> None:
    devices = Devices(tmp_path)
    for _ in range(MOST_DEVICES):
        devices.add("a", "look", None)
    with pytest.raises(RalphdError, match="are paired"):
        devices.add("a", "look", None)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"version": 1, "devices": 1}', '{"version": 1, "devices": [{}]}', "{"]
)
def test_a_broken_file_lets_nobody_in(tmp_path: Path, text: str) -> None:
    (tmp_path / "devices.json").write_text(text)
    assert Devices(tmp_path).all() == ()


def test_a_newer_file_lets_nobody_in(tmp_path: Path) -> None:
    (tmp_path / "devices.json").write_text(json.dumps({"version": 2, "devices": []}))
    with pytest.raises(NewerState):
        Devices(tmp_path).all()


@given(st.text(max_size=300))
def test_a_name_is_one_short_line(text: str) -> None:
    name = device_name(text)
    assert 0 < len(name) <= 40 and name.isprintable()


@given(st.binary(min_size=0, max_size=80))
def test_base64url_is_read_strictly(data: bytes) -> None:
    assert unbase64(base64url(data), len(data)) == data
    for wrong in (base64url(data) + "=", base64url(data) + "!", base64url(data + b"x")):
        with pytest.raises(ValueError):
            unbase64(wrong, len(data))


@given(place=st.integers(0, 1000), bit=st.integers(0, 7))
def test_a_changed_bit_is_no_signature(
    place: int, bit: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    browser, device, signatures = paired(tmp_path_factory.mktemp("web"))
    body = order(browser, 1_000_000.0)
    signature = browser.sign(body, ORIGIN)
    raw = bytearray(unbase64(signature, 64) + body)
    raw[place % len(raw)] ^= 1 << bit
    with pytest.raises(Forbidden):
        signatures.check(device, base64url(bytes(raw[:64])), ORIGIN, bytes(raw[64:]))
    assert signatures.check(device, signature, ORIGIN, body)["action"] == "stop"


@given(skew_s=st.floats(-1e6, 1e6))
def test_a_request_counts_within_its_minute(skew_s: float, tmp_path_factory: pytest.TempPathFactory) -> None:
    browser, device, signatures = paired(tmp_path_factory.mktemp("web"))
    body = order(browser, 1_000_000.0 + skew_s)
    if abs(skew_s) <= 60:
        signatures.check(device, browser.sign(body, ORIGIN), ORIGIN, body)
    else:
        with pytest.raises(Forbidden, match="too old"):
            signatures.check(device, browser.sign(body, ORIGIN), ORIGIN, body)


def test_a_request_counts_once(tmp_path: Path) -> None:
    clock = Clock()
    browser, device, signatures = paired(tmp_path, clock=clock)
    body = order(browser, clock.at + 60)
    signature = browser.sign(body, ORIGIN)
    signatures.check(device, signature, ORIGIN, body)
    for at in (0, 60, 120):
        clock.at = 1_000_000.0 + at
        for again in (signatures, Signatures(tmp_path, clock)):  # another process reads what this one saw
            with pytest.raises(Forbidden, match=r"sent before|too old"):
                again.check(device, signature, ORIGIN, body)
    clock.at += 200
    fresh = order(browser, clock.at)
    signatures.check(device, browser.sign(fresh, ORIGIN), ORIGIN, fresh)
    assert len(json.loads((tmp_path / "nonces.json").read_text())["nonces"]) == 1


def test_too_many_requests_are_not_called_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ralphctl.web.devices._MOST_NONCES", 2)
    clock = Clock()
    browser, device, signatures = paired(tmp_path, clock=clock)
    bodies = [order(browser, clock.at) for _ in range(3)]
    for body in bodies[:2]:
        signatures.check(device, browser.sign(body, ORIGIN), ORIGIN, body)
    with pytest.raises(DaemonBusy, match="too many"):
        signatures.check(device, browser.sign(bodies[2], ORIGIN), ORIGIN, bodies[2])
    clock.at += 121
    late = order(browser, clock.at)
    assert signatures.check(device, browser.sign(late, ORIGIN), ORIGIN, late)["at"] == clock.at


def test_a_looking_device_signs_nothing(tmp_path: Path) -> None:
    browser, device, signatures = paired(tmp_path, "look")
    body = order(browser, 1_000_000.0)
    with pytest.raises(Forbidden, match="may look only"):
        signatures.check(device, browser.sign(body, ORIGIN), ORIGIN, body)


def test_only_public_points_of_the_curve_are_keys() -> None:
    good = Browser(1).jwk
    assert len(public_point(good)) == 130
    for wrong in ({}, {**good, "kty": "RSA"}, {**good, "y": good["x"]}, {**good, "d": "x"}, {**good, "x": 1}):
        with pytest.raises(UsageError):
            public_point(wrong)

"""A short seeded part of `make fuzz`, with each fault that was found as an example."""

import json
import random
import time

import pytest

from ralphd.core.fleet.checked import read_value, write_value
from tests.fuzz import engine, files_read, growth, wire_texts
from tests.fuzz.files_read import STATES
from tests.fuzz.mutation import inputs
from tests.fuzz.parsers import Broken, Parser, is_showable, must
from tests.fuzz.sets import ALL
from tests.fuzz.wire_texts import FLEET_VALUES, REPORT, REPORTS

INPUTS = 40
SEED = 20261127
SLOWEST_S = 5.0

FOUND = [
    ("moments", b"0001-01-01T00:00:00+23:59"),
    ("moments", b"9999-12-31T23:59:59.999999Z"),
    ("test-counts", b"9" * 5000 + b" passed in 1.0s"),
    ("test-counts", b'{"Action":"pass",' + b'"Action":"pass","Test":"' * 3000),
    ("log-record", b"0001-01-01T00:00:00.000000000Z a\tb"),
    ("log-record", b"9999-12-31T23:59:59.000000000Z a\tb"),
    ("mcp-message", b'{"method":"x","params":{},"jsonrpc":"2.0","id":"a\x9c\x03-b"}'),
    ("mcp-message", b'{"method":"x","params":{},"jsonrpc":"2.0","id":-012}'),
    ("git-settings", b"sendemail." + b"." * 300_000 + b"\nx"),
    ("web-nonces", b'{"version":1,"nonces":{"a":"x"}}'),
    ("view-of-files", b'{"name": "demo\\r; rm -rf ~\\u001b[2J", "state": "failed", "iteration": 1}'),
]


@pytest.mark.parametrize("name", ALL)
def test_a_parser_holds_what_it_promises(name: str) -> None:
    for data in inputs(ALL[name], SEED, INPUTS):
        ALL[name].call(data)


@pytest.mark.parametrize(("name", "data"), FOUND)
def test_what_was_found_stays_repaired(name: str, data: bytes) -> None:
    began = time.process_time()

    ALL[name].call(data)

    assert time.process_time() - began < SLOWEST_S


def test_the_seeds_are_what_the_parsers_read() -> None:
    for stored in STATES:
        assert any(
            _loads(load, stored) for name, (load, _) in files_read._stores().items() if name != "gate.json"
        )
    for value in FLEET_VALUES:
        wire_texts.fleet_value(json.dumps(write_value(value)).encode())
        assert read_value(type(value), write_value(value)) == value
    assert all(REPORT.validate_python(json.loads(each)).run_id == "r" for each in REPORTS)


def _loads(load: object, stored: bytes) -> bool:
    assert callable(load)
    try:
        return load(json.loads(stored)) is not None
    except Exception:
        return False


# --- the tools ------------------------------------------------------------------------------------------


def _fails_at(data: bytes) -> None:
    must(b"needle" not in data, "a needle")


def test_a_fault_is_told_once_by_its_shortest_input(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = tmp_path_factory.mktemp("found")
    search = engine.Search("hay", _fails_at, found)

    for data in (b"hay", b"hay needle hay", b"needle needle"):
        search.one(data)

    (kept,) = found.iterdir()
    assert kept.read_bytes() == b"needle"
    assert capsys.readouterr().out.count("@example for hay") == 1


def test_an_input_whose_time_grows_with_its_square_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "FIRST_BYTES", 100)
    monkeypatch.setattr(growth, "QUICK_S", 0.0005)

    def squared(data: bytes) -> None:
        for _ in data:
            sum(data)

    bad = Parser("bad", squared, [], units=(b"ab",), most_bytes=1_000)
    good = Parser("good", sum, [], units=(b"ab",), most_bytes=1_000)

    assert any("a tenth: " in fault for fault in growth.faults(bad))
    assert list(growth.faults(good)) == []


def test_a_call_that_takes_too_long_is_ended() -> None:
    with pytest.raises(growth.TooSlow), growth.limited(0.05):
        while True:
            random.random()


@pytest.mark.parametrize("text", ["\x1b[2J", "a\rb", "\u202ea", "\x9b"])
def test_what_a_terminal_acts_upon_is_no_text_to_show(text: str) -> None:
    with pytest.raises(Broken):
        is_showable(text)
    is_showable("plain\ttext\n")

"""``/metrics``, read by a judge of the text format that forgives nothing."""

import re
from collections.abc import Iterable, Mapping
from copy import copy
from pathlib import Path

import pytest

from ralphd import wire
from ralphd.core.supervision.model import RunId, Running, Supervision
from ralphd.daemon.metrics import HELP, Sample, measured, metrics_text
from tests.api.serving import serve_host
from tests.daemon.test_regent_view import a_regent

RALPH: list[Sample] = [
    ("ralphd_ralph_state", {"ralph": "demo", "state": "waiting_for_retry"}, 1),
    ("ralphd_ralph_up", {"ralph": "demo"}, False),
    ("ralphd_ralph_restarts_total", {"ralph": "demo"}, 2),
    ("ralphd_ralph_cost_usd_total", {"ralph": "demo"}, 1.25),
    ("ralphd_ralph_last_output_age_seconds", {"ralph": "demo"}, 12.5),
    ("ralphd_ralph_config_drifted", {"ralph": "demo"}, True),
    ("ralphd_ralph_wait_seconds", {"ralph": "demo", "reason": "crash"}, 30.0),
]
SAMPLES: list[Sample] = [
    ("ralphd_uptime_seconds", {}, 60.5),
    ("ralphd_resident_memory_bytes", {}, 48_000_000),
    ("ralphd_events_total", {"type": "ralph.started"}, 3),
    ("ralphd_deliveries_total", {"outcome": "failed"}, 1),
    ("ralphd_deliveries_pending", {}, 2),
    *RALPH,
]
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
NUMBER = re.compile(r"[+-]?(\d+(\.\d+)?(e[+-]?\d+)?|Inf)|NaN")

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def judged(text: str) -> Samples:
    """Every sample by name and labels; fails for whatever version 0.0.4 of the format does not allow."""
    assert text.endswith("\n")
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    helped: set[str] = set()
    kinds: dict[str, str] = {}
    family = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            family, _, words = line.removeprefix("# HELP ").partition(" ")
            assert NAME.fullmatch(family) and words and family not in helped, line
            helped.add(family)
        elif line.startswith("# TYPE "):
            named, kind = line.removeprefix("# TYPE ").split(" ")
            assert named == family and named not in kinds, line  # one family after the other
            assert kind in ("counter", "gauge") and (kind == "counter") is named.endswith("_total"), line
            kinds[named] = kind
        else:
            head, _, value = line.rpartition(" ")
            name, brace, inside = head.partition("{")
            assert name == family and NUMBER.fullmatch(value), line
            labels = _labels(inside.removesuffix("}")) if brace else frozenset[tuple[str, str]]()
            assert not brace or (inside.endswith("}") and labels), line
            assert (name, labels) not in samples, f"twice: {line}"
            samples[name, labels] = float(value)
    assert helped == set(kinds)
    return samples


def _labels(text: str) -> frozenset[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match is not None, text
        value = re.sub(r"\\(.)", lambda mark: {"n": "\n"}.get(mark[1], mark[1]), match[2])
        found.append((match[1], value))
        at = match.end()
    assert len(dict(found)) == len(found), text
    return frozenset(found)


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def page(samples: Iterable[Sample]) -> str:
    return metrics_text(samples).decode()


def test_the_page_is_the_text_format_to_the_letter() -> None:
    samples = judged(page(SAMPLES))

    assert value(samples, "ralphd_uptime_seconds") == 60.5
    assert value(samples, "ralphd_resident_memory_bytes") == 48_000_000
    assert value(samples, "ralphd_events_total", type="ralph.started") == 3
    assert value(samples, "ralphd_deliveries_total", outcome="failed") == 1
    assert value(samples, "ralphd_deliveries_pending") == 2


def test_a_ralph_is_told_by_its_name() -> None:
    samples = judged(page(SAMPLES))

    assert value(samples, "ralphd_ralph_state", ralph="demo", state="waiting_for_retry") == 1
    assert value(samples, "ralphd_ralph_up", ralph="demo") == 0
    assert value(samples, "ralphd_ralph_restarts_total", ralph="demo") == 2
    assert value(samples, "ralphd_ralph_cost_usd_total", ralph="demo") == 1.25
    assert value(samples, "ralphd_ralph_last_output_age_seconds", ralph="demo") == 12.5
    assert value(samples, "ralphd_ralph_wait_seconds", ralph="demo", reason="crash") == 30
    assert value(samples, "ralphd_ralph_config_drifted", ralph="demo") == 1


async def test_what_is_not_known_has_no_sample_rather_than_a_zero(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    names = {name for name, _ in judged(page(measured([regent], regent._services, events, 0.0)))}

    assert "ralphd_ralph_restarts_total" in names
    assert not {"ralphd_ralph_last_output_age_seconds", "ralphd_ralph_wait_seconds"} & names
    await events.close()


async def test_every_state_and_every_type_of_event_is_there_from_the_start(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    samples = judged(page(measured([], regent._services, events, 0.0)))

    assert all(value(samples, "ralphd_ralphs", state=state) == 0 for state in wire.STATES)
    assert all(value(samples, "ralphd_events_total", type=kind) == 0 for kind in wire.EVENT_TYPES)
    await events.close()


async def test_every_figure_has_its_help(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    names = {name for name, _, _ in measured([regent], regent._services, events, 0.0)}

    assert names == HELP.keys() - {"ralphd_ralph_wait_seconds"}
    await events.close()


async def test_ralphs_are_counted_by_state(tmp_path: Path) -> None:
    regent, events = await a_regent(tmp_path)
    other, running = copy(regent), copy(regent.account)
    other.name, other.account = "r1", running
    running._supervision = Supervision(state=Running(RunId("r000001-aaaaaaaa")))
    samples = judged(page(measured([regent, other], regent._services, events, 0.0)))

    assert value(samples, "ralphd_ralphs", state="running") == 1
    assert value(samples, "ralphd_ralphs", state="idle") == 1
    await events.close()


@pytest.mark.parametrize("odd", ['say "hi"', "back\\slash", "two\nlines", "a,b}c 1", "é 🛡️", '\\"\n\\n'])
def test_a_reason_of_a_runs_own_words_breaks_no_line(odd: str) -> None:
    samples = judged(page([("ralphd_ralph_wait_seconds", {"ralph": "demo", "reason": odd}, 30)]))

    assert value(samples, "ralphd_ralph_wait_seconds", ralph="demo", reason=odd) == 30


@pytest.mark.parametrize(
    "broken",
    [
        "ralphd_x 1\n",
        "# HELP a b\n# TYPE a gauge\na 1",
        "# HELP a b\n# TYPE a gauge\na one\n",
        '# HELP a b\n# TYPE a gauge\na{x="1} 1\n',
        '# HELP a b\n# TYPE a gauge\na{x="1"} 1\na{x="1"} 2\n',
        "# HELP a b\n# TYPE a counter\na 1\n",
        "# HELP a b\na 1\n",
        '# HELP a b\n# TYPE a gauge\na{x="\\t"} 1\n',
    ],
)
def test_the_judge_sees_what_is_wrong(broken: str) -> None:
    with pytest.raises(AssertionError):
        judged(broken)


async def test_it_is_served_beside_the_versioned_routes(tmp_path: Path) -> None:
    async with serve_host(tmp_path) as whole:
        whole.host.measured = SAMPLES
        answer = await whole.client.get("/metrics")
        asked_more = await whole.client.get("/metrics?x=1")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert judged(answer.text)
    assert asked_more.status_code == 422

"""Real CLIs that are described by data, against vendors that fail: ``make test-agents``, as ``real_agents``.

Those that can be had by name and pointed at another server: qwen, aider, copilot with a provider of its own.
"""

import pytest

from ralphd.core.failures.classify import OurDoing
from ralphd.core.failures.kinds import FailureKind as Kind
from tests.agents.lodging import Lodging
from tests.agents.real_agents import (
    HANG_S,
    THREE_HOURS_S,
    attempt,
    bare_environment,
    lodging,
    vendors,
)
from tests.agents.vendors.answers import HANG, UNAUTHORISED, UNAVAILABLE, Answer, rate_limit, usage_limit
from tests.agents.vendors.server import Vendors

__all__ = ["bare_environment", "lodging", "vendors"]

pytestmark = pytest.mark.timeout(300)
AGENTS = ("qwen", "copilot", "aider")
WRITTEN = "done.txt\n```\nas asked\n```\n\nDone, as asked.\n"
"""How a model answers that has no tools: aider writes the file itself."""


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_described_agent_that_is_answered_well_does_its_work(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.says("aider", WRITTEN)

    ended = await attempt(agent, lodging)

    assert ended.finding.kind is None, ended
    assert (lodging.project / "done.txt").read_text().strip() == "as asked"
    assert vendors.asked(agent) >= 1
    assert ended.result.worked
    assert (ended.result.session is not None) == (agent != "aider")
    assert (ended.result.figures.tokens_in >= 1200) == (agent != "copilot")
    assert ended.result.figures.cost_usd is None  # nobody has a price for a model that is made up
    assert "Done, as asked." in ended.result.last_message


FAILURES = {
    "429": (rate_limit(2), Kind.RATE_LIMIT),
    "401": (UNAUTHORISED, Kind.FATAL),
    "503": (UNAVAILABLE, Kind.TRANSIENT),
}
CASES = [
    pytest.param(agent, *FAILURES[name], id=f"{agent}-{name}")
    for name in FAILURES
    for agent in AGENTS
    if (agent, name) not in (("aider", "503"), ("qwen", "503"))  # they go on asking for more than a minute
]


@pytest.mark.parametrize(("agent", "answer", "kind"), CASES)
async def test_a_failure_that_a_described_agent_meets_is_known_for_what_it_is(
    agent: str, answer: Answer, kind: Kind, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, then=answer)

    ended = await attempt(agent, lodging)

    assert ended.finding.kind == kind, ended
    assert vendors.asked(agent) >= 1


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_usage_limit_that_a_described_agent_meets_is_known(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, then=usage_limit(THREE_HOURS_S))

    ended = await attempt(agent, lodging)

    assert ended.finding.kind == Kind.USAGE_LIMIT, ended
    assert ended.finding.reset is None, ended  # all three keep it to themselves


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_described_agent_whose_vendor_is_silent_is_ended_in_time(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, then=HANG)

    ended = await attempt(agent, lodging, timeout_s=HANG_S)

    assert ended.finding.kind == Kind.TIMEOUT, ended
    assert ended.result.evidence.ours == OurDoing.TIMEOUT
    assert ended.took_s < HANG_S + 15

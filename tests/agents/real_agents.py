"""The real agent CLIs against vendors that fail: ``make test-agents``. Not a part of ``make check``.

Each attempt goes through the project's own agent, attempt and classification, as in the loop; nothing of an
agent may be alive after it.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ralphd.agents.agent import LaunchSpec
from ralphd.agents.known import agent_of
from ralphd.core.failures.agent_events import RetryingItself
from ralphd.core.failures.classify import Classification, OurDoing, Rules, classify
from ralphd.core.failures.kinds import FailureKind as Kind
from ralphd.core.failures.reset_parsers import Confidence
from ralphd.core.stall_detector import SilenceLimits
from ralphd.loop.attempt.agent_run import AgentResult, AgentRun, AgentRunSpec
from tests.agents.installed import why_not
from tests.agents.lodging import Lodging
from tests.agents.vendors.answers import (
    HANG,
    OK,
    OVERLOADED,
    RESET,
    UNAUTHORISED,
    UNAVAILABLE,
    Answer,
    rate_limit,
    usage_limit,
)
from tests.agents.vendors.server import Vendors

pytestmark = pytest.mark.timeout(300)
LIMIT_S = 200.0
HANG_S = 12.0
THREE_HOURS_S = 3 * 3600.0
AGENTS = ("claude", "codex", "gemini", "opencode")
WORK = "printf 'as asked' > done.txt"
_KEPT = ("PATH", "TMPDIR", "LANG", "TZ")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no setting and no session of whoever runs this reaches an agent."""
    for name in set(os.environ) - set(_KEPT):
        monkeypatch.delenv(name)


@pytest.fixture
def vendors() -> Iterator[Vendors]:
    """The vendors, all well."""
    with Vendors(WORK) as vendors:
        yield vendors


@pytest.fixture
def lodging(tmp_path: Path, vendors: Vendors) -> Lodging:
    """A fresh home."""
    return Lodging(tmp_path, vendors.url).furnish()


@dataclass(slots=True)
class Heard:
    """What was told while an attempt ran."""

    retries: int = 0

    def show(self, line: str) -> None:
        """Nobody reads it."""

    def warn(self, text: str) -> None:
        """Nor this."""

    def retrying(self, sign: RetryingItself) -> None:
        """Counted."""
        self.retries += 1

    async def before_kill(self, ours: OurDoing, why: str) -> None:
        """Nothing is to be saved."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an attempt ended, what it was taken for, and how long it took."""

    result: AgentResult
    finding: Classification
    took_s: float


async def attempt(
    agent_name: str, lodging: Lodging, *, timeout_s: float = LIMIT_S, subscribed: bool = True
) -> Ended:
    """One attempt of an agent, as the loop makes it."""
    if reason := why_not(agent_name):
        pytest.skip(reason)
    agent = agent_of(agent_name, lodging.spec(agent_name, subscribed=subscribed), outside={})
    order = LaunchSpec("Write done.txt, as asked.", lodging.root / "prompt.md")
    order.prompt_file.write_text(order.prompt)
    mark = f"test-{os.getpid()}-{time.monotonic_ns()}"
    plan = AgentRunSpec(
        id=mark,
        agent=agent,
        order=order,
        directory=lodging.project,
        keep=lodging.root / "keep",
        timeout_s=timeout_s,
        limits=SilenceLimits(),
        exit_grace_s=10.0,
        crash_grace_s=5.0,
    )
    began = time.monotonic()
    result = await AgentRun(plan, Heard()).run()
    rules = Rules(agent.name, agent.patterns, agent.exits, agent.has_verdict)
    ended = Ended(result, classify(result.evidence, rules, now=time.time()), time.monotonic() - began)
    found = ended.finding
    print(f"  {agent_name}: {found.kind or 'ok'} in {ended.took_s:.1f} s, by {found.rule}: {found.why}")
    assert carriers(mark) == [], "something of it is alive"
    return ended


def carriers(mark: str) -> list[str]:
    """The living processes of an attempt."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_that_is_answered_well_does_its_work(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    ended = await attempt(agent, lodging)

    assert ended.finding.kind is None, ended
    assert (lodging.project / "done.txt").read_text() == "as asked"
    assert vendors.asked(agent) >= 2
    assert ended.result.session and ended.result.worked
    used = ended.result.figures
    assert used.tokens_in >= 2400 and used.tokens_out >= 84
    assert (used.cost_usd is not None) == (agent in ("claude", "opencode"))
    assert "Done, as asked." in ended.result.last_message


FAILURES = {
    "429": (rate_limit(), Kind.RATE_LIMIT),
    "429-after": (rate_limit(2), Kind.RATE_LIMIT),
    "529": (OVERLOADED, Kind.TRANSIENT),
    "503": (UNAVAILABLE, Kind.TRANSIENT),
    "401": (UNAUTHORISED, Kind.FATAL),
}
CASES = [
    pytest.param(agent, *FAILURES[name], id=f"{agent}-{name}")
    for name in FAILURES
    for agent in AGENTS
    if (agent, name) != ("opencode", "503")  # it takes a minute and a half, as with 529
]


@pytest.mark.parametrize(("agent", "answer", "kind"), CASES)
async def test_a_failure_of_the_vendor_is_known_for_what_it_is(
    agent: str, answer: Answer, kind: Kind, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, then=answer)

    ended = await attempt(agent, lodging)

    assert ended.finding.kind == kind, ended
    assert vendors.asked(agent) >= 1


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_usage_limit_is_known_and_so_is_its_reset(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    limit = usage_limit(THREE_HOURS_S)
    vendors.answer(agent, then=limit)

    ended = await attempt(agent, lodging)

    assert ended.finding.kind == Kind.USAGE_LIMIT, ended
    reset = ended.finding.reset
    assert reset is not None and limit.reset_at is not None, ended
    if agent == "gemini":  # it keeps the vendor's words for itself
        assert reset.confidence is Confidence.GUESSED, ended
    else:  # codex tells the minute
        assert abs(reset.until - limit.reset_at) < 120, ended


@pytest.mark.parametrize(("answer", "kind"), [(rate_limit(2), Kind.RATE_LIMIT), (OVERLOADED, Kind.TRANSIENT)])
async def test_claude_that_pays_by_the_call_fails_as_one_with_a_plan_does(
    answer: Answer, kind: Kind, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer("claude", then=answer)

    ended = await attempt("claude", lodging, subscribed=False)

    assert ended.finding.kind == kind, ended


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_connection_that_is_reset_is_no_fault_of_the_agent(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, then=RESET)

    # opencode asks again for ever, with steps that are none: it is its silence that ends it (L6).
    ended = await attempt(agent, lodging, timeout_s=40.0)

    expected = {Kind.TIMEOUT, Kind.STALL} if agent == "opencode" else {Kind.TRANSIENT}
    assert ended.finding.kind in expected, ended


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_whose_vendor_is_silent_is_ended_in_time(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, then=HANG)

    ended = await attempt(agent, lodging, timeout_s=HANG_S)

    assert ended.finding.kind == Kind.TIMEOUT, ended
    assert ended.result.evidence.ours == OurDoing.TIMEOUT
    assert ended.took_s < HANG_S + 15


@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agent_that_gets_over_a_failure_by_itself_has_not_failed(
    agent: str, lodging: Lodging, vendors: Vendors
) -> None:
    vendors.answer(agent, rate_limit(1), then=OK)

    ended = await attempt(agent, lodging)

    assert ended.finding.kind is None, ended
    assert (lodging.project / "done.txt").exists()

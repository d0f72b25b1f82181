"""A ralph that is done is proposed to its landing queue once, and again after a remote was away (M2)."""

import errno
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from ralphd.core.landing.model import LandingQueue, Target
from ralphd.core.supervision.model import Done
from ralphd.daemon.landing.queues import LandingQueues
from ralphd.errors import NotLandable
from ralphd.git.landing.target import NETWORK_RETRY_S
from ralphd.git.runner import NotDone
from tests.daemon.ralph.test_incidents import SetClock


@pytest.mark.parametrize(
    ("fault", "times"),
    [(NotDone("the remote is away"), 2), (OSError("no file"), 2), (NotLandable("nothing to land"), 1)],
)
async def test_a_proposal_that_failed_is_repeated_later(tmp_path: Path, fault: Exception, times: int) -> None:
    clock, read = SetClock(1000.0), Mock(side_effect=fault)
    account: Any = Mock(facts=Mock(finished_at=10.0), supervision=Mock(state=Mock(spec=Done)))
    account.definition.name, account.definition.directory = "api", tmp_path
    queues: Any = LandingQueues(Mock(), Mock(clock=clock, state_directory=tmp_path), Mock(), Mock())
    queues._wanted = read

    async def proposed(count: int) -> bool:
        await queues._propose(account)
        return bool(read.call_count == count)

    assert await proposed(1) and await proposed(1)
    clock.at += NETWORK_RETRY_S
    assert await proposed(times) and await proposed(times)


async def test_a_proposal_that_cannot_be_saved_is_repeated_and_told_of(tmp_path: Path) -> None:
    clock, fault = SetClock(1000.0), OSError(errno.ENOSPC, "No space left on device", "queue.json")
    account: Any = Mock(facts=Mock(finished_at=10.0), supervision=Mock(state=Mock(spec=Done)))
    account.definition.name, account.definition.directory = "api", tmp_path
    queues: Any = LandingQueues(Mock(), Mock(clock=clock, state_directory=tmp_path), Mock(), Mock())
    queues._wanted, queues._propose_branch = Mock(), AsyncMock(side_effect=fault)

    await queues._propose(account)
    assert "No space left on device: queue.json" in queues.why_unqueued("api")
    clock.at += NETWORK_RETRY_S
    queues._propose_branch.side_effect = None
    await queues._propose(account)
    assert queues._propose_branch.call_count == 2 and not queues.why_unqueued("api")


def test_queues_that_begin_at_once_have_ports_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues: Any = LandingQueues(Mock(), Mock(state_directory=tmp_path), Mock(), Mock())
    both = Barrier(2)

    def is_free(_: int) -> bool:
        with suppress(BrokenBarrierError):  # one waits for the other to have chosen
            both.wait(0.2)
        return True

    monkeypatch.setattr("ralphd.daemon.landing.queues.are_free", is_free)
    made = [LandingQueue(name, name, Target("main")) for name in ("left", "right")]
    with ThreadPoolExecutor(2) as threads:
        left, right = threads.map(queues._ports_for, made)
    assert left != right and left and right
    assert queues._ports_for(made[0]) == left

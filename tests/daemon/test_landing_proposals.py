"""A ralph that is done is proposed to its landing queue once, and again after a remote was away (M2)."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

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

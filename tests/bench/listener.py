"""One attempt of an agent that talks, in a process of its own: what it costs to listen, as JSON on stdout.

    python -m tests.bench.listener AGENT DIRECTORY BLOCK TIMES END

The agent is played by agents.py. What it says is shown as the loop shows it, to /dev/null.
"""

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

from ralphd.agents.agent import LaunchSpec
from ralphd.agents.known import agent_of
from ralphd.config.specs import AgentSpec
from ralphd.core.loop.model import PauseReason
from ralphd.core.stall_detector import SilenceLimits
from ralphd.loop.attempt.agent_run import AgentRun, AgentRunSpec
from ralphd.loop.attempt.agent_runner import ConsoleObserver
from ralphd.loop.console import Console

LIMIT_S = 100.0
AGENTS = Path(__file__).with_name("agents.py")


async def _saved(reason: PauseReason, why: str) -> None:
    """Nothing is to be saved."""


def main() -> None:
    """Listen, and tell."""
    name, directory, block, times, end = sys.argv[1:]
    # The known agents put their flags behind it, which the talker does not read.
    command = ("/bin/sh", "-c", 'exec "$0" "$1" talk "$2" "$3" "$4"')
    spec = AgentSpec(command=(*command, sys.executable, str(AGENTS), block, times, end))
    place = Path(directory)
    plan = AgentRunSpec(
        id=f"bench-{os.getpid()}",
        agent=agent_of(name, spec, outside={}),
        order=LaunchSpec("Talk.", place / "prompt.md"),
        directory=place,
        keep=place / "keep",
        timeout_s=LIMIT_S,
        limits=SilenceLimits(),
        exit_grace_s=10.0,
        crash_grace_s=5.0,
    )
    told = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    begun_s = time.process_time()
    result = asyncio.run(AgentRun(plan, ConsoleObserver(Console(time.time), name, _saved)).run())
    spent_s = time.process_time() - begun_s
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    ended_well = result.evidence.code == 0 and (name == "agent" or result.evidence.verdict is not None)
    with os.fdopen(told, "w") as out:
        json.dump({"cpu_s": spent_s, "peak_mb": peak_mb, "ended_well": ended_well}, out)


if __name__ == "__main__":
    main()

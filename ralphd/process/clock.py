"""The clocks of this machine: one object, so that a test can hold it."""

import time

from ralphd.core.model import Moment


class Clock:
    """The clocks of this machine: the one on the wall, which can be set, and two that cannot (H5)."""

    def now(self) -> Moment:
        """Seconds since the epoch, UTC."""
        return time.time()

    def awake_s(self) -> float:
        """Seconds that pass while the machine is awake, from no particular moment (CLOCK_MONOTONIC)."""
        return time.monotonic()

    def asleep_s(self) -> float:
        """Seconds that the machine has slept since its boot: boot time against monotonic."""
        boottime = getattr(time, "CLOCK_BOOTTIME", None)
        return 0.0 if boottime is None else time.clock_gettime(boottime) - time.monotonic()

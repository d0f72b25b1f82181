"""The daemon's clock: one object, so that a test can hold it."""

import time

from ralphd.core.model import Moment


class Clock:
    """The wall clock of this machine."""

    def now(self) -> Moment:
        """Seconds since the epoch, UTC."""
        return time.time()

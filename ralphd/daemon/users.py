"""The user's own configuration file as far as it is the daemon's: its webhooks, its bounds of logs."""

import logging
import os

from ralphd import config
from ralphd.daemon.services import Services
from ralphd.errors import ConfigFaults

logger = logging.getLogger(__name__)

TOPIC = "the user's configuration"


class UsersConfiguration:
    """What the file said when it was last read without faults; the defaults before that."""

    def __init__(self, services: Services) -> None:
        self.present = config.Configuration()
        self._services = services

    def read(self) -> tuple[config.Difference, ...] | ConfigFaults:
        """Read the file again: what has changed; or what is wrong with it.

        Faults are a trouble until they are mended, and change nothing.
        """
        try:
            current = config.load(None, environ=os.environ)
        except ConfigFaults as faults:
            self._services.trouble(TOPIC, None)  # it may be about other faults
            self._services.trouble(TOPIC, str(faults))
            return faults
        self._services.trouble(TOPIC, None)
        before, self.present = self.present, current
        self._services.news.always = current.destinations()
        logger.info("read the user's configuration")
        return config.differences(before, current)

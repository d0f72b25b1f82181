"""What the tests of the configuration commands share: a home with a working directory in it."""

from tests.config.conftest import place as place

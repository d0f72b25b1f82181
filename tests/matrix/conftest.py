"""The daemon of the matrix."""

from tests.whole.conftest import daemon, witness

__all__ = ["daemon", "witness"]

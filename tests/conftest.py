"""How thoroughly the property tests search: ``dev`` in every run, ``ci`` where CI=true. Both take seconds.

Both are the same search in every run (a failure is a failure for everybody), and nothing is kept on disk.
"""

import os
import shutil
import tempfile

import pytest
from hypothesis import settings
from hypothesis.configuration import set_hypothesis_home_dir

_HOME = tempfile.mkdtemp(prefix="hypothesis-")
set_hypothesis_home_dir(_HOME)

_DEV = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True, database=None)
settings.register_profile("dev", _DEV)
settings.register_profile("ci", _DEV, max_examples=300, stateful_step_count=60)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Take along what hypothesis writes beside its database."""
    shutil.rmtree(_HOME, ignore_errors=True)

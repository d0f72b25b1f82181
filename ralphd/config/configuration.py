"""The configuration of one ralph: every value, where it came from, and its pinned form.

Read once, when a ralph starts, from all layers together; from then on the pinned form is the truth (design
section 8), so that a ``ralph.toml`` changed under a running ralph changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ralphd.config.keys import BUILT, key_of, keys_of
from ralphd.config.layers import DEFAULT, Fault, Origin, Setting
from ralphd.config.specs import (
    AgentSpec,
    AgentsSpec,
    GitSpec,
    LogsSpec,
    NotifySpec,
    PhasesSpec,
    ProjectSpec,
    RalphSpec,
    RegentSpec,
    RetrySpec,
    WebhookSpec,
)
from ralphd.core.model import Mode, Policy, Restart
from ralphd.errors import ConfigFaults

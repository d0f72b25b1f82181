"""What a reload would change: the pinned configuration beside the one that the files give now."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from ralphd.config.configuration import Configuration
from ralphd.config.words import toml_value

FIXED = "project.name"
"""A ralph is called what it was registered as."""
COMMAND = "ralph.command"
HIDDEN = "(not shown)"
LONGEST_VALUE = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One key, as it would stand in ``ralph.toml``; None for a key that is not set there.

    ``origin`` is where the present value comes from. It is shown in ``status``, so what may hold a secret
    (agents' variables, webhooks' addresses) is ``(not shown)``.
    """

    key: str
    pinned: str | None
    now: str | None
    origin: str

    def as_object(self) -> Mapping[str, str | None]:
        """``{key, pinned, now, origin}``"""
        return asdict(self)


def differences(pinned: Configuration, current: Configuration) -> tuple[Difference, ...]:
    """Every key whose value is another one now, in the order of the sections."""
    before = {name: value for name, value, _ in pinned.values()}
    after = {name: value for name, value, _ in current.values()}
    return tuple(
        Difference(name, _shown(name, before), _shown(name, after), _origin(name, current))
        for name in {**before, **after}
        if before.get(name) != after.get(name) and name != FIXED
    )


def _shown(name: str, values: Mapping[str, object]) -> str | None:
    if name not in values:
        return None
    if name.endswith((".env", ".url")):
        return HIDDEN
    text = toml_value(values[name])
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _origin(name: str, current: Configuration) -> str:
    """Where the value comes from: that of a webhook's key is its table's."""
    found = current.origins.get(name) or current.origins.get(name.rpartition(".")[0])
    return "default" if found is None else found.text

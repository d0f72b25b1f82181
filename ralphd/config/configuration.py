"""The configuration of one ralph: every value, its origin, its pinned form, and what a reload would change.

Read once, when a ralph starts, from all layers together; from then on the pinned form is the truth, so that
a ``ralph.toml`` changed under a running ralph changes nothing.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from sys import intern
from typing import Any, cast

from ralphd.config import files, layers, specs
from ralphd.config.keys import NAMED, SECRETS, SECTIONS, SPECS, WEBHOOKS, ConfigKey, keys_of
from ralphd.config.layers import DEFAULT, DIRECTORYS_NAME, ConfigFault, Layer, Origin, Setting, dotted
from ralphd.config.values import fit_name, toml_value
from ralphd.core.delivery import Destination, Format, ProjectsDestination
from ralphd.core.limits import RunLimits
from ralphd.core.sandbox import is_lowered
from ralphd.core.stall_detector import SilenceLimits
from ralphd.core.supervision.model import Mode, Policy, Restart
from ralphd.dataclass import dataclass
from ralphd.errors import ConfigFaults, NewerState

PINNED_VERSION = 1
FIXED = "project.name"
"""A ralph keeps the name it was registered with."""
COMMAND = "ralph.command"
SANDBOX, SANDBOX_NET = "sandbox.level", "sandbox.net"
HIDDEN = "(not shown)"
LONGEST_VALUE = 200


def fields_by_key(rules: type[Any], *sections: Any) -> dict[str, Any]:
    """Return the fields of ``rules`` that are named like a key of ``sections``, with its value.

    Of a duration the field's name ends with ``_s`` instead of ``_seconds``, and ``evidence_`` is left out.
    """
    keys = {key: value for section in sections for key, value in asdict(section).items()}
    values = {re.sub("_seconds$", "_s", key.removeprefix("evidence_")): keys[key] for key in keys}
    return {item.name: values[item.name] for item in fields(rules) if item.name in values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(specs.Sections):
    """Every value, by section. ``origins`` has the source of each, defaults too."""

    webhooks: tuple[specs.WebhookSpec, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def policy(self) -> Policy:
        """Return the rules of the Regent's decisions, by the sections that have them."""
        given = fields_by_key(Policy, self.ralph, self.regent, self.retry)
        given |= {"restart": Restart(self.ralph.restart), "mode": Mode(self.ralph.mode)}
        return Policy(supervised=self.regent.enabled, **given)

    def silence_limits(self) -> SilenceLimits:
        """Return how long a run may be silent, and what counts as evidence that it works (H1 to H6)."""
        warn_after_s = self.agents.missed_heartbeats * self.agents.heartbeat_seconds
        return SilenceLimits(**fields_by_key(SilenceLimits, self.regent), warn_after_s=warn_after_s)

    def run_limits(self) -> RunLimits:
        return RunLimits(**asdict(self.limits))

    def hooks(self, without: str | None = None) -> list[tuple[Destination, str]]:
        """Return the webhooks, each with its place; without those of the file ``without``."""
        places = (self.origins.get(f"{WEBHOOKS}[{i}]", DEFAULT).text for i in range(len(self.webhooks)))
        every = zip(self.webhooks, places, strict=True)
        return [(_destination(hook, at), at) for hook, at in every if at.rpartition(":")[0] != without]

    def destinations(self, without: str | None = None) -> tuple[Destination, ...]:
        return tuple(to for to, _ in self.hooks(without))

    def tree(self) -> dict[str, Any]:
        """Return every value in the shape of ``ralph.toml``, as JSON holds it."""
        tree: dict[str, Any] = {section: asdict(getattr(self, section)) for section in SECTIONS}
        for section in NAMED:
            tree[section] |= tree[section].pop("named")
        tree[WEBHOOKS] = [asdict(hook) for hook in self.webhooks]
        return cast("dict[str, Any]", json.loads(json.dumps(tree)))

    def pinned(self) -> dict[str, Any]:
        """Return all of it as JSON, defaults too: a ralph keeps the values that it was started with."""
        origins = {key: origin.text for key, origin in self.origins.items() if origin != DEFAULT}
        return {"version": PINNED_VERSION, "values": self.tree(), "origins": origins}

    @classmethod
    def from_pinned(cls, pinned: Mapping[str, Any]) -> "Configuration":
        """Return what ``pinned`` gave, in this or an earlier version: unknown keys are skipped.

        A missing key gets its default. Raise NewerState for a later version's form, ConfigFaults for
        anything else.
        """
        version, values, origins = pinned.get("version"), pinned.get("values"), pinned.get("origins")
        if isinstance(version, int) and version > PINNED_VERSION:
            what = "the pinned configuration is of a newer ralphd"
            raise NewerState(what, mend="install that version again")
        if not isinstance(values, dict) or not isinstance(origins, dict):
            raise ConfigFaults("the pinned configuration is not one", why="it has no values or no origins")
        layer = layers.tree_layer(values, lambda path: "pinned", users_own=True, resolve=str, lenient=True)
        if layer.faults:
            raise config_faults(layer.faults)
        given = {str(key): Origin(str(text)) for key, text in origins.items()}
        merged = _merged([layer])
        return replace(merged, origins={**dict.fromkeys(merged.origins, DEFAULT), **given})

    def check_guard(self) -> None:
        """Raise ConfigFaults where commits are to be reverted, and no tests are set."""
        regent = self.regent
        if regent.enabled and regent.rollback_on_test_failure and not regent.test_command.strip():
            why = "without tests, ralphd cannot know which commits to revert"
            mend = '[regent] test_command = "make test" in ralph.toml, or rollback_on_test_failure = false'
            raise ConfigFaults("rollback_on_test_failure is set, but test_command is not", why=why, mend=mend)

    def values(self) -> list[tuple[str, Any, ConfigKey]]:
        """Return each key by its full name, with its value and its entry in the list of keys."""
        tables: list[tuple[str, str, object]] = [
            *((section, section, getattr(self, section)) for section in SECTIONS),
            *(
                (f"{section}.{name}", table, spec)
                for section, table in NAMED.items()
                for name, spec in getattr(self, section).named.items()
            ),
            *((dotted((WEBHOOKS, index)), WEBHOOKS, hook) for index, hook in enumerate(self.webhooks)),
        ]
        return [
            (intern(f"{name}.{key.name}"), getattr(spec, key.name), key)
            for name, section, spec in tables
            for key in keys_of(section).values()
        ]


def _destination(hook: specs.WebhookSpec, place: str) -> Destination:
    shape = ProjectsDestination if Path(place.rpartition(":")[0]).name == files.PROJECT_FILE else Destination
    secret = {"secret_file": hook.secret_file or None, "secret_env": hook.secret_env or None}
    return shape(**{**asdict(hook), **secret, "format": Format(hook.format)})


def load(
    directory: Path | None,
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    home: Path | None = None,
) -> Configuration:
    """Read flags over environment over ``ralph.toml`` over the user's file over defaults.

    ``directory`` is the ralph's working directory; without one there is no ``ralph.toml`` (the daemon's own
    part). ``flags`` maps flags or keys to values, ``home`` replaces ``$HOME``. Raise ConfigFaults with the
    faults of all layers.
    """
    home = home or home_of(environ)
    given = [files.layer(files.user_file(environ, home), directory, home, users_own=True)]
    if directory is not None and (path := files.project_file(directory, home)):
        given.append(files.layer(path, directory, home, users_own=False))
        _refuse_lower_sandbox(*given)
    given += [layers.environment_layer(environ), layers.flags_layer(flags or {})]
    if faults := [fault for layer in given for fault in layer.faults]:
        raise config_faults(faults)
    return _named(_merged(given), directory)


def sources(directory: Path, *, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files whose content ``load`` depends on, whether they exist or not."""
    home = home_of(environ)
    return (files.user_file(environ, home), *files.project_places(directory, home))


def config_faults(faults: list[ConfigFault]) -> ConfigFaults:
    count = f"{len(faults)} fault{'s' if len(faults) > 1 else ''}"
    return ConfigFaults(f"{count} in the configuration", why="\n".join(map(str, faults)))


def home_of(environ: Mapping[str, str]) -> Path:
    """Return ``$HOME``, else the system's entry, else a path that does not exist."""
    given = Path(environ.get("HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home()
    except RuntimeError:  # an unknown uid has no files of its own either
        return Path("/nonexistent")


def data_home(environ: Mapping[str, str]) -> Path:
    """Return ``$XDG_DATA_HOME/ralphd``, where ralphd's own work trees are."""
    data = Path(environ.get("XDG_DATA_HOME", ""))
    data = data if data.is_absolute() else home_of(environ) / ".local" / "share"
    return (data / "ralphd").resolve()


def _refuse_lower_sandbox(users_own: Layer, projects: Layer) -> None:
    """Add a fault if ``ralph.toml``, which an agent can write, lowers the sandbox of the user's own file."""
    setting, own = projects.settings.get(SANDBOX), users_own.settings.get(SANDBOX)
    level = own.value if own is not None else specs.SandboxSpec().level
    if setting is not None and is_lowered(level, setting.value):
        text = f'cannot be lower than "{level}" here; lower it in the user\'s own file, ralph/config.toml'
        projects.faults.append(ConfigFault(setting.origin.text, SANDBOX, text))
    net, own = projects.settings.get(SANDBOX_NET), users_own.settings.get(SANDBOX_NET)
    if net is not None and net.value and own is not None and not own.value:
        text = "the user's own file sets it to false"
        projects.faults.append(ConfigFault(net.origin.text, SANDBOX_NET, text))


def _merged(given: list[Layer]) -> Configuration:
    """The layers over each other, later over earlier, over the defaults."""
    settings: dict[str, Setting] = {}
    webhooks: dict[str, tuple[specs.WebhookSpec, Origin]] = {}
    for layer in given:
        settings |= layer.settings
        for url, (entry, origin) in layer.webhooks.items():
            # One address in both files: the nearer one holds, but what it may not or does not set stays.
            lower = webhooks[url][0] if url in webhooks else entry
            signed = entry if any(getattr(entry, name) for name in SECRETS) else lower
            hook = replace(entry, **{name: getattr(signed, name) for name in SECRETS})
            webhooks[url] = (replace(hook, allow_private=entry.allow_private or lower.allow_private), origin)
    sections: dict[str, Any] = {name: spec(**_given(settings, name)) for name, spec in SECTIONS.items()}
    for section, table in NAMED.items():
        names = dict.fromkeys(
            name.split(".")[1] for name, one in settings.items() if one.key.section == table
        )
        named = {name: SPECS[table](**_given(settings, f"{section}.{name}")) for name in names}
        sections[section] = replace(sections[section], named=named)
    bare = Configuration(**sections, webhooks=tuple(hook for hook, _ in webhooks.values()))
    origins = {name: DEFAULT for name, _, key in bare.values() if key.section != WEBHOOKS}
    origins |= {name: one.origin for name, one in settings.items()}
    origins |= {dotted((WEBHOOKS, index)): origin for index, (_, origin) in enumerate(webhooks.values())}
    return replace(bare, origins=origins)


def _given(settings: Mapping[str, Setting], prefix: str) -> dict[str, Any]:
    return {one.key.name: one.value for name, one in settings.items() if name == f"{prefix}.{one.key.name}"}


def _named(configuration: Configuration, directory: Path | None) -> Configuration:
    given = configuration.project.name
    found = "" if given or directory is None else directory.resolve().name
    origins = {**configuration.origins, **({"project.name": DIRECTORYS_NAME} if found else {})}
    return replace(configuration, project=specs.ProjectSpec(name=fit_name(given or found)), origins=origins)


@dataclass(frozen=True, slots=True)
class Difference:
    """One key, with its values as in ``ralph.toml``; None for a key that is not set there.

    ``origin`` is that of the present value. It is shown in ``status``, so what may hold a secret (agents'
    variables, webhooks' addresses) is ``(not shown)``.
    """

    key: str
    pinned: str | None
    now: str | None
    origin: str

    def as_object(self) -> Mapping[str, str | None]:
        return asdict(self)


def differences(pinned: Configuration, current: Configuration) -> tuple[Difference, ...]:
    """Return the keys whose values differ, in the order of the sections.

    Of a webhook, an agent or an account that is new or gone, only those that are not empty.
    """
    before, after = ({name: value for name, value, _ in each.values()} for each in (pinned, current))
    return tuple(
        Difference(name, _shown(name, before), _shown(name, after), _origin(name, current))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
        and name != FIXED
        and (before.get(name) or after.get(name) or name in before.keys() & after.keys())
    )


def _shown(name: str, values: Mapping[str, object]) -> str | None:
    if name not in values:
        return None
    if name.endswith((".env", ".url")):
        return HIDDEN
    text = toml_value(values[name])
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def _origin(name: str, current: Configuration) -> str:
    """Return the origin of a key, or of the webhook that it is a key of."""
    return (current.origins.get(name) or current.origins.get(name.rpartition(".")[0], DEFAULT)).text

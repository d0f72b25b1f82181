"""The configuration of one ralph: every value, where it came from, and its pinned form.

Read once, when a ralph starts, from all layers together; from then on the pinned form is the truth, so that
a ``ralph.toml`` changed under a running ralph changes nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from ralphd.config import files
from ralphd.config.keys import AGENT, BUILT, SECTIONS, WEBHOOKS, ConfigKey, keys_of
from ralphd.config.layers import (
    DEFAULT,
    DIRECTORYS_NAME,
    ConfigFault,
    Layer,
    Origin,
    Setting,
    dotted,
    environment_layer,
    flags_layer,
    tree_layer,
)
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
from ralphd.config.values import fit_name, toml_value
from ralphd.core.delivery import Destination, Format
from ralphd.core.stall_detector import SilenceLimits
from ralphd.core.supervision.model import Mode, Policy, Restart
from ralphd.errors import ConfigFaults, NewerState

PINNED_VERSION = 1

Spec = TypeVar("Spec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Every value, by section. ``origins`` tells of each where it came from, defaults too."""

    project: ProjectSpec = field(default_factory=ProjectSpec)
    ralph: RalphSpec = field(default_factory=RalphSpec)
    regent: RegentSpec = field(default_factory=RegentSpec)
    agents: AgentsSpec = field(default_factory=AgentsSpec)
    retry: RetrySpec = field(default_factory=RetrySpec)
    phases: PhasesSpec = field(default_factory=PhasesSpec)
    git: GitSpec = field(default_factory=GitSpec)
    logs: LogsSpec = field(default_factory=LogsSpec)
    notify: NotifySpec = field(default_factory=NotifySpec)
    webhooks: tuple[WebhookSpec, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def policy(self) -> Policy:
        """The rules that the Regent's decisions follow."""
        return Policy(
            supervised=self.regent.enabled,
            restart=Restart(self.ralph.restart),
            mode=Mode(self.ralph.mode),
            max_iterations=self.ralph.max_iterations,
            max_cost_usd=self.ralph.max_cost_usd,
            max_runtime_s=self.ralph.max_runtime_seconds,
            iteration_pause_s=self.ralph.iteration_pause_seconds,
            max_retries=self.regent.max_retries,
            retry_backoff_s=self.regent.retry_backoff_seconds,
            retry_backoff_factor=self.regent.retry_backoff_factor,
            retry_backoff_max_s=self.regent.retry_backoff_max_seconds,
            healthy_after_s=self.regent.healthy_after_seconds,
            max_restarts_per_hour=self.regent.max_restarts_per_hour,
            stop_timeout_s=self.regent.stop_timeout_seconds,
            reset_margin_s=self.retry.reset_margin_seconds,
        )

    def limits(self) -> SilenceLimits:
        """How long a run may be silent, and what counts as evidence that it works (H1 to H6)."""
        return SilenceLimits(
            hang_timeout_s=self.regent.hang_timeout_seconds,
            startup_grace_s=self.regent.startup_grace_seconds,
            warn_after_s=self.agents.missed_heartbeats * self.agents.heartbeat_seconds,
            io_bytes=self.regent.evidence_io_bytes,
            cpu_percent=self.regent.evidence_cpu_percent,
            switches_per_s=self.regent.evidence_switches_per_s,
            max_run_s=self.regent.max_run_seconds,
        )

    def destinations(self) -> tuple[Destination, ...]:
        """The webhooks as the deliveries know them."""
        return tuple(
            Destination(
                url=hook.url,
                on=hook.on,
                format=Format(hook.format),
                allow_private=hook.allow_private,
                secret_file=hook.secret_file or None,
                secret_env=hook.secret_env or None,
            )
            for hook in self.webhooks
        )

    def tree(self) -> dict[str, Any]:
        """Every value in the shape of ``ralph.toml``, as JSON holds it."""
        tree = {section: asdict(getattr(self, section)) for section in SECTIONS}
        tree["agents"] |= tree["agents"].pop("named")
        return cast("dict[str, Any]", _as_json(tree | {WEBHOOKS: [asdict(hook) for hook in self.webhooks]}))

    def pinned(self) -> dict[str, Any]:
        """All of it as JSON, defaults too: a ralph keeps the values that it was started with."""
        origins = {key: origin.text for key, origin in self.origins.items() if origin != DEFAULT}
        return {"version": PINNED_VERSION, "values": self.tree(), "origins": origins}

    @classmethod
    def from_pinned(cls, pinned: Mapping[str, Any]) -> "Configuration":
        """What ``pinned`` gave, by this or an earlier version: unknown keys are passed over.

        A key that it does not have gets its default. Raises NewerState for a later version's form,
        ConfigFaults for what is no pinned configuration.
        """
        version, values, origins = pinned.get("version"), pinned.get("values"), pinned.get("origins")
        if isinstance(version, int) and version > PINNED_VERSION:
            raise NewerState(
                "the pinned configuration is of a newer ralphd", mend="install that version again"
            )
        if not isinstance(values, dict) or not isinstance(origins, dict):
            raise ConfigFaults("the pinned configuration is not one", why="it has no values or no origins")
        layer = tree_layer(values, lambda path: "pinned", users_own=True, resolve=str, lenient=True)
        if layer.faults:
            raise config_faults(layer.faults)
        given = {str(key): Origin(str(text)) for key, text in origins.items()}
        merged = _merged([layer])
        return replace(merged, origins={**dict.fromkeys(merged.origins, DEFAULT), **given})

    def not_built_yet(self) -> list[str]:
        """The keys that were set to something, and that this version does nothing about yet."""
        return [
            name for name, value, key in self.values() if key.dotted not in BUILT and value != key.default
        ]

    def values(self) -> list[tuple[str, Any, ConfigKey]]:
        """Each key as it is called, its value, and its entry in the list of keys."""
        found = [
            (key.dotted, getattr(getattr(self, section), key.name), key)
            for section in SECTIONS
            for key in keys_of(section).values()
        ]
        for name, agent in self.agents.named.items():
            found += [
                (f"agents.{name}.{key.name}", getattr(agent, key.name), key)
                for key in keys_of(AGENT).values()
            ]
        for index, hook in enumerate(self.webhooks):
            found += [
                (dotted((WEBHOOKS, index, key.name)), getattr(hook, key.name), key)
                for key in keys_of(WEBHOOKS).values()
            ]
        return found


def load(
    directory: Path | None,
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    home: Path | None = None,
) -> Configuration:
    """Flags over environment over ``ralph.toml`` over the user's file over defaults.

    ``directory`` is the ralph's working directory; without one there is no ``ralph.toml`` (the daemon's own
    part). ``flags`` maps flags or keys to values, ``home`` replaces ``$HOME``. Raises ConfigFaults with all
    that is wrong in any layer.
    """
    home = home or home_of(environ)
    layers = [files.layer(files.user_file(environ, home), directory, home, users_own=True)]
    if directory is not None and (found := files.project_file(directory, home)):
        layers.append(files.layer(found, directory, home, users_own=False))
    layers += [environment_layer(environ), flags_layer(flags or {})]
    if faults := [fault for layer in layers for fault in layer.faults]:
        raise config_faults(faults)
    return _named(_merged(layers), directory)


def sources(directory: Path, *, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files whose content ``load`` depends on, whether they are there or not."""
    home = home_of(environ)
    return (files.user_file(environ, home), *files.project_places(directory, home))


def config_faults(faults: list[ConfigFault]) -> ConfigFaults:
    """All faults as one error, a line each."""
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return ConfigFaults(f"{count} in the configuration", why="\n".join(str(fault) for fault in faults))


def home_of(environ: Mapping[str, str]) -> Path:
    """The person's home: ``$HOME``, else what the system knows; a place that is not there for neither."""
    given = Path(environ.get("HOME", ""))
    if given.is_absolute():
        return given
    try:
        return Path.home()
    except RuntimeError:  # a uid that nobody knows: it has no files of its own either
        return Path("/nonexistent")


def _merged(layers: list[Layer]) -> Configuration:
    """The layers over each other, later over earlier, over the defaults."""
    settings: dict[str, Setting] = {}
    webhooks: dict[str, tuple[WebhookSpec, Origin]] = {}
    for layer in layers:
        settings |= layer.settings
        for url, (hook, origin) in layer.webhooks.items():
            lower = webhooks[url][0] if url in webhooks else hook
            webhooks[url] = (_over(lower, hook), origin)
    return _built(settings, list(webhooks.values()))


def _over(lower: WebhookSpec, hook: WebhookSpec) -> WebhookSpec:
    """One address in both files: the nearer one holds, but what it may not or does not say stays."""
    signed = hook if hook.secret_file or hook.secret_env else lower
    return replace(
        hook,
        secret_file=signed.secret_file,
        secret_env=signed.secret_env,
        allow_private=hook.allow_private or lower.allow_private,
    )


def _built(settings: Mapping[str, Setting], webhooks: list[tuple[WebhookSpec, Origin]]) -> Configuration:
    sections: dict[str, Any] = {
        section: SECTIONS[section](**_given(settings, section)) for section in SECTIONS
    }
    names = dict.fromkeys(name.split(".")[1] for name, one in settings.items() if one.key.section == AGENT)
    named = {name: AgentSpec(**_given(settings, f"agents.{name}")) for name in names}
    sections["agents"] = replace(sections["agents"], named=named)
    bare = Configuration(**sections, webhooks=tuple(hook for hook, _ in webhooks))
    origins = {name: DEFAULT for name, _, key in bare.values() if key.section != WEBHOOKS}
    origins |= {name: one.origin for name, one in settings.items()}
    origins |= {dotted((WEBHOOKS, index)): origin for index, (_, origin) in enumerate(webhooks)}
    return replace(bare, origins=origins)


def _given(settings: Mapping[str, Setting], prefix: str) -> dict[str, Any]:
    return {one.key.name: one.value for name, one in settings.items() if name == f"{prefix}.{one.key.name}"}


def _named(configuration: Configuration, directory: Path | None) -> Configuration:
    """The name made fit, and the directory's where none was given."""
    given = configuration.project.name
    origins = dict(configuration.origins)
    if not given and directory is not None:
        origins["project.name"] = DIRECTORYS_NAME
    name = fit_name(given or (directory.resolve().name if directory is not None else ""))
    return replace(configuration, project=ProjectSpec(name=name), origins=origins)


def _as_json(value: Any) -> Any:
    match value:
        case dict():
            return {name: _as_json(part) for name, part in value.items()}
        case tuple() | list():
            return [_as_json(part) for part in value]
        case _:
            return value


# What a reload would change: the pinned configuration beside the one that the files give now.

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

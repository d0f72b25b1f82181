"""Read a TOML tree, the environment and flags into layers of settings. Faults are collected, not raised."""

import re
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from ralphd.config import keys
from ralphd.config.keys import AGENT, FLAGS, NAMED, SECTIONS, WEBHOOKS, BadValue, ConfigKey, keys_of
from ralphd.config.specs import WebhookSpec
from ralphd.config.values import did_you_mean, printable
from ralphd.core.delivery import CREDENTIAL
from ralphd.dataclass import dataclass

KeyPath: TypeAlias = tuple[str | int, ...]
Place: TypeAlias = Callable[[KeyPath], str]
Resolve: TypeAlias = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: ``ralph.toml:12``, ``environment RALPH_…``, ``flag --…``, ``default``."""

    text: str


_TRUTH = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
_SHELL_WORDS = ("command", "args")

DEFAULT = Origin("default")
DIRECTORYS_NAME = Origin("the directory's name")


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """One fault: where, of which key, and what would be right."""

    place: str
    key: str
    text: str

    def __str__(self) -> str:
        return printable(": ".join(part for part in (self.place, self.key, self.text) if part))


@dataclass(frozen=True, slots=True)
class Setting:
    key: ConfigKey
    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True)
class Layer:
    """The settings of one source; ``webhooks`` by address."""

    settings: dict[str, Setting] = field(default_factory=dict)
    webhooks: dict[str, tuple[WebhookSpec, Origin]] = field(default_factory=dict)
    faults: list[ConfigFault] = field(default_factory=list)

    def take(
        self, key: ConfigKey, dotted: str, value: object, place: str, *, users_own: bool = False
    ) -> None:
        """Read one value for ``key`` into the settings, or into the faults."""
        try:
            if key.dotted in keys.USER_FILE_ONLY and not users_own:
                raise BadValue("can only be set in the user's own file, ralph/config.toml")
            self.settings[dotted] = Setting(key, key.read(value), Origin(place))
        except BadValue as fault:
            self.faults.append(ConfigFault(place, dotted, str(fault)))


def tree_layer(
    tree: Mapping[str, Any], place: Place, *, users_own: bool, resolve: Resolve, lenient: bool = False
) -> Layer:
    """Read a TOML tree. ``resolve`` makes paths absolute; ``lenient`` skips unknown keys."""
    reader = _TreeReader(Layer(), place, users_own, resolve, lenient)
    for section, body in tree.items():
        reader.section(section, body)
    return reader.layer


@dataclass(frozen=True, slots=True)
class _TreeReader:
    layer: Layer
    place: Place
    users_own: bool
    resolve: Resolve
    lenient: bool

    def section(self, section: str, body: object) -> None:
        if section == WEBHOOKS:
            self.webhooks(body)
        elif section not in SECTIONS:
            self.unknown((section,), None if isinstance(body, dict) else keys_home(section))
        elif not isinstance(body, dict):
            self.fault((section,), f"has to be a section: write [{section}] on a line of its own")
        elif section in NAMED:
            self.named(section, body)
        else:
            self.table(section, (section,), body)

    def named(self, section: str, body: Mapping[str, Any]) -> None:
        known, one = keys_of(section), section.removesuffix("s")
        named = {name: each for name, each in body.items() if name not in known and isinstance(each, dict)}
        self.table(section, (section,), {name: body[name] for name in body if name not in named})
        for name, definition in named.items():
            if is_agent_name(name):
                self.table(NAMED[section], (section, name), definition)
            else:
                self.fault((section, name), f"an {one}'s name is of lower case letters, digits, '-' and '_'")

    def table(self, section: str, path: KeyPath, body: Mapping[str, Any]) -> None:
        known = keys_of(section)
        for name, value in body.items():
            if key := known.get(name):
                place = self.place((*path, name))
                if (section, name) == (AGENT, "patterns") and value and isinstance(value, str):
                    value = self.resolve(value)
                self.layer.take(key, dotted((*path, name)), value, place, users_own=self.users_own)
            else:
                self.unknown((*path, name), keys_home(name), tuple(known))

    def webhooks(self, body: object) -> None:
        if not isinstance(body, list) or not all(isinstance(entry, dict) for entry in body):
            self.fault((WEBHOOKS,), "has to be a list of tables: write [[webhooks]] above each")
            return
        for index, entry in enumerate(body):
            self.webhook((WEBHOOKS, index), entry)

    def webhook(self, path: KeyPath, entry: Mapping[str, Any]) -> None:
        scratch = _TreeReader(Layer(), self.place, self.users_own, self.resolve, self.lenient)
        scratch.table(WEBHOOKS, path, entry)
        self.layer.faults.extend(scratch.layer.faults)
        values = {setting.key.name: setting.value for setting in scratch.layer.settings.values()}
        if "url" not in entry:
            self.fault(path, "has no url")
        given = [name for name in keys.SECRETS if values.get(name)]
        if len(given) > 1:
            self.fault(path, f"has both {given[0]} and {given[1]}; keep one")
        if "url" not in values:
            return
        if values["url"] in self.layer.webhooks:
            self.fault((*path, "url"), "is there twice; put all its events in one `on`")
        if (named := values.get("secret_file")) and not named.startswith(CREDENTIAL):
            values["secret_file"] = self.resolve(named)
        self.layer.webhooks[values["url"]] = (WebhookSpec(**values), Origin(self.place(path)))

    def unknown(self, path: KeyPath, home: str | None, known: tuple[str, ...] | None = None) -> None:
        if self.lenient:
            return
        what = "unknown key" if known or home else "unknown section"
        near = did_you_mean(str(path[-1]), known or (*SECTIONS, WEBHOOKS))
        self.fault(path, what + (f", it belongs in [{home}]" if home else near))

    def fault(self, path: KeyPath, text: str) -> None:
        self.layer.faults.append(ConfigFault(self.place(path), dotted(path), text))


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """Read the variables ``RALPH_SECTION_KEY``. Any that is near no key is the command's own and ignored."""
    layer = Layer()
    sections = tuple(f"RALPH_{section.upper()}_" for section in SECTIONS)
    known = {variable_of(key): key for section in SECTIONS for key in keys_of(section).values()}
    for name in sorted(name for name in environ if name.startswith("RALPH_")):
        place = f"environment {name}"
        key = known.get(name)
        if match := (key, key.dotted) if key else _agents_key(name):
            key, path = match
            layer.take(key, path, from_text(key, environ[name]), place)
        elif name.startswith("RALPH_WEBHOOKS_"):
            layer.faults.append(ConfigFault(place, "", "webhooks are lists of tables; set them in a file"))
        elif name.startswith(sections) and (near := did_you_mean(name, list(known), cutoff=0.8)):
            layer.faults.append(ConfigFault(place, "", "unknown key" + near))
    return layer


def flags_layer(flags: Mapping[str, object]) -> Layer:
    """Read flags by their name (``max-iterations``) or key (``ralph.max_iterations``); None is not given."""
    layer = Layer()
    known = {key.dotted: key for section in SECTIONS for key in keys_of(section).values()}
    for name, value in flags.items():
        flag = name.lstrip("-").replace("_", "-")
        path = FLAGS.get(flag, name)
        place = f"flag --{flag}" if flag in FLAGS else f"request {name}"
        if value is None:
            continue
        if not (key := known.get(path)):
            layer.faults.append(ConfigFault(place, "", "unknown key" + did_you_mean(name, [*FLAGS, *known])))
            continue
        layer.take(key, key.dotted, from_text(key, value) if isinstance(value, str) else value, place)
    return layer


def from_text(key: ConfigKey, text: str) -> object:
    """Return a variable's or a flag's text as the type of its key; text that does not fit stays text."""
    kind = key.shape.get("type")
    try:
        match kind:
            case "boolean":
                return _TRUTH.get(text.strip().lower(), text)
            case "integer" | ["integer", "string"]:
                return int(text)
            case "number":
                return float(text)
            case "array" if not text.lstrip().startswith("["):
                if key.name in _SHELL_WORDS:
                    return shlex.split(text)
                return [part.strip() for part in text.split(",") if part.strip()]
            case "array" | "object":
                return tomllib.loads(f"value = {text.strip()}")["value"]
    except (ValueError, RecursionError):
        return text
    return text


def dotted(path: KeyPath) -> str:
    """Return ``regent.max_retries``, ``webhooks[0].url``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def keys_home(name: str) -> str | None:
    """Return the only section with a key of this name, or None."""
    homes = [section for section in SECTIONS if name in keys_of(section)]
    return homes[0] if len(homes) == 1 else None


def is_agent_name(name: str) -> bool:
    return re.fullmatch("[a-z0-9][a-z0-9_-]*", name) is not None


def variable_of(key: ConfigKey) -> str:
    """Return ``RALPH_REGENT_MAX_RETRIES``."""
    return f"RALPH_{key.dotted}".replace(".", "_").upper()


def _agents_key(name: str) -> tuple[ConfigKey, str] | None:
    """Return the key of ``RALPH_AGENTS_CLAUDE_MODEL`` and its full name; the agent's name stands between."""
    rest = name.removeprefix("RALPH_AGENTS_")
    for key in keys_of(AGENT).values():
        agent = rest.removesuffix(f"_{key.name.upper()}").lower()
        if rest != name and agent != rest.lower() and is_agent_name(agent):
            return key, f"agents.{agent}.{key.name}"
    return None

"""``docs/configuration.md``: every key, from the specs that the reader itself is made of."""

from collections.abc import Iterator

from ralphd.config.keys import (
    ACCOUNT,
    AGENT,
    FLAGS,
    SECTIONS,
    USER_FILE_ONLY,
    WEBHOOKS,
    ConfigKey,
    keys_of,
)
from ralphd.config.layers import variable_of
from ralphd.config.specs import A_YEAR_S
from ralphd.config.values import in_words, toml_value

INTRODUCTION = """\
# Configuration

Written by `make docs` from the specs in `ralphd/config/specs.py`; a test fails when it is stale. Do not
edit it.

The first of these that sets a key defines its value:

1. flags of `ralphctl start`, for keys that have one;
2. the environment: `RALPH_SECTION_KEY`, as it was when the ralph was registered;
3. `ralph.toml` in the working directory, else in a parent up to the root of the git repository or the home;
4. your own file, `$XDG_CONFIG_HOME/ralph/config.toml`, else `~/.config/ralph/config.toml`;
5. the default.

A file that another user could have written is not used. All errors are reported together, each with its file
and line. `ralphctl config show` prints the values that apply in a directory and where they come from, `config
check` lists the errors, `config schema` prints a JSON Schema for editors.

**A change takes effect when you request it.** The configuration is pinned when a ralph starts, so an agent
that writes `ralph.toml` changes nothing. `ralphctl status` shows the differences. `ralphctl reload NAME`
applies them from the next run on, and a living run keeps the rules it was started with; so does
`ralphctl start NAME` for a ralph that does not run. The name stays, and so do a command and flags that were
given to `ralphctl start`. `ralphctl regent reload`, or SIGHUP, makes the daemon read your own file again: its
webhooks and `logs.total_bytes` apply at once.

In the tables, *mine* marks keys that only your own file may set, since a repository must not decide them.
In the environment a list is `a,b` or a TOML list; a command is split as by a shell, but not run by one.
"""
SAYS = {
    "project": "The name of the ralph.",
    "ralph": "What runs, and for how long.",
    "regent": "How it is supervised.",
    "agents": "The agents of the built-in loop, and their time limits.",
    AGENT: "One agent: differences from its defaults. A new name defines an agent.",
    ACCOUNT: "One login of an agent, a member of the pool as `AGENT@NAME`: see [quota](quota.md).",
    "retry": "Waits after failures and limits.",
    "phases": "Attempts that plan, implement, review and address.",
    "git": "The repository: pushes, pulls, repairs.",
    "worktree": "The worktrees that `ralphctl start --worktree` makes.",
    "web": "The page for a phone: see [web](web.md).",
    "landing": "How branches of ralphs get onto the target: see [landing](landing.md).",
    "fleet": "What this machine does in a fleet of several: see [decision 0040](decisions/0040-fleet.md).",
    "sandbox": "What separates a run, and each agent of the built-in loop, from other processes.",
    "logs": "How much output is kept.",
    "limits": "Memory, processes and CPU of runs, and when a start waits.",
    WEBHOOKS: "Receivers of events. One table for each address.",
    "notify": "Alerts for people.",
}
ORDER = [
    *(
        "project",
        "ralph",
        "regent",
        "agents",
        AGENT,
        ACCOUNT,
        "retry",
        "phases",
        "git",
        "worktree",
        "landing",
        "fleet",
        "web",
    ),
    *("sandbox", "logs", "limits", WEBHOOKS, "notify"),
]
HEAD = "| key | type | default | purpose | also set by |\n| --- | --- | --- | --- | --- |"
FLAG_OF = {path: flag for flag, path in FLAGS.items()}


def configuration_page() -> str:
    """The text of ``docs/configuration.md``."""
    assert set(ORDER) == {*filter(keys_of, SECTIONS), AGENT, ACCOUNT, WEBHOOKS}
    return "\n".join([INTRODUCTION, *(_section(section) for section in ORDER)])


def _section(section: str) -> str:
    heading = f"[[{section}]]" if section == WEBHOOKS else f"[{section}]"
    rows = "\n".join(map(_row, keys_of(section).values()))
    blocks = [f"## `{heading}`", SAYS[section], f"{HEAD}\n{rows}"]
    return "\n\n".join(blocks) + "\n"


def _row(key: ConfigKey) -> str:
    marks = " *mine*" if key.dotted in USER_FILE_ONLY else ""
    default = "(needed)" if key.default is None else f"`{toml_value(key.default)}`"
    also = ", ".join(f"`{name}`" for name in _also(key)) or "-"
    return f"| `{key.name}`{marks} | {_is(key)} | {default} | {key.schema['description']} | {also} |"


def _is(key: ConfigKey) -> str:
    """What a value has to be; of seconds and bytes in their units."""
    schema = key.schema
    if schema.get("maximum") == A_YEAR_S:
        return "seconds, from 0 to a year"
    return in_words(schema).replace("|", "\\|")


def _also(key: ConfigKey) -> Iterator[str]:
    """The flag and the variable of a key, where there are."""
    if key.dotted in FLAG_OF:
        yield f"--{FLAG_OF[key.dotted]}"
    if key.section != WEBHOOKS and key.dotted not in USER_FILE_ONLY:
        yield variable_of(key)

"""``docs/configuration.md``: every key, from the specs that the reader itself is made of."""

from collections.abc import Iterator

from ralphd.config.keys import AGENT, FLAGS, NOT_BUILT, SECTIONS, USER_FILE_ONLY, WEBHOOKS, ConfigKey, keys_of
from ralphd.config.layers import variable_of
from ralphd.config.specs import A_YEAR_S, MIB
from ralphd.config.values import in_words, toml_value

INTRODUCTION = """\
# Configuration

Written by `make docs` from the specs in `ralphd/config/specs.py`; a test fails when it is stale. Do not
edit it.

A value is looked for in this order, and the first that is found holds:

1. flags of `ralphctl start`, where there is one;
2. the environment: `RALPH_SECTION_KEY`, as it was when the ralph was registered;
3. `ralph.toml` in the working directory, else upward to the root of the git repository, never above the home;
4. your own file, `$XDG_CONFIG_HOME/ralph/config.toml`, else `~/.config/ralph/config.toml`;
5. the default.

A file that somebody else could have written is not used. All faults are told together, each with its file
and line. `ralphctl config show` prints what holds in a directory and where it comes from, `config check` what
is wrong, `config schema` a JSON Schema for editors.

**A change takes effect when you say so.** All of it is pinned when a ralph starts, so that an agent that
writes `ralph.toml` changes nothing. `ralphctl status` shows what differs. `ralphctl reload NAME` takes it up
from the next run on, and a run that lives goes on by the rules it was started with; so does
`ralphctl start NAME` for a ralph that does not run. Its name stays, and so do a command and flags that were
given to `ralphctl start`. `ralphctl regent reload`, or SIGHUP, has the daemon read your own file again: its
webhooks and `logs.total_bytes` hold at once.

In the tables, *mine* marks what can only be set in your own file, since a repository must not decide it, and
○ a key that is understood and that this version does not act on (`start` says so when you set one). In the
environment a list is `a,b` or a TOML list; a command is split as a shell would, without being run by one.
"""
SAYS = {
    "project": "What the ralph is called.",
    "ralph": "What is run, and for how long.",
    "regent": "How it is supervised.",
    "agents": "Which agents the built-in loop asks, and for how long.",
    AGENT: "One agent: what differs from its own ways. A new name defines an agent.",
    "retry": "Waits after failures and limits.",
    "phases": "Attempts that plan, implement, review and address.",
    "git": "What is done with the repository.",
    "logs": "How much output is kept.",
    WEBHOOKS: "Who is told what. One table for each address.",
    "notify": "How people are called.",
}
ORDER = [
    *("project", "ralph", "regent", "agents", AGENT, "retry", "phases", "git", "logs", WEBHOOKS, "notify")
]
HEAD = "| key | is | default | for | also set by |\n| --- | --- | --- | --- | --- |"
FLAG_OF = {path: flag for flag, path in FLAGS.items()}


def configuration_page() -> str:
    """The text of ``docs/configuration.md``."""
    assert set(ORDER) == {*SECTIONS, AGENT, WEBHOOKS}
    return "\n".join([INTRODUCTION, *(_section(section) for section in ORDER)])


def _section(section: str) -> str:
    heading = f"[[{section}]]" if section == WEBHOOKS else f"[{section}]"
    rows = "\n".join(map(_row, keys_of(section).values()))
    blocks = [f"## `{heading}`", SAYS[section], f"{HEAD}\n{rows}"]
    return "\n\n".join(blocks) + "\n"


def _row(key: ConfigKey) -> str:
    marks = ("" if _is_built(key) else " ○") + (" *mine*" if key.dotted in USER_FILE_ONLY else "")
    default = "(needed)" if key.default is None else f"`{toml_value(key.default)}`"
    also = ", ".join(f"`{name}`" for name in _also(key)) or "-"
    return f"| `{key.name}`{marks} | {_is(key)} | {default} | {key.schema['description']} | {also} |"


def _is(key: ConfigKey) -> str:
    """What a value has to be; of seconds and bytes in their units."""
    schema = key.schema
    if schema.get("maximum") == A_YEAR_S:
        return "seconds, from 0 to a year"
    if schema.get("minimum") == MIB:
        return "bytes, from 1 MiB to 1 PiB"
    return in_words(schema).replace("|", "\\|")


def _is_built(key: ConfigKey) -> bool:
    return key.dotted not in NOT_BUILT


def _also(key: ConfigKey) -> Iterator[str]:
    """The flag and the variable of a key, where there are."""
    if key.dotted in FLAG_OF:
        yield f"--{FLAG_OF[key.dotted]}"
    if key.section != WEBHOOKS and key.dotted not in USER_FILE_ONLY:
        yield variable_of(key)

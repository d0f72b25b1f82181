"""doctor: look at all that ralphd depends on, and say what to do where something is not right."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from ralphctl.fast import here
from ralphctl.grammar import Command, Number, socket_given, wants_json
from ralphctl.tell import columns, has_colour, message

_LIMIT_S, _MOST_S = 8.0, 9.0
_WIDEST = 80


@click.command(cls=Command)
@click.option("--fix", is_flag=True, help="Put right what is safe to: modes, a left socket, .gitignore.")
@click.option(
    "--limit", "limit_s", metavar="S", type=Number(_MOST_S), default=_LIMIT_S,
    show_default=True, help="Wait S seconds at most; all is looked at at once.",
)  # fmt: skip
def doctor(fix: bool, limit_s: float) -> int:
    """Look at all that ralphd depends on, for this directory; exits with 1 when a check failed.

    Needs no daemon. Agents are asked for their version and their login by commands of their own; no key and
    no address is shown.
    """
    from pathlib import Path

    from ralphctl.local import orphans
    from ralphctl.local.doctor import examination, findings, repairs, rounds

    orphans.become_reaper()
    try:
        checks = examination.checks(Path(here()), os.environ, socket=socket_given(), limit_s=limit_s)
        found = rounds.carried_out(checks, limit_s=limit_s, waiting=lambda names: _tell(names, limit_s))
    finally:
        orphans.end_all(limit_s=1.0)  # what an agent has started to tell its version
    if fix:
        found = repairs.repaired(found)
    if wants_json():
        click.echo(findings.as_json(found))
    else:
        width = min(columns(sys.stdout) or _WIDEST, _WIDEST)
        click.echo(findings.page(found, columns=width, colour=has_colour(sys.stdout)))
    return findings.exit_code(found)


def _tell(names: Sequence[str], limit_s: float) -> None:
    """What is waited for, and how long, where somebody looks."""
    if sys.stderr.isatty():
        message(f"still looking at {', '.join(names)}; {limit_s:g} s at most")

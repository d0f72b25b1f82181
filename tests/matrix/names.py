"""The failpoints of the product, read from its code."""

import ast
from functools import cache
from pathlib import Path
from typing import get_args

from ralphd.core.gate import verdict
from ralphd.core.landing.model import Doing
from ralphd.store.gate import order_name

ROOT = Path(__file__).parents[2]
STEMS = ("loop.tasks", "loop.memory", "loop.checkpoint", "loop.phases")
"""The stems of the failpoints of ``store/codec.py``; the files of the last two are also removed."""


@cache
def failpoints() -> dict[str, str]:
    """Each name with the file that has it; ``*`` stands for what differs from call to call."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "ralphd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("reach", "diagnostics.reach"):
                for name in _names(node.args[0]):
                    found[name] = str(path.relative_to(ROOT))
    return dict(sorted(found.items()))


def _names(given: ast.expr) -> list[str]:
    if isinstance(given, ast.Constant):
        return [str(given.value)]
    assert isinstance(given, ast.JoinedStr), ast.unparse(given)
    parts = [str(part.value) if isinstance(part, ast.Constant) else "*" for part in given.values]
    name = "".join(parts)
    if name.startswith("*"):
        return [stem + name[1:] for stem in (STEMS if name.endswith("_saved") else STEMS[2:])]
    if name.startswith("gate."):
        return [name.replace("*", order) for order in orders()]
    if name.startswith("landing."):
        return [name.replace("*", doing.value) for doing in Doing]
    return [name]


def orders() -> list[str]:
    """The names of the orders of a gate run that are carried out."""
    return [order_name(each.__new__(each)) for each in get_args(verdict.GateOrder) if each is not verdict.Say]

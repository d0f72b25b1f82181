"""``docs/rules.md``: the rules that ``ralphctl explain`` names, from the table of their tests."""

import re
from pathlib import Path
from typing import Final

TABLE: Final = Path(__file__).with_name("requirements.md")
RULE: Final = re.compile(r"^\| ([A-Z]\d+) \| (.*?) \| [^|]* \|$", re.MULTILINE)
INTRODUCTION: Final = """# Rules

Written by `make docs` from `tests/requirements.md`, which lists the tests of each rule; a test fails
when it is stale. Do not edit it.

`ralphctl explain`, `explanation.json` and the code name these rules.

| rule | says |
| --- | --- |
"""


def rules_page() -> str:
    """The text of ``docs/rules.md``."""
    rules = RULE.findall(TABLE.read_text(encoding="utf-8"))
    return INTRODUCTION + "".join(f"| {mark} | {text} |\n" for mark, text in rules)

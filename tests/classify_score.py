"""The score of the classification on a corpus: ``python -m tests.classify_score [CORPUS] [--all]``.

A corpus has one JSON object a line: ``id`` (``iss-`` lines quoted from public threads, ``neg-`` output that
only speaks of failures, ``cap-`` captured from real runs), ``agent``, ``stream``, ``exit_code`` (null: nobody
knows, taken as failed), ``text``, ``category``. Ends with 1 below the bar.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ralphctl.offline.classify import FAILED, finding_of, plain_agent
from ralphd.agents.known import KNOWN

SAMPLES: Final = Path(__file__).parent / "agents" / "samples" / "corpus.jsonl"
_OUR_WORDS: Final = {"auth": "fatal", "crash": "agent_crash"}
_GROUPS: Final = ("iss", "neg", "cap")
BAR: Final = {"iss": 0.95, "neg": 1.0, "cap": 0.98}
"""The least share of right kinds in a group; of ``neg``, that are taken for no failure."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One line of a corpus and what it was taken for."""

    id: str
    agent: str
    wanted: str
    got: str
    rule: str
    text: str

    @property
    def right(self) -> bool:
        """Whether the kind is the one that the corpus has."""
        return self.wanted == self.got


def read(corpus: Path) -> list[dict[str, Any]]:
    """The lines of a corpus."""
    return [json.loads(line) for line in corpus.read_text("utf-8").splitlines() if line.strip()]


def judge(entry: dict[str, Any], now: float) -> Judged:
    """What one line of a corpus is taken for."""
    code = entry["exit_code"]
    finding = finding_of(
        entry["text"].split("\n") if entry["text"] else [],
        plain_agent(entry["agent"]),
        code=FAILED if code is None else code,
        stream=entry["stream"],
        now=now,
    )
    wanted = _OUR_WORDS.get(entry["category"], entry["category"])
    got = finding.kind.value if finding.kind else "ok"
    return Judged(entry["id"], entry["agent"], wanted, got, finding.rule, entry["text"])


def shares(judged: Iterable[Judged]) -> dict[str, tuple[int, int]]:
    """Right ones and all, of each group that there is."""
    right, every = Counter[str](), Counter[str]()
    for one in judged:
        every[one.id[:3]] += 1
        right[one.id[:3]] += one.right
    return {group: (right[group], every[group]) for group in _GROUPS if every[group]}


def passes(judged: Iterable[Judged]) -> bool:
    """Whether every group reaches its bar."""
    return all(right / every >= BAR[group] for group, (right, every) in shares(judged).items())


def _table(judged: list[Judged]) -> str:
    kinds = sorted({one.wanted for one in judged} | {one.got for one in judged})
    counts = Counter((one.wanted, one.got) for one in judged)
    width = max(map(len, kinds))
    head = " " * (width + 2) + "  ".join(f"{kind:>{len(kind)}}" for kind in kinds)
    rows = [
        f"{wanted:<{width}}  " + "  ".join(f"{counts[wanted, got] or '.':>{len(got)}}" for got in kinds)
        for wanted in kinds
    ]
    return "\n".join(["rows: what it is; columns: what it was taken for", head, *rows])


def _shares_line(name: str, judged: list[Judged]) -> str:
    parts = [
        f"{group} {right}/{every} ({right / every:.1%})" for group, (right, every) in shares(judged).items()
    ]
    return f"{name:<22} {'   '.join(parts)}"


def main(arguments: list[str]) -> int:
    """Print the score of a corpus; 0 where the bar is reached."""
    corpus = Path(arguments[0]) if arguments and arguments[0] else SAMPLES
    judged = [judge(entry, time.time()) for entry in read(corpus)]
    for one in judged:
        if not one.right:
            text = " ".join(one.text.split())[:150]
            print(f"wrong: {one.id} ({one.agent}): {one.got}, is {one.wanted}; {one.rule}\n       {text}")
    print(_table(judged))
    print(_shares_line("all agents", judged))
    print(_shares_line(", ".join(KNOWN), [one for one in judged if one.agent in KNOWN]))
    ok = passes(judged)
    print(
        "the bar is reached" if ok else f"below the bar: {', '.join(f'{g} {s:.0%}' for g, s in BAR.items())}"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

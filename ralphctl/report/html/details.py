"""What the iterations of a night left behind, besides the history: output, commits, and the last prompt."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Final

from ralphctl.report import diff, history, iteration, model, read
from ralphctl.report.diff import Patch
from ralphctl.report.history import moment
from ralphctl.report.iteration import IterationFacts
from ralphd.core.loop.inbox import Inbox
from ralphd.dataclass import dataclass
from ralphd.plain_files import open_plain

PART_BYTES: Final = 8000
"""How long one part of an iteration (prompt, output, diff, tests) may be in the file."""
_PROMPT: Final = "PROMPT-now.md"
_EARLY_S: Final = 60.0
"""A prompt is written before its attempt starts, by no more than this."""


@dataclass(frozen=True, slots=True)
class NightDetails:
    """What the iterations of one ralph left behind, newest first: facts, printed lines, commits, a prompt.

    ``prompt`` is that of the iteration at ``prompt_of``, the only one that is kept. ``by_sha`` has the
    commits by their first digits.
    """

    report: model.RalphReport
    inbox: Inbox
    iterations: Sequence[IterationFacts] = ()
    printed: Sequence[Sequence[str]] = ()
    prompt: Sequence[str] = ()
    prompt_of: int | None = None
    by_sha: Mapping[str, Patch] = field(default_factory=dict)

    def patch(self, sha: str) -> Patch | None:
        """Return a commit; None where git no longer has it."""
        return self.by_sha.get(sha[: history.SHORT])


def details(report: model.RalphReport, facts: Sequence[IterationFacts] | None = None) -> NightDetails:
    """Read the details of the iterations in the span of a report, or of these, newest first.

    What cannot be read is missing; git and the log have a time limit.
    """
    source, summary = report.source, report.summary
    facts = iteration.within(source, summary.since, summary.until) if facts is None else facts
    shas = {sha[: history.SHORT]: sha for each in facts for sha in each.commits}
    shas = {sha[: history.SHORT]: sha for sha in (*summary.kept, *summary.reverted)} | shas
    last = list(shas.values())[-read.MOST_COMMITS :]
    directory = Path(source.directory)
    patches = diff.patches(directory, last, most_chars=PART_BYTES, limit_s=read.GIT_LIMIT_S) if last else []
    prompt, written_at = _prompt(source)
    newest = next(iter(facts), None)
    ended_at = moment(newest.end.get("at")) if newest else None
    is_its = newest is not None and (newest.began_at or 0.0) - _EARLY_S <= written_at <= (ended_at or 0.0)
    by_sha = {patch.sha[: history.SHORT]: patch for patch in patches}
    printed = list(iteration.printed_by(source, facts))
    return NightDetails(report, read.inbox_of(source), facts, printed, prompt, 0 if is_its else None, by_sha)


def _prompt(source: model.ReportSource) -> tuple[list[str], float]:
    """Return the prompt of the last attempt, and when it was written."""
    if source.home is not None:
        with suppress(OSError), open_plain(source.home / _PROMPT) as file:
            text = file.read(2 * PART_BYTES).decode(errors="replace")
            return text.splitlines(), (source.home / _PROMPT).stat().st_mtime
    return [], 0.0

"""The gate in words: what ``status`` shows of it, verdicts as a table, and what an undo restored."""

from __future__ import annotations

from collections.abc import Sequence

from ralphctl.format.humanize import View, ago, clock, count, duration, moment, part
from ralphctl.format.output import PLAIN_COLUMNS, clean, wrapped_table
from ralphd.overview import has_a_run

_SHOWN_COMMITS = 3


def gate_rows(view: View, now: float) -> list[tuple[str, str]]:
    """Return the rows of ``status``: what the tests say of the tree, and what was reverted last."""
    if not (guard := part(view, "guard")):
        return []
    is_living = has_a_run(view) and view.get("state") not in ("starting", "testing")
    rows = [("tests", _baseline(guard, now, is_living=is_living))]
    if last := guard.get("reverted"):
        commits = commit_words(last.get("reverted")) + _of_iteration(last)
        rows.append(("reverted", f"{commits}, {ago(last.get('at'), now)}: {clean(last.get('why'))}"))
    if view.get("pause_reason") == "guard" and view.get("message"):
        rows.append(("look at", clean(view["message"])))
    return rows


def _baseline(guard: View, now: float, *, is_living: bool) -> str:
    at = moment(guard.get("since"))
    since = "" if at is None else f" since {clock(at, now)}"
    match guard.get("baseline"):
        case "green":
            if not is_living and (commit := guard.get("unjudged_since")):
                return f"green at {clean(commit)},{since}"
            return "green" + (" before this iteration," if is_living and since else "") + since
        case "red":
            return f"red{since}: commits are not judged"
        case _ if guard.get("testing_since"):
            return ""
        case _:
            return "" if is_living else "unknown; they run once before the next start"


def _of_iteration(of: View) -> str:
    return "" if of.get("iteration") is None else f" of iteration {of['iteration']}"


def commit_words(shas: object) -> str:
    """Return ``3fa9c1d`` or ``3fa9c1d, 1a2b3c4, 5d6e7f8 and 2 more``."""
    some = [clean(sha) for sha in shas] if isinstance(shas, list) else []
    more = f" and {len(some) - _SHOWN_COMMITS} more" if len(some) > _SHOWN_COMMITS else ""
    return ", ".join(some[:_SHOWN_COMMITS]) + more


SWITCH = '[regent]\nrollback_on_test_failure = true\ntest_command = "make test"'
BOUNDARY = "ralphctl notify iteration-finished --wait"
_OFF = "the guard is off"
_HEADS = ("WHEN", "ITER", "VERDICT", "COMMITS", "TESTS", "WHY")
_MOST = (16, 6, 9, 8, 16)
_LEAST_WHY = 16
_MOST_LAST = 160


def none_yet(view: View) -> list[str]:
    """Return why there are no verdicts, and what to do about it."""
    name = clean(view.get("name"))
    if guard := part(view, "guard"):
        if guard.get("boundaries") is False:
            why = "its command does not report the end of an iteration"
            add = f"  add this line to its loop, after each iteration: {BOUNDARY}"
            return [f"{name}: no commit was judged: {why}", add]
        return [f"{name}: no commit was judged yet: no finished iteration has made one"]
    notes = view.get("notes")
    off = [str(note) for note in notes if str(note).startswith(_OFF)] if isinstance(notes, list) else []
    if off:
        return [f"{name}: no commit was judged: {clean(off[0])}"]
    how = f"  to enable it, add these lines, with your test command, to ralph.toml; ralphctl reload {name}:"
    return [f"{name}: no commit was judged: {_OFF}", how, *(f"    {each}" for each in SWITCH.splitlines())]


def table(verdicts: Sequence[View], now: float, *, columns: int | None = None, colour: bool = False) -> str:
    """Return the verdicts, newest first, each with its reason wrapped next to it."""
    rows = [_HEADS, *(_cells(each, now) for each in verdicts)]
    *narrow, _ = zip(*rows, strict=True)
    widths = [min(max(map(len, column)), most) for column, most in zip(narrow, _MOST, strict=True)]
    room = (columns or PLAIN_COLUMNS) - sum(widths) - 2 * len(widths)
    return "\n".join(wrapped_table(rows, [*widths, max(room, _LEAST_WHY)], colour=colour))


def _cells(verdict: View, now: float) -> tuple[str, ...]:
    at = moment(verdict.get("at"))
    kind = clean(verdict.get("verdict") or "?")
    number = verdict.get("iteration")
    return (
        "?" if at is None else clock(at, now), "-" if number is None else clean(number),
        f"{kind}, restored" if verdict.get("undone") else kind,
        commit_words(verdict.get("reverted") or verdict.get("commits")) or "-",
        tests_words(verdict) or "-", _why(verdict),
    )  # fmt: skip


def _why(verdict: View) -> str:
    """Return the reason, and the last line that red tests printed."""
    why, tail = clean(verdict.get("why") or ""), verdict.get("tail")
    lines = [line for line in tail.splitlines() if line.strip()] if isinstance(tail, str) else []
    return f"{why}; last line: {clean(lines[-1].strip())[:_MOST_LAST]}" if lines else why


def repair_words(repair: View) -> list[str]:
    """Return what was repaired in the repository, where the state before is kept, and how to undo it."""
    kept = commit_words(repair.get("refs")) or clean(repair.get("left") or "")
    way_back = "undone by ralphctl undo" if repair.get("undone") else clean(repair.get("undo") or "")
    ways = (("kept", kept), ("compare" if way_back.startswith("diff ") else "undo", way_back))
    return [clean(repair.get("message")), *(f"{label}: {text}" for label, text in ways if text)]


def tests_words(verdict: View) -> str:
    """Return ``red, red, green; 13s``: the result of each run, and how long they took in all."""
    results, took = verdict.get("tests"), verdict.get("tests_s")
    if not isinstance(results, list) or not results:
        return ""
    runs = ", ".join(clean(result).replace("_", " ") for result in results)
    seconds = [each for each in took if isinstance(each, int | float)] if isinstance(took, list) else []
    return runs + (f"; {duration(sum(seconds))}" if seconds else "")


def undone_lines(undone: View) -> list[str]:
    """Return what ``undo`` restored."""
    commits, made = undone["commits"], undone["made"]
    if undone.get("repair") is not None:
        head = f"repair {undone['repair']} undone: HEAD is at {clean(undone.get('head') or '?')[:7]}"
        kept = f"  the repaired branch is kept under {clean(undone.get('ref'))}; nothing was pushed"
        return [f"{clean(undone['ralph']['name'])}: {head}", kept]
    what = count(len(commits), "commit") + _of_iteration(undone)
    head = f"restored {what}" if made else f"{what} had been restored already"
    lines = [f"{clean(undone['ralph']['name'])}: {head}"]
    lines += [f"  {clean(each['sha'])[:7]}  {clean(each['subject'])}".rstrip() for each in commits]
    if made:
        newest = clean(made[0]["sha"])[:7]
        by = f"commit {newest}" if len(made) == 1 else f"{len(made)} commits up to {newest}"
        lines.append(f"  by {by}; nothing was pushed")
    if unjudged := undone.get("unjudged"):
        shas = commit_words([str(each["sha"])[:7] for each in unjudged])
        lines.append(f"  {shas} had no verdict and will get none; the next tests cover all commits")
    return lines

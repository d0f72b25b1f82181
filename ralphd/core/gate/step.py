"""What becomes of an iteration's commits: kept, reverted, or left untested with the reason (R1 to R9).

``begin`` takes the facts of a boundary, ``step`` the result of each order. A run holds the order under way
and is saved before it is carried out; each can be carried out twice, so a daemon that dies leaves nothing
half done. Nothing outside the iteration's own range is reverted, and nothing where the range is in doubt.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ralphd.core.gate import verdict as gate
from ralphd.core.gate.verdict import Baseline, GatePolicy, GateRun, Result, Verdict, VerdictKind, short
from ralphd.core.gate.weakened import Weakened, weakened, weakened_text
from ralphd.core.text import first_names

MOST_RETAKES: Final = 3
_NO_ANSWER: Final = (Result.TIMED_OUT, Result.ENDED)


def begin(boundary: gate.Boundary, baseline: Baseline, **about: Any) -> GateRun:
    """Return the run for a boundary, with its first order; ``about`` are more fields of it."""
    return _opened(GateRun(boundary, baseline, boundary.now.head, gate.RunTests(), **about))


def _opened(run: GateRun) -> GateRun:
    if run.boundary.before == run.boundary.now:
        return _say(run, Verdict(VerdictKind.KEPT, "there is no new commit", run.baseline))
    return _in_the_way(run, run.boundary.trouble) if run.boundary.trouble else run


def retaken(run: GateRun, boundary: gate.Boundary, reverts: Mapping[str, str]) -> GateRun:
    """Judge again from the same start. ``reverts``: what this run's reverts reverted, by their shas."""
    present = reversed([commit.sha for commit in boundary.commits])
    reverted = tuple(reverts[sha] for sha in present if sha in reverts)
    again = replace(
        run, boundary=boundary, head=boundary.now.head, order=gate.RunTests(), runs=(), alone=None
    )
    retakes, check = run.retakes + 1, run.check.again()
    return _opened(replace(again, reverted=reverted, retakes=retakes, stale="", check=check))


def step(run: GateRun, event: gate.GateEvent, policy: GatePolicy) -> GateRun:
    """Answer the result of the order under way. A result of another order changes nothing."""
    match run.order, event:
        case gate.Say(), _:
            return run
        case gate.RunTests(), gate.Ran(result=result):
            return _tests_ended(run, result, policy)
        case gate.RunTests(), gate.Cut(why=why):
            # Everything stays as it was, without a pause: the next boundary judges the commits.
            verdict = Verdict(VerdictKind.UNTESTED, why, run.baseline, is_open=True)
            put_back = replace(run, order=gate.PutBack(), planned=verdict)
            return put_back if run.is_aside else _restore(run, verdict)
        case _, gate.Moved(why=why):
            # HEAD stays where it is; only the set-aside changes are brought back.
            if run.retakes == MOST_RETAKES or run.is_back:
                return _give_up(run, why)
            order = gate.PutBack() if run.is_aside else gate.RunTests()
            return replace(run, order=order, planned=None, stale=why)
        case gate.SetAside(), gate.CarriedOut():
            return replace(run, order=gate.RunTests(), runs=(), is_aside=True)
        case gate.ShowOld(), gate.Shown(changed=changed, gone=gone, hiding=hiding):
            check = replace(run.check, changed=changed, gone=gone, hiding=hiding, is_shown=bool(changed))
            if not changed:
                return _green(replace(run, check=check.done()), policy)
            return replace(run, order=gate.RunTests(), is_aside=True, check=check)
        case gate.ShowOld(), gate.Ran():  # no test file differs
            return _green(replace(run, check=run.check.done()), policy)
        case gate.ShowOld(), gate.Refused(why=why):
            check = replace(run.check, is_shown=True, unknown=why)  # some of them may be there
            return replace(run, order=gate.PutBack(), check=check)
        case gate.PutBack(), gate.CarriedOut(note=note):
            return _put_back(replace(run, note=note or run.note), policy)
        case gate.Revert() | gate.Restore(), gate.CarriedOut(head=head) if run.planned is None:
            reverted = tuple(commit.sha for commit in run.boundary.commits)
            if isinstance(run.order, gate.Revert):
                reverted = (*run.reverted, *run.order.commits)
                if head == run.head:  # they changed nothing: the tests of the same tree prove nothing
                    return _red(replace(run, reverted=reverted), policy)
            run = replace(run, runs=(), alone=None, confirmed=0, check=run.check.again())
            return replace(run, order=gate.RunTests(), reverted=reverted, head=head)
        case gate.Restore(), gate.CarriedOut(head=head):
            return _say(replace(run, reverted=(), head=head), run.planned)
        case gate.Push(), gate.CarriedOut():
            return _say(run, run.planned)
        case _, gate.Refused(why=why):
            return _refused(run, why)
        case _:
            return run


def _tests_ended(run: GateRun, result: Result, policy: GatePolicy) -> GateRun:
    """R3: red counts only if every run is red; one without an answer is repeated once, and proves nothing."""
    if run.check.is_shown:
        return _old_tests_ended(run, result, policy)
    run = replace(run, runs=(*run.runs, result))
    at_first = not run.reverted
    if result is Result.RED and at_first and (run.baseline is not Baseline.GREEN or _is_excused(run)):
        return _tree_is(run, Result.RED, policy)  # nothing can follow from it (R4)
    unanswered = any(each in _NO_ANSWER for each in run.runs)
    # A red result that was confirmed before HEAD moved needs no retry; that of another tree does.
    retries = 0 if run.retakes and run.confirmed > run.is_aside else policy.test_retries
    again = len(run.runs) <= max(retries, unanswered)
    if again and result in (Result.RED, *_NO_ANSWER):
        return replace(run, order=gate.RunTests())
    if result is Result.RED:
        result = next((each for each in run.runs if each in _NO_ANSWER), result)
    if result is Result.RED:
        run = replace(run, confirmed=2 if run.is_aside or run.confirmed == 2 else 1)
    if run.is_aside:
        return replace(run, order=gate.PutBack(), alone=result)
    if result is Result.RED and run.boundary.dirty and run.confirmed == 1:
        return replace(run, order=gate.SetAside())
    return _tree_is(run, result, policy)


def _old_tests_ended(run: GateRun, result: Result, policy: GatePolicy) -> GateRun:
    if (is_cut := result in _NO_ANSWER) and not run.check.unknown:
        check = replace(run.check, unknown="they did not end by themselves, twice")
        return replace(run, order=gate.RunTests(), check=check)
    unknown = run.check.unknown if is_cut else ""
    check = replace(run.check, tries=run.check.tries + 1, is_red=result is Result.RED, unknown=unknown)
    again = check.is_red and check.tries <= policy.test_retries
    return replace(run, order=gate.RunTests() if again else gate.PutBack(), check=check)


def _put_back(run: GateRun, policy: GatePolicy) -> GateRun:
    run = replace(run, is_aside=False)
    if run.stale and run.planned is None:
        return replace(run, order=gate.RunTests(), check=run.check.again())
    if run.check.is_shown:
        run = replace(run, check=run.check.done())
        if run.planned is None:
            return _green(run, policy)
    if run.planned is not None and run.planned.kind is VerdictKind.UNTESTED:
        return _restore(run, run.planned)  # the tests were cut, or something is in the way
    if run.planned is not None or run.alone is None:
        return _say(run, run.planned)
    if run.alone is Result.GREEN and not run.reverted:
        why = f"the tests pass without what is not committed: {first_names(run.boundary.dirty)}"
        return _say(run, Verdict(VerdictKind.UNTESTED, f"dirty: {why}", Baseline.GREEN))
    return _tree_is(run, run.alone, policy)


def _tree_is(run: GateRun, result: Result, policy: GatePolicy) -> GateRun:
    match result:
        case Result.GREEN:
            return _green(run, policy)
        case Result.RED:
            return _red(run, policy)
        case Result.TIMED_OUT:
            return _unknown(run, "the tests did not end in time, twice")
        case Result.ENDED:
            return _unknown(run, "the tests were ended by somebody else, twice: by hand, or for memory")
        case Result.CANNOT_RUN:
            return _unknown(run, "the tests cannot be run: test_command is not found or not executable")


def _green(run: GateRun, policy: GatePolicy) -> GateRun:
    check = run.check
    if policy.protect_tests != "off" and run.baseline is Baseline.GREEN and not check.is_done:
        return replace(run, order=gate.ShowOld(policy.protect, policy.test_command))
    kind, text = weakened(check), weakened_text(check)
    if kind and policy.protect_tests == "revert":
        return _red(replace(run, check=replace(check, blamed=text)), policy)
    if not run.reverted:
        why = "the tests pass" + (", at a second run" if len(run.runs) > 1 else "")
        why += f", but {text}" if text else ""
        verdict = Verdict(VerdictKind.KEPT, why, Baseline.GREEN, weakened=kind)
        return _say(replace(run, excused=""), verdict)
    count = len(run.reverted)
    why = f"the tests failed, and pass without {'it' if count == 1 else f'these {count} commits'}"
    if run.is_back and run.head:
        why += f"; a revert would remove what other branches have, so the branch is back at {run.head[:7]}"
    if check.blamed:
        why, kind = check.blamed, kind or Weakened.CHANGED
    verdict = Verdict(VerdictKind.REVERTED, why, Baseline.GREEN, weakened=kind)
    if any(commit.upstream for commit in run.boundary.commits if commit.sha in run.reverted):
        return replace(run, order=gate.Push(), planned=verdict)
    return _say(run, verdict)


def _red(run: GateRun, policy: GatePolicy) -> GateRun:
    fails = run.check.blamed or "the tests fail"
    goes_back = run.boundary.can_go_back and not run.is_back
    if not run.reverted:
        if run.baseline is not Baseline.GREEN:
            why = "the tests failed, and were not green before: nothing is blamed on these commits"
            return _say(run, Verdict(VerdictKind.UNTESTED, why, Baseline.RED))
        if (doubt := run.boundary.doubt) and not goes_back:
            return _say(run, _paused(f"{fails}, and nothing is reverted: {doubt}"))
        if _is_excused(run):
            return _say(run, _not_ours(run))
    if run.boundary.descends and (left := tuple(commit.sha for commit in run.left)):
        return replace(run, order=gate.Revert(left[:1] if policy.minimal else left))
    if goes_back:
        return replace(run, order=gate.Restore(run.boundary.before.head or ""))
    if run.theirs and not run.is_back:
        return _restore(replace(run, excused=run.theirs[0]), _not_ours(run))
    return _restore(run, _paused(f"{fails} without these commits too, which are not to blame: they are back"))


def _is_excused(run: GateRun) -> bool:
    """Whether it is known that the tests fail without the run's commits, and nobody else committed since."""
    return bool(run.excused) and run.theirs[:1] == (run.excused,)


def _not_ours(run: GateRun) -> Verdict:
    """Report a red commit that the run did not make; the range stays open until the tests pass again."""
    theirs = first_names(short(run.theirs))
    why = f"the tests fail without the commits of this run too; it did not make {theirs}: look there first"
    if any(commit.pulled for commit in run.boundary.commits):
        why = f"the tests fail with what came from elsewhere, and nothing of that is reverted: {theirs}"
    return Verdict(VerdictKind.UNTESTED, why, run.baseline, calls=True, is_open=True)


def _give_up(run: GateRun, why: str) -> GateRun:
    """Leave the range open: the next verdict covers it, with what was made meanwhile."""
    kind = VerdictKind.REVERTED if run.reverted else VerdictKind.UNTESTED
    times = f"the repository changed {run.retakes + 1} times during the tests"
    why = f"{times}; these commits are judged with the next iteration's: {why}"
    verdict = Verdict(kind, why, run.baseline, is_open=True)
    return replace(run, order=gate.PutBack(), planned=verdict) if run.is_aside else _say(run, verdict)


def _unknown(run: GateRun, why: str) -> GateRun:
    """The tests say nothing: revert nothing, call a person."""
    return _restore(run, Verdict(VerdictKind.UNTESTED, why, run.baseline, calls=True))


def _restore(run: GateRun, verdict: Verdict) -> GateRun:
    head = run.boundary.now.head
    if not run.reverted or head is None:
        return _say(run, verdict)
    return replace(run, order=gate.Restore(head), planned=verdict)


def _refused(run: GateRun, why: str) -> GateRun:
    match run.order:
        case gate.Push():
            assert run.planned is not None
            return _say(run, replace(run.planned, why=f"{run.planned.why}; {why}", calls=True))
        case gate.Revert() | gate.Restore() if run.planned is None:
            return _restore(run, _paused(f"the tests fail, and it cannot be reverted: {why}"))
        case gate.Restore():
            return _say(run, _paused(f"the reverts are still there, and cannot be taken back: {why}"))
        case gate.SetAside():
            said = f"the tests fail, and could not be tried without what is not committed: {why}"
            return _say(run, _paused(said))
        case _:
            return _in_the_way(replace(run, is_aside=False), why)


def _in_the_way(run: GateRun, why: str) -> GateRun:
    """Pause; the range is judged once the obstacle is gone, against the same baseline."""
    verdict = replace(_paused(why), baseline=run.baseline, is_open=True)
    return replace(run, order=gate.PutBack(), planned=verdict) if run.is_aside else _say(run, verdict)


def _paused(why: str) -> Verdict:
    return Verdict(VerdictKind.UNTESTED, why, Baseline.UNKNOWN, pauses=True)


def _say(run: GateRun, verdict: Verdict | None) -> GateRun:
    assert verdict is not None
    why = f"{verdict.why}; {run.note}" if run.note else verdict.why
    return replace(run, order=gate.Say(replace(verdict, why=why)), planned=None)

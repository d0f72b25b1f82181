"""The prompts of the phases: what each asks of the agent, after the user's own prompt and the task (L14)."""

from ralphd.core.phases import Phase, Phases
from ralphd.core.review import ReviewFinding, shown
from ralphd.core.triage import NOTHING


def phase_prompt(prompt: str, phases: Phases) -> str:
    """The prompt of the present phase; ``prompt`` is the one of an attempt without phases."""
    match phases.phase:
        case Phase.PLAN:
            section = _plan()
        case Phase.TRIAGE:
            section = _triage(phases)
        case Phase.ADDRESS:
            section = _address(phases)
        case _:
            section = _implement(phases)
    return f"{prompt.rstrip()}\n\n{section}\n" if section else prompt


def findings_text(findings: tuple[ReviewFinding, ...]) -> str:
    """Findings as a list for an agent."""
    first = shown(findings)
    more = [f"(and {len(findings) - len(first)} more, for later)"] if len(first) < len(findings) else []
    return "\n".join([*(each.whole for each in first), *more])


def _plan() -> str:
    return "\n".join(
        (
            "## This phase: plan",
            "",
            "Only plan now: read what you need, change no file, commit nothing, mark nothing as done.",
            "End with the plan: what is to be changed, where, and how it will be tested. It is given to the",
            "agent that does the work.",
        )
    )


def _implement(phases: Phases) -> str:
    if not phases.plan.strip():
        return ""
    return f"## This phase: implement\n\nThis is the plan that was made for it:\n\n{phases.plan.strip()}"


def _address(phases: Phases) -> str:
    return "\n".join(
        (
            "## This phase: address the findings of a review",
            "",
            "The work on the task is done and was reviewed. Address these findings, and nothing else:",
            "",
            findings_text(phases.findings),
        )
    )


def _triage(phases: Phases) -> str:
    return "\n".join(
        (
            "## This phase: triage",
            "",
            "A review of the work on the task has these findings, after they were addressed:",
            "",
            findings_text(phases.findings),
            "",
            "Is there anything to address? Change no file. End your answer with a JSON object that lists the",
            "ids of the findings that need no work, and says why:",
            '{"dismiss": ["id", …], "why": "…"}. All others are addressed next. If each of them needs',
            "work, the list is empty. If none of them does, you may answer",
            f"{NOTHING} instead, on a line of its own.",
        )
    )

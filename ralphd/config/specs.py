"""The sections of ``ralph.toml`` as frozen specs: every key, its type, range, default, and what it is for.

The one list of keys: the reader, the schema and the faults are written from it.
Durations are seconds unless the name says otherwise; 0 stands for "no limit" where the text says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from ralphd.config.values import an_address, event_patterns, storable, variables

A_YEAR_S = 365 * 24 * 3600
MIB = 1 << 20


def says(text: str) -> Any:
    """What a key is for, as editors and references show it."""
    return Field(description=text)


Seconds: TypeAlias = Annotated[float, Field(ge=0, le=A_YEAR_S, allow_inf_nan=False)]
Minutes: TypeAlias = Annotated[float, Field(ge=0, le=A_YEAR_S / 60, allow_inf_nan=False)]
WholeSeconds: TypeAlias = Annotated[int, Field(ge=0, le=A_YEAR_S)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
Bytes: TypeAlias = Annotated[int, Field(ge=MIB, le=1 << 50)]
Dollars: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Factor: TypeAlias = Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Percent: TypeAlias = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Text: TypeAlias = Annotated[str, AfterValidator(storable)]
FilledText: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(storable)]
Texts: TypeAlias = Annotated[tuple[Text, ...], Field(strict=False)]
FilledTexts: TypeAlias = Annotated[tuple[FilledText, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSpec:
    """``[project]``"""

    name: Annotated[
        Text,
        says("The ralph's name, made fit: lower case, digits, '.', '_', '-'. Empty: the directory's name."),
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RalphSpec:
    """``[ralph]``"""

    command: Annotated[Texts, says("The command and its arguments. Empty: the built-in loop.")] = ()
    mode: Annotated[
        Literal["loop", "iteration"], says("Whether a run loops by itself, or each run is one iteration.")
    ] = "loop"
    prompt_file: Annotated[FilledText, says("The prompt of the built-in loop.")] = "PROMPT.md"
    tasks: Annotated[
        FilledText, says("The file that lists the tasks, or 'auto': the first that is found.")
    ] = "auto"
    restart: Annotated[
        Literal["on-failure", "always", "never"], says("When a run that has ended is followed by another.")
    ] = "on-failure"
    max_iterations: Annotated[Count, says("End after so many iterations; 0 for no limit.")] = 0
    max_cost_usd: Annotated[Dollars, says("End when the agents have cost so much; 0 for no limit.")] = 0.0
    max_runtime_seconds: Annotated[
        Seconds,
        says(
            "End after so long; 0 for no limit. A command that reports no iteration goes on: see"
            " max_run_seconds."
        ),
    ] = 0.0
    iteration_pause_seconds: Annotated[Seconds, says("The pause between two runs in iteration mode.")] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegentSpec:
    """``[regent]``"""

    enabled: Annotated[
        bool, says("Supervise. Off: the run is started, logged and stopped, nothing else.")
    ] = True
    rollback_on_test_failure: Annotated[bool, says("Revert commits that break the tests.")] = False
    test_command: Annotated[Text, says("The tests, for /bin/sh -c.")] = ""
    max_retries: Annotated[
        Count, says("Failures in a row, counting the first, before a person is called; 0 never restarts.")
    ] = 3
    retry_backoff_seconds: Annotated[Seconds, says("The wait after a crash.")] = 30.0
    hang_timeout_seconds: Annotated[
        Seconds, says("Silence without any evidence of life that is a hang; 0 switches the watch off.")
    ] = 300.0
    retry_backoff_factor: Annotated[Factor, says("The wait grows by this with every crash in a row.")] = 1.0
    retry_backoff_max_seconds: Annotated[Seconds, says("The wait grows no further than this.")] = 600.0
    healthy_after_seconds: Annotated[
        Seconds, says("A run with a sign of life so long after its start clears the count of failures.")
    ] = 600.0
    max_restarts_per_hour: Annotated[Count, says("Restarts after crashes in any hour, at most.")] = 10
    startup_grace_seconds: Annotated[Seconds, says("More time before the first output.")] = 120.0
    max_run_seconds: Annotated[Seconds, says("End a run after so long; 0 for no limit.")] = 0.0
    stop_timeout_seconds: Annotated[Seconds, says("From the polite request to end, to the kill.")] = 30.0
    stop_deadline_seconds: Annotated[Seconds, says("How long a daemon that ends waits for its runs.")] = 60.0
    test_timeout_seconds: Annotated[Seconds, says("How long the tests may take.")] = 600.0
    test_retries: Annotated[Count, says("How often red tests are run again before they are believed.")] = 1
    rollback_scope: Annotated[
        Literal["minimal", "iteration"], says("Revert until the tests pass, or the whole iteration.")
    ] = "minimal"
    evidence_io_bytes: Annotated[Count, says("Bytes moved in 30 s that are strong evidence of life.")] = 4096
    evidence_cpu_percent: Annotated[Percent, says("Share of one core that is weak evidence of life.")] = 2.0
    evidence_switches_per_s: Annotated[Count, says("Context switches that are weak evidence of life.")] = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """``[agents.NAME]``: what differs from the agent's own ways; a new name defines an agent."""

    command: Annotated[FilledTexts, says("How the agent is started.")] = ()
    args: Annotated[Texts, says("Arguments added to it.")] = ()
    model: Annotated[Text, says("The model to ask for.")] = ""
    env: Annotated[
        dict[str, Text], AfterValidator(variables), says("Variables of the agent's environment.")
    ] = field(default_factory=dict)
    prompt_via: Annotated[
        Literal["auto", "stdin", "argument", "file"], says("How the prompt reaches the agent.")
    ] = "auto"
    patterns: Annotated[Text, says("A file with patterns of this agent's failures.")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsSpec:
    """``[agents]``, and ``[agents.NAME]`` under ``named``."""

    primary: Annotated[FilledText, says("The agent that is asked first.")] = "claude"
    fallback: Annotated[FilledTexts, says("The agents that are asked next, in this order.")] = ()
    strategy: Annotated[
        Literal["fallback", "rotate"], says("The next agent on failure, or with every iteration.")
    ] = "fallback"
    retries_before_fallback: Annotated[Count, says("Tries of the same agent before the next one.")] = 2
    max_task_failures: Annotated[Count, says("Failures after which a task is left alone.")] = 5
    timeout_seconds: Annotated[Seconds, says("How long an agent's process may take.")] = 600.0
    iteration_timeout_seconds: Annotated[Seconds, says("How long an attempt with its phases may take.")] = (
        900.0
    )
    heartbeat_seconds: Annotated[Seconds, says("How often a sign of life is expected.")] = 30.0
    missed_heartbeats: Annotated[Count, says("Missed signs of life before a warning.")] = 3
    crash_pattern_grace_seconds: Annotated[
        Seconds, says("From a crash pattern without a sign of life to the kill; 0 kills at once.")
    ] = 5.0
    exit_grace_seconds: Annotated[Seconds, says("From the agent's result to its exit.")] = 10.0
    on_exhausted: Annotated[
        Literal["auto", "wait", "pause"], says("What to do when no agent is left before a limit resets.")
    ] = "auto"
    named: Mapping[str, AgentSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySpec:
    """``[retry]``"""

    same_agent_base_seconds: Annotated[Seconds, says("The first wait before the same agent again.")] = 2.0
    transient_retries: Annotated[Count, says("Retries after a transient failure.")] = 3
    base_seconds: Annotated[Seconds, says("The first wait after a transient failure; it doubles.")] = 1.0
    max_seconds: Annotated[Seconds, says("The longest such wait.")] = 60.0
    jitter: Annotated[Share, says("The share of a wait that is left to chance.")] = 0.1
    rate_limit_seconds: Annotated[Seconds, says("The wait after a rate limit that names none.")] = 60.0
    max_rate_limit_wait_seconds: Annotated[
        Seconds, says("Waits for rate limits, in all, before they count as a usage limit.")
    ] = 3600.0
    reset_margin_seconds: Annotated[Seconds, says("Added to the moment at which a limit resets.")] = 60.0
    outage_max_wait_seconds: Annotated[Seconds, says("The longest wait in an outage.")] = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesSpec:
    """``[phases]``"""

    enabled: Annotated[bool, says("Attempts go through plan, implement, review, address.")] = False
    phase_retry_count: Annotated[Count, says("Retries of plan and implement.")] = 0
    phase_3_retry_count: Annotated[Count, says("Retries of address and triage; at most 2 take effect.")] = 0
    review_command: Annotated[Text, says("The review, for /bin/sh -c.")] = ""
    max_address_rounds: Annotated[Count, says("How often findings are addressed.")] = 5
    on_findings_remaining: Annotated[
        Literal["fail", "warn"], says("What findings mean that are left after the last round.")
    ] = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSpec:
    """``[git]``"""

    auto_pull_rebase: Annotated[bool, says("Pull with rebase before an iteration.")] = False
    auto_push: Annotated[bool, says("Push what is kept.")] = False
    repair: Annotated[Literal["tell", "abort"], says("What to do about a repository that is in the way.")] = (
        "tell"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsSpec:
    """``[logs]``, in the user's own file only."""

    run_bytes: Annotated[Bytes, says("How much output of one run is kept.")] = 64 * MIB
    total_bytes: Annotated[Bytes, says("How much output is kept in all, over every ralph's runs.")] = (
        2048 * MIB
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSpec:
    """``[[webhooks]]``: one address that is told. The secret is named here, never held."""

    url: Annotated[FilledText, AfterValidator(an_address), says("Where to send to, http or https.")]
    secret_file: Annotated[Text, says("A file that holds the signing secret; relative to this file.")] = ""
    secret_env: Annotated[Text, says("A variable of the daemon's environment that holds it.")] = ""
    on: Annotated[
        FilledTexts, AfterValidator(event_patterns), says("The events to send; '*' stands for any letters.")
    ] = ("ralph.escalated",)
    format: Annotated[
        Literal["json", "slack", "ntfy"],
        says("What is sent: the event as JSON, or words as Slack or an ntfy topic takes them."),
    ] = "json"
    allow_private: Annotated[
        bool, says("Send to private and loopback addresses too. In the user's own file only.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySpec:
    """``[notify]``"""

    reminder_minutes: Annotated[
        Minutes, says("Tell again so often that a person is needed, until they acknowledge it; 0 for never.")
    ] = 0.0
    allow_private: Annotated[
        bool,
        says(
            "Let `ralphctl webhooks add --allow-private` add private addresses. In the user's own file only."
        ),
    ] = False

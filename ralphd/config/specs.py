"""The sections of ``ralph.toml`` as frozen specs: every key, its type, range, default and purpose.

The only list of keys: the reader, the schema, the faults and docs/configuration.md follow it. The text below
a key is its purpose, for editors and the reference. Durations are seconds unless the name has another unit; 0
stands for "no limit" where the text says so.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field

from ralphd.config import values
from ralphd.core.limits import size_in_bytes
from ralphd.dataclass import dataclass

A_YEAR_S = 365 * 24 * 3600
MIB = 1 << 20

Seconds: TypeAlias = Annotated[float, Field(ge=0, le=A_YEAR_S, allow_inf_nan=False)]
Minutes: TypeAlias = Annotated[float, Field(ge=0, le=A_YEAR_S / 60, allow_inf_nan=False)]
Count: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
_SIZE = Field(le=1 << 50, json_schema_extra={"type": ["integer", "string"]})
Bytes: TypeAlias = Annotated[int, _SIZE, Field(ge=MIB), BeforeValidator(size_in_bytes)]
MostBytes: TypeAlias = Annotated[int, _SIZE, Field(ge=0), BeforeValidator(size_in_bytes)]
Priority: TypeAlias = Annotated[int, Field(ge=-1000, le=1000)]
Weight: TypeAlias = Annotated[int, Field(ge=0, le=10_000)]
Dollars: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Factor: TypeAlias = Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)]
Share: TypeAlias = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Percent: TypeAlias = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Text: TypeAlias = Annotated[str, AfterValidator(values.storable)]
FilledText: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(values.storable)]
RunsMay: TypeAlias = Annotated[
    tuple[Literal["stop-self", "pause-self", "start", "all"], ...], Field(strict=False)
]
Texts: TypeAlias = Annotated[tuple[Text, ...], Field(strict=False)]
FilledTexts: TypeAlias = Annotated[tuple[FilledText, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectSpec:
    """``[project]``"""

    name: Text = ""
    """The ralph's name, made fit: lower case, digits, '.', '_', '-'. Empty: the directory's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RalphSpec:
    """``[ralph]``"""

    command: Texts = ()
    """The command and its arguments. Empty: the built-in loop."""
    mode: Literal["loop", "iteration"] = "loop"
    """Whether a run loops by itself, or each run is one iteration."""
    prompt_file: FilledText = "PROMPT.md"
    """The prompt of the built-in loop."""
    tasks: FilledText = "auto"
    """The file that lists the tasks, or 'auto': the first one found."""
    restart: Literal["on-failure", "always", "never"] = "on-failure"
    """When a new run follows one that has ended."""
    max_iterations: Count = 0
    """End after this number of iterations; 0 for no limit."""
    max_cost_usd: Dollars = 0.0
    """End when the agents have cost this much; 0 for no limit."""
    max_runtime_seconds: Seconds = 0.0
    """End after this time; 0 for no limit. A command that reports no iterations is not ended: see
    max_run_seconds."""
    trust_output: bool = False
    """Count costs seen in the output of a command toward max_cost_usd; it may print anything."""
    iteration_pause_seconds: Seconds = 1.0
    """The pause between two runs in iteration mode."""
    priority: Priority = 0
    """Of the ralphs that wait for a place, those with a larger number start first."""
    schedule: Annotated[Text, AfterValidator(values.a_schedule)] = ""
    """The times of day at which it works, in local time, as "23:00-07:00", several with commas. Empty:
    always. Outside of them a run ends after its iteration, and the next one waits."""
    setup: Text = ""
    """What makes a new worktree ready to work, for /bin/sh -c; its time limit is that of the tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegentSpec:
    """``[regent]``"""

    enabled: bool = True
    """Supervise. If off, ralphd only starts, logs and stops runs."""
    rollback_on_test_failure: bool = False
    """Revert commits that break the tests."""
    test_command: Text = ""
    """The tests, for /bin/sh -c."""
    max_retries: Count = 3
    """Failures in a row before ralphd gives up and alerts you, counting the first; 0 never restarts."""
    retry_backoff_seconds: Seconds = 30.0
    """The wait after a crash."""
    hang_timeout_seconds: Seconds = 300.0
    """Silence without evidence of life that counts as a hang; 0 disables stall detection."""
    retry_backoff_factor: Factor = 1.0
    """The wait is multiplied by this after each further crash in a row."""
    retry_backoff_max_seconds: Seconds = 600.0
    """The longest such wait."""
    healthy_after_seconds: Seconds = 600.0
    """A run that shows a sign of life after this time resets the failure count."""
    max_restarts_per_hour: Count = 10
    """The most restarts after crashes in any hour; 0 for no limit."""
    startup_grace_seconds: Seconds = 120.0
    """Additional time before the first output."""
    max_run_seconds: Seconds = 0.0
    """End a run after this time; 0 for no limit."""
    stop_timeout_seconds: Seconds = 30.0
    """The time from SIGTERM to SIGKILL."""
    stop_deadline_seconds: Seconds = 60.0
    """How long the daemon waits for its runs when it shuts down."""
    test_timeout_seconds: Seconds = 600.0
    """The time limit of the tests; 0 for none."""
    test_retries: Count = 1
    """How often failed tests run again before they count as failed."""
    rollback_scope: Literal["minimal", "iteration"] = "minimal"
    """Revert until the tests pass, or revert the whole iteration."""
    protect_tests: Literal["report", "revert", "off"] = "report"
    """If an iteration weakened the tests: report it, or revert its commits as if the tests had failed."""
    protect: FilledTexts = ()
    """Patterns of the test files that protect_tests covers. Empty: the usual names in each language."""
    evidence_io_bytes: Count = 4096
    """Bytes transferred in 30 s that are strong evidence of life."""
    evidence_cpu_percent: Percent = 2.0
    """Share of one core that is weak evidence of life."""
    evidence_switches_per_s: Count = 10
    """Context switches that are weak evidence of life."""
    runs_may: RunsMay = ()
    """What processes of a run may request of the daemon besides reading and reports of their own run. In the
    user's own file only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """``[agents.NAME]``: what differs from the agent's description; a new name defines an agent."""

    command: FilledTexts = ()
    """The command that starts the agent."""
    args: Texts = ()
    """Additional arguments."""
    model: Text = ""
    """The model."""
    env: Annotated[dict[str, Text], AfterValidator(values.variables)] = field(default_factory=dict)
    """Variables of the agent's environment."""
    prompt_via: Literal["auto", "stdin", "argument", "file"] = "auto"
    """How the agent gets the prompt."""
    patterns: Text = ""
    """A file with failure patterns for this agent, relative to this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsSpec:
    """``[agents]``, and ``[agents.NAME]`` under ``named``."""

    primary: FilledText = "claude"
    """The agent that is used first."""
    fallback: FilledTexts = ()
    """The agents that are used next, in this order."""
    strategy: Literal["fallback", "rotate"] = "fallback"
    """Change the agent after a failure, or with each iteration."""
    retries_before_fallback: Count = 2
    """Tries of the same agent before the next one."""
    max_task_failures: Count = 5
    """A task with more failures is skipped; 0: no limit."""
    timeout_seconds: Seconds = 600.0
    """The time limit of an agent's process; 0 for that of an iteration."""
    iteration_timeout_seconds: Seconds = 900.0
    """The time limit of an attempt with all its phases; 0 for none."""
    heartbeat_seconds: Seconds = 30.0
    """The interval in which a sign of life is expected."""
    missed_heartbeats: Count = 3
    """Missed signs of life before a warning."""
    crash_pattern_grace_seconds: Seconds = 5.0
    """The time from a crash pattern without a sign of life to the kill; 0 kills at once."""
    transient_pattern_grace_seconds: Seconds = 60.0
    """The time from ECONNRESET or ETIMEDOUT on stderr without strong evidence to the kill; 0: none."""
    exit_grace_seconds: Seconds = 10.0
    """The time from the agent's result to its exit."""
    on_exhausted: Literal["auto", "wait", "pause"] = "auto"
    """What to do if no agent is available until a limit resets."""
    named: Mapping[str, AgentSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSpec:
    """``[accounts.NAME]``: a login of an agent, a member of the pool as ``AGENT@NAME``."""

    agent: FilledText = "claude"
    """The agent whose login it is."""
    env: Annotated[dict[str, Text], AfterValidator(values.variables)] = field(default_factory=dict)
    """Variables that select the login, such as CLAUDE_CONFIG_DIR; `~/` is your home."""
    keep_free: Share = 0.0
    """The share of each window that is left for you: no attempt starts when less is free."""
    slots: Count = 0
    """The most attempts at once, of all ralphs; 0 for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsSpec:
    """``[accounts.NAME]`` under ``named``, in the user's own file only."""

    named: Mapping[str, AccountSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySpec:
    """``[retry]``"""

    same_agent_base_seconds: Seconds = 2.0
    """The first wait before the same agent again."""
    transient_retries: Count = 3
    """Retries after a transient failure."""
    base_seconds: Seconds = 1.0
    """The first wait after a transient failure; it doubles."""
    max_seconds: Seconds = 60.0
    """The longest such wait."""
    jitter: Share = 0.1
    """The random share of a wait."""
    rate_limit_seconds: Seconds = 60.0
    """The wait after a rate limit without a reset time."""
    max_rate_limit_wait_seconds: Seconds = 3600.0
    """Total waits for rate limits before they count as a usage limit."""
    reset_margin_seconds: Seconds = 60.0
    """Added to the reset time of a limit."""
    outage_max_wait_seconds: Seconds = 900.0
    """The longest wait in an outage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasesSpec:
    """``[phases]``"""

    enabled: bool = False
    """Split an attempt into plan, implement, review, address."""
    phase_retry_count: Count = 0
    """Retries of plan and implement."""
    phase_3_retry_count: Count = 0
    """Retries of address and triage; at most 2 take effect."""
    review_command: Text = ""
    """The review, for /bin/sh -c."""
    max_address_rounds: Count = 5
    """The most rounds in which findings are addressed."""
    on_findings_remaining: Literal["fail", "warn"] = "fail"
    """Whether findings that remain after the last round fail the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GitSpec:
    """``[git]``"""

    auto_pull_rebase: bool = False
    """Pull with rebase before an iteration of the built-in loop."""
    auto_push: bool = False
    """Have the built-in loop push the commits that are kept."""
    repair: Literal["tell", "abort"] = "tell"
    """Report a half-done rebase, merge or detached HEAD, or repair it."""
    keep: FilledTexts = (".env*", "*.local")
    """Ignored files of up to 1 MiB that are restored if an iteration deletes them."""
    vault_max_bytes: Bytes = 2 << 30
    """Copy only unpushed commits of a repository with more bytes."""
    rewritten: Literal["repair", "pause"] = "repair"
    """Restore commits that a branch lost during an iteration, or pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeSpec:
    """``[worktree]``"""

    max_total_bytes: MostBytes = 50 << 30
    """Make no further worktree while those of ralphd have this many bytes; 0 for no limit. In the user's own
    file only."""
    follow: bool = True
    """Merge what lands into the branches of the other worktrees between their iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """``[sandbox]``"""

    level: Literal["none", "auto", "signals", "write", "box"] = "auto"
    """What separates a run from the rest of the machine. 'signals': it can signal only its own processes.
    'auto': 'signals' where the kernel supports it (Linux 6.12) and sudo needs a password, else 'none'.
    'write': besides, it can change files only in its working directory, in 'writable', in caches and
    temporary directories, and in those where agents keep their state. 'box': bubblewrap; besides, it sees
    only its own processes, and its temporary directory is empty. ralph.toml can only raise the level of the
    user's own file."""
    net: bool = True
    """Whether a run in the box reaches the network. ralph.toml can only set false."""
    proxy: Annotated[Text, AfterValidator(values.a_proxy)] = ""
    """The URL for HTTP_PROXY and the like in the box. In your own file only."""
    writable: Annotated[FilledTexts, AfterValidator(values.rooted)] = ()
    """What else a run can write at the levels write and box: /PATH or ~/PATH. A path that holds your home
    directory, or at the level write ralphd's state directory, is left out. In your own file only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingSpec:
    """``[landing]``: how the branches of ralphs get onto the target. Read from the target's own tip."""

    mode: Literal["off", "ask", "auto", "branch"] = "off"
    """What becomes of the branch of a ralph that is done. 'auto': it lands if the tests pass. 'ask': it waits
    for `ralphctl land NAME`. 'branch': it is pushed to the remote, for a pull request. 'off': only what you
    land yourself. Not set, it is 'ask' for ralphs in a worktree (`start --worktree`)."""
    target: Annotated[FilledText, AfterValidator(values.branch_name)] = "main"
    """The branch that everything lands on."""
    method: Literal["merge", "rebase"] = "merge"
    """How a branch gets onto the target. 'rebase' copies its commits instead of merging them. A branch that
    was pushed, or that has a merge of its own, is always merged."""
    max_landing_tries: Count = 3
    """You are alerted when a branch was refused this often; 0 alerts the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """``[fleet]``, in the user's own file only: what this machine does in a fleet."""

    labels: Texts = ()
    """What this machine has, for items that need it: 'docker', 'gpu'."""
    slots: Count = 0
    """How many items it works on at once; 0 for half of its cores, and a third of its memory in GB."""
    allow_repos: Texts = ()
    """Patterns of repositories that it takes items of, such as 'github.com/team/*'. Empty: none."""
    remote_control: bool = True
    """Whether people may stop, pause and resume its ralphs from other machines."""
    share_logs: bool = True
    """Whether people may read the logs of its ralphs from other machines."""
    share_events: bool = True
    """Send its events to the hub."""
    lease_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60
    """A machine that has not renewed its lease for this time is suspect."""
    takeover_wait_seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] = 180
    """The lease in git must not move for this time before another machine takes over."""
    offline_push_seconds: Annotated[float, Field(ge=1, le=3600, allow_inf_nan=False)] = 60
    """Without the hub, the lease in git is moved this often."""
    max_offline_seconds: Annotated[float, Field(ge=0, le=30 * 86_400, allow_inf_nan=False)] = 0
    """Without the hub for so long, the ralphs of items pause after their iteration. 0: never."""
    work_directory: Text = ""
    """Where clones and worktrees of items are; by default `fleet` in ralphd's data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSpec:
    """``[web]``, in the user's own file only: the page for a phone (`ralphctl web`)."""

    listen: Annotated[Text, AfterValidator(values.a_listener)] = ""
    """Where the page listens: "127.0.0.1:PORT"; "unix", for web.sock in the state directory; or
    "INTERFACE:PORT" or "ADDRESS:PORT", with TLS by a certificate of its own. Empty: the page is off."""
    hosts: Annotated[FilledTexts, AfterValidator(values.host_names)] = ()
    """The names under which a proxy or DNS leads to the page. The first one is in links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsSpec:
    """``[logs]``, in the user's own file only."""

    run_bytes: Bytes = 64 * MIB
    """The most output that is kept of one run."""
    total_bytes: Bytes = 2048 * MIB
    """The most output that is kept of all runs of all ralphs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSpec:
    """``[limits]``, in the user's own file only."""

    max_memory_bytes: MostBytes = 0
    """The most memory of a run; 0 for no limit. Needs a control group."""
    max_processes: Count = 0
    """The most processes and threads of a run; 0 for no limit. Needs a control group."""
    cpu_weight: Weight = 0
    """CPU share beside other runs; the default of Linux is 100; 0 leaves it."""
    require_cgroup: bool = False
    """Refuse to start a run without a control group (cgroup v2)."""
    min_free_memory: Share = 0.05
    """A start waits while a smaller share of the memory is available."""
    max_running: Count = 0
    """A start waits while this number of ralphs has a run; 0 for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSpec:
    """``[[webhooks]]``: one address. The secret is named here, never held."""

    url: Annotated[FilledText, AfterValidator(values.an_address)]
    """The destination, http or https."""
    secret_file: Text = ""
    """A file that holds the signing secret, relative to this file; or credential:NAME of systemd."""
    secret_env: Text = ""
    """A variable of the daemon's environment that holds the secret."""
    secret_cmd: FilledTexts = ()
    """A command that prints the secret, run for each message, for at most 2 s. In your own file only."""
    on: Annotated[FilledTexts, AfterValidator(values.event_patterns)] = ("ralph.escalated",)
    """The events to send; '*' matches any letters."""
    format: Literal["json", "slack", "ntfy"] = "json"
    """What is sent: the event as JSON, or a text for Slack or an ntfy topic."""
    allow_private: bool = False
    """Also send to private and loopback addresses. In the user's own file only."""
    name: Annotated[Text, AfterValidator(values.hook_name)] = ""
    """Its name for `ralphctl webhooks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifySpec:
    """``[notify]``"""

    reminder_minutes: Minutes = 0.0
    """Repeat an alert at this interval until you acknowledge it; 0 for never."""
    allow_private: bool = False
    """Let `ralphctl webhooks add --allow-private` add private addresses. In the user's own file only."""
    desktop: bool = False
    """Show alerts on the desktop too. In the user's own file only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Every section but ``[[webhooks]]``, by its name."""

    project: ProjectSpec = field(default_factory=ProjectSpec)
    ralph: RalphSpec = field(default_factory=RalphSpec)
    regent: RegentSpec = field(default_factory=RegentSpec)
    agents: AgentsSpec = field(default_factory=AgentsSpec)
    accounts: AccountsSpec = field(default_factory=AccountsSpec)
    retry: RetrySpec = field(default_factory=RetrySpec)
    phases: PhasesSpec = field(default_factory=PhasesSpec)
    git: GitSpec = field(default_factory=GitSpec)
    worktree: WorktreeSpec = field(default_factory=WorktreeSpec)
    sandbox: SandboxSpec = field(default_factory=SandboxSpec)
    landing: LandingSpec = field(default_factory=LandingSpec)
    fleet: FleetSpec = field(default_factory=FleetSpec)
    web: WebSpec = field(default_factory=WebSpec)
    logs: LogsSpec = field(default_factory=LogsSpec)
    limits: LimitsSpec = field(default_factory=LimitsSpec)
    notify: NotifySpec = field(default_factory=NotifySpec)

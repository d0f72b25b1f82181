"""The errors that are meant to be shown: what happened, why, and what to do about it.

Each has a stable ``slug`` (the ``type`` of a problem document), the HTTP status it travels with and the
exit code that ``ralphctl`` ends with. Anything that is not a ``RalphdError`` is a bug. Loaded by every
short command, so nothing is imported here.
"""

PROBLEM_PREFIX = "urn:ralphd:problem:"


class RalphdError(Exception):
    """A fault that a person can fix.

    ``what`` says what went wrong and to what, ``why`` gives the reason when it is known, ``mend`` says what
    to do next, usually as a command to type.
    """

    slug = "error"
    status = 400
    exit_code = 1

    def __init__(self, what: str, *, why: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.mend = mend

    def __str__(self) -> str:
        return "\n".join(
            [self.what]
            + [f"  {line}" for line in self.why.splitlines()]
            + ([f"  try: {self.mend}"] if self.mend else [])
        )


def in_one_line(fault: RalphdError) -> str:
    """What is wrong, why, and what to do, as a log has it."""
    why = "; ".join(line.strip() for line in fault.why.splitlines() if line.strip())
    return "; ".join(part for part in (": ".join(filter(None, (fault.what, why))), fault.mend) if part)


class UsageError(RalphdError):
    """The arguments of a command or the fields of a request are wrong."""

    slug, status, exit_code = "usage", 422, 2


class BadName(UsageError):
    """The name of a ralph has characters that are not allowed."""

    slug = "bad-name"


class DaemonNotRunning(RalphdError):
    """No daemon answers on any of the known sockets."""

    slug, status, exit_code = "daemon-not-running", 503, 3


class UnknownAgent(UsageError):
    """No agent of this name: ralphd does not know it, and the configuration does not define it."""

    slug = "unknown-agent"


class UnknownRalph(RalphdError):
    """No ralph of this name, or none in this directory."""

    slug, status, exit_code = "unknown-ralph", 404, 4


class NotFound(RalphdError):
    """The route or the object does not exist."""

    slug, status, exit_code = "not-found", 404, 4


class NameTaken(RalphdError):
    """The name belongs to a ralph in another directory."""

    slug, status, exit_code = "name-taken", 409, 1


class AlreadyRunning(RalphdError):
    """The ralph is running; stop it before you replace it."""

    slug, status, exit_code = "already-running", 409, 1


class StaleReport(RalphdError):
    """The report is from a run that has ended, or its id was used for another report."""

    slug, status, exit_code = "stale-report", 409, 1


class WrongState(RalphdError):
    """The ralph cannot do this in its present state."""

    slug, status, exit_code = "wrong-state", 409, 1


class NotUndone(RalphdError):
    """Reverted commits were not re-applied: there are none, or something is in the way."""

    slug, status, exit_code = "not-undone", 409, 1


class NotLandable(RalphdError):
    """A branch cannot get into the landing queue: there is none, or nothing of it is to land."""

    slug, status, exit_code = "not-landable", 409, 1


class WebhookRefused(RalphdError):
    """The webhook cannot work: its address is private, or its secret cannot be read."""

    slug, status, exit_code = "webhook-refused", 422, 1


class PrivateAddress(WebhookRefused):
    """A webhook asks for private addresses, which the user's own file does not allow."""

    slug = "private-address"


class WebhookConflict(RalphdError):
    """The request does not fit the origin of the webhook, or the answer of its receiver."""

    slug, status, exit_code = "webhook-conflict", 409, 1


class DirectoryUnusable(RalphdError):
    """The working directory is missing, not a directory or not writable, or its ``.ralph`` is in the way."""

    slug, status, exit_code = "directory-unusable", 422, 1


class DirectoryBusy(RalphdError):
    """Another Regent supervises the working directory, or one of its runs is still alive there."""

    slug, status, exit_code = "directory-busy", 409, 1


class CommandNotStartable(RalphdError):
    """The ralph's command cannot be started (E5)."""

    slug, status, exit_code = "command-not-startable", 422, 1


class ConfigFaults(RalphdError):
    """The configuration has errors; all are reported together."""

    slug, status, exit_code = "configuration", 422, 78


class UnusableState(RalphdError):
    """The files of a ralph cannot be used or rebuilt; they are left unchanged."""

    slug, status, exit_code = "unusable-state", 409, 78


class NewerState(UnusableState):
    """A newer ralphd wrote the state file; it is left unchanged."""

    slug = "newer-state"


class DaemonBusy(RalphdError):
    """Another daemon owns the state directory, or this one has reached a bound: try later."""

    slug, status, exit_code = "busy", 503, 75


class ShuttingDown(RalphdError):
    """The daemon is shutting down and accepts no new work."""

    slug, status, exit_code = "shutting-down", 503, 75


class TooLarge(RalphdError):
    """The request body is over the limit."""

    slug, status, exit_code = "too-large", 413, 2


class NotJson(RalphdError):
    """The request body has no JSON content type."""

    slug, status, exit_code = "not-json", 415, 2


class TooSlow(RalphdError):
    """The request did not arrive completely in time."""

    slug, status, exit_code = "too-slow", 408, 75


class SocketUnusable(RalphdError):
    """The daemon cannot listen on its socket: a foreign directory, a file in the way, a long path."""

    slug, status, exit_code = "socket-unusable", 500, 1


class HandedOverUnusable(SocketUnusable):
    """The daemon cannot listen on the socket that systemd passed: the units are wrong."""

    slug, exit_code = "handed-over-unusable", 78


class Forbidden(RalphdError):
    """The request seems to come from a browser page, or comes from another user."""

    slug, status, exit_code = "forbidden", 403, 1


class WithinRun(RalphdError):
    """A process of a supervised run requested what runs may not request (`[regent] runs_may`)."""

    slug, status, exit_code = "from-within-a-run", 403, 77

    def __init__(
        self,
        what: str = "refused: this is a supervised run; continue with your task",
        *,
        why: str = "",
        mend: str = "",
    ) -> None:
        super().__init__(what, why=why, mend=mend)


class InternalError(RalphdError):
    """A bug: the daemon continues, and its log has the traceback."""

    slug, status, exit_code = "internal", 500, 1


def _all_kinds(base: type[RalphdError]) -> list[type[RalphdError]]:
    return [base, *(kind for sub in base.__subclasses__() for kind in _all_kinds(sub))]


BY_SLUG: dict[str, type[RalphdError]] = {kind.slug: kind for kind in _all_kinds(RalphdError)}

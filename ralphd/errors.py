"""The errors that are meant to be shown: what happened, why, and what to do about it.

Each has a stable ``slug`` (the ``type`` of a problem document), the HTTP status it travels with and the
exit code that ``ralphctl`` ends with. Anything that is not a ``RalphdError`` is a bug. Loaded by every
short command, so nothing is imported here.
"""

PROBLEM_PREFIX = "urn:ralphd:problem:"
WITHIN_RUN = "refused: this is a supervised run; continue with your task"


class RalphdError(Exception):
    """A fault that a person can fix.

    ``what`` says what went wrong and to what, ``why`` gives the reason when it is known, ``mend`` says what
    to do next, usually as a command to type.
    """

    slug = "error"
    status = 400
    exit_code = 1

    def __init_subclass__(
        cls, *, slug: str | None = None, status: int | None = None, exit_code: int | None = None
    ) -> None:
        """Declare a kind of error in the head of its class; what is not given is that of its parent."""
        cls.slug = slug or cls.slug
        cls.status = status or cls.status
        cls.exit_code = exit_code or cls.exit_code

    def __init__(self, what: str, *, why: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.mend = what, why, mend

    def __str__(self) -> str:
        mend = [f"  try: {self.mend}"] if self.mend else []
        return "\n".join([self.what, *(f"  {line}" for line in self.why.splitlines()), *mend])


def in_one_line(fault: RalphdError) -> str:
    """What is wrong, why, and what to do, as a log has it."""
    why = "; ".join(line.strip() for line in fault.why.splitlines() if line.strip())
    return "; ".join(part for part in (": ".join(filter(None, (fault.what, why))), fault.mend) if part)


class UsageError(RalphdError, slug="usage", status=422, exit_code=2):
    """The arguments of a command or the fields of a request are wrong."""


class BadName(UsageError, slug="bad-name"):
    """The name of a ralph has characters that are not allowed."""


class DaemonNotRunning(RalphdError, slug="daemon-not-running", status=503, exit_code=3):
    """No daemon answers on any of the known sockets."""


class UnknownAgent(UsageError, slug="unknown-agent"):
    """No agent of this name: ralphd does not know it, and the configuration does not define it."""


class UnknownRalph(RalphdError, slug="unknown-ralph", status=404, exit_code=4):
    """No ralph of this name, or none in this directory."""


class NotFound(RalphdError, slug="not-found", status=404, exit_code=4):
    """The route or the object does not exist."""


class NoFleet(RalphdError, slug="no-fleet", status=409, exit_code=3):
    """This machine is in no fleet, or its daemon has not joined yet."""


class RoleMissing(RalphdError, slug="role-missing", status=403):
    """The hub does not let this machine request that of others."""


class HubSilent(RalphdError, slug="hub-unreachable", status=503, exit_code=3):
    """The hub of the fleet did not answer."""


class NameTaken(RalphdError, slug="name-taken", status=409):
    """The name belongs to a ralph in another directory."""


class AlreadyRunning(RalphdError, slug="already-running", status=409):
    """The ralph is running; stop it before you replace it."""


class StaleReport(RalphdError, slug="stale-report", status=409):
    """The report is from a run that has ended, or its id was used for another report."""


class WrongState(RalphdError, slug="wrong-state", status=409):
    """The ralph cannot do this in its present state."""


class NotUndone(RalphdError, slug="not-undone", status=409):
    """Reverted commits were not re-applied: there are none, or something is in the way."""


class NotLandable(RalphdError, slug="not-landable", status=409):
    """A branch cannot get into the landing queue: there is none, or nothing of it is to land."""


class WebhookRefused(RalphdError, slug="webhook-refused", status=422):
    """The webhook cannot work: its address is private, or its secret cannot be read."""


class PrivateAddress(WebhookRefused, slug="private-address"):
    """A webhook asks for private addresses, which the user's own file does not allow."""


class WebhookConflict(RalphdError, slug="webhook-conflict", status=409):
    """The request does not fit the origin of the webhook, or the answer of its receiver."""


class DirectoryUnusable(RalphdError, slug="directory-unusable", status=422):
    """The working directory is missing, not a directory or not writable, or its ``.ralph`` is in the way."""


class DirectoryBusy(RalphdError, slug="directory-busy", status=409):
    """Another Regent supervises the working directory, or one of its runs is still alive there."""


class CommandNotStartable(RalphdError, slug="command-not-startable", status=422):
    """The ralph's command cannot be started (E5)."""


class ConfigFaults(RalphdError, slug="configuration", status=422, exit_code=78):
    """The configuration has errors; all are reported together."""


class UnusableState(RalphdError, slug="unusable-state", status=409, exit_code=78):
    """The files of a ralph cannot be used or rebuilt; they are left unchanged."""


class NewerState(UnusableState, slug="newer-state"):
    """A newer ralphd wrote the state file; it is left unchanged."""


class DaemonBusy(RalphdError, slug="busy", status=503, exit_code=75):
    """Another daemon owns the state directory, or this one has reached a bound: try later."""


class ShuttingDown(RalphdError, slug="shutting-down", status=503, exit_code=75):
    """The daemon is shutting down and accepts no new work."""


class TooLarge(RalphdError, slug="too-large", status=413, exit_code=2):
    """The request body is over the limit."""


class NotJson(RalphdError, slug="not-json", status=415, exit_code=2):
    """The request body has no JSON content type."""


class TooSlow(RalphdError, slug="too-slow", status=408, exit_code=75):
    """The request did not arrive completely in time."""


class SocketUnusable(RalphdError, slug="socket-unusable", status=500):
    """The daemon cannot listen on its socket: a foreign directory, a file in the way, a long path."""


class HandedOverUnusable(SocketUnusable, slug="handed-over-unusable", exit_code=78):
    """The daemon cannot listen on the socket that systemd passed: the units are wrong."""


class Forbidden(RalphdError, slug="forbidden", status=403):
    """The request seems to come from a browser page, or comes from another user."""


class WithinRun(RalphdError, slug="from-within-a-run", status=403, exit_code=77):
    """A process of a supervised run requested what runs may not request (`[regent] runs_may`)."""

    def __init__(self, what: str = WITHIN_RUN, **more: str) -> None:
        super().__init__(what, **more)


class InternalError(RalphdError, slug="internal", status=500):
    """A bug: the daemon continues, and its log has the traceback."""


def _all_kinds(base: type[RalphdError]) -> list[type[RalphdError]]:
    return [base, *(kind for sub in base.__subclasses__() for kind in _all_kinds(sub))]


BY_SLUG: dict[str, type[RalphdError]] = {kind.slug: kind for kind in _all_kinds(RalphdError)}

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
    """The words of a command or request do not fit."""

    slug, status, exit_code = "usage", 422, 2


class BadName(UsageError):
    """A ralph's name that is not of the form the API accepts."""

    slug = "bad-name"


class DaemonNotRunning(RalphdError):
    """Nobody answers on any socket that was tried."""

    slug, status, exit_code = "daemon-not-running", 503, 3


class UnknownAgent(UsageError):
    """No agent of that name: neither one that ralphd knows, nor one that the configuration defines."""

    slug = "unknown-agent"


class UnknownRalph(RalphdError):
    """No ralph of that name, or none in this directory."""

    slug, status, exit_code = "unknown-ralph", 404, 4


class NotFound(RalphdError):
    """A route or a thing that is not there."""

    slug, status, exit_code = "not-found", 404, 4


class NameTaken(RalphdError):
    """The name belongs to a ralph of another directory."""

    slug, status, exit_code = "name-taken", 409, 1


class AlreadyRunning(RalphdError):
    """The ralph runs already; it has to be stopped before it can be replaced."""

    slug, status, exit_code = "already-running", 409, 1


class StaleReport(RalphdError):
    """A report of a run that does not live, or a second one under the same id."""

    slug, status, exit_code = "stale-report", 409, 1


class WrongState(RalphdError):
    """The request does not fit what the ralph is doing now."""

    slug, status, exit_code = "wrong-state", 409, 1


class NotUndone(RalphdError):
    """Commits that were reverted are not put back: there are none, or something is in the way."""

    slug, status, exit_code = "not-undone", 409, 1


class WebhookRefused(RalphdError):
    """A webhook that could not do its work: its address is private, or its secret cannot be read."""

    slug, status, exit_code = "webhook-refused", 422, 1


class WebhookConflict(RalphdError):
    """What was asked does not fit where the webhook comes from, or what its receiver said."""

    slug, status, exit_code = "webhook-conflict", 409, 1


class DirectoryUnusable(RalphdError):
    """The working directory is missing, no directory, not ours to write, or its ``.ralph`` is in the way."""

    slug, status, exit_code = "directory-unusable", 422, 1


class DirectoryBusy(RalphdError):
    """Another Regent supervises the working directory, or a run of one still lives in it."""

    slug, status, exit_code = "directory-busy", 409, 1


class CommandNotStartable(RalphdError):
    """The ralph's command cannot be started at all (E5)."""

    slug, status, exit_code = "command-not-startable", 422, 1


class ConfigFaults(RalphdError):
    """Everything that is wrong with a configuration, told together."""

    slug, status, exit_code = "configuration", 422, 78


class UnusableState(RalphdError):
    """The files of a ralph cannot be used, and nothing tells what they held; they are left as they are."""

    slug, status, exit_code = "unusable-state", 409, 78


class NewerState(UnusableState):
    """A state file was written by a newer ralphd; it is left as it is."""

    slug = "newer-state"


class DaemonBusy(RalphdError):
    """Another daemon owns the state directory, or a bound of this one is reached: try later."""

    slug, status, exit_code = "busy", 503, 75


class ShuttingDown(RalphdError):
    """The daemon is on its way out and takes no new work."""

    slug, status, exit_code = "shutting-down", 503, 75


class TooLarge(RalphdError):
    """A request body over the limit."""

    slug, status, exit_code = "too-large", 413, 2


class NotJson(RalphdError):
    """A request body that does not say it is JSON."""

    slug, status, exit_code = "not-json", 415, 2


class TooSlow(RalphdError):
    """A request that did not arrive in full in time."""

    slug, status, exit_code = "too-slow", 408, 75


class SocketUnusable(RalphdError):
    """The daemon cannot listen where it should: a foreign directory, something in the way, a long path."""

    slug, status, exit_code = "socket-unusable", 500, 1


class HandedOverUnusable(SocketUnusable):
    """What systemd handed over as a socket is none that can be listened on: the units are wrong."""

    slug, exit_code = "handed-over-unusable", 78


class Forbidden(RalphdError):
    """A request that looks as if it came from a browser page, or from another user."""

    slug, status, exit_code = "forbidden", 403, 1


class InternalError(RalphdError):
    """A bug, told as one: the daemon stays up, its log has the traceback."""

    slug, status, exit_code = "internal", 500, 1


def _all_kinds(base: type[RalphdError]) -> list[type[RalphdError]]:
    return [base, *(kind for sub in base.__subclasses__() for kind in _all_kinds(sub))]


BY_SLUG: dict[str, type[RalphdError]] = {kind.slug: kind for kind in _all_kinds(RalphdError)}

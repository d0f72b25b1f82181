"""A run of a ralph as it is to be started: its command, its place, its environment."""

from ralphd.core.moments import rfc3339
from ralphd.daemon.account import Account
from ralphd.daemon.builtin import command_of
from ralphd.daemon.services import Services
from ralphd.process.spawn import RunDirectory, RunSpec


def spec_of(account: Account, services: Services, directory: RunDirectory) -> RunSpec:
    """What to start in a run's directory."""
    definition, files = account.definition, account.files
    return RunSpec(
        run_id=directory.run_id,
        ralph=definition.name,
        command=definition.command or command_of(files.home, tied=services.tied is not None),
        directory=definition.directory,
        environment_file=files.environment_file if files.environment_file.exists() else None,
        environment=_variables(account, services, directory),
        umask=services.umask,
        run_bytes=account.configuration.logs.run_bytes,
        definition=definition.to_json(),
        tied=services.tied,
    )


def _variables(account: Account, services: Services, directory: RunDirectory) -> dict[str, str]:
    variables = {
        "RALPH_NAME": account.definition.name,
        "RALPH_RUN_ID": directory.run_id,
        "RALPHD_SOCKET": str(services.socket_path),
        "PYTHONUNBUFFERED": "1",
    }
    began_at = account.supervision.tally.began_at
    if account.definition.runs_own_loop and began_at is not None:
        variables["RALPH_BEGAN_AT"] = rfc3339(began_at)  # limits count from there, over all its runs
    return variables

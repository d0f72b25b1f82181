"""What every process that ralphd starts for a ralph, or for a landing queue, is started with."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ralphd.config import configuration as config
from ralphd.config.configuration import Configuration
from ralphd.core.sandbox import BOX, SandboxChoice, default_writable, outermost
from ralphd.core.supervision import model
from ralphd.daemon.services import Services
from ralphd.git.repo import Repository
from ralphd.process.sandbox.box import Box, resolved, share_socket, wrapper
from ralphd.process.spawn import RunSpec
from ralphd.store.loop_files import PROMPT_FILE
from ralphd.store.state import RalphFiles


class RunSource(Protocol):
    """Who runs something: its files, its configuration, its environment."""

    files: RalphFiles
    _services: Services

    @property
    def run_name(self) -> str:
        """The name that its runs get as ``RALPH_NAME``."""

    @property
    def configuration(self) -> Configuration:
        """What is in force."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables of its runs. Blocks."""
        return self.files.load_environment() or os.environ

    def writable(self) -> tuple[str, ...]:
        """Return what a run may write besides its directory at the levels ``write`` and ``box``.

        Creates caches that are missing. Blocks.
        """
        from ralphd.agents.known import state_paths  # a daemon without these levels is smaller without

        environment = self.environment
        home, stated = config.home_of(environment), (*state_paths(), *self.configuration.sandbox.writable)
        with suppress(OSError):  # a run cannot create them
            for cache in (home / ".cache", home / ".npm"):
                cache.mkdir(mode=0o700, exist_ok=True)
        return default_writable(str(home), environment, stated)

    def spec(
        self, run_id: model.RunId, directory: Path, sandbox: SandboxChoice, command: tuple[str, ...]
    ) -> RunSpec:
        """Return what to start in ``directory``. Blocks. Raise OSError."""
        environment_file = self.files.environment_file
        return RunSpec(
            run_id=run_id, ralph=self.run_name, command=command, directory=directory, definition={},
            environment_file=environment_file if environment_file.exists() else None, environment={},
            umask=self._services.umask, run_bytes=self.configuration.logs.run_bytes,
            tied=self._services.tied, limits=self.configuration.run_limits(),
            wrapper=self._box(directory, sandbox.level), sandbox=sandbox,
        )  # fmt: skip

    def _box(self, directory: Path, level: str) -> tuple[str, ...]:
        """Return the words before a command that works in ``directory``; none below the level ``box``.

        Blocks. Raise OSError.
        """
        if level != BOX:
            return ()
        wanted, home = self.configuration.sandbox, config.home_of(self.environment)
        repository = Repository.find(directory)
        return wrapper(
            Box(
                directory,
                () if repository is None else repository.proven(),
                self._services.state_directory,
                readable=(self._services.commands, self.files.home / PROMPT_FILE),
                writable=resolved((str(directory), *outermost(self.writable()))),
                socket=share_socket(self._services.socket_path),
                home=home,
                net=wanted.net,
                proxy=wanted.proxy,
            )
        )

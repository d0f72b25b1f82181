"""The signing secret of a destination, read when it is needed and kept nowhere."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from ralphd.core.delivery import Destination
from ralphd.core.signing import BadSecret, secret_key

_SECRET_BYTES = 4096


def key_of(destination: Destination, environ: Mapping[str, str]) -> bytes | None:
    """The signing key as it is now; None for a destination without a secret. Blocks.

    Raises BadSecret, whose text says what is wrong with it, and never what it is.
    """
    if destination.secret_file is not None:
        return secret_key(_text(Path(destination.secret_file).expanduser()))
    if destination.secret_env is not None:
        if destination.secret_env not in environ:
            raise BadSecret(f"the environment of ralphd has no {destination.secret_env}")
        return secret_key(environ[destination.secret_env])
    return None


def _text(path: Path) -> str:
    try:
        # O_NONBLOCK: a FIFO without a writer must not hold the thread.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadSecret(f"{path}: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise BadSecret(f"{path} is not a plain file")
        return os.read(fd, _SECRET_BYTES).decode()
    except UnicodeDecodeError as error:
        raise BadSecret(f"{path} is not text") from error
    except OSError as error:
        raise BadSecret(f"{path}: {error.strerror}") from error
    finally:
        os.close(fd)

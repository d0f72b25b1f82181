"""The user's prompt file, read at registration and before each attempt (L4)."""

from pathlib import Path

from ralphd.errors import ConfigFaults, RalphdError
from ralphd.loop.inside import Unreadable, read_inside

MOST_PROMPT_BYTES = 4 << 20


def read_prompt(directory: Path, file: str) -> str:
    """The user's prompt. Raises ConfigFaults that says what is wrong with the file and what to do. Blocks."""
    try:
        text = read_inside(directory, file, MOST_PROMPT_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise _unusable(directory, file, "it is not there") from None
    except Unreadable as fault:
        raise _unusable(directory, file, f"it {fault}") from fault
    except UnicodeDecodeError as fault:
        raise _unusable(directory, file, f"it is not UTF-8 (byte {fault.start})") from fault
    if not text.strip():
        raise _unusable(directory, file, "it is empty")
    return text


def _unusable(directory: Path, file: str, why: str) -> RalphdError:
    return ConfigFaults(
        f"the prompt {directory / file} cannot be used",
        why=why,
        mend=f"write what Ralph is to do into {file}, or name another file by [ralph] prompt_file",
    )

"""Files moved out of the way in one step each: who saves one at that very moment loses nothing by it."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from ralphd.git.calls import Calls, NotDone, readable
from ralphd.git.entries import differing, is_folder, is_there
from ralphd.git.kept import Kept, KeptFile, Kind, file_now, read_blobs, state_at


class Away:
    """What was moved into the guard's own directory, and is there until the act is over."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._moved: list[tuple[KeptFile, bytes]] = []
        self.is_whole = True
        """False where a file is on another disk than the repository: it stays, to be written over."""

    def take(self, files: Sequence[KeptFile]) -> None:
        """Move files away, and the folders that they leave empty. Raises NotDone, OSError.

        Refused where one is not as it was kept any more. What was moved until then is to be brought back.
        """
        for number, each in enumerate(files):
            full, beside = self._calls.path(each.path), self._beside(number)
            if is_there(self._calls, each.path):
                if self._is_moved(full, beside):
                    self._moved.append((each, beside))
                    self._calls.prune(each.path)
            elif is_folder(full):
                for place, _, _ in os.walk(full, topdown=False):
                    with suppress(OSError):
                        os.rmdir(place)  # noqa: PTH106 - bytes are no Path
        self.check()

    def check(self) -> None:
        """Raises NotDone where one was not as it was kept, or was written to since it was opened before."""
        for each, beside in self._moved:
            if not each.is_as(state_at(beside, each.path)):
                raise NotDone(f"{readable(each.path)} changed meanwhile")

    def bring_back(self, kept: Kept) -> set[bytes]:
        """All as it was, but for what somebody else has put there, whose paths are answered.

        Raises NotDone, OSError.
        """
        theirs = self._theirs(kept)
        for each, beside in self._moved:
            if each.path not in theirs:
                full = self._calls.path(each.path)
                os.makedirs(os.path.dirname(full), exist_ok=True)  # noqa: PTH103, PTH120
                os.replace(beside, full)  # noqa: PTH105
        changed = {each.path for each, _ in self._moved if not each.is_as(file_now(self._calls, each.path))}
        return theirs | changed

    def _theirs(self, kept: Kept) -> set[bytes]:
        """What is neither as it was kept nor HEAD's, nor the beginning of that: git was cut off there."""
        there = [each for each in kept.files if is_there(self._calls, each.path)]
        others = [each for each in there if not each.is_as(file_now(self._calls, each.path))]
        entries = {each.path: each.committed for each in others if each.committed is not None}
        strange = differing(self._calls, list(entries.items()))
        asked = sorted(path for path in strange if not entries[path].is_submodule)
        whole = read_blobs(self._calls, [entries[path].sha for path in asked])
        begun = {
            path
            for path, data in zip(asked, whole, strict=True)
            if (now := file_now(self._calls, path)).kind is Kind.FILE and data.startswith(now.data)
        }
        return (strange - begun) | {each.path for each in others if each.committed is None}

    def _beside(self, number: int) -> bytes:
        return os.fsencode(self._calls.work / f"tmp-away-{number:06}")

    def _is_moved(self, full: bytes, beside: bytes) -> bool:
        try:
            os.rename(full, beside)  # noqa: PTH104
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self.is_whole = False
            return False
        return True

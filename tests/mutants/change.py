"""One change of a module's text, as it is told and as it is known again when lines have moved."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One change. ``function`` is empty for what is decided when the module is imported.

    ``first`` to ``last`` are the lines a test must have run to be able to notice it. ``statement`` is the
    statement of the module that was changed, ``source`` the whole changed text.
    """

    file: str
    function: str
    first: int
    last: int
    before: str
    after: str
    statement: str
    source: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is known by, whatever its line."""
        return self.file, self.function, self.before, self.after

    @property
    def module(self) -> str:
        """The dotted name of the module that it changes."""
        return self.file.removesuffix(".py").replace("/", ".")


def difference(original: str, changed: str) -> tuple[str, str]:
    """The lines that went and the lines that came, each as one line of text."""
    old, new = original.splitlines(), changed.splitlines()
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    end = next((at for at in range(shorter - start) if old[-1 - at] != new[-1 - at]), shorter - start)
    gone, come = old[start : len(old) - end], new[start : len(new) - end]
    return " ".join(" ".join(gone).split()), " ".join(" ".join(come).split())

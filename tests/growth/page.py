"""``docs/growth.md`` and its pictures: what grows with what, and how fast."""

import os
import platform
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.growth.curve import FLAT, MARGIN, Curve, Series
from tests.growth.plot import number, picture
from tests.pages import DOCS

WIDTH: Final = 115
PAGE, PICTURES = DOCS / "growth.md", DOCS / "pictures"
HEAD = (
    "Written by `make growth` for the machine it ran on. It measures how cost grows with size: of the number"
    " of ralphs, of the logs, of the history, of the runs that are kept, and of a repository. If you run it,"
    " it writes this page and its pictures again for your machine."
)
HOW_TO_READ = (
    "An *exponent* is the slope of the figure over the size, both as logarithms. With 0 the figure does not"
    " grow, with 1 it grows as the size does, with 2 as its square. The first exponent is the fit over all"
    " sizes by least squares, with its standard error. The second is the slope between the two largest sizes:"
    " there, a fixed cost such as the start of an interpreter hides the least.",
    f"A goal is met if the exponent at the end is not above 0 or 1 by more than {MARGIN:g}, and the noise.",
    "Each figure is the least of some repetitions, because other work on the machine only adds to it. The"
    " *noise* is how far the middle repetition is above the least one, at the size where that is most.",
    "Times are CPU times that the kernel counts: of the client's process from its start to its end, and of"
    " the daemon in that time.",
    "In a picture both axes are logarithmic, the dashed line has the slope that is allowed, and pale dots are"
    " the other repetitions. A missed goal is red.",
)


def text(every: Sequence[Series]) -> str:
    """Return the page."""
    curves = [curve for series in every for curve in series.curves]
    met = sum(curve.is_met for curve in curves)
    parts = [
        "# Growth\n", textwrap.fill(HEAD, WIDTH) + "\n",
        f"{os.cpu_count()} cores, {platform.system()} {platform.release().split('-')[0]},"
        f" {platform.machine()}; Python {platform.python_version()}. {met} of {len(curves)} goals met.\n",
        "## How to read it\n", _listed(HOW_TO_READ),
    ]  # fmt: skip
    for series in every:
        parts += [f"## {series.title}\n", *_section(series)]
    return "\n".join(parts).rstrip() + "\n"


def _section(series: Series) -> Iterator[str]:
    yield textwrap.fill(series.how, WIDTH) + "\n"
    yield f"![{series.title}](pictures/growth-{series.name}.svg)\n"
    sizes = [point.size for point in series.curves[0].points]
    yield "\n".join(_row(cells) for cells in _cells(series, sizes)) + "\n"
    minutes = f"{series.at}, in {series.took_s / 60:.1f} minutes; load {series.load:.1f}"
    missed = [curve.what for curve in series.curves if not curve.is_met]
    yield f"Measured {minutes}." + (f" Missed: {', '.join(missed)}.\n" if missed else "\n")


def _cells(series: Series, sizes: Sequence[float]) -> Iterator[Sequence[str]]:
    yield (series.size, *map(number, sizes), "exponent", "at the end", "noise", "goal")
    yield ("---",) * (len(sizes) + 5)
    for curve in series.curves:
        by_size = {point.size: point.least for point in curve.points}
        figures = (figure(by_size[size]) if size in by_size else "-" for size in sizes)
        yield (f"{curve.what}, {curve.unit}", *figures, *_fit(curve))


def _fit(curve: Curve) -> Sequence[str]:
    goal = "0" if curve.goal == FLAT else f"≤ {curve.goal:g}"
    verdict = "met" if curve.is_met else "MISSED"
    fitted = f"{curve.exponent:.2f} ± {curve.error:.2f}"
    return fitted, f"{curve.last_exponent:.2f}", f"{curve.noise * 100:.0f} %", f"{goal}, {verdict}"


def figure(value: float) -> str:
    """Return a value with three digits at most."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _listed(items: Sequence[str]) -> str:
    return "\n".join(textwrap.fill(f"- {item}", WIDTH, subsequent_indent="  ") for item in items) + "\n"


def write(every: Sequence[Series]) -> list[Path]:
    """Write the page and the pictures; return their paths."""
    written = {PAGE: text(every)}
    written |= {PICTURES / f"growth-{series.name}.svg": picture(series) for series in every}
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")
    return [*written]

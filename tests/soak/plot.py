"""The samples of a soak as one SVG: a small chart for each figure, over the same time."""

import html
from collections import defaultdict
from collections.abc import Hashable, Sequence

from tests.soak.judge import RULES, Rule, points
from tests.soak.samples import Sample

COLUMNS, WIDTH, HEIGHT, MARGIN, HEAD = 3, 300, 130, 44, 30
MOST_POINTS = 120
SHOWN = (
    *RULES,
    Rule("runs", "runs that are kept", 0),
    Rule("runs_bytes", "files of runs, MB", 0, scale=1e6),
    Rule("events", "events", 0),
    Rule("vaults_bytes", "vaults, MB", 0, scale=1e6),
)
STYLE = (
    "text{font:11px sans-serif;fill:#333}.t{font-size:15px}.a{fill:#777;font-size:10px}"
    "path{fill:none;stroke:#0a62c9;stroke-width:1}.g{stroke:#ddd}rect{fill:#fff}"
)


def svg(samples: Sequence[Sample], title: str) -> str:
    """Draw it. Each process is a line of its own."""
    lines = -(-len(SHOWN) // COLUMNS)
    width, height = COLUMNS * (WIDTH + MARGIN) + 16, HEAD + lines * (HEIGHT + MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">',
        f'<style>{STYLE}</style><rect width="{width}" height="{height}"/>',
        f'<text class="t" x="16" y="22">{html.escape(title)}</text>',
    ]
    for number, rule in enumerate(SHOWN):
        x = 16 + number % COLUMNS * (WIDTH + MARGIN)
        y = HEAD + number // COLUMNS * (HEIGHT + MARGIN)
        parts.append(f'<g transform="translate({x} {y})">{_chart(samples, rule)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _chart(samples: Sequence[Sample], rule: Rule) -> str:
    lives = defaultdict[Hashable, list[tuple[float, float]]](list)
    for life, at_s, value in points(samples, rule):
        lives[life].append((at_s, value / rule.scale))
    end_s = max(samples[-1].at_s, 1.0)
    top = max((value for life in lives.values() for _, value in life), default=0.0) * 1.1 or 1.0
    step = max(1, len(samples) // MOST_POINTS)
    drawn = []
    for line in filter(lambda life: len(life) > 1, lives.values()):
        thinned = [*line[:-1:step], line[-1]]
        drawn += [f"{'ML'[at > 0]}{WIDTH * at_s / end_s:.0f} {HEIGHT - HEIGHT * value / top:.0f}"
                  for at, (at_s, value) in enumerate(thinned)]  # fmt: skip
    return (
        f'<text y="12">{html.escape(rule.label)}</text>'
        f'<text class="a" x="{WIDTH}" y="12" text-anchor="end">{top:.4g}</text>'
        f'<text class="a" x="{WIDTH}" y="{HEIGHT + 30}" text-anchor="end">{end_s / 60:.0f} min</text>'
        f'<g transform="translate(0 16)"><path class="g" d="M0 0H{WIDTH}M0 {HEIGHT}H{WIDTH}"/>'
        f'<path d="{"".join(drawn)}"/></g>'
    )

"""The look of the report as HTML: its colours in light and dark, and its style sheet.

Every colour of text has a contrast of at least 4.5 to what is behind it, every other at least 3; a test
calculates them. No element has a style of its own, so the page permits this one style sheet by its hash.
"""

import base64
import hashlib
from typing import Final

LIGHT: Final = {
    "page": "#ffffff", "panel": "#f4f5f7", "text": "#1b1f24", "muted": "#57606a", "accent": "#0550ae",
    "line": "#868e96", "working": "#1a7f37", "waiting": "#8a6a00", "limited": "#b35900", "testing": "#0969da",
    "reverted": "#8250df", "failed": "#c1121f",
}  # fmt: skip
DARK: Final = {
    "page": "#0d1117", "panel": "#161b22", "text": "#e6edf3", "muted": "#9da7b3", "accent": "#79c0ff",
    "line": "#6e7681", "working": "#3fb950", "waiting": "#d8b13a", "limited": "#f0883e", "testing": "#58a6ff",
    "reverted": "#c297ff", "failed": "#ff7b72",
}  # fmt: skip
STATES: Final = ("working", "waiting", "limited", "testing", "reverted", "failed")

_RULES: Final = """
body{margin:0 auto;max-width:64rem;padding:1rem;background:var(--page);color:var(--text);
font:1rem/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2}h2{font-size:1.3rem;margin-top:2.5rem}h3{font-size:1.1rem}
h1,h2,h3{margin-bottom:.5rem}
a{color:var(--accent)}code,pre{font-family:ui-monospace,monospace;font-size:.9em}
code{background:var(--panel);padding:.1em .3em;border-radius:.2em}
pre{background:var(--panel);padding:.6rem;white-space:pre-wrap;margin:.3rem 0}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) 1fr;gap:.2rem 1rem;margin:.5rem 0}
dt{color:var(--muted)}dd{margin:0}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0}
thead th{color:var(--muted);font-weight:normal}tbody th{font-weight:normal}
tr{border-bottom:1px solid var(--panel)}
figure{margin:.5rem 0}figcaption,.note{color:var(--muted);font-size:.9rem}
svg{display:block;width:100%;height:auto}svg text{fill:var(--muted);font:11px system-ui,sans-serif}
svg .mark{fill:var(--page);text-anchor:middle;font-weight:bold}
svg .axis{stroke:var(--line);stroke-width:1;fill:none}svg .end{text-anchor:end}
svg .cost{stroke:var(--accent);stroke-width:2;fill:none}
svg .budget{stroke:var(--failed);stroke-width:1.5;stroke-dasharray:6 4}
.needs{border-left:.3rem solid var(--failed);padding-left:1rem}
details{border-bottom:1px solid var(--panel);padding:.2rem 0}details details{border:0;margin-left:1rem}
summary{cursor:pointer}
:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
@media(max-width:40rem){dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:.4rem}
svg text:not(.mark){font-size:18px}}
"""


def _variables(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


_FILLS: Final = "".join(f".{state}{{fill:var(--{state})}}" for state in STATES)
SHEET: Final = (
    f":root{{color-scheme:light dark;{_variables(LIGHT)}}}"
    f"@media(prefers-color-scheme:dark){{:root{{{_variables(DARK)}}}}}{_RULES}{_FILLS}"
)
_HASH: Final = base64.b64encode(hashlib.sha256(SHEET.encode()).digest()).decode()
POLICY: Final = f"default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{_HASH}'"
"""The content security policy: nothing is loaded and no script runs, whatever a run put into the page."""

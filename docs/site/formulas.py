"""A MkDocs hook: formulas become pictures, drawn by matplotlib's mathtext while the site is built.

No script, no font and no network is needed to see them, and they take the colour of the text around them.
"""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any

from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath

EM = 100  # units of a drawing to the size of its font; mathtext rounds to whole ones
FONT = FontProperties(size=EM, math_fontfamily="cm")  # Computer Modern comes with matplotlib
MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
LETTER = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}


def on_page_content(html: str, **_: Any) -> str:
    """Draw what pymdownx.arithmatex has marked."""
    return MARKED.sub(lambda found: drawn(unescape(found[2]).strip(), block=found[1] == "div"), html)


def drawn(tex: str, *, block: bool) -> str:
    """A formula inside a line of text, or on a line of its own; a screen reader gets its TeX."""
    written = "$" + (tex.replace("\\frac", "\\dfrac") if block else tex).replace("\n", " ") + "$"
    width, height, depth, *_ = MathTextParser("path").parse(written, dpi=72, prop=FONT)
    box = f"0 {depth - height:.0f} {width:.0f} {height:.0f}"
    size = f"width:{width / EM:.2f}em;height:{height / EM:.2f}em;vertical-align:{-depth / EM:.2f}em"
    picture = (
        f'<svg class="formula" role="img" aria-label="{escape(tex)}" viewBox="{box}" style="{size}">'
        f'<path d="{outline(TextPath((0, 0), written, size=EM, prop=FONT))}"/></svg>'
    )
    return f'<div class="formula">{picture}</div>' if block else picture


def outline(path: Path) -> str:
    """A path in SVG's words, where y points down."""
    words = []
    for points, code in path.iter_segments(simplify=False):
        pairs = () if code == Path.CLOSEPOLY else points.reshape(-1, 2)
        words.append(LETTER[code] + " ".join(f"{x:.0f} {-y:.0f}" for x, y in pairs))
    return "".join(words)

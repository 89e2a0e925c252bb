"""The script, the style and the charting library, to be put into a page that loads nothing."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

SCRIPTS = ("echarts/echarts.common.min.js", "charts.js", "page.js")


@dataclass(frozen=True)
class Embedded:
    """What a template needs to show the views.

    | field     | meaning                                                                       |
    |-----------|-------------------------------------------------------------------------------|
    | `style`   | CSS                                                                           |
    | `scripts` | JavaScript, in this order                                                     |
    | `policy`  | a Content-Security-Policy that lets these scripts run, and no others          |
    | `data`    | the runs as JSON that is safe inside a script element                         |
    """

    style: str
    scripts: Sequence[str]
    policy: str
    data: str


def embed(content: Mapping[str, Any], *, connect: bool = False) -> Embedded:
    """The views of some runs; with `connect` the page may ask its own server for more."""
    scripts = [_text(name) for name in SCRIPTS]
    hashes = " ".join(f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts)
    rules = {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "script-src": hashes,
        "img-src": "data: blob:",
        "connect-src": "'self'" if connect else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    data = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    policy = "; ".join(f"{name} {value}" for name, value in rules.items())
    return Embedded(style=_text("views.css"), scripts=scripts, policy=policy, data=data)


def _text(name: str) -> str:
    return files("esgd.report.views").joinpath(name).read_text(encoding="utf-8")

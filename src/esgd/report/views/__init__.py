"""Views: a run as something to look at, the same in the report and on the live page."""

from esgd.report.views.assets import Embedded, embed
from esgd.report.views.digest import facts, line_digest, run_digest

__all__ = ["Embedded", "embed", "facts", "line_digest", "run_digest"]

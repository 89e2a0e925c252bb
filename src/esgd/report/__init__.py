"""Report: history lines and comparisons as pictures, tables and one page of HTML that needs nothing but itself."""

from esgd.report.beside import Run, beside_tables
from esgd.report.forms import as_csv, as_latex, as_markdown
from esgd.report.notation import recipe_table
from esgd.report.page import comparison_page, run_page
from esgd.report.sentences import Remark, guarantee, headline, remarks, run_headline
from esgd.report.tables import (
    Table,
    differences_table,
    first_leaders,
    leaders,
    ledger_table,
    published_table,
    run_ledger,
    run_seconds,
    table_1,
)
from esgd.report.writing import write_beside, write_comparison, write_run, write_runs

__all__ = [
    "Remark",
    "Run",
    "Table",
    "as_csv",
    "as_latex",
    "as_markdown",
    "beside_tables",
    "comparison_page",
    "differences_table",
    "first_leaders",
    "guarantee",
    "headline",
    "leaders",
    "ledger_table",
    "published_table",
    "recipe_table",
    "remarks",
    "run_headline",
    "run_ledger",
    "run_page",
    "run_seconds",
    "table_1",
    "write_beside",
    "write_comparison",
    "write_run",
    "write_runs",
]

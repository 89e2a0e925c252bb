"""Table 1, the ledger and the leaders show the numbers of the data."""

from __future__ import annotations

import csv
from io import StringIO
from math import inf, nan
from statistics import fmean, stdev

import pytest

from esgd.ledger import passes
from esgd.report import (
    Table,
    as_csv,
    as_markdown,
    differences_table,
    leaders,
    ledger_table,
    published_table,
    run_ledger,
    run_seconds,
    table_1,
)
from esgd.report.numerals import mean_and_deviation


def column(table, name):
    index = table.columns.index(name)
    return {row[0]: row[index] for row in table.rows}


def test_table_1_has_the_papers_rows_and_the_ones_that_make_it_fair(comparison):
    assert [row[0] for row in table_1(comparison).rows] == [
        "single baseline",
        "population baseline",
        "population baseline, last",
        "ESGD w/o evolution",
        "greedy soup",
        "ESGD",
    ]


def test_table_1_shows_mean_and_deviation_of_the_data(comparison):
    fitness = [entry["fitness"] for entry in comparison["arms"]["esgd"]]
    shown = column(table_1(comparison), "fitness θ_1:μ")["ESGD"]
    mean, deviation = shown.split(" ± ")
    assert float(mean) == pytest.approx(fmean(fitness), rel=1e-3)
    assert float(deviation) == pytest.approx(stdev(fitness), abs=1e-3)


def test_table_1_shows_every_test_metric_and_the_range_of_the_top(comparison):
    table = table_1(comparison)
    assert {"test loss", "test error, %"} <= set(table.columns)
    errors = [entry["test"]["error"] for entry in comparison["arms"]["esgd"]]
    assert column(table, "test error, %")["ESGD"] == mean_and_deviation([100 * error for error in errors])
    assert column(table, "θ_1:μ ↔ θ_4:μ")["single baseline"] == "–"  # a population of 4 has no 15th best
    assert column(table, "θ_1:μ ↔ θ_4:μ")["ESGD"].startswith("[")


def test_the_last_checkpoint_is_not_the_best_one(make_comparison):
    comparison = make_comparison(population=[(0.30, 0.4)], esgd=[(0.29, 0.4)])
    comparison["arms"]["population"][0]["last"] = {"fitness": 0.35, "test": {"loss": 0.5}}
    shown = column(table_1(comparison), "fitness θ_1:μ")
    assert shown["population baseline"] == "0.3000"
    assert shown["population baseline, last"] == "0.3500"


def test_ahead_is_counted_seed_by_seed_and_strictly(make_comparison):
    comparison = make_comparison(single=[(0.5, 0.1), (0.3, 0.5), (0.2, 0.5)], esgd=[(0.4, 0.2), (0.3, 0.4), (0.3, 0.4)])
    comparison["arms"]["single"].reverse()  # paired by seed, not by position
    table = table_1(comparison)
    assert column(table, "ESGD ahead, fitness") == {"single baseline": "1 of 3", "ESGD": "–"}
    assert column(table, "ESGD ahead, test loss")["single baseline"] == "2 of 3"


def test_what_diverged_is_named_and_behind_whatever_did_not(make_comparison):
    comparison = make_comparison(
        single=[(None, None), (float("nan"), None)],
        population=[(0.4, 0.4), (None, None)],
        esgd=[(0.3, 0.3), (0.5, 0.5)],
    )
    table = table_1(comparison)
    assert column(table, "fitness θ_1:μ")["single baseline"] == "diverged"
    assert column(table, "fitness θ_1:μ")["population baseline"] == "0.4000 (1 of 2 diverged)"
    assert column(table, "ESGD ahead, fitness")["population baseline"] == "2 of 2"


def test_without_a_test_split_there_are_no_test_columns(make_comparison):
    comparison = make_comparison(single=[(0.5, 0.1)], esgd=[(0.4, 0.2)])
    for entries in comparison["arms"].values():
        entries[0]["test"] = {}
    assert table_1(comparison).columns == ("arm", "fitness θ_1:μ", "θ_1:μ ↔ θ_15:μ", "ESGD ahead, fitness")


def test_an_arm_of_a_users_own_is_a_row_above_esgd(make_comparison):
    comparison = make_comparison(esgd=[(0.4, 0.2)], clone=[(0.5, 0.3)])
    assert [row[0] for row in table_1(comparison).rows] == ["clone", "ESGD"]
    assert [row[0] for row in ledger_table(comparison).rows] == ["clone", "ESGD"]


def test_the_ledger_compares_work_with_esgd_in_forward_equivalents(comparison):
    work = {arm: fmean(passes(e["ledger"]) for e in entries) for arm, entries in comparison["arms"].items()}
    shown = column(ledger_table(comparison), "work beside ESGD")
    assert shown["ESGD"] == "1.00"
    assert shown["single baseline"] == f"{work['single'] / work['esgd']:.2f}"


def test_the_ledger_shows_samples_by_phase(comparison):
    samples = fmean(entry["ledger"]["sgd_backward"] for entry in comparison["arms"]["esgd"])
    assert column(ledger_table(comparison), "SGD backward")["ESGD"] == f"{samples:,.0f}"


def test_leaders_are_spelt_as_in_the_paper(make_line):
    sgd = {"optimizer": "sgd", "lr": 9.92e-3, "momentum": 0.21, "nesterov": False, "annealing": 0.9}
    scheduled = {"optimizer": "sgd", "lr": 0.1, "schedule": {"kind": "cosine"}, "settings": {"batch_size": 20}}
    history = [
        make_line(1, [2.082]),
        make_line(2, [2.0], leader=sgd),
        make_line(3, [1.9], leader=scheduled),
        make_line(4, [None], leader=None, stage="fine-tuning"),
    ]
    assert leaders(history).rows == (
        ("1", "adam, lr=2.68e-4", "2.082"),
        ("2", "sgd, nesterov=F, lr=9.92e-3, momentum=0.21", "2.000"),
        ("3", "sgd, lr=0.1, batch_size=20, schedule=cosine", "1.900"),
        ("4 (fine-tuning)", "untrained", "diverged"),
    )


def test_leaders_of_a_real_run_have_a_row_for_every_generation(histories):
    history = histories["esgd"][0]
    assert [row[0] for row in leaders(history).rows] == [str(line["k"]) for line in history]


def test_a_run_adds_up_its_samples_and_seconds(make_line):
    history = [make_line(1, [0.5]), make_line(2, [0.4])]
    assert dict(run_ledger(history).rows)["SGD forward"] == "20"
    assert dict(run_seconds(history).rows) == {"sgd": "3.0", "fitness": "0.5", "together": "3.5"}


def test_markdown_shows_markup_and_pipes_as_text():
    text = as_markdown(Table("<b>t</b>", ("a", "b"), (("x|y", "<script>"),), "two\nlines"))
    assert text == ("**&lt;b&gt;t&lt;/b&gt;**\n\n| a | b |\n| --- | ---: |\n| x\\|y | &lt;script&gt; |\n\ntwo lines\n")


def test_csv_reads_back_as_the_table(comparison):
    table = ledger_table(comparison)
    read = [tuple(row) for row in csv.reader(StringIO(as_csv(table)))]
    assert read == [table.columns, *table.rows]


@pytest.mark.parametrize("nothing", [None, nan, inf])
def test_what_is_not_finite_is_named_in_every_table_and_stops_none(make_comparison, make_line, nothing):
    comparison = make_comparison(single=[(nothing, nothing)], esgd=[(0.5, 0.4), (nothing, nothing)])
    for entries in comparison["arms"].values():
        for entry in entries:
            entry["seconds"] = nothing
    rows = {row[0]: row[1:] for row in table_1(comparison).rows}
    assert rows["single baseline"][0] == rows["single baseline"][2] == "diverged"
    assert rows["ESGD"][0] == "0.5000 (1 of 2 diverged)"
    assert all(row[-1] == "–" for row in ledger_table(comparison).rows)
    assert leaders([make_line(1, [None], best=nothing)]).rows[0][-1] == "diverged"


def test_differences_are_paired_by_seed_and_have_an_interval(make_comparison):
    comparison = make_comparison(
        population=[(0.5, 0.5), (0.7, 0.7), (0.6, 0.6)], esgd=[(0.4, 0.6), (0.6, 0.8), (0.5, 0.6)]
    )
    comparison["arms"]["population"].reverse()
    table = differences_table(comparison)
    assert table.columns == ("difference", "fitness", "test loss")
    ((name, fitness, test),) = table.rows
    assert name == "ESGD − population baseline"
    assert fitness == "-0.100 [-0.100, -0.100], 3 of 3"
    assert test == "0.067 [-0.077, 0.210], 0 of 3"


def test_one_seed_has_a_difference_but_no_interval(make_comparison):
    ((_, fitness, _),) = differences_table(make_comparison(single=[(0.5, 0.5)], esgd=[(0.4, 0.4)])).rows
    assert fitness == "-0.100, 1 of 1"


def test_what_diverged_has_no_difference_but_is_counted(make_comparison):
    comparison = make_comparison(single=[(None, None), (0.5, 0.5)], esgd=[(0.4, 0.4), (0.4, 0.4)])
    assert column(differences_table(comparison), "fitness") == {"ESGD − single baseline": "-0.100 (mean of 1), 2 of 2"}


def test_the_papers_own_figures_stand_in_a_table_of_their_own(make_comparison):
    comparison = make_comparison(esgd=[(0.4, 0.4)])
    assert published_table(comparison) is None
    published = {"single": {"loss": 2.082}, "esgd": {"loss": 1.916, "loss_top": (1.916, 1.92)}}
    table = published_table({**comparison, "published": published})
    assert table.columns == ("arm", "loss", "loss_top")
    assert table.rows == (("single baseline", "2.082", "–"), ("ESGD", "1.916", "[1.916, 1.92]"))
    assert "at its own scale" in table.caption


def test_a_cell_that_a_spreadsheet_would_calculate_is_escaped_and_numbers_are_not():
    table = Table(
        "t",
        ("run", "=1+1"),
        (("=cmd|' /C calc'!A0", "-0.0200"), ("@x", "-0.0200 [-0.0448, 0.0048]"), ("+1e-7", "1,234")),
    )
    assert list(csv.reader(StringIO(as_csv(table)))) == [
        ["run", "'=1+1"],
        ["'=cmd|' /C calc'!A0", "-0.0200"],
        ["'@x", "'-0.0200 [-0.0448, 0.0048]"],
        ["+1e-7", "1,234"],
    ]

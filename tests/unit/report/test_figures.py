"""Figures show every generation of the data, ignore who diverged, and are the same twice."""

from __future__ import annotations

import re
import sys
from math import isnan
from statistics import fmean

import pytest

from esgd.errors import MissingExtraError
from esgd.report.figures import GREEN, RED, as_svg, figure_1, figure_2, figure_run, write_png
from esgd.report.series import best, curve, last_of_top


def line_of(axes, colour):
    return next(line for line in axes.lines if line.get_color() == colour)


@pytest.mark.slow
def test_figure_1_has_a_line_for_every_arm_and_two_bands(histories):
    (axes,) = figure_1(histories).axes
    assert len(axes.lines) == 4
    assert len(axes.collections) == 2
    labels = {text.get_text() for text in axes.get_legend().get_texts()}
    assert labels == {"single baseline", "population baseline", "ESGD w/o evolution", "ESGD"}


def test_figure_1_shows_the_mean_best_over_seeds_from_generation_1(histories):
    (axes,) = figure_1(histories).axes
    for arm, colour in (("single", RED), ("esgd", GREEN)):
        shown = line_of(axes, colour)
        expected = [fmean(min(h[i]["fitness"]) for h in histories[arm].values()) for i in range(3)]
        assert list(shown.get_xdata()) == [1, 2, 3]
        assert list(shown.get_ydata()) == pytest.approx(expected)


def test_a_band_reaches_from_the_best_to_the_15th_or_the_worst(make_line):
    many, few = make_line(1, [float(i) for i in range(20, 0, -1)]), make_line(1, [3.0, None, 1.0])
    assert (best(many), last_of_top(many)) == (1.0, 15.0)
    assert (best(few), last_of_top(few)) == (1.0, 3.0)


def test_seeds_that_diverged_are_left_out_of_the_mean_and_a_gap_stays_a_gap(make_line):
    runs = [[make_line(1, [2.0]), make_line(2, [None])], [make_line(1, [4.0]), make_line(2, [None])]]
    shown = curve(runs, best)
    assert shown.values[0] == 3.0
    assert isnan(shown.values[1])
    assert curve([*runs, [make_line(2, [1.0])]], best).values[1] == 1.0


def test_a_wide_range_of_fitness_gets_a_logarithmic_axis(make_line):
    narrow = {"esgd": {0: [make_line(1, [2.0]), make_line(2, [0.2])]}}
    wide = {"esgd": {0: [make_line(1, [9.0]), make_line(2, [0.2])]}}
    assert figure_1(narrow).axes[0].get_yscale() == "linear"
    assert figure_1(wide).axes[0].get_yscale() == "log"


def test_a_population_that_all_diverged_is_said_instead_of_drawn(make_line):
    (axes,) = figure_1({"esgd": {0: [make_line(1, [None])]}}).axes
    assert not axes.lines
    assert "no finite fitness" in [text.get_text() for text in axes.texts]


def test_one_generation_is_still_visible(make_line):
    (axes,) = figure_1({"esgd": {0: [make_line(1, [1.0, 2.0])]}}).axes
    assert axes.lines[0].get_marker() == "o"
    ((low, high),) = [segment[:, 1].tolist() for segment in axes.collections[0].get_segments()]
    assert (low, high) == (1.0, 2.0)
    assert [tick for tick in axes.get_xticks() if tick != round(tick)] == []


def test_figure_2_has_a_light_line_for_every_seed_and_a_bold_mean(histories):
    (axes,) = figure_2(histories).axes
    *light, bold = axes.lines
    assert len(light) == 2
    assert all(line.get_linewidth() < bold.get_linewidth() for line in light)
    shares = [[100 * line["offspring_among_elites"] for line in h] for h in histories["esgd"].values()]
    assert list(bold.get_ydata()) == pytest.approx([fmean(values) for values in zip(*shares, strict=True)])


def test_figure_2_of_one_seed_has_one_line(make_line):
    (axes,) = figure_2({"esgd": {0: [make_line(1, [1.0]), make_line(2, [0.5])]}}).axes
    assert len(axes.lines) == 1


def test_the_picture_of_a_run_shows_shares_only_where_they_are_known(make_line):
    above, below = figure_run([make_line(1, [1.0, 2.0]), make_line(2, [0.5, 1.0])]).axes
    assert len(above.lines) == 2
    assert [list(line.get_ydata()) for line in below.lines] == [[50, 50], [25, 25]]
    _, below = figure_run([make_line(1, [1.0], backed_off=0, checked=0)]).axes
    assert len(below.lines) == 1


def test_svg_is_the_same_twice_and_carries_no_date(histories):
    first, second = (as_svg(figure_1(histories), "figure-1") for _ in range(2))
    assert first == second
    assert first.startswith("<svg")
    assert "<metadata" not in first
    assert "Matplotlib" not in first


def test_ids_of_two_figures_do_not_clash(histories):
    ids = [set(re.findall(r'\sid="([^"]+)"', as_svg(figure_1(histories), name))) for name in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]
    svg = as_svg(figure_1(histories), "a")
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', svg)) <= ids[0]


def test_png_is_300_dots_per_inch_and_the_same_twice(histories, tmp_path):
    for name in ("a.png", "b.png"):
        write_png(figure_2(histories), tmp_path / name)
    read = (tmp_path / "a.png").read_bytes()
    width, height = (int.from_bytes(read[i : i + 4]) for i in (16, 20))
    assert (width, height) == (1440, 1080)
    assert read == (tmp_path / "b.png").read_bytes()


def test_drawing_needs_no_pyplot_and_leaves_no_trace_in_matplotlib(histories, monkeypatch):
    import matplotlib

    def settings():
        return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}

    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    before = settings()
    as_svg(figure_1(histories), "figure-1")
    assert settings() == before


def test_without_matplotlib_the_error_names_the_extra(histories, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"Drawing figures needs matplotlib.*pip install 'esgd\[report\]'"):
        figure_1(histories)

"""The arena's tables and figures."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.arena.arms import HINDSIGHT as SINGLES
from benchmarks.arena.arms import VARIANTS
from benchmarks.arena.compete import BUDGETS
from benchmarks.arena.standings import (
    HINDSIGHT,
    Result,
    critical_difference,
    mean_ranks,
    paired,
    with_hindsight,
)
from benchmarks.plots import DPI, sheet
from esgd.report.figures import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, styled

BEGIN, END = "<!-- written by make arena -->", "<!-- until here -->"
DRAWN = {"ours": GREEN, "halving": BLUE, "pbt": ORANGE, "single": RED, "random_search": PURPLE, "paper": GREY}
POINTS = [each / 20 for each in range(2, 21)]


def insert(page: Path, words: str) -> None:
    """Put the tables between the marks of a page."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{words}\n{END}{after}")


def tables(results: Sequence[Result], ours: str) -> str:
    """For each budget the arms by rank, what is ahead of them by how much, and every task."""
    budgets = (line for budget in BUDGETS for line in _budget(results, budget, ours))
    return "\n".join([*budgets, *_variants(results, ours)])


def _budget(results: Sequence[Result], budget: str, ours: str) -> Iterator[str]:
    all_ = with_hindsight([each for each in results if each["budget"] == budget], list(SINGLES))
    fair = [each for each in all_ if each["arm"] not in (HINDSIGHT, *VARIANTS)]
    if not fair:
        return
    ranks, seeds = mean_ranks(fair, "test"), sorted({each["seed"] for each in fair})
    tasks = list(dict.fromkeys(each["task"] for each in fair))
    yield f"### Budget: {budget}\n"
    yield (
        f"{len(tasks)} tasks, seeds {', '.join(map(str, seeds))}. Ranks that differ by less than "
        f"{critical_difference(fair):.2f} do not differ at the 5% level.\n"
    )
    yield f"| rules | mean rank, test | fitness | `{ours}` − rules, test loss in % [95%] | fitness in % [95%] |"
    yield "|---|---|---|---|---|"
    by_fitness = mean_ranks(fair, "fitness")
    for arm in [*ranks, *sorted({each["arm"] for each in all_} & {HINDSIGHT})]:
        against = ["", ""] if arm == ours else [str(paired(all_, ours, arm, each)) for each in ("test", "fitness")]
        places = [f"{ranks[arm]:.2f}", f"{by_fitness[arm]:.2f}"] if arm in ranks else ["", ""]
        yield f"| {f'`{arm}`' if arm in ranks else arm} | {' | '.join([*places, *against])} |"
    yield "\nTest loss, mean over seeds; in bold the best, and what is better still.\n"
    yield f"| rules | {' | '.join(tasks)} |\n|---|{'---|' * len(tasks)}"
    shown = [*ranks, *sorted({each["arm"] for each in all_} & {HINDSIGHT})]
    losses = {(arm, task): _mean(all_, arm, task) for arm in shown for task in tasks}
    for arm in shown:
        best = {task: min(losses[each, task] for each in ranks) for task in tasks}
        cells = [
            f"**{losses[arm, task]:.4f}**" if losses[arm, task] <= best[task] else f"{losses[arm, task]:.4f}"
            for task in tasks
        ]
        yield f"| {f'`{arm}`' if arm in ranks else arm} | {' | '.join(cells)} |"
    yield "\nShares of the work, and seconds of processor time.\n"
    yield "| rules | spent | SGD | looks | offspring | seconds |\n|---|---|---|---|---|---|"
    for arm in ranks:
        own = [each for each in fair if each["arm"] == arm]
        low, high = min(each["spent"] for each in own), max(each["spent"] for each in own)
        shares = [f"{fmean(each['shares'][name] for each in own):.0%}" for name in ("sgd", "looks", "offspring")]
        cells = [f"{low:.1%} to {high:.1%}", *shares, f"{fmean(each['seconds'] for each in own):.1f}"]
        yield f"| `{arm}` | {' | '.join(cells)} |"
    yield ""


def _variants(results: Sequence[Result], ours: str) -> Iterator[str]:
    """What each part of our rules is worth: with it minus without it."""
    there = [name for name in VARIANTS if any(each["arm"] == name for each in results)]
    if not there:
        return
    yield "### What each part is worth\n"
    yield f"`{ours}` minus the changed rules, in % of their loss: below 0 the part pays off.\n"
    yield "| our rules | budget | test loss [95%] | fitness [95%] |\n|---|---|---|---|"
    for name in there:
        for budget in BUDGETS:
            own = [each for each in results if each["budget"] == budget]
            if any(each["arm"] == name for each in own):
                cells = [str(paired(own, ours, name, metric)) for metric in ("test", "fitness")]
                yield f"| {name} | {budget} | {' | '.join(cells)} |"
    yield ""


def _mean(results: Sequence[Result], arm: str, task: str) -> float:
    own = [each["test"] for each in results if (each["arm"], each["task"]) == (arm, task)]
    return fmean(own) if own else float("nan")


def draw(results: Sequence[Result], folder: Path) -> None:
    """Ranks with their critical difference, and the test loss by work spent."""
    results = [each for each in results if each["arm"] not in (*SINGLES, *VARIANTS)]
    budgets = [budget for budget in BUDGETS if any(each["budget"] == budget for each in results)]
    with styled():
        figure, panels = sheet(10.0, 4.0, len(budgets))
        for budget, axes in zip(budgets, panels, strict=True):
            own = [each for each in results if each["budget"] == budget]
            ranks = mean_ranks(own, "test")
            reach = critical_difference(own) / 2 if ranks else 0.0
            colours = [DRAWN.get(arm, GREY) for arm in ranks]
            axes.errorbar(
                list(ranks.values()), range(len(ranks)), xerr=reach, fmt="none", ecolor=colours, elinewidth=1.2
            )
            axes.scatter(list(ranks.values()), range(len(ranks)), color=colours, zorder=3)
            axes.set(yticks=range(len(ranks)), yticklabels=list(ranks), xlabel=f"mean rank on test loss, {budget}")
            axes.invert_yaxis()
        figure.savefig(folder / "ranks.png", dpi=DPI, metadata={"Software": None})
        figure, panels = sheet(10.0, 4.0, len(budgets))
        for budget, axes in zip(budgets, panels, strict=True):
            for arm, colour in DRAWN.items():
                axes.plot(POINTS, _anytime(results, budget, arm), color=colour, label=arm)
            axes.set(xlabel=f"share of the work, {budget}", ylabel="test loss / best at the end", ylim=(0.95, 2.0))
        panels[-1].legend()
        figure.savefig(folder / "anytime.png", dpi=DPI, metadata={"Software": None})


def _anytime(results: Sequence[Result], budget: str, arm: str) -> list[float]:
    """The test loss of the fittest network so far in units of the best final one of its task and seed, mean over both;
    before its first generation ends a run has none."""
    own = [each for each in results if (each["budget"], each["arm"]) == (budget, arm)]
    best = {
        (each["task"], each["seed"]): min(
            other["test"]
            for other in results
            if (other["task"], other["seed"], other["budget"]) == (each["task"], each["seed"], budget)
        )
        for each in own
    }
    means = []
    for point in POINTS:
        at = [(each, bisect_right([work for work, _ in each["curve"]], point + 0.02)) for each in own]
        seen = [each["curve"][i - 1][1] / best[each["task"], each["seed"]] for each, i in at if i]
        means.append(fmean(seen) if len(seen) == len(own) and own else float("nan"))
    return means

"""The figures: speed against the plain loop, growth, and where the time and the memory of a generation go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esgd.report.figures import BLUE, GREEN, GREY, ORANGE, RED, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Mapping[str, Any]
DPI = 150
AGAINST_PLAIN = " against the plain loop"
SIDES = {
    "auto": (GREEN, "D", "esgd, engine auto"),
    "loop": (ORANGE, "o", "esgd, engines by name"),
    "loop on one thread": (ORANGE, "o", "esgd, engines by name"),
    "vmap": (ORANGE, "o", "esgd, engines by name"),
    "pool of loops": (ORANGE, "o", "esgd, engines by name"),
    "pool of vmaps": (ORANGE, "o", "esgd, engines by name"),
    "jax vmap": (BLUE, "s", "JAX: vmap, scan and step"),
    "jax scan": (BLUE, "s", "JAX: vmap, scan and step"),
    "jax step": (BLUE, "s", "JAX: vmap, scan and step"),
}


def draw(results: Results, folder: Path) -> Iterator[Path]:
    """Write the figures that the results allow; yields their paths."""
    figures = {"speed": speed, "growth": growth, "memory": memory, "generation": generation, "scaling": scaling}
    for name, figure in figures.items():
        if results.get(name):
            with styled():
                figure(results[name]).savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})
            yield folder / f"{name}.png"


def scaling(studies: Results) -> Figure:
    """Predicted seconds of a generation against the number of workers: a line for each of the paper's recipes."""
    figure, (axes,) = sheet(7.0, 4.2)
    for (name, found), colour in zip(studies.items(), (GREEN, BLUE, ORANGE, RED), strict=False):
        axes.plot(found["workers"], found["seconds"], color=colour, label=f"{name}, μ = {found['population']}")
        axes.plot(found["workers"], found["serial"], color=colour, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="workers, one core each", ylabel="seconds of a generation, predicted")
    axes.legend(title="dotted: driver and network alone")
    return figure


def sheet(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False).flat)


def speed(workloads: Results) -> Figure:
    """A line for every workload, a mark for every side, whiskers from the worst repeat to the best.

    Faint is what was measured while others used the machine.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    figure, (axes,) = sheet(9.0, 1.5 + 0.55 * len(workloads))
    seen = set[str]()
    for place, found in enumerate(reversed(workloads.values())):
        for row in found["rows"]:
            side = row["name"].removesuffix(AGAINST_PLAIN)
            if side == row["name"] or side not in SIDES:
                continue
            colour, mark, label = SIDES[side]
            front = side == "auto"
            faint = 0.25 if row["doubt"] else 1.0
            axes.plot(
                [row["low"], row["high"]], [place, place], color=colour, linewidth=1.2, alpha=faint, zorder=2 + front
            )
            shown = label if label not in seen else "_"
            seen.add(label)
            axes.plot(
                row["value"],
                place,
                mark,
                color=colour,
                markersize=8 if front else 6,
                alpha=faint,
                label=shown,
                zorder=3 + front,
            )
            if row["target"]:
                shown = "promised for auto" if "promised" not in seen else "_"
                seen.add("promised")
                axes.plot(row["target"], place, "|", color=RED, markersize=18, markeredgewidth=2, label=shown)
    axes.axvline(1.0, color=GREY, linewidth=1.0, linestyle="--", zorder=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(workloads)), [wrapped(*each) for each in reversed(workloads.items())])
    axes.set_ylim(-0.6, len(workloads) - 0.4)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g} ×")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("times as fast as the plain torch loop")
    figure.legend(loc="outside upper center", ncols=4, columnspacing=1.4, handletextpad=0.4)
    return figure


def wrapped(name: str, found: Mapping[str, Any]) -> str:
    network, _, count = found["about"].rpartition(", ")
    return f"{name}  {network}\n{count}"


def growth(quantities: Results) -> Figure:
    """Seconds of a generation, or of a run, against each size, both logarithmic, beside the line of linear growth."""
    from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

    figure, panels = sheet(3.1 * len(quantities), 3.1, len(quantities))
    for axes, found in zip(panels, quantities.values(), strict=True):
        sizes, seconds = found["sizes"], found["seconds"]
        below = [s - low for s, low in zip(seconds, found["low"], strict=True)]
        above = [high - s for s, high in zip(seconds, found["high"], strict=True)]
        axes.plot(
            sizes, [seconds[0] * size / sizes[0] for size in sizes], "--", color=GREY, linewidth=1.0, label="linear"
        )
        axes.errorbar(
            sizes, seconds, [below, above], color=GREEN, marker="o", markersize=5, capsize=3, label="measured"
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sizes))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel(found["shown"].replace(" (", "\n(").replace(" of the", "\nof the"))
    panels[0].set_ylabel("seconds")
    panels[0].legend(loc="upper left")
    return figure


def memory(engines: Results) -> Figure:
    """Peak memory against λ and against μ, one line for each engine."""
    figure, (left, right) = sheet(7.6, 3.2, 2)
    for (engine, found), colour in zip(engines.items(), (GREEN, ORANGE, BLUE), strict=False):
        offspring, population = found["by_offspring"], found["by_population"]
        left.plot(offspring["offspring"], megabytes(offspring), "o-", color=colour, label=engine)
        right.plot(population["population"], megabytes(population), "o-", color=colour, label=engine)
        left.set_xlabel(f"λ, offspring of {offspring['population']} individuals")
    right.set_xlabel("μ, individuals (λ = 4 μ)")
    left.set_ylabel("peak memory, MB")
    left.legend()
    for axes in (left, right):
        axes.set_ylim(bottom=0)
    return figure


def megabytes(found: Mapping[str, Any]) -> list[float]:
    return [peak / 1e6 for peak in found["peak_bytes"]]


def generation(engines: Results) -> Figure:
    """Seconds of each phase of a generation, one bar for each engine."""
    figure, (axes,) = sheet(7.6, 1.2 + 0.5 * len(engines))
    colours = dict(
        zip(
            ("sgd", "fitness", "evolution", "checkpoint", "everything else"),
            (GREEN, BLUE, ORANGE, RED, GREY),
            strict=True,
        )
    )
    for engine, found in engines.items():
        begun = 0.0
        for phase, seconds in found["phases"].items():
            label = phase if engine == next(iter(engines)) else "_"
            axes.barh(engine, seconds, left=begun, color=colours[phase], height=0.6, label=label)
            begun += seconds
    axes.set_xlabel("seconds a generation")
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    axes.invert_yaxis()
    axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=5, columnspacing=1.2)
    return figure

"""The table of everything that was measured: table.md from results.json, and the figures beside it.

python -m benchmarks.table [--out FOLDER]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.plots import draw
from benchmarks.quiet import LIMIT
from benchmarks.results import Row, arguments, verdict

Results = Mapping[str, Any]
Cells = Sequence[str]
WRONG = {"none": "nothing", "kill": "a worker is killed", "diverge": "an individual diverges"}


def markdown(head: Cells, lines: Sequence[Cells]) -> Iterator[str]:
    """A Markdown table; the first column is text, the others are numbers."""
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    """Three digits that mean something."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def measured(row: Mapping[str, Any]) -> Cells:
    """Quantity, median, spread, target, and whether it was reached."""
    shown = Row(**{name: value for name, value in row.items() if name != "reached"})
    unit = f" {shown.unit}" if shown.unit else ""
    spread = f"{number(shown.low)} – {number(shown.high)}" if shown.low != shown.high else ""
    sign = "≥" if shown.at_least else "≤"
    target = "" if shown.target is None else f"{sign} {shown.target:g}{unit}"
    reached = "**no**" if shown.reached is False else verdict(shown)
    return [f"**{shown.name}**" if target else shown.name, f"{number(shown.value)}{unit}", spread, target, reached]


def promised(results: Results) -> Iterator[str]:
    """Every row that has a target."""
    lines = [
        [part, *measured(row)]
        for section in (
            "speed",
            "auto",
            "ray",
            "generation",
            "memory",
            "growth",
            "thousand",
            "length",
            "loader",
            "cluster",
        )
        for part, found in results.get(section, {}).items()
        for row in found["rows"]
        if row["target"] is not None
    ]
    yield "## What was promised"
    yield ""
    plain = [[part, what.strip("*"), *rest] for part, what, *rest in lines]
    yield from markdown(("", "quantity", "median", "spread", "target", "reached"), plain)


def speed(results: Results) -> Iterator[str]:
    """Every workload with all its sides: ratios, seconds of a round, and the one-off cost before the first."""
    for part, found in results.get("speed", {}).items():
        yield f"## {part}: {found['about']}"
        yield ""
        yield from markdown(("quantity", "median", "spread", "target", "reached"), list(map(measured, found["rows"])))
        yield ""
        sides = [side for side in found["seconds"] if side != "gemm"]
        yield from markdown(
            ("side", "seconds a round", "one-off seconds before"),
            [[side, number(median(found["seconds"][side])), number(found["one_off"][side])] for side in sides],
        )
        yield ""
        if found["engine"]:
            yield f"*auto* chose `{found['engine']}`."
        if found["gemm_rate"]:
            yield f"Matrix products on this machine: {found['gemm_rate'] / 1e9:.0f} GFLOP/s."
        yield from (f"Missing: *{side}* ({reason})." for side, reason in found["missing"].items())
        if (found["busy"] or 0.0) > LIMIT:
            yield f"**Others used {found['busy']:.0%} of the machine when this was measured.**"
        yield ""


def ray(results: Results) -> Iterator[str]:
    for part, found in results.get("ray", {}).items():
        yield f"## {part} against Ray Tune: {found['about']}"
        yield ""
        yield from markdown(("quantity", "median", "spread", "target", "reached"), list(map(measured, found["rows"])))
        yield ""
        yield from markdown(
            ("seconds", "net of start-up", "in total", "best fitness at the end"),
            [
                [name, *(number(median(each[what] for each in found[key])) for what in ("net", "seconds", "fitness"))]
                for name, key in (("ours, auto", "ours"), ("Ray Tune PBT", "ray"))
            ],
        )
        yield ""


def generation(results: Results) -> Iterator[str]:
    for part, found in results.get("generation", {}).items():
        yield f"## A generation, {part}: {found['about']}"
        yield ""
        yield from markdown(("quantity", "median", "spread", "target", "reached"), list(map(measured, found["rows"])))
        yield ""
        total = sum(found["phases"].values())
        shares = [[name, number(seconds), f"{seconds / total:.1%}"] for name, seconds in found["phases"].items()]
        yield from markdown(("phase", "seconds", "share"), shares)
        yield ""


def auto(results: Results) -> Iterator[str]:
    """Whole runs by our rules, with the engine that was chosen."""
    if found := results.get("auto", {}):
        yield "## Whole runs with auto, beside loop"
        yield ""
        head = ("task", "loop / auto", "spread", "seconds with auto", "engine")
        rows = {task: [*map(measured, part["rows"])] for task, part in found.items()}
        lines = [
            [task, *ratio[1:3], seconds[1], f"`{found[task]['engine']}`"] for task, (ratio, seconds) in rows.items()
        ]
        yield from markdown(head, lines)
        yield ""


def rest(results: Results) -> Iterator[str]:
    for section, title in (
        ("memory", "Memory"),
        ("growth", "Growth"),
        ("thousand", "A thousand networks"),
        ("length", "Long runs"),
    ):
        rows = [[part, *measured(row)] for part, found in results.get(section, {}).items() for row in found["rows"]]
        if rows:
            yield f"## {title}"
            yield ""
            yield from markdown(("", "quantity", "median", "spread", "target", "reached"), rows)
            yield ""


def mishaps(results: Results) -> Iterator[str]:
    """A line for every mishap and method; runs that did not end say so."""
    runs = {part: found for part, found in results.get("mishaps", {}).items() if part != "code"}
    if not runs:
        return
    yield f"## When something goes wrong: {next(iter(runs.values()))['about']}"
    yield ""
    undisturbed = {name: some[0].get("digest") for name, some in runs.get("none", {}).get("answers", {}).items()}
    yield from markdown(
        ("", "method", "seconds", "SGD steps of those asked for", "written", "left on disk", "best fitness", "then"),
        [
            [WRONG[part], name, *fared(some, undisturbed.get(name) if part == "kill" else None)]
            for part, found in runs.items()
            for name, some in found["answers"].items()
        ],
    )
    yield ""
    busiest = max(found["busy"] or 0.0 for found in runs.values())
    if busiest > LIMIT:
        yield f"**Others used up to {busiest:.0%} of the machine when this was measured.**"
        yield ""
    if code := results["mishaps"].get("code"):
        counts = (f"{row['name']} {row['value']:.0f}" for row in code["rows"])
        yield f"Lines of a user's code, {code['about']}: {', '.join(counts)}."
        yield ""


def fared(answers: Sequence[Mapping[str, Any]], undisturbed: str | None) -> Cells:
    """What became of the runs of one method: medians, and the fate of the first."""
    ended = [answer for answer in answers if "error" not in answer]
    if not ended:
        return ["", "", "", "", "", answers[0]["error"]]
    of = {what: median(answer[what] for answer in ended) for what in ("seconds", "steps", "written", "kept", "fitness")}
    megabytes = [f"{number(of[what] / 1e6)} MB" for what in ("written", "kept")]
    return [number(of["seconds"]), f"{of['steps']:.1%}", *megabytes, number(of["fitness"]), fate(ended[0], undisturbed)]


def fate(answer: Mapping[str, Any], undisturbed: str | None) -> str:
    """In words: how many individuals are there at the end, what was lost, and is it the result of the quiet run?"""
    words = [f"{answer['finite']} of {answer['asked']} individuals with a fitness"]
    words += [f"{answer['failed']} given up"] if answer["failed"] else []
    words += [f"{answer['lost']} worker lost and its work begun again"] if answer["lost"] else []
    words += [f"{answer['undone']} diverged SGD steps undone"] if answer.get("undone") else []
    if undisturbed is not None:
        words.append(
            "bit-identical to the undisturbed run" if answer["digest"] == undisturbed else "not the undisturbed result"
        )
    return ", ".join(words)


def page(results: Results) -> str:
    """The whole of table.md."""
    parts = [found for section in results.values() for found in section.values()]
    machines = sorted({json.dumps(found["measured"], sort_keys=True) for found in parts})
    words = [
        "{processor}, {cores} cores; Python {python}, torch {torch}; {date}".format(**json.loads(machine))
        for machine in machines
    ]
    lines = ["# Measured", "", *(f"{each}." for each in words), ""]
    lines += ["A ratio above 1 says that the first-named is faster. Written by `make bench`.", ""]
    for chapter in (promised, speed, auto, ray, mishaps, generation, rest):
        lines += [*chapter(results), ""]
    return "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"


def write(folder: Path) -> None:
    """table.md and the figures, from what results.json holds by now."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    (folder / "table.md").write_text(page(results), encoding="utf-8")
    for path in draw(results, folder):
        print(path)
    print(folder / "table.md")


if __name__ == "__main__":
    write(arguments(__doc__).out)

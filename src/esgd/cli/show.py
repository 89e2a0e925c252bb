"""Tables on the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from esgd._serialization import encode
from esgd._wording import duration
from esgd.policies import phrase
from esgd.report import Run, Table, beside_tables, differences_table, ledger_table, published_table, table_1

WIDE = 120  # columns
PARTS = {"sgd": "for SGD", "breeding": "for evolution", "driver": "for the driver", "network": "for the network"}


Show = Callable[[dict[str, Any], Console], None]


def print_value(as_json: bool, value: dict[str, Any], show: Show) -> None:
    """Print one JSON object, or what `show` makes of it."""
    if as_json:
        print(json.dumps(encode(value), indent=2, ensure_ascii=False))
    else:
        show(value, Console())


def show_comparison(comparison: dict[str, Any], console: Console) -> None:
    """Print the paper's table 1 for this task, the differences between the arms, and the ledger."""
    tables = (table_1(comparison), published_table(comparison), differences_table(comparison), ledger_table(comparison))
    _show_tables(comparison, [table for table in tables if table is not None and table.rows], console)


def show_contest(contest: dict[str, Any], console: Console, *, runs: Sequence[Run]) -> None:
    """Print what rules reached at equal work, and how far the first are ahead of the others."""
    _show_tables(contest, beside_tables(runs), console)


def _show_tables(compared: dict[str, Any], tables: Sequence[Table], console: Console) -> None:
    console.print(f"\n{compared['task']}: {compared['about']}\n", highlight=False, markup=False)
    for table in tables:
        console.print(table.title, markup=False, style="bold", highlight=False)
        console.print(_rich(table, console.width))
        console.print(table.caption, "", sep="\n", markup=False, highlight=False)


def show_result(summary: dict[str, Any], console: Console) -> None:
    """Print the result of a run."""
    leader = phrase(summary["leader"]) if summary["leader"] else "untrained"
    known = {name: "–" if value is None else f"{value:.4g}" for name, value in summary["test"].items()}
    metrics = "  ".join(f"{name} {value}" for name, value in known.items())
    console.print(
        f"fitness {summary['fitness']:.6g}" + (f"   test: {metrics}" if metrics else ""),
        f"guarantee held in {summary['guarantee_held']} of {summary['generations']} generations",
        *([f"stopped early: {summary['stopped']}"] if summary["stopped"] else []),
        f"leader: {leader}",
        *([summary["verdict"]] if summary["verdict"] else []),
        f"model: {summary['run']}/model.safetensors",
        sep="\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def show_costs(explained: dict[str, Any], console: Console) -> None:
    """Print symbols, operators and costs."""
    symbols = ", ".join(f"{name} = {value}" for name, value in explained["symbols"].items())
    console.print(f"{explained['task']}: {symbols}", highlight=False, markup=False)
    operators = {name: value for name, value in explained["recipe"].items() if isinstance(value, dict)}
    for name, value in operators.items():
        console.print(f"  {name:<14}{_spelt(value)}", highlight=False, markup=False, soft_wrap=True)
    costs = explained["cost"]
    console.print(
        f"An individual has {costs['parameters']:,} parameters.",
        f"The individuals are trained for {costs['sgd_epochs']:,} epochs in total.",
        f"The fitness is evaluated {costs['fitness_evaluations']:,} times (early abort can save samples).",
        f"Memory for rows: {_bytes(costs['memory_bytes'])}; on disk: {_bytes(costs['checkpoint_bytes'])}.",
        f"Time on this machine: about {duration(costs['seconds'])}. An epoch takes {costs['seconds_per_epoch']:.3g} s, "
        f"a fitness {costs['seconds_per_evaluation']:.3g} s (just measured).",
        *_before(costs),
        *_on_gpus(costs),
        *_on_cluster(costs.get("cluster")),
        sep="\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _before(costs: dict[str, Any]) -> list[str]:
    before = costs.get("seconds_before")
    return [f"The network that all individuals start from takes another {duration(before)}."] if before else []


def _on_gpus(costs: dict[str, Any]) -> list[str]:
    if "gpus" not in costs:
        return []
    return [
        f"At best {duration(costs['seconds_on_gpus'])} on {costs['gpus']} GPUs of {costs['gpu_tflops']:g} TFLOP/s each,"
        " by the ratio of matrix rates",
        f"(this machine: {costs['matrix_tflops_here']:.2g} TFLOP/s). Small networks take much longer than this.",
        f"While it trains, an individual needs about {_bytes(costs['bytes_on_gpu'])} of a GPU, "
        f"{_bytes(costs['activation_bytes'])} of them saved activations of a batch. "
        f"{costs['individuals_on_gpu']:,} fit into {costs['gpu_memory']:g} GB at once (vmap:chunk=…).",
    ]


def _on_cluster(costs: dict[str, Any] | None) -> list[str]:
    if costs is None:
        return []
    shares = ", ".join(f"{duration(costs[part])} {words}" for part, words in PARTS.items())
    return [
        f"A generation takes about {duration(costs['seconds'])} on {costs['workers']} workers, one core each: "
        f"{shares}.",
        f"It moves {_bytes(costs['bytes_moved'])}. {costs['per_node']} workers on a node need "
        f"{_bytes(costs['memory_per_node'])} there, without data and activations.",
    ]


def _rich(table: Table, width: int) -> RichTable:
    """A table whose cells never wrap; a narrow terminal shows means without their deviations."""
    rows = [[escape(cell if width >= WIDE else cell.partition(" ± ")[0]) for cell in row] for row in table.rows]
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=(0, 0), pad_edge=False, show_edge=False)
    for number, column in enumerate(table.columns):
        widest = max(map(cell_len, [*column.split(), *(row[number] for row in rows)]))
        drawn.add_column(escape(column), justify="left" if number == 0 else "right", width=widest)
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _spelt(value: Any) -> str:
    if not isinstance(value, dict):
        return ", ".join(_spelt(item) for item in value) if isinstance(value, list) else str(value)
    fields = ", ".join(f"{name}={_spelt(item)}" for name, item in value.items() if name != "kind" and item != {})
    kind = str(value.get("kind", "")).rpartition(":")[2]
    return f"{kind}({fields})" if fields else kind


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"

"""What every tracker receives: the same curves under the same names, and the recipe as flat settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from esgd.progress.tracking import Record
from esgd.run.tables import flattened


def curves(record: Record) -> dict[str, float]:
    """The numbers of a generation by name; those that are not finite or not known are left out.

    | curve                       | meaning                                                                   |
    |-----------------------------|---------------------------------------------------------------------------|
    | `fitness/best`, `…/elites`, `…/mean` | of the fittest, the m elites, the population                      |
    | `evolution/offspring_share` | share of the elites that were born in this generation                     |
    | `evolution/diversity`       | root-mean-square distance of two individuals                              |
    | `evolution/founders`        | individuals of the initial population that still have descendants         |
    | `sgd/backed_off_share`      | share of the checked SGD updates that were backed off                     |
    | `leader/lr`                 | the learning rate that the fittest last accepted                          |
    | `metrics/NAME`              | of the fittest, on the fitness split                                      |
    | `test/NAME`                 | of the fittest, on the split that selection never sees                    |
    | `seconds/total`             | of the generation                                                         |

    >>> curves({"k": 1, "best": 0.5, "mean": None, "leader": {"optimizer": "adam", "lr": 0.01}})
    {'fitness/best': 0.5, 'leader/lr': 0.01}
    """
    leader, seconds, checked = record.get("leader") or {}, record.get("seconds"), record.get("checked")
    values = {
        "fitness/best": record.get("best"),
        "fitness/elites": record.get("elite_mean"),
        "fitness/mean": record.get("mean"),
        "evolution/offspring_share": record.get("offspring_among_elites"),
        "evolution/diversity": record.get("diversity"),
        "evolution/founders": record.get("founders"),
        "sgd/backed_off_share": record["backed_off"] / checked if checked else None,
        "leader/lr": leader.get("lr"),
        **{f"metrics/{name}": value for name, value in (record.get("metrics") or {}).items()},
        **{f"test/{name}": value for name, value in (record.get("test") or {}).items()},
        "seconds/total": sum(seconds.values()) if seconds else None,
    }
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def settings(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe, the seed and what the run was made with, as flat names and scalars.

    >>> settings({"seed": 3, "recipe": {"population": 16, "backoff": {"kind": "per_epoch"}}})
    {'population': 16, 'backoff.kind': 'per_epoch', 'seed': 3}
    """
    chosen = {name: manifest[name] for name in ("seed", "engine", "versions") if name in manifest}
    both = {**manifest.get("recipe", {}), **chosen}
    return dict(flattened(both, separator=".", first=0))

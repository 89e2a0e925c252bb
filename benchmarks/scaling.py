"""How would the paper's four recipes scale to a thousand workers? A prediction, from costs that are measured here.

    python -m benchmarks.scaling [--only bn50,ptb]

Seconds of an epoch and of a fitness at the paper's scale are those of one core of this machine; the rest is the model
of `esgd explain --workers`. CIFAR-10 and Penn Treebank must be where `esgd data` puts them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.results import Row, arguments, save
from esgd.costs import cost
from esgd.errors import MissingDataError
from esgd.scaling import Workers, generation
from esgd.studies import Study, find_study

EXPERIMENTS = ("bn50", "swb300", "cifar10", "ptb")
COUNTS = sorted({round(10 ** (step / 16)) for step in range(49)})  # 1 to 1,000


def measured(study: Study) -> dict[str, Any]:
    """One worker's costs; where users have to bring the data, those of invented ones."""
    try:
        task, share = study.task(0), 1.0
    except MissingDataError:
        assert study.rehearsal is not None
        task, share = study.rehearsal.task(), study.rehearsal.share
    found: dict[str, Any] = cost(task, study.recipe, workers=Workers(1), share=share)["cluster"]
    return found


def main() -> None:
    given = arguments(__doc__)
    for name in given.only or EXPERIMENTS:
        study = find_study(f"{name}@paper")
        one = measured(study)
        lines = [
            generation(
                study.recipe,
                row=one["row_bytes"],
                individual=one["seconds_per_individual"],
                evaluation=one["seconds_per_evaluation"],
                workers=Workers(count),
            )
            for count in COUNTS
        ]
        speed_up = [lines[0]["seconds"] / line["seconds"] for line in lines]
        rows = [
            Row(name=f"predicted speed-up on {count:,} workers", value=value, low=value, high=value)
            for count, value in zip(COUNTS, speed_up, strict=True)
            if count in (10, 100, 1000)
        ]
        save(
            given.out,
            "scaling",
            name,
            rows,
            population=study.recipe.population,
            workers=COUNTS,
            seconds=[line["seconds"] for line in lines],
            serial=[line["driver"] + line["network"] for line in lines],
            one=one,
        )


if __name__ == "__main__":
    main()

"""The history as tidy tables: flat rows of numbers and words, for pandas, CSV and Parquet."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from esgd.errors import MissingExtraError, RecipeError, RunError, did_you_mean

if TYPE_CHECKING:
    from pandas import DataFrame

Frame: TypeAlias = "DataFrame"
Line = Mapping[str, Any]
MOST_COLUMNS = 500
Row = dict[str, Any]

_LISTS = ("fitness", "policies", "births", "notes")
_FORMULA = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")  # the last four are the wide forms of the first
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?", re.ASCII)
_NULLABLE = {"rank": "Int64", "born": "Int64", "founder": "Int64", "accepted": "boolean"}


def generations(history: Sequence[Line]) -> list[Row]:
    """A row for every generation: everything in its line but the lists, and the health notes as words.

    What is nested gets a name with an underscore: `leader_lr`, `test_loss`, `ledger_sgd_backward`, `seconds_sgd`.
    """
    return _even(
        {
            **_columns({name: value for name, value in line.items() if name not in _LISTS}),
            "notes": " ".join(note["text"] for note in line.get("notes", ())),
        }
        for line in history
    )


def individuals(history: Sequence[Line]) -> list[Row]:
    """A row for each individual of a generation: the μ of Ψ^(k), the fittest first, then those that gave way.

    | column                          | meaning                                                                     |
    |---------------------------------|-----------------------------------------------------------------------------|
    | `k`, `id`                       | the generation; the individual, which keeps its id for life                   |
    | `survived`, `rank`, `elite`     | is in Ψ^(k); at which rank from 1; among the m elites                       |
    | `fitness`                       | at the end of the generation, or when it gave way; none if it diverged      |
    | `trained`                       | took an SGD step in this generation: it was there before                    |
    | `before`, `after`, `accepted`   | fitness before and after the SGD step; whether the update was kept          |
    | `optimizer`, `lr`, `momentum` … | what it was trained with; `settings_…` are the task's                       |
    | `born`, `parents`, `kind`       | its birth: generation, ids of its mates, "clone", "mean", "soup" …          |
    | `sigma`, `founder`              | mutation strength; lineage                                                  |
    """
    births: dict[str, Mapping[str, Any]] = {}
    return _even(row for line in history for row in _everybody(line, births))


def csv_cell(value: Any) -> Any:
    """A value as it goes into CSV: a text that a spreadsheet would take for a formula gets an apostrophe in front.

    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell(-0.5)
    ("'=1+1", '-0.5', -0.5)
    """
    formula = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


TABLES: Mapping[str, Callable[[Sequence[Line]], list[Row]]] = {"generations": generations, "individuals": individuals}


def as_frame(history: Sequence[Line], of: str) -> Frame:
    """One of `TABLES` as a pandas DataFrame."""
    if of not in TABLES:
        raise RecipeError(f"{of!r} is not a table of a history. {did_you_mean(of, TABLES)}")
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError("pandas", "pandas", "A DataFrame") from error
    frame = pandas.DataFrame(TABLES[of](history))
    return frame.astype({name: kind for name, kind in _NULLABLE.items() if name in frame})


def _everybody(line: Line, births: dict[str, Mapping[str, Any]]) -> Iterator[Row]:
    """The rows of a generation; `births` remembers where those came from that are met again."""
    births.update((birth["id"], birth) for birth in line["births"])
    policies = {policy["id"]: policy for policy in line["policies"]}
    alive = list(zip((birth["id"] for birth in line["births"]), line["fitness"], strict=True))
    for rank, (id_, fitness) in enumerate(sorted(alive, key=lambda each: (each[1] is None, each[1])), start=1):
        standing = {"survived": True, "rank": rank, "elite": rank <= line["elites"], "fitness": fitness}
        yield {"k": line["k"], "id": id_, **standing, **_step(policies.get(id_)), **_birth(id_, births)}
    survivors = {id_ for id_, _ in alive}
    for id_ in [id_ for id_ in policies if id_ not in survivors]:
        standing = {"survived": False, "rank": None, "elite": False, "fitness": policies[id_]["after"]}
        yield {"k": line["k"], "id": id_, **standing, **_step(policies[id_]), **_birth(id_, births)}


def _step(policy: Mapping[str, Any] | None) -> Row:
    if policy is None:
        return {"trained": False}
    outcome = {name: policy[name] for name in ("before", "after", "accepted")}
    rest = {name: value for name, value in policy.items() if name not in ("id", *outcome)}
    return {"trained": True, **outcome, **_columns(rest)}


def _birth(id_: str, births: Mapping[str, Mapping[str, Any]]) -> Row:
    birth = births.get(id_, {})  # births of the initial population are not recorded
    return {
        "born": int(id_.split(".")[0]),
        "parents": " ".join(birth.get("parents", ())),
        "kind": birth.get("kind", ""),
        "sigma": birth.get("sigma"),
        "founder": birth.get("founder"),
    }


def _columns(value: Mapping[str, Any]) -> Row:
    return dict(flattened(value, separator="_", first=1))


def flattened(value: Any, *, separator: str, first: int, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Scalars with the names of where they are; the items of a list are numbered from `first` on.

    >>> dict(flattened({"lr": 0.1, "betas": [0.9, 0.99]}, separator="_", first=1))
    {'lr': 0.1, 'betas_1': 0.9, 'betas_2': 0.99}
    """
    if isinstance(value, Mapping):
        pairs = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(str(number), item) for number, item in enumerate(value, start=first)]
    else:
        yield prefix, value
        return
    for name, item in pairs:
        inner = f"{prefix}{separator}{name}" if prefix else name
        yield from flattened(item, separator=separator, first=first, prefix=inner)


def _even(rows: Iterator[Row]) -> list[Row]:
    """All rows with the columns of all, in the order of their first appearance."""
    made = list(rows)
    columns = list(dict.fromkeys(name for row in made for name in row))
    if len(columns) > MOST_COLUMNS:
        raise RunError(
            f"the history names {len(columns)} columns, more than the {MOST_COLUMNS} that a table may have. No run of "
            f"esgd writes that many settings. Is the file another's?"
        )
    return [{name: row.get(name) for name in columns} for row in made]

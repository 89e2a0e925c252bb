"""The last state of a run: what is kept of it while the next generation is made, and the generation it ends with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from weakref import ref

from esgd._text.json_numbers import number
from esgd.generation import Generation, Note, State
from esgd.ledger import Ledger
from esgd.ranges import read_ranges


class LastState:
    """The state to return when a run is interrupted. With a run folder, `load` reads it from there.

    Without one, it is the whole state as long as the algorithm still holds it, which is during the SGD step. After
    that its population is the fittest network alone: to keep all of it would be a third population in memory.
    """

    def __init__(self, load: Callable[[], tuple[State | None, object]]) -> None:
        self._load = load
        self._whole: Callable[[], State | None] = lambda: None
        self._rest: State | None = None

    def keep(self, state: State) -> None:
        """A generation has ended with this state."""
        self._whole, self._rest = ref(state), replace(state, population=state.archive)

    def again(self) -> State | None:
        """The state after the last generation that was finished; None if there is none."""
        return self._load()[0] or self._whole() or self._rest


def last_generation(state: State) -> Generation:
    """What `evolve` yielded when it made this state, read from its history line. What was not finite is inf.

    Stop rules are asked about it again when a run continues.
    """
    line, fared = state.history[-1], [each for each in state.past if each.k == state.k]
    ids = [each["id"] for each in line["policies"]]
    return Generation(
        k=state.k,
        stage=line["stage"],
        population=state.population,
        elites=line["elites"],
        policies=tuple(each.policy for each in fared),
        before=tuple(zip(ids, (each.before for each in fared), strict=True)),
        after=tuple(each.after for each in fared),
        accepted=tuple(each.accepted for each in fared),
        backed_off=line["backed_off"],
        checked=line["checked"],
        diverged=line["diverged"],
        offspring_among_elites=line["offspring_among_elites"],
        guarantee=line["guarantee"],
        waiver=line["waiver"],
        work=_work(line["ledger"], line["seconds"], line["bytes_moved"]),
        seconds=sum(line["seconds"].values()) - line["seconds"]["checkpoint"],
        test={name: number(value) for name, value in line["test"].items()},
        pick=number(line["pick"]["loss"]) if "pick" in line else None,
        metrics={name: number(value) for name, value in line.get("metrics", {}).items()},
        select=tuple(line["select"].values()) if "select" in line else None,
        ranges=read_ranges([line]),
        notes=tuple(Note(note["kind"], note["text"]) for note in line["notes"]),
        state=state,
    )


def _work(ledger: dict[str, int], seconds: dict[str, float], moved: int) -> Ledger:
    named = ledger | {f"seconds_{phase}": spent for phase, spent in seconds.items()} | {"bytes_moved": moved}
    return Ledger(**{each.name: named[each.name] for each in fields(Ledger)})  # type: ignore[arg-type]

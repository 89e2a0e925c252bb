"""Words as chains of hidden Markov states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from esgd.errors import DataError, did_you_mean

STATES_PER_PHONE = 3  # beginning, middle, end
SILENCE = "SIL"


@dataclass(frozen=True, eq=False)
class Lexicon:
    """How words are pronounced, and which states a pronunciation runs through: three for every phone.

    >>> lexicon = Lexicon({"NO": [["N", "OW"]]}, ["N", "OW", "SIL"])
    >>> lexicon.states, lexicon.chains("NO"), lexicon.silence
    (9, [[0, 1, 2, 3, 4, 5]], [6, 7, 8])
    """

    pronunciations: Mapping[str, Sequence[Sequence[str]]]
    phones: Sequence[str]

    def __post_init__(self) -> None:
        if SILENCE not in self.phones:
            raise DataError(
                f"the phones {', '.join(self.phones)} have no {SILENCE!r}. Between words people pause, and the frames "
                f"of a pause need a phone of their own. Add {SILENCE} to the list of phones."
            )
        for word, ways in self.pronunciations.items():
            if not ways or not all(ways):
                raise DataError(f"the lexicon has {word!r} without a pronunciation. Give it at least one phone.")
            for phone in (phone for way in ways for phone in way):
                if phone not in self.phones:
                    raise DataError(
                        f"the lexicon has the phone {phone!r} in {word!r}, which is not in the list of phones. "
                        f"{did_you_mean(phone, self.phones)}"
                    )

    @property
    def states(self) -> int:
        """How many states there are: the outputs of an acoustic model."""
        return STATES_PER_PHONE * len(self.phones)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(sorted(self.pronunciations))

    @property
    def silence(self) -> list[int]:
        """The states of a pause."""
        return self._chain([SILENCE])

    def chains(self, word: str) -> list[list[int]]:
        """The states of a word, one chain for every pronunciation."""
        if word not in self.pronunciations:
            raise DataError(
                f"the lexicon has no {word!r}, so it cannot be pronounced. {did_you_mean(word, self.pronunciations)}"
            )
        return [self._chain(way) for way in self.pronunciations[word]]

    def _chain(self, phones: Sequence[str]) -> list[int]:
        firsts = [STATES_PER_PHONE * self.phones.index(phone) for phone in phones]
        return [first + state for first in firsts for state in range(STATES_PER_PHONE)]

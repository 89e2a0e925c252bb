"""AN4 with a state for every frame: what the miniatures of the paper's two speech experiments train on.

Eight of the 74 training speakers are held out, as fitness; ten others are the publisher's test. Feature scaling,
Gaussians, alignment network, priors and language model know the other 66 speakers only: the states of held-out and test
frames are what those models make of them and of their transcripts.

Which speakers are held out does not depend on the seed. One alignment then serves every seed and every arm. Seeds
differ in the frames that are trained on and scored, initial networks, policies and the order of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from esgd.errors import DataError
from esgd.randomness import Seeds
from esgd_paper.data.an4 import CEPSTRA, Speech, Utterance, an4
from esgd_paper.data.folders import data_folder
from esgd_paper.speech.align import flat_start, viterbi_training
from esgd_paper.speech.decoder import WordLoop
from esgd_paper.speech.features import Features, Scaling, normalised, with_deltas
from esgd_paper.speech.graph import Graph, fewest_frames, transcript_graph
from esgd_paper.speech.language import Bigram, witten_bell
from esgd_paper.speech.lexicon import Lexicon
from esgd_paper.speech.network import log_priors, network_scores
from esgd_paper.speech.scoring import Recogniser
from esgd_paper.speech.viterbi import Scores, States, align

ACOUSTIC_SCALE, PRIOR_WEIGHT = 0.15, 0.8
"""Chosen once, on the held-out speakers: of five scales from 0.08 to 0.18 and five weights from 0.5 to 1 they gave the
fewest wrong words over twelve trained networks of both miniatures (decision 17)."""


@dataclass(frozen=True, eq=False)
class Labelled:
    """Utterances: their words, features (frames, 39) with Δ and ΔΔ, and the state of every frame (frames,)."""

    names: tuple[str, ...]
    words: tuple[tuple[str, ...], ...]
    features: tuple[Features, ...]
    states: tuple[States, ...]


@dataclass(frozen=True, eq=False)
class Corpus:
    """Three sets of speakers, and what is needed to recognise words. Priors and bigram are of `train` alone."""

    train: Labelled
    held_out: Labelled
    test: Labelled
    lexicon: Lexicon
    bigram: Bigram
    log_priors: NDArray[np.float32]

    def recogniser(
        self, spoken: Labelled, *, scale: float = ACOUSTIC_SCALE, prior_weight: float = PRIOR_WEIGHT
    ) -> Recogniser:
        """What judges an acoustic model by the words it recognises in some of the utterances."""
        return Recogniser(WordLoop.of(self.lexicon), self.bigram, self.log_priors, spoken.words, scale, prior_weight)


def an4_corpus(folder: Path | None = None) -> Corpus:
    """AN4, aligned; once per process and folder, because it takes seconds. Nothing is written to the folder."""
    return _an4_corpus(folder, data_folder(folder).resolve())


@cache
def _an4_corpus(folder: Path | None, where: Path) -> Corpus:
    """`where` is what `folder` means now: the environment may name another one later."""
    speech = an4(folder)
    return labelled(speech, held_out=held_out_speakers(speech))


def held_out_speakers(speech: Speech) -> tuple[str, ...]:
    """Every ninth training speaker by name, from the fifth on: names begin with f or m, so both are in proportion."""
    return tuple(sorted({utterance.speaker for utterance in speech.train})[4::9])


def labelled(speech: Speech, *, held_out: Collection[str]) -> Corpus:
    """Align all utterances with models of the training speakers who are not held out."""
    if isinstance(held_out, str):
        raise DataError(
            f"held_out={held_out!r} is one name. It is a collection of speakers; the letters of a name would be taken "
            f"for speakers. Write held_out=({held_out!r},)."
        )
    lexicon = Lexicon(speech.lexicon, speech.phones)
    for utterance in (*speech.train, *speech.test):
        _check(utterance, lexicon)
    train = [utterance for utterance in speech.train if utterance.speaker not in held_out]
    fitness = [utterance for utterance in speech.train if utterance.speaker in held_out]
    _check_speakers(train, fitness, speech.test)

    sets = [_Spoken.of(utterances, lexicon) for utterances in (train, fitness, speech.test)]
    scaling = Scaling.of(sets[0].features)
    known, heard, unheard = (replace(each, features=[scaling(x) for x in each.features]) for each in sets)

    flat = [flat_start(each.words, len(each.features), lexicon) for each in train]
    aligned = viterbi_training(known.features, known.graphs, flat, states=lexicon.states)
    score = network_scores(known.features, aligned.states, count=lexicon.states, seeds=Seeds(0, ("alignment",)))
    final = known.labelled(score)
    return Corpus(
        train=final,
        held_out=heard.labelled(score),
        test=unheard.labelled(score),
        lexicon=lexicon,
        bigram=witten_bell(final.words, lexicon.words),
        log_priors=log_priors(final.states, count=lexicon.states),
    )


@dataclass(frozen=True, eq=False)
class _Spoken:
    """Utterances on their way to labels."""

    utterances: Sequence[Utterance]
    features: list[Features]
    graphs: list[Graph]

    @staticmethod
    def of(utterances: Sequence[Utterance], lexicon: Lexicon) -> _Spoken:
        features = [with_deltas(normalised(each.features)) for each in utterances]
        return _Spoken(utterances, features, [transcript_graph(each.words, lexicon) for each in utterances])

    def labelled(self, score: Callable[[Features], Scores]) -> Labelled:
        return Labelled(
            names=tuple(each.name for each in self.utterances),
            words=tuple(each.words for each in self.utterances),
            features=tuple(self.features),
            states=tuple(path.states for path in align(self.features, self.graphs, score)),
        )


def _check(utterance: Utterance, lexicon: Lexicon) -> None:
    """Refuse, by name, an utterance that cannot be aligned."""
    if not utterance.words:
        raise DataError(
            f"utterance {utterance.name!r} has an empty transcript. Its frames cannot be given to any word; leave it "
            f"out, or correct the transcript."
        )
    if utterance.features.ndim != 2 or utterance.features.shape[1] != CEPSTRA:
        raise DataError(
            f"utterance {utterance.name!r} has features of the shape {utterance.features.shape}, and (frames, "
            f"{CEPSTRA}) was expected."
        )
    if not np.isfinite(utterance.features).all():
        raise DataError(f"utterance {utterance.name!r} has features that are not finite. Leave it out.")
    try:
        needed = fewest_frames(utterance.words, lexicon)
    except DataError as error:
        raise DataError(f"utterance {utterance.name!r} ({' '.join(utterance.words)}): {error}") from error
    if len(utterance.features) < needed:
        raise DataError(
            f"utterance {utterance.name!r} has {len(utterance.features)} frames, but {' '.join(utterance.words)!r} "
            f"takes at least {needed}: three for every phone. Features and transcript do not belong together."
        )


def _check_speakers(train: Sequence[Utterance], fitness: Sequence[Utterance], test: Sequence[Utterance]) -> None:
    if not train or not fitness or not test:
        raise DataError(
            f"there are {len(train)} utterances to train on, {len(fitness)} of held-out speakers and {len(test)} to "
            f"test on. Each set needs at least one."
        )
    both = {utterance.speaker for utterance in (*train, *fitness)} & {utterance.speaker for utterance in test}
    if both:
        raise DataError(
            f"the speakers {', '.join(sorted(both))} are in the training set and in the test set. The test is about "
            f"people whom no model has heard: take them out of one."
        )

"""Language modelling by truncated back-propagation through time: the state is carried from window to window.

An epoch reads the training text as `batch_size` parallel streams, a window of `bptt` tokens of each at a time. The
state that a window ends with is where the next one begins, without its gradient. It rides on the network as a plain
attribute: no parameter and no buffer, so it is never averaged, mutated or saved, and every epoch begins without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import exp, inf
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from esgd._tensors.batches import to_device
from esgd._validation import is_count
from esgd.errors import TaskError, did_you_mean
from esgd.protocols import Batch, Settings
from esgd.randomness import Seeds
from esgd_paper.tasks.dropout import DROPOUT_MODELS
from esgd_paper.tasks.recurrent import State, detached, luggage_of
from esgd_paper.tasks.texts import PADDING, Streams, Window, checked_text, fingerprint, in_parts

EVALUATED = 64  # time steps whose outputs are in memory at once while a text is scored


class LanguageModel:
    """Predict every token of a text from those before it: mean cross-entropy, whose exponent is the perplexity.

    | argument     | meaning                                                                                         |
    |--------------|-------------------------------------------------------------------------------------------------|
    | `make_model` | builds a network: (tokens (time, streams), state) → (outputs (time, streams, vocabulary), state) |
    | `vocabulary` | how many different tokens there are; they are numbered from 0                                   |
    | `train`      | the text that SGD reads: int64 (tokens,)                                                        |
    | `fitness`    | the text that selection is judged on                                                            |
    | `test`       | the text that is not seen until the end                                                        |
    | `batch_size` | parallel streams of training; a policy's setting `batch_size` replaces it                       |
    | `bptt`       | time steps that a gradient reaches back                                                         |
    | `streams`    | parallel streams of `fitness` and `test`, each read from its beginning without a state          |

    Settings a policy may draw: `batch_size`; `dropout_model`, one of `DROPOUT_MODELS`; every ratio that the network has
    as an attribute `dropout_…`; and `patience`, which is checked here and acted upon by a learning schedule.

    Epochs differ in where the streams begin: up to `bptt` − 1 tokens into the text, by `seeds`. Windows have equal
    length up to one step, because a last one of a few steps would weigh as much as all others.

    >>> from esgd_paper.networks.tied_lstm import TiedLstm
    >>> text = torch.arange(100) % 7
    >>> task = LanguageModel(lambda: TiedLstm(7, 4), vocabulary=7, train=text, fitness=text, batch_size=5, bptt=6)
    >>> task.steps({}), [tuple(window.tokens.shape) for window in task.batches(Seeds(0), {})]
    (3, [(6, 5), (6, 5), (6, 5)])
    """

    nonnegative = True

    def __init__(
        self,
        make_model: Callable[[], nn.Module],
        *,
        vocabulary: int,
        train: Tensor,
        fitness: Tensor,
        test: Tensor | None = None,
        batch_size: int = 20,
        bptt: int = 35,
        streams: int = 64,
    ) -> None:
        if isinstance(make_model, nn.Module) or not callable(make_model):
            raise TaskError(
                f"make_model is a {type(make_model).__name__}. Each individual of the population needs a network of "
                f"its own, so pass a function that builds one."
            )
        self.model: Callable[[], nn.Module] = make_model
        self.vocabulary = _positive("vocabulary", vocabulary)
        self.batch_size, self.bptt = _positive("batch_size", batch_size), _positive("bptt", bptt)
        self._texts = {
            "train": checked_text("train", train, vocabulary),
            "fitness": checked_text("fitness", fitness, vocabulary),
        }
        if test is not None:
            self._texts["test"] = checked_text("test", test, vocabulary)
        streams = _positive("streams", streams)
        self._parts = {name: in_parts(text, streams) for name, text in self._texts.items() if name != "train"}
        self._length({})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {len(text)}" for name, text in self._texts.items())
        return f"LanguageModel({sizes} tokens, batch_size={self.batch_size}, bptt={self.bptt})"

    # Training

    def prepare(self, module: nn.Module, settings: Settings) -> None:
        luggage = luggage_of(module)
        known = ("batch_size", "dropout_model", "patience", *luggage.ratios)
        for name in settings:
            if name not in known:
                raise TaskError(
                    f"the setting {name!r} means nothing to LanguageModel with a {type(module).__name__}. "
                    f"{did_you_mean(name, known)} Ratios are the network's attributes dropout_…; optimizer keywords "
                    f"such as weight_decay go into the species' `hyper`."
                )
        self._length(settings)
        _positive("patience", settings.get("patience", 1))
        dropout_model = settings.get("dropout_model", "standard")
        if not isinstance(dropout_model, str) or dropout_model not in DROPOUT_MODELS:
            raise TaskError(
                f"the setting dropout_model={dropout_model!r} is not known. "
                f"{did_you_mean(str(dropout_model), DROPOUT_MODELS)}"
            )
        ratios = {name: _ratio(name, settings.get(name, default)) for name, default in luggage.ratios.items()}
        for name, ratio in ratios.items():
            setattr(module, name, ratio)
        luggage.dropout_model, luggage.states = DROPOUT_MODELS[dropout_model], {}

    def batches(self, seeds: Seeds, settings: Settings) -> Iterator[Window]:
        return self._windows(int(torch.randint(self.bptt, (), generator=seeds("offset"))), settings)

    def repeats(self, settings: Settings) -> int:
        return 1 if DROPOUT_MODELS[settings.get("dropout_model", "standard")].twin == "none" else 2

    def steps(self, settings: Settings) -> int:
        return max(1, round(self._length(settings) / self.bptt))

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        tokens, targets, number = batch
        luggage = luggage_of(module)
        state = luggage.entering(number)
        outputs: Tensor
        outputs, left = module(tokens, state)
        luggage.states = {number: state, number + 1: detached(left)}
        loss, rule = _cross_entropy(outputs, targets), luggage.dropout_model
        if rule.twin == "none" or not module.training:
            return loss
        twin = _clean(module, tokens, state) if rule.twin == "clean" else module(tokens, state)[0]
        if rule.both:
            loss = (loss + _cross_entropy(twin, targets)) / 2
        return loss + rule.penalty * (outputs - twin).square().mean()

    # Fitness

    def parts(self, order: Sequence[int] | None = None) -> Iterator[tuple[int, Streams]]:
        parts = self._parts["fitness"]
        for part in range(len(parts)) if order is None else order:
            yield part, parts[part]

    def fitness(self, module: nn.Module, batch: Batch) -> Tensor:
        total, state = torch.zeros((), dtype=torch.float64, device=batch.tokens.device), None
        for tokens, targets in zip(batch.tokens.split(EVALUATED), batch.targets.split(EVALUATED), strict=True):
            outputs, state = module(tokens, state)
            total = total + _cross_entropy(outputs, targets, reduction="none").double().sum()
        return total

    def size(self, batch: Batch) -> int:
        return batch.tokens.numel() if isinstance(batch, Window) else int((batch.targets != PADDING).sum())

    def calibration(self, samples: int) -> Iterator[Window]:
        seen = 0
        for window in self._windows(0, {}):
            yield window
            seen += self.size(window)
            if seen >= samples:
                return

    # The third split

    @torch.no_grad()
    def test(self, module: nn.Module) -> dict[str, float]:
        if "test" not in self._parts:
            return {}
        module.eval()
        device = next(module.parameters()).device
        parts = [to_device(part, device) for part in self._parts["test"]]
        loss = sum(float(self.fitness(module, part)) for part in parts) / sum(map(self.size, parts))
        return {"loss": loss, "ppl": perplexity(loss)}

    def data(self) -> list[Any]:
        return [self._texts, self._parts]

    def describe(self) -> dict[str, Any]:
        texts = {name: {"tokens": len(text), "sha256": fingerprint(text)} for name, text in self._texts.items()}
        return {"vocabulary": self.vocabulary, "batch_size": self.batch_size, "bptt": self.bptt, **texts}

    def _length(self, settings: Settings) -> int:
        """How many tokens of each stream are predicted in an epoch: the same wherever it begins."""
        batch_size = _positive("batch_size", settings.get("batch_size", self.batch_size))
        length = (len(self._texts["train"]) - self.bptt) // batch_size
        if length < 1:
            raise TaskError(
                f"batch_size={batch_size} streams and bptt={self.bptt} need {batch_size + self.bptt} training tokens, "
                f"but there are {len(self._texts['train'])}. Use fewer streams or a longer text."
            )
        return length

    def _windows(self, offset: int, settings: Settings) -> Iterator[Window]:
        length = self._length(settings)
        streams = settings.get("batch_size", self.batch_size)
        text = self._texts["train"][offset : offset + streams * length + 1]
        tokens, targets = (
            side.view(streams, length).T.tensor_split(self.steps(settings)) for side in (text[:-1], text[1:])
        )
        for number, (some, following) in enumerate(zip(tokens, targets, strict=True)):
            yield Window(some.contiguous(), following.contiguous(), number)


def perplexity(loss: float) -> float:
    """The exponent of a mean cross-entropy; inf where it overflows.

    >>> perplexity(0.0)
    1.0
    """
    return exp(loss) if loss < 700 else inf


def _clean(module: nn.Module, tokens: Tensor, state: State) -> Tensor:
    """The outputs without dropout, and with their gradients."""
    module.eval()
    try:
        outputs: Tensor = module(tokens, state)[0]
    finally:
        module.train()
    return outputs


def _cross_entropy(outputs: Tensor, targets: Tensor, *, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction=reduction)


def _positive(name: str, value: Any) -> int:
    if not is_count(value):
        raise TaskError(f"{name}={value!r} is not a positive whole number. Use 1 or more.")
    return value


def _ratio(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < 1:
        raise TaskError(f"the setting {name}={value!r} is not in [0, 1). It is the share that is dropped in training.")
    return float(value)

"""LanguageModel: windows and carried state, the four dropout models, the fitness in parts, and what is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from math import exp, log
from typing import Any

import cloudpickle
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import esgd
from esgd._algorithm.initialization import prepare
from esgd.errors import EngineError, TaskError
from esgd.randomness import Seeds, global_randomness
from esgd.testing import check_task
from esgd_paper.networks.tied_lstm import TiedLstm
from esgd_paper.tasks.dropout import DROPOUT_MODELS
from esgd_paper.tasks.language import LanguageModel
from esgd_paper.tasks.texts import Window

WORDS = 11
RATIOS = {"dropout_embedding": 0.2, "dropout_hidden": 0.4, "dropout_weights": 0.3}


def text(tokens: int, seed: int = 0) -> Tensor:
    """A walk on a circle of words: the next one depends on this one, so there is something to learn."""
    steps = torch.randint(1, 3, (tokens,), generator=Seeds(seed)("text"))
    return steps.cumsum(0) % WORDS


def lstm() -> TiedLstm:
    return TiedLstm(WORDS, 8)


def network(seed: int = 0) -> TiedLstm:
    with global_randomness(seed):
        return lstm()


def task(make_model: Callable[[], nn.Module] = lstm, **changes: Any) -> LanguageModel:
    given = {"train": text(400), "fitness": text(300, 1), "test": text(200, 2), "batch_size": 4, "bptt": 9, **changes}
    return LanguageModel(make_model, **{"vocabulary": WORDS, **given})


def fitness_of(made: LanguageModel, module: nn.Module, order: list[int] | None = None) -> float:
    """The fitness as any engine takes it."""
    with torch.no_grad():
        parts = {part: (float(made.fitness(module.eval(), b)), made.size(b)) for part, b in made.parts(order)}
    return sum(parts[n][0] for n in sorted(parts)) / sum(size for _, size in parts.values())


def test_it_conforms() -> None:
    check_task(task())
    check_task(task(lambda: TiedLstm(WORDS, 8, dropout_hidden=0.3, dropout_weights=0.5)))
    check_task(task(fitness=text(5), test=None))


# Windows


def test_every_token_is_predicted_from_the_one_before_and_streams_go_on_where_they_stopped() -> None:
    made = task(train=torch.arange(97), vocabulary=97, batch_size=3, bptt=10)
    windows = list(made.batches(Seeds(3), {}))
    tokens, targets = (torch.cat([getattr(w, side) for w in windows]) for side in ("tokens", "targets"))
    assert torch.equal(targets, tokens + 1)
    assert torch.equal(tokens[1:], tokens[:-1] + 1)
    assert torch.equal(tokens[0, 1:], targets[-1, :-1])
    assert tokens.shape == (29, 3)
    assert [window.number for window in windows] == [0, 1, 2]


def test_epochs_begin_at_different_places_within_a_window() -> None:
    made = task(train=torch.arange(97), vocabulary=97, batch_size=3, bptt=10)
    begins = {int(next(iter(made.batches(Seeds(seed), {}))).tokens[0, 0]) for seed in range(100)}
    assert begins == set(range(10))


@given(tokens=st.integers(60, 300), batch_size=st.integers(1, 20), bptt=st.integers(1, 40))
def test_windows_are_of_equal_length_and_as_many_as_steps_says(tokens: int, batch_size: int, bptt: int) -> None:
    made = task(train=text(tokens), batch_size=batch_size, bptt=bptt)
    for seed in range(3):
        windows = list(made.batches(Seeds(seed), {}))
        lengths = [len(window.tokens) for window in windows]
        assert len(windows) == made.steps({})
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) < 1.5 * bptt + 1
        assert sum(lengths) == (tokens - bptt) // batch_size
        assert {window.tokens.shape[1] for window in windows} == {batch_size}


def test_a_policy_may_draw_the_batch_size() -> None:
    settings = {"batch_size": 7}
    windows = list(task().batches(Seeds(0), settings))
    assert windows[0].tokens.shape[1] == 7
    assert len(windows) == task().steps(settings)


# The carried state


def window(tokens: Tensor, number: int) -> Window:
    return Window(tokens[:-1], tokens[1:], number)


TOKENS = text(21 * 3).view(21, 3)


def test_two_windows_with_a_carried_state_are_one_long_window() -> None:
    made, module = task(), network()
    whole = made.loss(module, window(TOKENS, 0))
    first = made.loss(module, window(TOKENS[:11], 0))
    second = made.loss(module, window(TOKENS[10:], 1))
    assert float((first + second).detach() / 2) == pytest.approx(float(whole.detach()), rel=1e-6)
    apart = made.loss(module, window(TOKENS[10:], 0))
    assert float(apart.detach()) != pytest.approx(float(second.detach()), rel=1e-4)


def test_no_gradient_flows_into_the_window_before() -> None:
    made, module = task(), network()
    made.loss(module, window(TOKENS[:11], 0)).backward()
    module.zero_grad()
    made.loss(module, window(TOKENS[10:], 1)).backward()  # the first graph is gone: nothing may ask for it
    found = [p.grad.clone() for p in module.parameters()]
    with torch.no_grad():
        state = module(TOKENS[:10])[1]
    module.zero_grad()
    F.cross_entropy(module(TOKENS[10:-1], state)[0].flatten(0, 1), TOKENS[11:].flatten()).backward()
    for ours, expected in zip(found, module.parameters(), strict=True):
        torch.testing.assert_close(ours, expected.grad)


def test_an_epoch_begins_without_a_state() -> None:
    made, trained = task(), network()
    for batch in made.batches(Seeds(1), {}):
        made.loss(trained, batch)
    first = next(made.batches(Seeds(2), {}))
    assert torch.equal(made.loss(trained, first), made.loss(network(), first))


def test_a_network_that_is_prepared_anew_has_no_state() -> None:
    """Another individual sits there now."""
    made, module = task(), network()
    made.loss(module, window(TOKENS[:11], 0))
    made.prepare(module, {})
    with pytest.raises(TaskError, match="window 1"):
        made.loss(module, window(TOKENS[10:], 1))


def test_an_optimizer_may_look_at_a_window_twice() -> None:
    made, module = task(), network()
    made.loss(module, window(TOKENS[:11], 0))
    losses = [float(made.loss(module, window(TOKENS[10:], 1)).detach()) for _ in range(3)]
    assert len(set(losses)) == 1


def test_a_window_without_the_one_before_is_refused() -> None:
    with pytest.raises(TaskError, match="window 5 of an epoch came without the one before.*as batches"):
        task().loss(network(), window(TOKENS, 5))


def test_the_state_is_no_part_of_an_individual() -> None:
    made, module = task(), network()
    before = module.state_dict().keys()
    for batch in made.batches(Seeds(0), {}):
        made.loss(module, batch)
    assert module.state_dict().keys() == before
    assert not list(module.buffers())


# The four dropout models


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.reshape(-1, WORDS), targets.reshape(-1))


def fraternal(first: Tensor, second: Tensor, clean: Tensor, targets: Tensor) -> Tensor:
    penalty = 0.15 * ((first - second) ** 2).mean()
    return 0.5 * (cross_entropy(first, targets) + cross_entropy(second, targets)) + penalty


def expectation_linear(first: Tensor, second: Tensor, clean: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(first, targets) + 0.25 * ((first - clean) ** 2).mean()


def pi(first: Tensor, second: Tensor, clean: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(first, targets) + 0.15 * ((first - second) ** 2).mean()


def standard(first: Tensor, second: Tensor, clean: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(first, targets)


@pytest.mark.parametrize("formula", [standard, fraternal, expectation_linear, pi])
def test_the_loss_of_a_dropout_model(formula: Callable[..., Tensor]) -> None:
    """In the second window: both passes begin with the state that the first pass left."""
    made, module, batch = task(), network(), window(TOKENS[10:], 1)
    made.prepare(module, {**RATIOS, "dropout_model": formula.__name__})
    with global_randomness(4):
        made.loss(module, window(TOKENS[:11], 0))
    with global_randomness(5):
        loss = made.loss(module, batch)
    found = torch.autograd.grad(loss, list(module.parameters()))
    with global_randomness(4), torch.no_grad():
        state = module(TOKENS[:10])[1]
    with global_randomness(5):
        first, second = (module(batch.tokens, state)[0] for _ in range(2))
    clean = module.eval()(batch.tokens, state)[0]
    expected = formula(first, second, clean, batch.targets)
    torch.testing.assert_close(loss, expected)
    for ours, theirs in zip(found, torch.autograd.grad(expected, list(module.parameters())), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_models_differ_and_all_of_them_are_tested() -> None:
    made, losses = task(), {}
    for name in DROPOUT_MODELS:
        module = network()
        made.prepare(module, {**RATIOS, "dropout_model": name})
        with global_randomness(5):
            losses[name] = float(made.loss(module, window(TOKENS, 0)).detach())
        assert module.training
    assert set(losses) == {"standard", "fraternal", "expectation_linear", "pi"}
    assert len(set(losses.values())) == 4


def test_without_dropout_the_models_are_one() -> None:
    made, losses = task(), []
    for name in DROPOUT_MODELS:
        module = network()
        made.prepare(module, {"dropout_model": name})
        losses.append(float(made.loss(module, window(TOKENS, 0)).detach()))
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-6)


# Settings


def test_settings_are_applied_and_what_is_not_set_is_what_make_model_chose() -> None:
    made, module = task(), TiedLstm(WORDS, 8, dropout_hidden=0.25)
    made.prepare(module, RATIOS)
    assert (module.dropout_embedding, module.dropout_hidden, module.dropout_weights) == (0.2, 0.4, 0.3)
    made.prepare(module, {"dropout_weights": 0.1})
    assert (module.dropout_embedding, module.dropout_hidden, module.dropout_weights) == (0.0, 0.25, 0.1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dropout_hiden": 0.1}, "'dropout_hiden' means nothing to LanguageModel.*Did you mean 'dropout_hidden'"),
        ({"weight_decay": 0.1}, "'weight_decay' means nothing.*`hyper`"),
        ({"dropout_hidden": 1.0}, r"dropout_hidden=1.0 is not in \[0, 1\)"),
        ({"dropout_hidden": -0.1}, r"dropout_hidden=-0.1 is not in \[0, 1\)"),
        ({"dropout_weights": "x"}, r"dropout_weights='x' is not in \[0, 1\)"),
        ({"dropout_model": "frat"}, "dropout_model='frat' is not known. Did you mean 'fraternal'"),
        ({"dropout_model": ["pi"]}, r"dropout_model=\['pi'\] is not known"),
        ({"batch_size": 0}, "batch_size=0 is not a positive whole number"),
        ({"batch_size": 400}, "batch_size=400 streams and bptt=9 need 409 training tokens, but there are 400"),
        ({"patience": 0}, "patience=0 is not a positive whole number"),
        ({"patience": 2.5}, "patience=2.5 is not a positive whole number"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings: dict[str, Any], words: str) -> None:
    module = network()
    with pytest.raises(TaskError, match=words):
        task().prepare(module, {"dropout_embedding": 0.1, **settings})
    assert module.dropout_embedding == 0.0


class Plain(nn.Module):
    """A recurrent network of somebody else: no ratios, and a state that is one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.out = nn.Embedding(WORDS, 6), nn.GRU(6, 6), nn.Linear(6, WORDS)

    def forward(self, tokens: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        hidden, state = self.gru(self.embedding(tokens), state)
        return self.out(hidden), state


def test_a_network_of_ones_own() -> None:
    made = task(Plain)
    check_task(made)
    with pytest.raises(TaskError, match="'dropout_hidden' means nothing to LanguageModel with a Plain"):
        made.prepare(Plain(), {"dropout_hidden": 0.1})


# Fitness


@pytest.mark.parametrize(("tokens", "streams"), [(300, 64), (300, 7), (300, 1), (65, 64), (17, 64), (2, 64), (129, 16)])
def test_the_fitness_is_the_mean_cross_entropy_of_every_token(tokens: int, streams: int) -> None:
    made, module = task(fitness=text(tokens, 1), streams=streams), network()
    length = -(-(tokens - 1) // min(streams, tokens - 1))
    total = 0.0
    with torch.no_grad():
        for begin in range(0, tokens - 1, length):
            piece = text(tokens, 1)[begin : begin + length + 1]
            outputs = module(piece[:-1, None])[0][:, 0].double()
            total += float(F.cross_entropy(outputs, piece[1:], reduction="sum"))
    assert sum(made.size(batch) for _, batch in made.parts()) == tokens - 1
    assert fitness_of(made, module) == pytest.approx(total / (tokens - 1), rel=1e-6)


def test_long_streams_are_scored_window_by_window_with_the_state_carried() -> None:
    """300 tokens in one stream are more than are held in memory at once."""
    made, module = task(streams=1), network()
    with torch.no_grad():
        outputs = module(text(300, 1)[:-1, None])[0][:, 0]
    assert fitness_of(made, module) == pytest.approx(float(F.cross_entropy(outputs, text(300, 1)[1:])), rel=1e-6)


def test_parts_in_any_order_are_the_same_parts() -> None:
    made, module = task(), network()
    assert [part for part, _ in made.parts()] == list(range(8))
    order = [5, 0, 7, 2, 1, 6, 4, 3]
    assert [part for part, _ in made.parts(order)] == order
    assert fitness_of(made, module, order) == fitness_of(made, module)


def test_the_fitness_is_deterministic_whatever_the_ratios_and_whatever_was_trained_before() -> None:
    made, module = task(), network()
    before = fitness_of(made, module)
    made.prepare(module, {**RATIOS, "dropout_model": "fraternal"})
    module.train()
    for batch in made.batches(Seeds(0), {}):
        made.loss(module, batch)
    assert fitness_of(made, module) == before


def test_the_perplexity_is_the_exponent_of_the_loss() -> None:
    made, module = task(), network().train()
    found = made.test(module)
    assert found == made.test(module)
    assert set(found) == {"loss", "ppl"}
    assert found["ppl"] == exp(found["loss"])
    assert found["loss"] == pytest.approx(fitness_of(task(fitness=text(200, 2)), module), rel=1e-12)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert made.test(module)["ppl"] == pytest.approx(WORDS)


def test_a_hopeless_network_has_an_infinite_perplexity() -> None:
    module = network()
    with torch.no_grad():
        module.bias[3] = 1e6
    assert task().test(module)["ppl"] == float("inf")


def test_there_need_not_be_a_test_text() -> None:
    assert task(test=None).test(network()) == {}


# Engines


def recipe(**changes: Any) -> esgd.Recipe:
    species = esgd.species.Sgd(
        lr=(1.0, 5.0),
        clip_norm=0.5,
        settings={
            "dropout_hidden": esgd.species.Uniform(0.1, 0.3),
            "dropout_weights": 0.1,
            "dropout_model": esgd.species.Choice(tuple(DROPOUT_MODELS)),
            "batch_size": esgd.species.Integers(2, 6),
        },
    )
    given = {"population": 4, "offspring": 6, "generations": 2, "sgd_epochs": 2, "species": species, **changes}
    return esgd.Recipe(**given)


@pytest.mark.slow
def test_a_population_learns_the_text() -> None:
    *_, last = esgd.evolve(task(train=text(2000)), recipe(), seed=0, engine=esgd.Loop(threads=1))
    assert last.guarantee == "held"
    assert last.best.fitness < 0.75 * log(WORDS)
    assert set(last.test) == {"loss", "ppl"}
    assert "luggage" not in vars(last.best.module())


@pytest.mark.slow
def test_a_run_is_decided_by_its_seed() -> None:
    runs = [list(esgd.evolve(task(), recipe(), seed=3, engine=esgd.Loop(threads=1)))[-1] for _ in range(2)]
    assert torch.equal(runs[0].population.rows, runs[1].population.rows)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_a_pool_equals_the_loop() -> None:
    engines = (esgd.Loop(threads=1), esgd.Pool(inner=esgd.Loop(), workers=2))
    one, two = (list(esgd.evolve(task(), recipe(), seed=0, engine=engine)) for engine in engines)
    for ours, theirs in zip(one, two, strict=True):
        assert torch.equal(ours.population.rows, theirs.population.rows)
        assert torch.equal(ours.population.fitness, theirs.population.fitness)


def test_vmap_refuses_it_with_a_reason() -> None:
    rules = prepare(task(), recipe(), 0)
    with (
        pytest.raises(EngineError, match="cannot stack the batches.*other than tensors.*Use engine='loop'"),
        esgd.Vmap().open(rules, lambda phase, done, total: None),
    ):
        pass


def test_it_travels_light() -> None:
    made = task(train=text(20_000))
    sent = cloudpickle.dumps(made)
    assert len(sent) < 200_000
    arrived: LanguageModel = pickle.loads(sent)
    assert fitness_of(arrived, network()) == fitness_of(made, network())


# Construction


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"make_model": network()}, "make_model is a TiedLstm.*pass a function"),
        ({"make_model": 3}, "make_model is a int"),
        ({"vocabulary": 0}, "vocabulary=0 is not a positive whole number"),
        ({"batch_size": True}, "batch_size=True is not a positive whole number"),
        ({"bptt": 1.5}, "bptt=1.5 is not a positive whole number"),
        ({"streams": 0}, "streams=0 is not a positive whole number"),
        ({"batch_size": 398}, "batch_size=398 streams and bptt=9 need 407 training tokens, but there are 400"),
        ({"train": [1, 2, 3]}, "train is a list. A text is a one-dimensional tensor"),
        ({"train": torch.zeros(4, 4, dtype=torch.int64)}, r"train is of shape \(4, 4\) and torch.int64"),
        ({"fitness": torch.zeros(40)}, r"fitness is of shape \(40,\) and torch.float32"),
        ({"test": torch.zeros(1, dtype=torch.int64)}, "test has 1 tokens.*give 2 or more"),
        ({"fitness": torch.tensor([1, 2, 11, 3])}, "fitness has the token 11 at position 2, but vocabulary=11"),
        ({"train": torch.tensor([1, -1] * 50)}, "train has the token -1 at position 1"),
    ],
)
def test_wrong_arguments_are_refused_at_construction(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        task(**arguments)


def test_it_prints_the_sizes_of_its_texts() -> None:
    assert repr(task()) == "LanguageModel(train 400, fitness 300, test 200 tokens, batch_size=4, bptt=9)"


def test_the_manifest_can_tell_two_texts_apart() -> None:
    described = task().describe()
    assert json.loads(json.dumps(described)) == described
    assert described["train"]["tokens"] == 400
    assert described["train"]["sha256"] != task(train=text(400, 9)).describe()["train"]["sha256"]

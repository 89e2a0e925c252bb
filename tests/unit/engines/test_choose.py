"""From what a user writes as `engine=` to an engine, and what "auto" does to find one."""

from __future__ import annotations

import json
import random
import re
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import esgd
from esgd import Loop, Pool, Ray, Vmap, ledger
from esgd._algorithm.initialization import prepare
from esgd._serialization import decode
from esgd.engines import auto, choose, dispatch, probe
from esgd.engines.auto import SHORT, suited_loop
from esgd.engines.choose import bits
from esgd.engines.counting import count_step
from esgd.engines.probe import MOST, WARM, seconds_per_step
from esgd.errors import RecipeError, TaskError
from esgd.protocols import Engine, Load, Setup
from esgd.testing.evidence import contents, difference, leaves_global_randomness_alone
from tests.small import CLASSES, INPUTS, classify, dropout_mlp, mlp, random_data

LONG = Load(population=16, epochs=1_500)
RECIPE = esgd.Recipe(population=3, offspring=3, generations=2, sgd_epochs=1)
QUIET: dict[str, Any] = {"seed": 0, "progress": False}


@pytest.fixture(autouse=True)
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which oneDNN is not faster."""
    monkeypatch.setattr(auto, "onednn_is_faster", lambda: False)


def setup(make_model: Any = mlp, **changes: Any) -> Setup:
    return prepare(classify(make_model, **changes), RECIPE, 0)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("loop", Loop()),
        ("vmap", Vmap()),
        ("pool", Pool()),
        ("vmap:", Vmap()),
        ("vmap:chunk=4", Vmap(chunk=4)),
        ("vmap:chunk=4,precision=bf16", Vmap(chunk=4, precision="bf16")),
        ("vmap: chunk = 4 , precision = 'bf16'", Vmap(chunk=4, precision="bf16")),
        ("loop:threads=2,channels_last=true", Loop(threads=2, channels_last=True)),
        ("pool:workers=2,onednn=true", Pool(inner=Loop(onednn=True), workers=2)),
        ("pool:workers=2", Pool(workers=2)),
        ("pool:workers=2,inner=vmap,chunk=4", Pool(inner=Vmap(chunk=4), workers=2)),
        ("pool:precision=bf16,device=cpu", Pool(inner=Loop(precision="bf16"))),
        (Pool(inner=Vmap(chunk=3), workers=2), Pool(inner=Vmap(chunk=3), workers=2)),
        ("ray", Ray()),
        ("ray:workers=2,inner=vmap", Ray(inner=Vmap(), workers=2)),
        ("ray:inner=vmap,chunk=4,cpus_per_worker=2", Ray(inner=Vmap(chunk=4), cpus_per_worker=2)),
        ("ray:address=auto,gpus_per_worker=0.5", Ray(address="auto", gpus_per_worker=0.5)),
        ("ray:address=head:6379,patience=30,slow=5", Ray(address="head:6379", patience=30, slow=5)),
        ("ray:precision=bf16", Ray(inner=Loop(precision="bf16"))),
    ],
    ids=str,
)
def test_an_engine_can_be_written_as_a_name_with_settings(written: Any, meant: Engine) -> None:
    assert choose(written, setup()).engine == meant


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("vmpa", "engine='vmpa' is not known. Did you mean 'vmap'?"),
        ("quantum", "engine='quantum' is not known. Known: auto, loop, pool, ray, vmap."),
        ("vmap:chnk=4", "there is no setting 'chnk'. Did you mean 'chunk'?"),
        ("vmap:chunk", "'chunk' has no value. Write NAME=VALUE, as in pool:workers=4."),
        ("vmap:chunk=four", "chunk='four' is not 1 or more"),
        ("vmap:chunk=", "chunk='' is not 1 or more"),
        ("pool:workers=0", "workers=0 is not 1 or more"),
        ("pool:workers=two", "workers='two'|wrong type"),
        ("pool:worker=2", "there is no setting 'worker'. Did you mean 'workers'?"),
        ("pool:inner=vmp", "inner='vmp' is not known. Did you mean 'vmap'?"),
        ("pool:inner=pool", "inner='pool' is not known"),
        ("pool:inner=3", "inner=3 is not known"),
        ("pool:inner=vmap,channels_last=true", "there is no setting 'channels_last'"),
        ("ray:workers=0", "workers=0 is not a whole number from 1"),
        ("ray:address=6379", "address=6379 is not an address"),
        ("ray:worker=2", "there is no setting 'worker'. Did you mean 'workers'?"),
        ("ray:inner=ray", "inner='ray' is not known"),
        ("ray:patience=soon", "patience='soon' is not a number"),
        ("pool:slow=3", "there is no setting 'slow'"),
        ("loop:threads=many", "threads='many'|wrong type"),
        ("loop:threads=1.5", "threads=1.5"),
        ("loop:compile=yes", "compile='yes'"),
        ("auto:chunk=4", "there is no setting 'chunk'"),
        ("auto:precision=half", "precision='half' is not known"),
        (3, "engine=3 is not an engine"),
        (None, "engine=None is not an engine"),
        (Loop, "is not an engine"),
    ],
    ids=str,
)
def test_what_is_no_engine_is_refused_with_a_suggestion(written: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=sentence.replace("?", r"\?")):
        choose(written, setup())
    with pytest.raises(RecipeError):
        esgd.fit(classify(), RECIPE, seed=0, engine=written, run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists(), "no folder is begun for a run that cannot be"


# auto


def test_a_short_run_takes_the_plain_engine_and_says_so() -> None:
    choice = choose("auto", setup(), Load(population=4, epochs=2))
    assert choice.engine == suited_loop(setup().genome.size)
    assert choice.why == "engine: Loop(threads=1), because the run is short."


def test_a_short_run_of_convolutions_has_all_threads_as_loop_has() -> None:
    assert choose("auto", setup(convolutional), Load(population=4, epochs=2)).engine == Loop()


def test_without_a_load_nothing_is_counted() -> None:
    choice = choose("auto:precision=bf16", setup())
    assert choice.engine == Loop(threads=1, precision="bf16")
    assert choice.why == ""


def opens(engine: Engine) -> bool:
    with engine.open(setup(), lambda *tick: None) as session:
        return session.spent().seconds_sgd == 0.0


def test_a_long_run_takes_an_engine_that_works_and_says_why() -> None:
    with leaves_global_randomness_alone("the count"):
        choice = choose("auto", setup(), LONG)
    assert isinstance(choice.engine, Vmap)
    assert re.fullmatch(
        r"engine: Vmap\(threads=1\), by rule: 72,000 steps of \d+ operations and [\d.]+ MFLOP.", choice.why
    )
    assert opens(choice.engine)


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "cores", lambda: 2)


@pytest.fixture
def noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every clock that a choice could look at lies, by factors up to a thousand."""
    wrong = random.Random(7)
    for module in (ledger, dispatch, probe):
        monkeypatch.setattr(module, "perf_counter", lambda: 10 ** wrong.uniform(-2, 4))


@pytest.mark.slow
@pytest.mark.usefixtures("two_cores", "noisy")
@pytest.mark.parametrize("epochs", [1_500, 6_000], ids=["vmap", "pool"])
def test_the_choice_does_not_depend_on_how_fast_anything_seems(epochs: int) -> None:
    first, second = (choose("auto", setup(), Load(population=16, epochs=epochs)) for _ in range(2))
    assert first == second
    assert first.why


@pytest.mark.slow
@pytest.mark.usefixtures("two_cores", "noisy", "warm_workers")
@pytest.mark.parametrize(
    ("lasts", "saves", "kind"), [(0.01, 0.01, Pool), (20, 0.01, Vmap), (20, 20, Loop)], ids=["pool", "vmap", "loop"]
)
def test_two_runs_of_one_command_give_the_same_bytes_on_a_machine_with_any_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lasts: float, saves: float, kind: type
) -> None:
    monkeypatch.setattr(auto, "LASTS_BATCHED", lasts)  # so that a short run may have any engine
    monkeypatch.setattr(auto, "SAVES", saves)
    recipe = esgd.Recipe(population=8, offspring=4, generations=2, sgd_epochs=10)
    manifests, models = list[Any](), list[bytes]()
    for folder in (tmp_path / "first", tmp_path / "second"):
        esgd.fit(classify(), recipe, seed=0, run=folder, progress=False, report=False)
        manifests.append(json.loads((folder / "manifest.json").read_text()))
        models.append((folder / "model.safetensors").read_bytes())
    assert isinstance(decode(manifests[0]["engine"]), kind)
    assert manifests[0]["engine"] == manifests[1]["engine"]
    assert manifests[0]["engine_because"] == manifests[1]["engine_because"] != ""
    assert models[0] == models[1]


def seconds(given: Setup, load: Load) -> float:
    """Of a run, as the rule predicts them."""
    return load.population * load.epochs * 3 * count_step(given, Loop(threads=1)).seconds


@pytest.mark.slow
@pytest.mark.usefixtures("two_cores")
def test_what_an_engine_costs_once_is_saved_by_batching() -> None:
    """Recording, then workers: neither is taken before the run is long enough for it."""
    given, kinds = setup(), dict[str, float]()
    for epochs in (500, 1_500, 3_000):
        load = Load(population=16, epochs=epochs)
        kinds.setdefault(type(choose("auto", given, load).engine).__name__, seconds(given, load))
    assert list(kinds) == ["Loop", "Vmap", "Pool"]
    assert kinds["Vmap"] / 2 >= 10 * auto.RECORDS * count_step(given, Loop(threads=1)).operations
    assert kinds["Pool"] / 2 >= 4 * auto.STARTS


@pytest.mark.usefixtures("two_cores")
def test_without_batching_the_start_of_workers_is_a_twentieth_of_the_run() -> None:
    given = setup(convolutional)
    long = Load(population=16, epochs=20 * auto.STARTS / seconds(given, Load(population=16, epochs=1)))
    assert choose("auto", given, long.scaled(0.99)).engine == Loop(threads=1)
    assert choose("auto", given, long.scaled(1.01)).engine == Pool(inner=Loop(threads=1), workers=2)


SHRINKS = Load(9, 200.0, later=(Load(3, 600.0), *[Load(2, 900.0)] * 7))
"""As the population of our rules does: most of the work is that of its last two networks."""


@pytest.mark.usefixtures("two_cores")
def test_a_population_that_shrinks_is_not_batched_for_the_size_that_it_begins_with() -> None:
    everyone = Load(9, SHRINKS.individual_epochs / 9)
    assert isinstance(choose("auto", setup(), everyone).engine, Vmap)
    assert choose("auto", setup(), SHRINKS).engine == Loop(threads=1)


@pytest.mark.usefixtures("two_cores")
def test_a_long_run_of_a_population_that_shrinks_has_workers() -> None:
    assert choose("auto", setup(), SHRINKS.scaled(10)).engine == Pool(inner=Loop(threads=1), workers=2)


def test_what_shrinks_counts_with_the_sizes_that_it_has() -> None:
    recipe = esgd.Recipe(population=esgd.sizes.Each((8, 4, 4, 2)), offspring=0, mates=1, generations=4, sgd_epochs=3)
    assert recipe.load.stages[1:] == (Load(4, 6), Load(2, 3)), "generations of one size are one stage"
    assert (recipe.load.population, recipe.load.epochs, recipe.load.largest) == (8, 3, 8)
    assert recipe.load.individual_epochs == 8 * 3 + 4 * 6 + 2 * 3
    assert recipe.load.scaled(3).individual_epochs == 3 * 54


def test_more_workers_than_chunks_leave_a_short_run_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "cores", lambda: 16)
    assert choose("auto", setup(), Load(population=16, epochs=3_000)).engine == Vmap(threads=1, chunk=16)
    assert choose("auto", setup(), Load(population=16, epochs=30_000)).engine == Pool(inner=Loop(threads=1), workers=16)


@pytest.mark.usefixtures("two_cores")
def test_workers_share_a_population_in_even_chunks() -> None:
    assert choose("auto", setup(), Load(population=72, epochs=20_000)).engine == Pool(
        inner=Vmap(chunk=18, threads=1), workers=2
    )


@pytest.mark.usefixtures("two_cores")
def test_chunks_are_shares_of_the_population_that_has_most_of_the_work() -> None:
    choice = choose("auto", setup(), Load(64, 1_000, later=(Load(24, 40_000),)))
    assert choice.engine == Pool(inner=Vmap(chunk=12, threads=1), workers=2)


@pytest.mark.parametrize(("cores", "population"), [(2, 7), (2, 8), (4, 15), (4, 16)])
def test_one_network_less_than_chunks_need_is_no_other_engine(
    monkeypatch: pytest.MonkeyPatch, cores: int, population: int
) -> None:
    monkeypatch.setattr(auto, "cores", lambda: cores)
    choice = choose("auto", setup(), Load(population, 40_000))
    assert choice.engine == Pool(inner=Vmap(chunk=4, threads=1), workers=cores)


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.lstm(x[:, :, None])[0][:, -1])

    return Last()


@pytest.mark.parametrize("make_model", [recurrent, lambda: convolutional()], ids=["recurrent", "convolutional"])
def test_a_step_too_short_for_threads_has_one_thread_or_a_worker(
    monkeypatch: pytest.MonkeyPatch, make_model: Any
) -> None:
    """On a machine with many cores, few networks would not use most of the workers, and threads would wait for one
    another."""
    monkeypatch.setattr(auto, "cores", lambda: 32)
    assert choose("auto", setup(make_model), Load(8, 100)).engine == Loop(threads=1)
    assert choose("auto", setup(make_model), Load(8, 1_000_000)).engine == Pool(inner=Loop(threads=1), workers=8)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("works", [True, False])
def test_a_long_batched_run_is_compiled_where_there_is_a_compiler(monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    monkeypatch.setattr(auto, "compiler_works", lambda: works)
    steps = seconds(setup(), Load(16, 1))  # predicted for an epoch of everyone
    long = Load(16, 4.2 * auto.LASTS_COMPILED * auto.COMPILES / steps)
    vmap = Vmap(chunk=8, threads=1, compile=works)
    assert choose("auto", setup(), long).engine == Pool(inner=vmap, workers=2)
    assert choose("auto", setup(), long.scaled(0.9)).engine == Pool(inner=replace(vmap, compile=False), workers=2)
    sizes = replace(long.scaled(0.9), later=(Load(8, 0.2 * long.epochs),))
    assert choose("auto", setup(), sizes).engine == Pool(inner=replace(vmap, compile=False), workers=2), "two sizes"


@pytest.mark.usefixtures("two_cores")
def test_convolutions_are_not_batched_but_shared_among_workers() -> None:
    choice = choose("auto", setup(convolutional), Load(population=16, epochs=40_000))
    assert choice.engine == Pool(inner=Loop(threads=1), workers=2)


def test_where_threads_help_one_batched_process_does_not_replace_many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(population=16, epochs=1_500)
    monkeypatch.setattr(auto, "TINY", 0.0)
    monkeypatch.setattr(auto, "cores", lambda: 2)
    assert isinstance(choose("auto", setup(), load).engine, Vmap)
    monkeypatch.setattr(auto, "cores", lambda: 16)
    assert choose("auto", setup(), load).engine == Loop()


@pytest.mark.usefixtures("two_cores")
def test_one_network_has_no_workers() -> None:
    assert choose("auto", setup(), Load(population=1, epochs=1_000_000)).engine == Loop(threads=1)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, INPUTS)), nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(2 * (INPUTS - 2), CLASSES)
    )


@pytest.mark.usefixtures("two_cores")
def test_large_linear_layers_multiply_by_onednn_where_that_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def wide() -> nn.Module:
        return nn.Sequential(nn.Linear(INPUTS, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, CLASSES))

    load = Load(population=4, epochs=10_000)
    assert choose("auto", setup(wide), load).engine == Pool(inner=Loop(threads=1), workers=2)
    monkeypatch.setattr(auto, "onednn_is_faster", lambda: True)
    choice = choose("auto", setup(wide), load)
    assert choice.engine == Pool(inner=Loop(threads=1, onednn=True), workers=2)
    assert "onednn=True" in choice.why
    assert choose("auto", setup(convolutional), Load(16, 1_000_000)).engine == Pool(inner=Loop(threads=1), workers=2)
    bf16 = choose("auto:precision=bf16", setup(wide), load)
    assert bf16.engine == Pool(inner=Loop(threads=1, precision="bf16"), workers=2)


def test_a_step_is_counted_by_its_operations_and_products() -> None:
    """Forward, and the gradient of the weights; the inputs need none."""
    batch, given = 16, setup(lambda: nn.Linear(INPUTS, CLASSES))
    counted = count_step(given, Loop(threads=1))
    assert counted.flops == 2 * 2 * batch * INPUTS * CLASSES
    assert {"addmm", "mm", "_log_softmax"} <= counted.names
    assert 10 < counted.operations < 60
    assert counted.elements > given.genome.size
    assert counted == count_step(given, Loop(threads=1))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Loop(threads=1), Vmap(chunk=2, threads=1)], ids=str)
def test_the_probe_changes_nothing(engine: Any) -> None:
    """Neither the caller's random numbers nor the network."""
    given = setup(dropout_mlp)
    before = contents_of_template(given)
    torch.manual_seed(5)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert seconds_per_step(engine, given, 2, 4) > 0
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(states[0], after[0])
    assert states[1:] == after[1:]
    assert difference(contents_of_template(given), before) == ""


@pytest.mark.slow
def test_a_probed_run_is_the_run_of_the_engine_it_took(tmp_path: Path) -> None:
    """Whatever was timed before it, dropout and all."""
    recipe = esgd.Recipe(population=3, offspring=2, generations=1, sgd_epochs=70)
    assert recipe.population * recipe.total_epochs * 3 > SHORT, "it is probed"
    probed = esgd.fit(classify(dropout_mlp), recipe, seed=0, run=tmp_path / "run", progress=False, report=False)
    took = decode(json.loads((tmp_path / "run" / "manifest.json").read_text())["engine"])
    (plain,) = esgd.evolve(classify(dropout_mlp), recipe, seed=0, engine=took)
    assert difference(contents(probed.population), contents(plain.population)) == ""


def contents_of_template(given: Setup) -> dict[str, Any]:
    return {name: value.clone() for name, value in given.genome.template.state_dict().items()}


def test_a_probe_sees_a_few_batches_and_no_fitness() -> None:
    epochs, fitnesses = list[int](), list[int]()
    x, y = random_data(48)

    def batches() -> Any:
        epochs.append(0)
        for i in range(0, 48, 4):
            epochs[-1] += 1
            yield x[i : i + 4], y[i : i + 4]

    def fitness() -> Any:
        fitnesses.append(1)
        yield x, y

    seconds_per_step(Loop(threads=1), setup(train=batches, fitness=fitness), 2, 3)
    assert set(epochs) == {3}, "of 12 batches"
    assert 2 * WARM <= len(epochs) <= 2 * (WARM + 2 * MOST)
    assert not fitnesses


@pytest.mark.parametrize("load", ["short", "long"])
def test_a_broken_network_gets_the_words_of_the_run(load: str) -> None:
    """A probe that fails keeps quiet: the run itself explains it better."""
    recipe = esgd.Recipe(population=3, offspring=3, generations=1, sgd_epochs=1 if load == "short" else 5_000)
    task = classify(lambda: nn.Linear(INPUTS + 1, CLASSES))
    with pytest.raises(TaskError, match="a freshly built network cannot be scored: RuntimeError: .*try that by hand"):
        next(esgd.evolve(task, recipe, seed=0))


def test_a_network_that_cannot_be_batched_or_sent_is_still_chosen_for(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:

        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = mlp()

            def forward(self, x: Tensor) -> Tensor:
                log.write(".")
                return self.inner(x) * (1 if x.sum() > -1e9 else 2)

            def __deepcopy__(self, memo: Any) -> Odd:
                copied = Odd()
                copied.load_state_dict(self.state_dict())
                return copied

        choice = choose("auto", setup(Odd), Load(population=8, epochs=3_000))
    assert isinstance(choice.engine, Loop)


# What a run says and remembers


def test_fit_builds_no_more_networks_than_evolve() -> None:
    """A run is prepared once, and the engine is chosen once."""
    built = list[int]()

    def counted() -> nn.Module:
        built[-1] += 1
        return mlp()

    for run in (lambda task: list(esgd.evolve(task, RECIPE, seed=0)), lambda task: esgd.fit(task, RECIPE, **QUIET)):
        task = classify(counted)
        built.append(0)
        run(task)
    assert built[0] == built[1]


def test_fit_says_which_engine_and_why_and_the_manifest_remembers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = esgd.fit(classify(), RECIPE, seed=0, run=tmp_path / "run", report=False)
    why = "engine: Loop(threads=1), because the run is short."
    assert why in capsys.readouterr().err
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert decode(manifest["engine"]) == Loop(threads=1)
    assert manifest["engine_because"] == why
    assert len(result.history) == 2


BATCHED = Vmap(chunk=2, threads=1)


@cache
def straight() -> Any:
    """What a run with `BATCHED` ends with."""
    return contents(esgd.fit(classify(), RECIPE, seed=0, engine=BATCHED, progress=False).population)


@pytest.mark.slow
@pytest.mark.parametrize("again", ["auto", "auto:precision=bf16", BATCHED], ids=str)
def test_a_resumed_run_goes_on_with_the_engine_it_began_with(tmp_path: Path, again: Any) -> None:
    """Unless another is resources for by name; "auto" always means the recorded one."""
    stops = StopsAfter(1)
    with stops.expected():
        esgd.fit(stops.task(), RECIPE, seed=0, engine=BATCHED, run=tmp_path / "run", progress=False)
    stops.left = -1
    resumed = esgd.fit(stops.task(), RECIPE, seed=0, engine=again, run=tmp_path / "run", progress=False, report=False)
    assert difference(contents(resumed.population), straight()) == ""
    assert decode(json.loads((tmp_path / "run" / "manifest.json").read_text())["engine"]) == BATCHED


class StopsAfter:
    """A task whose test metric ends the run after so many generations."""

    def __init__(self, generations: int) -> None:
        self.left = generations

    def task(self) -> esgd.Supervised:
        return classify(test=random_data(20, seed=2), metrics={"patience": self.patience})

    def patience(self, network: nn.Module) -> float:
        if self.left == 0:
            raise InterruptedError
        self.left -= 1
        return 0.0

    def expected(self) -> Any:
        return pytest.raises(InterruptedError) if self.left >= 0 else nullcontext()


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (Pool(workers=2), Pool(workers=5), True),
        (Pool(workers=2), Loop(threads=1), True),
        (Ray(workers=2), Ray(address="auto", patience=9.0, slow=2.0, cpus_per_worker=2.0), True),
        (Ray(inner=Vmap(chunk=2)), Pool(inner=Vmap(chunk=2)), True),
        (Ray(inner=Vmap(chunk=2)), Ray(inner=Vmap(chunk=3)), False),
        (Ray(), Ray(gpus_per_worker=1.0), False),
        (Pool(), Pool(inner=Loop(precision="bf16")), False),
        (Pool(), Loop(), False),
    ],
    ids=str,
)
def test_the_bits_depend_on_the_inner_engine_and_not_on_its_workers(before: Any, now: Any, same: bool) -> None:
    assert (bits(before) == bits(now)) is same

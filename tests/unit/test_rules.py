"""Ready-made rules: they spend the work they are given, do what their publications say, and resume like any run."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import esgd
from esgd import rules, work
from esgd._serialization import read_toml
from esgd.errors import RecipeError
from esgd.genome import Genome
from esgd.ledger import passes
from esgd.operators import Anchor, Never, PerGeneration
from esgd.rules import RULES
from esgd.schedules import CosineRun
from esgd.species import Sgd
from esgd.testing.evidence import contents, difference
from esgd.work import Costs, expected_looks, expected_work, measurements, statistics_needed
from tests.command import esgd as command
from tests.small import CLASSES, batchnorm_mlp, classify, mlp, random_data

WORK = 80_000.0


def learnable(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """The class is the largest of the first inputs."""
    x, _ = random_data(n, seed=seed)
    return x, x[:, :CLASSES].argmax(dim=1)


def task(make_model: Any = mlp) -> esgd.Supervised:
    return esgd.Supervised(make_model, F.cross_entropy, train=learnable(300), fitness=learnable(64, seed=1))


def run(recipe: esgd.Recipe, **more: Any) -> list[esgd.Generation]:
    return list(esgd.evolve(task(), recipe, seed=0, **{"engine": "loop", **more}))


@cache
def whole(name: str) -> list[esgd.Generation]:
    """The run of a rule; several tests look at it."""
    return run(RULES[name](task(), WORK))


def spent(generations: list[esgd.Generation]) -> float:
    return sum(passes(each.work.samples) for each in generations)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_rules_spend_the_work_that_they_are_given(name: str) -> None:
    generations = whole(name)
    assert spent(generations) == pytest.approx(WORK, rel=0.02)
    assert generations[-1].state.archive.fitness[0] < generations[0].before[0][1], "something was learnt"


@pytest.mark.slow
def test_statistics_of_batchnorm_are_paid_for() -> None:
    normalised = task(batchnorm_mlp)
    recipe = rules.halving(normalised, WORK)
    generations = list(esgd.evolve(normalised, recipe, seed=0, engine="loop"))
    assert spent(generations) == pytest.approx(WORK, rel=0.02)
    assert expected_work(Costs.of(task(), recipe), recipe) < 0.95 * expected_work(Costs.of(normalised, recipe), recipe)


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_rules_can_be_written_down_and_read_back(name: str) -> None:
    recipe = RULES[name](task(), WORK)
    read = esgd.Recipe.from_dict(read_toml(tomli_w.dumps(recipe.to_dict())))
    assert read.to_dict() == recipe.to_dict()
    assert list(read.stages()) == list(recipe.stages())


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
@pytest.mark.parametrize("name", ["ours", "pbt", "halving", "papa"])
def test_rules_resume_and_are_the_same_with_workers(name: str) -> None:
    rest = run(RULES[name](task(), WORK), resume=whole(name)[1].state, engine="pool:workers=2")
    assert not difference(contents(rest[-1].population), contents(whole(name)[-1].population))


@pytest.mark.parametrize("name", ["ours", "paper"])
def test_no_evaluation_is_aborted_where_epochs_follow_the_ledger(name: str) -> None:
    """What an abort saves depends on which worker is first; then so would K_s, and a run on workers would differ."""
    recipe = RULES[name](task(), WORK)
    assert recipe.early_abort
    assert {recipe.cutoff_rank(stage) for stage in recipe.stages()} == {None}
    assert not any(each.work.fitness_saved for each in whole(name))
    aborting = esgd.Recipe(population=4, generations=2)
    assert {aborting.cutoff_rank(stage) for stage in aborting.stages()} == {aborting.elites_of(1)}


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1.0, "much", 1e19])
def test_what_is_no_amount_of_work_is_refused(amount: Any) -> None:
    for each in RULES.values():
        with pytest.raises(RecipeError, match="work="):
            each(task(), amount)


def test_too_little_work_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"work=500 samples is too little.*looking at the fitness alone takes"):
        rules.ours(task(), 500.0)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_thirty_lines_or_less(name: str) -> None:
    (function,) = ast.parse(inspect.getsource(RULES[name])).body
    assert isinstance(function, ast.FunctionDef)
    words = function.body[0]
    assert (function.end_lineno or 0) - (words.end_lineno or 0) + words.lineno - function.lineno <= 30


def test_much_work_for_the_papers_rules_is_planned_without_a_rehearsal_of_every_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rehearsed = list[float]()

    def counted(backoff: Any, epochs: float) -> int:
        rehearsed.append(epochs)
        return measurements(backoff, epochs)

    monkeypatch.setattr(work, "measurements", counted)
    recipe = rules.paper(task(), 2e7)
    assert recipe.generations > 400
    assert len(rehearsed) < 100
    assert expected_work(Costs.of(task(), recipe), recipe) == pytest.approx(2e7, rel=0.02)


def test_a_larger_share_for_looks_pays_for_more_generations() -> None:
    own = task()
    for share in (0.1, 0.15, 0.2, 0.3):
        recipe = rules.ours(own, WORK, fitness_share=share, rates=rules.RATES)
        looks = expected_looks(Costs.of(own, recipe), recipe)
        fewest = recipe.generations == len(rules._rungs(9)) + rules.FEWEST
        assert fewest or looks <= share * WORK
    few, many = (rules.ours(own, WORK, fitness_share=share, rates=rules.RATES).generations for share in (0.1, 0.3))
    assert few < many


def test_the_papers_rules_are_the_papers() -> None:
    recipe = rules.paper(task(), WORK)
    assert (recipe.population, recipe.offspring_count, recipe.elite_count, recipe.mates) == (16, 64, 10, 2)
    assert recipe.backoff == PerGeneration()


@pytest.mark.slow
def test_random_search_draws_once_and_lets_every_network_train_to_the_end() -> None:
    generations = whole("random_search")
    first = generations[0].policies
    assert len({policy.hyper["lr"] for policy in first}) == 16, "each has a policy of its own"
    for each in generations:
        assert each.policies == first
        assert [id_ for id_, _ in each.before] == [id_ for id_, _ in generations[0].before], "nothing is selected"
        assert abs(each.work.sgd_forward - generations[0].work.sgd_forward) <= 16 * 32, "up to one step of each"
    seen = [fitness for each in generations for fitness in each.after]
    assert generations[-1].state.archive.fitness[0] == min(seen), "the best checkpoint of the best one"


@pytest.mark.parametrize("name", ["ours", "random_search", "halving", "pbt", "papa", "soup"])
def test_rules_draw_from_a_species_of_the_users_own(name: str) -> None:
    first = run(replace(RULES[name](task(), WORK, rates=Sgd(lr=(0.07, 0.08), gamma=1.0)), generations=1))[0]
    assert {policy.optimizer for policy in first.policies} == {"sgd"}
    assert all(0.07 <= policy.hyper["lr"] <= 0.08 for policy in first.policies)


@pytest.mark.parametrize("name", ["ours", "random_search", "halving", "pbt", "papa", "soup"])
@pytest.mark.parametrize("wrong", [0.1, "sgdd", (0.01, 0.1)])
def test_rates_that_are_no_species_are_refused_by_their_name(name: str, wrong: Any) -> None:
    with pytest.raises(RecipeError, match="^rates="):
        RULES[name](task(), WORK, rates=wrong)


@pytest.mark.slow
def test_a_single_network_has_all_of_the_work_and_one_cosine() -> None:
    generations = whole("single")
    assert {len(each.before) for each in generations} == {1}
    policy = generations[0].policies[0]
    assert all(each.policies == (policy,) for each in generations)
    assert (policy.optimizer, policy.hyper["lr"], policy.schedule) == ("adam", 1e-3, CosineRun())
    assert sum(each.work.sgd_forward + 2 * each.work.sgd_backward for each in generations) > 0.9 * WORK
    assert generations[-1].state.archive.fitness[0] == min(fitness for each in generations for fitness in each.after)


@pytest.mark.slow
def test_halving_keeps_the_best_third_and_interrupts_nothing() -> None:
    generations = whole("halving")
    assert [len(each.before) for each in generations] == [27, 9, 3, 1]
    for each, following in pairwise(generations):
        best = sorted(zip(each.after, (id_ for id_, _ in each.before), strict=True))[: len(following.before)]
        assert {id_ for id_, _ in following.before} == {id_ for _, id_ in best}
    winner = [policy for each in generations for policy in each.policies][-1]
    assert winner in generations[0].policies, "a policy is kept from the first rung to the last"


@pytest.mark.slow
def test_in_pbt_the_worst_quarter_copies_the_best_and_changes_its_rate() -> None:
    generations = whole("pbt")
    assert {each.guarantee for each in generations} == {"waived"}
    perturbed = 0
    for each, following in pairwise(generations):
        order = sorted(range(16), key=lambda j: each.after[j])
        best, worst = ({each.before[j][0] for j in some} for some in (order[:4], order[12:]))
        born = [birth for birth in each.population.births if birth.generation == each.k]
        assert len(born) == 4
        assert {birth.kind for birth in born} == {"clone"}
        assert {parent for birth in born for parent in birth.parents} <= best
        assert not worst & {birth.id for birth in each.population.births}
        rates = dict(zip((id_ for id_, _ in each.before), (p.hyper["lr"] for p in each.policies), strict=True))
        for (id_, _), policy in zip(following.before, following.policies, strict=True):
            parents = [birth.parents[0] for birth in born if birth.id == id_]
            perturbed += any(
                policy.hyper["lr"] == pytest.approx(rates[p] * factor) for p in parents for factor in (0.8, 1.2)
            )
            if not parents:
                assert policy.hyper["lr"] == rates[id_], "who survives keeps its rate"
    assert perturbed > 4


@pytest.mark.slow
def test_intervals_of_pbt_may_grow() -> None:
    epochs = [stage.sgd_epochs for stage in rules.pbt(task(), WORK, growth=1.5).stages()]
    assert [b / a for a, b in pairwise(epochs)] == pytest.approx([1.5] * 9)
    assert spent(run(rules.pbt(task(), WORK, growth=1.5))) == pytest.approx(WORK, rel=0.02)


class Places(nn.Module):
    """BatchNorm over the places of one channel: `alike` of them are the same value."""

    def __init__(self, alike: int) -> None:
        super().__init__()
        self.alike, self.norm, self.head = alike, nn.BatchNorm1d(1), nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = x.repeat(1, 64 // x.shape[1] + 1)[:, : 64 // self.alike].repeat_interleave(self.alike, dim=1)
        return self.head(self.norm(places[:, None])[:, 0])


def test_batchnorm_gets_as_many_samples_as_its_means_need() -> None:
    assert statistics_needed(task()) == 1024, "without BatchNorm nobody asks"
    assert statistics_needed(task(batchnorm_mlp)) == 512, "one value of each sample: (1 / 0.05)², a power of two"
    few, many = (statistics_needed(task(lambda alike=alike: Places(alike))) for alike in (1, 64))
    assert (few, many) == (64, 512)
    assert statistics_needed(task(batchnorm_mlp), error=0.2) == 64
    assert rules.halving(task(batchnorm_mlp), WORK).buffers.samples == 512


class ByName(nn.Module):
    """Calls its BatchNorm with a keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = batchnorm_mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.inner:
            x = layer(input=x)
        return x


def test_what_batchnorm_needs_is_measured_on_the_data_that_it_is_calibrated_with() -> None:
    own = esgd.Supervised(
        batchnorm_mlp,
        F.cross_entropy,
        train=learnable(300),
        fitness=lambda network: float(network(torch.zeros(4, 6)).sum()),
    )
    assert statistics_needed(own) == statistics_needed(task(batchnorm_mlp)) == statistics_needed(task(ByName))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("pbt", {"growth": 1e40}),
        ("pbt", {"growth": 0.0}),
        ("pbt", {"generations": 2.5}),
        ("pbt", {"population": 0}),
        ("random_search", {"population": 0}),
        ("random_search", {"population": "many"}),
        ("soup", {"population": 1}),
        ("papa", {"population": None}),
        ("papa", {"generations": 0}),
        ("ours", {"fitness_share": float("nan")}),
        ("ours", {"fitness_share": 1.5}),
        ("ours", {"fitness_share": "a tenth"}),
    ],
)
def test_numbers_of_rules_that_cannot_be_are_refused(name: str, wrong: dict[str, Any]) -> None:
    rule: Any = RULES[name]
    with pytest.raises(RecipeError, match=f"^{next(iter(wrong))}="):
        rule(task(), WORK, **wrong)


@pytest.mark.slow
def test_papa_pulls_networks_together() -> None:
    apart = run(replace(rules.papa(task(), WORK), anchor=None))
    assert whole("papa")[-1].population.diversity < apart[-1].population.diversity


@pytest.mark.parametrize("engine", ["loop", "vmap"])
def test_a_pull_of_the_whole_way_ends_at_the_mean_of_the_start(engine: str) -> None:
    recipe = esgd.Recipe(
        population=3,
        generations=1,
        sgd_epochs=1,
        evolution_steps=0,
        backoff=Never(),
        anchor=Anchor(strength=1.0, every=1, after=0),
    )
    start = esgd.Population.founders(
        Genome.of(mlp()), torch.randn(3, 73, generator=torch.Generator().manual_seed(0)), {}
    )
    (generation,) = run(recipe, engine=engine, resume=start)
    torch.testing.assert_close(generation.population.rows, start.rows.mean(dim=0).expand(3, -1))


@pytest.mark.slow
def test_swa_averages_the_last_quarter_at_a_constant_rate() -> None:
    (generation,) = whole("swa")
    schedule = generation.policies[0].schedule
    rates = [schedule(esgd.schedules.Moment(epoch=part, epochs=1, total=1)) for part in (0.0, 0.3, 0.5, 0.7, 0.9)]
    assert rates[:2] == [1.0, 1.0]
    assert rates[1] > rates[2] > rates[3]
    assert rates[3] == rates[4] == pytest.approx(0.05)


def test_swa_looks_at_its_checkpoints() -> None:
    assert len(esgd.rules.swa(task(), 1e5).backoff.looks) == 9


@pytest.mark.parametrize("name", ["soup", "papa"])
def test_networks_that_train_apart_are_mixed_in_the_last_generation_of_a_budget_of_time_and_of_a_longer_run(
    name: str,
) -> None:
    timed = esgd.Recipe.within("20s", task(), "loop", rules=name)
    longer = rules.named(name)(task(), WORK).extended(30)
    for recipe in (timed, longer):
        sizes = [recipe.offspring_of(k) for k in range(1, recipe.generations + 1)]
        assert sizes == [0] * (recipe.generations - 1) + [2]


@pytest.mark.slow
def test_a_soup_is_made_in_the_last_generation_only() -> None:
    generations = whole("soup")
    assert [each.work.fitness_evolution > 0 for each in generations[1:]] == [False] * 8 + [True]
    last = generations[-1]
    cooked = [birth for birth in last.population.births if birth.generation == last.k]
    assert {birth.kind for birth in cooked} <= {"soup"}
    order = [last.before[j][0] for j in sorted(range(16), key=lambda j: last.after[j])]
    for birth in cooked:
        places = [order.index(parent) for parent in birth.parents]
        assert places[0] == 0, "it begins with the best network"
        assert places == sorted(places), "and is offered the others from the best to the worst"
        assert last.best.fitness < min(last.after), "each was added because the mean got better"


@pytest.mark.slow
def test_offspring_of_ours_never_take_the_place_of_a_fitter_trajectory() -> None:
    for each in whole("ours"):
        lost = sorted(each.after)[len(each.population) :]
        assert not lost or float(each.population.fitness.max()) <= lost[0]


@pytest.mark.slow
def test_the_command_line_runs_rules_and_resumes_them(tmp_path: Path) -> None:
    words = ("digits", "--rules", "halving", "--work", "200000", "--engine", "loop", "--quiet")
    done = command("run", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "digits-halving-0" / "history.jsonl").exists()
    assert command("resume", "runs/digits-halving-0", "--quiet", cwd=tmp_path).returncode == 0
    wrong = command("run", "digits", "--rules", "halvin", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "Did you mean" in wrong.stderr
    lonely = command("run", "digits", "--work", "100", cwd=tmp_path)
    assert lonely.returncode == 2
    assert "--work 100 is for --rules" in lonely.stderr


def test_sizing_rules_draws_no_random_numbers_of_the_callers() -> None:
    before = torch.get_rng_state()
    data = TensorDataset(*learnable(300))
    rules.ours(esgd.Supervised(mlp, F.cross_entropy, train=data, fitness=learnable(64, seed=1)), WORK)
    assert torch.equal(before, torch.get_rng_state())


def test_without_a_recipe_our_rules_are_used_and_spend_what_the_default_recipe_would() -> None:
    own = task()
    recipe = rules.ours(own)
    first = next(iter(esgd.evolve(own, seed=0, engine="loop")))
    assert not difference(contents(first.population), contents(next(iter(run(recipe))).population))
    assert expected_work(Costs.of(own, recipe), recipe) == pytest.approx(rules.usual_work(own), rel=0.01)


def test_data_of_unknown_length_are_trained_for_whole_epochs() -> None:
    x, y = learnable(64, seed=0)
    stream = esgd.Supervised(mlp, F.cross_entropy, train=lambda: [(x, y)], fitness=learnable(64, seed=1))
    assert all(stage.sgd_epochs == int(stage.sgd_epochs) for stage in rules.ours(stream).stages())
    result = esgd.fit(stream, seed=0, engine="loop", progress=False)
    assert len(result.history) == rules.ours(stream).generations
    assert result.fitness < result.history[0]["best"]
    with pytest.raises(RecipeError, match="does not know how many batches"):
        rules.ours(stream, WORK)


class Squashed(nn.Module):
    """Its output is not proportional to the parameters of any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).tanh()


def test_our_rules_rescale_only_networks_that_have_a_layer_for_it() -> None:
    """No fitness pass is planned for what cannot be: there are more generations instead."""
    scalable, squashed = (rules.ours(classify(network), 4e4) for network in (mlp, Squashed))
    assert scalable.backoff.rescale == rules.RESCALE
    assert squashed.backoff.rescale == 0
    assert squashed.generations > scalable.generations


def test_a_task_that_cannot_be_looked_at_is_planned_all_the_same() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = mlp()

        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("later")

    before = torch.get_rng_state()
    assert rules.ours(classify(Broken), 4e4).backoff.rescale == 0
    assert torch.equal(torch.get_rng_state(), before)

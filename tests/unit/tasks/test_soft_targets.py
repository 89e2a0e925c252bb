"""Label smoothing and mixup: in the training loss, drawn by address, and never in the fitness."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import esgd
from esgd import Loop, Policy, Vmap
from esgd.errors import TaskError
from esgd.randomness import Seeds
from esgd.species import Adam, Fixed, Uniform
from esgd.tasks.objectives import OfBatch
from esgd.testing import check_task
from esgd.testing.evidence import contents, difference
from tests.small import CLASSES, INPUTS, classify, mlp, random_data

SEEDS = Seeds(3, ("data", 0))
WEIGHT = torch.tensor([0.2, 1.0, 3.0])


def own_loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(output, target, reduction="none")


def regress(loss: Any = F.mse_loss) -> esgd.Supervised:
    x, _ = random_data(40)
    return esgd.Supervised(lambda: nn.Linear(INPUTS, 1), loss, train=(x, x[:, :1]), fitness=(x, x[:, :1]))


class AsDataset(Dataset[Any]):
    """The same samples one by one: engines stack the batches of such data themselves."""

    def __init__(self, data: tuple[Tensor, Tensor]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.data[0][index], self.data[1][index]


@pytest.mark.parametrize(
    "loss",
    [
        F.cross_entropy,
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss(weight=WEIGHT, label_smoothing=0.3),
        nn.CrossEntropyLoss(weight=WEIGHT, ignore_index=1, reduction="none"),
        partial(F.cross_entropy, weight=WEIGHT),
    ],
    ids=["function", "module", "smoothed module", "module of samples", "partial"],
)
def test_label_smoothing_is_torchs_own_in_training_and_absent_from_the_fitness(loss: Any) -> None:
    train, fitness = random_data(32), random_data(70, seed=1)
    task, network = esgd.Supervised(mlp, loss, train=train, fitness=fitness, batch_size=32), mlp()
    settings = {"label_smoothing": 0.15}
    task.prepare(network, settings)
    ((x, y),) = task.batches(SEEDS, {})
    (batch,) = task.batches(SEEDS, settings)
    same = {"weight": getattr(loss, "weight", None), "ignore_index": getattr(loss, "ignore_index", -100)}
    if isinstance(loss, partial):
        same |= loss.keywords
    reduction = getattr(loss, "reduction", "mean")
    expected = F.cross_entropy(network(x), y, **same, reduction=reduction, label_smoothing=0.15).mean()
    torch.testing.assert_close(task.loss(network, batch), expected)
    assert task.size(batch) == 32
    parts = [batch for _, batch in task.parts()]
    own = loss(network(parts[0][0]), parts[0][1]).double()
    expected_sum = own.sum() if own.dim() else own * task.divisor(parts[0])
    torch.testing.assert_close(task.fitness(network, parts[0]), expected_sum)


@pytest.mark.parametrize("task", [classify(), regress(), classify(batch_size=7)], ids=str)
def test_mixup_mixes_samples_and_the_losses_of_their_two_targets(task: esgd.Supervised) -> None:
    network, settings = task.model(), {"mixup": 0.4}
    task.prepare(network, settings)
    shares = []
    for (x, y), batch in zip(task.batches(SEEDS, {}), task.batches(SEEDS, settings), strict=True):
        mixed, (first, second, share) = batch
        assert torch.equal(first, y)
        assert torch.equal(y.flatten().sort().values, second.flatten().sort().values), "the same samples, reordered"
        pairs = [(i, j) for i in range(len(x)) for j in range(len(x)) if torch.equal(second[i], y[j])]
        blend = {i for i, j in pairs if torch.allclose(mixed[i], share * x[i] + (1 - share) * x[j], atol=1e-5)}
        assert blend == set(range(len(x)))
        loss = F.cross_entropy if task.model is mlp else F.mse_loss
        expected = share * loss(network(mixed), first) + (1 - share) * loss(network(mixed), second)
        torch.testing.assert_close(task.loss(network, batch), expected)
        shares.append(float(share))
    assert len(set(shares)) == len(shares), "each batch has a share of its own"
    assert all(0 <= share <= 1 for share in shares)


def test_mixup_depends_on_its_address_alone() -> None:
    task, settings = classify(), {"mixup": 1.0, "label_smoothing": 0.1}
    first, again = (list(task.batches(SEEDS, settings)) for _ in range(2))
    assert difference(first, again) == ""
    assert difference(first, list(task.batches(Seeds(4, ("data", 0)), settings))) != ""
    together = list(task.batches_together([SEEDS, Seeds(4, ("data", 0))], settings) or ())
    assert difference([torch.utils._pytree.tree_map(lambda leaf: leaf[0], each) for each in together], first) == ""


def test_off_is_the_plain_batch_bit_by_bit() -> None:
    task = classify()
    assert (
        difference(list(task.batches(SEEDS, {"mixup": 0, "label_smoothing": 0.0})), list(task.batches(SEEDS, {}))) == ""
    )
    check_task(task)


@pytest.mark.slow
@pytest.mark.parametrize("train", [random_data(48), AsDataset(random_data(48))], ids=["tensors", "dataset"])
def test_many_networks_at_once_train_as_one_by_one(train: Any) -> None:
    policy = Policy(optimizer="adam", hyper={"lr": 0.01}, settings={"label_smoothing": 0.1, "mixup": 0.3})
    recipe = esgd.Recipe(population=3, offspring=0, generations=1, sgd_epochs=2, species=Fixed(policy=policy))
    (ours,), (loops,) = (
        list(esgd.evolve(classify(train=train), recipe, seed=0, engine=engine))
        for engine in (Vmap(chunk=3, threads=1), Loop(threads=1))
    )
    assert difference(contents(ours.population), contents(loops.population), tolerance=1e-4) == ""


@pytest.mark.parametrize(
    ("task", "settings", "says"),
    [
        (regress(), {"label_smoothing": 0.1}, "label_smoothing means nothing to the loss mse_loss.*cross entropy"),
        (regress(nn.L1Loss()), {"label_smoothing": 0.1}, "label_smoothing means nothing to the loss L1Loss"),
        (classify(), {"label_smoothing": 1.5}, r"the setting label_smoothing=1.5 is not in \[0, 1\].*Use 0.1"),
        (classify(), {"mixup": -1}, "the setting mixup=-1 is not in.*Use 0.2, or 0 for none"),
        (classify(), {"mixup": "x"}, "the setting mixup='x' is not a number"),
        (
            regress(OfBatch(own_loss)),
            {"mixup": 0.2},
            "mixup=0.2 cannot be applied: the loss own_loss is given the whole",
        ),
        (regress("model"), {"mixup": 0.2}, r"cannot be applied.*Use a loss of \(output, target\)"),
        (classify(), {"mixupp": 0.1}, "Did you mean 'mixup'"),
    ],
    ids=str,
)
def test_what_means_nothing_is_refused_before_a_step_is_taken(task: Any, settings: Any, says: str) -> None:
    with pytest.raises(TaskError, match=says):
        task.prepare(task.model(), settings)


def test_zero_of_them_is_no_reason_to_refuse_a_loss() -> None:
    regress().prepare(nn.Linear(INPUTS, 1), {"label_smoothing": 0.0})


def test_words_cannot_be_mixed() -> None:
    words, y = torch.randint(5, (20, 3)), torch.randint(CLASSES, (20,))
    task = esgd.Supervised(
        lambda: nn.Sequential(nn.EmbeddingBag(5, CLASSES)), F.cross_entropy, train=(words, y), fitness=(words, y)
    )
    with pytest.raises(TaskError, match="cannot mix input 0, which is torch.int64.*nothing between two whole numbers"):
        next(iter(task.batches(SEEDS, {"mixup": 0.2})))


def test_a_loss_of_ones_own_with_a_value_per_sample_is_mixed_too() -> None:
    x, y = random_data(24)
    task, network = esgd.Supervised(mlp, own_loss, train=(x, y), fitness=(x, y), batch_size=24), mlp()
    (batch,) = task.batches(SEEDS, {"mixup": 0.5})
    mixed, (first, second, share) = batch
    expected = share * F.cross_entropy(network(mixed), first) + (1 - share) * F.cross_entropy(network(mixed), second)
    torch.testing.assert_close(task.loss(network, batch), expected)


def test_uniform_draws_reach_the_history() -> None:
    species = Adam(lr=0.01, settings={"label_smoothing": Uniform(0.0, 0.2)})
    recipe = esgd.Recipe(population=2, offspring=0, generations=1, sgd_epochs=1, species=species)
    result = esgd.fit(classify(), recipe, seed=0, engine="loop", progress=False)
    drawn = [policy["settings"]["label_smoothing"] for policy in result.history[0]["policies"]]
    assert len(set(drawn)) == 2
    assert all(0 <= each <= 0.2 for each in drawn)

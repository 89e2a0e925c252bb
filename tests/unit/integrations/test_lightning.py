"""Lightning: a real module and its data, what a Trainer's arguments become, and what is refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import esgd
from esgd.errors import EsgdError
from esgd.ledger import passes
from esgd.schedules import CosineRun
from esgd.testing import check_task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that it imports
    lightning = pytest.importorskip("lightning.pytorch")
    torchmetrics = pytest.importorskip("torchmetrics")

from esgd.integrations.lightning import fit
from esgd.integrations.lightning_task import LightningTask

X = torch.randn(120, 4, generator=torch.Generator().manual_seed(0))
Y = (X[:, :2].prod(dim=1) > 0).long()
RECIPE = esgd.Recipe(population=2, generations=1, sgd_epochs=1)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning|torchmetrics")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*|.*does not have many workers.*")
        yield


class Module(lightning.LightningModule):
    def __init__(self, width: int = 8, lr: float = 0.02) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        self.accuracy = torchmetrics.Accuracy("multiclass", num_classes=2)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        output = self.network(x)
        self.accuracy(output, y)
        self.log_dict({"val_loss": F.cross_entropy(output, y), "val_accuracy": self.accuracy}, prog_bar=True)

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.1)


class Data(lightning.LightningDataModule):
    def setup(self, stage: str) -> None:
        self.train, self.val = TensorDataset(X[:90], Y[:90]), TensorDataset(X[90:], Y[90:])

    def train_dataloader(self) -> Any:
        return DataLoader(self.train, 10, shuffle=True)

    def val_dataloader(self) -> Any:
        return DataLoader(self.val, 8)


def trainer(**arguments: Any) -> Any:
    usual = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    return lightning.Trainer(**{**usual, "enable_model_summary": False, "max_epochs": 60, **arguments})


def trained(make: Any = Module, **changes: Any) -> esgd.Result:
    usual = {"datamodule": Data(), "recipe": RECIPE, "seed": 0, "engine": "loop", "progress": False}
    return fit(make, **{**usual, **changes})


@pytest.mark.parametrize(("monitor", "mode"), [("val_loss", "min"), ("val_accuracy", "max")])
def test_the_fitness_is_what_lightning_itself_measures_on_the_module_that_comes_back(monitor: str, mode: str) -> None:
    result = trained(monitor=monitor, mode=mode)
    (measured,) = trainer().validate(result.model, datamodule=Data(), verbose=False)
    assert isinstance(result.model, Module)
    assert result.model.hparams.lr == 0.02
    assert abs(result.fitness) == pytest.approx(measured[monitor], rel=1e-5)
    assert result.metrics == pytest.approx(measured, rel=1e-5)


def test_a_module_is_a_task_that_keeps_the_contract() -> None:
    task = trained(nonnegative=True).task
    assert task is not None
    check_task(task)
    assert task.nonnegative


def test_the_optimizer_of_the_module_is_the_centre_of_the_species_and_the_trainer_gives_work_and_clipping() -> None:
    made = trainer(gradient_clip_val=0.5, max_epochs=20)
    recipe = trained(recipe=None, trainer=made, stop=lambda generation: "enough").recipe
    assert recipe is not None
    pool = recipe.species.species  # type: ignore[attr-defined]
    assert (pool.name, pool.clip_norm, pool.hyper) == ("adamw", 0.5, {"weight_decay": 0.1})
    assert (pool.lr.low * pool.lr.high) ** 0.5 == pytest.approx(0.02)
    assert pool.schedule == CosineRun()
    spent = esgd.work.expected_work(esgd.work.Costs.of(trained().task, recipe), recipe)
    assert spent == pytest.approx(20 * (3 * 90 + 30), rel=0.1)


class Grouped(Module):
    """The last layer learns faster, and its bias does not decay."""

    def configure_optimizers(self) -> Any:
        first, _, last = self.network
        groups = [
            {"params": first.parameters()},
            {"params": [last.weight], "lr": 0.05},
            {"params": [last.bias], "lr": 0.05, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)


def test_groups_of_parameters_and_accumulation_are_those_of_every_policy() -> None:
    made = trainer(accumulate_grad_batches=4, max_epochs=-1, max_steps=60)
    result = trained(Grouped, recipe=None, trainer=made, stop=lambda generation: "enough")
    pool = result.recipe.species.species  # type: ignore[union-attr]
    assert pool.accumulate == 4
    assert {each.names: (round(each.lr_factor, 6), each.weight_decay) for each in pool.groups} == {
        "network.2.weight": (5.0, None),
        "network.2.bias": (5.0, 0.0),
    }
    spent = esgd.work.expected_work(esgd.work.Costs.of(result.task, result.recipe), result.recipe)
    assert spent == pytest.approx(60 / 3 * (3 * 90 + 30), rel=0.1)  # nine batches of an epoch are three steps


def test_a_budget_takes_the_place_of_the_epochs_of_the_trainer() -> None:
    result = trained(recipe=None, trainer=trainer(max_epochs=1, gradient_clip_val=0.5), budget=esgd.Work(samples=9e3))
    spent = sum(passes(line["ledger"]) for line in result.history)
    assert spent == pytest.approx(9e3, rel=0.15)  # some evaluations are aborted early
    assert result.recipe.species.species.clip_norm == 0.5  # type: ignore[union-attr]


def test_a_budget_of_work_for_a_loader_of_unknown_length_is_refused_by_name() -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield from zip(X, Y, strict=True)

    loaders = {"datamodule": None, "train_dataloaders": DataLoader(Endless(), 10)}
    with pytest.raises(EsgdError, match=r"budget=Work\(samples=9000.0\) trains parts of epochs"):
        trained(
            recipe=None, budget=esgd.Work(samples=9e3), val_dataloaders=DataLoader(TensorDataset(X, Y), 8), **loaders
        )


def test_a_run_of_modules_is_resumed_bit_identically(tmp_path: Path) -> None:
    recipe = esgd.Recipe(population=2, generations=2, sgd_epochs=1)
    whole = trained(recipe=recipe)
    folder = {"recipe": recipe, "run": tmp_path, "report": False}
    trained(stop=lambda generation: "enough", **folder)
    assert torch.equal(trained(**folder).state.population.rows, whole.state.population.rows)


class Batchwise(Module):
    """Its steps take no number, so batches are tensors alone."""

    def training_step(self, batch: Any) -> Any:  # type: ignore[override]
        return {"loss": F.cross_entropy(self.network(batch[0]), batch[1])}

    def validation_step(self, batch: Any) -> None:  # type: ignore[override]
        self.log("val_loss", F.cross_entropy(self.network(batch[0]), batch[1]))


def test_modules_whose_steps_take_no_number_are_trained_many_at_once() -> None:
    loop, vmap = (trained(Batchwise, engine=engine).fitness for engine in ("loop", "vmap"))
    assert loop == pytest.approx(vmap, rel=1e-5)


def scheduled(make: Any) -> type[Module]:
    class Scheduled(Module):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [make(optimizer)]

    return Scheduled


@pytest.mark.parametrize(
    ("make", "schedule", "named"),
    [
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 60, eta_min=0.05), CosineRun(floor=0.5), ""),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, 20), CosineRun(), "CosineAnnealingLR"),
        (
            lambda o: {"scheduler": lr_scheduler.CosineAnnealingLR(o, 60), "interval": "step"},
            CosineRun(),
            "CosineAnnealingLR",
        ),
        (lambda o: {"scheduler": lr_scheduler.MultiStepLR(o, [3, 7])}, CosineRun(), "MultiStepLR"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o), CosineRun(), "ReduceLROnPlateau"),
    ],
    ids=["cosine", "a shorter cosine", "a cosine over steps", "drops", "another"],
)
def test_a_scheduler_is_followed_or_named(make: Any, schedule: Any, named: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        recipe = trained(scheduled(make), recipe=None, trainer=trainer(), stop=lambda generation: "enough").recipe
    assert recipe is not None
    assert recipe.species.species.schedule == schedule  # type: ignore[attr-defined]
    told = [str(each.message) for each in said if "in a population" in str(each.message)]
    assert ([f"{named} (not followed" in text for text in told]) == ([True] if named else [])


class OneCycle(Module):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.001, momentum=0.5)
        return [optimizer], [lr_scheduler.OneCycleLR(optimizer, max_lr=0.08, total_steps=9)]


def test_one_cycle_gives_its_largest_rate_and_leaves_the_momentum_of_the_optimizer() -> None:
    with pytest.warns(UserWarning, match=r"OneCycleLR \(not followed"):
        recipe = trained(OneCycle, recipe=None, trainer=trainer(), stop=lambda generation: "enough").recipe
    pool = recipe.species.species  # type: ignore[union-attr]
    assert (pool.lr.low * pool.lr.high) ** 0.5 == pytest.approx(0.08)
    assert pool.hyper == {"momentum": 0.5}


class Watching(Module):
    def on_validation_epoch_end(self) -> None:
        raise AssertionError("hooks are not called")


def unused(make: Any = Module, **changes: Any) -> str:
    """The one warning about what is not used."""
    with pytest.warns(UserWarning, match="Not used in a population") as said:
        trained(make, **changes)
    (told,) = [str(each.message) for each in said if "Not used" in str(each.message)]
    return told


def test_what_is_not_used_is_listed_in_one_warning(tmp_path: Path) -> None:
    callbacks = lightning.callbacks
    made = trainer(
        callbacks=[callbacks.EarlyStopping("val_loss"), callbacks.ModelCheckpoint(tmp_path, monitor="val_loss")],
        logger=lightning.loggers.CSVLogger(tmp_path),
        enable_checkpointing=True,
        min_epochs=2,
    )
    told = unused(Watching, trainer=made)
    for each in ("on_validation_epoch_end", "min_epochs=2", "EarlyStopping", "ModelCheckpoint", "CSVLogger"):
        assert each in told


@pytest.mark.parametrize(("monitor", "mode", "threshold"), [("val_loss", "min", 50.0), ("val_accuracy", "max", 0.01)])
def test_the_threshold_of_an_early_stopping_stops_a_run(monitor: str, mode: str, threshold: float) -> None:
    endless = lightning.callbacks.EarlyStopping(monitor, patience=60, mode=mode, stopping_threshold=threshold)
    recipe = replace(RECIPE, generations=2)
    with pytest.warns(UserWarning, match="Not used in a population") as said:
        result = trained(monitor=monitor, mode=mode, recipe=recipe, trainer=trainer(callbacks=[endless]))
    assert [str(each.message) for each in said] == ["Not used in a population: max_epochs=60 (the recipe decides)."]
    assert len(result.history) == 1
    assert "the target is" in result.stopped


def test_every_callback_is_followed_or_named(tmp_path: Path) -> None:
    callbacks = lightning.callbacks
    given = [
        callbacks.EarlyStopping("val_loss", patience=2, stopping_threshold=-1.0),
        callbacks.EarlyStopping("val_accuracy", mode="max", stopping_threshold=0.9),
        callbacks.LearningRateMonitor(),
        callbacks.Timer("00:01:00:00"),
        callbacks.LambdaCallback(),
    ]
    told = unused(trainer=trainer(callbacks=given, logger=lightning.loggers.CSVLogger(tmp_path)))
    for each in (
        "patience=2 of EarlyStopping (use stop=esgd.Patience",
        "EarlyStopping (use stop=esgd.Patience(…), in generations, or",
        "LearningRateMonitor (the history has every policy)",
        "Timer (use budget=…)",
        "LambdaCallback",
    ):
        assert each in told


def test_a_recipe_and_an_engine_name_what_they_take_the_place_of() -> None:
    make = scheduled(lambda o: lr_scheduler.CosineAnnealingLR(o, 60))
    told = unused(make, trainer=trainer(gradient_clip_val=0.5, accumulate_grad_batches=2, precision="bf16-mixed"))
    for each in ("CosineAnnealingLR", "gradient_clip_val=0.5", "accumulate_grad_batches=2", "precision='bf16-mixed'"):
        assert each in told


class Prepared(Module):
    """What prepare_data leaves is there in setup."""

    prepared = False

    def prepare_data(self) -> None:
        Prepared.prepared = True

    def setup(self, stage: str) -> None:
        assert Prepared.prepared


def test_a_module_prepares_its_data_before_its_setup() -> None:
    assert trained(Prepared).fitness > 0


class Scaled(Data):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return [batch[0] / 100, batch[1]]


class Ending(Module):
    def on_train_batch_end(self, *_: Any) -> None:
        """Such as an average of weights."""


class Headed(Module):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.network[2].parameters())


class Asking(Module):
    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=1 / self.trainer.max_epochs)


class Weighted(Module):
    """Every batch counts as its number of ones, as tokens would."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        loss = F.cross_entropy(self.network(x), y)
        self.log("val_loss", loss, on_step=True, on_epoch=True, batch_size=1 + int(y.sum()) ** 2)


def test_batch_size_of_log_is_the_weight_of_a_batch_and_names_of_an_epoch_are_known() -> None:
    result = trained(Weighted, monitor="val_loss_epoch")
    (measured,) = trainer().validate(result.model, datamodule=Data(), verbose=False)
    assert result.fitness == pytest.approx(measured["val_loss_epoch"], rel=1e-5)


class Largest(Module):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", 1.0, reduce_fx="max")


class Two(Module):
    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.network.parameters(), lr=0.1)] * 2


class Groups(Module):
    def configure_optimizers(self) -> Any:
        first, _, last = self.network
        return torch.optim.SGD([{"params": first.parameters()}, {"params": last.parameters(), "momentum": 0.5}], lr=0.1)


class Quadratic(Module):
    def configure_optimizers(self) -> Any:
        return torch.optim.LBFGS(self.parameters(), lr=0.1)


class Epochal(Module):
    def training_epoch_end(self, outputs: Any) -> None:
        pass


class Annealed(Module):
    def training_step(self, batch: Any, number: int) -> Any:
        return min(1.0, self.current_epoch / 5) * super().training_step(batch, number)


class Counting(Module):
    def training_step(self, batch: Any, number: int) -> Any:
        return super().training_step(batch, number) / (1 + self.global_step)


class Stepping(Module):
    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Whatever it does."""


class Attached(Module):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", float(self.trainer.max_epochs))


class Pictured(Module):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.logger.experiment.add_image("first", batch[0])


class Silent(Module):
    """No loss: Lightning skips such a batch."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None


class Scheduling(Module):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.lr_schedulers().step()
        return super().training_step(batch, batch_idx)


class Sharded(Data):
    def train_dataloader(self) -> Any:
        return DataLoader(TensorDataset(), batch_size=8 * self.trainer.world_size)


class Forgetful(Module):
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_los", 1.0)


MANUAL = type("ManualModule", (Module,), {"automatic_optimization": property(lambda self: False)})
REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "manual optimization": (MANUAL, {}, "automatic_optimization=False"),
    "two optimizers": (Two, {}, "returned 2 optimizers"),
    "groups": (Groups, {"recipe": None}, "groups of parameters with other values of momentum"),
    "a part of the parameters": (Headed, {}, r"leaves out network\.0\.\*.*requires_grad_\(False\)"),
    "the trainer's rate": (Asking, {}, "configure_optimizers uses self.trainer"),
    "CyclicLR": (
        scheduled(lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, cycle_momentum=False)),
        {"recipe": None},
        "CyclicLR overwrites the learning rate",
    ),
    "an optimizer with a closure": (Quadratic, {"recipe": None}, "LBFGS computes the loss several times in a step"),
    "a hook of Lightning 1": (Epochal, {}, "has training_epoch_end.*would not be called"),
    "a hook": (Stepping, {}, "has on_before_optimizer_step.*would not be called"),
    "a hook after a batch": (Ending, {}, "has on_train_batch_end.*would not be called"),
    "a hook of the data": (Module, {"datamodule": Scaled()}, "Scaled has on_after_batch_transfer"),
    "a callback": (
        Module,
        {"trainer": {"callbacks": [lightning.callbacks.StochasticWeightAveraging(0.1)]}},
        "StochasticWeightAveraging of the Trainer changes the training",
    ),
    "pruning": (
        Module,
        {"trainer": {"callbacks": [lightning.callbacks.ModelPruning("l1_unstructured", amount=0.5)]}},
        "ModelPruning of the Trainer changes the training.*Prune result.model",
    ),
    "self.trainer": (Attached, {}, "validation_step uses self.trainer"),
    "self.logger": (Pictured, {}, "validation_step asks None for 'experiment'.*Use self.log"),
    "the trainer of the data": (Module, {"datamodule": Sharded()}, "train_dataloader asks None for 'world_size'"),
    "a debugging run": (Module, {"trainer": {"fast_dev_run": True}}, "fast_dev_run=(1|True) cannot"),
    "few batches again and again": (Module, {"trainer": {"overfit_batches": 2}}, "overfit_batches=2 cannot"),
    "a monitor": (Forgetful, {}, "monitor='val_loss' is not what.*Did you mean 'val_los'"),
    "a reduction": (Largest, {}, "logs 'val_loss' with reduce_fx='max'"),
    "no monitor": (Module, {"monitor": None}, "monitor=None is no name"),
    "a mode": (Module, {"mode": "best"}, "mode='best' is neither"),
    "an instance": (Module(), {}, "make_module is a Module.*lambda: Module"),
    "no module": (nn.Identity, {}, "not a LightningModule"),
    "no data": (Module, {"datamodule": None}, "the train data are missing"),
    "two loaders": (Module, {"datamodule": None, "train_dataloaders": [1, 2]}, "the train data are 2 loaders"),
    "clipping by value": (
        Module,
        {"trainer": {"gradient_clip_val": 1.0, "gradient_clip_algorithm": "value"}},
        "gradient_clip_algorithm",
    ),
    "fewer batches": (Module, {"trainer": {"limit_train_batches": 3}}, "limit_train_batches=3 cannot"),
    "precision": (Module, {"trainer": {"precision": "64-true"}}, "precision='64-true' cannot"),
    "too little work": (Module, {"recipe": None, "trainer": {"max_epochs": 1}}, "too little work for a population"),
}
if hasattr(lightning.callbacks, "EMAWeightAveraging"):  # since 2.6
    REFUSED["an average of weights"] = (
        Module,
        {"trainer": {"callbacks": [lightning.callbacks.EMAWeightAveraging()]}},
        "EMAWeightAveraging of the Trainer changes the training.*result.soup",
    )


def test_epochs_that_a_recipe_decides_are_named() -> None:
    with pytest.warns(UserWarning, match=r"max_epochs=7 \(the recipe decides\), max_steps=9 \(the recipe decides\)"):
        trained(trainer=trainer(max_epochs=7, max_steps=9))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused_by_name_before_training(name: str) -> None:
    make, changes, words = REFUSED[name]
    if "trainer" in changes:
        changes = {**changes, "trainer": trainer(**changes["trainer"])}
    with pytest.raises(EsgdError, match=words):
        trained(make, **changes)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Silent, "training_step returned None, by which Lightning skips a batch"),
        (Scheduling, "training_step uses self.trainer"),
        (Annealed, "training_step uses self.current_epoch"),
        (Counting, "training_step uses self.global_step"),
    ],
)
def test_a_training_step_is_tried_before_anything_is_scored(
    monkeypatch: pytest.MonkeyPatch, make: Any, words: str
) -> None:
    monkeypatch.setattr(LightningTask, "fitness", lambda *_: pytest.fail("a network was scored"))
    with pytest.raises(EsgdError, match=words):
        trained(make)


class Skipping(Module):
    """A loss for whole batches of training alone."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return None if self.training and batch_idx == 3 else super().training_step(batch, batch_idx)


def test_a_batch_that_lightning_would_skip_ends_the_run_with_the_way_out() -> None:
    with pytest.raises(EsgdError, match=r"training_step returned None.*skips a batch.*Leave such samples out of the"):
        trained(Skipping)


def test_a_data_module_may_be_given_as_loaders_and_hooks_that_are_not_called_are_named() -> None:
    class Closing(Data):
        def teardown(self, stage: str) -> None:
            """Not called."""

    class Saving(Module):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            """Not called."""

    with pytest.warns(UserWarning, match="population: on_save_checkpoint, .*teardown of the data module") as caught:
        trained(Saving, datamodule=None, train_dataloaders=Closing(), trainer=trainer(profiler="simple"))
    assert "SimpleProfiler" in str(caught[0].message)

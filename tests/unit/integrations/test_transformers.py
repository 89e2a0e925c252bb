"""`EsgdTrainer`: a population from the arguments of Hugging Face's `Trainer`. A tiny BERT of random weights."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

import esgd
from esgd import Recipe
from esgd.errors import RecipeError, RunError, TaskError
from esgd.genome import Genome
from esgd.groups import NoDecay, resolved
from esgd.ledger import passes
from esgd.operators import Perturbed
from esgd.operators.lora import lora_pairs
from esgd.schedules import Constant, CosineRun, Steps
from esgd.work import Costs, expected_work

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

from esgd.integrations.curves import curves  # noqa: E402
from esgd.integrations.transformers import EsgdTrainer  # noqa: E402

WORDS = ["[PAD]", "[UNK]", "good", "fine", "bad", "poor", "film", "plot", "the", "a"]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def reviews(n: int, seed: int) -> list[dict[str, Any]]:
    """Sentences of different lengths, whose label one word decides; a column that no network takes."""
    generator, rows, encode = np.random.default_rng(seed), [], tokenizer()
    for number in range(n):
        label = int(generator.integers(2))
        words = [str(generator.choice(WORDS[4:6] if label else WORDS[2:4]))]
        words += [str(generator.choice(WORDS[6:])) for _ in range(int(generator.integers(1, 6)))]
        rows.append({**encode(" ".join(words)), "label": label, "number": number})
    return rows


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=2,
    )
    return transformers.BertForSequenceClassification(config)


def adapted() -> nn.Module:
    lora = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"])
    return peft.get_peft_model(bert(), lora)


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def arguments(folder: Path, **more: Any) -> Any:
    given = {"num_train_epochs": 12, "learning_rate": 3e-3, "disable_tqdm": True, "report_to": "none", "use_cpu": True}
    return transformers.TrainingArguments(output_dir=str(folder), **given | more)


def trainer(folder: Path, make: Callable[[], nn.Module] = bert, *, args: Any = None, **more: Any) -> EsgdTrainer:
    return EsgdTrainer(
        model_init=make,
        args=args or arguments(folder),
        **{
            "train_dataset": reviews(64, 0),
            "eval_dataset": reviews(16, 1),
            "processing_class": tokenizer(),
            "compute_metrics": accuracy,
            "engine": "loop",
        }
        | more,
    )


@pytest.mark.slow
def test_a_population_of_berts_learns_and_is_saved_as_transformers_reads_it(tmp_path: Path) -> None:
    population = trainer(tmp_path)
    untrained = population.evaluate()["eval_loss"]
    population.train()
    found = population.evaluate()
    assert found["eval_loss"] < untrained
    assert found["eval_loss"] == pytest.approx(population.result.fitness, rel=1e-4)  # the loss that selection goes by
    population.save_model(tmp_path / "saved")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in (tmp_path / "saved").iterdir()}
    read = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    test = reviews(8, 2)
    again = transformers.Trainer(model=read, args=arguments(tmp_path / "other"), processing_class=tokenizer())
    np.testing.assert_allclose(again.predict(test).predictions, population.predict(test).predictions, rtol=1e-5)

    resumed = trainer(tmp_path)
    assert resumed.train().fitness == population.result.fitness  # nothing is trained again


@pytest.mark.slow
def test_adapters_are_trained_on_one_base_and_saved_without_it(tmp_path: Path) -> None:
    calls = []

    def make() -> nn.Module:
        calls.append(1)
        return adapted()

    population = trainer(tmp_path, make, args=arguments(tmp_path, num_train_epochs=6))
    base = {name: p.detach().clone() for name, p in population.model.named_parameters() if not p.requires_grad}
    result = population.train()
    assert len(calls) == 1
    assert len(lora_pairs(result.population.genome)) == 2
    assert any("LoraProduct" in note["text"] for note in result.history[0]["notes"])
    assert all(torch.equal(dict(result.model.named_parameters())[name], value) for name, value in base.items())
    population.save_model(tmp_path / "saved")
    assert "adapter_model.safetensors" in {path.name for path in (tmp_path / "saved").iterdir()}
    torch.manual_seed(42)  # of TrainingArguments, unless given
    read = peft.PeftModel.from_pretrained(bert(), tmp_path / "saved").eval()
    batch = next(batch for _, batch in population.task.parts())
    torch.testing.assert_close(read(**batch).logits, result.model(**batch).logits)
    frozen = sum(p.numel() for p in result.model.parameters() if not p.requires_grad)
    assert (tmp_path / "esgd" / "model.safetensors").stat().st_size < 4 * frozen


def test_the_start_is_that_of_trainer_with_the_same_seed(tmp_path: Path) -> None:
    theirs = transformers.Trainer(model_init=bert, args=arguments(tmp_path, seed=7)).model.state_dict()
    ours = trainer(tmp_path, args=arguments(tmp_path, seed=7)).task.model().state_dict()
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())


def test_batches_are_padded_and_labelled_as_by_trainer(tmp_path: Path) -> None:
    population = trainer(tmp_path)
    [ours] = [batch for number, batch in population.task.parts() if number == 0]
    theirs = transformers.Trainer(
        model=bert(), args=arguments(tmp_path), eval_dataset=reviews(16, 1), processing_class=tokenizer()
    )
    first = next(iter(theirs.get_eval_dataloader()))
    assert ours.keys() == first.keys()
    assert all(torch.equal(ours[name], value) for name, value in first.items())


def test_a_metric_can_be_what_selection_goes_by(tmp_path: Path) -> None:
    population = trainer(tmp_path, args=arguments(tmp_path, metric_for_best_model="accuracy"))
    network = population.task.model().eval()
    measured = float(sum(population.task.fitness(network, batch) for _, batch in population.task.parts()))
    assert measured == pytest.approx(-population.evaluate()["eval_accuracy"])
    with pytest.raises(RecipeError, match="metric_for_best_model='f1' needs compute_metrics"):
        trainer(tmp_path, args=arguments(tmp_path, metric_for_best_model="f1"), compute_metrics=None)


def test_all_numbers_of_compute_metrics_are_in_the_history_and_in_trackers(tmp_path: Path) -> None:
    def several(prediction: Any) -> dict[str, Any]:
        share = prediction.label_ids.mean()
        right = (prediction.predictions[0].argmax(-1) == prediction.label_ids).mean()
        others = {"loss": 9.0, "table": [[1, 2], [3, 4]], "kind": "binary"}
        return {"accuracy": right, "eval_share": share, **others}

    recipe = Recipe(population=2, offspring=2, mates=1, elites=1, generations=2, sgd_epochs=1)
    for select in (None, "accuracy"):
        args = arguments(tmp_path / str(select), metric_for_best_model=select)
        population = trainer(tmp_path, TwoOutputs, args=args, compute_metrics=several, recipe=recipe)
        result = population.train()
        found = population.evaluate()
        expected = {name: pytest.approx(found[f"eval_{name}"]) for name in ("accuracy", "share")}
        assert result.history[-1]["metrics"] == expected
        assert curves(result.history[-1])["metrics/share"] == expected["share"]


def test_metrics_that_are_called_in_another_way_are_named_and_left_to_evaluate(tmp_path: Path) -> None:
    args = arguments(tmp_path, eval_do_concat_batches=False)
    with pytest.warns(UserWarning, match="not in the history: eval_do_concat_batches=False.$") as warned:
        population = trainer(tmp_path, args=args, recipe=Recipe())
    assert population.task.fitness_metrics(population.model) == {}
    assert {each.filename for each in warned if "history" in str(each.message)} == {__file__}


def test_a_compute_metrics_that_raises_ends_the_training(tmp_path: Path) -> None:
    def missing(prediction: Any) -> dict[str, float]:
        raise KeyError("no such metric")

    recipe = Recipe(population=2, offspring=2, mates=1, elites=1, generations=1, sgd_epochs=1)
    with pytest.raises(KeyError, match="no such metric"):
        trainer(tmp_path, TwoOutputs, compute_metrics=missing, recipe=recipe).train()


class TwoOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(len(WORDS), 4), nn.Linear(4, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Any:
        pooled = self.table(input_ids).mean(1)
        logits = self.out(pooled)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits, "pooled": pooled}


def test_selection_gives_compute_metrics_all_outputs_as_trainer_does(tmp_path: Path) -> None:
    def spread(prediction: Any) -> dict[str, float]:
        logits, pooled = prediction.predictions
        return {"spread": float(logits.std() + pooled.std())}

    args = arguments(tmp_path, metric_for_best_model="spread")
    population = trainer(tmp_path, TwoOutputs, args=args, compute_metrics=spread)
    network = population.task.model().eval()
    measured = float(sum(population.task.fitness(network, batch) for _, batch in population.task.parts()))
    assert measured == pytest.approx(-population.evaluate()["eval_spread"], rel=1e-5)


class Tagger(nn.Module):
    """A label for every word; shorter sentences are padded."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(len(WORDS), 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> Any:
        logits = self.table(input_ids)
        return {"loss": nn.functional.cross_entropy(logits.transpose(1, 2), labels), "logits": logits}


def test_batches_of_unequal_length_are_gathered_for_a_metric_as_by_trainer(tmp_path: Path) -> None:
    shapes = []

    def share(prediction: Any) -> dict[str, float]:
        shapes.append(prediction.predictions.shape)
        known = prediction.label_ids != -100
        return {"share": float((prediction.predictions.argmax(-1) == prediction.label_ids)[known].mean())}

    def tagged(n: int, seed: int) -> list[dict[str, Any]]:
        names = ("input_ids", "attention_mask")
        rows = [{name: row[name] for name in names} for row in reviews(n, seed)]
        return [{**row, "labels": [word % 3 for word in row["input_ids"]]} for row in rows]

    args = arguments(tmp_path, metric_for_best_model="share", per_device_eval_batch_size=2)
    population = trainer(
        tmp_path,
        Tagger,
        args=args,
        compute_metrics=share,
        train_dataset=tagged(64, 0),
        eval_dataset=sorted(tagged(16, 1), key=lambda row: len(row["labels"])),
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer()),
    )
    network = population.task.model().eval()
    measured = float(sum(population.task.fitness(network, batch) for _, batch in population.task.parts()))
    assert measured == pytest.approx(-population.evaluate()["eval_share"])
    assert len(set(shapes)) == 1


def test_scripts_of_trainer_continue_a_run_and_write_its_metrics(tmp_path: Path) -> None:
    recipe = Recipe(population=1, offspring=0, mates=1, elites=1, generations=1, sgd_epochs=1)
    population = trainer(tmp_path, TwoOutputs, recipe=recipe, compute_metrics=None)
    with pytest.raises(RecipeError, match="resume_from_checkpoint='checkpoint-3' is a checkpoint of one network"):
        population.train(resume_from_checkpoint="checkpoint-3")
    population.train(resume_from_checkpoint=True)
    population.log_metrics("eval", {"eval_loss": 1.0})
    population.save_metrics("eval", {"eval_loss": 1.0})
    population.save_state()
    assert {"eval_results.json", "all_results.json", "trainer_state.json", "esgd"} <= {
        p.name for p in tmp_path.iterdir()
    }


def test_a_run_continues_only_from_the_network_that_it_began_with(tmp_path: Path) -> None:
    recipe = Recipe(population=1, offspring=0, mates=1, elites=1, generations=1, sgd_epochs=1)

    def pretrained() -> nn.Module:
        network = TwoOutputs()
        nn.init.constant_(network.out.bias, 0.5)
        return network

    begun = trainer(tmp_path, TwoOutputs, recipe=recipe, compute_metrics=None).train()
    with pytest.raises(RunError, match="began as has other weights than the one that is given now"):
        trainer(tmp_path, pretrained, recipe=recipe, compute_metrics=None).train()
    assert trainer(tmp_path, TwoOutputs, recipe=recipe, compute_metrics=None).train().fitness == begun.fitness
    file = tmp_path / "esgd" / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["start"]  # as an earlier version wrote it
    file.write_text(json.dumps(manifest))
    assert trainer(tmp_path, pretrained, recipe=recipe, compute_metrics=None).train().fitness == begun.fitness


def test_the_work_is_that_of_one_network_and_its_own_rate_is_tried_first(tmp_path: Path) -> None:
    population = trainer(tmp_path, args=arguments(tmp_path, weight_decay=0.1, max_grad_norm=0.5))
    spent = expected_work(Costs.of(population.task, population.recipe), population.recipe)
    assert spent == pytest.approx(3 * 12 * 64, rel=0.05)
    ladder = population.recipe.species.species
    rates = ladder.species
    assert (rates.lr, ladder.factors) == (3e-3, (1, 4, 16, 0.25)), "its own rate is the first"
    assert (rates.name, rates.hyper["weight_decay"], rates.clip_norm) == ("adamw", 0.1, 0.5)
    assert population.recipe.start == Perturbed(sigma=0.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("schedule", ["linear", "constant"])
def test_a_rate_that_trains_nothing_is_refused(tmp_path: Path, rate: float, schedule: str) -> None:
    args = arguments(tmp_path, learning_rate=rate, lr_scheduler_type=schedule)
    with pytest.raises(TaskError, match=f"learning_rate={rate} of TrainingArguments"):
        trainer(tmp_path, args=args)


@pytest.mark.parametrize(
    ("more", "schedule"),
    [
        ({}, CosineRun()),
        ({"warmup_steps": 8}, CosineRun(warmup=1 / 3)),
        ({"warmup_steps": 8, "max_steps": 40}, CosineRun(warmup=0.2)),
        ({"lr_scheduler_type": "constant", "warmup_steps": 8}, Constant()),
        ({"lr_scheduler_type": "constant_with_warmup", "warmup_steps": 6}, Steps(after=(), warmup=0.25)),
        (
            {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": 0.1}},
            CosineRun(floor=0.1),
        ),
    ],
    ids=["none", "steps", "of max_steps", "constant", "then constant", "to a floor"],
)
def test_a_warm_up_is_the_share_of_the_run_that_it_is_of_the_steps_of_one_network(
    tmp_path: Path, more: Any, schedule: Any
) -> None:
    """64 samples in batches of 8, four to a step: 2 steps in each of 12 epochs."""
    population = trainer(tmp_path, args=arguments(tmp_path, gradient_accumulation_steps=4, **more))
    assert population.recipe.species.species.species.schedule == schedule
    assert population.recipe.species.species.species.accumulate == 4
    spent = expected_work(Costs.of(population.task, population.recipe), population.recipe)
    assert spent == pytest.approx(3 * (40 * 8 * 4 if "max_steps" in more else 12 * 64), rel=0.05)


class Odd(nn.Module):
    """A table called a bias, which Trainer does not decay, and BatchNorm, which it does."""

    def __init__(self) -> None:
        super().__init__()
        self.relative_bias, self.bn, self.out = nn.Embedding(len(WORDS), 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.out(self.bn(self.relative_bias(input_ids).mean(1)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


@pytest.mark.parametrize(("make", "exceptions"), [(bert, 0), (Odd, 2)])
def test_weight_decay_applies_to_the_parameters_that_trainer_decays(
    tmp_path: Path, make: Callable[[], nn.Module], exceptions: int
) -> None:
    args = arguments(tmp_path, weight_decay=0.1)
    population = trainer(tmp_path, make, args=args)
    policy, network = population.recipe.species.species.species, population.model
    names = [name for name, _ in network.named_parameters()]
    changes = resolved(policy.groups, network, names)
    decays = {
        name: policy.hyper["weight_decay"] if change.weight_decay is None else change.weight_decay
        for name, change in zip(names, changes, strict=True)
    }
    theirs = transformers.Trainer(model=network, args=args).create_optimizer()
    by_id = {id(p): group["weight_decay"] for group in theirs.param_groups for p in group["params"]}
    assert decays == {name: by_id[id(p)] for name, p in network.named_parameters()}
    assert policy.groups[0] == NoDecay()
    assert len(policy.groups) == 1 + exceptions


@pytest.mark.slow
def test_a_budget_takes_the_place_of_the_epochs(tmp_path: Path) -> None:
    args = arguments(tmp_path, num_train_epochs=0.5, gradient_accumulation_steps=2, warmup_steps=1, weight_decay=0.1)
    result = trainer(tmp_path, args=args, budget=esgd.Work(samples=3e3)).train()
    spent = sum(passes(line["ledger"]) for line in result.history)
    assert spent == pytest.approx(3e3, rel=0.25)  # some evaluations are aborted early
    assert result.recipe.species.species.species.accumulate == 2
    with pytest.raises(RecipeError, match="budget='soon' cannot be read"):
        trainer(tmp_path, budget="soon")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor=0.1 cannot be taken over"),
        ({"batch_eval_metrics": True, "metric_for_best_model": "accuracy"}, "batch_eval_metrics=True cannot be used"),
        (
            {"include_for_metrics": ["inputs"], "metric_for_best_model": "accuracy"},
            "include_for_metrics=.* cannot be used with metric_for_best_model",
        ),
        (
            {"eval_do_concat_batches": False, "metric_for_best_model": "accuracy"},
            "eval_do_concat_batches=False cannot be used with metric_for_best_model",
        ),
        ({"push_to_hub": True}, "push_to_hub=True uploads .* all networks of the run.*save_strategy='no'"),
        ({"optim": "adafactor"}, "optim='adafactor' cannot be taken over"),
        ({"lr_scheduler_type": "polynomial"}, "lr_scheduler_type='polynomial' cannot be taken over"),
        (
            {"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": 2}},
            "lr_scheduler_kwargs=.*min_lr_rate",
        ),
        ({"num_train_epochs": 0.5}, "too little for these rules.*smaller eval_dataset"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_what_cannot_be_done_is_refused_by_name_before_training(tmp_path: Path, more: Any, sentence: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s){sentence}"):
        trainer(tmp_path, args=arguments(tmp_path, **more))


def test_data_and_callbacks_that_do_not_fit_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="eval_dataset is missing"):
        trainer(tmp_path, eval_dataset=None)
    with pytest.raises(TaskError, match="either model_init.* or model"):
        trainer(tmp_path, model=bert())
    with pytest.raises(RecipeError, match="callbacks of Trainer cannot be taken over.*trackers=…"):
        trainer(tmp_path, callbacks=[transformers.EarlyStoppingCallback()])
    with pytest.raises(RecipeError, match="optimizer_cls_and_kwargs of Trainer cannot be taken over"):
        trainer(tmp_path, optimizer_cls_and_kwargs=(torch.optim.SGD, {}))
    with pytest.raises(TaskError, match="args is a dict. Give TrainingArguments"):
        trainer(tmp_path, args={"output_dir": "here"})
    with pytest.raises(TaskError, match="takes its arguments by name"):
        EsgdTrainer(bert(), arguments(tmp_path))
    with pytest.raises(TaskError, match="model_init needs trial"):
        trainer(tmp_path, cast("Any", lambda trial: bert()))


def test_a_subclass_whose_methods_would_not_be_called_is_refused_by_their_names(tmp_path: Path) -> None:
    class Weighted(EsgdTrainer):
        def compute_loss(self, model: Any, inputs: Any) -> Any:
            raise AssertionError

        def named(self) -> str:
            return "mine"

    given = {"args": arguments(tmp_path), "train_dataset": reviews(64, 0), "eval_dataset": reviews(16, 1)}
    with pytest.raises(TaskError, match="Weighted has compute_loss, which Trainer calls and EsgdTrainer does not"):
        Weighted(model_init=bert, **given)


def test_generated_text_is_refused_as_a_metric(tmp_path: Path) -> None:
    args = transformers.Seq2SeqTrainingArguments(output_dir=str(tmp_path), predict_with_generate=True, use_cpu=True)
    with pytest.raises(RecipeError, match="predict_with_generate=True cannot be taken over.*not by generated text"):
        trainer(tmp_path, args=args)


def test_arguments_that_say_nothing_are_taken(tmp_path: Path) -> None:
    trainer(tmp_path, recipe=Recipe(), callbacks=[], optimizers=(None, None), optimizer_cls_and_kwargs=None)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("push_to_hub", "upload_folder"), ("state", "result.history"), ("get_train_dataloader", "Leave it out")],
)
def test_what_only_a_trainer_has_is_refused_with_what_there_is_instead(tmp_path: Path, name: str, instead: str) -> None:
    population = trainer(tmp_path, recipe=Recipe())
    with pytest.raises(AttributeError, match=f"EsgdTrainer has no '{name}'. It is of a Trainer.*{instead}"):
        getattr(population, name)
    assert not hasattr(population, "_unknown")
    with pytest.raises(AttributeError, match="EsgdTrainer has no 'eval'.$"):
        population.eval()


def test_names_of_metrics_may_begin_with_eval_as_for_trainer(tmp_path: Path) -> None:
    def prefixed(prediction: Any) -> dict[str, float]:
        return {f"eval_{name}": value for name, value in accuracy(prediction).items()}

    args = arguments(tmp_path, metric_for_best_model="accuracy")
    population = trainer(tmp_path, args=args, compute_metrics=prefixed, recipe=Recipe())
    network = population.model.eval()
    assert -population.task.fitness(network, None) == population.evaluate()["eval_accuracy"]


NUMBERS = {
    "a number": 0.25,
    "a tensor": torch.tensor(0.25),
    "a tensor with a gradient": torch.tensor([0.25], requires_grad=True),
    "a tensor of half precision": torch.tensor(0.25, dtype=torch.bfloat16),
    "a number of NumPy": np.float32(0.25),
    "an array of one element": np.array([[0.25]]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_compute_metrics_may_be_of_any_kind(tmp_path: Path, kind: str) -> None:
    args = arguments(tmp_path, metric_for_best_model="f1")
    population = trainer(tmp_path, args=args, compute_metrics=lambda _: {"f1": NUMBERS[kind]}, recipe=Recipe())
    network = population.model.eval()
    assert population.task.fitness(network, None) == -0.25
    assert population.task.fitness_metrics(network) == {"f1": 0.25}


OTHERS = {
    "text": "binary",
    "a text array": np.array(["binary"]),
    "an array": np.array([0.1, 0.2]),
    "a tensor": torch.tensor([0.1, 0.2]),
    "a sparse tensor": torch.eye(1).to_sparse(),
    "a complex number": 1j,
    "a complex array": np.array([1j]),
    "a complex tensor": torch.tensor(1j),
    "a list of one": [0.5],
    "a ragged list": [[1], [1, 2]],
    "an object": np.array([None]),
    "None": None,
}


def test_what_is_not_one_number_is_left_out_of_the_metrics(tmp_path: Path) -> None:
    population = trainer(tmp_path, compute_metrics=lambda _: {**OTHERS, "right": True}, recipe=Recipe())
    assert population.task.fitness_metrics(population.model) == {"right": 1.0}


@pytest.mark.parametrize("returned", [None, 0.5], ids=["nothing", "a number"])
def test_a_compute_metrics_that_returns_no_dict_is_refused(tmp_path: Path, returned: Any) -> None:
    population = trainer(tmp_path, compute_metrics=lambda _: returned, recipe=Recipe())
    with pytest.raises(TaskError, match=f"compute_metrics returned {returned}, which is not a dict.*Return one"):
        population.task.fitness_metrics(population.model)


def test_a_name_without_eval_counts_if_both_are_returned(tmp_path: Path) -> None:
    for found in ({"f1": 0.1, "eval_f1": 0.2}, {"eval_f1": 0.2, "f1": 0.1}):
        population = trainer(tmp_path, compute_metrics=lambda _, found=found: found, recipe=Recipe())
        assert population.task.fitness_metrics(population.model) == {"f1": 0.1}


def test_what_is_not_followed_is_listed_in_one_warning(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"are not followed: (?=.*logging_steps=7)(?=.*save_steps=9)"):
        trainer(tmp_path, args=arguments(tmp_path, logging_steps=7, save_steps=9))
    with pytest.warns(UserWarning, match="not followed: eval_strategy='epoch'.$"):
        trainer(tmp_path, args=arguments(tmp_path, eval_strategy="epoch"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(tmp_path, recipe=Recipe())


def test_peft_models_are_known_by_their_factors() -> None:
    pairs = lora_pairs(Genome.of(adapted()))
    assert [a.endswith("query.lora_A.default.weight") for a, _ in pairs] == [True, False]
    assert all(b == a.replace("lora_A", "lora_B") for a, b in pairs)

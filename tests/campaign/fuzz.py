"""Odd inputs, the same for the same seed, and for each kind of them a judge that says what is wrong, or None.

| inputs                         | judge               | what is fuzzed                                               |
|--------------------------------|---------------------|--------------------------------------------------------------|
| `recipes(seed, n)`             | `judge_recipe`      | tables of every built-in recipe, for `Recipe.from_dict`      |
| `recipes(seed, n)`             | `judge_manifest`    | the same as the recipe of a `manifest.json` that is resumed  |
| `sets(seed, n)`                | `judge_sets`        | what stands after `--set`                                    |
| `toml_texts(seed, n)`          | `judge_toml`        | the text of a TOML file                                      |
| `engine_words(seed, n)`        | `judge_engine`      | what stands after `--engine`                                 |
| `state_words(seed, n)`         | `judge_state`       | `state.json` of a checkpoint, most often sealed again         |
| `safetensors_headers(seed, n)` | `judge_safetensors` | the header of a checkpoint's tensors, or of a model          |

    for table in recipes(seed=1, n=200):
        assert judge_recipe(table) is None, table
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, time
from functools import cache
from hashlib import sha256
from random import Random
from typing import Any

import tomli_w

from esgd._serialization import short_names
from esgd.engines.choose import COMPOSED, KINDS
from esgd.recipe import Recipe
from esgd.run.folder import without_none
from esgd.studies import find_study
from tests.campaign.judges import (
    judge_engine,
    judge_manifest,
    judge_recipe,
    judge_safetensors,
    judge_sets,
    judge_state,
    judge_toml,
)
from tests.campaign.mutation import changed_bytes, changed_text, mutated, places
from tests.campaign.subject import MODEL, TENSORS, subject

__all__ = [
    "engine_words",
    "judge_engine",
    "judge_manifest",
    "judge_recipe",
    "judge_safetensors",
    "judge_sets",
    "judge_state",
    "judge_toml",
    "recipes",
    "safetensors_headers",
    "sets",
    "state_words",
    "toml_texts",
]

BUILT_IN = (
    "digits",
    *(f"{name}@{scale}" for name in ("bn50", "swb300", "cifar10", "ptb") for scale in ("mini", "paper")),
)
CODE = (
    "os:system",
    "builtins:eval",
    "payload:touch",
    "payload:Strategy",
    "subprocess:run",
    "torch:load",
    "esgd.cli:main",
)
NUMBERS = (0, 1, -1, 2, 3, 0.5, 1e-9, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30, 10**400, 1e308, 5e-324, -0.0)
WORDS = (
    "",
    " ",
    "nan",
    "inf",
    "kind",
    "sgd",
    "anyone",
    "../x",
    "/dev/zero",
    "\x00",
    "μ",
    "x" * 5000,
    "auto",
    "loop",
    "²",
    "\udcff",
)
KEYWORDS = (
    "lr",
    "low",
    "high",
    "weight_decay",
    "betas",
    "eps",
    "maximize",
    "foreach",
    "fused",
    "capturable",
    "batch_size",
    "1",
)
STRANGE = (None, True, False, float("nan"), float("inf"), -float("inf"))
TEXTS = (
    "0x" + "f" * 5000,
    "9" * 5000,
    "[" * 2000,
    "{a=" * 2000,
    "1_0",
    "2020-01-01",
    '"',
    "[1,",
    "nan",
    "-inf",
    "+1e999",
)

MOMENTS = (date(2020, 1, 1), time(1, 2), datetime(2020, 1, 1))


def recipes(seed: int, n: int) -> Iterator[Any]:
    """Tables of recipes with some of their places changed; now and then something that is no table at all."""
    rng = Random(f"recipes {seed}")
    for _ in range(n):
        table = mutated(rng, rng.choice(_tables()), odd)
        yield odd(rng) if rng.random() < 0.01 else table


def sets(seed: int, n: int) -> Iterator[list[str]]:
    """One or two assignments to places of the recipe of `digits`, or to places that are not there."""
    rng = Random(f"sets {seed}")
    paths = [".".join(map(str, path)) for path in places(_tables()[0])]
    for _ in range(n):
        words = []
        for _ in range(rng.choice((1, 1, 2))):
            path, text = rng.choice(paths), _spelt(rng)
            word = f"{path}{rng.choice(('=', '=', '=', '= ', '.x=', '.0=', '==', ''))}{text}"
            words.append(changed_text(rng, word) if rng.random() < 0.3 else word)
        yield words


def toml_texts(seed: int, n: int) -> Iterator[str]:
    """Studies in TOML: with a recipe that was changed, or with a text that was."""
    rng = Random(f"toml {seed}")
    for _ in range(n):
        table = {
            "task": "digits",
            "about": "fuzz",
            "recipe": rng.choice(_tables()),
            "single": {"kind": "sgd", "lr": 0.1},
        }
        changed = mutated(rng, table, odd) if rng.random() < 0.8 else table
        try:
            text = tomli_w.dumps(without_none(changed))
        except (TypeError, ValueError, AttributeError, RecursionError):  # TOML has no words for it
            text = tomli_w.dumps(without_none(table))
        yield changed_text(rng, text) if changed is table or rng.random() < 0.3 else text


def engine_words(seed: int, n: int) -> Iterator[str]:
    """Names of engines with settings."""
    rng = Random(f"engine {seed}")
    fields = sorted({field for kind in KINDS.values() for field in kind.__dataclass_fields__} | {"inner", "x", ""})
    for _ in range(n):
        name = rng.choice(("auto", *KINDS, *CODE, ""))
        own = rng.choice((fields, COMPOSED.get(name, fields)))
        settings = (
            f"{rng.choice(own)}{rng.choice(('=', '=', ' = ', ''))}{_spelt(rng)}" for _ in range(rng.randint(0, 3))
        )
        word = name + rng.choice((":", ":", ":", "", ",", "=")) + ",".join(settings)
        yield changed_text(rng, word) if rng.random() < 0.2 else word


def state_words(seed: int, n: int) -> Iterator[bytes]:
    """A checkpoint's words changed and sealed again, as somebody would who can write files; or just altered."""
    rng, state = Random(f"state {seed}"), json.loads(subject().state)["state"]
    for _ in range(n):
        changed = mutated(rng, state, odd)
        words = json.dumps(changed, sort_keys=True, ensure_ascii=False, default=str)
        sealed = {"sha256": sha256(words.encode(errors="replace")).hexdigest(), "state": changed}
        if rng.random() < 0.1:
            sealed = mutated(rng, sealed, odd)
        content = json.dumps(sealed, sort_keys=True, ensure_ascii=False, default=str).encode(errors="replace")
        yield changed_bytes(rng, content) if rng.random() < 0.1 else content


def safetensors_headers(seed: int, n: int) -> Iterator[tuple[str, bytes]]:
    """The name of a file and its content: a header that was changed, before the tensors that were there."""
    rng = Random(f"safetensors {seed}")
    for _ in range(n):
        name = rng.choice((TENSORS, MODEL))
        content = subject().tensors if name == TENSORS else subject().model
        length = int.from_bytes(content[:8], "little")
        header: Any = mutated(rng, json.loads(content[8 : 8 + length]), odd)
        words = json.dumps(header, default=str).encode(errors="replace")
        said = rng.choice((len(words), len(words), len(words), length, 0, 2**63, len(content), rng.randrange(2**32)))
        changed = said.to_bytes(8, "little") + words + content[8 + length :]
        yield name, changed_bytes(rng, changed) if rng.random() < 0.2 else changed


def odd(rng: Random) -> Any:
    """A value that somebody might write, or that nobody would."""
    match rng.randrange(10):
        case 0 | 1:
            return rng.choice(NUMBERS)
        case 2:
            return rng.choice(STRANGE)
        case 3:
            return rng.choice((*WORDS, *short_names(), *CODE))
        case 4:
            return rng.choice(MOMENTS)
        case 5:
            return [odd(rng) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
        case 6:
            return {rng.choice((*WORDS, *KEYWORDS)): odd(rng) for _ in range(rng.randrange(4))}
        case 7:
            return _deep(rng.choice((10, 100, 300)), rng.choice(("list", "table")))
        case 8:
            return _strategy(rng)
        case _:
            return {"kind": odd(rng), "command": "touch canary"}


def _strategy(rng: Random) -> dict[str, Any]:
    """A table that names one of our values, with some of its settings, mostly right by name only."""
    kind, thing = rng.choice(sorted(short_names().items()))
    names = list(getattr(thing, "__dataclass_fields__", {}))
    return {"kind": kind, **{name: rng.choice(NUMBERS) for name in names if rng.random() < 0.7}}


def _deep(levels: int, how: str) -> Any:
    inner: Any = 1
    for _ in range(levels):
        inner = [inner] if how == "list" else {"a": inner}
    return inner


def _spelt(rng: Random) -> str:
    """A value as TOML has it, or as Python prints it."""
    value = odd(rng)
    try:
        return (
            rng.choice(TEXTS)
            if rng.random() < 0.1
            else tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
        )
    except (TypeError, ValueError, AttributeError, RecursionError):
        return str(value)


@cache
def _tables() -> list[dict[str, Any]]:
    studies = [find_study(name) for name in BUILT_IN]
    recipes = [each for study in studies for each in (study.recipe, study.baseline) if each is not None]
    return [recipe.to_dict() for recipe in (*recipes, Recipe())]

"""Populations as scikit-learn estimators: its own checks, and what its users do with an estimator."""

from __future__ import annotations

import importlib
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import estimator_checks_generator
from torch import nn

import esgd
from esgd.errors import MissingExtraError, RecipeError, TaskError
from esgd.integrations.sklearn import EsgdClassifier, EsgdRegressor
from esgd.integrations.tabular import Scale, TabularData
from esgd.ledger import passes
from esgd.randomness import Seeds

ADAM = esgd.species.Adam(lr=(0.02, 0.05))
SHORT = esgd.Recipe(population=2, offspring=2, generations=2, sgd_epochs=15, species=ADAM)
TINY = esgd.Recipe(population=2, offspring=2, generations=1, sgd_epochs=2, species=ADAM)
X, Y = load_iris(return_X_y=True)


def tiny(kind: Any = EsgdClassifier, **settings: Any) -> Any:
    return kind(**{"recipe": TINY, "hidden": (8,), "random_state": 0} | settings)


class Wide(nn.Sequential):
    """A network of the user's own, at the top level of a module: it can be pickled."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(nn.Linear(n_features, 12), nn.Tanh(), nn.Linear(12, n_outputs))


CHECKS = {
    f"{kind.__name__}-{number}-{getattr(check, 'func', check).__name__}": (estimator, check)
    for kind in (EsgdClassifier, EsgdRegressor)
    for number, (estimator, check) in enumerate(estimator_checks_generator(tiny(kind, recipe=SHORT, hidden=(16,))))
}
"""By names that are the same in every process: what an estimator prints has addresses in it."""


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), CHECKS.values(), ids=CHECKS)
def test_scikit_learn_finds_nothing_to_excuse(estimator: Any, check: Any) -> None:
    check(estimator)


def test_labels_are_words_and_columns_have_names_in_a_pipeline() -> None:
    rows = pd.DataFrame({"length": X[:, 2], "width": X[:, 3], "site": np.where(np.arange(150) % 2, "north", "south")})
    labels = pd.Series(load_iris().target_names[Y], dtype="category")
    columns = make_column_transformer((OneHotEncoder(), ["site"]), remainder="passthrough")
    fitted = make_pipeline(columns, tiny(recipe=SHORT)).fit(rows, labels)
    assert fitted.score(rows, labels) > 0.8
    assert set(fitted.predict(rows)) <= {"setosa", "versicolor", "virginica"}
    alone = tiny().fit(rows[["length", "width"]], labels)
    assert list(alone.feature_names_in_) == ["length", "width"]
    assert alone.predict_proba(rows[["length", "width"]]).shape == (150, 3)


def test_a_search_tries_parameters() -> None:
    search = GridSearchCV(tiny(), {"hidden": [(4,), (8,)]}, cv=2, error_score="raise").fit(X, Y)
    assert search.best_params_["hidden"] in ((4,), (8,))
    assert search.best_estimator_.model_.network[0].out_features == search.best_params_["hidden"][0]


def test_rules_go_by_their_names_and_have_so_much_work() -> None:
    fitted = tiny(recipe="single", work=2e4).fit(X, Y)
    assert fitted.result_.recipe.population == 1
    assert sum(passes(line["ledger"]) for line in fitted.result_.history) == pytest.approx(2e4, rel=0.05)


@pytest.mark.parametrize("module", [None, Wide])
def test_a_pickled_estimator_answers_as_before(module: Any) -> None:
    fitted = tiny(module=module, hidden=None if module else (8,)).fit(X, Y)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert again.result_.history == fitted.result_.history


def test_the_network_takes_rows_in_the_units_of_the_table() -> None:
    fitted = tiny(EsgdRegressor).fit(1e4 * X, X[:, :2] * 100)
    with torch.no_grad():
        alone = fitted.model_(torch.tensor(1e4 * X))
    assert np.array_equal(alone.numpy(), fitted.predict(1e4 * X))
    assert np.array_equal(fitted.predict(1e4 * X).shape, (150, 2))


def test_numbers_far_from_zero_lose_no_digits() -> None:
    """In float32, steps of 0.02 at 1e7 are one number."""
    x = np.linspace(-1, 1, 120)[:, None]
    fitted = tiny(EsgdRegressor, recipe=SHORT).fit(1e7 + x, 1e7 + x[:, 0])
    assert fitted.score(1e7 + x, 1e7 + x[:, 0]) > 0.9


def test_large_and_small_numbers_are_scaled_as_any_others() -> None:
    weight = np.linspace(1, 2, 150)
    usual = Scale.of(X, weight)
    for factor in (2.0**660, 2.0**-660):
        scaled = Scale.of(X * factor, weight)
        assert np.array_equal(scaled.deviation, usual.deviation * factor)
        assert np.array_equal(scaled.standardised(X * factor), usual.standardised(X))
    with pytest.raises(TaskError, match="column 0 has differences that are not finite"):
        Scale.of(np.array([[1.7e308], [-1.7e308], [-1.7e308]]), np.ones(3))


def test_a_network_with_defaults_is_given_the_sizes_of_the_table() -> None:
    def make(n_features: int = 9, n_outputs: int = 7) -> nn.Module:
        return nn.Linear(n_features, n_outputs)

    weighted = tiny(module=make, hidden=None).fit(X, Y, sample_weight=2.0)  # one number for all rows
    assert weighted.model_.network.weight.shape == (3, 4)
    assert tiny(hidden=np.array([8, 5])).fit(X, Y).model_.network[2].out_features == 5


@pytest.mark.parametrize("kind", [EsgdClassifier, EsgdRegressor])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_network_of_float64_is_trained_and_asked_in_float64(kind: Any, weighted: bool) -> None:
    weight = np.linspace(1, 2, 150) if weighted else None

    def make(n_features: int, n_outputs: int) -> nn.Module:
        return Wide(n_features, n_outputs).double()

    fitted = tiny(kind, module=make, hidden=None, recipe=SHORT).fit(X, Y, sample_weight=weight)
    assert next(fitted.model_.network.parameters()).dtype == torch.float64
    assert fitted.score(X, Y) > 0.85


def test_the_order_of_rows_changes_nothing() -> None:
    order = np.random.default_rng(0).permutation(150)
    assert np.array_equal(tiny().fit(X, Y).predict_proba(X), tiny().fit(X[order], Y[order]).predict_proba(X))


def test_no_copy_of_a_row_is_seen_by_sgd_and_by_selection() -> None:
    table = TabularData(np.repeat(X, 3, axis=0), np.repeat(Y, 3)[:, None].astype(float), np.ones(450)).distinct()
    sgd, selection = table.split(0.2, Seeds(0), classes=True)
    assert not {*map(tuple, sgd.x)} & {*map(tuple, selection.x)}
    assert sgd.weight.sum() + selection.weight.sum() == 450


def test_selection_sees_every_class_in_proportion_and_takes_none_from_sgd() -> None:
    labels = np.repeat([0.0, 1.0, 2.0], [80, 19, 1])[:, None]
    table = TabularData(np.arange(100.0)[:, None], labels, np.ones(100))
    for seed in range(20):
        sgd, selection = table.split(0.2, Seeds(seed), classes=True)
        assert 2.0 in sgd.y
        assert np.bincount(selection.y[:, 0].astype(int))[:2].tolist() in ([16, 4], [16, 3])


def test_fits_in_threads_are_those_of_fits_alone() -> None:
    alone = [tiny(random_state=seed).fit(X, Y).predict_proba(X) for seed in (0, 1)]
    with ThreadPoolExecutor(2) as pool:
        beside = list(pool.map(lambda seed: tiny(random_state=seed).fit(X, Y).predict_proba(X), (0, 1)))
    assert all(np.array_equal(*pair) for pair in zip(alone, beside, strict=True))


@pytest.mark.slow
def test_folds_in_processes_are_those_of_folds_in_turn() -> None:
    assert np.array_equal(
        cross_val_score(tiny(module=Wide, hidden=None), X, Y, cv=2, n_jobs=2),
        cross_val_score(tiny(module=Wide, hidden=None), X, Y, cv=2),
    )


def test_a_generator_as_random_state_gives_each_fit_a_seed_of_its_own() -> None:
    estimator = tiny(random_state=np.random.RandomState(0))  # what scikit-learn's users pass
    first, second = estimator.fit(X, Y).predict_proba(X), estimator.fit(X, Y).predict_proba(X)
    assert not np.array_equal(first, second)


def test_a_budget_decides_the_length_of_the_run() -> None:
    fitted = EsgdClassifier(budget=esgd.Work(samples=2e4), hidden=(4,), random_state=0).fit(X, Y)
    spent = sum(passes(line["ledger"]) for line in fitted.result_.history)
    assert spent == pytest.approx(2e4, rel=0.05)
    assert fitted.predict(X).shape == Y.shape


@pytest.mark.slow
def test_a_finished_run_in_a_folder_is_not_trained_again(tmp_path: Any) -> None:
    first = tiny(run=tmp_path / "run").fit(X, Y)
    written = (tmp_path / "run" / "history.jsonl").stat().st_mtime_ns
    again = tiny(run=tmp_path / "run").fit(X, Y)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))
    assert (tmp_path / "run" / "history.jsonl").stat().st_mtime_ns == written


def test_whole_numbers_of_numpy_are_numbers() -> None:
    plain, of_numpy = (tiny(batch_size=kind(8), fitness_size=kind(20)).fit(X, Y) for kind in (int, np.int64))
    assert np.array_equal(plain.predict_proba(X), of_numpy.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"budget": "30s"}, RecipeError, "Give budget alone"),
        ({"recipe": "halfing", "work": 1e5}, RecipeError, "Did you mean 'halving'"),
        ({"recipe": 3}, RecipeError, "neither a Recipe nor the name of rules"),
        ({"work": 1e5}, RecipeError, "this recipe has its sizes"),
        ({"module": nn.Linear(4, 3), "hidden": None}, TaskError, "does not build networks"),
        ({"module": nn.ReLU}, TaskError, "Leave one out"),
        ({"module": lambda a, b, c: nn.ReLU(), "hidden": None}, TaskError, "takes the arguments (a, b, c)"),
        (
            {"module": lambda a, b: nn.Linear(a, 10), "hidden": None},
            TaskError,
            "returned the shape (2, 10) for 2 rows. There are 3 classes: return (n, 3).",
        ),
        (
            {"module": lambda a, b: nn.Sequential(nn.Linear(a, b), nn.Softmax(dim=1)), "hidden": None},
            TaskError,
            "returned probabilities, which are 1 in sum for every row",
        ),
        ({"random_state": -1}, RecipeError, "random_state=-1 is no seed"),
        ({"random_state": True}, RecipeError, "random_state=True is no seed"),
        ({"verbose": "no"}, RecipeError, "verbose='no' is neither True"),
        ({"hidden": 64}, TaskError, "such as (64, 64)"),
        ({"fitness_size": 1.5}, RecipeError, "fitness_size=1.5 is not in (0, 1]"),
        ({"fitness_size": 1.0}, TaskError, "cannot be split"),
    ],
)
def test_what_contradicts_itself_is_refused_by_name(settings: Any, error: Any, words: str) -> None:
    with pytest.raises(error) as caught:
        tiny(**settings).fit(X, Y)
    assert words in str(caught.value)


def test_numbers_of_numpy_are_widths_as_a_search_gives_them() -> None:
    widths = tiny(hidden=(np.int64(5),)).fit(X, Y)
    assert np.array_equal(widths.predict_proba(X), tiny(hidden=(5,)).fit(X, Y).predict_proba(X))


def test_logarithms_of_probabilities_are_those_of_the_probabilities() -> None:
    fitted = tiny().fit(X, Y)
    assert np.array_equal(np.exp(fitted.predict_log_proba(X)).round(12), fitted.predict_proba(X).round(12))


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "esgd.integrations.sklearn")
    with pytest.raises(MissingExtraError, match=r"pip install 'esgd\[sklearn\]'"):
        importlib.import_module("esgd.integrations.sklearn")

"""`EsgdClassifier` and `EsgdRegressor`: populations as scikit-learn estimators. The one file here that imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from esgd import rules
from esgd.engines import Loop
from esgd.errors import MissingExtraError, RecipeError, shown
from esgd.fit import fit as train
from esgd.integrations.tabular import Scale, TabularData, batch_size_for, standardised, table_task
from esgd.integrations.tabular_networks import TableNetwork, checked_dtype, network_maker
from esgd.protocols import Engine
from esgd.randomness import Seeds
from esgd.recipe import Recipe
from esgd.stopping import StopRule
from esgd.tasks import Supervised

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn 1.6 or newer", "sklearn", "esgd.integrations.sklearn") from error

__all__ = ["EsgdClassifier", "EsgdRegressor"]

SHORTEST, PER_ROW, LONGEST, LEAST_PER_ROW = 5e5, 500, 5e7, 30
"""Work of a run that is given none, in samples: 500 for each row, between the first and the third, and never below 30
for each row, which is ten epochs of one network."""


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share; scikit-learn takes the parameters from the signature."""

    def __init__(
        self,
        module: Callable[..., nn.Module] | None = None,
        *,
        budget: Any = None,
        work: float | None = None,
        recipe: Recipe | str | None = None,
        hidden: Sequence[int] | None = None,
        batch_size: int | None = None,
        fitness_size: float | int | None = None,
        stop: StopRule | Iterable[StopRule] | None = None,
        engine: str | Engine | None = None,
        run: str | Path | None = None,
        verbose: bool = False,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.budget = budget
        self.work = work
        self.recipe = recipe
        self.hidden = hidden
        self.batch_size = batch_size
        self.fitness_size = fitness_size
        self.stop = stop
        self.engine = engine
        self.run = run
        self.verbose = verbose
        self.random_state = random_state

    def _train(self, x: NDArray[Any], y: NDArray[Any], weight: NDArray[Any], *, classes: int | None) -> None:
        """Train a population on rows, targets (n, k) and weights; `classes` is their number, None for a regression."""
        seed = self._seed()
        rows = TabularData(x, y.astype(np.float64), weight).distinct()
        sgd, selection = rows.split(self.fitness_size, Seeds(seed), classes=classes is not None)
        x_scale = Scale.of(sgd.x, sgd.weight)
        y_scale = None if classes else Scale.of(sgd.y, sgd.weight)
        inputs, outputs = x.shape[1], classes or y.shape[1]
        make, dtype = network_maker(self.module, self.hidden, inputs, outputs, len(rows)), torch.float32
        if self.module is not None:
            dtype = checked_dtype(self.module, make, inputs, outputs, classes=classes is not None)
        task = table_task(
            make,
            standardised(sgd, x_scale, y_scale),
            standardised(selection, x_scale, y_scale),
            classes=classes is not None,
            batch_size=self._batch_size(len(sgd)),
            dtype=dtype,
        )
        self.result_ = train(
            task,
            self._recipe(task, len(rows)),
            seed=seed,
            budget=self.budget,
            engine=Loop(threads=1) if self.engine is None else self.engine,
            stop=self.stop,
            run=self.run,
            progress=bool(self.verbose),
            on_interrupt="raise",  # Ctrl-C ends a search, not one of its fits
        )
        network = deepcopy(self.result_.model)
        # In float64 an answer depends on its row alone to 1e-7, not on the rows beside it. A network of the user's own
        # may be made for its dtype.
        self.model_ = TableNetwork(network.double() if self.module is None else network, x_scale, y_scale)

    def _batch_size(self, rows: int) -> int:
        if self.batch_size is None:
            return batch_size_for(rows)
        return int(self.batch_size) if isinstance(self.batch_size, np.integer) else self.batch_size

    def _check_parameters(self) -> None:
        """Refuse what contradicts itself before data are looked at."""
        if self.budget is not None and (self.work is not None or self.recipe is not None):
            raise RecipeError(
                f"budget={shown(self.budget)} decides how long and by which rules the run trains, and so do work and "
                f"recipe. Give budget alone, or leave it out."
            )
        if not isinstance(self.verbose, bool | int | np.bool_):
            raise RecipeError(f"verbose={shown(self.verbose)} is neither True, to show progress, nor False.")
        if isinstance(self.recipe, str):
            rules.named(self.recipe)
        elif self.recipe is not None and not isinstance(self.recipe, Recipe):
            raise RecipeError(f"recipe={shown(self.recipe)} is neither a Recipe nor the name of rules of esgd.rules.")
        if isinstance(self.recipe, Recipe) and self.work is not None:
            raise RecipeError(
                f"work={shown(self.work)} is given to rules, which size a recipe by it; this recipe has its sizes. "
                f"Leave work out, or name rules: recipe='ours'."
            )

    def _recipe(self, task: Supervised, rows: int) -> Recipe | None:
        """The recipe of the run; None where a budget decides."""
        if self.budget is not None:
            return None
        if isinstance(self.recipe, Recipe):
            return self.recipe
        usual = max(min(max(SHORTEST, PER_ROW * rows), LONGEST), LEAST_PER_ROW * rows)
        return rules.named(self.recipe or "ours")(task, usual if self.work is None else self.work)

    def _seed(self) -> int:
        """A whole number is the seed of the run; a generator is asked for one."""
        if isinstance(self.random_state, Integral):
            if isinstance(self.random_state, bool) or self.random_state < 0:
                raise RecipeError(
                    f"random_state={shown(self.random_state)} is no seed. Use a whole number of 0 or more, or None."
                )
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _weighted(self, x: NDArray[Any], sample_weight: ArrayLike | None) -> NDArray[Any]:
        """The weights of all rows; a row of weight 0 is as if it were not there."""
        weight: NDArray[Any] = _check_sample_weight(sample_weight, x, dtype=np.float64)
        if not (weight.min() >= 0 and 0 < weight.max() < np.inf):
            raise RecipeError(
                "sample_weight has numbers that are negative or not finite, or only zeros. A row counts 0 or more, and "
                "one does."
            )
        return weight

    def _answers(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        return self.model_.answers(validate_data(self, X, dtype=np.float64, reset=False))


class EsgdClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A population of networks as a classifier: cross entropy, labels of any one kind.

    | parameter      | meaning                                                                                       |
    |----------------|-----------------------------------------------------------------------------------------------|
    | `module`       | builds a network, as `module(n_features, n_outputs)`, else without arguments; None: an MLP     |
    | `budget`       | "30s", or `esgd.Work(samples=3e5)`, as for `esgd.fit`; then without `work` and `recipe`        |
    | `work`         | samples that the run may spend, for rules; None: 500 for each row, from 5e5 to 5e7            |
    | `recipe`       | a `Recipe`, or the name of rules in `esgd.rules`; None: "ours"                                |
    | `hidden`       | widths of the MLP's hidden layers; None: two, as wide as the power of two nearest to √n       |
    | `batch_size`   | rows in a step of SGD; None: a 32nd of the rows, from 32 to 256                               |
    | `fitness_size` | rows that selection sees and SGD does not, as a share or a number; None: 0.2, at most 10,000  |
    | `stop`         | stop rules, such as `esgd.Patience(3)`                                                        |
    | `engine`       | where networks are trained; None: this process, on one core                                   |
    | `run`          | a folder for the run, which can then be resumed; one for each call of `fit`                   |
    | `verbose`      | show progress                                                                                 |
    | `random_state` | a whole number: the same data give the same network, in whatever order their rows are         |

    After `fit`: `classes_`, `n_features_in_`, `result_`, the `esgd.Result` of the run, and `model_`, an `nn.Module`
    from rows in the units of the table to probabilities.

    >>> from sklearn.datasets import load_iris
    >>> x, y = load_iris(return_X_y=True)
    >>> round(EsgdClassifier(work=1e5, random_state=0).fit(x, y).score(x, y), 1)
    1.0
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on rows (n, d) and labels (n,). A row of weight 2 counts as two rows."""
        self._check_parameters()
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(labels)
        weight = self._weighted(rows, sample_weight)
        counted = weight > 0
        self.classes_, numbers = np.unique(labels[counted], return_inverse=True)
        if len(self.classes_) < 2:
            raise RecipeError(
                f"all rows that count are of one class, {shown(self.classes_.tolist()[0])}. There is nothing to learn. "
                f"A classifier needs two classes or more."
            )
        self._train(rows[counted], numbers[:, None], weight[counted], classes=len(self.classes_))
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[Any]:
        """The probability of each class, (n, k), in the order of `classes_`."""
        return self._answers(X)

    def predict_log_proba(self, X: ArrayLike) -> NDArray[Any]:
        """The logarithm of `predict_proba`, (n, k)."""
        with np.errstate(divide="ignore"):  # of a probability that is 0 in float64
            logarithms: NDArray[Any] = np.log(self._answers(X))
        return logarithms

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable label of each row, (n,)."""
        probable = self._answers(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[probable]
        return labels


class EsgdRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A population of networks for numbers: squared error, in units of the targets' deviation.

    The parameters are those of `EsgdClassifier`. `model_` answers in the units of the targets.

    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> bool(EsgdRegressor(work=1e5, random_state=0).fit(x, 1e6 + x[:, 0] ** 2).score(x, 1e6 + x[:, 0] ** 2) > 0.9)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on rows (n, d) and one number for each, (n,), or several, (n, k)."""
        self._check_parameters()
        rows, targets = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        weight = self._weighted(rows, sample_weight)
        counted = weight > 0
        self._flat = targets.ndim == 1
        self._train(rows[counted], targets.reshape(len(rows), -1)[counted], weight[counted], classes=None)
        return self

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The numbers for each row: (n,) or (n, k), as `fit` was given them."""
        answers = self._answers(X)
        return answers[:, 0] if self._flat else answers

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

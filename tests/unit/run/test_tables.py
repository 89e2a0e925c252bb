"""The history as tidy tables."""

import pandas
import pytest

import esgd
from esgd.errors import RecipeError
from esgd.operators import Elitist
from esgd.operators.survival import trajectories
from esgd.run.tables import individuals
from esgd.species import Fixed
from tests.small import classify
from tests.warm import python

RECIPE = esgd.Recipe(population=4, offspring=6, generations=3, sgd_epochs=1)


@pytest.fixture(scope="module")
def result() -> esgd.Result:
    return esgd.fit(classify(), RECIPE, seed=0, engine="loop", progress=False)


def test_a_frame_has_a_row_per_generation_and_flat_columns(result: esgd.Result) -> None:
    frame = result.frame()
    assert frame["k"].tolist() == [1, 2, 3]
    assert frame["best"].tolist() == [line["best"] for line in result.history]
    assert frame["leader_lr"].tolist() == [line["leader"]["lr"] for line in result.history]
    assert frame["ledger_sgd_backward"].sum() == 3 * 4 * 48
    assert {"elite_mean", "offspring_among_elites", "seconds_sgd", "leader_optimizer"} <= set(frame.columns)
    assert not any(isinstance(value, list | dict) for value in frame.to_numpy().flat)


def test_history_itself_stays_a_list_of_dicts(result: esgd.Result) -> None:
    assert isinstance(result.history, list)
    assert all(type(line) is dict for line in result.history)


def test_individuals_have_a_row_per_generation_and_individual(result: esgd.Result) -> None:
    frame = result.frame("individuals")
    for line in result.history:
        rows = frame[frame["k"] == line["k"]]
        alive = rows[rows["survived"]].sort_values("rank")
        assert alive["fitness"].tolist() == sorted(line["fitness"])
        assert set(alive["id"]) == {birth["id"] for birth in line["births"]}
        assert alive["elite"].sum() == line["elites"]
        trained = rows[rows["trained"]].set_index("id")
        for policy in line["policies"]:
            row = trained.loc[policy["id"]]
            assert (row["optimizer"], row["lr"]) == (policy["optimizer"], policy["lr"])
            assert (row["before"], row["after"], row["accepted"]) == tuple(
                policy[name] for name in ("before", "after", "accepted")
            )
        assert len(trained) == 4
    assert frame["accepted"].dtype == "boolean"
    assert frame["rank"].dtype == "Int64"


def test_whoever_was_bred_in_this_generation_was_not_trained_in_it(result: esgd.Result) -> None:
    frame = result.frame("individuals")
    assert not frame[frame["born"] == frame["k"]]["trained"].any()
    assert frame[~frame["trained"]]["lr"].isna().all()


def test_frames_group_and_join_as_pandas_does(result: esgd.Result) -> None:
    frame = result.frame("individuals")
    best = frame[frame["survived"]].groupby("k")["fitness"].min()
    pandas.testing.assert_series_equal(best, result.frame().set_index("k")["best"], check_names=False)


def test_ends_of_walks_that_backed_off_are_individuals_too() -> None:
    recipe = esgd.Recipe(
        population=4,
        offspring=4,
        elites=1,
        generations=2,
        sgd_epochs=1,
        survival=Elitist(rest=trajectories),
        species=Fixed(policy=esgd.Policy(optimizer="sgd", hyper={"lr": 3.0})),
    )
    result = esgd.fit(classify(), recipe, seed=0, engine="loop", progress=False)
    rows = individuals(result.history)
    ends = [row for row in rows if row["id"].endswith("@1")]
    assert {(row["k"], row["born"], row["survived"]) for row in ends} >= {(1, 0, True)}


def test_who_diverged_has_no_fitness_and_the_last_rank() -> None:
    line = {
        "k": 1,
        "elites": 1,
        "fitness": [None, 0.5],
        "births": [{"id": f"0.0.{j}", "parents": [], "sigma": 0.0, "founder": j} for j in range(2)],
        "policies": [],
    }
    assert [(row["id"], row["rank"], row["fitness"]) for row in individuals([line])] == [
        ("0.0.1", 1, 0.5),
        ("0.0.0", 2, None),
    ]


def test_a_table_that_is_none_gets_a_suggestion(result: esgd.Result) -> None:
    with pytest.raises(RecipeError, match="Did you mean 'individuals'"):
        result.frame("individual")


@pytest.mark.slow
def test_without_pandas_the_error_names_the_extra() -> None:
    program = (
        "import sys; sys.modules['pandas'] = None; from esgd.run.tables import as_frame; as_frame([], 'generations')"
    )
    done = python("-c", program)
    assert "pip install 'esgd[pandas]'" in done.stderr

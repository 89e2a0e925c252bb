"""The sentences say what the numbers say, also where ESGD is behind."""

from __future__ import annotations

from esgd._text.wording import in_words
from esgd.report import guarantee, headline, recipe_table, remarks, run_headline


def test_the_headline_names_every_arm_and_on_how_many_seeds_esgd_is_ahead(make_comparison):
    comparison = make_comparison(
        single=[(0.5, 0.5), (0.5, 0.5)], population=[(0.2, 0.5), (0.5, 0.5)], esgd=[(0.3, 0.6), (0.3, 0.6)]
    )
    fitness, held_out = headline(comparison)
    assert "0.3000 ± 0.0000 over 2 seeds, the lowest mean of all arms" in fitness
    assert "lower than the single baseline on 2 of 2 and the population baseline on 1 of 2 seeds" in fitness
    assert "behind the single baseline with 0.5000" in held_out
    assert "higher than the single baseline on 2 of 2 and the population baseline on 2 of 2 seeds" in held_out


def test_the_headline_can_say_lower_and_higher_in_one_sentence(make_comparison):
    said = headline(make_comparison(single=[(0.5, 0.5)], no_evolution=[(0.2, 0.2)], esgd=[(0.3, 0.3)]))[0]
    assert "with one seed, behind ESGD w/o evolution with 0.2000" in said
    assert "lower than the single baseline on 1 of 1; higher than ESGD w/o evolution on 1 of 1 seeds" in said


def test_a_comparison_in_which_esgd_diverged_says_so(make_comparison):
    said = headline(make_comparison(single=[(0.5, 0.5)], esgd=[(None, None)]))
    assert said[0] == "ESGD has no finite fitness: it diverged on every seed."


def test_without_a_test_split_only_the_fitness_is_stated(make_comparison):
    comparison = make_comparison(single=[(0.5, 0.5)], esgd=[(0.3, 0.3)])
    comparison["arms"]["esgd"][0]["test"] = {}
    assert len(headline(comparison)) == 1


def test_a_run_states_its_best_fitness_and_its_last_metrics(make_line):
    history = [make_line(1, [0.5]), make_line(2, [0.25]), make_line(3, [0.3], test={"loss": 0.4, "error": None})]
    assert run_headline(history) == [
        "The fittest network of 3 generations has a fitness of 0.2500.",
        "On the test split, which selection never saw, it has loss 0.4000 and error diverged.",
    ]


def test_a_run_in_which_all_diverged_says_so(make_line):
    assert run_headline([make_line(1, [None, None])]) == ["No individual had a finite fitness in 1 generation."]


def test_the_guarantee_of_a_real_run_held_in_every_generation(histories):
    assert guarantee(histories["esgd"].values()).endswith("held in 6 of 6 generations.")


def test_a_waived_guarantee_gives_its_reason_once(make_line):
    lines = [make_line(k, [0.5], guarantee="waived", waiver="back-off is not certain.") for k in (1, 2)]
    said = guarantee([lines, [make_line(1, [0.5])]])
    assert "waived in 2 of 3 generations: back-off is not certain." in said
    assert said.count("not certain") == 1


def test_a_note_is_shown_once_with_every_place_it_was_said_at(make_line):
    frozen = {"kind": "frozen", "text": "94% were backed off."}
    later = {"kind": "frozen", "text": "91% were backed off."}
    runs = {0: [make_line(1, [0.5]), make_line(2, [0.4], notes=[frozen])], 1: [make_line(1, [0.5], notes=[later])]}
    (remark,) = remarks(runs)
    assert remark.text == "94% were backed off."
    assert remark.where == "seed 0, generation 2; seed 1, generation 1"


def test_the_recipe_is_shown_in_the_papers_notation(comparison):
    shown = {row[0]: row[2] for row in recipe_table(comparison["recipe"]).rows if row[0]}
    assert {symbol: shown[symbol] for symbol in ("μ", "λ", "ρ", "m", "K", "K_s", "K_v")} == {
        "μ": "4",
        "λ": "8",
        "ρ": "2",
        "m": "2 (60% of μ)",
        "K": "3",
        "K_s": "1",
        "K_v": "1",
    }
    assert "sgd(lr=U[0.01, 0.5]" in shown["π"]
    assert ") or adam(lr=U[0.0003, 0.01]" in shown["π"]


def test_values_of_a_recipe_read_as_a_person_would_write_them():
    assert in_words({"kind": "mixture", "species": [{"kind": "my.pool:Mine"}], "weights": [1.0]}) == (
        "my.pool:Mine, weights {1}"
    )
    sgd = {"kind": "sgd", "lr": {"kind": "uniform", "low": 0.03, "high": 1}, "gamma": 0.7, "hyper": {}}
    assert in_words(sgd) == "sgd(lr=U[0.03, 1], γ=0.7)"
    policy = {"kind": "policy", "optimizer": "sgd", "hyper": {"lr": 0.05, "nesterov": True}, "annealing": 1.0}
    assert in_words({**policy, "schedule": {"kind": "constant"}}) == "sgd(lr=0.05, nesterov=yes)"
    assert in_words({"kind": "log_uniform", "low": 1e-6, "high": 0.1}) == "log U[1e-6, 0.1]"
    assert in_words({"kind": "integers", "low": 20, "high": 64}) == "{20 … 64}"
    assert in_words({"kind": "esgd.operators.recombination:intermediate"}) == "intermediate"
    assert [in_words(value) for value in ([1, 2], [], None, True)] == ["{1, 2}", "none", "none", "yes"]

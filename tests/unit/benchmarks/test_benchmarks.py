"""The benchmark suite: its arithmetic, its sides, and that every script runs on tiny sizes. No test asserts a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import children
from benchmarks.children import Child, SideError
from benchmarks.faults import HOT, Tally, rates
from benchmarks.generation_cost import rows as generation_rows
from benchmarks.limits import operations
from benchmarks.memory import slopes, steepest
from benchmarks.mishaps import lines_of_code
from benchmarks.processes import Written, family
from benchmarks.results import Row, save, spread
from benchmarks.simulation import LOST_NODE, TODAY, Cluster, phase
from benchmarks.simulation import generation as simulated
from benchmarks.speed import rows
from benchmarks.table import page
from benchmarks.workloads import ALL, MOMENTA, RATES, WORKLOADS, Workload
from tests.warm import Piped, python

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("warm_workers", "warm_sides")


@pytest.fixture
def warm_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sides are forks of a process that has imported torch."""

    def started(command: Sequence[str], environment: Mapping[str, str]) -> Piped:
        return Piped(*command[1:], cwd=ROOT, env=environment)

    monkeypatch.setattr(children, "_started", started)


def run(script: str, folder: Path, *options: str) -> dict:
    """What a script writes into its results. It runs in this process; the sides that it starts have their own."""
    with patch.object(sys, "argv", [script, "--quick", "--out", str(folder), *options]):
        import_module(f"benchmarks.{script}").main()
    return json.loads((folder / "results.json").read_text())


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_every_network_learns_from_its_data(workload: Workload) -> None:
    tiny = workload.tiny()
    (x, y), (fitness_x, _) = tiny.data()
    model = tiny.make_model()
    tiny.loss(model(x[: tiny.batch]), y[: tiny.batch]).backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert len(x) == tiny.samples
    assert len(fitness_x) > 0


@pytest.mark.parametrize("workload", ALL, ids=lambda workload: workload.name)
def test_batches_are_all_of_one_size(workload: Workload) -> None:
    assert workload.samples % workload.batch == 0


def test_everybody_has_hyper_parameters_of_their_own_within_the_ranges() -> None:
    hyper = WORKLOADS["W1"].hyper()
    assert len(set(hyper)) == 64
    assert all(RATES[0] <= lr <= RATES[1] and MOMENTA[0] <= momentum <= MOMENTA[1] for lr, momentum in hyper)


def test_operations_are_those_that_torch_counts() -> None:
    tiny = WORKLOADS["W2"].tiny()
    (x, y), _ = tiny.data()
    model = tiny.make_model()
    with FlopCounterMode(display=False) as counter:
        tiny.loss(model(x[: tiny.batch]), y[: tiny.batch]).backward()
    assert operations(tiny) == counter.get_total_flops() * tiny.steps * tiny.individuals


def test_a_ratio_is_of_times_from_one_repeat_and_the_best_of_jax_may_change_between_them() -> None:
    times = {"plain": [8.0, 12.0, 8.0], "auto": [1.0, 2.0, 1.0], "jax vmap": [2.0, 6.0], "jax scan": [3.0, 4.0, 3.0]}
    found = {row.name: row for row in rows(WORKLOADS["W1"], times, [])}
    assert found["auto against the plain loop"].value == 8.0
    assert (found["auto against the plain loop"].low, found["auto against the plain loop"].reached) == (6.0, True)
    assert (found["auto against the best of JAX"].low, found["auto against the best of JAX"].high) == (2.0, 3.0)


@pytest.mark.parametrize(("at_least", "reached"), [(True, False), (False, True)])
def test_a_target_has_a_good_side(at_least: bool, reached: bool) -> None:
    assert spread("x", [1.0, 3.0, 2.0], target=2.5, at_least=at_least).reached is reached


def test_memory_that_constant_costs_hide_at_first_is_judged_where_it_shows() -> None:
    row = steepest("x", slopes([8, 16, 32], [60.0, 60.0, 100.0]), target=2.2, at_least=False)
    assert (row.low, row.value, row.reached) == (0.0, 2.5, False)


@pytest.mark.slow
def test_a_side_that_cannot_take_part_says_why() -> None:
    child = Child(sys.executable, "benchmarks.sides.ours", ["W1", "nonsense", "--quick"], patience=120)
    try:
        child.answer()
        with pytest.raises(SideError, match="nonsense"):
            child.ask("open")
    finally:
        child.close()


def test_the_table_shows_what_was_missed_beside_what_was_reached(tmp_path: Path) -> None:
    missed = Row(name="slow", value=0.5, low=0.4, high=0.6, target=1.0)
    about = {"about": "small, two", "seconds": {}, "one_off": {}, "missing": {"vmap": "refused"}, "busy": 0.0}
    save(tmp_path, "speed", "W1", [missed], **about, gemm_rate=None, engine="Loop()")
    save(tmp_path, "speed", "W2", [Row(name="fast", value=2.0, low=2.0, high=2.0, target=1.0)], **about, **EMPTY)
    text = page(json.loads((tmp_path / "results.json").read_text()))
    assert "| W1 | slow | 0.5 × | 0.4 – 0.6 | ≥ 1 × | **no** |" in text
    assert "| W2 | fast | 2 × |  | ≥ 1 × | yes |" in text
    assert "Missing: *vmap* (refused)." in text


def test_nothing_is_claimed_of_what_was_measured_on_a_busy_machine(tmp_path: Path) -> None:
    """Neither that a target was reached nor that it was missed."""
    promised = [Row(name=name, value=value, low=value, high=value, target=1.0) for name, value in (("a", 9), ("b", 0))]
    save(tmp_path, "growth", "width", promised, busy=0.5)
    found = json.loads((tmp_path / "results.json").read_text())
    assert [row["reached"] for row in found["growth"]["width"]["rows"]] == [None, None]
    assert page(found).count("unclear: others used 50% of the machine") == 4  # in its section and among the promises


def test_an_overhead_is_claimed_only_where_the_error_of_the_measurement_is_small() -> None:
    cost = {"seconds": 5.1, "seconds_checkpoint": 0.1, "fitness_saved": 10, "fitness_evolution": 30}
    steady, shaky = (generation_rows([cost] * 4, bare, "auto") for bare in ([5.1] * 5, [5.0, 5.0, 6.0, 5.0, 5.0]))
    assert [row.reached for row in steady if row.target] == [True]
    assert [row.reached for row in shaky if row.target] == [None]
    assert steady[-1].value == 25.0  # per cent of the offspring's evaluation were saved


def test_a_generation_is_compared_with_the_bare_work_before_and_after_it() -> None:
    cost = {"seconds": 5.0, "seconds_checkpoint": 0.1, "fitness_saved": 0, "fitness_evolution": 30}
    costs = [{**cost, "seconds": seconds} for seconds in (5.5, 6.5)]
    overhead = generation_rows(costs, [5.0, 6.0, 7.0], "auto")[2]  # as the machine slows down
    assert overhead.value == pytest.approx(0.0)


def test_lines_of_code_are_those_that_say_something_to_the_machine() -> None:
    script = '''"""Why.

Because."""

import this  # a poem


def f(
    a: int,
) -> str:
    """What."""
    # how
    return """two
lines"""
'''
    assert lines_of_code(script) == 6


@pytest.mark.slow
def test_whoever_takes_the_middle_step_of_all_is_killed_and_nobody_else(tmp_path: Path) -> None:
    tally = Tally.of(WORKLOADS["W1"].tiny(), str(tmp_path), kill=True)
    steps = (
        "import pathlib, torch; from benchmarks.faults import Tally;"
        f"tally = Tally(pathlib.Path({str(tmp_path)!r}), {tally.asked}, {tally.fatal});"
        "weights = torch.zeros(1, 2, requires_grad=True);"
        f"[tally(weights, torch.tensor([0])) for _ in range({tally.asked})];"
    )
    first, second = (python("-c", steps, cwd=ROOT).returncode for _ in range(2))
    assert (first, second) == (-signal.SIGKILL, 0)
    assert tally.share == 1.5  # half of them, and then all


def test_one_learning_rate_may_be_absurd_and_the_others_stay() -> None:
    quiet, hot = (rates(WORKLOADS["W1"], hot=hot) for hot in (False, True))
    assert (hot[0], hot[1:]) == (HOT, quiet[1:])


@pytest.mark.skipif(not Path("/proc/self/io").is_file(), reason="processes are read from Linux' /proc")
def test_what_descendants_write_is_counted_after_they_have_ended(tmp_path: Path) -> None:
    """Memory that is a file system counts for nothing, so there the number is 0."""
    script = (
        "import os, sys; f = open(sys.argv[1], 'wb'); f.write(bytes(10**6)); os.fsync(f); print(flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "file")]
    written = Written()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert child.pid in family(os.getpid())
        written.look({child.pid})
        child.communicate(b"\n")
    before = written.total
    written.look({child.pid})
    assert written.total == before
    assert before == 0 or before >= 10**6


def test_the_table_says_what_became_of_every_run(tmp_path: Path) -> None:
    fared = {"seconds": 9.0, "written": 2e6, "kept": 1e6, "steps": 1.02, "fitness": 0.5, "asked": 4}
    quiet = {**fared, "digest": "a", "finite": 4, "failed": 0, "lost": 0, "undone": 0}
    hurt = {"esgd": [{**quiet, "lost": 1}], "Ray Tune PBT": [{**quiet, "digest": "b", "failed": 1, "finite": 3}]}
    about = {"about": "small, two", "busy": 0.0}
    save(tmp_path, "mishaps", "none", [], **about, answers={name: [quiet] for name in hurt})
    save(tmp_path, "mishaps", "kill", [], **about, answers=hurt)
    save(tmp_path, "mishaps", "diverge", [], **about, answers={"esgd": [{"error": "no answer in 120 s"}]})
    text = page(json.loads((tmp_path / "results.json").read_text()))
    assert "| a worker is killed | esgd | 9 | 102.0% | 2 MB | 1 MB | 0.5 | 4 of 4 individuals with a fitness" in text
    assert "1 worker lost and its work begun again, bit-identical to the undisturbed run |" in text
    assert "3 of 4 individuals with a fitness, 1 given up, not the undisturbed result |" in text
    assert "no answer in 120 s |" in text


EMPTY = {"gemm_rate": None, "engine": None}


@pytest.mark.slow
def test_speed_times_every_side_in_every_repeat_and_the_table_follows(tmp_path: Path) -> None:
    part = run("speed", tmp_path, "--only", "W2", "--sides", "plain,auto,gemm", "--repeats", "2")["speed"]["W2"]
    assert {side: len(times) for side, times in part["seconds"].items()} == {"plain": 2, "auto": 2, "gemm": 2}
    assert part["missing"] == {}
    done = python("-m", "benchmarks.table", "--out", tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "auto against the plain loop" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "speed.png").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["auto", "loop"])
def test_a_generation_is_held_against_bare_work(part: str, tmp_path: Path) -> None:
    found = run("generation_cost", tmp_path, "--only", part)["generation"][part]
    assert list(found["phases"]) == ["sgd", "fitness", "evolution", "checkpoint", "everything else"]
    assert (len(found["seconds"]), len(found["bare"])) == (2, 3)


@pytest.mark.slow
def test_a_joint_is_held_against_the_plain_run_of_its_round(tmp_path: Path) -> None:
    (found,) = run("joints", tmp_path, "--only", "mean")["joints"].values()
    assert [row["unit"] for row in found["rows"]] == ["×", "rows"]


@pytest.mark.slow
def test_a_loader_is_held_against_the_plain_loop_over_it(tmp_path: Path) -> None:
    found = run("loader", tmp_path, "--only", "mlp,dicts")["loader"]
    assert [len(part["ratios"]) for part in found.values()] == [1, 1]


@pytest.mark.slow
def test_whole_runs_with_auto_and_loop_alternate_and_have_the_same_result(tmp_path: Path) -> None:
    part = run("auto_choice", tmp_path)["auto"]["digits"]
    assert part["engine"].startswith("Loop(")
    assert len(set(part["fitness"])) == 1
    text = page(json.loads((tmp_path / "results.json").read_text()))
    assert "| digits | " in text.partition("## Whole runs with auto, beside loop")[2]


@pytest.mark.slow
def test_growth_visits_four_sizes(tmp_path: Path) -> None:
    found = run("growth", tmp_path, "--only", "offspring")["growth"]["offspring"]
    assert found["sizes"] == [2, 4, 8, 16]
    assert len(found["seconds"]) == 4


@pytest.mark.slow
def test_growth_of_the_default_rules_is_that_of_whole_runs_by_work(tmp_path: Path) -> None:
    found = run("growth", tmp_path, "--only", "work")["growth"]["work"]
    assert found["sizes"] == [100_000, 200_000, 400_000, 800_000]
    assert len(found["seconds"]) == 4


@pytest.mark.slow
def test_many_networks_are_held_against_few_by_the_seconds_of_each(tmp_path: Path) -> None:
    (row,) = run("thousand", tmp_path)["thousand"]["W1"]["rows"]
    assert (row["name"], row["unit"]) == ("a generation of 4 networks against 2, for each network", "×")


@pytest.mark.slow
def test_the_end_of_a_long_run_is_held_against_its_beginning(tmp_path: Path) -> None:
    (found,) = run("long_runs", tmp_path)["length"].values()
    assert len(found["first"]) == len(found["last"]) == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="memory is read from Linux' /proc")
def test_memory_is_watched_over_whole_generations(tmp_path: Path) -> None:
    found = run("memory", tmp_path, "--only", "loop on one thread")["memory"]["loop on one thread"]
    assert min(found["by_offspring"]["peak_bytes"]) > found["row_bytes"] > 0


def test_a_simulated_generation_of_equal_workers_is_the_sum_of_its_terms() -> None:
    even = Cluster(workers=20, spread=0.0, slowed=0.0, node_days=1e9, driver=0.0)
    moved = 8 * (3 + 2) * 20 * 10e6 / 10e9  # rows through the driver: three times all, and all to each of two nodes
    assert simulated(even, TODAY, Random(0)) == pytest.approx(60 + 4 * 1 + moved)
    busy_driver = simulated(replace(even, driver=10.0), TODAY, Random(0))
    assert busy_driver == pytest.approx(19 * 10 + 60 + 4 * 1 + moved)  # the last of twenty is sent after 190 seconds


def test_in_a_simulation_a_lost_node_costs_its_work_and_the_time_to_notice() -> None:
    even = Cluster(workers=16, spread=0.0, slowed=0.0, driver=0.0, node_days=1e9)
    lost = phase(replace(even, node_days=1e-6), TODAY, 16, 60.0, 0.0, Random(0))
    assert 60 + LOST_NODE < lost < 120 + LOST_NODE


@pytest.mark.slow
def test_the_script_for_gpus_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with patch.object(sys, "argv", ["gpu", "--quick", "--device", "cpu", "--only", "W1"]):
        import_module("benchmarks.gpu").main()
    answers = json.loads(capsys.readouterr().out.splitlines()[-1])["workloads"]["W1"]
    assert answers["two runs are bit-identical"] == {"loop": True, "vmap": True}
    assert not any(isinstance(answer, str) for answer in answers.values())  # the name of an error

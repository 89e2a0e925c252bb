"""What a GPU makes of esgd: run this where there is one, and send back what it prints.

    python -m benchmarks.gpu                     every check, on the first GPU: about five minutes
    python -m benchmarks.gpu --quick             tiny sizes
    python -m benchmarks.gpu --device cpu --quick   does the script itself run?

Nothing here has been run on a GPU by us. `docs/gpu.md` says what is known without one, and what only this can tell.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any

import torch

from benchmarks.workloads import WORKLOADS, Workload
from esgd import Recipe, Supervised, evolve
from esgd._algorithm.initialization import prepare
from esgd.engines import Loop, Vmap
from esgd.engines.device_memory import device_need
from esgd.engines.probe import PROBED, trial
from esgd.protocols import Engine, Setup

CHUNKS = (1, 4, 16, 64)
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only", default="W1,W2,W3,W4", help="workloads [default: W1,W2,W3,W4]")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(options.device), "workloads": {}}
    for name in options.only.split(","):
        workload = WORKLOADS[name].tiny() if options.quick else WORKLOADS[name]
        found["workloads"][name] = checks(workload, options.device)
        print(json.dumps({name: found["workloads"][name]}, indent=2), flush=True)
    print(json.dumps(found))


def machine(device: str) -> dict[str, Any]:
    about: dict[str, Any] = {"torch": torch.__version__, "device": device}
    if device.startswith("cuda"):
        about |= {"name": torch.cuda.get_device_name(device), "memory": torch.cuda.mem_get_info(device)[1]}
    return about


def checks(workload: Workload, device: str) -> dict[str, Any]:
    """Every check; one that fails is told, and the others go on."""
    train, fitness = workload.data()
    task = Supervised(workload.make_model, workload.loss, train=train, fitness=fitness, batch_size=workload.batch)
    setup = prepare(task, Recipe(population=4, generations=1), 0)
    questions: dict[str, Callable[[], Any]] = {
        "seconds of a step of one individual": lambda: speeds(setup, device),
        "synchronisations in a step": lambda: synchronisations(setup, device),
        "bytes of an individual": lambda: memory(setup, device),
        "two runs are bit-identical": lambda: repeated(task, device),
        "as on the CPU, up to": lambda: difference(task, device),
    }
    return {question: _told(answer) for question, answer in questions.items()}


def _told(answer: Callable[[], Any]) -> Any:
    try:
        return answer()
    except Exception as error:  # noqa: BLE001  # what fails on a GPU is what we want to know
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def engines(device: str) -> dict[str, tuple[Engine, int]]:
    """Engines and how many individuals train at once."""
    found: dict[str, tuple[Engine, int]] = {"loop": (Loop(device=device), 1)}
    for chunk in CHUNKS[1:]:
        found[f"vmap of {chunk}"] = Vmap(device=device, chunk=chunk), chunk
    if device != "cpu":  # where the script itself is tried out, and compiling takes longest
        found["vmap of 16, compiled"] = Vmap(device=device, chunk=16, compile=True), 16
    return found


def speeds(setup: Setup, device: str) -> dict[str, Any]:
    return {
        name: _told(lambda e=engine, n=n: _speed(e, setup, n, device)) for name, (engine, n) in engines(device).items()
    }


def _speed(engine: Engine, setup: Setup, individuals: int, device: str) -> float:
    """The median of several epochs; the first, in which something is recorded or compiled, are left out."""
    batches = min(20, setup.task.steps({}) or 20)
    with trial(engine, setup, individuals, batches) as train:
        train(2)
        train(2)
        took = [_timed(train, device) for _ in range(REPEATS)]
    return median(took) / individuals / batches


def _timed(train: Callable[[int], float], device: str) -> float:
    _wait(device)
    begun = perf_counter()
    train(1)
    _wait(device)
    return perf_counter() - begun


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def synchronisations(setup: Setup, device: str) -> dict[str, float]:
    """Those that torch itself reports, of an epoch more, divided by its steps. They should be 0."""
    batches = min(10, setup.task.steps({}) or 10)
    found = dict[str, float]()
    for name, (engine, individuals) in engines(device).items():
        with trial(engine, setup, individuals, batches) as train:
            train(2)
            seen = [_reported(train, epochs) for epochs in (1, 2)]
        found[name] = (seen[1] - seen[0]) / batches
    return found


def _reported(train: Callable[[int], float], epochs: int) -> int:
    with _reports() as seen:
        train(epochs)
    return sum("synchronizing" in str(each.message) for each in seen)


@contextmanager
def _reports() -> Iterator[list[warnings.WarningMessage]]:
    """torch warns of each operation that makes the host wait for the GPU."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            torch.cuda.set_sync_debug_mode("warn")
        try:
            yield seen
        finally:
            if torch.cuda.is_available():
                torch.cuda.set_sync_debug_mode("default")


def memory(setup: Setup, device: str) -> dict[str, float]:
    """What is predicted for an individual, and how much the peak grows with each."""
    predicted = {"predicted": device_need(setup, PROBED).bytes}
    if not device.startswith("cuda"):
        return predicted
    peaks = []
    for individuals in (4, 16):
        torch.cuda.reset_peak_memory_stats(device)
        with trial(Vmap(device=device, chunk=individuals), setup, individuals, 2) as train:
            train(2)
        peaks.append(torch.cuda.max_memory_allocated(device))
    return {**predicted, "measured": (peaks[1] - peaks[0]) / 12}


def _run(task: Supervised, engine: Engine) -> torch.Tensor:
    recipe = Recipe(population=4, offspring=4, generations=2, sgd_epochs=1)
    *_, last = evolve(task, recipe, seed=0, engine=engine)
    return last.population.rows


def repeated(task: Supervised, device: str) -> dict[str, bool]:
    engines_: dict[str, Engine] = {"loop": Loop(device=device), "vmap": Vmap(device=device, chunk=4)}
    return {name: torch.equal(_run(task, engine), _run(task, engine)) for name, engine in engines_.items()}


def difference(task: Supervised, device: str) -> float:
    """The largest difference between parameters after two generations; other rounding may select other networks."""
    there, here = _run(task, Loop(device=device)), _run(task, replace(Loop(), device="cpu"))
    return float((there - here).abs().max())


if __name__ == "__main__":
    main()

"""The same population, ours on Ray and Ray Tune's PBT: what becomes of a run when something goes wrong?

    python -m benchmarks.mishaps [--quick]

Sixteen MLPs on digits, three generations, two workers; three runs of each method. In the second a worker process is
killed (-9) in the middle of the training; in the third one individual begins with a learning rate of 1e9. Both methods
run as their users would have them, without settings for such cases. Writes mishaps.md beside the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.children import ROOT, Answer, Child
from benchmarks.results import FOLDER, arguments
from benchmarks.table import markdown, number

PATIENCE = 300.0
MISHAPS = {"none": "nothing", "kill": "a worker is killed", "diverge": "an individual diverges"}
SIDES = {"esgd": "benchmarks/sides/ours_with_mishaps.py", "Ray Tune PBT": "benchmarks/peers/tune_with_mishaps.py"}
BEGINS, ENDS = "# What a user writes", "# Until here"


def lines_of_code(path: Path) -> int:
    """Lines that a user has to write: those between two comments, without blank lines, comments and docstrings."""
    text = path.read_text(encoding="utf-8").partition(BEGINS)[2].partition(ENDS)[0]
    lines = [line.strip() for line in text.splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)


def told(python: str | Path, module: str, mishap: str, quick: list[str]) -> Answer:
    child = Child(python, module, [mishap, *quick], patience=PATIENCE)
    try:
        child.answer()
        return child.ask("round")
    finally:
        child.close()


def main() -> None:
    given = arguments(__doc__)
    quick = ["--quick"] if given.quick else []
    pythons = {"esgd": sys.executable, "Ray Tune PBT": given.peers}
    lines = []
    for mishap, words in MISHAPS.items():
        for name, path in SIDES.items():
            found = told(pythons[name], path.removesuffix(".py").replace("/", "."), mishap, quick)
            cells = [number(found["seconds"]), f"{found['written'] / 1e6:.3g} MB", number(found["fitness"])]
            lines.append([words, name, *cells, found["outcome"]])
            print(" | ".join(lines[-1]), flush=True)
    head = ("what goes wrong", "method", "seconds", "on disk", "best fitness", "what becomes of the run")
    code = {name: lines_of_code(ROOT / path) for name, path in SIDES.items()}
    words = [
        *markdown(head, lines),
        "",
        f"Lines of a user's code, imports aside: {', '.join(f'{name} {count}' for name, count in code.items())}.",
    ]
    folder = given.out if given.quick else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mishaps.md").write_text("\n".join(words) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Files of a run folder that are no longer what the run wrote; then every command that reads it.

Expected: the run is continued to the result of an undamaged one, or refused with the name of what is wrong; and then,
with the file restored, it continues as if nothing had been. Never another result, a traceback, a hang, or a change
outside the folder.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

from esgd.run.checksums import SUMMED
from esgd.run.files import remove
from esgd.run.folder import DAMAGED
from esgd.watch import Runs
from tests.campaign import judge, reference
from tests.campaign.case import Case, Ground, Plan
from tests.campaign.harm import HARMS, TO_ANYTHING, TO_FILES, TO_FOLDERS
from tests.campaign.victim import esgd, fork, without_report

PLAN = Plan(full=1_050, quick=36, suite=2, limit=60.0)

BASES: Mapping[str, Callable[[Path], Path]] = {"finished": reference.finished, "half": reference.half}
OTHERS: Mapping[str, Callable[[Path], Path]] = {
    "of another seed": reference.of_another_seed,
    "of another recipe": reference.of_another_recipe,
}
KEPT = {"finished": ("000003", "000004", "*"), "half": ("000001", "000002", "*")}
TOP = {
    "finished": ("recipe.toml", "manifest.json", "history.jsonl", "model.safetensors", ".lock", "SHA256SUMS"),
    "half": ("recipe.toml", "manifest.json", "history.jsonl", "model.safetensors", ".lock"),
}
DRAWN = ("report.html", "run.png")
NO_REPORT = "No report: "
"""What a run says that is complete but for its pictures."""
REPORTED = ("history.jsonl", "manifest.json", *DRAWN)
REPORT, EXPORT = ("report", "run"), ("export", "run", "--out", "export")
INNER = ("state.json", "tensors.safetensors")
OFTEN = {"flipped": 22, "truncated": 8}
"""What depends on where it happens is tried so often."""


@dataclass(frozen=True)
class Damage:
    """Harm what matches a pattern in a finished or half-finished run, and use it."""

    base: str
    pattern: str
    harm: str
    seed: int = 0

    def attack(self, ground: Ground) -> str | None:
        original = BASES[self.base](ground.root)
        shutil.copytree(original, ground.run)
        outside = ground.folder / "outside"
        outside.mkdir()
        (outside / "canary").write_text("untouched")
        harmed = sorted(ground.run.glob(self.pattern))
        for number, path in enumerate(harmed):
            self._do(path, outside, ground.root, number)
        before = fingerprint(outside)
        wrong = self._read(ground) or self._resume(ground, original, harmed)
        return wrong or ("something outside was changed" if fingerprint(outside) != before else None)

    def _do(self, path: Path, outside: Path, root: Path, number: int) -> None:
        if self.harm in HARMS:
            HARMS[self.harm](path, outside, random.Random(self.seed + number))
            return
        other = OTHERS[self.harm](root)
        name = path.relative_to(path.parents[len(Path(self.pattern).parts) - 1])
        theirs = other / name if (other / name).exists() else other / "checkpoint" / "000004" / Path(*name.parts[2:])
        remove(path)
        shutil.copytree(theirs, path) if theirs.is_dir() else shutil.copy(theirs, path)

    def _read(self, ground: Ground) -> str | None:
        """The commands that only read; what they show is not judged, but that they end, and how."""
        verified = esgd("verify", "run", cwd=ground.folder)
        if self.base == "finished" and verified.code == 0 and self._detectable(ground):
            return f"the damage is not noticed; {verified}"
        ends = [verified, fork(lambda: _watch(ground.run), ("(what `esgd watch` reads)",), ground.folder).wait()]
        if self.pattern in REPORTED:
            ends += (esgd(*words, cwd=ground.folder) for words in (REPORT, EXPORT))
        for ended in ends:
            if ended.code not in (0, 2, 3) or judge.unclean(ended):
                return str(ended)
        return None

    def _detectable(self, ground: Ground) -> bool:
        """Whether a file that has a checksum is another than the run wrote."""
        here, there = (
            {name: content for name, content in fingerprint(folder).items() if _summed(name)}
            for folder in (ground.run, reference.finished(ground.root))
        )
        return here != there

    def _given_up(self) -> list[str]:
        """An older checkpoint that is not whole is removed, if there is a newer one."""
        older = f"checkpoint/{KEPT['finished'][0]}"
        return [older] if self.base == "finished" and self.pattern.startswith(older) else []

    def _resume(self, ground: Ground, original: Path, harmed: list[Path]) -> str | None:
        like, drawn = reference.finished(ground.root), self.pattern in DRAWN
        besides = (DAMAGED, *self._given_up(), *(() if drawn else DRAWN))
        prepare = (lambda: None) if drawn else without_report
        resumed = esgd(*reference.RESUME, cwd=ground.folder, prepare=prepare)
        names = [path.relative_to(ground.run).as_posix() for path in harmed]
        unreported = drawn and NO_REPORT in resumed.said and names[0] in resumed.said
        if resumed.code == 0 and not unreported:
            return judge.unclean(resumed) or judge.is_same(ground, like, besides=besides)
        told = (*names, *(Path(name).parts[1] for name in names if "/" in name))
        wrong = judge.unclean(resumed) if unreported else judge.refuses(resumed, *told)
        for path, name in zip(harmed, names, strict=True):
            remove(path)
            whole = original / name
            shutil.copytree(whole, path) if whole.is_dir() else shutil.copy(whole, path)
        again = judge.ends_the_same(ground, like, reference.RESUME, besides=besides, prepare=prepare)
        return wrong or (f"refused, restored, and then: {again}" if again else None)


def _watch(run: Path) -> None:
    """What the live page asks for."""
    runs = Runs([run.parent])
    for each in runs.listed()["runs"]:
        runs[each["id"]].after(0)


def fingerprint(folder: Path) -> dict[str, str]:
    """File → digest; for what is no plain file, what it is."""
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
        for path in folder.rglob("*")
    }


def _summed(name: str) -> bool:
    return any(Path(name).match(pattern) for pattern in SUMMED) or name == "SHA256SUMS"


def cases(seed: int) -> Iterator[Case]:
    """Every harm to every file and folder of both runs, mixed."""
    drawn = random.Random(seed)
    found = list(chain.from_iterable(_of(base, drawn) for base in BASES))
    drawn.shuffle(found)
    yield from found


def _of(base: str, drawn: random.Random) -> Iterator[Damage]:
    inner = ["checkpoint/history.jsonl", *(f"checkpoint/{k}/{name}" for k in KEPT[base] for name in INNER)]
    swaps = [name for name in (*TOP[base], *inner) if name != ".lock"]
    for file in (*TOP[base], *inner, *(DRAWN if base == "finished" else ())):
        for harm in (*TO_FILES, *TO_ANYTHING, *(OTHERS if file in swaps else ())):
            for _ in range(OFTEN.get(harm, 1) if file != ".lock" else 1):
                yield Damage(base, file, harm, drawn.randrange(1 << 32))
    for folder in ("checkpoint", *(f"checkpoint/{k}" for k in KEPT[base])):
        for harm in (*TO_FOLDERS, *TO_ANYTHING, *OTHERS):
            yield Damage(base, folder, harm, drawn.randrange(1 << 32))

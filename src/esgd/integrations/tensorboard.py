"""TensorBoard: a folder of event files. The one file that imports tensorboard."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import gethostname
from types import SimpleNamespace
from typing import Any

from esgd.errors import MissingExtraError, TrackerError
from esgd.integrations.curves import curves, settings
from esgd.progress.tracking import Record, Tracked
from esgd.run.files import open_to_append, replace_file

STEP = "generation"  # in every generation, also where no fitness is finite


@dataclass(frozen=True)
class TensorBoard:
    """Curves in `folder`, with a folder for every run: `tensorboard --logdir folder` shows them side by side.

    A resumed run continues where its event files end. The final network is beside them, as model.safetensors.
    """

    folder: str | Path = "tensorboard"

    def __post_init__(self) -> None:
        _package()

    def open(self, run: Tracked) -> TensorBoardLog:
        """The run's own folder of event files."""
        try:
            place = _place(Path(self.folder), run)
            log = TensorBoardLog(place, run.id, done=_last_step(place, run.id))
            log.begin(settings(run.manifest))
        except OSError as error:
            raise TrackerError(
                f"TensorBoard cannot write into {str(self.folder)!r}: {error}. Its event files need a folder that you "
                f"may write to. Choose another one."
            ) from error
        return log


class TensorBoardLog:
    """The event file of one run. Nothing is buffered: a generation is on the disk when `write` returns, as one event,
    so that it is there or is not; torch's SummaryWriter has a thread that would swallow the error of a full disk."""

    def __init__(self, place: Path, id_: str, *, done: int) -> None:
        self._place = place
        self._file = place / f"events.out.tfevents.{time.time():017.6f}.{gethostname()}.{os.getpid()}.{id_}"
        self.where, self.done = f"{place} (tensorboard --logdir {place.parent})", done

    def begin(self, chosen: Mapping[str, Any]) -> None:
        """The file's first event and, in a new run, the recipe as text."""
        package = _package()
        self._append(package.Event(wall_time=time.time(), file_version="brain.Event:2"))
        if not self.done:
            text = json.dumps(chosen, indent=2, ensure_ascii=False)
            self._append(package.Event(wall_time=time.time(), summary=package.text("recipe", f"```\n{text}\n```")))

    def write(self, record: Record) -> None:
        """A scalar for every curve."""
        package, k = _package(), record["k"]
        values = {**curves(record), STEP: float(k)}
        scalars = [package.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._append(package.Event(wall_time=time.time(), step=k, summary=package.Summary(value=scalars)))

    def close(self, model: Path | None) -> None:
        """The network goes beside the events."""
        if model is not None:
            replace_file(self._place / model.name, partial(shutil.copyfile, model))

    def _append(self, event: Any) -> None:
        with open_to_append(self._file) as file:
            size = file.tell()
            try:
                _package().RecordWriter(file).write(event.SerializeToString())
                file.flush()
            except OSError:
                os.ftruncate(file.fileno(), size)
                raise


def _package() -> SimpleNamespace:
    """The few names of tensorboard that are used here."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise MissingExtraError("tensorboard", "tensorboard", "Tracking with TensorBoard") from error
    return SimpleNamespace(
        EventFileLoader=EventFileLoader, Event=Event, Summary=Summary, RecordWriter=RecordWriter, text=text_pb
    )


def _place(folder: Path, run: Tracked) -> Path:
    """The folder that has this run already, or one that has none; another run of the same name is left alone."""
    number, place = 1, folder / run.name
    while any(place.glob("events.out.tfevents.*")) and not any(place.glob(f"*.{run.id}")):
        number += 1
        place = folder / f"{run.name}-{number}"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _last_step(place: Path, id_: str) -> int:
    """The last generation in the event files of this run; what a killed process left half-written does not count."""
    load = _package().EventFileLoader
    return max(
        (
            event.step
            for path in place.glob(f"*.{id_}")
            for event in load(str(path)).Load()
            if any(value.tag == STEP for value in event.summary.value)
        ),
        default=0,
    )

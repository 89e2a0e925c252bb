"""No test of the data room reaches beyond this machine, or into the data folders of whoever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.esgd_paper.data.publisher import Publisher, publishing


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy, where one is set, is not asked for this machine's own server."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with publishing({}) as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, moved; $ESGD_DATA is not set."""
    monkeypatch.delenv("ESGD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "esgd" / "data"

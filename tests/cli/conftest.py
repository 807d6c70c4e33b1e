"""The command line called in this process, and encoders of a user's own that need no torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import OWN_ENCODERS, Command
from tests.cli.little_recipe import cards, little

__all__ = ["cards", "little"]


@pytest.fixture(scope="session")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder on the path with the module ``own_encoders``."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_encoders.py").write_text(OWN_ENCODERS)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def stsbench(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Run a command in a folder of its own, as on a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Command(capsys)

"""Checkpoints to be damaged."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest


@pytest.fixture
def dense(saved: Mapping[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved["dense"], tmp_path / "dense"))

"""An encoder on its way to a machine that has, or lacks, its checkpoint's folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.bench import ray_cluster as joining
from stsbench.bench.ray_cluster import exists_on_every_machine, is_shared_folder, serve_files
from stsbench.core.provenance import encoder_identity
from stsbench.encoders.load import load_encoder
from tests.training.students import sentences

pytestmark = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray: pip install 'stsbench[ray]'"
)


@pytest.fixture
def folder(tmp_path: Path, masked_lm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(masked_lm, tmp_path / "checkpoint"))


@pytest.fixture
def lending(ray: Any) -> Iterator[Any]:
    """Ray, which takes checkpoints along."""
    with serve_files(ray):
        yield ray


def test_a_folder_that_is_there_is_used_as_it_is(folder, lending, monkeypatch):
    monkeypatch.setattr(
        joining, "read_checkpoint_files", lambda folder: pytest.fail("nothing is sent")
    )
    found = lending.get(lending.put(load_encoder(str(folder))))
    assert found.checkpoint.folder == folder
    assert exists_on_every_machine(lending, folder) and not exists_on_every_machine(
        lending, folder / "none"
    )
    assert is_shared_folder(lending, folder)


def test_a_folder_that_is_missing_is_made_of_what_was_lent(folder, lending, monkeypatch):
    monkeypatch.setattr(joining, "exists_on_every_machine", lambda ray, folder: False)
    encoder = load_encoder(str(folder))
    before, texts = encoder_identity(encoder), sentences(8)
    expected = load_encoder(str(folder)).encode(texts)
    (folder / "notes.md").write_text("no file of the model")
    parcel = lending.put(encoder)
    shutil.rmtree(folder)

    def embedded(encoder: Any, texts: list[str]) -> tuple[Any, Path, Any]:
        return encoder_identity(encoder), encoder.checkpoint.folder, encoder.encode(texts)

    # Its files come to a worker while its arguments are read.
    worker = lending.remote(embedded).options(
        runtime_env={"env_vars": {"STSBENCH_CACHE": str(folder.parent / "cache")}}
    )
    told, place, rows = lending.get(worker.remote(parcel, texts))
    assert told == before
    assert place.is_relative_to(folder.parent / "cache") and not list(place.rglob("*.md"))
    np.testing.assert_array_equal(rows, expected)
    written = {path: path.stat().st_mtime_ns for path in place.rglob("*")}
    assert lending.get(parcel).checkpoint.folder == place
    assert {path: path.stat().st_mtime_ns for path in place.rglob("*")} == written


def test_without_lending_a_checkpoint_is_sent_by_its_place(folder, ray):
    with serve_files(ray):
        pass
    assert ray.get(ray.put(load_encoder(str(folder)))).checkpoint.folder == folder

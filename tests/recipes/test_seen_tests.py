"""What a run has seen of the tests: the text it learnt from, and what the encoder it started from was trained on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from stsbench.core.cards import BaseSection, CorpusSection
from stsbench.core.catalogue import Catalogue
from stsbench.data.corpora.corpus import load_corpus
from stsbench.data.task import load_task
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.runs import RUN_FILE
from stsbench.recipes.overlaps import find_overlaps
from stsbench.recipes.train_plan import TrainPlan
from tests.recipes.little import little_recipe
from tests.training.students import sentences

CARD = """
name = "Known"
kind = "transformer"
method = "Mean"
backbone = "tiny"
supervision = "none"
overlap = "{overlap}"
paper = "none"
license = "none"
[params]
{params}
"""


def plan(folder: Path, *, base: str = "", model: str = "") -> TrainPlan:
    card = little_recipe(
        "simcse", base=BaseSection(model=model), data=CorpusSection(corpus="text.txt")
    )
    (folder / "baselines").mkdir(exist_ok=True)
    return TrainPlan(
        name="little", card=card, seed=0, out=folder, base=base, catalogue=Catalogue([folder])
    )


def seen(folder: Path, checkpoint: Path | None, texts: list[str], **options: Any) -> str:
    (folder / "text.txt").write_text("\n".join(texts) + "\n")
    base = find_checkpoint(str(checkpoint)) if checkpoint else None
    return find_overlaps(plan(folder, **options), load_corpus(folder / "text.txt"), base)[
        "quickstart-en"
    ]


def known(folder: Path, name: str, overlap: str, params: str) -> None:
    (folder / "baselines").mkdir(exist_ok=True)
    (folder / "baselines" / f"{name}.toml").write_text(CARD.format(overlap=overlap, params=params))


def test_of_a_start_that_nobody_knows_nothing_is_known(masked_lm, tmp_path):
    assert seen(tmp_path, None, sentences(9)) == "none"
    assert seen(tmp_path, masked_lm, sentences(9)) == "unknown"
    assert (
        seen(tmp_path, masked_lm, [*sentences(9), load_task("quickstart-en").texts()[0]]) == "text"
    )


@pytest.mark.parametrize("overlap", ["none", "text", "gold", "unknown"])
def test_a_card_of_the_same_checkpoint_tells(masked_lm, tmp_path, overlap):
    digest = find_checkpoint(str(masked_lm)).file_hashes()["weights/model.safetensors"]
    known(tmp_path, "other", "gold", '[params.sha256]\n"model.safetensors" = "0"')
    known(tmp_path, "same", overlap, f'[params.sha256]\n"model.safetensors" = "{digest}"')
    assert seen(tmp_path, masked_lm, sentences(9)) == overlap


def test_a_hub_id_or_a_card_s_name_tells(masked_lm, tmp_path):
    known(tmp_path, "same", "text", 'model = "someone/encoder"')
    assert seen(tmp_path, masked_lm, sentences(9), model="someone/encoder") == "text"
    assert seen(tmp_path, masked_lm, sentences(9), base="someone/encoder") == "text"
    assert seen(tmp_path, masked_lm, sentences(9), base="same") == "text"
    # With --base, the recipe's own start is not taken.
    assert (
        seen(tmp_path, masked_lm, sentences(9), base=str(masked_lm), model="someone/encoder")
        == "unknown"
    )


def test_a_run_tells_by_its_record(masked_lm, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(masked_lm, folder)
    record = {"recipe": "earlier", "seed": 0, "overlap": {"quickstart-en": "gold"}}
    (folder / RUN_FILE).write_text(json.dumps(record))
    assert seen(tmp_path, folder, sentences(9), base=str(folder)) == "gold"

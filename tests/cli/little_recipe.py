"""A user's folder of cards with one recipe that trains in a second."""

from pathlib import Path

import pytest

from tests.training.students import sentences

RECIPE = """
name = "A little SimCSE"
method = "simcse"
paper = "https://arxiv.org/abs/2104.08821"
preset = "our own"
supervision = "none"
backbone = "tiny"

[base]
note = "any masked language model"

[data]
corpus = "text.txt"

[student]
max_length = 16

[params]
temperature = 0.05

[training]
batch_size = 8
learning_rate = 1e-3
steps = 12

[selection]
task = "quickstart-en"
split = "test"
every = 4
"""


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """A user's folder of cards with one recipe, and his corpus beside it."""
    (tmp_path / "mine" / "trainers").mkdir(parents=True)
    (tmp_path / "mine" / "trainers" / "little.toml").write_text(RECIPE)
    (tmp_path / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    return tmp_path / "mine"


@pytest.fixture
def little(cards: Path, masked_lm: Path) -> list[str | Path]:
    """The words that train it."""
    return ["train", "little", "--cards", cards, "--base", masked_lm]

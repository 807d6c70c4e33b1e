"""What tests of studies get: a recipe of a second, cards that name it, and a folder of runs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.recipes.train_plan import TrainPlan
from stsbench.recipes.trainer import Trainer, load_trainer
from stsbench.studies.sweep import Sweep, SweepScore, SweepState
from stsbench.studies.trials import TrialEnvironment
from tests.cli.little_recipe import RECIPE
from tests.training.students import sentences

HEAD = 'name = "Made up"\nevaluator = "sts"\nlanguages = ["en"]\npaper = "none"\nlicense = "none"\n'
GONE = """
[splits.test]
n = 4
[local]
reader = "pair_table"
folder = "gone"
[local.files]
test = [{path = "pairs.tsv"}]
"""
"""A task whose data nobody has."""


DEV = """
[splits.test]
n = 8
[splits.validation]
n = 8
[local]
reader = "pair_table"
folder = "../pairs"
params = {sentence1 = "a", sentence2 = "b", gold = "gold", header = true}
[local.files]
test = [{path = "pairs.tsv"}]
validation = [{path = "pairs.tsv"}]
"""
"""A task with a development split."""


CARD = """
name = "Temperatures"
recipes = ["little"]
seeds = [1, 2]
[values]
temperature = [0.05, 0.5]
[decide]
task = "dev"
"""


@pytest.fixture
def sweep(developing: TrialEnvironment, masked_lm: Path, tmp_path: Path) -> Callable[..., Sweep]:
    """Reads a card of a sweep whose text may be changed, and more added."""

    def read(*changes: tuple[str, str], more: str = "", folder: str = "swept") -> Sweep:
        text = CARD
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (tmp_path / "heat.toml").write_text(text + more)
        place = replace(developing, results=tmp_path / folder / "results")
        return Sweep.read(
            tmp_path / "heat.toml", place, folder=tmp_path / folder, base=str(masked_lm)
        )

    return read


@pytest.fixture
def developing(workshop: TrialEnvironment, tmp_path: Path) -> TrialEnvironment:
    """The same with the task 'dev', on which the recipe 'little' is selected; 'tested' is selected on a test."""
    mine = tmp_path / "mine"
    (mine / "tasks" / "dev.toml").write_text(HEAD + DEV)
    (mine / "pairs").mkdir()
    texts = sentences(16, seed=9)
    rows = [
        f"{a}\t{b}\t{place % 5}"
        for place, (a, b) in enumerate(zip(texts[:8], texts[8:], strict=True))
    ]
    (mine / "pairs" / "pairs.tsv").write_text("\n".join(["a\tb\tgold", *rows]) + "\n")
    little = mine / "trainers" / "little.toml"
    (mine / "trainers" / "tested.toml").write_text(little.read_text())
    on_dev = (
        little.read_text()
        .replace('"quickstart-en"', '"dev"')
        .replace('split = "test"', 'split = "validation"')
    )
    little.write_text(on_dev)
    return replace(workshop, catalogue=Catalogue(mine))


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrialEnvironment:
    """Where the recipe 'little' is trained on 60 sentences: runs and results lie in a folder of the test's own."""
    home = tmp_path / "mine" / "trainers"
    home.mkdir(parents=True)
    (tmp_path / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    (home / "little.toml").write_text(RECIPE.replace("text.txt", str(tmp_path / "text.txt")))
    (tmp_path / "mine" / "tasks").mkdir()
    (tmp_path / "mine" / "tasks" / "gone.toml").write_text(HEAD + GONE)
    monkeypatch.setenv("STSBENCH_RUNS", str(tmp_path / "runs"))
    return TrialEnvironment(
        results=tmp_path / "results", device="cpu", catalogue=Catalogue(tmp_path / "mine")
    )


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What has been trained so far, by the folder of each run."""
    begun: list[str] = []

    def loading(plan: TrainPlan) -> Trainer:
        begun.append(f"{plan.folder.parent.name}/{plan.folder.name}")
        return load_trainer(plan)

    monkeypatch.setattr("stsbench.recipes.train.load_trainer", loading)
    return lambda: list(begun)


def scores(book: SweepState) -> dict[str, SweepScore]:
    """Return the score of each trial of a sweep, by the name of its encoder."""
    return {trial.encoder: row.scores[trial.plan.seed] for row in book.rows for trial in row.trials}

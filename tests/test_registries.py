"""A made-up row in each table that something is chosen from by name goes the whole way: one place for each thing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests import made_up
from tests.cli.commands import Command, write
from tests.training.students import sentences

CARDS = {
    "tasks/mine.toml": """
        name = "Mine"
        evaluator = "mine"
        languages = ["en"]
        paper = "none"
        license = "mine"
        [splits.test]
        n = 4
        [local]
        reader = "mine"
        folder = "mine"
        [local.files]
        test = [{path = "pairs.tsv"}]
        """,
    "tasks/suites.toml": '[ours]\nname = "Ours"\ntasks = ["mine", "quickstart-probe"]\naverage = false',
    "trainers/learned.toml": """
        name = "Learned"
        method = "mine"
        paper = "none"
        preset = "our own"
        supervision = "none"
        backbone = "tiny"
        [base]
        model = "MODEL"
        [data]
        corpus = "text.mine.mine"
        [training]
        batch_size = 8
        learning_rate = 1e-3
        steps = 2
        optimiser = "mine"
        schedule = "mine"
        [selection]
        task = "mine"
        split = "test"
        every = 1
        measure = "mine"
        """,
}
ENCODER = 'method = "none"\nbackbone = "none"\nsupervision = "none"\noverlap = "none"\npaper = "none"\nlicense = "mine"\n'
ENCODERS = {
    "kinded": 'kind = "mine"',
    "pooled": 'kind = "transformer"\nparams = {model = "MODEL", pooling = "mine", backend = "mine"}',
    "worded": 'kind = "words"\nparams = {file = "words.txt", tokens = "mine"}',
}
PAIRS = "a cat sat\tthe cat sat\t5\na dog ran\tno dog ran\t3.5\ncoffee\ttea\t2\nit rains\tthe sun shines\t0.5\n"


def table(address: str) -> Any:
    """The mapping at an address: of a registry, its addresses."""
    module, name = address.split(":")
    found = getattr(import_module(f"stsbench.{module}"), name)
    return getattr(found, "table", found)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, masked_lm: Path) -> Path:
    """A user's folder: cards, data, text and word vectors."""
    folder = tmp_path_factory.mktemp("made-up")
    for name, text in CARDS.items():
        write(
            folder / name,
            "\n".join(line.strip() for line in text.replace("MODEL", str(masked_lm)).splitlines()),
        )
    for name, text in ENCODERS.items():
        write(
            folder / f"baselines/{name}.toml",
            f'name = "{name}"\n{ENCODER}{text.replace("MODEL", str(masked_lm))}\n',
        )
    write(folder / "data" / "mine" / "pairs.tsv", PAIRS)
    write(folder / "text.mine.mine", "\n".join(sentences(16))[::-1])
    words = sorted(
        {word for sentence in PAIRS.split() for word in sentence.split()} | {"the", "of", "is"}
    )
    write(folder / "words.txt", "".join(f"{word} {i}.5 {-i} 1\n" for i, word in enumerate(words)))
    return folder


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Every made-up row in its table."""
    for address, row in made_up.ROWS.items():
        ending = ".mine" if "corpora.corpus" in address else "mine"
        monkeypatch.setitem(table(address), ending, row)
    monkeypatch.setitem(table("evaluators.sts:PROTOCOLS"), "mine", made_up.protocol())
    made_up.USED.clear()
    yield monkeypatch


def test_made_up_rows_go_the_whole_way(place, patched, capsys):
    patched.chdir(place)
    shutil.rmtree("results", ignore_errors=True)
    command = Command(capsys)
    cards = ("--cards", ".")
    assert "a thing of mine" in command("list", "mine", *cards).out
    assert command("show", "a thing of mine", *cards).out.startswith("a thing of mine: mine")
    trained = command("train", "learned", "--data", "data", "--on", "mine", *cards)
    assert trained.code == 0, trained.err
    names = "kinded,pooled,worded,learned"
    chosen = ("--tasks", "ours", "--protocol", "mine", "--on", "mine")
    scored = command("run", "-e", names, *chosen, "--data", "data", *cards)
    assert scored.code == 0, scored.err
    board = command("leaderboard", "--suite", "ours", "--format", "mine", *cards)
    assert board.code == 0, board.err
    assert set(names.split(",")) <= set(board.out.split())
    assert command("export", "--format", "mine", *cards).code == 0
    index = command("export", "--format", "model-index", "-e", "kinded", *cards)
    assert "task-of-mine" in index.out, index.err
    assert command("check", "results", "--against", "results", "--rule", "mine", *cards).code == 0
    analysed = command(
        "analyze",
        "mine",
        "-e",
        "kinded",
        "--tasks",
        "mine",
        "--out",
        "a.mine",
        "--data",
        "data",
        *cards,
    )
    assert analysed.code == 0, analysed.err
    assert Path("a.mine").read_text() == "mine: mine (test)"
    assert "wrote" in command("convert", "mine", "a", "b").out
    unseen = {"boards.exports.hub:HUB_TASKS"}
    assert set(made_up.ROWS) - unseen == made_up.USED

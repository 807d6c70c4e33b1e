"""A score that its items do not make is refused by every command that reads results, with a right digest too."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

import stsbench as package
from stsbench.check.lock import read_lock, to_lock
from stsbench.core.catalogue import Catalogue
from stsbench.results.folder import read_result
from stsbench.results.record import Result, items_path, score_name
from tests.cli.commands import HEAD, Command, write
from tests.forgeries import resealed

WORDS = "cats dogs boats trains rivers clouds songs bread chairs stones".split()
SMALL_TRAINING = "senteval(max_epochs=5,epoch_size=5)"
FEW_IMAGES = "senteval(folds=2,fold_images=20,max_epochs=0,projection=4,batch_size=8,contrasts=2)"


class Kind(NamedTuple):
    """A task of one evaluator, the protocol that it is scored by, and how far its score is moved."""

    task: str
    protocol: str
    moved: float = 0.001


KINDS = {
    "Spearman": Kind("pairs", "simcse"),
    "mean over subsets": Kind("pairs", "mean"),
    "weighted mean of Pearson": Kind("pairs", "semeval"),
    "regressor": Kind("related", SMALL_TRAINING),
    "probe of a test split": Kind("topics", "senteval-fast", 0.02),
    "probe without rounding": Kind("topics", "logreg", 0.02),
    "probe over folds": Kind("reviews", "senteval-fast", 0.02),
    "retrieval": Kind("images", FEW_IMAGES),
}
OF_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
BOTH = ("--encoder", "own_encoders:Hashed,own_encoders:Hashed+size=16")


def sentence(number: int, word: int) -> str:
    return f"the {WORDS[number % 10]} and {WORDS[(number // 10 + 3 * word) % 10]} {WORDS[word % 10]} {'very ' * (number % 4)}late"


def splits(**counts: int) -> str:
    return "".join(f"[splits.{name}]\nn = {n}\n" for name, n in counts.items())


def local(reader: str, params: str, files: Mapping[str, str]) -> str:
    named = "".join(f"{split} = [{paths}]\n" for split, paths in files.items())
    return f'[local]\nreader = "{reader}"\nfolder = "mine"\nparams = {{{params}}}\n[local.files]\n{named}'


def write_tasks(cards: Path, data: Path) -> None:
    """Pairs in two subsets, pairs for a regressor, sentences of three classes, sentences scored over folds, captions."""
    rng = np.random.default_rng(7)

    def task(name: str, evaluator: str, body: str) -> None:
        write(cards / "tasks" / f"{name}.toml", HEAD.replace('"sts"', f'"{evaluator}"') + body)

    def pairs(name: str, n: int) -> str:
        rows = [
            (sentence(i, i), sentence(i + i % 3, i), round(float(rng.uniform(0, 5)), 1))
            for i in range(n)
        ]
        write(data / "mine" / name, "".join("\t".join(map(str, row)) + "\n" for row in rows))
        write(data / "mine" / f"{name}.in", "".join(f"{a}\t{b}\n" for a, b, _ in rows))
        write(data / "mine" / f"{name}.gs", "".join(f"{gold}\n" for *_, gold in rows))
        return f'{{path = "{name}"}}'

    def labelled(name: str, n: int, classes: int) -> str:
        rows = [(sentence(i, int(rng.integers(0, 4)) + i % classes), i % classes) for i in range(n)]
        write(data / "mine" / name, "".join(f"{text}\t{label}\n" for text, label in rows))
        return f'{{path = "{name}"}}'

    def captions(name: str, images: int) -> str:
        features = rng.normal(size=(images, 4)).astype(np.float32)
        save_file({"features": features}, data / "mine" / f"{name}.safetensors")
        texts = [[sentence(5 * image + i, image) for i in range(5)] for image in range(images)]
        write(data / "mine" / f"{name}.json", json.dumps(texts))
        return f'{{path = "{name}.safetensors"}}, {{path = "{name}.json"}}'

    pairs("news", 30), pairs("forum", 20)
    parts = (
        f'{{path = "{name}.in", subset = "{name}"}}, {{path = "{name}.gs"}}'
        for name in ("news", "forum")
    )
    task("pairs", "sts", splits(test=50) + local("semeval", "", {"test": ", ".join(parts)}))
    three = {"train": 40, "validation": 24, "test": 30}
    columns = "sentence1 = 0, sentence2 = 1, gold = 2"
    files = {name: pairs(f"related-{name}", n) for name, n in three.items()}
    task("related", "relatedness", splits(**three) + local("pair_table", columns, files))
    columns = 'sentence = 0, label = 1, classes = ["0", "1", "2"]'
    files = {
        name: labelled(f"topics-{name}", n, 3) for name, n in {"train": 60, "test": 70}.items()
    }
    task("topics", "probe", splits(train=60, test=70) + local("labelled_table", columns, files))
    columns, files = (
        'sentence = 0, label = 1, classes = ["0", "1"]',
        {"all": labelled("reviews", 502, 2)},
    )
    whole = 'score_split = "all"\n' + splits(all=502)
    task("reviews", "probe", whole + local("labelled_table", columns, files))
    files = {name: captions(f"images-{name}", 40) for name in three}
    task(
        "images",
        "retrieval",
        splits(train=200, validation=200, test=200) + local("captions", "", files),
    )


OPTIONS = ("--cards", "cards", "--data", "data")


def run(kind: Kind, *options: str) -> tuple[str | Path, ...]:
    return (
        "run",
        *BOTH,
        "--tasks",
        kind.task,
        "--protocol",
        kind.protocol,
        *OPTIONS,
        "--no-store",
        *options,
    )


@pytest.fixture(scope="module")
def scored(own: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with cards, data and the results of two encoders on every task."""
    from stsbench.cli.main import main

    folder = tmp_path_factory.mktemp("scored")
    write(folder / "data" / "mine" / "readme", "")
    write_tasks(folder / "cards", folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in KINDS.values():
            assert main([str(word) for word in run(kind)]) == 0
    yield folder


@pytest.fixture
def world(stsbench: Command, scored: Path) -> Path:
    shutil.copytree(scored, ".", dirs_exist_ok=True)
    return Path()


def is_of(kind: Kind, path: Path) -> bool:
    result = read_result(path)
    return (result.task, result.protocol["name"]) == (kind.task, kind.protocol.partition("(")[0])


def path_of(kind: Kind) -> Path:
    """The file of the first encoder's result of this kind."""
    (path,) = (path for path in Path("results/hashed").glob("*.json") if is_of(kind, path))
    return path


def move_score(kind: Kind) -> tuple[Path, Result]:
    """Move a score away from its interval's nearer end, and make the digest again; returns what was there before."""
    path = path_of(kind)
    before = read_result(path)
    low, high = before.interval
    moved = before.score + (kind.moved if high - before.score > before.score - low else -kind.moved)
    assert low < moved < high
    resealed(score=moved, scores={score_name(before.protocol): moved})(path)
    assert read_result(path).score == moved, "the file is whole"
    return path, before


def only(kind: Kind) -> None:
    """Leave the results of one kind alone."""
    for path in Path("results").glob("*/*.json"):
        if not is_of(kind, path):
            path.unlink()
            items_path(path).unlink()


def readers(kind: Kind) -> dict[str, tuple[str | Path, ...]]:
    """The commands that read results for their scores; each is left with nothing where the first encoder's is refused."""
    cards = ("--cards", "cards")
    added = ("leaderboard", "--table", "own.toml", "--add", "hashed:Ours", *cards)
    return {
        "leaderboard": ("leaderboard", "--suite", kind.task, "-e", "hashed", *cards),
        **({"added": added} if kind.task == "pairs" else {}),
        "compare": ("compare", "hashed", "hashed+size=16", *cards),
        "export": ("export", "--format", "model-index", "-e", "hashed", *cards),
        "lock": ("lock", "--out", "new.json", *cards),
        "check": ("check", "results", "--against", "good", *cards),
        "check the old": ("check", "good", "--against", "results", *cards),
        "check published": ("check", "results", "--against", "published", *cards),
        "verify": ("verify", *cards),
    }


def said(path: Path, text: str) -> bool:
    """Whether a text names the file and its score."""
    return path.stem in text and "field 'score': " in text


@OF_KIND
def test_a_moved_score_is_refused_wherever_results_are_read(
    stsbench: Command, world: Path, kind: Kind
):
    only(kind)
    protocol = json.dumps(read_result(path_of(kind)).protocol["name"])
    write(
        Path("own.toml"),
        f'title = "x"\nprotocol = {protocol}\ncolumns = ["{kind.task}"]\n[board]\n',
    )
    shutil.copytree("results", "good")
    for name, words in readers(kind).items():
        code, out, err = stsbench(*words)
        assert code == 0 or name == "check published", (name, out, err)
    path, before = move_score(kind)
    for name, words in readers(kind).items():
        code, out, err = stsbench(*words)
        assert code == 2 and said(path, out + err), (name, out, err)
    catalogue = Catalogue([Path("cards")])
    for call in (
        package.read_results,
        partial(package.compare, "hashed", "hashed+size=16"),
        partial(package.leaderboard, "results", suite=kind.task),
    ):
        with pytest.raises(package.StsbenchError, match="field 'score': "):
            call(catalogue=catalogue)
    code, out, err = stsbench(*run(kind, "--json"))
    assert code == 0 and err.startswith("stsbench: scored again: ") and said(path, err)
    assert json.loads(out)["results"][0]["score"] == before.score == read_result(path).score
    # What it scored again it believes from then on, as what it had left.
    assert stsbench.fine(*run(kind)) and "2 of 2 cells known" in stsbench.progress[0]


@OF_KIND
def test_a_row_of_a_lock_is_held_to_the_data_of_the_other_side(
    stsbench: Command, world: Path, kind: Kind
):
    only(kind)
    cards = ("--cards", "cards")
    stsbench.fine("lock", "--out", "lock.json", *cards)
    assert "2 fine" in stsbench.fine(
        "check", "results", "--against", "lock.json", "--strict", *cards
    )
    first, *others = sorted(read_lock(Path("lock.json")), key=lambda row: row.encoder)
    for sign in (1, -1):
        moved = msgspec.structs.replace(first, score=first.score + sign * kind.moved)
        Path("moved.json").write_bytes(to_lock([moved, *others]))
        found = stsbench("check", "results", "--against", "moved.json", "--json", *cards)
        (verdict,) = (
            one for one in json.loads(found.out)["verdicts"] if one["encoder"] == "hashed"
        )
        assert found.code == 2 and verdict["outcome"] == "unreadable", verdict
        assert verdict["reason"].startswith("old results: field 'score': ")
    # On the new side too; where neither side has data, nothing can be looked at.
    assert stsbench("check", "moved.json", "--against", "results", *cards).code == 2
    alone = stsbench("check", "lock.json", "--against", "lock.json", *cards)
    assert alone.code == 0 and "2 cells: 2 fine; 2 not verified" in alone.out
    assert stsbench("check", "lock.json", "--against", "lock.json", "--strict", *cards).code == 2

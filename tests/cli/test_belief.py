"""A score that its items do not make is refused by every command that reads results, with a right digest too."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

import stsbench as package
from stsbench.check.lock import read_lock, to_lock
from stsbench.core.catalogue import Catalogue
from stsbench.evaluators.base import ItemColumns, Scores
from stsbench.evaluators.sts import StsEvaluator
from stsbench.results.folder import read_result, write_result
from stsbench.results.record import Result, digest_fields, items_path, score_name
from tests.cli.commands import HEAD, Command, write
from tests.forgeries import resealed
from tests.made import read_items

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
    "contrast set": Kind("triplets", "contrast", 0.02),
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
    rows = [(sentence(i, i), sentence(i, i + 2), sentence(i + i % 2, i)) for i in range(60)]
    write(data / "mine" / "triplets", "".join("\t".join(row) + "\n" for row in rows))
    columns = "anchor = 0, positive = 1, negatives = [2]"
    files = {"test": '{path = "triplets"}'}
    task("triplets", "contrast", splits(test=60) + local("contrast_table", columns, files))


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
    assert alone.code == 0 and "; 2 not verified" in alone.out
    assert stsbench("check", "lock.json", "--against", "lock.json", "--strict", *cards).code == 2


# Results without items, and intervals of earlier versions.

SPEARMAN = KINDS["Spearman"]
NO_ITEMS = "each because its per-item columns are not here"


@pytest.fixture
def without_items(world: Path) -> None:
    """Leave results of one kind alone, the first encoder's without its items."""
    only(SPEARMAN)
    items_path(path_of(SPEARMAN)).unlink()


@pytest.mark.usefixtures("without_items")
def test_results_without_items_are_marked_in_one_line_by_what_reads_them(stsbench: Command):
    cards = ("--cards", "cards")
    marked = f"stsbench: not verified: 1 of 2 results, {NO_ITEMS}\n"
    assert "hashed" in stsbench.fine("leaderboard", "--suite", "pairs", *cards)
    assert stsbench.unverified == [marked]
    assert stsbench("compare", "hashed", "hashed+size=16", *cards).code == 2
    assert stsbench.unverified == [marked]
    stsbench.fine("export", "--format", "model-index", "-e", "hashed", *cards)
    assert stsbench.unverified == [marked.replace("1 of 2", "1 of 1")]
    with pytest.warns(UserWarning, match=f": 1 of 2 results, {NO_ITEMS}"):
        assert len(package.read_results(catalogue=Catalogue([Path("cards")]))) == 2


@pytest.mark.usefixtures("world")
def test_what_reads_results_without_their_card_names_the_option_that_helps(stsbench: Command):
    only(SPEARMAN)
    reason = (
        "each because no folder of cards holds the card of its task; your own need --cards DIR\n"
    )
    stsbench.fine("compare", "hashed", "hashed+size=16")
    assert stsbench.unverified == [f"stsbench: not verified: 2 of 2 results, {reason}"]
    stsbench.fine("export", "--format", "model-index", "-e", "hashed")
    assert stsbench.unverified == [f"stsbench: not verified: 1 of 1 results, {reason}"]
    report = ("report", "-e", "own_encoders:Hashed", "--suite", "quickstart")
    stsbench(*report, "--figures", "spectrum", "--out", "report.html")
    assert stsbench.unverified == [f"stsbench: not verified: 1 of 1 results, {reason}"]
    assert reason.strip() in Path("report.html").read_text()
    with pytest.warns(UserWarning, match=r"own need `catalogue=stsbench.Catalogue\(DIR\)`$"):
        package.compare("hashed", "hashed+size=16")


@pytest.mark.usefixtures("without_items")
def test_lock_and_check_say_what_is_not_verified_and_refuse_it_where_they_must(stsbench: Command):
    cards = ("--cards", "cards")
    assert stsbench.fine("lock", *cards).endswith(
        f"are missing; not verified: 1 of 2 results, {NO_ITEMS}\n"
    )
    # Its task is the user's own.
    without_cards = stsbench.fine("lock", "--out", "bare.json")
    assert without_cards.endswith(
        f"; not verified: 1 of 2 results, {NO_ITEMS}; 1 of 2 results, each because no folder of "
        "cards holds the card of its task; your own need --cards DIR\n"
    )
    assert "card of its task; your own need --cards DIR\n" in stsbench.fine(
        "check", "results", "--against", "bare.json"
    )
    assert stsbench.json("lock", "--out", "other.json", *cards)["not_verified"] == 1
    refusal = stsbench.refused("lock", "--strict", "--out", "strict.json", *cards)
    assert refusal == f"results: not verified: 1 of 2 results, {NO_ITEMS}; nothing is locked"
    assert not Path("strict.json").exists()
    lines = stsbench.fine("check", "results", "--against", "scores.lock.json", *cards).splitlines()
    # The row of a result without items holds no values of it.
    assert lines[-2:] == [
        "not verified: 1 cell: new: its per-item columns are not here; old: the lock holds no per-item values of it",
        "2 cells: 2 fine; 1 not verified; scores are times 100",
    ]
    check = ("check", "results", "--against", "scores.lock.json", "--strict", *cards)
    code, out, _ = stsbench(*check, "--junit", "junit.xml", "--summary", "summary.md")
    assert code == 2 and ": 1 not verified, 1 fine; " in out
    assert Path("junit.xml").read_text().count("<error ") == 1
    assert "**not verified**: new: its per-item columns" in Path("summary.md").read_text()
    found = json.loads(stsbench(*check, "--json").out)
    assert found["exit"] == 2 and [one["outcome"] for one in found["verdicts"]] == [
        "not verified",
        "fine",
    ]
    # A fall stays a regression.
    row, other = sorted(read_lock(Path("scores.lock.json")), key=lambda one: one.encoder)
    better = msgspec.structs.replace(row, score=row.score + 0.01)
    Path("scores.lock.json").write_bytes(to_lock([better, other]))
    assert stsbench(*check).code == 1


@pytest.mark.usefixtures("without_items")
def test_run_scores_what_has_no_items_again(stsbench: Command):
    before = read_result(path_of(SPEARMAN))
    code, out, err = stsbench(*run(SPEARMAN, "--json"))
    told = "scored again: no per-item columns of hashed on pairs, and no score is believed without"
    assert code == 0 and err.startswith(f"stsbench: {told}\n")
    assert json.loads(out)["results"][0]["score"] == before.score
    assert items_path(path_of(SPEARMAN)).exists() and stsbench.fine(*run(SPEARMAN))


@pytest.mark.usefixtures("without_items")
def test_a_score_outside_its_own_interval_needs_no_items_to_be_refused(stsbench: Command):
    path = path_of(SPEARMAN)
    resealed(score=0.9, scores={"spearman.all": 0.9})(path)
    code, _, err = stsbench("leaderboard", "--suite", "pairs", "-e", "hashed", "--cards", "cards")
    assert code == 2 and path.stem in err and "does not hold the score 0.9" in err


def test_an_interval_of_an_earlier_version_is_no_failure(stsbench: Command, world: Path):
    only(SPEARMAN)
    path, cards = path_of(SPEARMAN), ("--cards", "cards")
    score = read_result(path).score
    method = "percentile bootstrap over pairs, 1000 resamples"
    resealed(interval=[score - 0.3, score + 0.3], interval_method=method)(path)
    before = path.read_bytes()
    stsbench.fine("leaderboard", "--suite", "pairs", *cards)
    stsbench.fine("lock", "--strict", *cards)
    stsbench.fine("check", "results", "--against", "scores.lock.json", "--strict", *cards)
    assert "1 verified, 1 not verified" in stsbench.fine("verify", *cards)
    assert stsbench.fine(*run(SPEARMAN)) and not stsbench.unverified
    assert path.read_bytes() == before, "its label stays"


# What is remembered.


def test_a_verdict_is_kept_by_the_bytes_of_both_files(
    stsbench: Command, world: Path, monkeypatch: pytest.MonkeyPatch
):
    only(SPEARMAN)
    calls = list[str]()
    recompute = StsEvaluator.recompute

    def counted(self: StsEvaluator, items: ItemColumns) -> Scores:
        calls.append(self.protocol.name)
        return recompute(self, items)

    monkeypatch.setattr(StsEvaluator, "recompute", counted)
    board = ("leaderboard", "--suite", "pairs", "--cards", "cards")

    def times() -> int:
        calls.clear()
        stsbench.fine(*board)
        return len(calls)

    assert [times(), times()] == [2, 0]
    path = path_of(SPEARMAN)
    # The same columns in other bytes, and the same fields in other bytes.
    columns = parquet.read_table(items_path(path))
    parquet.write_table(columns, items_path(path), compression="none")
    assert [times(), times()] == [1, 0]
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert [times(), times()] == [1, 0]
    # With the time and the size of before it is looked at all the same.
    stat, content = path.stat(), path.read_text()
    score = str(read_result(path).score)
    forged = content.replace(score, score[:5] + ("1" if score[5] != "1" else "2") + score[6:])
    path.write_text(forged)
    fields = {key: value for key, value in json.loads(forged).items() if key != "digest"}
    path.write_text(forged.replace(json.loads(forged)["digest"], digest_fields(fields)))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    for _ in range(2):
        assert "field 'score': " in stsbench(*board).err


def test_a_forged_score_is_in_no_report_and_no_figure(stsbench: Command, world: Path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    only(SPEARMAN)
    path, before = move_score(SPEARMAN)
    options = ("--tasks", "pairs", *OPTIONS, "--no-store")
    report = ("report", *BOTH, *options, "--suite", "pairs", "--figures", "similarity")
    code, _, err = stsbench(*report)
    page = Path("report.html").read_text()
    assert code == 0 and said(path, err) and "field &#x27;score&#x27;: " in page
    moved = read_result(path).score
    assert f"{100 * moved:.2f}" not in page
    # The figure measures anew, and so has the true score; no board has it.
    assert page.count(f"{100 * before.score:.2f}") == 1


OWN_EVALUATOR = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stsbench.evaluators.base import Scores


@dataclass(frozen=True)
class Protocol:
    name: str = "lengths"


class Lengths:
    """The share of pairs whose sides are of one length; nothing makes it again."""

    PROTOCOLS: ClassVar[dict] = {"lengths": Protocol()}
    ONE_SPLIT: ClassVar[bool] = True

    def __init__(self, protocol):
        self.protocol = protocol

    def __call__(self, splits, embed, *, seed):
        (split,) = splits.values()
        same = np.array([len(a) == len(b) for a, b in zip(*split.sides)])
        return Scores(
            score=float(same.mean()), scores={"accuracy": float(same.mean())}, interval=(0.0, 1.0),
            interval_method="none", per_item={"same": same}, n=split.n,
        )
'''


def test_an_evaluator_that_cannot_make_scores_again_is_marked_and_its_results_are_reused(
    stsbench: Command, world: Path, own: Path
):
    write(own / "own_lengths.py", OWN_EVALUATOR)
    card = Path("cards/tasks/pairs.toml")
    write(card, card.read_text().replace('"sts"', '"own_lengths:Lengths"'))
    shutil.rmtree("results")
    command = run(Kind("pairs", "lengths"))
    stsbench.fine(*command)
    stsbench.fine(*command)
    assert "2 of 2 cells known" in stsbench.progress[0]
    stsbench.fine("leaderboard", "--suite", "pairs", "--cards", "cards")
    reason = "each because its evaluator cannot make scores again from items"
    assert stsbench.unverified == [f"stsbench: not verified: 2 of 2 results, {reason}\n"]
    # Its columns are looked at all the same.
    items_path(next(Path("results/hashed").glob("*.json"))).write_bytes(b"cut")
    code, _, err = stsbench(*command)
    assert code == 0 and err.startswith("stsbench: scored again: ") and "cannot be read" in err


def test_a_forged_score_is_in_no_sweep(stsbench: Command, world: Path):
    held = path_of(SPEARMAN)
    columns = read_items(held)
    result = msgspec.structs.replace(
        read_result(held), encoder="simcse-small+temperature=0.1", per_item=columns, path=None
    )
    path = write_result(result, Path("results"))
    sweep = ("analyze", "sweep", "-e", "simcse-small", "--tasks", "pairs", "--cards", "cards")
    (point,) = stsbench.json(*sweep)["tables"]["points"]
    assert (point["key"], point["value"]) == ("temperature", 0.1)
    assert point["score"] == result.score
    moved = result.score + 0.001
    resealed(score=moved, scores={"spearman.all": moved})(path)
    code, out, err = stsbench(*sweep, "--json")
    assert (code, out) == (2, "") and said(path, err)
    assert "'simcse-small'" in err.splitlines()[-1]

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stsbench.cli.main import main
from stsbench.core.catalogue import Catalogue
from stsbench.encoders.load import load_named
from stsbench.encoders.runs import STATE_FILE, read_trained_runs
from stsbench.recipes.trainers import make_training
from stsbench.training.learner import TrainingProgress
from stsbench.training.methods.registry import METHODS, METHODS_BY_TRAINER
from tests.encoders.words.word_encoders import COMMON, write_vectors
from tests.hub_server import unplug
from tests.training.words.ordered_text import STORY

CARD = """\
name = "FastSent, tiny"
method = "fastsent"
paper = "Hill et al. 2016"
preset = "our own"
supervision = "none"
backbone = "FastSent"

[base]

[data]
corpus = "{corpus}"

[training]
batch_size = 40
learning_rate = 0.1
epochs = 3

[params]
size = 8
min_count = 1
{params}
[selection]
task = "quickstart-en"
split = "test"
{selection}"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    return write(tmp_path)


def write(folder: Path, *, params: str = "", selection: str = "", method: str = "fastsent") -> Path:
    (folder / "text.txt").write_text("\n".join(STORY["text"]) + "\n", encoding="utf-8")
    path = folder / "tiny.toml"
    text = CARD.format(corpus=folder / "text.txt", params=params, selection=selection)
    path.write_text(text.replace('"fastsent"', f'"{method}"'), encoding="utf-8")
    return path


def train(recipe: Path, *more: str) -> int:
    return main(["train", str(recipe), "--out", str(recipe.parent / "runs"), *more])


def test_a_recipe_of_a_method_of_its_own_is_trained_and_scored(recipe, monkeypatch, capsys):
    assert train(recipe, "--seeds", "1,2") == 0
    shown = capsys.readouterr().out
    assert "mean" in shown and "at start" in shown
    monkeypatch.setenv("STSBENCH_RUNS", str(recipe.parent / "runs"))
    runs = read_trained_runs("tiny", recipe.parent / "runs")
    assert [run.seed for run in runs] == [1, 2]
    facts = runs[0].record
    untrained, *curve = facts["curve"]
    assert untrained["step"] == 0 and untrained["score"] != curve[0]["score"]
    assert [point["step"] for point in curve] == [3, 6, 9]
    assert facts["chosen"]["score"] == max(point["score"] for point in curve)
    assert facts["corpus"]["rows"] == 120
    known = load_named(str(runs[0].folder))
    assert known.encoder.encode(["the cat sleeps here"]).shape == (1, 8)
    out = str(recipe.parent / "results")
    assert (
        main(
            ["run", "--encoder", str(runs[0].folder), "--tasks", "quickstart-en", "--results", out]
        )
        == 0
    )


def test_without_selection_the_last_weights_are_kept(tmp_path):
    assert train(write(tmp_path, selection='keep = "last"\n')) == 0
    (run,) = read_trained_runs("tiny", tmp_path / "runs")
    assert run.record["chosen"] is None
    assert [point["score"] for point in run.record["curve"]] == [None] * 3


@pytest.mark.parametrize(
    ("params", "selection", "method", "message"),
    [
        ("sise = 3\n", "", "fastsent", "unknown key 'sise'; did you mean 'size'"),
        (
            "",
            "patience = 3\n",
            "fastsent",
            "[selection] patience is not an option of a method that trains itself",
        ),
        ("", "", "skip_thoughts", "unknown key 'size'"),
        ("", "", "infersent", "unknown key 'size'"),
    ],
)
def test_values_that_would_do_nothing_are_refused(
    tmp_path, capsys, params, selection, method, message
):
    assert train(write(tmp_path, params=params, selection=selection, method=method)) == 2
    assert message in capsys.readouterr().err


def test_other_tables_are_refused(recipe, capsys):
    for assign, message in (
        ("training.clip=3.0", "[training] clip is not an option of a method that trains itself"),
        ("student.pooling=max", "[student] pooling is not an option"),
        ("size=0", "key 'size': expected a whole number >= 1, not 0"),
        ("sample=-0.1", "key 'sample': expected a number >= 0.0, not -0.1"),
        ("params.batch_size=0", "key 'batch_size': expected a whole number >= 1, not 0"),
        ("params.epochs=-3", "key 'epochs': expected a whole number >= 1, not -3"),
        ("base.model=bert", "[base] model is not an option"),
        ("training.steps=3", "[training] steps is not an option of method 'fastsent'"),
        ("training.epochs=2.5", "[training] epochs 2.5: method 'fastsent' needs a whole number"),
        ("selection.every=10", "[selection] every is not an option of method 'fastsent'"),
    ):
        assert train(recipe, "--set", assign) == 2
        assert message in capsys.readouterr().err


def test_a_dry_run_reckons_and_writes_nothing(recipe, capsys):
    assert train(recipe, "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["rows"], found["steps"], found["validations"]) == (120, 9, 4)
    assert found["trained_parameters"] == 2 * 8 * len(
        {w for text in STORY["text"] for w in text.split()}
    )
    assert found["seconds"] is None
    assert not (recipe.parent / "runs").exists()
    assert train(recipe, "--dry-run", "--set", "params.batch_size=7") == 0
    assert "steps        54 of 7 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("removed", "params", "selection", "outline"),
    [
        ("", "", "", "length 3 epochs of 40 rows rate 0.1 validations every epoch on quick"),
        ("epochs = 3", "", "", "length 1 epoch of 40 rows"),
        ("", "batch_size = 7\nepochs = 2\n", "", "length 2 epochs of 7 rows"),
        ("", "", 'keep = "last"\n', "rate 0.1 stsbench: missing"),
    ],
)
def test_without_its_corpus_a_dry_run_tells_what_the_method_does(
    tmp_path, capsys, removed, params, selection, outline
):
    recipe = write(tmp_path, params=params, selection=selection)
    recipe.write_text(recipe.read_text().replace(removed, ""))
    (tmp_path / "text.txt").unlink()
    assert train(recipe, "--dry-run") == 2
    assert outline in " ".join("".join(capsys.readouterr()).split())


def test_without_its_corpus_a_dry_run_tells_steps_and_their_validations(
    capsys, tmp_path, monkeypatch
):
    unplug(monkeypatch)
    call = ["train", "skip-thoughts-small", "--dry-run", "--text", str(tmp_path / "none.txt")]
    assert main(call) == 2
    outline = " ".join(capsys.readouterr().out.split())
    assert "length at most 4,200 steps of 32 rows" in outline
    assert "validations every 300 steps on stsb validation" in outline


def test_a_stopped_run_is_resumed_to_the_same_bytes(tmp_path, monkeypatch, capsys):
    recipe = write(tmp_path)
    assert train(recipe, "--seeds", "1") == 0
    (whole,) = read_trained_runs("tiny", tmp_path / "runs")
    weights, curve = (whole.folder / "model.safetensors").read_bytes(), whole.record["curve"]

    def press(**seen: Any) -> TrainingProgress:
        if seen["score"] is not None:
            raise KeyboardInterrupt
        return TrainingProgress(**seen)

    monkeypatch.setattr("stsbench.training.words.rounds.TrainingProgress", press)
    assert train(recipe, "--seeds", "1", "--fresh") == 130
    assert "again without --fresh" in capsys.readouterr().err
    monkeypatch.undo()
    assert (whole.folder / STATE_FILE).is_file() and not read_trained_runs(
        "tiny", tmp_path / "runs"
    )
    assert train(recipe, "--seeds", "1") == 0
    (resumed,) = read_trained_runs("tiny", tmp_path / "runs")
    assert resumed.record["curve"] == curve
    assert (whole.folder / "model.safetensors").read_bytes() == weights
    assert not (whole.folder / STATE_FILE).exists()


def test_a_line_says_the_score_of_the_weights_that_are_kept(tmp_path, monkeypatch, capsys):
    words = [line.split()[0] for line in COMMON.splitlines()]
    rows = [
        f"{words[i % 7]} {words[i % 5]},{words[i % 3]},{'yes' if i % 2 else 'no'}"
        for i in range(20)
    ]
    (tmp_path / "pairs.csv").write_text("\n".join(["first,second,label", *rows]))
    vectors = write_vectors(tmp_path / "vectors.txt", 1)
    recipe = write(
        tmp_path, method="infersent", params=f'vectors = "{vectors}"\nhidden = 2\nhead_size = 3'
    )
    text = (
        recipe.read_text().replace("size = 8\nmin_count = 1\n", "").replace("text.txt", "pairs.csv")
    )
    recipe.write_text(text)
    accuracies = iter([0.4, 0.5, 0.9])
    monkeypatch.setattr("stsbench.training.words.infersent.accuracy", lambda *_: next(accuracies))
    assert train(recipe) == 0
    said = capsys.readouterr().err
    # InferSent keeps the best accuracy, here the last, though the first weights have the best development score.
    first, second, third = (float(score) for score in re.findall(r"dev (-?[0-9.]+)", said))
    assert max(second, third) < first
    assert [line.partition(", dev ")[2].partition(", about")[0] for line in said.splitlines()] == [
        f"{first:.2f} (best {first:.2f})",
        f"{second:.2f} (best {first:.2f}, kept {second:.2f})",
        f"{third:.2f} (best {first:.2f}, kept {third:.2f})",
    ]


def test_a_corpus_without_its_columns_is_one_line(tmp_path, capsys):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive\na,b\nc,d\n")
    assert train(write(tmp_path), "--text", str(pairs)) == 2
    assert "(has anchor, positive)" in capsys.readouterr().err


def test_show_names_what_the_method_takes_and_nothing_else(capsys):
    assert main(["show", "infersent-small", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["training"] == {"batch_size": 32, "learning_rate": 0.3, "epochs": 3}
    assert facts["selection"] == {"task": "stsb", "split": "validation", "keep": "best"}
    # The clip is InferSent's own, not the common loop's 1.
    assert (facts["params"]["clip"], facts["params"]["decay"]) == (5.0, 0.99)
    assert "student" not in facts
    assert main(["show", "skip-thoughts-uni", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)["recipe"]
    assert facts["selection"]["every"] == Catalogue().recipe("skip-thoughts-uni").selection.every
    assert facts["params"]["vocabulary"] == 20000


def test_every_recipe_of_these_methods_fits_its_method():
    catalogue = Catalogue()
    found = 0
    for name in catalogue.paths("trainers"):
        card = catalogue.recipe(name)
        if card.method in METHODS_BY_TRAINER["rounds"]:
            training = make_training(name, card, METHODS.load(card.method))
            assert json.dumps(sorted(training.needs))
            found += 1
    assert found >= 8

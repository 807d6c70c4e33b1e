"""``stsbench train``: from a recipe to a scored encoder, and every mistake in one line."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from stsbench.encoders.runs import read_trained_runs
from stsbench.encoders.transformer.cpu_kernels import SUPPORTED_TYPES
from stsbench.encoders.transformer.pooling import LIBRARY_POOLINGS, POOLINGS, MaxPooling
from stsbench.training.learner import Learner
from tests.training.students import sentences


def test_a_recipe_is_trained_and_its_name_is_an_encoder(stsbench, cards, little):
    out = stsbench.fine(*little, "--seeds", "1,2")
    assert "mean " in out and " ± " in out and "stsbench run little" in out
    # The last line is to be copied, and has paths in it.
    assert max(map(len, out.splitlines()[:-1])) <= 80
    facts = json.loads(Path("runs/little/seed1/run.json").read_text())
    assert facts["steps"] == 12 and [point["step"] for point in facts["curve"]] == [4, 8, 12]
    assert facts["corpus"]["rows"] == 60 and len(facts["corpus"]["sha256"]) == 64
    assert facts["overlap"]["quickstart-en"] == "unknown"  # whatever the base was trained on
    assert not Path("runs/little/seed1/checkpoints").exists()
    results = stsbench.json(
        "run", "--encoder", "little", "--tasks", "quickstart-en", "--cards", cards
    )["results"]
    assert [result["train_seed"] for result in results] == [1, 2]
    assert {result["encoder"] for result in results} == {"little"}
    chosen = [
        json.loads(Path(f"runs/little/seed{seed}/run.json").read_text())["chosen"]["score"]
        for seed in (1, 2)
    ]
    # Unknown words make near ties, which two ways to multiply break differently.
    assert [result["score"] for result in results] == pytest.approx(chosen, abs=5e-3)
    board = stsbench(
        "leaderboard", "--suite", "quickstart", "--cards", cards, "--format", "markdown"
    )
    assert "| little |" in board.out and "±" in board.out
    one = stsbench.json(
        "run", "--encoder", "little@2", "--tasks", "quickstart-en", "--cards", cards, "--fresh"
    )
    assert [result["train_seed"] for result in one["results"]] == [2]


@pytest.mark.parametrize("is_supported", [True, False])
def test_slow_bfloat16_is_a_notice(stsbench, little, monkeypatch, is_supported):
    monkeypatch.setitem(SUPPORTED_TYPES, torch.bfloat16, lambda: is_supported)
    done = stsbench(*little, "--set", "steps=1", "--set", "precision=bfloat16")
    assert done.code == 0, done.err
    assert ("--set precision=float32 is several times as fast" in done.err) is not is_supported


def test_seeds_that_draw_rows_of_their_own_are_seeds_of_one_recipe(stsbench, cards, little):
    stsbench.fine(
        *little, "--seeds", "1,2", "--set", "steps=4", "--set", "rows=40", "--name", "few"
    )
    texts = [
        json.loads(Path(f"runs/few/seed{seed}/run.json").read_text())["corpus"] for seed in (1, 2)
    ]
    assert texts[0]["sha256"] != texts[1]["sha256"]
    assert texts[0]["drawn_from"] == texts[1]["drawn_from"]
    out = stsbench.fine("run", "few", "--tasks", "quickstart-en", "--cards", cards)
    # One row with a deviation over both seeds.
    assert out.count("±") >= 1 and "few(1)" not in out and "few(2)" not in out
    results = stsbench.json("run", "few", "--tasks", "quickstart-en", "--cards", cards)["results"]
    assert len({result["encoder_card"] for result in results}) == 1 and len(results) == 2
    run_2_again = (*little, "--seeds", "2", "--set", "steps=4", "--set", "rows=40", "--name", "few")
    stsbench.fine(*run_2_again, "--set", "learning_rate=1e-2", "--fresh")
    plan = stsbench.fine("run", "few", "--tasks", "quickstart-en", "--cards", cards, "--dry-run")
    assert re.search(r"^few@1 +quickstart-en +simcse +seed 0 *$", plan, re.M)
    assert re.search(r"^few@2 +quickstart-en +simcse +seed 0 *\n", plan, re.M)
    assert re.search(r"^few@2 +\d+ ", plan, re.M)


def test_the_recipe_s_own_text_is_no_other_recipe(stsbench, cards, masked_lm):
    train = ("train", "little", "--base", masked_lm, "--cards", cards, "--dry-run")
    assert stsbench.json(*train, "--text", "./text.txt")["recipe"] == "little"
    assert stsbench.json(*train, "--text", cards / "../text.txt")["recipe"] != "little"


def test_a_run_has_a_name_of_its_own(stsbench, cards, little):
    call = (*little, "--set", "steps=4")
    out = stsbench.fine(*call, "--name", "ours")
    assert out.splitlines()[-1].endswith(f": stsbench run ours --tasks quickstart --cards {cards}")
    assert json.loads(Path("runs/ours/seed0/run.json").read_text())["recipe"] == "ours"
    scored = stsbench.json("run", "ours", "--tasks", "quickstart-en", "--cards", cards)
    assert [result["encoder"] for result in scored["results"]] == ["ours"]
    # Its name is known by the results alone, and still is an encoder.
    assert stsbench.json("run", "ours", "--tasks", "quickstart-en", "--cards", cards) == scored
    assert "name of a card or recipe" in stsbench.refused(*call, "--name", "little")


def test_what_was_seen_of_the_tests_shows_everywhere(stsbench, cards, little):
    from stsbench.data.task import load_task

    texts = [*sentences(40), *load_task("quickstart-en").texts()[:3]]
    Path("text.txt").write_text("\n".join(texts) + "\n")
    done = stsbench(*little, "--seeds", "1,2", "--set", "steps=2")
    (head, _, first, second, *_) = done.out.splitlines()
    assert (
        head.endswith("test sentences seen") and first.split()[-1] == second.split()[-1] == "text"
    )
    name = "little+steps=2"
    shown = stsbench.fine("show", name, "--cards", cards)
    assert (
        "text of quickstart-en" in " ".join(shown.split()) and "runs/little+steps=2/seed2" in shown
    )
    assert stsbench("show", name, "--cards", cards, "--json").out.count('"steps": 2') == 1
    done = stsbench("run", "-e", name, "-t", "quickstart-en", "--cards", cards)
    assert "quickstart-en §" in done.out and "§ trained or fitted" in done.out
    assert "±: deviation over" in done.out and "seeds 1, 2" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    board = stsbench("leaderboard", "--suite", "quickstart", "--cards", cards)
    assert "§ trained or fitted" in board.out
    folder = stsbench.json(
        "run", "-e", f"runs/{name}/seed1", "-t", "quickstart-en", "--cards", cards
    )
    assert [(one["overlap"], one["train_seed"]) for one in folder["results"]] == [("text", None)]


def test_the_command_that_a_dry_run_prints_times_the_same_training(stsbench, little):
    Path("other.txt").write_text("\n".join(sentences(40)))
    replaced = ("--set", "batch_size=4", "--text", "other.txt")
    shown = " ".join(stsbench.fine(*little, *replaced, "--dry-run").split())
    (command,) = re.findall("'stsbench (timing .*)' measures some steps", shown)
    timed = " ".join(stsbench.fine(*shlex.split(command), "--rounds", "1").split())
    training = "12 steps of 4 rows of other.txt and 3 validations, from 10 steps taken"
    assert f"estimated for {training}" in timed and "Seconds on quickstart-en" in timed


def test_a_dry_run_counts_and_trains_and_writes_nothing(stsbench, little, monkeypatch):
    with monkeypatch.context() as untrained:
        untrained.setattr(Learner, "__call__", None)
        forecast = stsbench.json(*little, "--dry-run")
        assert stsbench.json(*little, "--dry-run", "--seeds", "0,0")["seeds"] == [0]
        shown = stsbench(*little, "--dry-run")
    assert (forecast["steps"], forecast["rows"], forecast["validations"]) == (12, 60, 3)
    assert forecast["parameters"] == 8032 and forecast["seconds"] is None
    assert not Path("runs").exists()
    assert "12 of 8 rows" in shown.out and max(map(len, shown.out.splitlines())) <= 80
    words = " ".join(shown.out.split())
    timing = f"stsbench timing --recipe little --base {little[-1]} --cards {little[3]} --steps 10"
    assert f"time unknown; '{timing}' measures some steps" in words
    stsbench.fine(*little, "--seeds", "3")
    assert 0 < stsbench.json(*little, "--dry-run")["seconds"] < 600
    assert "time         about " in stsbench.fine(*little, "--dry-run")


def test_a_dry_run_without_its_material_tells_the_plan_and_what_is_missing(
    stsbench, cards, masked_lm
):
    call = (
        "train",
        "little",
        "--cards",
        cards,
        "--dry-run",
        "--text",
        "wiki1m",
        "--corpora",
        "nowhere",
    )
    done = stsbench(*call)
    assert done.code == 2 and not Path("runs").exists()
    shown = " ".join(done.out.split())
    assert "corpus wiki1m, 1,000,000 rows" in shown and "length 12 steps of 8 rows" in shown
    assert "validations every 4 steps on quickstart-en test" in shown and "method simcse" in shown
    text, start = done.err.splitlines()
    assert text.startswith("stsbench: missing: ") and "nowhere" in text
    assert "missing: " in start and "pass --base FOLDER (any masked language model)" in start
    done = stsbench(*call, "--base", masked_lm, "--set", "epochs=2", "--seeds", "1,2", "--json")
    facts = json.loads(done.out)
    assert done.code == 2 and list(facts["missing"]) == ["text"] and facts["seeds"] == [1, 2]
    assert facts["length"] == "2 epochs, 250,000 steps of 8 rows" and facts["start"] == str(
        masked_lm
    )
    # A mistake is no missing material.
    refused = stsbench(*call, "--set", "temprature=1")
    assert (refused.code, refused.out) == (2, "") and "mean 'temperature'" in refused.err


def test_a_dry_run_refuses_a_pooling_that_cannot_be_saved(stsbench, little, monkeypatch):
    from sentence_transformers.sentence_transformer.modules import Pooling

    assert LIBRARY_POOLINGS == Pooling.POOLING_MODES
    dry_run = (*little, "--dry-run", "--set", "pooling=shortest")
    shortest: Any = type("Shortest", (MaxPooling,), {"name": "shortest", "library": ""})
    monkeypatch.setitem(POOLINGS, "shortest", shortest)
    refused = stsbench.refused(*dry_run)
    assert refused.startswith("pooling 'shortest' cannot be trained under; choose one of cls, ")
    assert refused.endswith(f"sentence-transformers: {', '.join(LIBRARY_POOLINGS)}")
    assert "; or let 'library' in its class, which is '', name a pooling" in refused
    shortest.library = "min"
    refused = stsbench.refused(*dry_run)
    assert "'library' in its class, which is 'min', name a pooling" in refused
    shortest.library = "max"
    stsbench.fine(*dry_run)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["litle"],
            "unknown recipe 'litle'; did you mean 'little'?; cards of your own need --cards DIR",
        ),
        (["little"], "no checkpoint to start from; pass --base FOLDER (any masked language model)"),
        (["little", "--base", "/nowhere/at/all"], "does not exist"),
        (
            ["little", "BASE", "--set", "temprature=0.1"],
            "unknown key 'temprature'; did you mean 'temperature'",
        ),
        (
            ["little", "BASE", "--set", "training.stepps=3"],
            "unknown key 'stepps' in [training]; did you mean 'steps'",
        ),
        (
            ["little", "BASE", "--set", "learnig_rate=0.1"],
            "unknown key 'learnig_rate'; did you mean 'learning_rate'",
        ),
        (
            ["little", "BASE", "--set", "trainig.steps=3"],
            "no table 'trainig'; did you mean 'training'",
        ),
        (
            ["little", "BASE", "--set", "steps=3", "--set", "training.steps=4"],
            "--set steps and --set training.steps are the same value; leave out one of them",
        ),
        (["little", "BASE", "--set", "pooling=mean(9)"], "asks for layer 9; the model has 3"),
        (["little", "BASE", "--text", "none.txt"], "none.txt"),
        (["little", "BASE", "--set", "split=dev"], "unknown split of quickstart-en 'dev'"),
        (["little", "BASE", "--set", "learning_rate=1e30"], "the loss is nan"),
        (
            ["little", "BASE", "--device", "cpu", "--set", "precision=float16"],
            "'float16' needs a GPU",
        ),
        (["little", "BASE", "--out", "text.txt"], "text.txt"),
        (["little", "BASE", "--report-to", "nobody"], "--report-to nobody"),
        (["little", "BASE", "--text", "empty.txt"], "empty.txt: the file is empty"),
        (
            ["little", "BASE", "--set", "learning_rate=-1"],
            "'training.learning_rate': expected a number > 0",
        ),
        (
            ["little", "BASE", "--set", "batch_size=1"],
            "a sentence's negatives are the others of its batch",
        ),
        (["little", "BASE", "--set", "pooling=wk(1)"], "'wk(1)' cannot be trained under"),
        (
            ["little", "BASE", "--set", "student=3"],
            "'student' is the encoder to train; leave it out",
        ),
        (["infersent-small", "BASE"], "'infersent' starts from nothing; leave out --base"),
    ],
)
def test_every_mistake_is_one_line(stsbench, cards, masked_lm, arguments, says):
    Path("empty.txt").write_text("")
    given = [
        part for one in arguments for part in (["--base", masked_lm] if one == "BASE" else [one])
    ]
    done = stsbench("train", "--cards", cards, *given)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1 and says in done.err, done.err
    assert not list(Path().glob("runs/*/*"))


def test_an_untrained_recipe_says_how_to_train_it(stsbench, cards):
    done = stsbench("run", "--encoder", "little", "--tasks", "quickstart-en", "--cards", cards)
    assert done.code == 2 and f"'stsbench train little --cards {cards}'" in done.err


def test_a_recipe_trained_with_values_replaced_alone_is_offered_by_that_name(
    stsbench, cards, little
):
    assert stsbench(*little, "--set", "steps=2").code == 0
    name = "little+steps=2"
    for spec in ("little", "little+steps=3"):
        done = stsbench("run", "--encoder", spec, "--tasks", "quickstart-en", "--cards", cards)
        offered = (
            f"'{spec}' has not been trained here; with replaced values it has been: use '{name}'"
        )
        command = f"'stsbench train {spec.replace('+', ' --set ')} --cards {cards}' trains it"
        assert done.code == 2 and f"{offered}; {command}" in done.err
    assert (
        stsbench("run", "--encoder", name, "--tasks", "quickstart-en", "--cards", cards).code == 0
    )


class Returning(Learner):
    """A method whose ``forward`` returns what a test says, of a batch's embeddings (b, h)."""

    losses: ClassVar[Callable[[torch.Tensor], Any]]

    def forward(self, views: Any) -> Any:  # type: ignore[override]
        return Returning.losses(self.student.embed(views))


LOSSES: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "a loss per sentence": (
        lambda embeddings: {"loss": embeddings.mean(dim=-1)},
        "'loss' of the shape (8,); return a tensor of one number, as its mean",
    ),
    "a part per sentence": (
        lambda embeddings: {"loss": embeddings.mean(), "part": embeddings.mean(dim=-1)},
        "'part' of the shape (8,); return a tensor of one number, as its mean",
    ),
    "a plain number": (
        lambda embeddings: {"loss": embeddings.mean().item()},
        "'loss' of type float; return a tensor of one number, as its mean",
    ),
    "no dict": (
        lambda embeddings: embeddings.mean(),
        "a Tensor; return a dict with 'loss'",
    ),
    "another name": (
        lambda embeddings: {"los": embeddings.mean()},
        "a dict of los; return one with 'loss'",
    ),
    "no gradient": (
        lambda embeddings: {"loss": embeddings.mean().detach()},
        "a 'loss' without gradient; make it from what self.student.embed returns",
    ),
}


@pytest.mark.parametrize("case", LOSSES)
def test_losses_that_cannot_be_learned_from_are_one_line(
    stsbench, cards, little, monkeypatch, case
):
    losses, message = LOSSES[case]
    monkeypatch.setattr(Returning, "losses", losses, raising=False)
    recipe = cards / "trainers" / "little.toml"
    own = recipe.read_text().replace('"simcse"', '"tests.cli.test_train:Returning"')
    recipe.write_text(own.replace("temperature = 0.05", ""))
    error = stsbench.refused(*little)
    assert error == f"method Returning: forward returns {message}"


METHOD = """
from stsbench.training.methods.simcse import SimCSE


class Mine(SimCSE):
    \"\"\"A user's own method: version {}.\"\"\"
"""


def test_runs_of_a_method_whose_code_has_changed_are_not_mixed(
    stsbench, cards, little, tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(tmp_path)
    recipe = cards / "trainers" / "little.toml"
    recipe.write_text(recipe.read_text().replace('"simcse"', '"edited_method:Mine"'))
    module = tmp_path / "edited_method.py"
    module.write_text(METHOD.format(1))
    assert stsbench(*little, "--seeds", "0").code == 0
    assert stsbench(*little, "--seeds", "0").code == 0
    digest = read_trained_runs("little")[0].digest
    module.write_text(METHOD.format(2))
    error = stsbench.refused(*little, "--seeds", "0")
    assert "seed0: holds a finished run with another method: its code has changed" in error
    assert "pass --fresh to train again in its place" in error
    assert stsbench(*little, "--seeds", "0", "--fresh").code == 0
    assert read_trained_runs("little")[0].digest != digest

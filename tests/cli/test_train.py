"""``stsbench train``: from a recipe to a scored encoder, and every mistake in one line."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stsbench as stsbench_module
from stsbench.trained import trained_runs
from tests.training.students import masked_lm, one_thread, sentences

__all__ = ["masked_lm", "one_thread"]
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


def test_a_recipe_is_trained_and_its_name_is_an_encoder(stsbench, cards, masked_lm):
    done = stsbench("train", "little", "--cards", cards, "--base", masked_lm, "--seeds", "1,2")
    assert done.code == 0, done.err
    assert "mean " in done.out and " ± " in done.out and "stsbench run --encoder little" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    facts = json.loads(Path("runs/little/seed1/run.json").read_text())
    assert facts["steps"] == 12 and [point["step"] for point in facts["curve"]] == [4, 8, 12]
    assert facts["corpus"]["rows"] == 60 and len(facts["corpus"]["sha256"]) == 64
    assert facts["overlap"]["quickstart-en"] == "none"
    assert not Path("runs/little/seed1/checkpoints").exists()
    done = stsbench("run", "--encoder", "little", "--tasks", "quickstart-en", "--cards", cards, "--json")
    assert done.code == 0, done.err
    results = json.loads(done.out)["results"]
    assert [result["train_seed"] for result in results] == [1, 2]
    assert {result["encoder"] for result in results} == {"little"}
    chosen = [json.loads(Path(f"runs/little/seed{seed}/run.json").read_text())["chosen"]["score"] for seed in (1, 2)]
    # Unknown words make near ties, which two ways to multiply break differently.
    assert [result["score"] for result in results] == pytest.approx(chosen, abs=1e-3)
    board = stsbench("leaderboard", "--suite", "quickstart", "--cards", cards, "--format", "markdown")
    assert "| little |" in board.out and "±" in board.out
    one = stsbench("run", "--encoder", "little@2", "--tasks", "quickstart-en", "--cards", cards, "--json", "--fresh")
    assert [result["train_seed"] for result in json.loads(one.out)["results"]] == [2]


def test_a_finished_run_is_kept_and_one_trained_otherwise_is_not_overwritten(stsbench, cards, masked_lm):
    call = ("train", "little", "--cards", cards, "--base", masked_lm)
    assert stsbench(*call).code == 0
    stamp = Path("runs/little/seed0/model.safetensors").stat().st_mtime_ns
    assert stsbench(*call).code == 0
    assert Path("runs/little/seed0/model.safetensors").stat().st_mtime_ns == stamp
    recipe = cards / "trainers" / "little.toml"
    recipe.write_text(recipe.read_text().replace("steps = 12", "steps = 8"))
    refused = stsbench(*call)
    assert refused.code == 2 and "trained otherwise" in refused.err and "--fresh" in refused.err
    assert stsbench(*call, "--fresh").code == 0
    assert json.loads(Path("runs/little/seed0/run.json").read_text())["steps"] == 8


def test_test_sentences_in_the_corpus_are_found_and_marked(stsbench, cards, masked_lm):
    from stsbench.task import load_task

    texts = [*sentences(40), *load_task("quickstart-en").texts()[:3]]
    Path("leaky.txt").write_text("\n".join(texts) + "\n")
    call = ("train", "little", "--cards", cards, "--base", masked_lm, "--data", "leaky.txt", "--json")
    (run,) = json.loads(stsbench(*call).out)
    assert (run["overlap"]["quickstart-en"], run["overlap"]["quickstart-es-en"]) == ("text", "none")
    done = stsbench("run", "-e", run["recipe"], "-t", "quickstart-en", "--cards", cards, "--json")
    assert [result["overlap"] for result in json.loads(done.out)["results"]] == ["text"]


def test_values_are_replaced_and_the_name_says_so(stsbench, cards, masked_lm):
    done = stsbench(
        "train",
        "little",
        "--cards",
        cards,
        "--base",
        masked_lm,
        "--set",
        "temperature=0.1",
        "--set",
        "steps=4",
        "--json",
    )
    assert done.code == 0, done.err
    (run,) = json.loads(done.out)
    assert run["recipe"] == "little+steps=4+temperature=0.1"
    assert run["card"]["params"]["temperature"] == 0.1 and run["card"]["training"]["steps"] == 4


def test_a_dry_run_reckons_and_writes_nothing(stsbench, cards, masked_lm):
    done = stsbench("train", "little", "--cards", cards, "--base", masked_lm, "--dry-run", "--json")
    found = json.loads(done.out)
    assert (found["steps"], found["rows"], found["validations"]) == (12, 60, 3)
    # 12 batches of 8 sentences seen twice, of 4 to 10 tokens with their special ones.
    assert 12 * 16 * 4 < found["tokens"] < 12 * 16 * 10
    assert found["seconds"] > 0 and found["memory"] > 1 << 20
    assert not Path("runs").exists()
    shown = stsbench("train", "little", "--cards", cards, "--base", masked_lm, "--dry-run")
    assert "12 of 8 rows" in shown.out and max(map(len, shown.out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["litle"], "unknown recipe 'litle'; did you mean 'little'"),
        (["little"], "no checkpoint to start from; pass --base FOLDER (any masked language model)"),
        (["little", "--base", "/nowhere/at/all"], "does not exist"),
        (["little", "BASE", "--set", "temprature=0.1"], "unknown key 'temprature'; did you mean 'temperature'"),
        (["little", "BASE", "--set", "training.stepps=3"], "unknown key 'stepps'"),
        (["little", "BASE", "--set", "trainig.steps=3"], "no table 'trainig'; did you mean 'training'"),
        (["little", "BASE", "--set", "steps=many"], "steps"),
        (["little", "BASE", "--set", "views=quads"], "'quads' is none of dropout, pairs, triplets"),
        (["little", "BASE", "--set", "pooling=mean(9)"], "asks for layer 9; the model has 3"),
        (["little", "BASE", "--data", "one.txt"], "1 row"),
        (["little", "BASE", "--data", "none.txt"], "none.txt"),
        (["little", "BASE", "--data", "pairs.csv"], "has no text"),
        (["little", "BASE", "--set", "split=dev"], "unknown split of quickstart-en 'dev'"),
        (["little", "BASE", "--set", "learning_rate=1e30"], "the loss is nan"),
        (["little", "BASE", "--set", "data.rows=99"], "the corpus has 60"),
        (["little", "BASE", "--keep", "both"], "'both' is none of best, last"),
        (["little", "BASE", "--device", "tpu"], "device 'tpu'"),
        (["little", "BASE", "--device", "cpu", "--set", "precision=float16"], "'float16' needs a GPU"),
        (["little", "BASE", "--out", "text.txt"], "text.txt"),
        (["little", "BASE", "--report-to", "nobody"], "--report-to nobody"),
    ],
)
def test_every_mistake_is_one_line(stsbench, cards, masked_lm, arguments, says):
    Path("one.txt").write_text("a dog\n")
    Path("pairs.csv").write_text("anchor,positive\na dog,a cat\na fish,a bird\n")
    given = [part for one in arguments for part in (["--base", masked_lm] if one == "BASE" else [one])]
    done = stsbench("train", "--cards", cards, *given)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1 and says in done.err, done.err


def test_an_untrained_recipe_says_how_to_train_it(stsbench, cards):
    done = stsbench("run", "--encoder", "little", "--tasks", "quickstart-en", "--cards", cards)
    assert done.code == 2 and "has not been trained here; run: stsbench train little" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_run_is_resumed_to_the_same_weights(tmp_path, cards, masked_lm, attempt):
    command = [sys.executable, "-m", "stsbench", "train", "little", "--cards", str(cards), "--base", str(masked_lm)]
    command += ["--checkpoint-seconds", "0", "--deterministic", "--set", "steps=60"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}

    def start(folder: str, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, "--out", folder, *more], cwd=tmp_path, env=environment)

    assert start("whole").wait() == 0
    process = start("cut")
    (checkpoints,) = [tmp_path / "cut" / path.parent.name / "seed0" for path in (tmp_path / "whole").glob("*/seed0")]
    while not list(checkpoints.glob("checkpoints/checkpoint-*")):
        time.sleep(0.02)
        assert process.poll() is None
    time.sleep(random.Random(attempt).uniform(0, 2))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert start("cut", "--resume").wait() == 0
    (whole,) = trained_runs("little+steps=60", tmp_path / "whole")
    (cut,) = trained_runs("little+steps=60", tmp_path / "cut")
    assert (whole.folder / "model.safetensors").read_bytes() == (cut.folder / "model.safetensors").read_bytes()
    assert whole.facts["curve"] == cut.facts["curve"]


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_joined_batch(tmp_path, cards, masked_lm):
    given = [
        "train",
        "little",
        "--cards",
        str(cards),
        "--base",
        str(masked_lm),
        "--set",
        "dropout=0.0",
        "--keep",
        "last",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "check": True}
    # 60 rows: three whole batches of 16 an epoch for both, the last short one left out.
    alone = [*given, "--set", "batch_size=16", "--set", "drop_last=true", "--out", "one"]
    subprocess.run([sys.executable, "-m", "stsbench", *alone], **options)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29541"]
    subprocess.run([*launcher, "-m", "stsbench", *given, "--set", "drop_last=true", "--out", "two"], **options)
    (one,), (two,) = (list((tmp_path / name).glob("*/seed0")) for name in ("one", "two"))
    losses = [
        [point["loss"] for point in json.loads((folder / "run.json").read_text())["curve"]] for folder in (one, two)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    # Not the weights: of some the gradient is zero but for rounding, which Adam makes as large as any other.
    one_, two_ = (stsbench_module.load_encoder(folder).encode(sentences(20)) for folder in (one, two))
    np.testing.assert_allclose(one_, two_, atol=1e-4)

"""``stsbench train`` again: finished runs are kept, stopped and killed ones go on, two processes train as one."""

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
from tests.cli.little_recipe import cards
from tests.training.students import masked_lm, one_thread, sentences

__all__ = ["cards", "masked_lm", "one_thread"]


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


def test_only_what_decides_the_weights_makes_another_run(stsbench, cards, masked_lm):
    call = ("train", "little", "--cards", cards, "--base", masked_lm)
    assert stsbench(*call).code == 0
    stamp = Path("runs/little/seed0/model.safetensors").stat().st_mtime_ns
    recipe = cards / "trainers" / "little.toml"
    recipe.write_text(recipe.read_text().replace("A little SimCSE", "SimCSE, little"))
    assert stsbench(*call).code == 0
    assert Path("runs/little/seed0/model.safetensors").stat().st_mtime_ns == stamp


def test_a_mistake_leaves_the_finished_run_alone(stsbench, cards, masked_lm):
    call = ("train", "little", "--cards", cards, "--base", masked_lm)
    assert stsbench(*call).code == 0
    assert stsbench(*call, "--fresh", "--data", "none.txt").code == 2
    Path("text.txt").rename("gone.txt")
    assert stsbench(*call, "--fresh").code == 2
    assert trained_runs("little")[0].facts["steps"] == 12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("learning_rate = 2e-3", "another training.learning_rate (0.001, now 0.002)"),
        ("temperature = 0.1", "another params.temperature (0.05, now 0.1)"),
        ("text", "another corpus"),
        ("base", "another base"),
    ],
)
def test_a_run_is_not_resumed_by_another_recipe(stsbench, cards, masked_lm, monkeypatch, change, says):
    call = ["train", "little", "--cards", cards, "--base", masked_lm]
    stopped = _stop_at(stsbench, monkeypatch, call, 5)
    assert stopped.code == 130 and "stopped after step 5 of 12; to go on, add --resume" in stopped.err
    assert len(stopped.err.splitlines()) == 1
    recipe = cards / "trainers" / "little.toml"
    if change == "text":
        Path("text.txt").write_text("\n".join(sentences(60, seed=4)) + "\n")
    elif change == "base":
        import shutil

        shutil.copytree(masked_lm, "base")
        settings = json.loads(Path("base/config.json").read_text())
        Path("base/config.json").write_text(json.dumps({**settings, "hidden_dropout_prob": 0.2}))
        call[-1] = "base"
    else:
        key = change.partition(" = ")[0]
        lines = [change if line.startswith(f"{key} =") else line for line in recipe.read_text().splitlines()]
        recipe.write_text("\n".join(lines))
    refused = stsbench(*call, "--resume")
    assert refused.code == 2 and says in refused.err and "leave out --resume" in refused.err
    # Without --resume it begins anew.
    done = stsbench(*call, "--json")
    assert json.loads(done.out)[0]["steps"] == 12 and not Path("runs/little/seed0/started.json").exists()


def _stop_at(stsbench: Any, monkeypatch: Any, call: list[Any], step: int) -> Any:
    """Train, and press Ctrl-C while the step is under way."""
    from stsbench.training import selection

    tell = selection.Selection.tell
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def pressed(self: Any, at: int) -> None:
        tell(self, at)
        if at == step:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(selection.Selection, "tell", pressed)
        try:
            return stsbench(*call)
        finally:
            signal.signal(signal.SIGINT, before)


def test_a_stopped_run_goes_on_to_the_weights_of_an_undisturbed_one(stsbench, cards, masked_lm, monkeypatch):
    call = ["train", "little", "--cards", cards, "--base", masked_lm]
    assert stsbench(*call, "--out", "whole").code == 0
    assert _stop_at(stsbench, monkeypatch, call, 5).code == 130
    assert stsbench(*call, "--resume").code == 0
    whole, cut = (Path(name, "little", "seed0", "model.safetensors").read_bytes() for name in ("whole", "runs"))
    assert whole == cut


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

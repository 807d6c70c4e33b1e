"""``stsbench train`` again: finished runs are kept, stopped and killed ones go on, two processes train as one."""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stsbench as stsbench_module
from stsbench.encoders.runs import read_trained_runs
from tests.cli.commands import stop_at
from tests.training.students import sentences


def test_a_finished_run_is_kept_and_one_trained_otherwise_is_not_overwritten(
    stsbench, cards, little
):
    assert stsbench(*little).code == 0
    stamp = Path("runs/little/seed0/model.safetensors").stat().st_mtime_ns
    assert stsbench(*little).code == 0
    assert Path("runs/little/seed0/model.safetensors").stat().st_mtime_ns == stamp
    error = stsbench.refused(*little[:-2])
    assert "no checkpoint to start from; pass --base FOLDER" in error and "--fresh" not in error
    recipe = cards / "trainers" / "little.toml"
    recipe.write_text(recipe.read_text().replace("steps = 12", "steps = 8"))
    refused = stsbench(*little)
    assert (
        refused.code == 2
        and "a finished run with another training.steps (12, now 8); pass --fresh" in refused.err
    )
    assert stsbench(*little, "--fresh").code == 0
    assert json.loads(Path("runs/little/seed0/run.json").read_text())["steps"] == 8


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("learning_rate = 2e-3", "another training.learning_rate (0.001, now 0.002)"),
        ("temperature = 0.1", "another params.temperature (0.05, now 0.1)"),
        ("text", "another text"),
        ("base", "another base"),
    ],
)
def test_a_run_is_not_resumed_by_another_recipe(
    stsbench, cards, masked_lm, monkeypatch, change, difference, little
):
    stopped = stop_at(stsbench, monkeypatch, little, 5)
    assert stopped.code == 130
    assert "stopped after step 5 of 12; to resume, run it again without --fresh" in stopped.err
    assert len(stopped.err.splitlines()) == 1
    recipe = cards / "trainers" / "little.toml"
    if change == "text":
        Path("text.txt").write_text("\n".join(sentences(60, seed=4)) + "\n")
    elif change == "base":
        shutil.copytree(masked_lm, "base")
        settings = json.loads(Path("base/config.json").read_text())
        Path("base/config.json").write_text(json.dumps({**settings, "hidden_dropout_prob": 0.2}))
        little[-1] = "base"
    else:
        key = change.partition(" = ")[0]
        lines = [
            change if line.startswith(f"{key} =") else line
            for line in recipe.read_text().splitlines()
        ]
        recipe.write_text("\n".join(lines))
    refused = stsbench(*little)
    assert (
        refused.code == 2
        and f"{difference}; pass --fresh to train again without them" in refused.err
    )
    assert len(refused.err.splitlines()) == 1 and _checkpoint().is_dir()
    done = stsbench(*little, "--fresh", "--yes", "--json")
    assert (
        json.loads(done.out)[0]["steps"] == 12
        and not Path("runs/little/seed0/started.json").exists()
    )


def test_checkpoints_are_deleted_only_by_who_says_so_twice(stsbench, little, monkeypatch):
    assert stop_at(stsbench, monkeypatch, little, 5).code == 130
    refused = stsbench(*little, "--fresh")
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
    assert (
        f"--fresh deletes the checkpoints of 1 unfinished run, such as {_checkpoint()}; pass --yes"
        in refused.err
    )
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, err: False)
    kept = stsbench(*little, "--fresh")
    assert kept.code == 130 and "nothing was deleted" in kept.err and _checkpoint().is_dir()
    monkeypatch.setattr(
        "typer.confirm", lambda question, err: question.endswith("checkpoint-5; go on?")
    )
    (anew,) = json.loads(stsbench(*little, "--fresh", "--json").out)
    assert [point["step"] for point in anew["curve"]] == [4, 8, 12] and not _checkpoint().exists()
    # The run is finished now, and would be replaced.
    folder = Path("runs/little/seed0")
    questions = []
    monkeypatch.setattr("typer.confirm", lambda question, err: questions.append(question))
    kept = stsbench(*little, "--fresh")
    assert kept.code == 130 and "nothing was deleted" in kept.err
    assert questions == [f"--fresh replaces 1 finished run, such as {folder}; go on?"]
    assert json.loads((folder / "run.json").read_text())["run"]["created"] == anew["run"]["created"]
    # Who passes --yes is not asked; nor is a script, which has no terminal.
    for option, is_terminal in (("--yes", True), ("--json", False)):
        monkeypatch.setattr(sys.stdin, "isatty", lambda answer=is_terminal: answer)
        assert stsbench(*little, "--fresh", option).code == 0
    assert len(questions) == 1


def _checkpoint() -> Path:
    """The newest checkpoint of ``little``; a folder that is not there where there is none."""
    return max(Path("runs/little/seed0/checkpoints").glob("checkpoint-*"), default=Path("nowhere"))


def test_an_unfinished_run_is_called_so_with_the_command_that_finishes_it(
    stsbench, cards, masked_lm, monkeypatch
):
    given = ["--base", str(masked_lm), "--set", "steps=8", "--cards", str(cards)]
    call, name = ["train", "little", *given], "little+steps=8"
    assert stsbench(*call, "--seeds", "1").code == 0
    assert stop_at(stsbench, monkeypatch, [*call, "--seeds", "2"], 5).code == 130
    command = shlex.join(["stsbench", "train", "little", *given, "--seeds", "2"])
    said = f"the run in runs/{name}/seed2 is not finished; to finish it: {command}"
    scored = stsbench("run", "-e", name, "-t", "quickstart-en", "--cards", cards)
    assert scored.code == 0 and scored.err == f"stsbench: not scored: {said}\n"
    for spec in (f"{name}@2", f"runs/{name}/seed2"):
        refused = stsbench("run", "-e", spec, "-t", "quickstart-en", "--cards", cards)
        assert refused.code == 2 and said in refused.err and len(refused.err.splitlines()) == 1
    shown = stsbench.json("show", name, "--cards", cards)
    assert [one["folder"] for one in shown["trained"]] == [f"runs/{name}/seed1"]
    assert shown["not finished"] == [{"folder": f"runs/{name}/seed2", "to finish it": command}]
    assert stsbench(*shlex.split(command)[1:]).code == 0
    assert "not finished" not in stsbench.json("show", name, "--cards", cards)
    again = stsbench(*call, "--seeds", "1,2")
    assert again.code == 0 and again.out.count("(trained already, 2") == 2


def test_an_unfinished_run_does_not_pass_for_the_card_of_its_name(
    stsbench, cards, masked_lm, monkeypatch, little
):
    assert stop_at(stsbench, monkeypatch, little, 5).code == 130
    (cards / "baselines").mkdir()
    (cards / "baselines" / "little.toml").write_text(
        'name = "L"\nkind = "transformer"\nmethod = "Mean"\nbackbone = "tiny"\nsupervision = "none"\n'
        f'overlap = "none"\npaper = "none"\nlicense = "none"\n[params]\nmodel = "{masked_lm}"\n'
    )
    call = ("run", "-e", "little", "-t", "quickstart-en", "--cards", cards)
    refused = stsbench(*call)
    assert refused.code == 2 and "is not finished; " in refused.err
    assert "STSBENCH_RUNS" in refused.err
    assert stsbench.json("show", "little", "--cards", cards)["not finished"]
    monkeypatch.setenv("STSBENCH_RUNS", "others")
    assert stsbench(*call).code == 0


@pytest.mark.parametrize(
    "file", ["learner.safetensors", "optimizer.pt", "selection.json", "best.safetensors"]
)
def test_a_damaged_checkpoint_is_one_line_and_stays(stsbench, little, monkeypatch, file):
    assert stop_at(stsbench, monkeypatch, little, 5).code == 130
    content = (_checkpoint() / file).read_bytes()
    (_checkpoint() / file).write_bytes(content[: len(content) // 2])
    refused = stsbench(*little)
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
    assert f"{_checkpoint()}: cannot be read" in refused.err and "move it away" in refused.err


def test_checkpoints_of_which_nothing_is_known_are_not_gone_on_from(stsbench, little, monkeypatch):
    assert stop_at(stsbench, monkeypatch, little, 5).code == 130
    start = Path("runs/little/seed0/started.json")
    facts = json.loads(start.read_text())
    start.write_text(json.dumps({**facts, "devices": 2}))
    command = "torchrun --nproc-per-node 2 -m stsbench train"
    assert f"to finish it: {command}" in stsbench("run", "-e", "little").err
    for record, message in (
        (start.read_text(), "another number of devices (2, now 1)"),
        ("{", "is not the record of a run's start"),
        ("", "another start, which is not written down"),
    ):
        start.write_text(record)
        if not record:
            start.unlink()
        assert message in stsbench(*little).err


def test_a_finished_run_of_other_material_is_not_taken_for_this_one(stsbench, cards, masked_lm):
    shutil.copytree(masked_lm, "base")
    call = ["train", "little", "--cards", cards, "--base"]
    assert stsbench(*call, "base").code == 0
    # The same files by another name, and a text that is not at hand any more.
    text = Path("text.txt").rename("kept.txt")
    assert "trained already" in stsbench(*call, masked_lm).out
    Path("text.txt").write_text(text.read_text() + "one more\n")
    assert "with another text; " in stsbench(*call, "base").err
    text.rename("text.txt")
    settings = json.loads(Path("base/config.json").read_text())
    Path("base/config.json").write_text(json.dumps({**settings, "hidden_dropout_prob": 0.2}))
    assert "with another base; " in stsbench(*call, "base").err
    assert "now elsewhere/model)" in stsbench(*call, "elsewhere/model").err


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("epochs=inf", "key 'training.epochs': nan and inf are not allowed"),
        ("epochs=1e300", "'training.epochs': expected a number <= 1000000"),
        ("steps=1000000000000000000", "'training.steps': expected a whole number <= 1000000000"),
        ("temperature=inf", "key 'params.temperature': nan and inf are not allowed"),
    ],
)
def test_what_no_run_can_be_as_long_or_fast_as_is_refused(stsbench, little, assignment, message):
    done = stsbench(*little, "--set", assignment)
    assert done.code == 2 and message in done.err and len(done.err.splitlines()) == 1, done.err
    assert not Path("runs").exists()


def test_a_stopped_run_goes_on_to_the_weights_of_an_undisturbed_one(stsbench, little, monkeypatch):
    assert stsbench(*little, "--out", "whole").code == 0
    assert stop_at(stsbench, monkeypatch, little, 5).code == 130
    assert stsbench(*little).code == 0
    whole, cut = (
        Path(name, "little", "seed0", "model.safetensors").read_bytes()
        for name in ("whole", "runs")
    )
    assert whole == cut


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(3))
def test_a_killed_run_is_resumed_to_the_same_weights(tmp_path, cards, masked_lm, attempt):
    command = [
        sys.executable,
        "-m",
        "stsbench",
        "train",
        "little",
        "--cards",
        str(cards),
        "--base",
        str(masked_lm),
    ]
    command += ["--checkpoint-seconds", "0", "--deterministic", "--set", "steps=60"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "OMP_NUM_THREADS": "1",
    }

    def start(folder: str, *more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*command, "--out", folder, *more], cwd=tmp_path, env=environment)

    assert start("whole").wait() == 0
    process = start("cut")
    (checkpoints,) = [
        tmp_path / "cut" / path.parent.name / "seed0"
        for path in (tmp_path / "whole").glob("*/seed0")
    ]
    while not list(checkpoints.glob("checkpoints/checkpoint-*")):
        time.sleep(0.02)
        assert process.poll() is None
    time.sleep(random.Random(attempt).uniform(0, 2))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert start("cut").wait() == 0
    (whole,) = read_trained_runs("little+steps=60", tmp_path / "whole")
    (cut,) = read_trained_runs("little+steps=60", tmp_path / "cut")
    assert (whole.folder / "model.safetensors").read_bytes() == (
        cut.folder / "model.safetensors"
    ).read_bytes()
    assert whole.record["curve"] == cut.record["curve"]


@pytest.mark.slow
def test_two_processes_train_as_one_with_the_joined_batch(tmp_path, cards, masked_lm):
    given = ["train", "little", "--cards", str(cards), "--base", str(masked_lm)]
    given += ["--set", "dropout=0.0", "--keep", "last"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "OMP_NUM_THREADS": "1",
    }
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "check": True}
    # 60 rows: three whole batches of 16 an epoch for both, the last short one left out.
    alone = [*given, "--set", "batch_size=16", "--set", "drop_last=true", "--out", "one"]
    subprocess.run([sys.executable, "-m", "stsbench", *alone], **options)
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "29541",
    ]
    subprocess.run(
        [*launcher, "-m", "stsbench", *given, "--set", "drop_last=true", "--out", "two"], **options
    )
    (one,), (two,) = (list((tmp_path / name).glob("*/seed0")) for name in ("one", "two"))
    losses = [
        [p["loss"] for p in json.loads((folder / "run.json").read_text())["curve"]]
        for folder in (one, two)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    # Not the weights: of some the gradient is zero but for rounding, which Adam makes as large as any other.
    one_, two_ = (
        stsbench_module.load_encoder(folder).encode(sentences(20)) for folder in (one, two)
    )
    np.testing.assert_allclose(one_, two_, atol=1e-4)

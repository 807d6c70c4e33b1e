"""How a training goes: a line a validation, the file of the curve while it grows, and what loggers are told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import transformers

from stsbench.encoders.runs import CURVE_FILE, UnfinishedRun
from stsbench.training.loop.selection import Selection
from tests.cli.commands import stop_at


def test_off_a_terminal_each_validation_is_a_line(stsbench, little):
    stsbench.fine(*little, "--set", "mlm_weight=0.1")
    (first, second, last) = stsbench.progress
    number = r"-?\d+\.?\d*"
    losses = rf"loss {number}, contrastive {number}, mlm {number}, dev {number} \(best {number}\)"
    assert re.fullmatch(rf"seed 0: step 4 of 12, {losses}, about {number} s left", first)
    assert re.fullmatch(rf"seed 0: step 8 of 12, {losses}, about {number} s left", second)
    assert re.fullmatch(rf"seed 0: step 12 of 12, {losses}", last)


def test_the_curve_is_written_as_it_is_seen_and_is_the_record_s(stsbench, little, monkeypatch):
    call = [*little, "--set", "schedule=constant"]
    folder, seen = Path("runs/little+schedule=constant/seed0"), list[Any]()
    report = vars(Selection)["report_progress"]

    def watched(self: Selection, step: int) -> None:
        seen.append(_points(folder))
        report(self, step)

    monkeypatch.setattr(Selection, "report_progress", watched)
    assert stsbench(*call).code == 0
    assert [len(points) for points in seen] == [0] * 4 + [1] * 4 + [2] * 4 + [3]
    points = _points(folder)
    assert points == json.loads((folder / "run.json").read_text())["curve"]
    assert [point["rate"] for point in points] == [1e-3] * 3
    assert all(
        0 < p["gradient_norm"] < 1e3 and p["uniformity"] < 0 < p["alignment"] < 4 for p in points
    )


def _points(folder: Path) -> list[dict[str, float]]:
    path = folder / CURVE_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def test_an_unfinished_run_s_curve_is_drawn_and_goes_on_without_a_point_twice(
    stsbench, cards, little, monkeypatch
):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    call = [*little, "--name", "ours"]
    folder = Path("runs/ours/seed0")
    assert stop_at(stsbench, monkeypatch, call, 9).code == 130
    with (folder / CURVE_FILE).open("a") as file:
        file.write('{"step": 12, "sco')
    run = UnfinishedRun.read(folder)
    assert run is not None and [point.step for point in run.curve] == [4, 8]
    for name in ("ours", str(folder)):
        assert "not finished" in stsbench.json("show", name, "--cards", cards)
        assert stsbench.fine("show", name, "--curve", f"{Path(name).name}.svg").startswith("wrote ")
    assert "quickstart-en test" in Path("ours.svg").read_text()
    assert stsbench(*call).code == 0
    assert (
        stsbench.progress[0].startswith("seed 0: step 12 of 12, ") and len(stsbench.progress) == 1
    )
    assert [point["step"] for point in _points(folder)] == [4, 8, 12]
    (folder / "run.json").unlink()
    (folder / "started.json").write_text('{"recipe": {}, "seed": 0, "base": {}, "corpus": ""}')
    (folder / CURVE_FILE).write_text("[]\n")
    assert "curve.jsonl: is not the curve of a run" in stsbench.refused(
        "show", "ours", "--curve", "c.svg"
    )


def test_a_method_that_trains_itself_tells_the_same(stsbench, cards):
    recipe = cards / "trainers" / "little.toml"
    text = (
        recipe.read_text()
        .replace('"simcse"', '"quick_thoughts"')
        .replace("[student]\nmax_length = 16\n", "")
    )
    recipe.write_text(
        re.sub(r"\[base\]\n.*\n", "[base]\n", text).replace(
            "temperature = 0.05", "vocabulary = 40\nword_size = 4\nhidden = 4"
        )
    )
    stsbench.fine("train", "little", "--cards", cards)
    assert [line.partition(",")[0] for line in stsbench.progress] == [
        f"seed 0: step {n} of 7" for n in (4, 7)
    ]
    points = _points(Path("runs/little/seed0"))
    assert [point["step"] for point in points] == [0, 4, 7] and all(
        "uniformity" in point for point in points
    )
    assert points == json.loads(Path("runs/little/seed0/run.json").read_text())["curve"]


class Logger(transformers.TrainerCallback):  # type: ignore[misc]
    sent: list[tuple[int, dict[str, float]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        self.sent.append((state.global_step, dict(logs)))


def test_loggers_are_sent_the_validations(stsbench, little, monkeypatch):
    from transformers.integrations import integration_utils

    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "mine", Logger)
    monkeypatch.setattr(Logger, "sent", [])
    call = [*little, "--set", "mlm_weight=0.1", "--report-to", "mine"]
    assert stsbench(*call).code == 0
    curve = {point["step"]: point for point in _points(next(Path("runs").glob("*/seed0")))}
    sent = {step: logs for step, logs in Logger.sent if "eval_score" in logs}
    assert list(sent) == [4, 8, 12]
    for step, logs in sent.items():
        for name in ("score", "alignment", "uniformity"):
            assert logs[f"eval_{name}"] == curve[step][name]
        assert logs["mlm"] == curve[step]["mlm"] and "loss" not in logs
    assert any({"loss", "grad_norm", "learning_rate"} <= {*logs} for _, logs in Logger.sent)

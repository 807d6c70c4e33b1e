"""Training on Ray: many workers have the gradients of one device with the joined batch, and lost ones come back."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench import load_encoder
from stsbench.bench.ray_cluster import QUIET_OPTIONS
from stsbench.core import settings
from stsbench.core.cards import CorpusSection, SelectionSection, StudentSection, TrainingSection
from stsbench.core.errors import StsbenchError, TrainingError
from stsbench.encoders.runs import find_last_checkpoint
from stsbench.recipes.ray_training import RayTraining, explain_worker_loss
from stsbench.recipes.train import LAUNCHERS, run_training
from stsbench.recipes.train_plan import TrainPlan
from stsbench.training.learner import TrainingProgress
from tests.bench.processes import workers_of
from tests.recipes.little import little_recipe
from tests.training.students import sentences

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
"""Of Ray's own parts, one of another."""
needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="needs the extra ray: pip install 'stsbench[ray]'"
)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    settings.keep_ray_silent()
    import ray

    ray.init("local", num_cpus=4, num_gpus=0, include_dashboard=False, **QUIET_OPTIONS)
    yield ray
    ray.shutdown()


@pytest.fixture
def plan(tmp_path: Path, masked_lm: Path, monkeypatch: pytest.MonkeyPatch) -> TrainPlan:
    """Twelve steps of eight rows; nothing in it is drawn by chance but the order of rows."""
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n".join(sentences(60)) + "\n")
    card = little_recipe(
        "simcse",
        data=CorpusSection(corpus="text.txt"),
        student=StudentSection(max_length=16, dropout=0.0),
        training=TrainingSection(batch_size=8, learning_rate=1e-3, steps=12, drop_last=True),
        selection=SelectionSection(task="quickstart-en", split="test", every=4, keep="last"),
        params={"temperature": 0.05},
    )
    return TrainPlan(name="little", card=card, seed=3, out=Path("one"), base=str(masked_lm))


def with_batches_of(
    plan: TrainPlan, rows: int, out: str, *, steps: int = 12, **facts: Any
) -> TrainPlan:
    training = TrainingSection(batch_size=rows, learning_rate=1e-3, steps=steps, drop_last=True)
    return replace(
        plan, card=msgspec.structs.replace(plan.card, training=training, **facts), out=Path(out)
    )


def training(ray: Any, devices: int | None, noticed: Callable[[str], None] = print) -> RayTraining:
    found = RayTraining("ray", devices, noticed, ExitStack())
    found.__dict__["ray"] = ray
    return found


def curve(folder: Path) -> list[list[float]]:
    points = json.loads((folder / "run.json").read_text())["curve"]
    return [[point[name] for name in ("step", "loss", "gradient_norm")] for point in points]


@needs_ray
@pytest.mark.parametrize("devices", [2, 4])
def test_workers_have_the_gradients_of_one_device_with_the_joined_batch(ray, plan, devices):
    alone = run_training(plan)
    told: list[TrainingProgress] = []
    many = training(ray, devices).train(
        with_batches_of(plan, 8 // devices, "many"), on_progress=told.append
    )
    np.testing.assert_allclose(curve(many.folder), curve(alone.folder), rtol=1e-4, atol=1e-5)
    # Not the weights: of some the gradient is zero but for rounding, which Adam makes as large as any other.
    one, other = (load_encoder(run.folder).encode(sentences(20)) for run in (alone, many))
    np.testing.assert_allclose(one, other, atol=1e-3)
    assert told[-1].step == 12 and [one.point["step"] for one in told if one.point] == [4, 8, 12]
    assert [path.name for path in Path("many").iterdir()] == ["little"]


@needs_ray
def test_a_worker_that_is_killed_is_started_again_and_goes_on_from_the_checkpoint(ray, plan):
    noticed: list[str] = []
    seen: list[int] = []

    def kill_one(progress: TrainingProgress) -> None:
        seen.append(progress.step)
        if not noticed and find_last_checkpoint(Path("many/little/seed3")):
            noticed.append("killed")
            (*_, last) = [pid for pid in workers_of(os.getpid()) if b"TrainWorker" in titled(pid)]
            os.kill(last, signal.SIGKILL)

    selection = SelectionSection(task="quickstart-en", split="test", every=STEPS)
    long = replace(
        with_batches_of(plan, 4, "many", steps=STEPS, selection=selection), checkpoint_seconds=1.0
    )
    run = training(ray, 2, noticed.append).train(long, on_progress=kill_one)
    assert run.steps == STEPS and [point.step for point in run.curve] == [STEPS]
    assert (
        len(noticed) == 2
        and "a worker was lost" in noticed[1]
        and "resumes from checkpoint-" in noticed[1]
    )
    assert noticed[1].endswith("(2 of 3)")
    # The second try begins where the checkpoint is.
    (again,) = [now for before, now in itertools.pairwise(seen) if now < before] or [seen[-1]]
    assert again > 0


STEPS = 400


def titled(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@needs_ray
def test_a_mistake_is_told_as_without_ray(ray, plan):
    with pytest.raises(
        TrainingError, match="the corpus has 60 rows, a batch takes 128; lower batch_size"
    ):
        training(ray, 2).train(with_batches_of(plan, 64, "many"), on_progress=lambda progress: None)
    assert not list(Path("many").iterdir())


@needs_ray
@pytest.mark.parametrize(
    ("devices", "says"),
    [
        (
            None,
            "`launcher=ray`: there are 4 cores and no GPU; pass `devices` with the number of cores",
        ),
        (5, "`devices=5`: there are 4 cores and no GPU; give at most 4"),
    ],
)
def test_how_many_train_is_never_guessed(ray, plan, devices, says):
    with pytest.raises(StsbenchError, match=says):
        training(ray, devices).train(plan, on_progress=lambda progress: None)


def test_what_is_trained_starts_no_ray(plan, monkeypatch):
    done = run_training(plan)
    monkeypatch.setattr("stsbench.recipes.ray_training.connect_ray", None)
    with LAUNCHERS.load_at("ray")("ray", 2, print) as train:
        again = train(plan, on_progress=lambda progress: None)
    assert again.record == done.record


def test_of_what_workers_raise_a_mistake_is_told_before_what_came_of_it():
    mistake, broken = TrainingError("nan"), RuntimeError("Connection closed by peer")
    with pytest.raises(TrainingError, match="nan"):
        explain_worker_loss({0: broken, 1: mistake})
    with pytest.raises(RuntimeError, match="closed by peer"):
        explain_worker_loss({1: ValueError("later"), 0: broken})
    lost = type("ActorDiedError", (Exception,), {"__module__": "ray.exceptions"})
    assert explain_worker_loss({0: broken, 1: lost("gone")}) == "a worker was lost (gone)"

"""Training on a GPU in bfloat16 ends where training on a CPU does, as far as seeds let one tell."""

from pathlib import Path

import numpy as np
import pytest
import torch

from stsbench.core.cards import StudentSection
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.training.learner import Learner
from stsbench.training.loop import loop
from stsbench.training.methods.simcse import SimCSE
from stsbench.training.methods.two_models import SelfGuided
from stsbench.training.methods.views import ConSERT
from stsbench.training.student import Student
from tests.training.students import run_facts, sentences, spread

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
TEXTS = sentences(200)
METHODS = {"simcse": SimCSE, "consert": ConSERT, "self_guided": SelfGuided}


def score(
    method: str, base: Path, folder: Path, *, device: str, precision: str, seed: int
) -> float:
    torch.manual_seed(seed)
    pooling = "cls_before_pooler" if method == "self_guided" else "mean"
    student = Student(
        find_checkpoint(str(base)), StudentSection(pooling=pooling, max_length=16), device=device
    )
    learner: Learner = METHODS[method](student)
    learner.prepare({"text": TEXTS})
    training = {"steps": 40, "batch_size": 16, "precision": precision}
    run = run_facts(folder, len(TEXTS), seed=seed, training=training, selection={"every": 40})
    assert loop.train_learner(learner, run).steps == 40
    assert next(learner.parameters()).device.type == device
    return spread(learner.encoders()[0])


@pytest.mark.parametrize("method", list(METHODS))
def test_bfloat16_on_a_gpu_learns_what_float32_on_a_cpu_does(masked_lm, tmp_path, method):
    on_cpu = [
        score(
            method, masked_lm, tmp_path / f"cpu{seed}", device="cpu", precision="float32", seed=seed
        )
        for seed in range(4)
    ]
    found = score(method, masked_lm, tmp_path / "gpu", device="cuda", precision="bfloat16", seed=0)
    # The GPU draws other dropout masks than the CPU: it is one seed more.
    assert abs(found - np.mean(on_cpu)) < 4 * np.std(on_cpu, ddof=1) + 0.01

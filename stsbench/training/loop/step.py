"""How a learner's step is computed: in chunks, with layers computed again, compiled. What it learns stays what it is."""

from __future__ import annotations

from typing import Any

from stsbench.cards.recipe import TrainingFacts
from stsbench.errors import CardError
from stsbench.training.loop.on_cpu import speed_up
from stsbench.training.seams import Learner
from stsbench.training.student import Student

OLD_NAME = "gradient_checkpointing_enable"


def check_step(learner: Learner, facts: TrainingFacts) -> None:
    """Refuse what the method or the model cannot be run with.

    Raises:
        CardError: says which key to leave out.
    """
    method, model = type(learner).__name__, learner.student.model
    if facts.chunk is not None and not learner.chunks:
        raise CardError(
            f"[training] chunk: {method}'s loss is not a function of embeddings alone; leave it out, or use "
            "checkpointing = true"
        )
    if facts.checkpointing and not model.supports_gradient_checkpointing:
        raise CardError(
            f"[training] checkpointing: {type(model).__name__} has no layers to compute again; leave it out"
        )
    training = learner.training
    if facts.checkpointing and not learner.train().student.model.training:
        raise CardError(f"[training] checkpointing: {method} runs its model as in tests, which keeps all; leave it out")
    learner.train(training)


def prepare_step(learner: Learner, facts: TrainingFacts, *, ranks: int = 1) -> None:
    """Set a learner up for the steps of a recipe; raises as :func:`check_step`."""
    check_step(learner, facts)
    for student in (module for module in learner.modules() if isinstance(module, Student)):
        student.chunk = facts.chunk
        if facts.checkpointing:
            _compute_layers_again(student.model)
        if facts.compile:
            student.compile_model()
    # DistributedDataParallel and a compiled model take dense gradients alone.
    speed_up(learner, sparse=ranks == 1 and not facts.compile, compiled=facts.compile)


def _compute_layers_again(model: Any) -> None:  # noqa: ANN401 - transformers is untyped
    # One method under two names; the older one is soon gone.
    enable = "activation_checkpointing_enable" if hasattr(model, "activation_checkpointing_enable") else OLD_NAME
    getattr(model, enable)({"use_reentrant": False})

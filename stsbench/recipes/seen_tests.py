"""What a run has seen of the tests: its own training text, and that of the encoder it started from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard, Overlap
from stsbench.data.sources import is_at_hand
from stsbench.data.task import load_task
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.trained import RUN_FILE, TrainedRun
from stsbench.recipes.plan import TrainPlan

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.encoders.checkpoints.checkpoint import Checkpoint

WORSE: tuple[Overlap, ...] = ("none", "unknown", "text", "gold")
"""From the least to the most that training may have seen of the tests."""


def find_overlaps(
    plan: TrainPlan, corpus: Corpus, base: Checkpoint | None = None, teachers: Sequence[KnownEncoder] = ()
) -> dict[str, Overlap]:
    """Which STS tests a run holds sentences or scores of, for every such task whose data are at hand.

    What the start was trained on counts as well: by the record of its own run, or by the card of an encoder
    that has the same checkpoint. Of a start that is neither nothing is known. So does what its teachers were trained on.

    Args:
        plan: whose data and cards are read.
        corpus: the text it learns from.
        base: the checkpoint it starts from, if any; where its weights are drawn anew it does not count.
        teachers: the encoders whose embeddings it learns from besides.
    """
    from stsbench.data.corpora.overlap import find_overlap

    tasks = [load_task(name, data=plan.data, catalogue=plan.catalogue) for name in plan.catalogue.paths("tasks")]
    at_hand = [task for task in tasks if task.card.evaluator == "sts" and is_at_hand(task.card, task.data)]
    own = {one.task: one.overlap for one in find_overlap(corpus, at_hand)}
    for teacher in teachers:
        own = {task: max(found, teacher.overlap_with(task), key=WORSE.index) for task, found in own.items()}
    if base is None or plan.card.base.from_scratch:
        return own
    if (base.folder / RUN_FILE).is_file():
        run = TrainedRun.read(base.folder)
        before = {task: run.overlap_with(task) for task in own}
    else:
        before = dict.fromkeys(own, _of_base(plan, base))
    return {task: max(found, before[task], key=WORSE.index) for task, found in own.items()}


def _of_base(plan: TrainPlan, base: Checkpoint) -> Overlap:
    """The worst that any card says of an encoder with this checkpoint."""
    if plan.base in plan.catalogue.paths("baselines"):
        return plan.catalogue.encoder(plan.base).overlap
    model = plan.base or plan.card.base.model
    digests = base.digests()
    said = [card.overlap for card in _cards(plan.catalogue) if _is_of(card.params, model, digests)]
    return max(said, key=WORSE.index, default="unknown")


def _cards(catalogue: Catalogue) -> list[EncoderCard]:
    cards = (catalogue.encoder(name) for name in catalogue.paths("baselines"))
    return [card for card in cards if card.kind in ("transformer", "sentence_transformer")]


def _is_of(params: Mapping[str, object], model: str, digests: Mapping[str, str]) -> bool:
    """Whether a card's encoder has the checkpoint of this name, or with weights of this hash."""
    if model and params.get("model") == model:
        return True
    known = params.get("sha256")
    weights = known.get("model.safetensors") if isinstance(known, Mapping) else None
    return weights is not None and weights == digests.get("weights/model.safetensors")

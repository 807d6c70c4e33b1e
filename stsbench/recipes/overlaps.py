"""The tests of which a training has read sentences or scores: in its text, start or teachers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from stsbench.core.cards import Overlap
from stsbench.data.task import is_available_locally, load_task
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.runs import RUN_FILE, TrainedRun
from stsbench.recipes.train_plan import TrainPlan

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus


OVERLAP_ORDER: tuple[Overlap, ...] = ("none", "unknown", "text", "gold")
"""How much training may have seen of a test, from the least to the most."""


def find_overlaps(
    plan: TrainPlan,
    corpus: Corpus,
    base: Checkpoint | None = None,
    teachers: Sequence[NamedEncoder] = (),
) -> dict[str, Overlap]:
    """Return how much of each STS task's test data a training run has read.

    An overlap is, from the best to the worst, ``none``, ``unknown``, ``text`` (test sentences were
    read) or ``gold`` (their scores too). The worst of three counts:

    * the overlap of the corpus with the test data;
    * that of the checkpoint that the run starts from: as recorded by the run that trained it, or by
      the card of an encoder with the same checkpoint, else unknown. It does not count if all
      weights are drawn anew.
    * that of the teachers.

    Args:
        plan: The plan of the run.
        corpus: The text that it trains on.
        base: The checkpoint that it starts from; None if it starts from nothing.
        teachers: The encoders whose embeddings it learns from.

    Returns:
        The overlap by the name of the task, of every STS task whose data are available locally.
    """
    from stsbench.data.corpora.overlap import find_overlap

    tasks = []
    for name in plan.catalogue.paths("tasks"):
        task = load_task(name, data=plan.data, catalogue=plan.catalogue)
        if task.card.evaluator == "sts" and is_available_locally(task.card, task.data):
            tasks.append(task)
    # Functions from the name of a task to the overlap of a teacher, or of the base, with it.
    lookups: list[Callable[[str], Overlap]] = [teacher.overlap_with for teacher in teachers]
    if base is not None and not plan.card.base.from_scratch:
        # With this file the base is itself the result of a training run.
        if (base.folder / RUN_FILE).is_file():
            # ``unknown`` for a task that the record does not have.
            lookups.append(TrainedRun.read(base.folder).overlap_with)
        else:
            overlap_of_base = _find_overlap_in_cards(plan, base)
            lookups.append(lambda task: overlap_of_base)
    return {
        matches.task: max(
            [matches.overlap, *(lookup(matches.task) for lookup in lookups)],
            key=OVERLAP_ORDER.index,
        )
        for matches in find_overlap(corpus, tasks)
    }


def _find_overlap_in_cards(plan: TrainPlan, checkpoint: Checkpoint) -> Overlap:
    """Look up in the cards of encoders how much test text a checkpoint has been trained on.

    A card describes a known encoder; the catalogue finds cards by their names.

    Args:
        plan: The plan of a training; its ``base``, what the user wants to start from, may be the
            name of a card, an id on the Hugging Face Hub or a folder.
        checkpoint: The checkpoint that training starts from.

    Returns:
        The overlap in the card that the user names; or else the worst overlap in the cards with the
        same model or the same weights; ``unknown`` if there is no such card.
    """
    catalogue = plan.catalogue
    # "baselines" are the cards of encoders, by name.
    if plan.base in catalogue.paths("baselines"):
        return catalogue.encoder(plan.base).overlap
    model = plan.base or plan.card.base.model
    # SHA-256 of the file of weights, model.safetensors; empty if its name is another one.
    weights_hash = checkpoint.file_hashes().get("weights/model.safetensors", "")
    overlaps: list[Overlap] = []
    for card in map(catalogue.encoder, catalogue.paths("baselines")):
        # The cards of other kinds do not name a checkpoint that training could start from.
        if card.kind not in ("transformer", "sentence_transformer"):
            continue
        hashes = card.params.get("sha256")
        card_hash = hashes.get("model.safetensors") if isinstance(hashes, Mapping) else None
        has_weights = bool(weights_hash) and card_hash == weights_hash
        has_model = bool(model) and card.params.get("model") == model
        if has_weights or has_model:
            overlaps.append(card.overlap)
    # From the best to the worst: none, unknown, text (test sentences were read), gold (their scores
    # too).
    return max(overlaps, key=OVERLAP_ORDER.index, default="unknown")

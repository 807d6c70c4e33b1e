"""Recipes as records: what a card in ``trainers/`` may say, read strictly."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from stsbench.cards.strict import Record

Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Beta = Annotated[float, Meta(ge=0, lt=1)]

Reproducible = Literal["weights", "trainable", "objective", "quoted"]
REPRODUCIBLE = {
    "weights": "the weights are published: scores agree up to rounding",
    "trainable": "trained or fitted here by the published settings: scores agree up to the deviation of seeds",
    "objective": "the objective is here, the paper's data or settings are not to be had: scores differ",
    "quoted": "neither weights nor method are here: printed scores only",
}


DECIDING = ("method", "base", "data", "student", "training", "selection", "params")
"""The parts of a recipe that decide what is trained; the others describe it."""


class BaseFacts(Record, frozen=True, kw_only=True):
    """What training starts from: a checkpoint, or its configuration alone."""

    model: str = ""
    revision: str = "unpinned"
    recipe: str = ""
    """A recipe whose trained encoder of the same seed is the start, instead of ``model``."""
    sha256: dict[str, str] = {}
    from_scratch: bool = False
    layers: Count | None = None
    """Keep the first so many layers; default all."""
    fresh_language_head: bool = False
    """A checkpoint without a masked language model head is given a fresh one; else that is an error."""
    note: str = ""


class StudentFacts(Record, frozen=True, kw_only=True):
    """How embeddings are made in training and in tests."""

    pooling: str = "mean"
    test_pooling: str = ""
    max_length: Count | None = None
    dropout: Beta | None = None
    head: Literal["fresh", "checkpoint"] = "fresh"


class CorpusFacts(Record, frozen=True, kw_only=True):
    """What is learned from: a corpus by its logical name or file, and how much of it."""

    corpus: str
    where: str = ""
    """Take the rows of which this holds, before all else: ``label = entailment``, ``score >= 4``."""
    form: str = ""
    """Make labelled pairs rows of this form, one of those in ``data/corpora/choosing.py``: ``pairs``, ``triplets``, …"""
    rows: Count | None = None
    """Take this many rows, drawn by the seed; default all."""
    upsample: bool = False
    """Repeat the rows that are drawn until they are about as many as they were drawn from (ConSERT's figure 6)."""
    max_words: int | None = None
    """Leave out rows that have a text of more words than this, before ``rows`` are drawn."""
    sentences: bool = False
    """Take the distinct texts of all columns as sentences, instead of the rows."""


class TrainingFacts(Record, frozen=True, kw_only=True):
    """Optimiser, schedule and batches. Rates are a step's; ``warmup`` is a share of the schedule's steps."""

    batch_size: Count
    learning_rate: Positive
    head_rate: Positive = 1.0
    """The rate of what the method adds to the student, and drops after training, as a multiple of ``learning_rate``."""
    epochs: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    steps: Count | None = None
    schedule: str = "linear"
    """One of the schedules of ``training/loop/optimisers.py``."""
    schedule_steps: Count | None = None
    """The steps that ``schedule`` and ``warmup`` reckon with; default those that are taken."""
    warmup: Share = 0.0
    milestones: list[Annotated[int, Meta(ge=0)]] = []
    """For ``piecewise``: the steps from which each of ``rates`` holds."""
    rates: list[Positive] = []
    optimiser: str = "adamw"
    """One of the optimisers there."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    epsilon: NotNegative = 1e-8
    weight_decay: NotNegative = 0.0
    clip: NotNegative = 1.0
    accumulate: Count = 1
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    chunk: Count | None = None
    """So many texts go through the model at a time: the loss and gradient of the whole batch in the memory of these."""
    checkpointing: bool = False
    """Keep of each layer its input alone, and compute it again for its gradient."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    drop_last: bool = False


class SelectionFacts(Record, frozen=True, kw_only=True):
    """Which weights are kept: validated every so many steps on a development split."""

    every: Count = 125
    task: str = "stsb"
    split: str = "validation"
    measure: str = "cosine"
    """What Spearman is of, one of the measures of ``recipes/prepare.py``: ``best_of_four``, the best of cosine, dot product, Manhattan and Euclidean
    distance at each validation, is what sentence-transformers did while SBERT and IS-BERT were trained."""
    validation_pooling: str = ""
    """How embeddings are made for validation; default as in tests (ConSERT selects on the last layer, and tests on two)."""
    keep: Literal["best", "last"] = "best"
    at_start: bool = False
    at_epoch_end: bool = False
    at_end: bool = True
    """Validate after the last step too. What has no other validation has this one, and so has ``keep = "last"``."""
    restart_each_epoch: bool = False
    """Count ``every`` anew in each epoch (ConSERT)."""
    patience: Annotated[int, Meta(ge=0)] = 0
    """Stop after this many validations without a gain; 0 never."""
    patience_counts: Literal["since_best", "declines"] = "since_best"
    """``declines``: every score below the one before counts, and none is forgiven (SG-OPT's code)."""


class RecipeCard(Record, frozen=True, kw_only=True):
    """A trained encoder: method, start, text and hyperparameters, with the source of each."""

    name: str
    method: str
    paper: str
    preset: str
    """Whose configuration it is: the paper's, the released code's, or our own, and where they differ."""
    supervision: Literal["none", "nli", "sts", "pairs", "translation"]
    backbone: str
    base: BaseFacts
    data: CorpusFacts
    training: TrainingFacts
    student: StudentFacts = StudentFacts()
    selection: SelectionFacts = SelectionFacts()
    params: dict[str, Any] = {}
    seeds: list[Annotated[int, Meta(ge=0, lt=1 << 32)]] = []
    """Those of the released command, or as many as the printed means are over."""
    label: str = ""
    """The method's name in tables; default its id."""
    note: str = ""
    reproducible: Literal["trainable", "objective"] = "trainable"
    """Whether the published settings and data can be had, see ``REPRODUCIBLE``."""
    published: list[str] = []
    """Keys of the published rows that it is to give, ``paper/table/row``."""

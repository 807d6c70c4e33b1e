"""What a method is: the seam between what is learned and the loop that does the learning."""

# No annotations from __future__: a method's module need not know the type of the inherited field ``student``.
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, dataclass_transform

import msgspec
import numpy as np
import numpy.typing as npt
import torch

from stsbench.core.errors import TrainingError
from stsbench.core.files import append_line, write_atomically
from stsbench.encoders.base import Encoder, FloatArray
from stsbench.encoders.runs import CURVE_FILE
from stsbench.training.loop.gather import gather_pairs, gather_views, joint_mean
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.student import Student, save_student

Rows = npt.NDArray[np.int64]
"""Places of some rows of a corpus, (b,)."""
Batch = dict[str, Any]
"""Tensors by name, or dicts of them; the loop moves them to the device."""
Losses = dict[str, torch.Tensor]
"""``loss``, a scalar, and beside it any parts of it worth watching."""
Taught = Callable[[Rows], FloatArray]
"""Rows of a corpus (b,) to a teacher's embeddings of their texts, (b, d)."""
Columns = Mapping[str, Sequence[Any]]
"""A corpus: equally long columns of texts, labels or document numbers by name."""
Validate = Callable[[Encoder], float]
"""An encoder to its score on a development split, the higher the better; see :class:`DevelopmentScore`."""

HiddenShare = Annotated[float, msgspec.Meta(gt=0, le=1)]
Size = Annotated[int, msgspec.Meta(ge=0)]


class DevelopmentScore(float):
    """A score, and what else the embeddings of the development split tell: numbers by name, for the curve."""

    seen: Mapping[str, float] = MappingProxyType({})


def seen_with(score: float) -> Mapping[str, float]:
    """What was seen beside a score; nothing where whoever validates gives a plain number."""
    return score.seen if isinstance(score, DevelopmentScore) else {}


def selection_key(score: float) -> float:
    """What the best of several scores is chosen by: NaN, from weights that broke down, is below every other score."""
    return -math.inf if math.isnan(score) else score


Point = Mapping[str, Any]
"""What was seen at one validation: numbers by name, ``step`` among them."""


@dataclass(frozen=True)
class TrainingProgress:
    """How far a run is."""

    step: int
    steps: int
    loss: float
    score: float | None
    best: float | None
    kept: float | None = None
    """The score of the weights that are kept, where they are chosen by something else."""
    point: Point | None = None
    """What was seen at the validation that this step ended with, if it did."""


OnProgress = Callable[[TrainingProgress], None]
"""Called with how a run goes, once a step."""


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """How a run went: the curve, and which point of it was kept."""

    curve: list[dict[str, Any]] = field(default_factory=list)
    chosen: dict[str, float] | None = None
    steps: int = 0
    seconds: float = 0.0
    """That the whole training took, where a trainer counts them."""


def open_curve(folder: Path, points: Sequence[Point] = ()) -> Callable[[Point], None]:
    """Begin the file of a run's curve with the points of before a checkpoint; what is returned writes one more."""
    path = folder / CURVE_FILE
    if points:
        write_atomically(path, "".join(f"{json.dumps(point)}\n" for point in points).encode())
    else:
        # A run that fails before its first point leaves nothing.
        path.unlink(missing_ok=True)
    return lambda point: append_line(path, json.dumps(point))


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class _Traits(torch.nn.Module, ABC):
    """What the loop asks of a method before it runs; fields of a class below are its parameters, as of a dataclass."""

    trainer: ClassVar[str] = "loop"
    """Which trainer it needs."""
    needs: tuple[str, ...] = ("text",)
    """The columns of a corpus that it learns from."""
    chunks: bool = False
    """Whether the loss is a function of what the student's ``embed`` and ``guessing_loss`` return, and of weights:
    then a batch may be run in chunks (``chunk`` in ``[training]``)."""
    made_ahead: bool = True
    """Whether other processes can make its batches: ``collate`` runs no model and reads no open file."""
    by_dropout: bool = False
    """Whether the two views of a sentence differ by their dropout alone."""
    batch_negatives: str = ""
    """Where a sentence's negatives are the others of its batch: ``own``, that of its process, or ``joint``, that of all."""
    teachers: Sequence[str] = ()
    """The encoders whose embeddings of its texts it learns from, by name; what gives them is set as ``taught``."""

    _apart: Sequence[tuple[torch.nn.Module, bool]] = ()

    def __new__(cls, *args: Any, **params: Any) -> Self:  # noqa: ANN401 - what __init__ takes
        """Make a module, so that fields can be set."""
        made = super().__new__(cls)
        torch.nn.Module.__init__(made)
        return made

    def __init_subclass__(cls) -> None:
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        # Else it would be that of __new__.
        own = inspect.signature(cls.__init__)
        cls.__signature__ = own.replace(parameters=[*own.parameters.values()][1:])  # type: ignore[attr-defined]


class Learner(_Traits):
    """A method at work: a student with whatever else is trained beside it.

    One class, one method. Its parameters are its fields, or those of its ``__init__`` after the student, checked
    against a recipe's ``[params]`` by their types. The order of calls: ``__init__``, ``prepare`` once, then for each
    batch ``collate`` and ``forward``, in between ``encoders`` for validation, and at the end ``save``.
    """

    student: Student = field(kw_only=False)

    @classmethod
    def wants_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Whether the student must come with its masked language model head: with these, ``mlm_weight`` is not 0."""
        return bool(params.get("mlm_weight", getattr(cls, "mlm_weight", 0)))

    def prepare(self, columns: Columns) -> None:
        """Take the corpus. Its texts are tokenised a batch at a time: of a million, no more than a run reads."""
        self.columns = columns
        self.taught: Sequence[Taught]

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """The order of the corpus's rows in one epoch, (count,); by default shuffled.

        The first ``batch`` rows make the first batch of all ranks together, and so on.
        """
        return rng.permutation(count)

    def inputs(self, names: Sequence[str], rows: Rows) -> Batch:
        """Model inputs of some columns for some rows, the columns one below the other: (len(names) * b, t)."""
        each = list(dict.fromkeys(names))
        tokens = self.student.tokenize(
            [text for name in each for text in self.texts_of(rows, name)]
        )
        places = [np.arange(len(rows)) + each.index(name) * len(rows) for name in names]
        return self.student.collate(tokens, np.concatenate(places))

    views = inputs
    """The same; some methods have a parameter of this name."""

    def texts_of(self, rows: Rows, name: str = "text") -> list[str]:
        """The texts of a column in some rows."""
        return [self.columns[name][row] for row in rows.tolist()]

    def made_inputs(self, texts: Sequence[str]) -> Batch:
        """Model inputs (b, t) of texts that a method has made."""
        return self.student.collate(self.student.tokenize(texts), np.arange(len(texts)))

    def hide(
        self, tokens: Mapping[str, torch.Tensor], rng: np.random.Generator, *, rate: float
    ) -> Batch:
        """Hide a share of a batch's tokens for :meth:`guessing_loss`, each drawn by itself, none of them special ones.

        Of those 80% become the mask, 10% a random token, 10% stay (Devlin et al. 2019, section 3.1). Returns the batch
        with new ids, and the labels (b, t): the true id where one was chosen, else -100.
        """
        tokenizer, ids = self.student.backbone.tokenizer, tokens["input_ids"]
        maskable = tokens["attention_mask"].bool() & ~torch.isin(
            ids, torch.tensor(sorted(tokenizer.all_special_ids))
        )
        chosen = torch.from_numpy(rng.random(ids.shape) < rate) & maskable
        fate = torch.from_numpy(rng.random(ids.shape))
        random_ids = torch.from_numpy(rng.integers(0, len(tokenizer), ids.shape))
        hidden = torch.where(chosen & (fate < 0.8), tokenizer.mask_token_id, ids)
        hidden = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, hidden)
        return {**tokens, "input_ids": hidden, "labels": torch.where(chosen, ids, IGNORED)}

    def guessing_loss(self, hidden: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The mean cross-entropy of guessing the tokens that :meth:`hide` hid, of all ranks; 0 where none is hidden."""
        model: Any = self.student.language_model

        def lose(part: Tokens) -> torch.Tensor:
            states = model.base_model(
                input_ids=part["input_ids"], attention_mask=part["attention_mask"]
            )
            return row_losses(model, states.last_hidden_state, part["labels"])

        losses = self.student.by_length(hidden, lose, model.base_model)
        return mean_of_rows(losses, hidden["labels"])

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of some rows of the corpus; by default the columns that it needs one below the other, as ``views``.

        Every draw comes from ``rng``, which the loop seeds by run and batch: a resumed run sees the very same batches.
        """
        return {"views": self.inputs(self.needs, rows)}

    @abstractmethod
    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return ``loss``, a scalar, and beside it any parts of it worth watching."""

    def set_apart(self, module: torch.nn.Module, *, dropout: bool) -> None:
        """Give a module dropout in training or none, whatever the others have."""
        self._apart = (*self._apart, (module, dropout))
        module.train(self.training and dropout)

    def train(self, mode: bool = True) -> Self:
        """As every module, but for those that are set apart."""
        super().train(mode)
        for module, dropout in self._apart:
            module.train(mode and dropout)
        return self

    def encoders(self) -> list[Encoder]:
        """The encoders among which validation chooses; nearly always the one student."""
        return [self.student.encoder()]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the ``chosen`` one of :meth:`encoders` as a folder that ``load_encoder`` opens."""
        save_student(self.student, folder)


class ContrastiveLearner(Learner):
    """A method whose negatives are the other sentences of all processes' batch, by their embeddings alone."""

    chunks = True
    batch_negatives = "joint"

    def embed_views(
        self, tokens: Tokens, views: int = 2, *, second: Student | None = None
    ) -> list[torch.Tensor]:
        """The embeddings of views that stand one below the other, each (ranks * b, h).

        All but the first are by a ``second`` student, where there is one.
        """
        if second is None:
            return gather_pairs(self.student.embed(tokens), views)
        rows = len(tokens["input_ids"]) // views
        first, others = rows_of(tokens, slice(rows)), rows_of(tokens, slice(rows, None))
        return [
            gather_views(self.student.embed(first)),
            *gather_pairs(second.embed(others), views - 1),
        ]


def check_losses(
    losses: Any,  # noqa: ANN401 - what a user's method returns
    method: torch.nn.Module,
) -> Losses:
    """Return the losses that a method's ``forward`` has returned.

    Raises:
        TrainingError: They are no dict with ``loss``, one is no scalar, or nothing that is trained
            has made the loss.
    """
    forward = f"method {type(method).__name__}: forward returns"
    if not isinstance(losses, Mapping):
        raise TrainingError(f"{forward} a {type(losses).__name__}; return a dict with 'loss'")
    if "loss" not in losses:
        names = ", ".join(map(str, losses)) or "nothing"
        raise TrainingError(f"{forward} a dict of {names}; return one with 'loss'")
    for name, loss in losses.items():
        if not isinstance(loss, torch.Tensor):
            kind = f"of type {type(loss).__name__}"
        elif loss.numel() != 1:
            kind = f"of the shape {tuple(loss.shape)}"
        else:
            continue
        remedy = "return a tensor of one number, as its mean"
        raise TrainingError(f"{forward} '{name}' {kind}; {remedy}")
    if not losses["loss"].requires_grad:
        remedy = "make it from what self.student.embed returns"
        raise TrainingError(f"{forward} a 'loss' without gradient; {remedy}")
    return dict(losses)


def rows_of(tokens: Tokens, rows: slice | torch.Tensor) -> Tokens:
    """Some rows of a batch."""
    return {name: values[rows] for name, values in tokens.items()}


def weighted_sum(parts: Losses, weights: Mapping[str, float]) -> Losses:
    """A ``loss`` made of several, each times its weight, 1 by default; and beside it the parts."""
    return {
        "loss": torch.stack([weights.get(name, 1.0) * part for name, part in parts.items()]).sum(),
        **parts,
    }


IGNORED = -100


def row_losses(model: Any, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """The cross-entropy of each text's hidden tokens, summed: from last hidden states (b, t, h) and labels (b, t), (b,)."""
    hidden = labels != IGNORED
    logits = language_model_head(model)(states[hidden]).float()
    each = torch.nn.functional.cross_entropy(logits, labels[hidden], reduction="none")
    return torch.zeros(labels.shape, device=each.device).masked_scatter(hidden, each).sum(dim=1)


def mean_of_rows(losses: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over the hidden tokens of all ranks, from :func:`row_losses` (b,) and the labels (b, t)."""
    return joint_mean(losses.sum(), (labels != IGNORED).sum())


def language_model_head(model: Any) -> Any:  # noqa: ANN401
    """The part of a masked language model that goes from hidden states to logits."""
    for name in ("cls", "lm_head", "predictions"):
        if (head := getattr(model, name, None)) is not None:
            return head
    if hasattr(model, "vocab_transform"):  # DistilBERT has its head in pieces
        return torch.nn.Sequential(
            model.vocab_transform, model.activation, model.vocab_layer_norm, model.vocab_projector
        )
    raise TypeError(f"{type(model).__name__} has no masked language model head that is known")

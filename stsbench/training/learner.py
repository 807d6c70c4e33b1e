"""The interface between what is learned, a method, and the training loop."""

# No annotations from __future__: a method's module need not know the type of the inherited field
# ``student``.
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
from stsbench.training.loop.gather import gather_over_ranks, gather_pairs, mean_over_ranks
from stsbench.training.loop.on_cpu import Tokens
from stsbench.training.saving import save_student
from stsbench.training.student import Student

Rows = npt.NDArray[np.int64]
"""The indices of some rows of a corpus, (b,)."""
Batch = dict[str, Any]
"""Tensors by name, or dicts of them; the loop moves them to the device."""
Losses = dict[str, torch.Tensor]
"""``loss``, a scalar, and any parts of it worth recording."""
TeacherEmbeddings = Callable[[Rows], FloatArray]
"""A function from rows of a corpus (b,) to a teacher's embeddings of their texts, (b, d)."""
Columns = Mapping[str, Sequence[Any]]
"""A corpus: equally long columns of texts, labels or document numbers by name."""
Validate = Callable[[Encoder], float]
"""A function from an encoder to its score on a development split, the higher the better; see
:class:`DevelopmentScore`."""

HiddenShare = Annotated[float, msgspec.Meta(gt=0, le=1)]
Size = Annotated[int, msgspec.Meta(ge=0)]


class DevelopmentScore(float):
    """A score, and measures of the embeddings of the development split for the curve."""

    measures: Mapping[str, float] = MappingProxyType({})
    """Further measures by name, for example ``uniformity``."""


def extra_measures(score: float) -> Mapping[str, float]:
    """Return the measures beside a score; empty if validation returned a plain number."""
    return score.measures if isinstance(score, DevelopmentScore) else {}


def selection_key(score: float) -> float:
    """Return the key by which the best of several scores is chosen.

    NaN, the score of weights that diverged, is below every other score.
    """
    return -math.inf if math.isnan(score) else score


Point = Mapping[str, Any]
"""The numbers of one validation by name, including ``step``."""


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a training run after a step."""

    step: int
    steps: int
    loss: float
    score: float | None
    best: float | None
    kept: float | None = None
    """The score of the weights that are stored, if they are selected by another measure."""
    point: Point | None = None
    """The point of the validation after this step; None if there was none."""


OnProgress = Callable[[TrainingProgress], None]
"""A function that is called with the progress of a run after every step."""


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """The outcome of a training run: the curve, and the point of it that was selected."""

    curve: list[dict[str, Any]] = field(default_factory=list)
    selected_point: dict[str, float] | None = None
    steps: int = 0
    seconds: float = 0.0
    """The duration of the whole training; 0 if the trainer does not measure it."""


def open_curve(folder: Path, points: Sequence[Point]) -> Callable[[Point], None]:
    """Begin the curve file of a run, and return a function that appends a point to it.

    A point is the numbers of one validation by name; it becomes one line of JSON.

    Args:
        folder: The folder of the run.
        points: The points until the checkpoint that the run is resumed from, which replace those
            in the file; empty for a new run.
    """
    path = folder / CURVE_FILE
    if points:
        write_atomically(path, "".join(f"{json.dumps(point)}\n" for point in points).encode())
    else:
        # Delete the file of an earlier run; the first point creates the new one.
        path.unlink(missing_ok=True)
    return lambda point: append_line(path, json.dumps(point))


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class _Traits(torch.nn.Module, ABC):
    """Properties of a method that the loop reads before it runs.

    The fields of a subclass are its parameters, as for a dataclass.
    """

    trainer: ClassVar[str] = "loop"
    """The name of the trainer that it needs."""
    needs: tuple[str, ...] = ("text",)
    """The columns of a corpus that it learns from."""
    chunks: bool = False
    """Whether the loss depends only on weights and on the results of the student's ``embed`` and
    ``hidden_token_loss``; then a batch may be run in chunks (``chunk`` in ``[training]``)."""
    made_ahead: bool = True
    """Whether other processes can make its batches: ``collate`` runs no model and reads no open
    file."""
    views_by_dropout: bool = False
    """Whether the two views of a sentence differ by their dropout alone."""
    batch_negatives: str = ""
    """The batch whose other sentences are a sentence's negatives: ``own``, that of its process, or
    ``joint``, that of all processes; empty if there are no such negatives."""
    teachers: Sequence[str] = ()
    """The names of the encoders whose embeddings of its texts it learns from; the functions that
    return the embeddings are set as ``teacher_embeddings``."""

    _dropout_settings: Sequence[tuple[torch.nn.Module, bool]] = ()
    """Modules with a dropout setting of their own, and whether they have dropout in training."""

    def __new__(cls, *args: Any, **params: Any) -> Self:  # noqa: ANN401 - what __init__ takes
        """Initialise the module first, so that fields can be set."""
        module = super().__new__(cls)
        torch.nn.Module.__init__(module)
        return module

    def __init_subclass__(cls) -> None:
        """Make a subclass a dataclass: its fields are the parameters of the method."""
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        # Otherwise the signature would be that of __new__.
        signature = inspect.signature(cls.__init__)
        cls.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]


class Learner(_Traits):
    """A method during training: a student with whatever else is trained with it.

    One class is one method. Its parameters are its fields, or those of its ``__init__`` after the
    student, checked against a recipe's ``[params]`` by their types. The order of calls:
    ``__init__``, ``prepare`` once, then for each batch ``collate`` and ``forward``, in between
    ``encoders`` for validation, and at the end ``save``.
    """

    student: Student = field(kw_only=False)

    @classmethod
    def needs_language_model(cls, params: Mapping[str, Any]) -> bool:
        """Return whether the student needs its masked language model head.

        It does if ``mlm_weight`` is not 0 in these parameters.
        """
        return bool(params.get("mlm_weight", getattr(cls, "mlm_weight", 0)))

    def prepare(self, columns: Columns) -> None:
        """Store the corpus; called once before training.

        No text is tokenised here: each batch tokenises its own, so that of a million texts only
        those are tokenised that the run uses.

        Args:
            columns: Equally long columns of texts, labels or document numbers by name.
        """
        self.columns = columns
        # Only declared here. If the method has teachers, the trainer sets it after this call and
        # before the first batch: one function per teacher, from rows of the corpus to the teacher's
        # embeddings.
        self.teacher_embeddings: Sequence[TeacherEmbeddings]

    def order(self, count: int, rng: np.random.Generator, *, batch: int) -> Rows:
        """Return the order of the corpus's rows in one epoch, (count,); by default shuffled.

        The first ``batch`` rows make the first batch, the next ``batch`` rows the second, and so
        on; several training processes (ranks) divide each batch among them.

        Args:
            count: The number of rows of the corpus.
            rng: The generator of the order.
            batch: The number of rows of a batch of all ranks together; the default does not use
                it.
        """
        return rng.permutation(count)

    def inputs(self, names: Sequence[str], rows: Rows) -> Batch:
        """Tokenise the texts of columns in some rows into one batch of model inputs.

        Args:
            names: The names of the columns; one that is named twice is tokenised once.
            rows: The indices of the rows of the corpus, (b,).

        Returns:
            The token ids and the attention mask by name, each (len(names) * b, t): the b rows of
            the first column, then those of the next.
        """
        distinct_names = list(dict.fromkeys(names))
        texts: list[str] = []
        for name in distinct_names:
            texts += self.texts_of(rows, name)
        # The token ids of each text; ``collate`` below pads those at some indices into a batch.
        tokens = self.student.tokenize(texts)
        # For each row of the batch, the index of its text in ``texts``.
        text_indices = []
        for name in names:
            # The texts of the i-th distinct column are at indices i * len(rows) and after.
            first_index = distinct_names.index(name) * len(rows)
            text_indices.append(np.arange(first_index, first_index + len(rows)))
        return self.student.collate(tokens, np.concatenate(text_indices))

    views = inputs
    """An alias of :meth:`inputs` for users' methods; some methods have a parameter of this name."""

    def texts_of(self, rows: Rows, name: str = "text") -> list[str]:
        """Return the texts of a column of the corpus in some rows.

        Args:
            rows: The indices of the rows, (b,).
            name: The name of the column, which ``self.columns`` has as a sequence of texts.
        """
        return [self.columns[name][row] for row in rows.tolist()]

    def inputs_of_texts(self, texts: Sequence[str]) -> Batch:
        """Return the model inputs (b, t) of texts that are not in the corpus."""
        return self.student.collate(self.student.tokenize(texts), np.arange(len(texts)))

    def hide_tokens(
        self, tokens: Mapping[str, torch.Tensor], rng: np.random.Generator, *, rate: float
    ) -> Batch:
        """Hide a share of a batch's tokens, which a model then learns to guess (BERT's task).

        Every token but the special ones ([CLS], [SEP] and so on) is chosen with probability
        ``rate``. Of the chosen tokens 80% are replaced by the mask token, 10% by a random token,
        and 10% stay (Devlin et al. 2019, section 3.1).

        Args:
            tokens: The model inputs by name, (b, t) each.
            rng: The generator of all draws.
            rate: The probability that a token is chosen.

        Returns:
            The model inputs with new ids, and ``labels`` (b, t): the true id of each chosen token,
            and -100 at all other positions, which the loss ignores.
        """
        tokenizer = self.student.backbone.tokenizer
        # (b, t), as all tensors below but ``special_ids``.
        ids = tokens["input_ids"]
        special_ids = torch.tensor(sorted(tokenizer.all_special_ids))
        is_maskable = tokens["attention_mask"].bool() & ~torch.isin(ids, special_ids)
        is_chosen = torch.from_numpy(rng.random(ids.shape) < rate) & is_maskable
        # Below 0.8: the mask token; from 0.8 to 0.9: a random token; above: the token stays.
        replacement_draws = torch.from_numpy(rng.random(ids.shape))
        random_ids = torch.from_numpy(rng.integers(0, len(tokenizer), ids.shape))
        hidden_ids = torch.where(
            is_chosen & (replacement_draws < 0.8), tokenizer.mask_token_id, ids
        )
        is_random = is_chosen & (replacement_draws >= 0.8) & (replacement_draws < 0.9)
        hidden_ids = torch.where(is_random, random_ids, hidden_ids)
        return {
            **tokens,
            "input_ids": hidden_ids,
            "labels": torch.where(is_chosen, ids, IGNORED_LABEL),
        }

    def hidden_token_loss(self, hidden: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Compute the mean cross-entropy of the student's guesses at hidden tokens, a scalar.

        The mean is over the hidden tokens of all training processes; it is 0 if none is hidden.

        Args:
            hidden: The batch that :meth:`hide_tokens` has returned: model inputs and ``labels``,
                (b, t) each. A label is the true id of a hidden token, and -100 elsewhere.
        """
        # The transformer with its head for this task; ``base_model`` is the one without the head.
        model: Any = self.student.language_model

        def compute_losses(batch_part: Tokens) -> torch.Tensor:
            """Return for each row of a part of the batch the sum of its tokens' losses."""
            states = model.base_model(
                input_ids=batch_part["input_ids"], attention_mask=batch_part["attention_mask"]
            )
            return label_loss_sums(model, states.last_hidden_state, batch_part["labels"])

        # (b,): the batch is computed in parts of similar length, to save time and memory, unless
        # ``base_model`` computes no padding anyway.
        loss_sums = self.student.compute_in_parts(hidden, compute_losses, model.base_model)
        return mean_label_loss(loss_sums, hidden["labels"])

    def collate(self, rows: Rows, rng: np.random.Generator) -> Batch:
        """Make a batch of some rows of the corpus, by default the needed columns as ``views``.

        The columns are one below the other. Every draw comes from ``rng``, which the loop seeds by
        run and batch: a resumed run has the very same batches.
        """
        return {"views": self.inputs(self.needs, rows)}

    @abstractmethod
    def forward(self, **batch: Any) -> Losses:  # noqa: ANN401 - what collate made
        """Return ``loss``, a scalar, and any parts of it worth recording."""

    def set_dropout(self, module: torch.nn.Module, *, dropout: bool) -> None:
        """Set whether a module has dropout in training, independently of the other modules.

        A module without dropout stays in torch's evaluation mode, even while the method is trained.
        The setting is applied now, and stored: :meth:`train` applies it again at each change of the
        mode.

        Args:
            module: A part of the method.
            dropout: Whether it has dropout.
        """
        # A new tuple, as the class's default is shared by all methods.
        self._dropout_settings = (*self._dropout_settings, (module, dropout))
        module.train(self.training and dropout)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of every module, except where :meth:`set_dropout` decides."""
        super().train(mode)
        for module, dropout in self._dropout_settings:
            module.train(mode and dropout)
        return self

    def encoders(self) -> list[Encoder]:
        """Return the encoders among which validation chooses; nearly always only the student."""
        return [self.student.encoder()]

    def save(self, folder: Path, *, chosen: int = 0) -> None:
        """Write the trained encoder, the student, as a folder that ``load_encoder`` can load.

        Args:
            folder: The folder to write.
            chosen: The index in :meth:`encoders` of the encoder to write, for methods that have
                several; here there is the student alone, so it is not used.
        """
        save_student(self.student, folder)


class ContrastiveLearner(Learner):
    """A method whose negatives are the other sentences of the batch of all processes.

    Its loss depends on their embeddings alone.
    """

    chunks = True
    batch_negatives = "joint"

    def embed_views(
        self, tokens: Tokens, views: int = 2, *, second: Student | None = None
    ) -> list[torch.Tensor]:
        """Embed the views of a batch's sentences, and join each view over all training processes.

        A view is one of the forms in which the loss compares a sentence, for example with another
        dropout mask, or its paraphrase.

        Args:
            tokens: The model inputs by name, (views * b, t) each: the b rows of one view, then
                those of the next.
            views: The number of views.
            second: Another encoder in training, which embeds all views but the first; None if
                ``self.student`` embeds all.

        Returns:
            The embeddings of each view, (ranks * b, h), with ``ranks`` the number of processes.
        """
        # ``gather_pairs`` splits rows into so many views, and joins each over all processes.
        if second is None:
            return gather_pairs(self.student.embed(tokens), views)
        rows_per_view = len(tokens["input_ids"]) // views
        first_view = select_rows(tokens, slice(rows_per_view))
        other_views = select_rows(tokens, slice(rows_per_view, None))
        return [
            gather_over_ranks(self.student.embed(first_view)),
            *gather_pairs(second.embed(other_views), views - 1),
        ]


def check_losses(
    losses: Any,  # noqa: ANN401 - what a user's method returns
    method: torch.nn.Module,
) -> Losses:
    """Check the losses that a method's ``forward`` has returned, and return them as a dict.

    Valid losses are a mapping from names to tensors of one number, with the name ``loss`` among
    them; ``loss`` must have a gradient.

    Args:
        losses: The value that ``forward`` has returned.
        method: The method, for messages.

    Raises:
        TrainingError: The losses are not valid.
    """
    prefix = f"method {type(method).__name__}: forward returns"
    if not isinstance(losses, Mapping):
        raise TrainingError(f"{prefix} a {type(losses).__name__}; return a dict with 'loss'")
    if "loss" not in losses:
        names = ", ".join(map(str, losses)) or "nothing"
        raise TrainingError(f"{prefix} a dict of {names}; return one with 'loss'")
    for name, loss in losses.items():
        if not isinstance(loss, torch.Tensor):
            description = f"of type {type(loss).__name__}"
        elif loss.numel() != 1:
            description = f"of the shape {tuple(loss.shape)}"
        else:
            continue
        advice = "return a tensor of one number, as its mean"
        raise TrainingError(f"{prefix} '{name}' {description}; {advice}")
    if not losses["loss"].requires_grad:
        advice = "make it from what self.student.embed returns"
        raise TrainingError(f"{prefix} a 'loss' without gradient; {advice}")
    return dict(losses)


def select_rows(tokens: Tokens, rows: slice | torch.Tensor) -> Tokens:
    """Return some rows of all model inputs of a batch.

    Args:
        tokens: The model inputs by name, (b, t) each.
        rows: A slice of rows, or their indices (b',).
    """
    return {name: values[rows] for name, values in tokens.items()}


def with_weighted_sum(parts: Losses, weights: Mapping[str, float]) -> Losses:
    """Return losses by name, with their weighted sum added under the name ``loss``.

    Args:
        parts: The losses by name, scalars.
        weights: Their weights by name; 1 for a loss that is not named.
    """
    weighted_losses = [weights.get(name, 1.0) * loss for name, loss in parts.items()]
    return {"loss": torch.stack(weighted_losses).sum(), **parts}


IGNORED_LABEL = -100
"""The label at positions where no token is to be guessed, as in transformers."""


def label_loss_sums(model: Any, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
    """Compute for each text the sum of the cross-entropies of the tokens to guess, (b,).

    Args:
        model: A masked language model of transformers.
        states: Its last hidden states (b, t, h).
        labels: The ids of the tokens to guess (b, t), -100 at all other positions.
    """
    has_label = labels != IGNORED_LABEL
    # The head computes a logit for each token of the vocabulary from a hidden state.
    logits = language_model_head(model)(states[has_label]).float()
    token_losses = torch.nn.functional.cross_entropy(logits, labels[has_label], reduction="none")
    # Each token's loss goes back to its text and position, with 0 elsewhere, (b, t).
    losses = torch.zeros(labels.shape, device=token_losses.device)
    return losses.masked_scatter(has_label, token_losses).sum(dim=1)


def mean_label_loss(loss_sums: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean loss over the guessed tokens of all training processes, a scalar.

    It is 0 if there are no such tokens.

    Args:
        loss_sums: For each text of this process the sum of its tokens' losses, (b,).
        labels: The ids of the guessed tokens (b, t), -100 at all other positions.
    """
    n_labels = (labels != IGNORED_LABEL).sum()
    return mean_over_ranks(loss_sums.sum(), n_labels)


def language_model_head(model: Any) -> Any:  # noqa: ANN401
    """Return the part of a masked language model that computes logits from hidden states.

    Args:
        model: A masked language model of transformers; its class decides what the part is called.

    Raises:
        TypeError: The head has none of the names that the classes of transformers give it.
    """
    for name in ("cls", "lm_head", "predictions"):
        head = getattr(model, name, None)
        if head is not None:
            return head
    if hasattr(model, "vocab_transform"):  # The head of DistilBERT is in several modules.
        return torch.nn.Sequential(
            model.vocab_transform, model.activation, model.vocab_layer_norm, model.vocab_projector
        )
    raise TypeError(f"{type(model).__name__} has no masked language model head that is known")

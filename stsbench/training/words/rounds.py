"""Methods that train themselves in rounds: their loop, ordered text, and checkpoints."""

from __future__ import annotations

import json
import math
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.torch import save

from stsbench.core.errors import TrainingError
from stsbench.core.files import write_atomically
from stsbench.core.wording import format_count
from stsbench.encoders.kinds import ENCODERS
from stsbench.encoders.runs import STATE_FILE
from stsbench.encoders.words.words import write_word_folder
from stsbench.training.learner import (
    Columns,
    OnProgress,
    Point,
    TrainingOutcome,
    TrainingProgress,
    Validate,
    open_curve,
    read_measures,
    selection_key,
)


class WordEncoderFiles(NamedTuple):
    """An encoder as arguments of :func:`stsbench.encoders.words.words.write_word_folder`."""

    kind: str
    config: msgspec.Struct
    tensors: Mapping[str, torch.Tensor]
    params: Mapping[str, Any]
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PreparedTraining:
    """A training that is ready to start: batches, the step of learning, and the encoder."""

    tensors: Mapping[str, torch.Tensor]
    """All that is learnt, changed in place."""
    optimiser: torch.optim.Optimizer | None = None
    encoder_files: WordEncoderFiles
    batches: Callable[[], Iterable[Any]]
    """Returns the batches of one epoch, with that epoch's draws."""
    learn_batch: Callable[[Any, int], tuple[float, int]]
    """Learns from a batch, after a number of steps, and returns the summed loss and the number of
    terms in the sum."""
    steps_per_epoch: int
    tokens_per_epoch: int
    interval: int = 0
    """The number of steps between validations; 0 for those of an epoch."""
    max_steps: int | None = None
    """The number of steps after which training ends, whatever the epochs; None for no maximum."""
    examine_round: Callable[[float], tuple[float | None, Mapping[str, float]]] = lambda best: (
        None,
        {},
    )
    """Called at the end of a round with the best selection score so far; returns the selection
    score that replaces the score, or None, and measures for the curve."""
    is_finished: Callable[[], bool] = lambda: False
    """Returns whether training ends with the last round."""

    def total_steps(self, epochs: int) -> int:
        """Return the number of steps of a training of this number of epochs."""
        steps = self.steps_per_epoch * epochs
        return min(steps, self.max_steps or steps)

    def score(self, folder: Path, validate: Validate | None) -> float | None:
        """Write the current encoder into a folder and return its score.

        Args:
            folder: The folder to write.
            validate: A function that scores an encoder; None if there is none, and then no score.
        """
        write_word_folder(folder, **self.encoder_files._asdict())
        if validate is None:
            return None
        encoder_kind = ENCODERS.load(self.encoder_files.kind)
        return validate(encoder_kind(str(folder), **self.encoder_files.params))


@dataclass(frozen=True, kw_only=True)
class StandaloneMethod(ABC):
    """A method that trains itself and writes the encoder's folder.

    It is for trainings that ``transformers.Trainer`` cannot run.
    """

    trainer: ClassVar[str] = "rounds"
    """The name of the trainer that it needs."""
    needs: ClassVar[tuple[str, ...]] = ("text",)
    """The columns of a corpus that it learns from."""
    epochs: int = 1

    @abstractmethod
    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Read the corpus and draw the first weights; torch is seeded already."""

    def fit(
        self,
        columns: Columns,
        *,
        folder: Path,
        seed: int,
        validate: Validate | None = None,
        on_progress: OnProgress = lambda progress: None,
        resume: bool = False,
    ) -> TrainingOutcome:
        """Train, and write the encoder's folder, which ``load_encoder`` opens.

        The weights with the best score by ``validate`` are kept, without it the last ones. The
        folder also holds ``checkpoints`` to resume from. A resumed training has the same weights at
        its end: all draws are repeated, and the batches of earlier rounds are skipped.

        Args:
            columns: The corpus.
            folder: The folder of the encoder.
            seed: The seed of all draws.
            validate: A function that scores an encoder; None if there is none.
            on_progress: Called with the progress after every step and every round.
            resume: Continue from the last round of a training that was stopped.

        Raises:
            TrainingError: The loss is not finite, or there is nothing to learn from.
        """
        torch.manual_seed(seed)
        prepared = self.prepare(columns, seed)
        writer = _CheckpointWriter(prepared, folder, validate, resume=resume)
        interval = prepared.interval or prepared.steps_per_epoch
        total_steps = prepared.total_steps(self.epochs)
        step = writer.step
        batches: Iterator[Any] = (batch for _ in range(self.epochs) for batch in prepared.batches())
        # A resumed training may have ended by itself already.
        if step and prepared.is_finished():
            batches = iter(())
        round_loss = 0.0
        round_terms = 0
        # The earlier batches are made again and skipped: their draws must be repeated.
        for batch in islice(batches, step, total_steps):
            loss, n_terms = prepared.learn_batch(batch, step)
            mean_loss = loss / max(n_terms, 1)
            writer.check_loss(mean_loss, step)
            round_loss += loss
            round_terms += n_terms
            step += 1
            on_progress(writer.progress(step, total_steps, mean_loss))
            if step % interval == 0 or step == total_steps:
                point = writer.close(step, round_loss, round_terms)
                on_progress(writer.progress(step, total_steps, point["loss"], point))
                round_loss = 0.0
                round_terms = 0
                if prepared.is_finished():
                    break
        selected = writer.chosen if writer.chosen and writer.chosen["score"] is not None else None
        return TrainingOutcome(curve=writer.curve, chosen=selected, steps=writer.step)


class _CheckpointWriter:
    """Writes the weights with the best score, or the last ones without a score, and a checkpoint.

    The checkpoint is one file, written atomically: all that a training changes, with the state of
    the optimiser and of torch's generator.
    """

    def __init__(
        self,
        prepared: PreparedTraining,
        folder: Path,
        validate: Validate | None,
        *,
        resume: bool,
    ) -> None:
        """Restore the rounds of a training that is resumed; else begin with the first weights.

        Otherwise the checkpoints of an earlier training are removed, and the first weights are
        scored as step 0 of the curve. That score is no round's: it selects nothing.

        Args:
            prepared: The model and its data.
            folder: The folder of the encoder.
            validate: A function that scores an encoder; None if there is none.
            resume: Continue from the checkpoint in the folder, if there is one.
        """
        self.prepared = prepared
        self.folder = folder
        self.validate = validate
        self.trial = folder / "trial"
        """The folder of the weights that are scored; it is removed after each score."""
        self.curve: list[dict[str, Any]] = []
        """The points of the curve, as its file has them."""
        self.chosen: dict[str, Any] | None = None
        """The step whose weights are stored, and its score; None if none are stored yet."""
        self.best = -math.inf
        """The best selection score so far."""
        checkpoint = folder / STATE_FILE
        if resume and checkpoint.is_file():
            self._restore()
        else:
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
            score = prepared.score(self.trial, validate)
            if score is not None:
                self.curve.append({"step": 0, "score": float(score), **read_measures(score)})
        shutil.rmtree(self.trial, ignore_errors=True)
        self.write_point = open_curve(folder, self.curve)
        """A function that adds a point to the curve's file."""

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return int(self.curve[-1]["step"]) if self.curve else 0

    def check_loss(self, loss: float, step: int) -> None:
        """Raise TrainingError if the loss of a step is not finite."""
        if not math.isfinite(loss):
            raise TrainingError(
                f"the loss is {loss} at step {step}; lower the learning rate; "
                f"{self.folder} keeps the best weights so far"
            )

    def progress(
        self, step: int, steps: int, loss: float, point: Point | None = None
    ) -> TrainingProgress:
        """Return the progress after a step.

        The scores are those of the rounds so far; that of the first weights, step 0, is none of
        them.

        Args:
            step: The number of finished steps.
            steps: The number of all steps.
            loss: The mean loss of the step, or of the round that ends with it.
            point: The point of the curve, if a round ends with this step.
        """
        scores = [
            earlier["score"]
            for earlier in self.curve
            if earlier["step"] and earlier["score"] is not None
        ]
        last_score = scores[-1] if scores else None
        best_score = max(scores, default=None)
        stored_score = self.chosen["score"] if self.chosen else None
        return TrainingProgress(
            step=step,
            steps=steps,
            loss=loss,
            score=last_score,
            best=best_score,
            kept=stored_score,
            point=point,
        )

    def close(self, step: int, loss: float, n_terms: int) -> Point:
        """End a round: score the current weights, and keep them if they are the best.

        Args:
            step: The number of finished steps.
            loss: The summed loss of the round.
            n_terms: The number of terms in the sum.

        Raises:
            TrainingError: The round had nothing to learn from.
        """
        if not n_terms:
            raise TrainingError(
                "no sentence has a neighbour with known words: nothing to learn from"
            )
        selection_score, measures = self.prepared.examine_round(self.best)
        score = self.prepared.score(self.trial, self.validate)
        selection_score = score if selection_score is None else selection_score
        # A plain number, because a score with measures is not for JSON.
        plain_score = None if score is None else float(score)
        score_measures = {} if score is None else read_measures(score)
        point = {
            "step": step,
            "loss": loss / n_terms,
            "score": plain_score,
            **measures,
            **score_measures,
        }
        key = None if selection_score is None else selection_key(selection_score)
        # Without a score the last weights are kept; of the first round any, even if its score is
        # NaN.
        if key is None or key > self.best or self.chosen is None:
            self.best = self.best if key is None else key
            self.chosen = {"score": plain_score, "step": step}
            for path in self.trial.iterdir():
                path.replace(self.folder / path.name)
        shutil.rmtree(self.trial, ignore_errors=True)
        self.curve.append(point)
        self._write_state()
        self.write_point(point)
        return point

    def _write_state(self) -> None:
        """Write the checkpoint."""
        optimiser = self.prepared.optimiser
        state = {
            f"learnt.{name}": tensor.detach() for name, tensor in self.prepared.tensors.items()
        }
        optimiser_states = optimiser.state_dict()["state"] if optimiser else {}
        for index, values in optimiser_states.items():
            state |= {
                f"optimiser.{index}.{key}": value
                for key, value in values.items()
                if value is not None
            }
        record = {
            "curve": self.curve,
            "chosen": self.chosen,
            # JSON has no infinity.
            "best": self.best if math.isfinite(self.best) else None,
            "groups": optimiser.state_dict()["param_groups"] if optimiser else [],
        }
        content = save({**state, "random": torch.get_rng_state()}, {"facts": json.dumps(record)})
        write_atomically(self.folder / STATE_FILE, content)

    def _restore(self) -> None:
        """Restore the checkpoint.

        Raises:
            TrainingError: The checkpoint is of another training.
        """
        with safe_open(self.folder / STATE_FILE, framework="pt") as stored:
            record: dict[str, Any] = json.loads(stored.metadata()["facts"])
            state = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
        for name, tensor in self.prepared.tensors.items():
            learnt = state.get(f"learnt.{name}")
            # A checkpoint without a curve is of an earlier version.
            if "curve" not in record or learnt is None or learnt.shape != tensor.shape:
                message = f"{self.folder}: its checkpoint is of another training"
                raise TrainingError(f"{message}; pass `fresh` to train again")
            with torch.no_grad():
                tensor.copy_(learnt)
        optimiser = self.prepared.optimiser
        if optimiser:
            states: dict[int, dict[str, torch.Tensor]] = {}
            for name, tensor in state.items():
                if name.startswith("optimiser."):
                    _, index, key = name.split(".", 2)
                    states.setdefault(int(index), {})[key] = tensor
            optimiser.load_state_dict({"state": states, "param_groups": record["groups"]})
        torch.set_rng_state(state["random"])
        self.curve = record["curve"]
        self.chosen = record["chosen"]
        self.best = record["best"] if record["best"] is not None else -math.inf


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Words by falling frequency, special words first.

    ``counts`` is (words,), 0 for a special word.
    """

    words: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        specials: Sequence[str] = (),
        limit: int | None = None,
        min_count: int = 1,
    ) -> Vocabulary:
        """Count the words of sentences.

        Args:
            sentences: The words of each sentence.
            specials: Special words, which come first and are not counted.
            limit: The maximum number of words, with the special ones; None if there is none.
            min_count: The minimum frequency of a word. Equally frequent words are in alphabetical
                order.

        Raises:
            TrainingError: No word is left.
        """
        frequencies = Counter(
            word for sentence in sentences for word in sentence if word not in specials
        )
        words = sorted(
            (word for word, count in frequencies.items() if count >= min_count),
            key=lambda word: (-frequencies[word], word),
        )
        # Special words count towards the limit.
        words = words[: None if limit is None else max(limit - len(specials), 0)]
        if not words:
            raise TrainingError(
                f"no word occurs {min_count} times: nothing to learn from; lower min_count"
            )
        counts = [0] * len(specials) + [frequencies[word] for word in words]
        return cls(words=(*specials, *words), counts=np.array(counts, dtype=np.int64))

    def ids(
        self, sentences: Iterable[Sequence[str]], *, unknown: str | None = None
    ) -> list[list[int]]:
        """Return the ids of each sentence's words; a word's id is its index in ``words``.

        Args:
            sentences: The words of each sentence.
            unknown: The special word that stands for words that are not in the vocabulary; None
                omits these.
        """
        rows = {word: row for row, word in enumerate(self.words)}
        unknown_row = None if unknown is None else rows[unknown]
        ids = []
        for sentence in sentences:
            word_rows = [rows.get(word, unknown_row) for word in sentence]
            ids.append([row for row in word_rows if row is not None])
        return ids


class OrderedText(NamedTuple):
    """The sentences of ordered text."""

    sentences: list[list[str]]
    """The words of each sentence."""
    documents: npt.NDArray[np.int64]
    """The number of each sentence's document, (n,)."""
    vocabulary: Vocabulary


def read_ordered(
    columns: Columns,
    tokenize: Callable[[str], list[str]],
    **counting: Any,  # noqa: ANN401 - see Vocabulary.from_sentences
) -> OrderedText:
    """Read ordered text.

    Text without the column ``document_id`` is one document, as the papers' code reads books.

    Args:
        columns: The corpus.
        tokenize: Splits a text into words.
        counting: Arguments of :meth:`Vocabulary.from_sentences`.

    Raises:
        TrainingError: There are fewer than three sentences, or no word is left.
    """
    texts = columns["text"]
    if len(texts) < 3:
        count = format_count(len(texts), "sentence")
        raise TrainingError(f"ordered text of {count}; neighbours need at least three")
    document_ids = columns.get("document_id", ())
    documents = (
        np.asarray(document_ids, dtype=np.int64)
        if len(document_ids)
        else np.zeros(len(texts), dtype=np.int64)
    )
    sentences = [tokenize(text) for text in texts]
    return OrderedText(
        sentences, documents, vocabulary=Vocabulary.from_sentences(sentences, **counting)
    )


def rows_with_neighbours(documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the rows of the sentences with a neighbour on both sides in their document.

    Args:
        documents: The number of each sentence's document, (n,), in the order of the text.
    """
    has_neighbours = (documents[1:-1] == documents[:-2]) & (documents[1:-1] == documents[2:])
    return np.flatnonzero(has_neighbours) + 1  # 1: the first row has no neighbour before

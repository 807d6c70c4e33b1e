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
import torch
from safetensors import safe_open
from safetensors.torch import save

from stsbench.core.cards import PositiveInt
from stsbench.core.errors import TrainingError, translate_errors
from stsbench.core.files import write_atomically
from stsbench.core.wording import format_count
from stsbench.encoders.kinds import ENCODERS
from stsbench.encoders.runs import STATE_FILE
from stsbench.encoders.words.words import write_word_folder
from stsbench.numbers.statistics import IntArray
from stsbench.training.learner import (
    Columns,
    OnProgress,
    Point,
    TrainingOutcome,
    TrainingProgress,
    Validate,
    extra_measures,
    open_curve,
    selection_key,
)


class WordEncoderFiles(NamedTuple):
    """An encoder as arguments of :func:`stsbench.encoders.words.words.write_word_folder`."""

    kind: str
    """The kind of encoder, under which it is loaded."""
    config: msgspec.Struct
    """The content of ``config.json``: what belongs to the weights."""
    tensors: Mapping[str, torch.Tensor]
    """The weights by name."""
    params: Mapping[str, Any]
    """The parameters that the encoder is loaded with, unless a user gives others."""
    words: Sequence[str] = ()
    """The vocabulary, in the order of the word vectors; empty if the encoder has none."""


@dataclass(frozen=True, kw_only=True)
class PreparedTraining:
    """A training that is ready to start: batches, the step of learning, and the encoder."""

    trained_tensors: Mapping[str, torch.Tensor]
    """All that is learnt, changed in place."""
    optimiser: torch.optim.Optimizer | None = None
    encoder_files: WordEncoderFiles
    batches: Callable[[], Iterable[Any]]
    """Returns the batches of one epoch, with that epoch's draws."""
    learn_batch: Callable[[Any, int], tuple[float, int]]
    """Learns from a batch, after a number of steps, and returns the summed loss and the number of
    terms in the sum."""
    steps_per_epoch: int
    validation_interval: int = 0
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

    def write_and_score(self, folder: Path, validate: Validate | None) -> float | None:
        """Write the encoder with the current weights into a folder, load it and return its score.

        Args:
            folder: The folder to write.
            validate: A function from an encoder to its score; None if nothing is scored.

        Returns:
            The score; None without ``validate``.
        """
        # Kind, settings, weights and vocabulary of the encoder.
        write_word_folder(folder, **self.encoder_files._asdict())
        if validate is None:
            return None
        # The class of the encoder, by the name under which it is registered.
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
    batch_size: PositiveInt
    epochs: PositiveInt = 1

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
        """Train in rounds, and write the encoder's folder, which ``load_encoder`` opens.

        A round is some steps, at whose end weights are scored and a checkpoint is written. The
        weights with the best score are kept; without ``validate`` the last ones.

        Args:
            columns: The corpus.
            folder: The folder of the encoder; checkpoints are written into it too.
            seed: The seed of all draws.
            validate: A function from an encoder to its score; None if nothing is scored.
            on_progress: Called with the progress after every step and every round.
            resume: Continue a stopped training from its last round; the result is the same.

        Raises:
            TrainingError: The loss is not finite, or there is nothing to learn from.
        """
        torch.manual_seed(seed)
        prepared = self.prepare(columns, seed)
        writer = _CheckpointWriter(prepared, folder, validate, resume=resume)
        interval = prepared.validation_interval or prepared.steps_per_epoch  # of a round
        total_steps = prepared.total_steps(self.epochs)
        step = writer.step
        batches: Iterator[Any] = (batch for _ in range(self.epochs) for batch in prepared.batches())
        # A resumed training may have ended by itself already, before its last epoch.
        if step and prepared.is_finished():
            batches = iter(())
        # The sum of the losses of a round's steps, and the number of losses in the sum.
        round_loss, round_terms = 0.0, 0
        # Batches before ``step`` are made again and skipped, as their draws decide later batches.
        for batch in islice(batches, step, total_steps):
            loss, n_terms = prepared.learn_batch(batch, step)
            mean_loss = loss / max(n_terms, 1)
            if not math.isfinite(mean_loss):
                raise TrainingError(
                    f"the loss is {mean_loss} at step {step}; lower the learning rate; "
                    f"{folder} keeps the best weights so far"
                )
            round_loss += loss
            round_terms += n_terms
            step += 1
            on_progress(writer.make_progress(step, total_steps, mean_loss))
            if step % interval == 0 or step == total_steps:
                point = writer.close_round(step, round_loss, round_terms)
                on_progress(writer.make_progress(step, total_steps, point["loss"], point))
                round_loss, round_terms = 0.0, 0
                if prepared.is_finished():
                    break
        return TrainingOutcome(
            curve=writer.curve, selected_point=writer.selected_point, steps=writer.step
        )


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
        """Begin the records of a training: the curve, and which weights are stored.

        A training that is resumed is restored from its checkpoint. Otherwise the checkpoints of an
        earlier training are removed, and the first weights are scored; their score is step 0 of the
        curve, but they are not stored. In both cases the curve's file is written anew.

        Args:
            prepared: The model and its data; its weights are replaced if a checkpoint is restored.
            folder: The folder of the encoder.
            validate: A function from an encoder to its score; None if nothing is scored.
            resume: Continue from the checkpoint in the folder, if there is one.
        """
        self.prepared = prepared
        self.folder = folder
        self.validate = validate
        self.trial_folder = folder / "trial"
        """The folder of the weights that are scored; it is removed after each score."""
        self.curve: list[dict[str, Any]] = []
        """The points of the curve, as in its file: the numbers of each round by name."""
        self.stored_point: dict[str, Any] | None = None
        """The step whose weights are stored, and its score; None if none are stored yet."""
        self.best_selection_score = -math.inf
        """The best score so far among those by which weights are selected."""
        checkpoint = folder / STATE_FILE
        if resume and checkpoint.is_file():
            self._restore_checkpoint()
        else:
            # The folder of checkpoints alone, in that of the encoder.
            shutil.rmtree(checkpoint.parent, ignore_errors=True)
            score = prepared.write_and_score(self.trial_folder, validate)
            if score is not None:
                # Validation may return further measures with a score.
                self.curve.append({"step": 0, "score": float(score), **extra_measures(score)})
        shutil.rmtree(self.trial_folder, ignore_errors=True)
        self.write_point = open_curve(folder, self.curve)
        """A function that adds a point to the curve's file."""

    @property
    def selected_point(self) -> dict[str, Any] | None:
        """The ``step`` whose weights were selected, and its ``score``; None if nothing is scored.

        If nothing is scored, the last weights are stored, which is no selection.
        """
        # The step and score of the stored weights; None before the first round.
        if self.stored_point and self.stored_point["score"] is not None:
            return self.stored_point
        return None

    @property
    def step(self) -> int:
        """The number of finished steps."""
        return int(self.curve[-1]["step"]) if self.curve else 0

    def make_progress(
        self, step: int, steps: int, loss: float, point: Point | None = None
    ) -> TrainingProgress:
        """Return the progress after a step, with the last and the best score of the rounds so far.

        The score of the first weights, before any step, does not count.

        Args:
            step: The number of finished steps.
            steps: The number of all steps.
            loss: The mean loss of the step, or of the round that ends with it.
            point: The numbers of the round that ends with this step; None if none ends.
        """
        scores = [
            earlier["score"]
            for earlier in self.curve
            if earlier["step"] and earlier["score"] is not None
        ]
        last_score = scores[-1] if scores else None
        best_score = max(scores, default=None)
        # A method may store weights by another measure, so that this is not always the best score.
        stored_score = self.stored_point["score"] if self.stored_point else None
        return TrainingProgress(
            step=step,
            steps=steps,
            loss=loss,
            score=last_score,
            best=best_score,
            kept=stored_score,
            point=point,
        )

    def close_round(self, step: int, loss: float, n_terms: int) -> Point:
        """End a round: score the current weights, store them if they are the best, and checkpoint.

        The best encoder so far is stored in the training's folder; if nothing is scored, the
        current one. The numbers of the round, a point, are added to the curve and its file.

        Args:
            step: The number of finished steps.
            loss: The summed loss of the round.
            n_terms: The number of losses in the sum.

        Returns:
            The point: step, mean loss, score (None if nothing is scored) and further measures.

        Raises:
            TrainingError: The round had nothing to learn from.
        """
        if not n_terms:
            raise TrainingError(
                "no sentence has a neighbour with known words: nothing to learn from"
            )
        # A method may select weights by a score of its own, such as an accuracy; None if not. It is
        # told the best score so far, as it may lower its learning rate after a worse one.
        own_score, measures = self.prepared.examine_round(self.best_selection_score)
        score = self.prepared.write_and_score(self.trial_folder, self.validate)
        selection_score = score if own_score is None else own_score
        # A plain number for JSON: a score may be a float with further measures as attribute.
        plain_score = None if score is None else float(score)
        score_measures = {} if score is None else extra_measures(score)
        point = {
            "step": step,
            "loss": loss / n_terms,
            "score": plain_score,
            **measures,
            **score_measures,
        }
        # ``selection_key`` turns NaN into minus infinity, so that it is never the best.
        comparable_score = None if selection_score is None else selection_key(selection_score)
        # Without a score the last weights are stored; those of the first round always, even if
        # their score is NaN.
        is_best = comparable_score is None or comparable_score > self.best_selection_score
        if is_best or self.stored_point is None:
            if comparable_score is not None:
                self.best_selection_score = comparable_score
            self.stored_point = {"score": plain_score, "step": step}
            # ``write_and_score`` has written the encoder into this folder; move its files.
            for path in self.trial_folder.iterdir():
                path.replace(self.folder / path.name)
        shutil.rmtree(self.trial_folder, ignore_errors=True)
        self.curve.append(point)
        self._write_checkpoint()
        self.write_point(point)
        return point

    def _write_checkpoint(self) -> None:
        """Write one checkpoint file: weights, optimiser, torch's generator and the records so far.

        The tensors have names such as ``learnt.NAME`` and ``optimiser.0.exp_avg`` (parameter 0).
        The records are JSON in the file's metadata.
        """
        optimiser = self.prepared.optimiser
        state = {
            f"learnt.{name}": tensor.detach()
            for name, tensor in self.prepared.trained_tensors.items()
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
            "chosen": self.stored_point,
            # None before the first score, as JSON has no infinity.
            "best": self.best_selection_score if math.isfinite(self.best_selection_score) else None,
            "groups": optimiser.state_dict()["param_groups"] if optimiser else [],
        }
        content = save({**state, "random": torch.get_rng_state()}, {"facts": json.dumps(record)})
        write_atomically(self.folder / STATE_FILE, content)

    def _restore_checkpoint(self) -> None:
        """Restore weights, optimiser, torch's generator and records from the checkpoint file.

        The weights are changed in place; the file's layout is that of :meth:`_write_checkpoint`.

        Raises:
            TrainingError: The checkpoint is damaged, or of another training.
        """
        problem = f"{self.folder}: its checkpoint cannot be read (pass `fresh` to train again)"
        with (
            translate_errors(problem, TrainingError),
            safe_open(self.folder / STATE_FILE, framework="pt") as stored,
        ):
            record: dict[str, Any] = json.loads(stored.metadata()["facts"])
            state = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
        for name, tensor in self.prepared.trained_tensors.items():
            learnt = state.get(f"learnt.{name}")
            # The record has no curve if an earlier version of stsbench wrote it.
            if "curve" not in record or learnt is None or learnt.shape != tensor.shape:
                message = f"{self.folder}: its checkpoint is of another training"
                raise TrainingError(f"{message}; pass `fresh` to train again")
            with torch.no_grad():
                tensor.copy_(learnt)
        optimiser = self.prepared.optimiser
        if optimiser:
            # The optimiser's tensors by the number of the parameter, from names such as
            # ``optimiser.0.exp_avg``.
            states: dict[int, dict[str, torch.Tensor]] = {}
            for name, tensor in state.items():
                if name.startswith("optimiser."):
                    _, parameter_number, key = name.split(".", 2)
                    states.setdefault(int(parameter_number), {})[key] = tensor
            optimiser.load_state_dict({"state": states, "param_groups": record["groups"]})
        torch.set_rng_state(state["random"])
        self.curve = record["curve"]
        self.stored_point = record["chosen"]
        self.best_selection_score = record["best"] if record["best"] is not None else -math.inf


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Words by falling frequency, special words first.

    ``counts`` is (words,), 0 for a special word.
    """

    words: tuple[str, ...]
    counts: IntArray

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        specials: Sequence[str] = (),
        limit: int | None = None,
        min_count: int = 1,
    ) -> Vocabulary:
        """Make a vocabulary of the words of sentences, the most frequent first.

        Equally frequent words are in alphabetical order.

        Args:
            sentences: The words of each sentence.
            specials: Special words, such as one for unknown words. They come first, with a
                frequency of 0.
            limit: The maximum number of words, with the special ones; None if there is none.
            min_count: The minimum frequency of a word.

        Raises:
            TrainingError: No word is frequent enough, or the limit is that of special words alone.
        """
        frequencies = Counter(
            word for sentence in sentences for word in sentence if word not in specials
        )
        frequent_words = sorted(
            (word for word, count in frequencies.items() if count >= min_count),
            key=lambda word: (-frequencies[word], word),
        )
        # Special words count towards the limit; None as the end of a slice keeps all.
        words = frequent_words[: None if limit is None else max(limit - len(specials), 0)]
        if not words:
            problem = f"no word occurs {min_count} times: nothing to learn from; lower min_count"
            if frequent_words:
                problem = f"vocabulary {limit} holds no word beside {', '.join(specials)}; raise it"
            raise TrainingError(problem)
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
        id_by_word = {word: word_id for word_id, word in enumerate(self.words)}
        unknown_id = None if unknown is None else id_by_word[unknown]
        ids_by_sentence = []
        for sentence in sentences:
            word_ids = [id_by_word.get(word, unknown_id) for word in sentence]
            ids_by_sentence.append([word_id for word_id in word_ids if word_id is not None])
        return ids_by_sentence


class OrderedText(NamedTuple):
    """The sentences of ordered text."""

    sentences: list[list[str]]
    """The words of each sentence."""
    documents: IntArray
    """The number of each sentence's document, (n,)."""
    vocabulary: Vocabulary


def read_ordered(
    columns: Columns,
    tokenize: Callable[[str], list[str]],
    **vocabulary_options: Any,  # noqa: ANN401 - see Vocabulary.from_sentences
) -> OrderedText:
    """Split the sentences of an ordered corpus into words, and count the words.

    Text without the column ``document_id`` is one document, as the papers' code reads books.

    Args:
        columns: The corpus, sentences in the order of the text, as ``text``.
        tokenize: A function from a text to its words.
        vocabulary_options: Arguments of :meth:`Vocabulary.from_sentences`, such as ``min_count``.

    Returns:
        The words of each sentence, the number of each sentence's document (n,), and the vocabulary.

    Raises:
        TrainingError: There are fewer than three sentences, or no word is left.
    """
    texts = columns["text"]
    if len(texts) < 3:
        count = format_count(len(texts), "sentence")
        raise TrainingError(f"ordered text of {count}; neighbours need at least three")
    documents = np.zeros(len(texts), dtype=np.int64)
    document_ids = columns.get("document_id", ())
    if len(document_ids):
        documents = np.asarray(document_ids, dtype=np.int64)
    sentences = [tokenize(text) for text in texts]
    vocabulary = Vocabulary.from_sentences(sentences, **vocabulary_options)
    return OrderedText(sentences, documents, vocabulary)


def rows_with_neighbours(documents: IntArray) -> IntArray:
    """Return the rows of the sentences with a neighbour on both sides in their document.

    Args:
        documents: The number of each sentence's document, (n,), in the order of the text.
    """
    has_neighbours = (documents[1:-1] == documents[:-2]) & (documents[1:-1] == documents[2:])
    return np.flatnonzero(has_neighbours) + 1  # 1: the first row has no neighbour before

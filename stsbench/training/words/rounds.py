"""What methods that train themselves share: their one loop, ordered text, rounds, the weights that are kept, and when to stop."""

from __future__ import annotations

import json
import math
import shutil
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from stsbench.encoders.kinds import ENCODERS
from stsbench.encoders.runs import STATE_FILE
from stsbench.encoders.words.words import write_word_folder
from stsbench.training import learner as seams


class WordEncoderFiles(NamedTuple):
    """An encoder as :func:`stsbench.encoders.words.words.write_word_folder` is given it."""

    kind: str
    config: msgspec.Struct
    tensors: Mapping[str, torch.Tensor]
    params: Mapping[str, Any]
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class PreparedTraining:
    """What a method has made of its text: batches, what a step learns from one, and the encoder that comes of it."""

    tensors: Mapping[str, torch.Tensor]
    """All that is learnt, changed in place."""
    optimiser: torch.optim.Optimizer | None = None
    saved: WordEncoderFiles
    batches: Callable[[], Iterable[Any]]
    """One epoch's, with that epoch's draws."""
    learn: Callable[[Any, int], tuple[float, int]]
    """A batch, and the steps before it, to the summed loss of so many parts."""
    steps: int
    """Of an epoch."""
    tokens: int
    """That an epoch reads."""
    every: int = 0
    """Steps between validations; 0 for an epoch's."""
    limit: int | None = None
    """After so many steps training ends, whatever the epochs."""
    examine: Callable[[float], tuple[float | None, Mapping[str, float]]] = lambda best: (None, {})
    """At the end of a round: what the best are chosen by instead of the score, of which the best so far is given, and facts."""
    finished: Callable[[], bool] = lambda: False
    """Whether a training ends with the round that is over."""

    def planned(self, epochs: int) -> int:
        """The steps of a training of so many epochs."""
        return min(self.steps * epochs, self.limit or self.steps * epochs)

    def score(self, folder: Path, validate: seams.Validate | None) -> float | None:
        """Write the encoder as it is into a folder, and score it where anything scores."""
        write_word_folder(folder, **self.saved._asdict())
        return (
            validate(ENCODERS.load(self.saved.kind)(str(folder), **self.saved.params))
            if validate
            else None
        )


@dataclass(frozen=True, kw_only=True)
class StandaloneMethod(ABC):
    """A method that trains itself, for what ``transformers.Trainer`` cannot hold: it writes the encoder's folder."""

    trainer: ClassVar[str] = "rounds"
    """Which trainer it needs."""
    needs: ClassVar[tuple[str, ...]] = ("text",)
    """The columns of a corpus that it learns from."""
    epochs: int = 1

    @abstractmethod
    def prepare(self, columns: seams.Columns, seed: int) -> PreparedTraining:
        """Read the corpus and draw the first weights; torch is seeded already."""

    def fit(
        self,
        columns: seams.Columns,
        *,
        folder: Path,
        seed: int,
        validate: seams.Validate | None = None,
        on_progress: seams.OnProgress = lambda progress: None,
        resume: bool = False,
    ) -> seams.TrainingOutcome:
        """Train and leave the encoder's folder, which ``load_encoder`` opens, and in it ``checkpoints`` to resume from.

        The best weights by ``validate`` are kept, without it the last. ``resume`` continues from the last round of a
        training that was stopped, to the same weights: all draws are made again, and the batches of earlier rounds
        passed over. Raises TrainingError: the loss is not finite, or there is nothing to learn from.
        """
        torch.manual_seed(seed)
        lesson = self.prepare(columns, seed)
        keeper = _CheckpointWriter(lesson, folder, validate, resume=resume)
        every, planned, step = (
            lesson.every or lesson.steps,
            lesson.planned(self.epochs),
            keeper.step,
        )
        batches = (batch for _ in range(self.epochs) for batch in lesson.batches())
        total, parts = 0.0, 0
        for batch in () if step and lesson.finished() else islice(batches, step, planned):
            loss, count = lesson.learn(batch, step)
            mean = loss / max(count, 1)
            if not math.isfinite(mean):
                raise TrainingError(
                    f"the loss is {mean} at step {step}; lower the learning rate; {folder} keeps the best weights so far"
                )
            total, parts, step = total + loss, parts + count, step + 1
            on_progress(keeper.progress(step, planned, mean))
            if step % every == 0 or step == planned:
                point = keeper.close(step, total, parts)
                on_progress(keeper.progress(step, planned, point["loss"], point))
                total, parts = 0.0, 0
                if lesson.finished():
                    break
        kept = keeper.chosen if keeper.chosen and keeper.chosen["score"] is not None else None
        return seams.TrainingOutcome(curve=keeper.curve, chosen=kept, steps=keeper.step)


class _CheckpointWriter:
    """Writes the weights that score best, or the last ones where nothing scores them, and the state to resume from.

    The state is one file, whole or not there: all that a training changes, the optimiser's own and torch's generator.
    """

    def __init__(
        self,
        lesson: PreparedTraining,
        folder: Path,
        validate: seams.Validate | None,
        *,
        resume: bool,
    ) -> None:
        """Score the weights as they are; a resumed training has its earlier rounds back, and what they learnt."""
        self.lesson, self.folder, self.validate = lesson, folder, validate
        self.trial = folder / "trial"
        self.curve: list[dict[str, Any]] = []
        self.chosen: dict[str, Any] | None = None
        """The step whose weights are kept, and its score."""
        self.best = -math.inf
        if resume and (folder / STATE_FILE).is_file():
            self._restore()
        else:
            shutil.rmtree((folder / STATE_FILE).parent, ignore_errors=True)
            if (score := lesson.score(self.trial, validate)) is not None:
                self.curve.append({"step": 0, "score": float(score), **seams.read_measures(score)})
        shutil.rmtree(self.trial, ignore_errors=True)
        self.add = seams.open_curve(folder, self.curve)

    @property
    def step(self) -> int:
        return int(self.curve[-1]["step"]) if self.curve else 0

    def progress(
        self, step: int, steps: int, loss: float, point: seams.Point | None = None
    ) -> seams.TrainingProgress:
        scores = [one["score"] for one in self.curve if one["step"] and one["score"] is not None]
        last, best = (scores[-1], max(scores)) if scores else (None, None)
        kept = self.chosen["score"] if self.chosen else None
        return seams.TrainingProgress(
            step=step, steps=steps, loss=loss, score=last, best=best, kept=kept, point=point
        )

    def close(self, step: int, loss: float, parts: int) -> seams.Point:
        """End a round: score the weights as they are, and keep them if they are the best."""
        if not parts:
            raise TrainingError(
                "no sentence has a neighbour with known words: nothing to learn from"
            )
        merit, facts = self.lesson.examine(self.best)
        score = self.lesson.score(self.trial, self.validate)
        merit = score if merit is None else merit
        plain, seen = (None, {}) if score is None else (float(score), seams.read_measures(score))
        point = {"step": step, "loss": loss / parts, "score": plain, **facts, **seen}
        if merit is None or seams.selection_key(merit) > self.best or self.chosen is None:
            self.best = self.best if merit is None else seams.selection_key(merit)
            self.chosen = {"score": plain, "step": step}
            for path in self.trial.iterdir():
                path.replace(self.folder / path.name)
        shutil.rmtree(self.trial, ignore_errors=True)
        self.curve.append(point)
        self._write_state()
        self.add(point)
        return point

    def _write_state(self) -> None:
        optimiser = self.lesson.optimiser
        state = {f"learnt.{name}": tensor.detach() for name, tensor in self.lesson.tensors.items()}
        for number, values in (optimiser.state_dict()["state"] if optimiser else {}).items():
            state |= {
                f"optimiser.{number}.{key}": value
                for key, value in values.items()
                if value is not None
            }
        facts = {
            "curve": self.curve,
            "chosen": self.chosen,
            "best": self.best if math.isfinite(self.best) else None,
            "groups": optimiser.state_dict()["param_groups"] if optimiser else [],
        }
        content = save({**state, "random": torch.get_rng_state()}, {"facts": json.dumps(facts)})
        write_atomically(self.folder / STATE_FILE, content)

    def _restore(self) -> None:
        with safe_open(self.folder / STATE_FILE, framework="pt") as stored:
            facts: dict[str, Any] = json.loads(stored.metadata()["facts"])
            state = {name: stored.get_tensor(name) for name in stored.keys()}
        for name, tensor in self.lesson.tensors.items():
            learnt = state.get(f"learnt.{name}")
            # A state without a curve is of an earlier version.
            if "curve" not in facts or learnt is None or learnt.shape != tensor.shape:
                what = f"{self.folder}: its checkpoint is of another training"
                raise TrainingError(f"{what}; pass --fresh to train again")
            with torch.no_grad():
                tensor.copy_(learnt)
        if optimiser := self.lesson.optimiser:
            own: dict[int, dict[str, torch.Tensor]] = {}
            for _, number, key in (
                name.split(".", 2) for name in state if name.startswith("optimiser.")
            ):
                own.setdefault(int(number), {})[key] = state[f"optimiser.{number}.{key}"]
            optimiser.load_state_dict({"state": own, "param_groups": facts["groups"]})
        torch.set_rng_state(state["random"])
        self.curve, self.chosen = facts["curve"], facts["chosen"]
        self.best = facts["best"] if facts["best"] is not None else -math.inf


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Words by falling frequency, the special ones first; ``counts`` is (words,), 0 for a special one."""

    words: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        specials: Sequence[str] = (),
        limit: int | None = None,
        min_count: int = 1,
    ) -> Vocabulary:
        """Count words that occur ``min_count`` times, ``limit`` of them with the specials; of equals by the alphabet.

        Raises TrainingError: no word is left.
        """
        counted = Counter(
            word for sentence in sentences for word in sentence if word not in specials
        )
        kept = sorted(
            (word for word, n in counted.items() if n >= min_count), key=lambda w: (-counted[w], w)
        )
        kept = kept[: None if limit is None else max(limit - len(specials), 0)]
        if not kept:
            raise TrainingError(
                f"no word occurs {min_count} times: nothing to learn from; lower min_count"
            )
        counts = [0] * len(specials) + [counted[word] for word in kept]
        return cls(words=(*specials, *kept), counts=np.array(counts, dtype=np.int64))

    def ids(
        self, sentences: Iterable[Sequence[str]], *, unknown: str | None = None
    ) -> list[list[int]]:
        """Return each sentence's ids; a word that is not there is read as ``unknown``, or left out."""
        rows = {word: row for row, word in enumerate(self.words)}
        other = None if unknown is None else rows[unknown]
        found = ([rows.get(word, other) for word in sentence] for sentence in sentences)
        return [[row for row in sentence if row is not None] for sentence in found]


def read_ordered(
    columns: seams.Columns,
    split: Callable[[str], list[str]],
    **counting: Any,  # noqa: ANN401 - see Vocabulary.of
) -> tuple[list[list[str]], npt.NDArray[np.int64], Vocabulary]:
    """Read ordered text: each sentence's words, the number of its document (n,), and a vocabulary made as by ``counting``.

    Text without the column ``document_id`` is one document, as the papers' code reads books. Raises TrainingError:
    fewer than three sentences, or no word is left.
    """
    texts = columns["text"]
    if len(texts) < 3:
        raise TrainingError(
            f"ordered text of {len(texts)} sentence(s); neighbours need three at least"
        )
    numbers = columns.get("document_id", ())
    documents = (
        np.asarray(numbers, dtype=np.int64)
        if len(numbers)
        else np.zeros(len(texts), dtype=np.int64)
    )
    sentences = [split(text) for text in texts]
    return sentences, documents, Vocabulary.of(sentences, **counting)


def centres(documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sentences that have a neighbour on either side in their own document."""
    inner = (documents[1:-1] == documents[:-2]) & (documents[1:-1] == documents[2:])
    return np.flatnonzero(inner) + 1

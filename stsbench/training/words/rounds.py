"""What methods that train themselves share: their one loop, ordered text, rounds, the weights that are kept, and when to stop."""

from __future__ import annotations

import json
import math
import shutil
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from stsbench.core.files import write_whole
from stsbench.encoders.base import ENCODERS
from stsbench.encoders.runs import STATE
from stsbench.encoders.words.words import write_word_folder
from stsbench.training.seams import Columns, Validate, seen_with, worth


@dataclass(frozen=True, kw_only=True)
class Round:
    """What was seen between two validations: steps done so far, mean loss, and the score where there is one."""

    step: int
    loss: float
    score: float | None = None
    kept: bool = True
    """Whether these weights were the best so far, and are those kept."""
    facts: Mapping[str, float] = field(default_factory=dict)


OnRound = Callable[[Round], None]
"""Called with every round as soon as it is over."""
OnStep = Callable[[int, int, float], None]
"""Called after each step: how many are done, of how many, and the loss."""


class Clock:
    """Whether the time given to a training is over; beside it, how long the training would be and how far it is."""

    def __init__(
        self, seconds: float | None = None, *, steps: int | None = None, on_step: OnStep = lambda done, of, loss: None
    ) -> None:
        """Start; None gives all the time and all the steps there are."""
        self.end = None if seconds is None else time.monotonic() + seconds
        self.limit, self.on_step = steps, on_step
        self.planned, self.tokens, self.before = 0, 0, 0
        self.ticks: list[float] = []

    @property
    def done(self) -> int:
        """Steps done, with those of an earlier run that this one resumes."""
        return self.before + max(0, len(self.ticks) - 1)

    def is_over(self, loss: float) -> bool:
        """Whether it is; asked once a step, with the loss of that step."""
        self.on_step(self.before + len(self.ticks), self.planned, loss)
        self.ticks.append(time.perf_counter())
        done = self.limit is not None and len(self.ticks) > self.limit
        return done or (self.end is not None and time.monotonic() > self.end)


class Saved(NamedTuple):
    """An encoder as :func:`stsbench.encoders.words.words.write_word_folder` is given it."""

    kind: str
    config: msgspec.Struct
    tensors: Mapping[str, torch.Tensor]
    params: Mapping[str, Any]
    words: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What a method has made of its text: batches, what a step learns from one, and the encoder that comes of it."""

    tensors: Mapping[str, torch.Tensor]
    """All that is learnt, changed in place."""
    optimiser: torch.optim.Optimizer | None = None
    saved: Saved
    """The encoder."""
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


@dataclass(frozen=True, kw_only=True)
class StandaloneMethod(ABC):
    """A method that trains itself, for what ``transformers.Trainer`` cannot hold: it writes the encoder's folder."""

    trainer: ClassVar[str] = "rounds"
    """Which trainer it needs."""
    needs: ClassVar[tuple[str, ...]] = ("text",)
    """The columns of a corpus that it learns from."""
    seconds: float | None = None
    """Stop after so much time; default never."""
    epochs: int = 1

    @abstractmethod
    def prepare(self, columns: Columns, seed: int) -> Lesson:
        """Read the corpus and draw the first weights; torch is seeded already."""

    def fit(
        self,
        columns: Columns,
        *,
        folder: Path,
        seed: int,
        validate: Validate | None = None,
        on_round: OnRound = lambda round: None,
        untrained: Callable[[float], None] = lambda score: None,
        resume: bool = False,
        clock: Clock | None = None,
    ) -> list[Round]:
        """Train and leave the encoder's folder, which ``load_encoder`` opens, and in it ``checkpoints`` to resume from.

        The best weights by ``validate`` are kept, without it the last; ``untrained`` is given the score of the first.
        ``resume`` continues from the last round of a training that was stopped, to the same weights: all draws are made
        again, and the batches of earlier rounds passed over. Raises TrainingError: the loss is not finite, or there is
        nothing to learn from.
        """
        torch.manual_seed(seed)
        lesson, clock = self.prepare(columns, seed), clock or Clock(self.seconds)
        keeper = _Keeper(lesson, folder, validate, on_round)
        keeper.begin(untrained, resume=resume)
        every, whole, step = lesson.every or lesson.steps, lesson.steps * self.epochs, keeper.step
        planned = min(whole, lesson.limit or whole)
        clock.planned, clock.before = planned, step
        clock.tokens = round(lesson.tokens * self.epochs * planned / max(whole, 1))
        clock.ticks.append(time.perf_counter())
        batches = (batch for _ in range(self.epochs) for batch in lesson.batches())
        over = bool(step) and lesson.finished()
        total, parts = 0.0, 0
        for batch in () if over else islice(batches, step, planned):
            loss, count = lesson.learn(batch, step)
            mean = loss / max(count, 1)
            if not math.isfinite(mean):
                raise TrainingError(
                    f"the loss is {mean} at step {step}; lower the learning rate; {folder} keeps the best weights so far"
                )
            total, parts, step = total + loss, parts + count, step + 1
            over = clock.is_over(mean)
            if over or step % every == 0 or step == planned:
                keeper.close(step, total, parts)
                total, parts = 0.0, 0
                if over or lesson.finished():
                    break
        return keeper.rounds


class _Keeper:
    """Writes the weights that score best, or the last ones where nothing scores them, and the state to resume from.

    The state is one file, whole or not there: all that a training changes, the optimiser's own and torch's generator.
    """

    def __init__(self, lesson: Lesson, folder: Path, validate: Validate | None, on_round: OnRound) -> None:
        self.lesson, self.folder, self.validate, self.on_round = lesson, folder, validate, on_round
        self.trial = folder / "trial"
        self.rounds: list[Round] = []
        self.best = -math.inf

    def begin(self, untrained: Callable[[float], None], *, resume: bool) -> None:
        """Score the weights as they are; a resumed training has its earlier rounds back, and what they learnt."""
        if not resume:
            shutil.rmtree((self.folder / STATE).parent, ignore_errors=True)
        if (score := self._score()) is not None:
            untrained(score)
        shutil.rmtree(self.trial, ignore_errors=True)
        if (self.folder / STATE).is_file():
            self._restore()
        for ended in self.rounds:
            self.on_round(ended)

    def _score(self) -> float | None:
        """Write the weights as they are, and score them where anything scores."""
        saved = self.lesson.saved
        write_word_folder(self.trial, **saved._asdict())
        if self.validate is None:
            return None
        return self.validate(ENCODERS.load(saved.kind)(str(self.trial), **saved.params))

    @property
    def step(self) -> int:
        """How many steps are done, as far as rounds go."""
        return self.rounds[-1].step if self.rounds else 0

    def close(self, step: int, loss: float, parts: int) -> None:
        """End a round: score the weights as they are, and keep them if they are the best."""
        if not parts:
            raise TrainingError("no sentence has a neighbour with known words: nothing to learn from")
        merit, facts = self.lesson.examine(self.best)
        score = self._score()
        merit = score if merit is None else merit
        kept = merit is None or worth(merit) > self.best or not any(one.kept for one in self.rounds)
        if kept:
            self.best = self.best if merit is None else worth(merit)
            for path in self.trial.iterdir():
                path.replace(self.folder / path.name)
        shutil.rmtree(self.trial, ignore_errors=True)
        plain, seen = (None, {}) if score is None else (float(score), seen_with(score))
        ended = Round(step=step, loss=loss / parts, score=plain, kept=kept, facts={**facts, **seen})
        self.rounds.append(ended)
        self._write_state()
        self.on_round(ended)

    def _write_state(self) -> None:
        optimiser = self.lesson.optimiser
        state = {f"learnt.{name}": tensor.detach() for name, tensor in self.lesson.tensors.items()}
        for number, values in (optimiser.state_dict()["state"] if optimiser else {}).items():
            state |= {f"optimiser.{number}.{key}": value for key, value in values.items() if value is not None}
        facts = {
            "rounds": [asdict(one) for one in self.rounds],
            "best": self.best if math.isfinite(self.best) else None,
            "groups": optimiser.state_dict()["param_groups"] if optimiser else [],
        }
        content = save({**state, "random": torch.get_rng_state()}, {"facts": json.dumps(facts)})
        write_whole(self.folder / STATE, content)

    def _restore(self) -> None:
        with safe_open(self.folder / STATE, framework="pt") as stored:
            facts: dict[str, Any] = json.loads(stored.metadata()["facts"])
            state = {name: stored.get_tensor(name) for name in stored.keys()}
        for name, tensor in self.lesson.tensors.items():
            learnt = state.get(f"learnt.{name}")
            if learnt is None or learnt.shape != tensor.shape:
                raise TrainingError(
                    f"{self.folder}: its checkpoint is of another training; pass --fresh to train again"
                )
            with torch.no_grad():
                tensor.copy_(learnt)
        if optimiser := self.lesson.optimiser:
            own: dict[int, dict[str, torch.Tensor]] = {}
            for _, number, key in (name.split(".", 2) for name in state if name.startswith("optimiser.")):
                own.setdefault(int(number), {})[key] = state[f"optimiser.{number}.{key}"]
            optimiser.load_state_dict({"state": own, "param_groups": facts["groups"]})
        torch.set_rng_state(state["random"])
        self.rounds = [Round(**one) for one in facts["rounds"]]
        self.best = facts["best"] if facts["best"] is not None else -math.inf


def count_learnt(folder: Path) -> int:
    """How many numbers are learnt, by the state that was written last."""
    with safe_open(folder / STATE, framework="pt") as stored:
        names = [name for name in stored.keys() if name.startswith("learnt.")]
        return sum(math.prod(stored.get_slice(name).get_shape()) for name in names)


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
        counted = Counter(word for sentence in sentences for word in sentence if word not in specials)
        kept = sorted((word for word, n in counted.items() if n >= min_count), key=lambda w: (-counted[w], w))
        kept = kept[: None if limit is None else max(limit - len(specials), 0)]
        if not kept:
            raise TrainingError(f"no word occurs {min_count} times: nothing to learn from; lower min_count")
        counts = [0] * len(specials) + [counted[word] for word in kept]
        return cls(words=(*specials, *kept), counts=np.array(counts, dtype=np.int64))

    def ids(self, sentences: Iterable[Sequence[str]], *, unknown: str | None = None) -> list[list[int]]:
        """Return each sentence's ids; a word that is not there is read as ``unknown``, or left out."""
        rows = {word: row for row, word in enumerate(self.words)}
        other = None if unknown is None else rows[unknown]
        found = ([rows.get(word, other) for word in sentence] for sentence in sentences)
        return [[row for row in sentence if row is not None] for sentence in found]


def read_ordered(
    columns: Columns,
    split: Callable[[str], list[str]],
    **counting: Any,  # noqa: ANN401 - see Vocabulary.of
) -> tuple[list[list[str]], npt.NDArray[np.int64], Vocabulary]:
    """Read ordered text: each sentence's words, the number of its document (n,), and a vocabulary made as by ``counting``.

    Text without the column ``document_id`` is one document, as the papers' code reads books. Raises TrainingError:
    fewer than three sentences, or no word is left.
    """
    texts = columns["text"]
    if len(texts) < 3:
        raise TrainingError(f"ordered text of {len(texts)} sentence(s); neighbours need three at least")
    numbers = columns.get("document_id", ())
    documents = np.asarray(numbers, dtype=np.int64) if len(numbers) else np.zeros(len(texts), dtype=np.int64)
    sentences = [split(text) for text in texts]
    return sentences, documents, Vocabulary.of(sentences, **counting)


def centres(documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sentences that have a neighbour on either side in their own document."""
    inner = (documents[1:-1] == documents[:-2]) & (documents[1:-1] == documents[2:])
    return np.flatnonzero(inner) + 1

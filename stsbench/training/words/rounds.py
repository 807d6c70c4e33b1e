"""What methods that train themselves share: how one opens, ordered text, rounds, the weights that are kept, and when to stop."""

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

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from stsbench.core.errors import TrainingError, one_line
from stsbench.core.files import write_whole
from stsbench.encoders.base import Encoder
from stsbench.encoders.runs import STATE
from stsbench.training.seams import Columns, Rows, Validate, seen_with, worth


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

    def expect(self, steps: int, tokens: int, *, limit: int | None = None, done: int = 0) -> None:
        """Take how long the training is; its next step begins now.

        Args:
            steps: of a whole training, at most.
            tokens: that it reads.
            limit: after how many steps it ends all the same.
            done: steps of an earlier run that this one resumes.
        """
        self.planned = min(steps, limit or steps)
        self.tokens, self.before = round(tokens * self.planned / max(steps, 1)), done
        self.ticks.append(time.perf_counter())

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


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One training of a method: for whom, and with which draws; see :meth:`StandaloneMethod.fit`."""

    folder: Path
    seed: int
    rng: np.random.Generator
    clock: Clock
    validate: Validate | None
    on_round: OnRound
    untrained: Callable[[float], None]
    resume: bool


@dataclass(frozen=True, kw_only=True)
class StandaloneMethod(ABC):
    """A method that trains itself, for what ``transformers.Trainer`` cannot hold: it writes the encoder's folder."""

    trainer: ClassVar[str] = "rounds"
    """Which trainer it needs."""
    needs: ClassVar[tuple[str, ...]] = ("text",)
    """The columns of a corpus that it learns from."""
    seconds: float | None = None
    """Stop after so much time; default never."""

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

        Args:
            columns: the corpus.
            folder: where the encoder goes.
            seed: of weights and order.
            validate: scores an encoder; the best weights are kept by it, without it the last.
            on_round: called with every round.
            untrained: called with the score of the weights before the first step.
            resume: resume from the last round of a training that was stopped, to the same weights.
            clock: when to stop; default after ``seconds``.

        Raises:
            TrainingError: the loss is not finite, or there is nothing to learn from.
        """
        torch.manual_seed(seed)
        job = TrainingJob(
            folder=folder,
            seed=seed,
            rng=np.random.default_rng(seed),
            clock=clock or Clock(self.seconds),
            validate=validate,
            on_round=on_round,
            untrained=untrained,
            resume=resume,
        )
        return self.learn_all(columns, job)

    @abstractmethod
    def learn_all(self, columns: Columns, job: TrainingJob) -> list[Round]:
        """Train as :meth:`fit` says, draws seeded."""


class WeightsKeeper:
    """Writes the weights that score best, or the last ones where nothing scores them, and the state to resume from.

    The state is one file, whole or not there: all that a training changes, the optimiser's own and torch's generator.
    """

    def __init__(
        self,
        job: TrainingJob,
        write: Callable[[Path], object],
        load: Callable[[Path], Encoder],
        tensors: Mapping[str, torch.Tensor],
        optimiser: torch.optim.Optimizer | None = None,
    ) -> None:
        """Take how weights are written and opened, and what is learned in place; a resumed job has its earlier rounds back.

        Raises:
            TrainingError: the state of another training lies there: the text is another, or a size.
        """
        self.job, self.write, self.load = job, write, load
        self.tensors, self.optimiser = tensors, optimiser
        self.trial = job.folder / "trial"
        self.rounds: list[Round] = []
        self.best: float = -math.inf
        if not job.resume:
            shutil.rmtree((job.folder / STATE).parent, ignore_errors=True)
        if job.validate is not None and (score := self._score()) is not None:
            job.untrained(score)
            shutil.rmtree(self.trial, ignore_errors=True)
        if (job.folder / STATE).is_file():
            self._restore()
        for ended in self.rounds:
            job.on_round(ended)

    def _score(self) -> float | None:
        """Write the weights as they are, and score them where anything scores."""
        self.write(self.trial)
        return None if self.job.validate is None else self.job.validate(self.load(self.trial))

    @property
    def step(self) -> int:
        """How many steps are done, as far as rounds go."""
        return self.rounds[-1].step if self.rounds else 0

    def close(self, step: int, losses: Sequence[float], *, merit: float | None = None, **facts: float) -> Round:
        """End a round: score the weights as they are, and keep them if they are the best.

        Args:
            step: steps done.
            losses: of the round.
            merit: what the best are chosen by, instead of the score.
            facts: what else there is to say of the round.
        """
        job, score = self.job, self._score()
        merit = score if merit is None else merit
        kept = merit is None or worth(merit) > self.best or not any(one.kept for one in self.rounds)
        if kept:
            self.best = self.best if merit is None else worth(merit)
            for path in self.trial.iterdir():
                path.replace(job.folder / path.name)
        shutil.rmtree(self.trial, ignore_errors=True)
        plain, seen = (None, {}) if score is None else (float(score), seen_with(score))
        ended = Round(step=step, loss=sum(losses) / len(losses), score=plain, kept=kept, facts={**facts, **seen})
        self.rounds.append(ended)
        self._write_state()
        job.on_round(ended)
        return ended

    def _write_state(self) -> None:
        state = {f"learnt.{name}": tensor.detach() for name, tensor in self.tensors.items()}
        own = self.optimiser.state_dict()["state"] if self.optimiser else {}
        for number, values in own.items():
            state |= {f"optimiser.{number}.{key}": value for key, value in values.items() if value is not None}
        facts = {
            "rounds": [asdict(one) for one in self.rounds],
            "best": self.best if math.isfinite(self.best) else None,
            "rates": [group["lr"] for group in self.optimiser.param_groups] if self.optimiser else [],
        }
        content = save({**state, "random": torch.get_rng_state()}, {"facts": json.dumps(facts)})
        write_whole(self.job.folder / STATE, content)

    def _restore(self) -> None:
        folder = self.job.folder
        try:
            with safe_open(folder / STATE, framework="pt") as stored:
                facts: dict[str, Any] = json.loads(stored.metadata()["facts"])
                state = {name: stored.get_tensor(name) for name in stored.keys()}
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise TrainingError(
                f"{folder / STATE}: cannot be read: {one_line(error)}; pass --fresh to train again"
            ) from error
        for name, tensor in self.tensors.items():
            if f"learnt.{name}" not in state or state[f"learnt.{name}"].shape != tensor.shape:
                raise TrainingError(f"{folder}: its checkpoint is of another training; pass --fresh to train again")
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(state[f"learnt.{name}"])
        if self.optimiser:
            own: dict[int, dict[str, torch.Tensor]] = {}
            for name in state:
                if name.startswith("optimiser."):
                    _, number, key = name.split(".", 2)
                    own.setdefault(int(number), {})[key] = state[name]
            self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": own})
            for group, rate in zip(self.optimiser.param_groups, facts["rates"], strict=True):
                group["lr"] = rate
        torch.set_rng_state(state["random"])
        self.rounds = [Round(**one) for one in facts["rounds"]]
        self.best = facts["best"] if facts["best"] is not None else -math.inf


def count_learnt(folder: Path) -> int:
    """How many numbers are learnt, by the state that was written last."""
    with safe_open(folder / STATE, framework="pt") as stored:
        names = [name for name in stored.keys() if name.startswith("learnt.")]
        return sum(math.prod(stored.get_slice(name).get_shape()) for name in names)


def run_steps(
    batches: Iterable[Rows], learn: Callable[[Rows], float], keeper: WeightsKeeper, *, every: int, steps: int | None
) -> list[Round]:
    """Learn from batches until they, the steps or the time are over, closing a round ``every`` so many steps.

    A resumed job passes over the batches of its earlier rounds: all draws are made again.
    """
    losses: list[float] = []
    step = keeper.step
    for rows in islice(batches, step, steps):
        loss = check_loss(learn(rows), step, keeper.job.folder)
        losses.append(loss)
        step += 1
        over = keeper.job.clock.is_over(loss)
        if step % every == 0:
            keeper.close(step, losses)
            losses = []
        if over:
            break
    if losses:
        keeper.close(step, losses)
    return keeper.rounds


def check_loss(loss: float, step: int, folder: Path) -> float:
    """Return a loss, or raise TrainingError where it is not finite."""
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {step}; lower the learning rate; {folder} keeps the best weights so far"
        )
    return loss


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
        """Count words; those equally frequent stand in alphabetical order.

        Args:
            sentences: tokenised text.
            specials: words put first, whatever their frequency.
            limit: the most words there may be, the special ones among them.
            min_count: leave out what is rarer.

        Raises:
            TrainingError: no word is left.
        """
        counted = Counter(word for sentence in sentences for word in sentence if word not in specials)
        kept = sorted((word for word, n in counted.items() if n >= min_count), key=lambda w: (-counted[w], w))
        kept = kept[: None if limit is None else max(limit - len(specials), 0)]
        if not kept:
            raise TrainingError(f"no word occurs {min_count} times: nothing to learn from; lower min_count")
        counts = [0] * len(specials) + [counted[word] for word in kept]
        return cls(words=(*specials, *kept), counts=np.array(counts, dtype=np.int64))

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def ids(self, sentences: Iterable[Sequence[str]], *, unknown: str | None = None) -> list[list[int]]:
        """Return each sentence's ids; a word that is not there is read as ``unknown``, or left out."""
        rows = {word: row for row, word in enumerate(self.words)}
        if unknown is None:
            return [[rows[word] for word in sentence if word in rows] for sentence in sentences]
        return [[rows.get(word, rows[unknown]) for word in sentence] for sentence in sentences]


class Ordered(NamedTuple):
    """Ordered text: the words of each sentence, the number of its document (n,), and the vocabulary."""

    sentences: list[list[str]]
    documents: npt.NDArray[np.int64]
    vocabulary: Vocabulary


def read_ordered(columns: Columns, split: Callable[[str], list[str]], **counting: Any) -> Ordered:  # noqa: ANN401
    """Read ordered text; ``counting`` is how :meth:`Vocabulary.of` makes its vocabulary.

    Text without the column ``document_id`` is one document, as the papers' code reads books.

    Raises:
        TrainingError: fewer than three sentences, or no word is left.
    """
    texts = columns["text"]
    if len(texts) < 3:
        raise TrainingError(f"ordered text of {len(texts)} sentence(s); neighbours need three at least")
    numbers = columns.get("document_id", ())
    documents = np.asarray(numbers, dtype=np.int64) if len(numbers) else np.zeros(len(texts), dtype=np.int64)
    sentences = [split(text) for text in texts]
    return Ordered(sentences, documents, Vocabulary.of(sentences, **counting))


def centres(documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sentences that have a neighbour on either side in their own document."""
    inner = (documents[1:-1] == documents[:-2]) & (documents[1:-1] == documents[2:])
    return np.flatnonzero(inner) + 1

"""Rows made up for the registries: each does what a true one does, and notes that it was used."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from stsbench.analysis.context import EncoderAnalysis, EncoderFindings, EncoderOnTask, Tables
from stsbench.bench.plan import EncoderPlan
from stsbench.bench.run import RunContext, run_locally
from stsbench.boards.exports.hub import HubTask
from stsbench.cli.convert import Conversion
from stsbench.data.corpora.corpus import TextFile
from stsbench.data.splits import PairSplit
from stsbench.encoders.backends import TorchBackend
from stsbench.encoders.transformer.pooling import MeanPooling
from stsbench.encoders.words.words import BagRecipe, whitespace_bags
from stsbench.evaluators.probe.evaluator import ConvergedProtocol
from stsbench.evaluators.sts import StsEvaluator, StsProtocol
from stsbench.numbers.similarity import paired_cosine
from stsbench.numbers.statistics import Correlation
from stsbench.recipes.train import run_training
from stsbench.recipes.trainers import LoopTrainer
from stsbench.results.record import Result
from stsbench.training.loop.optimisers import ScheduleKind
from stsbench.training.methods.simcse import SimCSE

USED: set[str] = set()
"""The tables whose made-up rows were used."""


def noting(table: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which notes each call."""

    def call(*arguments: Any, **named: Any) -> Any:
        USED.add(table)
        return function(*arguments, **named)

    return call


class Evaluator(StsEvaluator):
    """Scores pairs."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        USED.add("evaluators.registry:EVALUATORS")
        return super().__call__(*arguments, **named)


class Counts(EncoderAnalysis):
    """Counts the pairs that are scored."""

    about, printed = "how many pairs there are", ("pairs",)

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        USED.add("analysis.context:ANALYSES")
        return EncoderFindings({"pairs": [{"pairs": subject.pairs().n}]})

    def draw(self, tables: Tables, title: str) -> Any:
        raise NotImplementedError


def read(files: Any) -> PairSplit:
    """Read pairs and their gold scores, parted by tabs."""
    USED.add("data.readers.registry:READERS")
    rows = [line.split("\t") for line in files[0].path.read_text().splitlines()]
    first, second, gold = zip(*rows, strict=True)
    return PairSplit(
        sentences1=list(first),
        sentences2=list(second),
        gold=np.array(gold, np.float64),
        subset=[""] * len(rows),
    )


class Encoder:
    """Embeds a sentence as the counts of its letters."""

    def __init__(self, name: str = "letters") -> None:
        self.name, self.fingerprint = name, "letters"

    def encode(self, sentences: list[str]) -> Any:
        USED.add("encoders.kinds:ENCODERS")
        return (
            np.array(
                [[s.count(letter) for letter in "abcdefghijklmnop"] for s in sentences], np.float32
            )
            + 0.5
        )


class Pooling(MeanPooling):
    """The mean."""

    name = "mine"

    def pool(self, *arguments: Any, **named: Any) -> Any:
        USED.add("encoders.transformer.pooling:POOLINGS")
        return super().pool(*arguments, **named)


class Backend(TorchBackend):
    """PyTorch."""

    def load_model(self, network: Any) -> Any:
        USED.add("encoders.backends:BACKENDS")
        return super().load_model(network)


class Probe(ConvergedProtocol):
    """Logistic regression."""

    def solver(self, run: Any) -> Any:
        USED.add("evaluators.probe.evaluator:PROTOCOLS")
        return super().solver(run)


class Method(SimCSE):
    """SimCSE."""

    trainer = "mine"

    def forward(self, **batch: Any) -> Any:
        USED.add("training.methods.registry:METHODS")
        return super().forward(**batch)


class Trainer(LoopTrainer):
    """The common loop."""

    @classmethod
    def prepare(cls, plan: Any, method: Any) -> Any:
        USED.add("recipes.trainer:TRAINERS")
        return super().prepare(plan, method)


def agreement(x: Any, y: Any) -> float:
    """How often both are above their medians, or neither: 1 always, -1 never."""
    return float(np.mean(np.sign(x - np.median(x)) * np.sign(y - np.median(y))))


def _text(path: Any, content: bytes, header: bool) -> pa.Table:
    return pa.table({"text": content.decode().splitlines()})


def execute(work: RunContext, parts: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Carry out parts as the local executor does."""
    USED.add("bench.run:EXECUTORS")
    yield from run_locally(work, parts)


@contextmanager
def launch(on: str, devices: int | None, noticed: Callable[[str], None]) -> Iterator[Any]:
    """Train as without --on."""
    USED.add("recipes.train:LAUNCHERS")
    yield run_training


def carry(*asked: Any) -> str:
    """Carry out no sweep."""
    return "carried"


ROWS: dict[str, Any] = {
    "bench.run:EXECUTORS": "tests.made_up:execute",
    "analysis.context:ANALYSES": "tests.made_up:Counts",
    "analysis.context:WRITERS": noting("analysis.context:WRITERS", lambda found: found.title),
    "evaluators.registry:EVALUATORS": "tests.made_up:Evaluator",
    "data.readers.registry:READERS": "tests.made_up:read",
    "encoders.kinds:ENCODERS": "tests.made_up:Encoder",
    "encoders.backends:BACKENDS": Backend,
    "encoders.transformer.pooling:POOLINGS": Pooling,
    "encoders.words.words:BAG_RECIPES": BagRecipe(
        noting("encoders.words.words:BAG_RECIPES", whitespace_bags)
    ),
    "training.methods.registry:METHODS": "tests.made_up:Method",
    "recipes.trainer:TRAINERS": "tests.made_up:Trainer",
    "recipes.train:LAUNCHERS": "tests.made_up:launch",
    "training.loop.optimisers:OPTIMISERS": noting(
        "training.loop.optimisers:OPTIMISERS", lambda groups, facts: torch.optim.SGD(groups)
    ),
    "training.loop.optimisers:SCHEDULES": ScheduleKind(
        noting("training.loop.optimisers:SCHEDULES", lambda facts, steps: lambda step: 1.0)
    ),
    "recipes.train_plan:MEASURES": noting(
        "recipes.train_plan:MEASURES", lambda a, b: [paired_cosine(a, b)[0]]
    ),
    "data.corpora.corpus:OPENERS": noting(
        "data.corpora.corpus:OPENERS", lambda path, *mode: io.BytesIO(path.read_bytes()[::-1])
    ),
    "data.corpora.corpus:TEXT_FILES": TextFile(noting("data.corpora.corpus:TEXT_FILES", _text)),
    "numbers.statistics:CORRELATIONS": Correlation(
        name="mine",
        label="Mine",
        compute=noting("numbers.statistics:CORRELATIONS", agreement),
        to_pearson=None,
    ),
    "numbers.statistics:AGGREGATIONS": noting("numbers.statistics:AGGREGATIONS", np.ones_like),
    "evaluators.probe.evaluator:PROTOCOLS": Probe(name="mine", kfold=2, penalties=(1.0,)),
    "boards.render.formats:WRITERS": noting(
        "boards.render.formats:WRITERS",
        lambda tables, options: "".join(f"{r.label}\n" for t in tables for r in t.rows()),
    ),
    "boards.exports.hub:HUB_TASKS": HubTask("task-of-mine", "Mine"),
    "check.gate:RULES": noting(
        "check.gate:RULES", lambda judged, settings: [one.verdict for one in judged]
    ),
    "cli.export:FORMATS": noting(
        "cli.export:FORMATS", lambda results, out, catalogue, as_json: None
    ),
    "cli.list:LISTS": noting("cli.list:LISTS", lambda cards: [{"thing": "a thing of mine"}]),
    "cli.show:CARD_READERS": noting(
        "cli.show:CARD_READERS",
        lambda name, cards: {"of": "mine"} if name == "a thing of mine" else None,
    ),
    "cli.convert:CONVERSIONS": Conversion(
        noting("cli.convert:CONVERSIONS", lambda source, out: "")
    ),
}
"""By table; a row of a registry of addresses is one of this file."""


def protocol() -> StsProtocol:
    """A protocol of the made-up metric and aggregation; those must be in their tables."""
    return StsProtocol(name="mine", metric="mine", aggregation="mine")

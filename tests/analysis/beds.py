"""Analyses of encoders that a test makes, on the packaged pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stsbench.analysis.context import AnalysisContext, EncoderOnTask
from stsbench.bench.plan import RunPlan
from stsbench.core.catalogue import Catalogue
from stsbench.encoders.base import Encoder
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.named import NamedEncoder
from stsbench.results.record import Result


@dataclass(frozen=True, kw_only=True)
class MadeBed(AnalysisContext):
    """Encoders that are there already, and results."""

    encoders: Sequence[Encoder]
    made: Sequence[Result] = ()

    def subjects(self) -> Iterator[EncoderOnTask]:
        for encoder in self.encoders:
            yield EncoderOnTask(
                name=encoder.name,
                named_encoder=NamedEncoder(name=encoder.name, encoder=encoder),
                task=self.loaded_task,
                embed=Engine(encoder, EmbeddingStore(None)),
                store=None,
            )

    def results(self) -> Sequence[Result]:
        return self.made


def bed(
    *encoders: Any,
    task: str = "quickstart-en",
    made: Sequence[Result] = (),
    names: Sequence[str] = (),
) -> MadeBed:
    """A bed with these encoders on one task, in memory alone."""
    names = names or [encoder.name for encoder in encoders]
    plan = RunPlan(tasks=task, encoders=names, catalogue=Catalogue())
    return MadeBed(plan=plan, encoders=encoders, made=made)

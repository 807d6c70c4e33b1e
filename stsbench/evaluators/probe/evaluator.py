"""The evaluator of SentEval's transfer and probing tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

from stsbench.data.splits import LabelledPairSplit, LabelledSplit, Split
from stsbench.encoders.seams import Embed
from stsbench.errors import DataError
from stsbench.evaluators.probe.classifier import ProbeItems, ProbeProtocol, ProbeRun
from stsbench.evaluators.probe.order import toolkit_order
from stsbench.evaluators.probe.pool import Features, make_pool
from stsbench.evaluators.probe.protocols import PROTOCOLS
from stsbench.evaluators.probe.report import Labelled, embedding_notes, make_probe_scores
from stsbench.evaluators.probe.schemes import run_scheme
from stsbench.evaluators.seams import Scores


class ProbeEvaluator:
    """Scores one classification task by a classifier on frozen embeddings.

    The splits' names give the scheme: ``all`` nested cross-validation (MR, CR, SUBJ, MPQA); ``train``
    and ``test`` folds of train, then test (TREC, MRPC); with ``validation`` fixed splits (SST,
    SICK-E, SNLI, probing).

    In memory at most: the embeddings, if ``memory`` allows; else 128 MiB of them a thread. Beside them the
    batch orders (4 bytes an item and epoch) and, under ``logreg``, 1 GiB of features. Features of pairs
    are made batch by batch, never all at once.
    """

    PROTOCOLS: ClassVar[Mapping[str, ProbeProtocol]] = PROTOCOLS

    def __init__(
        self,
        protocol: ProbeProtocol,
        *,
        f1: bool = False,
        features: Features = "u",
        nhid: int | None = None,
        epoch_size: int | None = None,
        max_epochs: int | None = None,
        weight_decays: Sequence[float] | None = None,
        device: str = "cpu",
        threads: int | None = None,
        memory: int = 4 << 30,
    ) -> None:
        """Set up a probe; ``self.protocol`` then holds the fields that a Result records.

        Args:
            protocol: how classifiers are trained, chosen and rounded.
            f1: report the F1 of class 1 beside accuracy (MRPC).
            features: of pairs: ``abs_mul`` (MRPC, SICK-E) or ``concat_mul_abs`` (SNLI, whose rows
                are then also sorted as the toolkit sorts SNLI's); of single sentences ``u``.
            nhid: what the task fixes in place of the protocol's hidden units, if it has any (WordContent: 0).
            epoch_size: likewise its passes between checks (SNLI: 1).
            max_epochs: likewise its most epochs (SNLI: 15).
            weight_decays: likewise its grid (SNLI: 1e-9 alone).
            device: ``cpu`` or a torch device; classifiers with hidden units use torch anywhere.
            threads: of the CPU; default: all that this process may use.
            memory: bytes of embeddings held in memory; a larger task is read chunk by chunk.
        """
        grid = None if weight_decays is None else tuple(weight_decays)
        fixed = {"nhid": nhid, "epoch_size": epoch_size, "max_epochs": max_epochs, "weight_decays": grid}
        own = {field.name for field in fields(protocol)}
        changes: dict[str, Any] = {name: value for name, value in fixed.items() if name in own and value is not None}
        self.protocol = replace(protocol, **changes)
        self.f1, self.features = f1, features
        self.device, self.memory = device, memory
        self.threads = threads or _cores()

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train, choose and test classifiers on the embeddings of these splits.

        Args:
            splits: ``all``; ``train`` and ``test``; or those and ``validation``.
            embed: sentences to embeddings.
            seed: 0 is the published run; see :class:`ProbeProtocol`.

        Raises:
            DataError: splits that are not labelled, too small, or of no known scheme.
            EncoderError: embeddings that are not finite, or of a wrong shape.
        """
        labelled = {name: _labelled(split) for name, split in splits.items()}
        classes = max(max(1 + int(split.labels.max()), len(split.classes)) for split in labelled.values())
        if classes < 2:
            raise DataError("a probe needs at least two classes")
        rows: dict[str, ProbeItems] = {}
        for name, split in labelled.items():
            free = self.memory - sum(r.pool.held for r in rows.values())
            order = toolkit_order(split, second_first=self.features == "concat_mul_abs")
            rows[name] = ProbeItems(make_pool(split, embed, self.features, free), order, split.labels[order])
        width = next(iter(rows.values())).pool.width
        solver = self.protocol.solver(ProbeRun(width, classes, seed, self.device, self.threads))
        outcome = run_scheme(rows, self.protocol, solver, seed=seed)
        scores = make_probe_scores(Labelled(labelled, classes), outcome, f1=self.f1, rounding=self.protocol.rounding)
        pools = [r.pool for r in rows.values()]
        notes = (*embedding_notes(pools), *solver.notes())
        return replace(scores, zero_vectors=sum(pool.zero_rows for pool in pools), notes=notes)


def _cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _labelled(split: Split) -> LabelledSplit | LabelledPairSplit:
    if not isinstance(split, LabelledSplit | LabelledPairSplit):
        raise DataError("the evaluator 'probe' scores sentences or pairs that have a class")
    if not split.n:
        raise DataError("a split of the probe is empty")
    return split

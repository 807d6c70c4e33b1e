"""The probe's classifier search: compiled loops against torch's own, all tasks, and its growth.

    STSBENCH_DATA=DIR python benchmarks/probe.py [--parts torch,tasks,growth,pairs] [--rounds 3]
        [--sample 20]

Embeddings are those of ``minilm`` (384 numbers), encoded once into the store. The peer trains the
same classifiers as SentEval does, one after another: ``nn.Linear``, ``CrossEntropyLoss``,
``optim.Adam``. It is timed on a sample of CR's 410, evenly chosen, and must stop after the same
epochs with the same accuracy. Sides alternate; each runs at the thread count that was best for it
in a warm-up.

On two cores of an Intel Xeon (Sapphire Rapids), torch 2.13:

    2 threads of 2 cores, load 0.5; a bare product of matrices, GFLOP/s: float32 337, bfloat16 2453
    CR, kfold 10, 410 classifiers; medians of 3 rounds (all rounds)
      torch, one at a time, 2 thread(s), from 20:    243.3 s  (241.15, 243.30, 255.14)
      compiled, 2 thread(s), whole evaluation:        1.90 s  (1.90, 1.84, 2.01)
      times faster: 128
      same epochs and accuracy: 20 of 20 classifiers

    seconds (accuracy in points) from stored embeddings
                      senteval      senteval-sum     senteval-fast            logreg
      mr           6.5 (75.97)       5.1 (76.04)       0.4 (76.07)       2.0 (76.60)
      cr           1.9 (80.61)       1.9 (80.82)       0.2 (82.01)       1.0 (82.28)
      subj         5.3 (91.78)       5.3 (91.79)       0.4 (92.20)       2.9 (92.40)
      mpqa         5.4 (87.42)       5.4 (87.36)       0.4 (87.29)       3.0 (87.53)
      sst2         1.0 (81.44)       0.8 (81.44)       0.4 (81.55)       1.0 (81.60)
      trec         1.7 (90.00)       2.0 (90.00)       0.3 (90.20)       4.8 (89.60)
      mrpc         0.9 (72.12)       0.8 (72.46)       0.2 (72.29)       0.4 (72.29)
      all         22.7 (82.76)      21.3 (82.84)       2.3 (83.09)      15.2 (83.19)

    seconds of nested cross-validation, senteval
      n =   3775, d =   384:     1.8
      n =   3775, d =   768:     2.6
      n =   3775, d =  1024:     3.5
      n =   1250, d =   384:     0.5
      n =   2500, d =   384:     0.9
      n =   5000, d =   384:     2.0
      n =  10000, d =   384:     4.3

    549367 training pairs, d = 384: embeddings 1667 MiB, their features 3334 MiB
      embeddings in memory:   16.6 s, at most 1870 MiB of arrays
      read chunk by chunk :   14.3 s, at most 295 MiB of arrays
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from peak import machine
from torch import nn

from stsbench.bench.embedder import open_store
from stsbench.core.catalogue import Catalogue
from stsbench.core.parameters import call_with_params
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, Split
from stsbench.data.task import load_task
from stsbench.encoders.base import Embed, FloatArray
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import load_encoder
from stsbench.evaluators.probe.evaluator import PROTOCOLS, MinibatchProtocol, ProbeEvaluator
from stsbench.evaluators.probe.items import EpochOrders, ProbeRun, make_items
from stsbench.evaluators.probe.minibatch import CompiledSolver, Fold

IntArray = npt.NDArray[np.int64]
T = TypeVar("T")
SENTEVAL = MinibatchProtocol(name="senteval")
PARTS = ("torch", "tasks", "growth", "pairs")


@dataclass(frozen=True)
class Fixed:
    """Embeddings by sentence, in the form of a store's views."""

    rows: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """The number of sentences and the embedding size."""
        return self.rows.shape[0], self.rows.shape[1]

    def take(self, indices: IntArray) -> FloatArray:
        """Return these rows."""
        return self.rows[indices]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return all rows."""
        return self.rows


def timed(run: Callable[[], T]) -> tuple[float, T]:
    """Call a function; return the seconds and its value."""
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def splits_of(name: str) -> dict[str, Split]:
    """Return every split of a task."""
    task = load_task(name)
    return {split: task.load(split) for split in task.card.splits}


def evaluator(name: str, protocol: str, threads: int | None = None) -> ProbeEvaluator:
    """Return the evaluator that a task's card names."""
    params = {"protocol": PROTOCOLS[protocol], "threads": threads, **load_task(name).card.options}
    probe = call_with_params(ProbeEvaluator, params, where=name)
    assert isinstance(probe, ProbeEvaluator)
    return probe


def classifiers(split: LabelledSplit, embed: Embed) -> list[Fold]:
    """Return the 410 classifiers of nested cross-validation, each with its weight decay.

    Refits have the first weight decay.
    """
    rows = make_items(split, embed, "u", 1 << 30)
    orders: dict[tuple[int, float], EpochOrders] = {}

    def orders_of(n: int, holdout: float = 0.0) -> EpochOrders:
        return orders.setdefault((n, holdout), EpochOrders(1111, n, holdout=holdout))

    folds: list[Fold] = []
    for outer, _ in rows.folds(10, 1111):
        for train, development in outer.folds(10, 1111):
            folds += [
                Fold(train, development, orders_of(len(train)), [decay])
                for decay in SENTEVAL.weight_decays
            ]
        draws = orders_of(len(outer), SENTEVAL.holdout)
        folds.append(
            Fold(
                outer.select(draws.training_items),
                outer.select(draws.validation_items),
                draws,
                SENTEVAL.weight_decays[:1],
            )
        )
    return folds


def train_with_torch(fold: Fold) -> tuple[int, float]:
    """Train one linear classifier by SentEval's loop; return its epochs and best accuracy."""
    (block,), (dev_block,) = fold.train.blocks(), fold.development.blocks()
    x, y = torch.from_numpy(block.u[block.embedding_rows]), torch.from_numpy(fold.train.labels)
    dev_x, dev_y = (
        torch.from_numpy(dev_block.u[dev_block.embedding_rows]),
        torch.from_numpy(fold.development.labels),
    )
    torch.manual_seed(1111)
    model, loss_of = nn.Linear(x.shape[1], 2), nn.CrossEntropyLoss()
    optimiser = torch.optim.Adam(model.parameters(), weight_decay=fold.decays[0])
    best, failures, epochs = -1.0, 0, 0
    while epochs <= SENTEVAL.max_epochs and failures <= SENTEVAL.tenacity:
        for epoch in range(epochs, epochs + SENTEVAL.epoch_size):
            order = torch.from_numpy(fold.orders.permutation(epoch))
            for rows in torch.split(order, SENTEVAL.batch_size):
                loss = loss_of(model(x[rows]), y[rows])
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
        epochs += SENTEVAL.epoch_size
        with torch.no_grad():
            accuracy = float((model(dev_x).argmax(dim=1) == dev_y).float().mean())
        failures += accuracy <= best
        best = max(best, accuracy)
    return epochs, best


def compare_with_torch(split: LabelledSplit, embed: Embed, *, rounds: int, sample: int) -> None:
    """Print the seconds of both sides for CR's whole search, and their agreement."""
    all_folds = classifiers(split, embed)
    sampled_folds = [
        all_folds[i] for i in np.linspace(0, len(all_folds) - 1, sample).round().astype(int)
    ]
    counts = sorted({1, torch.get_num_threads()})

    def theirs(threads: int, folds: list[Fold]) -> list[tuple[int, float]]:
        torch.set_num_threads(threads)
        return [train_with_torch(fold) for fold in folds]

    def ours(threads: int) -> object:
        return ProbeEvaluator(SENTEVAL, threads=threads)({"all": split}, embed, seed=0)

    their_threads = min(
        counts, key=lambda count: timed(lambda: theirs(count, sampled_folds[:3]))[0]
    )
    our_threads = min(counts, key=lambda count: timed(lambda: ours(count))[0])
    their_seconds, our_seconds = [], []
    for _ in range(rounds):
        seconds, outcomes = timed(lambda: theirs(their_threads, sampled_folds))
        their_seconds.append(seconds / sample * len(all_folds))
        our_seconds.append(timed(lambda: ours(our_threads))[0])
    their_median, our_median = statistics.median(their_seconds), statistics.median(our_seconds)
    print(f"CR, kfold 10, {len(all_folds)} classifiers; medians of {rounds} rounds (all rounds)")
    print(
        f"  torch, one at a time, {their_threads} thread(s), from {sample}: {their_median:8.1f} s  "
        f"{_list(their_seconds)}"
    )
    print(
        f"  compiled, {our_threads} thread(s), whole evaluation:    {our_median:8.2f} s  "
        f"{_list(our_seconds)}"
    )
    print(f"  times faster: {their_median / our_median:.0f}")
    n_agreeing = _agreeing(sampled_folds, outcomes)
    print(f"  same epochs and accuracy: {n_agreeing} of {sample} classifiers\n")


def _agreeing(folds: list[Fold], outcomes: list[tuple[int, float]]) -> int:
    trained = CompiledSolver(SENTEVAL, ProbeRun(folds[0].train.pool.width, 2)).fit(folds)
    pairs = zip(trained, outcomes, strict=True)
    return sum(
        classifier.epochs == epochs and abs(classifier.accuracy - best) < 1e-6
        for (classifier,), (epochs, best) in pairs
    )


def _list(seconds: list[float]) -> str:
    return "(" + ", ".join(f"{s:.2f}" for s in seconds) + ")"


def seven_tasks(embed: Embed) -> None:
    """Print the seconds and scores of every transfer task, from stored embeddings."""
    protocols = ("senteval", "senteval-sum", "senteval-fast", "logreg")
    print("seconds (accuracy in points) from stored embeddings")
    print(f"  {'':6s}" + "".join(f"{p:>18s}" for p in protocols))
    totals, means = dict.fromkeys(protocols, 0.0), dict.fromkeys(protocols, 0.0)
    names = Catalogue().suites()["transfer"].tasks
    for name in names:
        splits, cells = splits_of(name), []
        for protocol in protocols:
            probe = evaluator(name, protocol)
            seconds, scores = timed(lambda: probe(splits, embed, seed=0))  # noqa: B023 - called at once
            totals[protocol] += seconds
            means[protocol] += 100 * scores.score / len(names)
            cells.append(f"{seconds:9.1f} ({100 * scores.score:.2f})")
        print(f"  {name:6s}" + "".join(f"{cell:>18s}" for cell in cells), flush=True)
    print(
        f"  {'all':6s}"
        + "".join(f"{f'{totals[p]:.1f} ({means[p]:.2f})':>18s}" for p in protocols)
        + "\n"
    )


def growth(split: LabelledSplit, embed: Embed) -> None:
    """Print the seconds of CR with wider embeddings, and of parts of CR and MR.

    The wider embeddings are rotated copies of its own.
    """
    rows = np.asarray(embed(split.sentences))
    rng = np.random.default_rng(0)
    print("seconds of nested cross-validation, senteval")
    for d in (rows.shape[1], 768, 1024):
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0][: rows.shape[1]].astype(np.float32)
        wide: Mapping[str, FloatArray] = dict(zip(split.sentences, rows @ turn, strict=True))
        print(f"  n = {split.n:6d}, d = {d:5d}: {_nested_seconds(split, wide):7.1f}", flush=True)
    larger = splits_of("mr")["all"]
    assert isinstance(larger, LabelledSplit)
    vectors = dict(zip(larger.sentences, np.asarray(embed(larger.sentences)), strict=True))
    for n in (1250, 2500, 5000, 10000):
        rows_of_part = np.random.default_rng(0).permutation(larger.n)[:n]
        part = LabelledSplit(
            sentences=[larger.sentences[i] for i in rows_of_part],
            labels=larger.labels[rows_of_part],
        )
        print(
            f"  n = {n:6d}, d = {rows.shape[1]:5d}: {_nested_seconds(part, vectors):7.1f}",
            flush=True,
        )


def _nested_seconds(split: LabelledSplit, vectors: Mapping[str, FloatArray]) -> float:
    probe = ProbeEvaluator(SENTEVAL)
    view = Fixed(np.stack([vectors[s] for s in split.sentences]))
    return timed(lambda: probe({"all": split}, lambda _: view, seed=0))[0]


class FromDisk(Fixed):
    """Embeddings in a file; rows are copied when they are read, as in the store."""

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> FloatArray:
        """Return a copy of all rows."""
        return np.array(self.rows)


def stream_pairs(folder: Path, *, n: int = 549_367, d: int = 384) -> None:
    """Print seconds and peak memory for invented pairs in SNLI's number.

    Their embeddings are held in memory, then read chunk by chunk.
    """
    rng, sizes = np.random.default_rng(0), {"train": n, "validation": 9842, "test": 9824}
    splits: dict[str, Split] = {}
    views: dict[str, FromDisk] = {}
    for name, size in sizes.items():
        labels = rng.integers(0, 3, size=size)
        sides = [[f"{name} {side} {i}" for i in range(size)] for side in "ab"]
        splits[name] = LabelledPairSplit(sentences1=sides[0], sentences2=sides[1], labels=labels)
        for side in sides:
            rows = np.memmap(folder / side[0].replace(" ", "-"), np.float32, "w+", shape=(size, d))
            for start in range(0, size, 10_000):
                block_labels = labels[start : start + 10_000, None]
                rows[start : start + 10_000] = (
                    rng.standard_normal((len(block_labels), d), dtype=np.float32)
                    + 0.1 * block_labels
                )
            views[side[0]] = FromDisk(rows)
    n_bytes = sum(4 * size * 2 * d for size in sizes.values())
    print(
        f"{n} training pairs, d = {d}: embeddings {_mib(n_bytes)}, their features "
        f"{_mib(4 * n_bytes // 2)}"
    )
    for label, memory in (("embeddings in memory", 4 << 30), ("read chunk by chunk", 0)):
        probe = evaluator("snli", "senteval")
        probe.memory = memory
        tracemalloc.start()
        seconds, _ = timed(lambda: probe(splits, lambda texts: views[texts[0]], seed=0))  # noqa: B023 - called at once
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  {label:20s}: {seconds:6.1f} s, at most {_mib(peak)} of arrays", flush=True)


def _mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--sample", type=int, default=20, help="classifiers that torch's loop is timed on"
    )
    parser.add_argument("--store", type=Path, default=None, help="where embeddings are kept")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of the four to run")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: unknown {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    print(machine(torch.get_num_threads()))
    if "pairs" in parts:
        with tempfile.TemporaryDirectory() as folder:
            stream_pairs(Path(folder))
    if parts == ["pairs"]:
        return
    encoder = load_encoder("minilm")
    engine = Engine(encoder, open_store(options.store or "default", encoder))
    tasks = {name: splits_of(name) for name in Catalogue().suites()["transfer"].tasks}
    engine.prepare(
        [text for splits in tasks.values() for split in splits.values() for text in split.texts()]
    )
    reviews = tasks["cr"]["all"]
    assert isinstance(reviews, LabelledSplit)
    if "torch" in parts:
        compare_with_torch(reviews, engine, rounds=options.rounds, sample=options.sample)
    if "tasks" in parts:
        seven_tasks(engine)
    if "growth" in parts:
        growth(reviews, engine)


if __name__ == "__main__":
    main()

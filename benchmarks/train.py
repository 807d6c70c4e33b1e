"""Training beside sentence-transformers' own trainer.

    python benchmarks/train.py --model FOLDER --corpora FOLDER [--rounds 3] [--steps 20]
        [--precision float32,bfloat16] [--batch 64] [--chunk 32] [--workers 1] [--shape bert-base]

Both sides have the same model, text, batches, length, precision and loss: supervised contrast of
NLI triplets, in batches of 64 with in-batch negatives, SimCSE's loss with hard negatives here,
MultipleNegativesRankingLoss there; both compute the same number. With --chunk both run this number
of texts at a time, there by CachedMultipleNegativesRankingLoss. The two alternate in one run, each
in a process of its own. Timed is each trainer's whole loop from text in memory to the last step:
tokenising, batches, forward, backward, clipping and optimiser (ours is also made in that time),
with validation and checkpoints off; loading is not.

Prints for each precision the seconds per step (the median of the rounds, and each), the process's
peak of memory, the part of it that the loop added to the loaded model, the median of the rounds'
ratios of the seconds and of the processors' seconds, the share of the processor's peak that each
side reached (``benchmarks/peak.py``; the work is three forward passes over the text's own tokens,
no padding), and the machine's load at the end: above the number of
processors others share them, and with --threads 1 the processors' seconds alone mean something.
With --shape both sides train a BERT of that shape with random weights.

Two cores of an Intel Xeon with AMX, torch 2.13, sentence-transformers 6.2, a BERT of 4 layers of
384 (seconds a step, those of each round, GiB, of them by the loop):

    float32   stsbench               0.594 (0.650, 0.587, 0.594), 1.32, 0.74
    float32   sentence-transformers  1.560 (1.560, 1.552, 1.584), 2.32, 1.71
    float32   times faster: 2.64 (2.40, 2.64, 2.67)
    bfloat16  stsbench               0.340 (0.385, 0.340, 0.336), 1.29, 0.69
    bfloat16  sentence-transformers  0.941 (0.973, 0.941, 0.937), 2.26, 1.65
    bfloat16  times faster: 2.77 (2.53, 2.77, 2.79)
    2 threads of 2 cores, load 1.7

Two cores of an AMD EPYC with AVX2, with the share of the peak (F.linear):

    float32   stsbench               1.168 (1.272, 1.168, 1.134), 1.26, 0.67, 61%
    float32   sentence-transformers  3.066 (2.958, 3.066, 3.397), 2.34, 1.71, 23%
    float32   times faster: 2.63 (2.33, 2.63, 3.00)
    2 threads of 2 cores, load 2.2; peak, GFLOP/s: float32 152, bfloat16 not supported
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from peak import describe_share, machine, work
from shapes import add_shape_option, checkpoint_of_shape

LENGTH, RATE, TEMPERATURE = 64, 5e-5, 0.05


def ours(options: argparse.Namespace, folder: Path) -> tuple[Callable[[], None], int]:
    """Return our loop, ready to run, and its number of steps."""
    from stsbench.core.cards import SelectionSection, StudentSection, TrainingSection
    from stsbench.encoders.checkpoint import find_checkpoint
    from stsbench.training.loop.batches import BatchPlan
    from stsbench.training.loop.gather import ProcessGroup
    from stsbench.training.loop.loop import train_learner
    from stsbench.training.loop.selection import LoopSettings
    from stsbench.training.methods.simcse import SimCSE
    from stsbench.training.student import Student

    columns = _triplets(options)
    student = Student(find_checkpoint(str(options.model)), StudentSection(max_length=LENGTH))
    learner = SimCSE(student, views="triplets", temperature=TEMPERATURE)
    section = TrainingSection(
        batch_size=options.batch,
        learning_rate=RATE,
        steps=options.steps,
        precision=options.precision,
        clip=1.0,
        chunk=options.chunk or None,
    )
    settings = LoopSettings(
        batches=BatchPlan(section, len(columns["anchor"]), seed=0),
        selection=SelectionSection(),
        folder=folder,
        processes=ProcessGroup.find(),
        validate=None,
        checkpoint_seconds=1e9,
        workers=options.workers,
    )

    def work() -> None:
        learner.prepare(columns)
        train_learner(learner, settings)

    return work, options.steps


def theirs(options: argparse.Namespace, folder: Path) -> tuple[Callable[[], None], int]:
    """Return the library's trainer, ready to run, and its number of steps."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments as Arguments,
    )
    from sentence_transformers.sentence_transformer import losses, modules

    # A checkpoint in half precision would be trained in it without this: both start from float32.
    transformer = modules.Transformer(
        str(options.model), max_seq_length=LENGTH, model_kwargs={"dtype": torch.float32}
    )
    pooling = modules.Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], device=None)
    arguments = Arguments(
        output_dir=str(folder),
        per_device_train_batch_size=options.batch,
        dataloader_num_workers=options.workers,
        learning_rate=RATE,
        max_steps=options.steps,
        max_grad_norm=1.0,
        bf16=options.precision == "bfloat16",
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_steps=10,
    )
    scale = 1 / TEMPERATURE
    loss = (
        losses.CachedMultipleNegativesRankingLoss(model, scale=scale, mini_batch_size=options.chunk)
        if options.chunk
        else losses.MultipleNegativesRankingLoss(model, scale=scale)
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict(
            {name: list(column) for name, column in _triplets(options).items()}
        ),
        loss=loss,
    )

    def work() -> None:
        trainer.train()

    return work, options.steps


def _triplets(options: argparse.Namespace) -> dict[str, list[str]]:
    from stsbench.data.corpora.corpus import load_corpus

    corpus = load_corpus("nli_triplets_small", corpora=options.corpora)
    return {name: list(corpus.column(name)) for name in ("anchor", "positive", "negative")}


SIDES = {"stsbench": ours, "sentence-transformers": theirs}


def measure(side: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run one side in this process.

    Returns:
        Its seconds and processor seconds per step, its peak memory in bytes, and the part of
        that which the loop added.
    """
    import torch

    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        work, steps = SIDES[side](options, Path(folder))
        loaded = _peak()
        started, busy_seconds = time.perf_counter(), time.process_time()
        work()
        seconds, busy_seconds = time.perf_counter() - started, time.process_time() - busy_seconds
    return {
        "seconds": seconds / steps,
        "busy": busy_seconds / steps,
        "memory": _peak(),
        "added": _peak() - loaded,
    }


@cache
def needed(model: Path, corpora: Path, batch: int) -> float:
    """Return the FLOP of an average step: a forward pass, and twice as much backward."""
    from stsbench.core.cards import StudentSection
    from stsbench.encoders.checkpoint import find_checkpoint
    from stsbench.training.student import Student

    columns = _triplets(argparse.Namespace(corpora=corpora))
    checkpoint = find_checkpoint(str(model))
    lengths = Student(checkpoint, StudentSection(max_length=LENGTH)).tokenize(
        [text for column in columns.values() for text in column]
    )
    return 3 * work(checkpoint.folder, lengths.lengths.tolist()) / len(columns["anchor"]) * batch


def _peak() -> int:
    """Return the largest number of bytes that this process has held."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Alternate the two sides, each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=0, help="texts at a time; 0: the whole batch")
    parser.add_argument("--workers", type=int, default=0, help="processes that make batches ahead")
    parser.add_argument(
        "--precision", default="float32,bfloat16", help="float32, bfloat16, or both with a comma"
    )
    parser.add_argument("--side", choices=list(SIDES))
    add_shape_option(parser)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options)))
        return
    with checkpoint_of_shape(options.shape, options.model) as options.model:
        for precision in options.precision.split(","):
            compare(precision, options)


def compare(precision: str, options: argparse.Namespace) -> None:
    """Alternate the two sides in one precision, and print the numbers of each."""
    import torch

    runs_by_side: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            # Of repeated options the last one counts.
            command = [
                sys.executable,
                __file__,
                *sys.argv[1:],
                "--model",
                str(options.model),
                "--side",
                side,
                "--precision",
                precision,
            ]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runs_by_side[side].append(json.loads(output.splitlines()[-1]))
    threads = options.threads or torch.get_num_threads()
    for side, runs in runs_by_side.items():
        each = ", ".join(f"{run['seconds']:.3f}" for run in runs)
        median = statistics.median(run["seconds"] for run in runs)
        memory, added = (max(run[key] for run in runs) / 2**30 for key in ("memory", "added"))
        flop = needed(options.model, options.corpora, options.batch)
        share_text = describe_share(flop / median, getattr(torch, precision), threads)
        print(
            f"{precision:9} {side:22} {median:.3f} s a step ({each}), {memory:.2f} GiB, "
            f"{added:.2f} of them by the loop, {share_text}"
        )
    for label, key in (("times faster", "seconds"), ("times less of the processors", "busy")):
        # What others take of the machine changes from round to round, and less within one.
        ratios = [b[key] / a[key] for a, b in zip(*runs_by_side.values(), strict=True)]
        ratio_texts = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{precision:9} {label}: {statistics.median(ratios):.2f} ({ratio_texts})", flush=True)
    print(machine(threads), flush=True)


if __name__ == "__main__":
    main()

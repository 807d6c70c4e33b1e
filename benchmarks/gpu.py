"""Measure a GPU: encoding with and without padding, training, probes; and an experiment.

    python benchmarks/gpu.py [--device cuda] [--checkpoint FOLDER] [--dry]

``benchmarks/gpu.sh`` runs the tests first. The table is in Markdown, as docs/encoders.md has it.
Where there is no GPU it says "not measured". ``--dry`` walks through all of it on the processor
with tiny sizes: its numbers mean nothing.

Encoding: the distinct sentences of the seven STS tests (made-up sentences of the same lengths if
they cannot be had), from text to embeddings in memory, after one warm-up. Both sides have the same
checkpoint; sentence-transformers takes the faster of two batch sizes, and skips padding by its
``unpad_inputs`` if it can. ``difference`` is the largest between an embedding and that of stsbench
in float32 with padding. Training: seconds per step of ``benchmarks/train.py``, with made-up
triplets. Probes: SentEval's protocol over random embeddings. The experiment, which is no option of
stsbench: one batch forward, plain, by ``torch.compile``, and by CUDA graphs.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
import train
from encode import default_checkpoint, seven_tests

from stsbench.core.errors import StsbenchError
from stsbench.data.splits import LabelledSplit
from stsbench.encoders.accelerator import device_product_name, empty_cache, synchronize
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.transformer import flat
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.evaluators.probe.evaluator import PROTOCOLS, ProbeEvaluator
from stsbench.training.loop import on_cpu

Array = npt.NDArray[np.float32]
NOT_MEASURED = "not measured"
DTYPES = ("float32", "bfloat16", "float16")
LAYOUTS = ("padded", "flat")
TRAININGS = (("float32", 64, 0), ("bfloat16", 64, 0), ("bfloat16", 512, 128))
"""The precision, triplets of a batch, and triplets computed at a time (0: all) of each training."""
HIDDEN_UNITS = (0, 50)


def made_up(number: int, seed: int = 0) -> list[str]:
    """Return distinct sentences of 3 to 40 words, most of them short."""
    rng = np.random.default_rng(seed)
    words = "a man is playing the guitar on stage while some people watch him in old park".split()
    lengths = np.minimum(3 + rng.geometric(0.12, number), 40)
    return [f"{i} {' '.join(rng.choice(words, n))}" for i, n in enumerate(lengths)]


def sentences(number: int) -> list[str]:
    """Return the distinct sentences of the seven STS tests, or so many made-up ones."""
    try:
        columns, _ = seven_tests()
    except StsbenchError as error:
        print(f"made-up sentences, as the STS tests cannot be had: {error}", flush=True)
        return made_up(number)
    return sorted({text for pair in columns for column in pair for text in column})


@contextmanager
def layout(name: str, device: torch.device) -> Iterator[None]:
    """Within the block, models are loaded and trained with padding, or ``flat`` if they can be."""
    has_kernels = name == "flat" and flat.find_attention(device) is not None
    with mock.patch.object(flat, "has_flash_attention", lambda device: has_kernels):
        yield


def timed(run: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Return the seconds of a call until the device is done, and its result."""
    synchronize(device)
    started = time.perf_counter()
    result = run()
    synchronize(device)
    return time.perf_counter() - started, result


def attempt(measure: Callable[[], str]) -> str:
    """Return what a measurement prints; "not measured" and the reason if it fails."""
    try:
        text = measure()
    except Exception as error:  # other rows are measured all the same
        text = f"{NOT_MEASURED} ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
    gc.collect()
    empty_cache()
    return text


class Encoding:
    """The rows of encoding."""

    def __init__(self, checkpoint: Path, texts: Sequence[str], device: torch.device) -> None:
        """Store what both sides embed."""
        self.checkpoint, self.texts, self.device = checkpoint, texts, device
        self.expected: Array | None = None

    def ours(self, dtype: str, layout_name: str) -> str:
        """Measure stsbench in one type and layout."""
        with layout(layout_name, self.device):
            encoder = TransformerEncoder(
                str(self.checkpoint),
                pooling="mean",
                normalise=True,
                max_length=256,
                dtype=dtype,
                device=str(self.device),
            )
            model = encoder.backbone.model
        if layout_name == "flat" and self.device.type == "cpu":
            # A CPU embeds with padding; here it walks through what a GPU does.
            reason = flat.try_omitting_padding(model, on_cpu.attend_in_groups)
        else:
            reason = encoder.backend.padding_reason if layout_name == "flat" else ""
        if reason:
            return f"{NOT_MEASURED} ({reason})"

        def embed() -> Array:
            engine = Engine(encoder)
            engine.prepare(self.texts)
            return np.asarray(engine(self.texts))

        embed()
        return self.describe(*timed(embed, self.device))

    def theirs(self, dtype: str, *, unpad: bool) -> str:
        """Measure sentence-transformers in one type."""
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(
            str(self.checkpoint),
            device=str(self.device),
            model_kwargs={
                "dtype": getattr(torch, dtype),
                **({"attn_implementation": "flash_attention_2"} if unpad else {}),
            },
        )
        model.max_seq_length = 256
        if unpad:
            model[0].unpad_inputs = True
            if not model[0].unpad_inputs:
                return f"{NOT_MEASURED} (it pads this model)"
        outcomes = []
        for batch_size in (128, 512):

            def embed(size: int = batch_size) -> Array:
                embeddings: Array = model.encode(
                    list(self.texts), batch_size=size, normalize_embeddings=True
                )
                return embeddings

            embed()
            outcomes.append(timed(embed, self.device))
        return self.describe(*min(outcomes, key=lambda outcome: outcome[0]))

    def describe(self, seconds: float, embeddings: Array) -> str:
        """Return seconds, sentences per second and the largest difference as cells."""
        if self.expected is None:
            self.expected = embeddings
        difference = float(np.abs(embeddings - self.expected).max())
        return f"{seconds:.2f} s | {len(self.texts) / seconds:,.0f} | {difference:.1e}"

    def sides(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Yield the label and the measurement of each row."""
        for dtype in DTYPES:
            yield f"stsbench, {dtype}, padded", partial(self.ours, dtype, "padded")
            yield f"stsbench, {dtype}, no padding", partial(self.ours, dtype, "flat")
            yield f"sentence-transformers, {dtype}", partial(self.theirs, dtype, unpad=False)
            label = f"sentence-transformers, {dtype}, unpad_inputs"
            yield label, partial(self.theirs, dtype, unpad=True)


def padding(checkpoint: Path, texts: Sequence[str]) -> Iterator[tuple[int, float]]:
    """Yield the share of padding in batches of several numbers of tokens."""
    lengths = TransformerEncoder(str(checkpoint), device="cpu").tokenize(texts).lengths
    for budget in (2048, 8192, 32768, 131072):
        batches = [lengths[rows] for rows in plan_batches(lengths, budget=budget)]
        yield budget, 1 - lengths.sum() / sum(batch.max() * len(batch) for batch in batches)


def training(side: str, layout_name: str, options: argparse.Namespace, device: torch.device) -> str:
    """Measure the seconds of a step, without loading and the first, slow steps of a run."""
    columns = {
        name: made_up(options.rows, seed)
        for seed, name in enumerate(("anchor", "positive", "negative"))
    }
    train._triplets = lambda options: columns
    with layout(layout_name, device), tempfile.TemporaryDirectory() as folder:
        seconds = []
        # The first run warms up; the difference of the others is that of their steps alone.
        for number, steps in enumerate((2, 2, options.steps + 2)):
            short = argparse.Namespace(**{**vars(options), "steps": steps})
            run, _ = train.SIDES[side](short, Path(folder) / str(number))
            # The library's trainer prints its losses.
            with redirect_stdout(sys.stderr):
                seconds.append(timed(run, device)[0])
    return f"{(seconds[2] - seconds[1]) / options.steps * 1000:.1f} ms a step"


def probe(hidden: int, n: int, device: str) -> str:
    """Measure SentEval's protocol over random embeddings with so many hidden units."""
    rng = np.random.default_rng(0)
    texts = [f"sentence {i}" for i in range(n)]
    labels = rng.integers(2, size=n)
    vectors = (rng.standard_normal((n, 384)) + labels[:, None] / 4).astype(np.float32)
    split: Any = LabelledSplit(sentences=tuple(texts), labels=labels)

    class Rows:
        """Embeddings by text, as an evaluator asks for them."""

        def __call__(self, asked: Sequence[str]) -> Array:
            rows: Array = vectors[[int(text.split()[1]) for text in asked]]
            return rows

    protocol: Any = PROTOCOLS["senteval-fast"]
    evaluator = ProbeEvaluator(replace(protocol, nhid=hidden), device=device)
    embed: Any = Rows()
    seconds, scores = timed(lambda: evaluator({"all": split}, embed, seed=0), torch.device(device))
    return f"{seconds:.1f} s ({scores.score:.2f})"


def experiment(mode: str, checkpoint: Path, device: torch.device, *, rows: int) -> str:
    """Measure one batch forward in bfloat16: plain, compiled, or by CUDA graphs."""
    from transformers import AutoModel

    if mode == "CUDA graphs" and device.type != "cuda":
        return f"{NOT_MEASURED} (no CUDA)"
    model = AutoModel.from_pretrained(str(checkpoint)).to(device, torch.bfloat16).eval()
    forward: Any = model
    if mode != "plain":
        forward = torch.compile(
            model, mode="reduce-overhead" if mode == "CUDA graphs" else "default"
        )
    ids = torch.full((rows, 32), 7, device=device)

    def run(times: int = 20) -> None:
        with torch.inference_mode():
            for _ in range(times):
                forward(input_ids=ids)

    run(3)
    return f"{timed(run, device)[0] / 20 * 1000:.2f} ms a batch"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--dry", action="store_true", help="tiny sizes, on the processor")
    options = parser.parse_args()
    has_gpu = torch.accelerator.is_available()
    is_measured = has_gpu or options.dry
    device = torch.device("cpu")
    if has_gpu and not options.dry:
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        device = accelerator if options.device == "auto" else torch.device(options.device)
    checkpoint = options.checkpoint or default_checkpoint()
    name = device_product_name(device) if device.type != "cpu" else "no GPU"
    print(f"{name}, torch {torch.__version__}" + (", a dry run: no numbers" if options.dry else ""))

    def cells(measure: Callable[[], str]) -> str:
        return attempt(measure) if is_measured else NOT_MEASURED

    texts = made_up(8) if options.dry else sentences(26_083)
    print(f"\n| batches of {len(texts):,} sentences | padding |\n| --- | ---: |")
    for budget, share in padding(checkpoint, texts):
        print(f"| {budget:,} tokens | {share:.1%} |")
    print(f"\n| encoding, {len(texts):,} sentences | seconds | sentences per second | difference |")
    print("| --- | ---: | ---: | ---: |")
    encoding = Encoding(checkpoint, texts, device)
    for label, measure in encoding.sides():
        row = cells(measure)
        empty_cells = " | |" if row.startswith(NOT_MEASURED) else ""
        print(f"| {label} | {row} |{empty_cells}", flush=True)
    print("\n| training, triplets | padded | no padding | sentence-transformers |")
    print("| --- | ---: | ---: | ---: |")
    for precision, batch, chunk in TRAININGS:
        small = options.dry or not has_gpu
        settings = argparse.Namespace(
            model=checkpoint,
            precision=precision,
            batch=8 if small else batch,
            chunk=(4 if small else chunk) if chunk else 0,
            steps=2 if small else 20,
            rows=64 if small else 16 * batch,
            workers=0 if small else 2,
            corpora=None,
        )
        steps = [
            cells(partial(training, side, name, settings, device))
            for side, name in (
                ("stsbench", "padded"),
                ("stsbench", "flat"),
                ("sentence-transformers", "padded"),
            )
        ]
        chunked = f", {chunk} at a time" if chunk else ""
        print(f"| {precision}, {batch}{chunked} | {' | '.join(steps)} |", flush=True)
    n = 4000 if has_gpu and not options.dry else 100
    print(f"\n| probes, {n:,} sentences | CPU | GPU |\n| --- | ---: | ---: |")
    for hidden in HIDDEN_UNITS:
        seconds = [cells(partial(probe, hidden, n, place)) for place in ("cpu", str(device))]
        print(f"| {hidden} hidden units | {' | '.join(seconds)} |", flush=True)
    print("\n| experiment, one batch forward in bfloat16 | |\n| --- | ---: |")
    for mode in ("plain", "torch.compile", "CUDA graphs"):
        rows = 512 if has_gpu and not options.dry else 2
        result = cells(partial(experiment, mode, checkpoint, device, rows=rows))
        print(f"| {mode} | {result} |", flush=True)


if __name__ == "__main__":
    main()

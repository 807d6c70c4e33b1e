"""Batches side by side on a processor, against all threads on each batch, in turns.

    STSBENCH_DATA=DIR python benchmarks/side_by_side.py [--every 10] [--layers 1] [--busy 1]

The distinct sentences of the seven STS tests are planned, tokenised and embedded by the engine:
in batches of 2,048 tokens, each of which all threads share; and side by side, each on one thread,
in batches of 2,048 and of 1,024 tokens. ``--layers 1`` embeds with a model of this many layers with
random weights, in the shapes of the checkpoint (default: that of the extra ``minilm``). ``--busy``
runs this number of other processes beside all. At the end: how many sentences a second are planned
and tokenised, by transformers' own call and by the library's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from encode import default_checkpoint, neighbours, seven_tests

from stsbench.core.provenance import processor
from stsbench.encoders.engine import embed as engines
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import text_keys
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.transformer import token_ids
from stsbench.encoders.transformer.encoder import TransformerEncoder

ALL_BATCHES = 10**9
"""More batches than there are: none go side by side."""
SIDES = {
    "in turn, 2,048 tokens": (2048, ALL_BATCHES),
    "side by side, 2,048 tokens": (2048, 1),
    "side by side, 1,024 tokens": (1024, 1),
}
"""By name, the tokens of a batch and how many batches go side by side at the least."""


def seconds_of(run: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and the CPU seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - wall, time.process_time() - cpu


def embed(encoder: TransformerEncoder, texts: list[str], side: tuple[int, int]) -> None:
    """Embed all texts without a store in one of the ways."""
    engines.TOKEN_BUDGET = side[0]
    setattr(engines, "MIN_BATCHES_TO_SHARE", side[1])  # noqa: B010 - not exported
    Engine(encoder).prepare(texts)


def plan(encoder: TransformerEncoder, texts: list[str]) -> None:
    """Do what comes before the first batch."""
    texts = sorted(set(texts))
    text_keys(texts)
    tokens = encoder.tokenize(texts)
    list(plan_batches(tokens.lengths, budget=engines.TOKEN_BUDGET))


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--checkpoint", type=Path, default=None)
    parser.add_argument("--layers", type=int, default=None, help="random weights in these layers")
    parser.add_argument("--every", type=int, default=10, help="take each so many-th sentence alone")
    parser.add_argument("--busy", type=int, default=0, help="other processes beside")
    options = parser.parse_args()
    checkpoint = options.checkpoint or default_checkpoint()
    columns, _ = seven_tests()
    texts = sorted({text for pair in columns for column in pair for text in column})
    encoder = TransformerEncoder(str(checkpoint), pooling="mean", normalise=True, max_length=256)
    if options.layers:
        config = transformers.AutoConfig.from_pretrained(str(checkpoint))
        config.num_hidden_layers = options.layers
        encoder.backbone.model = transformers.AutoModel.from_config(config).eval()
        from stsbench.encoders.transformer.cpu_kernels import is_packing_faster, pack_linears

        if is_packing_faster("float32"):
            pack_linears(encoder.backbone.model)
    sample = texts[:: options.every]
    print(
        f"{processor()}, {torch.get_num_threads()} threads; {options.busy} other processes",
        flush=True,
    )
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in SIDES}
    embed(encoder, sample[:50], SIDES["in turn, 2,048 tokens"])
    with neighbours(options.busy):
        for _ in range(options.rounds):
            for name, side in SIDES.items():
                seconds[name].append(seconds_of(partial(embed, encoder, sample, side)))
                print(f"  {name:28s} {seconds[name][-1][0]:.2f} s", flush=True)
    first = float(np.median([wall for wall, _ in next(iter(seconds.values()))]))
    for name, values in seconds.items():
        wall, cpu = np.median(values, axis=0)
        print(
            f"{name:28s} {wall:6.2f} s ({cpu:.2f} of CPU), {len(sample) / wall:6.0f} sentences/s, "
            f"{first / wall:.2f} x",
            flush=True,
        )
    library_call = token_ids.uses_library_call
    for name, uses_library in (
        ("transformers' call", lambda tokenizer: False),
        ("the library's call", library_call),
    ):
        token_ids.uses_library_call = uses_library
        wall, cpu = min(seconds_of(lambda: plan(encoder, texts)) for _ in range(3))
        print(
            f"planned and tokenised by {name}: {len(texts) / wall:,.0f} sentences/s "
            f"({1e6 * cpu / len(texts):.0f} us of CPU each)",
            flush=True,
        )


if __name__ == "__main__":
    main()

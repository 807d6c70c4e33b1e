"""A sweep of twelve poolings in one forward pass against twelve encoders, alternating in one run.

    python benchmarks/layers.py --sentences 1000 --rounds 3

Prints the seconds of each and their ratio, and whether all embeddings are the same.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from stsbench.data.task import load_task
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.load import load_named
from stsbench.encoders.transformer.encoder import (
    TransformerEncoder,
    embed_in_one_pass,
    with_pooling,
)
from stsbench.encoders.transformer.pooling import Pooling


def main() -> None:
    """Measure both and print the seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts = load_task("stsb").texts("test")[: options.sentences]
    base = load_named("minilm").encoder
    if not isinstance(base, TransformerEncoder):
        raise SystemExit("minilm is no transformer here")
    poolings = [
        Pooling.parse(f"{name}({layer})") for name in ("mean", "max") for layer in range(1, 7)
    ]
    base.encode(texts[:32])
    for number in range(options.rounds):
        start = time.perf_counter()
        together = [
            Engine(with_pooling(base, pooling), EmbeddingStore(None)) for pooling in poolings
        ]
        embed_in_one_pass(base, together, texts)
        once = time.perf_counter() - start
        start = time.perf_counter()
        alone = [Engine(with_pooling(base, pooling), EmbeddingStore(None)) for pooling in poolings]
        for engine in alone:
            engine.prepare(texts)
        twelve = time.perf_counter() - start
        same = all(np.array_equal(a(texts), b(texts)) for a, b in zip(together, alone, strict=True))
        print(
            f"round {number + 1}: one pass {once:.2f} s, twelve {twelve:.2f} s, ratio "
            f"{twelve / once:.1f}, same: {same}"
        )


if __name__ == "__main__":
    main()

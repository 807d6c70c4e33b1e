"""A million distinct sentences through engine and store, and how much memory that takes.

    python -m benchmarks.million [--n 1000000] [--layers 1] [--width 32] [--threads 2] [--limit 1.5]

The encoder is a BERT of random weights made on the spot, small so that what is measured is
everything around the model: tokens, plan, batches, blocks. The sentences themselves are there
before the measurement begins; growth is counted from then on, by the process's peak resident
size, which includes pages of files. Afterwards all is read back, and the store opened anew.
Exits with 1 where memory grew by more than ``--limit`` GB.

On two cores of an AMD EPYC (Zen 3), nothing else running:

    1000000 sentences, BERT of 1 layers of 32, 2 threads
    before: 0.59 GB, sentences and libraries included
    encode: 70.5 s, processors 105.8 s, 14192 sentences/s; peak so far 1.02 GB
      store: 144 MB in 9 blocks
    read back: 1.9 s, processors 1.9 s, 514939 sentences/s; peak so far 1.02 GB
    open again and find: 4.2 s, processors 4.2 s, 237830 sentences/s; peak so far 1.03 GB
    read back: 1.7 s, processors 1.7 s, 581687 sentences/s; peak so far 1.03 GB
    memory grew by 0.44 GB at its peak (limit 1.50)
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.transformer.encoder import TransformerEncoder

WORDS = 2000
CHUNK = 50_000


def main() -> int:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1_000_000, help="distinct sentences")
    parser.add_argument("--layers", type=int, default=1, help="of the encoder")
    parser.add_argument("--width", type=int, default=32, help="of the embeddings")
    parser.add_argument(
        "--limit", type=float, default=1.5, help="gigabytes that memory may grow by"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="of the CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_checkpoint(root / "bert", layers=options.layers, width=options.width)
        encoder = TransformerEncoder(str(root / "bert"), device="cpu")
        encoder.encode(["w1 w2 w3"])
        sentences = make_sentences(options.n)
        print(
            f"{options.n} sentences, BERT of {options.layers} layers of {options.width}, "
            f"{options.threads} threads"
        )
        before = resident()
        print(f"before: {before / 1e9:.2f} GB, sentences and libraries included")
        run(encoder, sentences, root / "store")
        grown = (peak() - before) / 1e9
    print(f"memory grew by {grown:.2f} GB at its peak (limit {options.limit:.2f})")
    return int(grown > options.limit)


def run(encoder: TransformerEncoder, sentences: Sequence[str], store: Path) -> None:
    """Embed all, read all back, and do both again from the store alone."""
    n = len(sentences)
    with timed("encode", n):
        engine = Engine(encoder, EmbeddingStore(store))
        engine.prepare(sentences)
    blocks = list(store.glob("*.npy"))
    print(
        f"  store: {sum(path.stat().st_size for path in blocks) / 1e6:.0f} MB in {len(blocks)} "
        "blocks"
    )
    with timed("read back", n):
        total = read(engine, sentences)
    with timed("open again and find", n):
        engine = Engine(encoder, EmbeddingStore(store))
        engine.prepare(sentences)
    with timed("read back", n):
        again = read(engine, sentences)
    if total != again or engine.count_encoded(sentences):
        sys.exit("the store gave other embeddings than were put in")
    sample = sentences[:: max(n // 500, 1)]
    np.testing.assert_allclose(np.asarray(engine(sample)), encoder.encode(sample), atol=1e-5)


def read(engine: Engine, sentences: Sequence[str]) -> float:
    """Read all embeddings in chunks; return their sum."""
    view = engine(sentences)
    starts = range(0, len(sentences), CHUNK)
    chunks = (view.take(np.arange(start, min(start + CHUNK, len(sentences)))) for start in starts)
    return sum(float(chunk.sum(dtype=np.float64)) for chunk in chunks)


@contextmanager
def timed(step: str, n: int) -> Iterator[None]:
    """Print the seconds of a step and of its processors, and the peak of memory so far."""
    start, busy_start = time.perf_counter(), time.process_time()
    yield
    seconds = time.perf_counter() - start
    busy_seconds = time.process_time() - busy_start
    print(
        f"{step}: {seconds:.1f} s, processors {busy_seconds:.1f} s, {n / seconds:.0f} sentences/s; "
        f"peak so far {peak() / 1e9:.2f} GB",
        flush=True,
    )


def make_sentences(n: int) -> list[str]:
    """Make different sentences of 3 to 24 words."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(WORDS)])
    sentences: list[str] = []
    while len(sentences) < n:
        start = len(sentences)
        lengths = rng.integers(2, 24, size=min(10_000, n - start))
        words_of_sentences = words[rng.integers(0, WORDS, size=(len(lengths), 24))]
        sentences += [
            f"{' '.join(row[:length])} {start + i}"
            for i, (row, length) in enumerate(
                zip(words_of_sentences.tolist(), lengths, strict=True)
            )
        ]
    return sentences


def make_checkpoint(folder: Path, *, layers: int, width: int) -> None:
    """Save a BERT of random weights with a tokenizer of the words, which splits up numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    digits = [f"{before}{digit}" for before in ("", "##") for digit in range(10)]
    listed = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *digits, *(f"w{i}" for i in range(WORDS))]
    vocab = {word: i for i, word in enumerate(listed)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(
        ("[SEP]", vocab["[SEP]"]), ("[CLS]", vocab["[CLS]"])
    )
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=128,
    )
    BertModel(config).save_pretrained(folder)


def resident() -> int:
    """Return the bytes that the process has in memory now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))


def peak() -> int:
    """Return the largest number of bytes that the process had in memory."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    sys.exit(main())

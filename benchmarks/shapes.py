"""Checkpoints in the shapes of BERT with random weights: speed does not depend on the weights."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import transformers

SHAPES = {"bert-base": (12, 768), "bert-large": (24, 1024)}
"""The number of layers, and the size of the hidden states."""
HEAD_SIZE = 64


def add_shape_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses a shape."""
    parser.add_argument(
        "--shape",
        choices=list(SHAPES),
        help="random weights in this shape, with the checkpoint's tokenizer",
    )


@contextmanager
def checkpoint_of_shape(shape: str | None, checkpoint: Path) -> Iterator[Path]:
    """Make a checkpoint within a context, and delete it afterwards.

    Args:
        shape: A name in ``SHAPES``; None for the checkpoint itself.
        checkpoint: A checkpoint, whose tokenizer it gets.

    Yields:
        The folder of the checkpoint to measure.
    """
    if shape is None:
        yield checkpoint
        return
    n_layers, width = SHAPES[shape]
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(checkpoint))
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=n_layers,
        num_attention_heads=width // HEAD_SIZE,
        intermediate_size=4 * width,
        pad_token_id=tokenizer.pad_token_id,
    )
    transformers.set_seed(0)
    model = transformers.AutoModel.from_config(config)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        yield Path(folder)

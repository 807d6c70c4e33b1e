"""How large a model a configuration asks for, told before memory is: no more than its weights fill."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stsbench.errors import EncoderError, one_line, shown

MOST_LAYERS = 1_000
MOST_COUNTED = 1_000_000
"""Of anything else that is counted: heads, experts, labels."""
MOST_TOKENS = 100_000_000
"""Of words and of positions."""
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "type_vocab_size",
    "max_position_embeddings",
)
SLACK = 2.0
"""A model may have so many times the values of its weights: tied ones are written once, a head may be missing."""
SPARE = 50_000_000
_LAYERS = re.compile(r"(.*_)?(n_|num_)?(layers?|blocks|depth)")
_COUNTS = re.compile(r"(n|num)_.*|.*_(heads|experts|labels|groups)")
_TOKENS = re.compile(r"vocab_size|.*_vocab_size|n_positions|.*max_position_embeddings|.*_size|.*dim|d_.*|.*width")


def check_counts(config: Mapping[str, Any], path: Path) -> None:
    """Refuse what ``config.json`` at a path says where its counts are below 0 or would alone take for ever.

    Raises:
        EncoderError: names the key and the most that it may be.
    """
    for key, value in _numbers(config):
        if _LAYERS.fullmatch(key):
            most = MOST_LAYERS
        elif _COUNTS.fullmatch(key):
            most = MOST_COUNTED
        elif _TOKENS.fullmatch(key):
            most = MOST_TOKENS
        else:
            continue
        if not 0 <= value <= most:
            raise EncoderError(f"{path}: '{key}' is {value:.6g}; what is read is 0 to {most:,}")


def odd_sizes(config: Mapping[str, Any]) -> str:
    """Which sizes of a configuration are not whole numbers, to be added to why it cannot be loaded; none: ""."""
    odd = [f"'{key}' is {shown(config[key])}" for key in SIZES if key in config and type(config[key]) is not int]
    return f"; in config.json {', '.join(odd)}" if odd else ""


def check_size(model: Any, weights: Sequence[Path]) -> None:  # noqa: ANN401 - transformers is untyped
    """Refuse a model without memory (on torch's device ``meta``) that its weights cannot fill.

    Raises:
        EncoderError: it has far more values than the files; or a file is broken.
    """
    asked = sum(parameter.numel() for parameter in model.parameters())
    held = sum(math.prod(shape) for path in weights for shape in shapes(path).values())
    most = int(SLACK * held + SPARE)
    if asked > most:
        raise EncoderError(
            f"{weights[0].parent}: config.json asks for a model of {asked:,} values, its weights hold {held:,}; "
            f"the most that is read is {most:,}"
        )


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a safetensors file's tensors, read from its header.

    Raises:
        EncoderError: the file is broken.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise EncoderError(f"{path}: broken file: {one_line(error)[:200]}") from error


def _numbers(config: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """All numbers of a configuration and of those inside it, by their keys."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield key, value

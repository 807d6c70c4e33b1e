"""A network that is to be run by a backend, and what its outputs are called in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stsbench.errors import EncoderError, one_line

CODE_VERSION = 1
"""Raise when a change of how networks are exported or run can change an embedding: stored ones are then not reused."""
LAST, HEAD = "last_hidden_state", "pooler_output"


@dataclass(frozen=True, kw_only=True)
class Network:
    """A transformer that is to be run, and what is asked of it."""

    folder: Path
    """Where its ``config.json`` lies."""
    state: Mapping[str, Any]
    """What decides its numbers, as JSON values: the hashes of its files."""
    make: Callable[[str], Any]
    """Loads it in torch, its numbers of this type, in evaluation mode on the CPU."""
    layers: Callable[[int], Sequence[int]] = lambda depth: (-1,)
    """The hidden states that are asked for, given how many layers there are; the last is always given."""
    through_head: bool = False
    """Whether the model's own head is asked for."""

    def config(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """Load its configuration alone; raises EncoderError."""
        import transformers

        try:
            config = transformers.AutoConfig.from_pretrained(
                str(self.folder), local_files_only=True, trust_remote_code=False
            )
            # Not every architecture says these.
            _ = config.num_hidden_layers, config.vocab_size
            return config
        except Exception as error:  # what others wrote makes transformers raise anything
            raise EncoderError(f"{self.folder}: config.json cannot be read: {one_line(error)[:300]}") from error

    def earlier(self, depth: int) -> list[int]:
        """The layers that are asked for beside the last, of a network with so many."""
        return [layer for layer in self.layers(depth) if output_of(layer, depth) != LAST]

    def outputs(self, depth: int) -> list[str]:
        """The names of what a runtime has to give."""
        if self.through_head:
            return [LAST, HEAD]
        return [LAST, *(output_of(layer, depth) for layer in self.earlier(depth))]


def output_of(layer: int, depth: int) -> str:
    """What files call the hidden states of a layer of a network with ``depth`` layers."""
    number = layer % (depth + 1)
    return LAST if number == depth else f"hidden_states.{number}"

"""A network in a runtime, called as a model of transformers is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from stsbench.encoders.runtimes.files import RuntimeFile
from stsbench.encoders.runtimes.network import HEAD, LAST, Network, output_of
from stsbench.encoders.runtimes.sessions import NamedArrays, Session
from stsbench.errors import EncoderError

OLD_NAMES = {LAST: "token_embeddings"}
"""What older exports call an output."""


class RuntimeModel(torch.nn.Module):
    """A network in a runtime, called as a model of transformers is."""

    def __init__(self, session: Session, network: Network) -> None:
        """Keep a session; ``network`` is what it runs.

        Raises:
            EncoderError: it wants other inputs than a sentence has, or lacks an output that is asked for.
        """
        super().__init__()
        self.session, self.file = session, session.file
        self.config = network.config()
        asked = network.outputs(self.config.num_hidden_layers)
        self.names = {name: name if name in session.outputs else OLD_NAMES.get(name, name) for name in asked}
        leave = "give another file, or leave 'backend' out"
        if lost := [name for name, own in self.names.items() if own not in session.outputs]:
            raise EncoderError(
                f"{self.file.path}: has no output '{lost[0]}', only {', '.join(session.outputs)}; {leave}"
            )
        one = np.ones((1, 1), np.int64)
        if odd := set(session.inputs) - set(_feeds(one, one)):
            raise EncoderError(f"{self.file.path}: asks for '{min(odd)}', which is not made of a sentence; {leave}")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the numbers that it returns."""
        return torch.float32

    def get_input_embeddings(self) -> torch.nn.Embedding:
        """As many as the vocabulary has; the vectors are in the file."""
        return torch.nn.Embedding(self.config.vocab_size, 0, device="meta")

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **others: object
    ) -> BaseModelOutputWithPooling:
        """Return the outputs for token ids (b, t), their padding on the right.

        ``others`` are what models of transformers are told beside: kinds of tokens, which one sentence has not, and what
        to return.
        """
        ids = input_ids.numpy()
        mask = np.ones_like(ids) if attention_mask is None else attention_mask.numpy().astype(np.int64)
        found = self._one_by_one(ids, mask) if self.file.hangs_on_batch else self._run(ids, mask)
        outputs = {name: torch.from_numpy(array) for name, array in found.items()}
        states = _States(outputs, self.config.num_hidden_layers, self.file)
        return BaseModelOutputWithPooling(
            last_hidden_state=outputs[LAST], pooler_output=outputs.get(HEAD), hidden_states=states
        )

    def _one_by_one(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
        rows = [self._run(ids[[i], :n], mask[[i], :n]) for i, n in enumerate(mask.sum(axis=1))]
        return {name: np.concatenate([_padded(row[name], ids.shape[1]) for row in rows]) for name in self.names}

    def _run(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
        found = self.session.run(_feeds(ids, mask), list(self.names.values()))
        return {name: found[own] for name, own in self.names.items()}


class _States:
    """The hidden states that a file gives, by index."""

    def __init__(self, outputs: dict[str, torch.Tensor], depth: int, file: RuntimeFile) -> None:
        self.outputs, self.depth, self.file = outputs, depth, file

    def __getitem__(self, layer: int) -> torch.Tensor:
        name = output_of(layer, self.depth)
        if name not in self.outputs:
            raise EncoderError(f"{self.file.path}: gives no hidden states of layer {layer}; leave 'backend' out")
        return self.outputs[name]


def _feeds(ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
    """All inputs that files ask for, (b, t) each."""
    positions = np.tile(np.arange(ids.shape[1], dtype=np.int64), (len(ids), 1))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids), "position_ids": positions}


def _padded(array: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    """One row of an output, (1, t, h), with zeros up to so many tokens; what has no tokens, (1, h), as it is."""
    return array if array.ndim == 2 else np.pad(array, ((0, 0), (0, width - array.shape[1]), (0, 0)))

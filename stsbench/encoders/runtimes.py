"""Networks in runtimes beside torch: exported by torch as ONNX, loaded, called as models of transformers are, compared with torch.

sentence-transformers exports by optimum (optimum-onnx), which wants transformers below 4.58 and gives the last hidden
states alone; so torch's own exporter writes the file, with the layers that a pooling asks for.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling

from stsbench.core import settings
from stsbench.core.errors import EncoderError, translate_errors
from stsbench.core.wording import join_lines
from stsbench.encoders.checkpoint import is_sealed, sealed_folder
from stsbench.encoders.network import (
    CODE_VERSION,
    HEAD,
    LAST,
    NamedArrays,
    Network,
    OpenedFile,
    RuntimeFile,
    output_name,
)

OLD_NAMES = {LAST: "token_embeddings"}
"""What older exports call an output."""


class RuntimeModel(torch.nn.Module):
    """A network in a runtime, called as a model of transformers is."""

    def __init__(
        self,
        runtime: str,
        file: RuntimeFile,
        network: Network,
        open: Callable[[RuntimeFile], OpenedFile],
    ) -> None:
        """Load a network's file as the runtime of this name does.

        Raises EncoderError: it cannot be loaded, wants other inputs than a sentence has, or lacks an output.
        """
        super().__init__()
        self.runtime, self.file, self.config, self.dtype = (
            runtime,
            file,
            network.config,
            torch.float32,
        )
        with translate_errors(f"{file.path}: {runtime} cannot load it", EncoderError):
            self.inputs, outputs, self.call = open(file)
        self.names = {
            name: name if name in outputs else OLD_NAMES.get(name, name) for name in network.outputs
        }
        leave = "give another file, or leave 'backend' out"
        if lost := [name for name, own in self.names.items() if own not in outputs]:
            raise EncoderError(
                f"{file.path}: has no output '{lost[0]}', only {', '.join(outputs)}; {leave}"
            )
        one = np.ones((1, 1), np.int64)
        if odd := set(self.inputs) - set(_feeds(one, one)):
            raise EncoderError(
                f"{file.path}: asks for '{min(odd)}', which is not made of a sentence; {leave}"
            )

    def get_input_embeddings(self) -> torch.nn.Embedding:
        """As many as the vocabulary has; the vectors are in the file."""
        return torch.nn.Embedding(self.config.vocab_size, 0, device="meta")

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **others: object
    ) -> BaseModelOutputWithPooling:
        """Return the outputs for token ids (b, t), padded on the right; ``others`` are for transformers' models."""
        ids = input_ids.numpy()
        mask = (
            np.ones_like(ids) if attention_mask is None else attention_mask.numpy().astype(np.int64)
        )
        if self.file.depends_on_batch:
            rows = [self._run(ids[[i], :n], mask[[i], :n]) for i, n in enumerate(mask.sum(axis=1))]
            t = ids.shape[1]
            found: NamedArrays = {
                name: np.concatenate([_padded(row[name], t) for row in rows]) for name in rows[0]
            }
        else:
            found = self._run(ids, mask)
        outputs = {name: torch.from_numpy(found[named]) for name, named in self.names.items()}
        return BaseModelOutputWithPooling(
            last_hidden_state=outputs[LAST],
            pooler_output=outputs.get(HEAD),
            hidden_states=_States(self, outputs),
        )

    def _run(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
        feeds = _feeds(ids, mask)
        with translate_errors(
            f"{self.file.path}: {self.runtime} cannot embed with it", EncoderError
        ):
            return self.call({name: feeds[name] for name in self.inputs}, list(self.names.values()))


_COLOURS = re.compile(r"\x1b\[[\d;]*m")
COMPARED = (
    "A man is playing a guitar.",
    "No",
    "The committee said on Monday that the report would be read again.",
)
"""The sentences on which a runtime is compared with torch."""


@torch.inference_mode()
def check_against_torch(model: RuntimeModel, network: Network, farthest: float) -> None:
    """Refuse, by an EncoderError, a file with states farther from torch's than this share of their length."""
    for sentence in COMPARED:
        ids = torch.tensor(
            [
                network.tokenizer(sentence, truncation=True, max_length=32, verbose=False)[
                    "input_ids"
                ]
            ]
        )
        given: Any = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        pairs = zip(
            network.call(model, **given), network.call(network.torch_model, **given), strict=True
        )
        share = max(float((one - other).norm() / other.norm()) for one, other in pairs)
        # Not a number is not near.
        if not share <= farthest:
            what = f"{model.runtime} computes other numbers with it than torch with the checkpoint"
            by = f"they differ by {share:.0%} of their length, {farthest:.0%} may be rounding"
            raise EncoderError(
                f"{model.file.path}: {what} ({by}); give another file, or leave 'backend' out"
            )


class _States:
    def __init__(self, model: RuntimeModel, outputs: dict[str, torch.Tensor]) -> None:
        self.model, self.outputs = model, outputs

    def __getitem__(self, layer: int) -> torch.Tensor:
        if (
            found := self.outputs.get(output_name(layer, self.model.config.num_hidden_layers))
        ) is not None:
            return found
        raise EncoderError(
            f"{self.model.file.path}: gives no hidden states of layer {layer}; leave 'backend' out"
        )


def _feeds(ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
    positions = np.tile(np.arange(ids.shape[1], dtype=np.int64), (len(ids), 1))
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(ids),
        "position_ids": positions,
    }


def _padded(array: npt.NDArray[Any], width: int) -> npt.NDArray[Any]:
    # (1, t, h) with zeros up to so many tokens; what has no tokens, (1, h), as it is.
    return (
        array if array.ndim == 2 else np.pad(array, ((0, 0), (0, width - array.shape[1]), (0, 0)))
    )


FILE = "model.onnx"
EXAMPLE = (2, 9)
"""Sentences and tokens of the example by which torch follows the network; any others may come afterwards."""


def export_network(network: Network) -> RuntimeFile:
    """Export a network, or find it exported and whole; raises EncoderError: torch cannot export it; OutputError."""
    made_by = {name: version(name) for name in ("torch", "transformers", "onnxscript")}
    facts = json.dumps(
        [CODE_VERSION, network.state, list(network.outputs), made_by], sort_keys=True
    )
    target = settings.cache_folder() / "exported" / hashlib.sha256(facts.encode()).hexdigest()
    if not is_sealed(target):
        with sealed_folder(target) as scratch:
            _export(network, scratch / FILE)
    return RuntimeFile(target, FILE)


def _export(network: Network, path: Path) -> None:
    words = network.torch_model.get_input_embeddings().num_embeddings
    ids = torch.arange(EXAMPLE[0] * EXAMPLE[1]).reshape(EXAMPLE) % words
    mask = torch.ones_like(ids)
    mask[1, EXAMPLE[1] // 2 :] = 0
    sizes = {0: torch.export.Dim("sentences"), 1: torch.export.Dim("tokens")}
    try:
        with silence_libraries():
            torch.onnx.export(
                _RequestedOutputs(network),
                (ids, mask),
                path,
                dynamo=True,
                verbose=False,
                external_data=True,
                input_names=["input_ids", "attention_mask"],
                output_names=list(network.outputs),
                dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
            )
    except OSError:
        raise
    except Exception as error:  # whatever a network makes torch's exporter raise
        # Around its cause torch puts a page on how to report it, in colours.
        cause = _COLOURS.sub("", str(error.__cause__ or error)).partition("\n")[0]
        raise EncoderError(
            f"{network.folder}: torch cannot export it to ONNX: {join_lines(cause)[:300]}; "
            "leave 'backend' out"
        ) from error


class _RequestedOutputs(torch.nn.Module):
    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self.model = network, network.torch_model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tuple(
            self.network.call(self.model, input_ids=input_ids, attention_mask=attention_mask)
        )


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Keep libraries from reporting on what they export or quantise."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        # Some versions of onnxscript say on stdout what they have done; NNCF draws bars there.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)

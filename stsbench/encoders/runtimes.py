"""Networks in runtimes besides torch.

Torch exports a network as ONNX, a runtime loads it, and it is called as a model of transformers is,
after a comparison with torch.

sentence-transformers exports with optimum (optimum-onnx), which needs transformers below 4.58 and
outputs the last hidden states only. So torch's own exporter writes the file, with the layers that a
pooling needs.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
from stsbench.core.wording import as_one_line
from stsbench.encoders.cached_files import is_sealed, sealed_folder
from stsbench.encoders.network import (
    CODE_VERSION,
    HEAD_OUTPUT,
    LAST_STATES,
    NamedArrays,
    Network,
    OpenedFile,
    RuntimeFile,
    output_name,
)

OLD_OUTPUT_NAMES = {LAST_STATES: "token_embeddings"}
"""The names of outputs in older exports."""


class RuntimeModel(torch.nn.Module):
    """A network in a runtime, which is called as a model of transformers is."""

    def __init__(
        self,
        runtime: str,
        file: RuntimeFile,
        network: Network,
        open: Callable[[RuntimeFile], OpenedFile],
    ) -> None:
        """Load a file with a network in a runtime, such as ONNX Runtime, and check that it can run.

        Args:
            runtime: The name of the runtime, for messages.
            file: The file.
            network: The network, which names the outputs that are needed.
            open: Loads the file in the runtime; returns the names of its inputs and outputs, and
                a function that runs it.

        Raises:
            EncoderError: The file cannot be loaded, needs other inputs than a sentence has, or
                lacks an output.
        """
        super().__init__()
        self.runtime = runtime
        self.file = file
        self.config = network.config
        self.dtype = torch.float32
        # Whatever the runtime raises becomes an EncoderError with this message.
        with translate_errors(f"{file.path}: {runtime} cannot load it", EncoderError):
            self.inputs, outputs, self.call, self.max_parallel_runs = open(file)
        self.file_names: dict[str, str] = {}
        """The names of the needed outputs in the file, by their names in the network."""
        for name in network.outputs:
            # Older exports call the last layer's states "token_embeddings".
            self.file_names[name] = name if name in outputs else OLD_OUTPUT_NAMES.get(name, name)
        missing = [name for name, file_name in self.file_names.items() if file_name not in outputs]
        if missing:
            raise EncoderError(
                f"{file.path}: has no output '{missing[0]}', only {', '.join(outputs)}",
                hint=_OTHER_FILE_HINT,
            )
        # An example shows the names of all inputs that can be made of a sentence.
        one_token = np.ones((1, 1), np.int64)
        unknown_inputs = set(self.inputs) - set(_make_model_inputs(one_token, one_token))
        if unknown_inputs:
            raise EncoderError(
                f"{file.path}: asks for '{min(unknown_inputs)}', which is not made of a sentence",
                hint=_OTHER_FILE_HINT,
            )

    def get_input_embeddings(self) -> torch.nn.Embedding:
        """Return a table of the vocabulary's size; its vectors are in the file."""
        return torch.nn.Embedding(self.config.vocab_size, 0, device="meta")

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **options: object
    ) -> BaseModelOutputWithPooling:
        """Run the network on a batch, and return its outputs as a model of transformers does.

        Args:
            input_ids: The token ids (b, t), with padding on the right.
            attention_mask: 1 at tokens and 0 at padding, (b, t); None if there is no padding.
            options: Options of transformers' models, which are ignored.

        Returns:
            ``last_hidden_state``, the states (b, t, h) of the last layer; ``pooler_output``, the
            output (b, h) of the model's own head, None if it is not needed; and ``hidden_states``,
            from which the states of a layer are read by its index. Reading a layer that the file
            lacks raises EncoderError.
        """
        ids = input_ids.numpy()
        if attention_mask is None:
            mask = np.ones_like(ids)
        else:
            mask = attention_mask.numpy().astype(np.int64)
        # Some quantised files round a sentence by the numbers of the whole batch.
        if self.file.depends_on_batch:
            arrays = self._run_each_sentence(ids, mask)
        else:
            arrays = self._run_batch(ids, mask)
        # The arrays have the names of the file, and the outputs those of the network.
        outputs = {
            name: torch.from_numpy(arrays[file_name]) for name, file_name in self.file_names.items()
        }
        return BaseModelOutputWithPooling(
            last_hidden_state=outputs[LAST_STATES],
            pooler_output=outputs.get(HEAD_OUTPUT),
            # The model is passed for its number of layers, and for its file's name in messages.
            hidden_states=_StatesByLayer(self, outputs),
        )

    def _run_batch(self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
        """Run the file on one batch and return the needed outputs, by their names in the file.

        Args:
            ids: The token ids, (b, t).
            mask: 1 at tokens and 0 at padding, (b, t).

        Raises:
            EncoderError: The runtime fails.
        """
        inputs = _make_model_inputs(ids, mask)
        # The inputs that the file has; `self.call` runs it, for outputs of given names.
        file_inputs = {name: inputs[name] for name in self.inputs}
        problem = f"{self.file.path}: {self.runtime} cannot embed with it"
        with translate_errors(problem, EncoderError):
            return self.call(file_inputs, list(self.file_names.values()))

    def _run_each_sentence(
        self, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]
    ) -> NamedArrays:
        """Run the sentences of a batch one by one, without padding, and join their outputs.

        As many are run at the same time as the runtime allows. This is for a file with quantised
        activations: it scales them by their range in the whole batch, so that a sentence's
        embedding would depend on the other sentences.

        Args:
            ids: Token ids (b, t), with padding on the right.
            mask: 1 at tokens and 0 at padding, (b, t).

        Returns:
            The outputs of the whole batch by their names in the file; states are zero at padding.
        """
        lengths = mask.sum(axis=1)

        def run_sentence(row: int) -> NamedArrays:
            """Return the outputs of one sentence, a batch of its own."""
            length = lengths[row]
            return self._run_batch(ids[[row], :length], mask[[row], :length])

        with ThreadPoolExecutor(self.max_parallel_runs) as pool:
            outputs_of_sentences = list(pool.map(run_sentence, range(len(ids))))
        n_tokens = ids.shape[1]
        batch_outputs = {}
        for name in outputs_of_sentences[0]:
            # States (1, t, h) are padded with zeros; the output (1, h) of a head is left as it is.
            padded = [_pad_states(outputs[name], n_tokens) for outputs in outputs_of_sentences]
            batch_outputs[name] = np.concatenate(padded)
        return batch_outputs


_OTHER_FILE_HINT = "give another file, or leave 'backend' out"
_COLOUR_CODES = re.compile(r"\x1b\[[\d;]*m")
COMPARED_SENTENCES = (
    "A man is playing a guitar.",
    "No",
    "The committee said on Monday that the report would be read again.",
)
"""The sentences on which a runtime is compared with torch."""


@torch.inference_mode()
def check_against_torch(model: RuntimeModel, network: Network, max_difference: float) -> None:
    """Raise an error if a runtime computes other hidden states of a few sentences than torch.

    Args:
        model: The model in the runtime.
        network: The same network with its tokenizer, which can be loaded in torch.
        max_difference: The largest difference that is allowed, as a share of the states' length.

    Raises:
        EncoderError: The difference is larger, or not a number.
    """
    for sentence in COMPARED_SENTENCES:
        encoded = network.tokenizer(sentence, truncation=True, max_length=32, verbose=False)
        ids = torch.tensor([encoded["input_ids"]])
        inputs: Any = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        # The needed outputs, in the same order: states (1, t, h), or the head's output (1, h).
        outputs = network.call(model, **inputs)
        expected_outputs = network.call(network.torch_model, **inputs)
        # torch's maximum of several numbers is NaN if any is; Python's may be another number.
        difference = torch.stack(
            [
                (output - expected).norm() / expected.norm()
                for output, expected in zip(outputs, expected_outputs, strict=True)
            ]
        ).max()
        # Written with "not", so that NaN, for which each comparison is false, raises too.
        if not difference <= max_difference:
            raise EncoderError(
                f"{model.file.path}: {model.runtime} computes other numbers with it than torch "
                f"with the checkpoint (they differ by {float(difference):.0%} of their length, "
                f"{max_difference:.0%} may be rounding)",
                hint=_OTHER_FILE_HINT,
            )


class _StatesByLayer:
    """The hidden states of a runtime's model by layer, as transformers' models have them."""

    def __init__(self, model: RuntimeModel, outputs: dict[str, torch.Tensor]) -> None:
        """Store the outputs of a model for a batch.

        Args:
            model: The model: its number of layers is read, and its file is named in errors.
            outputs: Its outputs by name: ``last_hidden_state`` for the last layer, and for example
                ``hidden_states.3`` for another one.
        """
        self.model = model
        self.outputs = outputs

    def __getitem__(self, layer: int) -> torch.Tensor:
        """Return the hidden states (b, t, h) of a layer.

        Args:
            layer: The index of the layer: 0 is the word embeddings, -1 the last layer.

        Raises:
            EncoderError: The file does not output this layer.
        """
        depth = self.model.config.num_hidden_layers
        # By a name such as "hidden_states.3"; "last_hidden_state" for the last layer.
        states = self.outputs.get(output_name(layer, depth))
        if states is None:
            raise EncoderError(
                f"{self.model.file.path}: gives no hidden states of layer {layer}; "
                "leave 'backend' out"
            )
        return states


def _make_model_inputs(ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64]) -> NamedArrays:
    """Return all inputs that a file may need for a batch, by name, each (b, t).

    Args:
        ids: The token ids, (b, t).
        mask: 1 at tokens and 0 at padding, (b, t).
    """
    positions = np.tile(np.arange(ids.shape[1], dtype=np.int64), (len(ids), 1))
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": np.zeros_like(ids),
        "position_ids": positions,
    }


def _pad_states(output: npt.NDArray[Any], n_tokens: int) -> npt.NDArray[Any]:
    """Pad states (1, t, h) with zeros to a number of tokens; an output (1, h) stays as it is."""
    if output.ndim == 2:
        return output
    return np.pad(output, ((0, 0), (0, n_tokens - output.shape[1]), (0, 0)))


EXPORTED_FILE, INT8_FILE = "model.onnx", "model_int8.onnx"
"""The names of an exported file, and of one that is made int8."""
TRACED_SHAPE = (2, 9)
"""The sentences and tokens of the example with which torch traces the network.

The exported file runs with any other numbers of them.
"""


def export_network(network: Network, *, int8: bool = False) -> RuntimeFile:
    """Return an ONNX file of a network in the cache folder; export it unless it exists there.

    Its folder is named by a hash of everything that decides its content: the weights, the outputs
    and the versions of the packages that export.

    Args:
        network: The network: how to load it in torch, and the outputs to export.
        int8: Whether the file gets int8 weights, by :func:`quantise_weights`.

    Raises:
        EncoderError: Torch cannot export it, or it cannot be made int8.
        OutputError: The cache folder cannot be written.
    """
    packages = ["torch", "transformers", "onnxscript", *(["onnxruntime"] if int8 else [])]
    versions = {name: version(name) for name in packages}
    # `network.state` holds the hashes of the checkpoint's files. CODE_VERSION is raised with a
    # change of this code that can change an embedding.
    cache_key = json.dumps(
        [CODE_VERSION, network.state, list(network.outputs), versions], sort_keys=True
    )
    target = settings.cache_folder() / "exported" / hashlib.sha256(cache_key.encode()).hexdigest()
    # A sealed folder is complete. The scratch folder gets this name when the file is complete.
    if not is_sealed(target):
        with sealed_folder(target) as scratch:
            parameter = "dtype" if int8 else "backend"
            _export_to_onnx(network, scratch / EXPORTED_FILE, parameter=parameter)
            if int8:
                _replace_by_int8(scratch)
    return RuntimeFile(target, INT8_FILE if int8 else EXPORTED_FILE)


def _replace_by_int8(folder: Path) -> None:
    """Replace the float32 file that was exported into a folder by one with int8 weights.

    Args:
        folder: A folder with the exported file and the files of its weights, and no others.

    Raises:
        EncoderError: It cannot be made int8.
    """
    float_files = list(folder.iterdir())
    with silence_exporters(), translate_errors("it cannot be made int8", EncoderError):
        quantise_weights(folder / EXPORTED_FILE, folder / INT8_FILE)
    for path in float_files:
        path.unlink()


def quantise_weights(source: Path, target: Path) -> None:
    """Write a copy of an ONNX file with int8 weights, by ONNX Runtime's dynamic quantisation.

    The range of activations is computed for each input. Weights have one scale per channel, a
    column of weights: with the library's default, one per matrix, embeddings move much farther.
    They use 7 of 8 bits, because processors without VNNI instructions add two products in 16 bits,
    where 8 bits could overflow.

    Args:
        source: The file with float32 weights.
        target: The file to write.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(
        source, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True
    )


def _export_to_onnx(network: Network, path: Path, parameter: str) -> None:
    """Write a network to an ONNX file, which then runs on any number of sentences and tokens.

    Torch records one run on an example batch, with any valid token ids and some padding.

    Args:
        network: The network: how to load it in torch, and the outputs to export.
        path: The file to write; its weights go into a file beside it.
        parameter: The parameter that requests the file, for the message.

    Raises:
        EncoderError: Torch cannot export it.
    """
    n_words = network.torch_model.get_input_embeddings().num_embeddings
    n_sentences, n_tokens = TRACED_SHAPE
    ids = torch.arange(n_sentences * n_tokens).reshape(TRACED_SHAPE) % n_words
    mask = torch.ones_like(ids)
    mask[1, n_tokens // 2 :] = 0
    # The two dimensions of the inputs whose sizes may be different later.
    sizes = {0: torch.export.Dim("sentences"), 1: torch.export.Dim("tokens")}
    try:
        with silence_exporters():
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
    except OSError:  # no space or no rights: not the network's fault
        raise
    except Exception as error:  # whatever a network makes torch's exporter raise
        # Torch adds a page in colours on how to report the error. Only the first line of the cause
        # is kept, without the codes of colours.
        cause = _COLOUR_CODES.sub("", str(error.__cause__ or error)).partition("\n")[0]
        raise EncoderError(
            f"{network.folder}: torch cannot export it to ONNX: {as_one_line(cause)[:300]}; "
            f"leave '{parameter}' out"
        ) from error


class _RequestedOutputs(torch.nn.Module):
    """A network that returns only the outputs that are needed, for torch's exporter."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.model = network.torch_model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return tuple(
            self.network.call(self.model, input_ids=input_ids, attention_mask=attention_mask)
        )


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Suppress log messages, warnings and all output on stdout within the block.

    It is for libraries that export or quantise networks.
    """
    old_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        # Some versions of onnxscript print to stdout; NNCF draws progress bars there.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(old_level)

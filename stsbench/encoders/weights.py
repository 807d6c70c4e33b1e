"""The files of a checkpoint's weights, their conversion to safetensors, and LoRA adapters."""

from __future__ import annotations

import hashlib
import re
import threading
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.core import settings
from stsbench.core.errors import EncoderError, translate_errors
from stsbench.core.files import file_sha256
from stsbench.core.wording import as_one_line, format_repr
from stsbench.encoders.cached_files import is_sealed, read_json, sealed_folder

if TYPE_CHECKING:
    import torch


def find_weight_files(folder: Path) -> Iterator[Path]:
    """Yield the paths of the files with the weights of a checkpoint, in the format safetensors.

    The first of these that exists counts: ``model.safetensors``; the files that an index lists;
    ``pytorch_model.bin``, which is converted into a file in the cache folder.

    Raises:
        EncoderError: There are no weights, or a file of them is missing.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        # As in transformers, it is preferred to the files of an index.
        yield folder / "model.safetensors"
    elif index.is_file():
        # The name of a file by the name of each tensor.
        weight_map = read_json(index).get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise EncoderError(f"{index}: names no weights; copy the whole checkpoint")
        yield from (folder / name for name in checked_shard_names(index, weight_map))
    elif (folder / "pytorch_model.bin").is_file():
        yield convert_to_safetensors(folder / "pytorch_model.bin")
    else:
        raise EncoderError(
            f"{folder}: no weights (model.safetensors or pytorch_model.bin); "
            "copy the whole checkpoint"
        )


def checked_shard_names(index: Path, weight_map: Mapping[str, object]) -> list[str]:
    """Return the names of the files that an index of weights lists, after checks; sorted.

    Args:
        index: The file of the index.
        weight_map: Its content: the name of a file by the name of each tensor.

    Raises:
        EncoderError: A file is not beside the index, or is no file of weights.
    """
    names = sorted(set(map(str, weight_map.values())))
    # An index may name nothing but weights of its own format in its own folder. For example,
    # model.safetensors.index.json lists *.safetensors.
    suffix = index.name.removesuffix(".index.json").rpartition(".")[2]
    for name in names:
        is_valid_name = re.fullmatch(rf"[\w.-]+\.{suffix}", name)
        if not is_valid_name or not (index.parent / name).is_file():
            raise EncoderError(f"{index.parent}: weights file '{name}' of {index.name} is missing")
    return names


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a safetensors file, by name.

    Only the header of the file is read, not the tensors.

    Raises:
        EncoderError: The file is broken.
    """
    from safetensors import SafetensorError, safe_open

    with (
        translate_errors(f"{path}: broken file", EncoderError, OSError, SafetensorError),
        safe_open(path, framework="numpy") as tensors,
    ):
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118


MAX_SIZE_FACTOR = 2.0
MAX_EXTRA_VALUES = 50_000_000
"""A model may have at most this factor times the values of its weights' files, and so many more.

Tied weights are written once, and a head may be missing.
"""


@contextmanager
def refuse_oversized_model(folder: Path, weights: Sequence[Path]) -> Iterator[None]:
    """Raise an error if a model far larger than its weights is made within the block.

    Transformers makes the layers of a model without memory, and reads the weights afterwards. So
    the numbers of each layer are counted as the layer is made, and a model that is too large is
    refused before it takes memory.

    Args:
        folder: The folder with ``config.json``, for the message.
        weights: The files of the weights, of which only the shapes are read.

    Raises:
        EncoderError: The model is too large.
    """
    import torch

    weights_size = sum(prod(shape) for path in weights for shape in read_shapes(path).values())
    # A model may have parts that its file lacks, such as tied or fresh layers: so twice the weights
    # and 50 million numbers more are allowed.
    max_size = int(MAX_SIZE_FACTOR * weights_size + MAX_EXTRA_VALUES)
    # The size of each parameter so far, by its module and name. A parameter is registered again
    # when its weights are read, and then replaces the former one.
    sizes: dict[tuple[int, str], int] = {}
    thread = threading.get_ident()
    model_size = 0

    def count(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        """Add the size of a parameter that torch registers in a module to ``model_size``.

        Raises EncoderError if that is above ``max_size``. ``sizes`` has the parameters so far.
        """
        nonlocal model_size
        # Other threads may make modules of their own meanwhile.
        if parameter is None or threading.get_ident() != thread:
            return
        key = (id(module), name)
        model_size += parameter.numel() - sizes.get(key, 0)
        sizes[key] = parameter.numel()
        if model_size > max_size:
            raise EncoderError(
                f"{folder}: config.json asks for a model of {model_size:,} values or more, its "
                f"weights hold {weights_size:,}; the most that is read is {max_size:,}"
            )

    hook = torch.nn.modules.module.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""The files of an adapter's folder."""


@dataclass(frozen=True)
class Adapter:
    """A folder with a LoRA adapter, which changes the weights of a model."""

    folder: Path

    @classmethod
    def find(cls, name: str) -> Adapter:
        """Return a LoRA adapter after checks: small changes to the weights of another model.

        It is fetched from the Hub if it is not on this machine. Its weights are not read yet.

        Args:
            name: A folder, or ``owner/name@commit`` on the Hub; the main branch without a commit.

        Raises:
            SourceError: The adapter is not available.
            EncoderError: It is not a LoRA adapter, or peft is not installed, without which an
                adapter cannot be merged.
        """
        folder = Path(name)
        if not folder.is_dir():
            from stsbench.data.hub.repository import Repository

            model, _, revision = name.partition("@")
            repository = Repository(
                model,
                revision=revision,
                kind="model",
                offline_hint="give the adapter's folder on this machine",
            )
            folder = repository.fetch_all([ADAPTER_CONFIG, ADAPTER_WEIGHTS]).path
        for file_name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            if not (folder / file_name).is_file():
                raise EncoderError(f"{folder}: no {file_name}; is it the folder of a LoRA adapter?")
        kind = read_json(folder / ADAPTER_CONFIG).get("peft_type")
        if kind != "LORA":
            raise EncoderError(
                f"{folder / ADAPTER_CONFIG}: peft_type is {format_repr(kind)}; only LORA is merged"
            )
        if find_spec("peft") is None:
            raise EncoderError(
                f"the adapter '{name}' needs peft, which is not installed: "
                "pip install 'stsbench[peft]'"
            )
        return cls(folder)

    def file_hashes(self) -> dict[str, str]:
        """Return the sha256 of the files that can change an embedding, by name."""
        return {name: file_sha256(self.folder / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}

    def merge_into(self, model: Any) -> Any:  # noqa: ANN401 - transformers
        """Return a model with the adapter's changes added to its weights.

        Args:
            model: A model of transformers, without a head.

        Raises:
            EncoderError: The adapter is broken, or belongs to another model.
        """
        import peft
        from safetensors.torch import load_file

        # If the adapter was trained with a head on the model, the names of its tensors have one
        # part more, which is removed.
        prefix_with_head = f"base_model.model.{model.base_model_prefix}."
        with translate_errors(f"{self.folder}: the adapter cannot be loaded", EncoderError):
            # Read from the file only. Without the mapping no class that it names is imported.
            config = peft.LoraConfig.from_pretrained(str(self.folder))
            config.inference_mode = True
            config.auto_mapping = None
            tensors = {
                key.replace(prefix_with_head, "base_model.model.", 1): tensor
                for key, tensor in load_file(self.folder / ADAPTER_WEIGHTS).items()
            }
            with warnings.catch_warnings():
                # Warnings that peft and transformers raise about each other's versions.
                warnings.simplefilter("ignore")
                peft_model = peft.PeftModel(model, config)
                loading_info = peft.set_peft_model_state_dict(peft_model, tensors)
        missing_keys = [key for key in loading_info.missing_keys if "lora_" in key]
        wrong_keys = missing_keys + list(loading_info.unexpected_keys)
        if wrong_keys:
            raise EncoderError(
                f"{self.folder}: the adapter is of another model: '{wrong_keys[0]}' "
                f"({len(wrong_keys)} tensors in all)"
            )
        return peft_model.merge_and_unload()


_SAFETENSORS_HINT = "ask its author for safetensors"
UNUSED_HEADS = ("cls.seq_relationship.", "qa_outputs.", "classifier.", "discriminator_predictions.")
"""The prefixes of tensors of heads that neither embed nor are trained here."""


def convert_to_safetensors(weights: Path) -> Path:
    """Return a safetensors file in the cache folder with the weights of a ``.bin`` file.

    It is written unless it exists there. Beside it is a copy of the model's ``config.json``, so
    that the model can be loaded from that folder.

    Args:
        weights: The ``.bin`` file.

    Raises:
        EncoderError: The file holds more than safetensors can.
        OutputError: The cache folder cannot be written.
    """
    config = (weights.parent / "config.json").read_bytes()
    # The folder is named by the hash of both files that decide its content.
    cache_key = hashlib.sha256(file_sha256(weights).encode() + config).hexdigest()
    target = settings.cache_folder() / "converted" / cache_key / "model.safetensors"
    # A sealed folder is complete, and its files have not changed.
    if is_sealed(target.parent):
        return target
    from safetensors.torch import save_file

    tensors = read_tensors(weights)
    # At the end of the block the scratch folder is renamed to ``target.parent``.
    with sealed_folder(target.parent) as scratch:
        (scratch / "config.json").write_bytes(config)
        try:
            save_file(tensors, scratch / target.name, metadata={"format": "pt"})
        except Exception as error:  # its own kind, whether a type or the disk is the cause
            raise EncoderError(
                f"{weights}: cannot be kept as safetensors ({as_one_line(error)[:200]}); "
                f"ask its author for them, or free some space in {target.parent}"
            ) from error
    return target


def read_tensors(weights: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a file that torch has written (``.bin`` or ``.pkl``), by name.

    No code in the file is run. The tensors of heads that are not used here are omitted.

    Raises:
        EncoderError: The file cannot be read, or holds more than tensors.
    """
    import torch

    try:
        # Files of torch before 1.6 are no zip archives and cannot be mapped.
        state = torch.load(
            weights, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(weights)
        )
    except Exception as error:  # torch raises many kinds for what it refuses to unpickle
        raise EncoderError(
            f"{weights}: holds more than tensors and is not read ({as_one_line(error)[:80]}…)",
            hint=_SAFETENSORS_HINT,
        ) from error
    if not isinstance(state, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise EncoderError(f"{weights}: is not a flat table of tensors", hint=_SAFETENSORS_HINT)
    tensors: dict[str, torch.Tensor] = {}
    seen_addresses: set[int] = set()
    for name, tensor in state.items():
        is_plain = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta)
        if not isinstance(name, str) or not is_plain:
            raise EncoderError(
                f"{weights}: the tensor '{str(name)[:80]}' is no plain array of numbers with a "
                "name",
                hint=_SAFETENSORS_HINT,
            )
        # UNUSED_HEADS: the beginnings of names, such as ``classifier.``.
        if not name.startswith(UNUSED_HEADS):
            # As numbers in memory one after another, without lazy conjugation or negation.
            array = tensor.detach().resolve_conj().resolve_neg().contiguous()
            # A tensor that shares memory with an earlier one is copied, because safetensors cannot
            # write shared memory.
            address = array.untyped_storage().data_ptr()
            tensors[name] = array.clone() if address in seen_addresses else array
            seen_addresses.add(address)
    return tensors

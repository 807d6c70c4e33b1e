"""Translation with Marian models: in batches by length, each sentence once, kept as they come."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
import transformers

from stsbench import settings
from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.checkpoint import Checkpoint, open_checkpoint
from stsbench.encoders.devices import open_device, pick_device
from stsbench.encoders.engine.embed import Progress
from stsbench.encoders.transformer.opening import load_model, load_tokenizer
from stsbench.errors import CardError, EncoderError, OutputError, SourceError, StsbenchError, UnknownName

Mode = Literal["greedy", "sampling"]
VOCABULARY = ("source.spm", "target.spm", "vocab.json")
FILES = ("*.json", "*.spm", "*.txt", "*.safetensors", "pytorch_model.bin")


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How a translation is chosen."""

    mode: Mode = "greedy"
    """``greedy``: the likeliest token each time; ``sampling``: tokens drawn by their probability."""
    temperature: float = 1.0
    """Divides the logits before sampling."""
    seed: int = 0
    """Of sampling; a sentence's draws depend on it and on the sentence, not on its neighbours in a batch."""
    max_tokens: int = 128
    """Longest translation, and longest part of a sentence that is read."""

    def __post_init__(self) -> None:
        """Check the values; raises UnknownName or CardError."""
        if self.mode not in get_args(Mode):
            raise UnknownName("decoding mode", self.mode, get_args(Mode), hint=f"known: {', '.join(get_args(Mode))}")
        if not self.temperature > 0 or self.max_tokens < 1:
            raise CardError("decoding: temperature must be above 0 and max_tokens 1 or more")

    def facts(self) -> dict[str, Any]:
        """What can change a translation: greedy decoding has neither temperature nor seed."""
        drawn = self.mode == "sampling"
        return {key: value for key, value in asdict(self).items() if drawn or key not in ("temperature", "seed")}


class Translation(NamedTuple):
    """A translated sentence."""

    text: str
    cut: bool
    """Whether the sentence was longer than ``max_tokens``, or its translation was still going on there."""


class Translator:
    """One direction of translation.

    Every batch is appended to a file in the cache folder, named by the model's and the decoding's hash, so a
    stopped run goes on where it was and no sentence is translated twice.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str = "unpinned",
        decoding: Decoding | None = None,
        batch_size: int = 32,
        device: str = "auto",
    ) -> None:
        """Find the model; it is loaded when there is something to translate.

        Args:
            model: a checkpoint's folder or its name on the Hub.
            revision: its commit on the Hub.
            decoding: how translations are chosen.
            batch_size: sentences translated at once.
            device: ``auto`` is a GPU where there is one.

        Raises:
            StsbenchError: the packages that read Marian's vocabularies are not installed.
            SourceError: the model cannot be had.
            EncoderError: the folder is no checkpoint.
        """
        for package in ("sentencepiece", "sacremoses"):
            if find_spec(package) is None:
                raise StsbenchError(f"translation needs {package}; install it with: pip install 'stsbench[translate]'")
        if batch_size < 1:
            raise CardError(f"batch_size {batch_size}: must be 1 or more")
        self.model, self.decoding, self.batch_size = model, decoding or Decoding(), batch_size
        self.device = pick_device(device)
        self.checkpoint = _find(model, revision)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The model and how it is used, as the record beside a file of pairs has them."""
        folder = self.checkpoint.folder
        files = [p for pattern in ("*.json", "*.spm") for p in sorted(folder.glob(pattern))]
        digests = {p.name: file_digest(p) for p in (*files, *self.checkpoint.weights)}
        digest = hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
        return {"model": self.model, "revision": self.checkpoint.revision, "sha256": digest, **self.decoding.facts()}

    @property
    def kept(self) -> Path:
        """The file of finished translations."""
        facts = {key: value for key, value in self.facts.items() if key not in ("model", "revision")}
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
        return settings.cache_folder() / "translations" / f"{key}.jsonl"

    def translate(self, sentences: Sequence[str], progress: Progress | None = None) -> list[Translation]:
        """Translate sentences, each distinct one once.

        Raises:
            EncoderError: the model cannot be loaded or is no translation model.
            OutputError: the cache folder cannot be written.
        """
        known = _read_kept(self.kept)
        # A sentence without a letter or digit is its own translation; models make something up.
        known.update({s: Translation(s, cut=False) for s in sentences if not any(map(str.isalnum, s))})
        distinct = dict.fromkeys(sentences)
        todo = [sentence for sentence in distinct if sentence not in known]
        done = len(distinct) - len(todo)
        for batch in self._batches(todo):
            made = dict(zip(batch, self.marian.translate(batch), strict=True))
            _append(self.kept, made)
            known.update(made)
            done += len(batch)
            if progress is not None:
                progress(done, len(distinct))
        return [known[sentence] for sentence in sentences]

    def _batches(self, todo: Sequence[str]) -> Iterator[list[str]]:
        by_length = sorted(todo, key=len, reverse=True)
        for start in range(0, len(by_length), self.batch_size):
            yield by_length[start : start + self.batch_size]

    @cached_property
    def marian(self) -> Marian:
        """The model, loaded when it is first needed."""
        return Marian(self.checkpoint, self.device, self.decoding)


class Marian:
    """A loaded model and its tokenizer."""

    def __init__(self, checkpoint: Checkpoint, device: str, decoding: Decoding) -> None:
        """Load both; raises EncoderError where weights are missing."""
        self.decoding = decoding
        self.tokenizer = load_tokenizer(checkpoint)
        model, missing = load_model(transformers.AutoModelForSeq2SeqLM, checkpoint, dtype="float32")
        if missing:
            raise EncoderError(f"{checkpoint.folder}: the weights lack '{missing[0]}' ({len(missing)} tensors in all)")
        self.model = model.eval().to(open_device(device))
        config = model.config
        # The checkpoint's own settings (often a beam of six) are not ours.
        self.model.generation_config = transformers.GenerationConfig(
            pad_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
            # Marian begins with padding; it may not write any.
            suppress_tokens=[config.pad_token_id],
        )

        if decoding.max_tokens > config.max_position_embeddings:
            raise CardError(
                f"max_tokens {decoding.max_tokens}: {checkpoint.folder} reads {config.max_position_embeddings} at most"
            )

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        """Translate one batch."""
        longest, end = self.decoding.max_tokens, self.model.generation_config.eos_token_id
        whole = self.tokenizer(list(sentences), return_attention_mask=False, verbose=False)["input_ids"]
        read = [ids if len(ids) <= longest else [*ids[: longest - 1], end] for ids in whole]
        batch = self.tokenizer.pad({"input_ids": read}, return_tensors="pt").to(self.model.device)
        noise = [Gumbel(sentences, self.decoding)] if self.decoding.mode == "sampling" else []
        with torch.inference_mode():
            written = self.model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=longest,
                logits_processor=transformers.LogitsProcessorList(noise),
            )
        texts = self.tokenizer.batch_decode(written, skip_special_tokens=True)
        ended = (written == end).any(dim=1).tolist()
        cut = [not done or len(ids) > longest for done, ids in zip(ended, whole, strict=True)]
        return [Translation(text, cut=short) for text, short in zip(texts, cut, strict=True)]


class Gumbel:
    """Noise that makes the likeliest token a drawn one: the Gumbel-max way to sample.

    Each sentence has its own generator, so its draws do not depend on the batch it is in.
    """

    def __init__(self, sentences: Sequence[str], decoding: Decoding) -> None:
        """Give each sentence of a batch its generator."""
        self.temperature = decoding.temperature
        self.generators = [torch.Generator().manual_seed(_seed(decoding.seed, sentence)) for sentence in sentences]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Add noise to the logits (b, v)."""
        uniform = torch.stack([torch.rand(scores.shape[1], generator=g) for g in self.generators])
        tiny = torch.finfo(torch.float32).tiny
        # Minus the logarithm of a uniform number is an exponential one; minus the logarithm of that, Gumbel's.
        exponential = uniform.clamp(min=tiny).log().neg().clamp(min=tiny)
        return scores / self.temperature - exponential.log().to(scores)


def _seed(seed: int, sentence: str) -> int:
    digest = hashlib.sha256(f"{seed}\x1f{sentence}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little", signed=True)


def _find(model: str, revision: str) -> Checkpoint:
    folder, commit = _folder(model, revision)
    if missing := [name for name in VOCABULARY if not (folder / name).is_file()]:
        raise EncoderError(f"{folder}: no {missing[0]}; is it a Marian translation model?")
    return open_checkpoint(folder, revision=commit, sha256={})


def _folder(model: str, revision: str) -> tuple[Path, str | None]:
    if Path(model).is_dir():
        return Path(model), None
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise SourceError(f"checkpoint folder '{model}' does not exist")
    from stsbench.data.hub import fetch_checkpoint

    found = fetch_checkpoint(
        model, revision=revision, allow=FILES, without="give the folders of translation models on this machine"
    )
    return found.path, found.commit


def _read_kept(path: Path) -> dict[str, Translation]:
    """Read finished translations, and drop a last line that a killed run left unfinished."""
    if not path.is_file():
        return {}
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        os.truncate(path, len(whole))
    rows = [json.loads(line) for line in whole.decode("utf-8", "surrogatepass").splitlines()]
    return {row["text"]: Translation(row["translation"], cut=row["cut"]) for row in rows}


def _append(path: Path, made: Mapping[str, Translation]) -> None:
    rows = [{"text": text, "translation": t.text, "cut": t.cut} for text, t in made.items()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror}); what was translated before is kept"
        ) from error

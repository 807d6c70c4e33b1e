"""Pairs of a sentence and its back-translation by two Marian models, the positives of a contrast with translations.

The baseline of Kim et al. 2021 (SG-OPT), https://aclanthology.org/2021.acl-long.197, after CERT (Fang and Xie 2020).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pandas as pd
import torch
import transformers

from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, OutputError, StsbenchError, look_up
from stsbench.core.files import append_line, file_digest, write_atomically
from stsbench.core.provenance import versions
from stsbench.data.corpora.corpus import Corpus
from stsbench.encoders.backends import open_device, pick_device
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.engine.embed import ProgressCallback
from stsbench.encoders.transformer.backbone import load_model, load_tokenizer

Mode = Literal["greedy", "sampling"]
VOCABULARY = ("source.spm", "target.spm", "vocab.json")
PACKAGES = ("sentencepiece", "sacremoses")
"""What reads Marian's vocabularies."""


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
        look_up("decoding mode", self.mode, dict.fromkeys(get_args(Mode)))
        if not self.temperature > 0 or self.max_tokens < 1:
            raise CardError("decoding: temperature must be above 0 and max_tokens 1 or more")

    def facts(self) -> dict[str, Any]:
        """What can change a translation: greedy decoding has neither temperature nor seed."""
        drawn = self.mode == "sampling"
        return {
            key: value
            for key, value in asdict(self).items()
            if drawn or key not in ("temperature", "seed")
        }


class Translation(NamedTuple):
    """A translated sentence."""

    text: str
    cut: bool
    """Whether the sentence was longer than ``max_tokens``, or its translation was still going on there."""


class Translator:
    """One direction of translation, by ``generate`` of a Marian model of transformers.

    Every batch is appended to a file in the cache folder, named by the model's and the decoding's hash, so a
    stopped run resumes where it was and no sentence is translated twice.
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
        """Find the model, a checkpoint's folder or its name on the Hub; it is loaded when there is something to translate.

        Raises StsbenchError: the packages that read Marian's vocabularies are not installed; SourceError: the model
        cannot be had; EncoderError: the folder is no checkpoint of a Marian model.
        """
        for package in PACKAGES:
            if find_spec(package) is None:
                raise StsbenchError(
                    f"translation needs {package}; install it with: pip install 'stsbench[translate]'"
                )
        if batch_size < 1:
            raise CardError(f"batch_size {batch_size}: must be 1 or more")
        self.model, self.decoding, self.batch_size = model, decoding or Decoding(), batch_size
        self.device = pick_device(device)
        self.checkpoint = find_checkpoint(model, revision=revision, extra_names=VOCABULARY)
        folder = self.checkpoint.folder
        if missing := [name for name in VOCABULARY if not (folder / name).is_file()]:
            raise EncoderError(f"{folder}: no {missing[0]}; is it a Marian translation model?")

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The model and how it is used, as the record beside a file of pairs has them."""
        folder = self.checkpoint.folder
        files = [
            *sorted(folder.glob("*.json")),
            *sorted(folder.glob("*.spm")),
            *self.checkpoint.weights,
        ]
        digest = _digest({path.name: file_digest(path) for path in files})
        return {
            "model": self.model,
            "revision": self.checkpoint.revision,
            "sha256": digest,
            **self.decoding.facts(),
        }

    @property
    def kept(self) -> Path:
        """The file of finished translations."""
        key = _digest(
            {key: value for key, value in self.facts.items() if key not in ("model", "revision")}
        )
        return settings.cache_folder() / "translations" / f"{key[:32]}.jsonl"

    def translate(
        self, sentences: Sequence[str], progress: ProgressCallback = lambda *at: None
    ) -> list[Translation]:
        """Translate sentences, each distinct one once, the longest first.

        Raises EncoderError: the model cannot be loaded or does not translate; OutputError: the cache cannot be written.
        """
        known = _read_kept(self.kept)
        # A sentence without a letter or digit is its own translation; models make something up.
        known.update(
            {s: Translation(s, cut=False) for s in sentences if not any(map(str.isalnum, s))}
        )
        distinct = dict.fromkeys(sentences)
        todo = sorted(
            (sentence for sentence in distinct if sentence not in known), key=len, reverse=True
        )
        done = len(distinct) - len(todo)
        for start in range(0, len(todo), self.batch_size):
            batch = todo[start : start + self.batch_size]
            made = dict(zip(batch, self.translate_batch(batch), strict=True))
            rows = [{"text": text, "translation": t.text, "cut": t.cut} for text, t in made.items()]
            append_line(self.kept, "\n".join(map(json.dumps, rows)))
            known.update(made)
            done += len(batch)
            progress(done, len(distinct))
        return [known[sentence] for sentence in sentences]

    @cached_property
    def marian(self) -> tuple[Any, Any]:
        """The tokenizer and the model, loaded when they are first needed."""
        checkpoint, longest = self.checkpoint, self.decoding.max_tokens
        model, missing = load_model(transformers.AutoModelForSeq2SeqLM, checkpoint, dtype="float32")
        if missing:
            raise EncoderError(
                f"{checkpoint.folder}: the weights lack '{missing[0]}' ({len(missing)} tensors in all)"
            )
        config = model.config
        if longest > config.max_position_embeddings:
            raise CardError(
                f"max_tokens {longest}: {checkpoint.folder} reads {config.max_position_embeddings} at most"
            )
        # The checkpoint's own settings (often a beam of six) are not ours.
        model.generation_config = transformers.GenerationConfig(
            pad_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
            # Marian begins with padding; it may not write any.
            suppress_tokens=[config.pad_token_id],
        )
        return load_tokenizer(checkpoint), model.eval().to(open_device(self.device))

    def translate_batch(self, sentences: Sequence[str]) -> list[Translation]:
        """Translate some sentences at once, whatever is known of them."""
        (tokenizer, model), longest = self.marian, self.decoding.max_tokens
        end = model.generation_config.eos_token_id
        whole = tokenizer(list(sentences), return_attention_mask=False, verbose=False)["input_ids"]
        read = [ids if len(ids) <= longest else [*ids[: longest - 1], end] for ids in whole]
        batch = tokenizer.pad({"input_ids": read}, return_tensors="pt").to(model.device)
        noise = [GumbelNoise(sentences, self.decoding)] if self.decoding.mode == "sampling" else []
        with torch.inference_mode():
            written = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=longest,
                logits_processor=transformers.LogitsProcessorList(noise),
            )
        texts = tokenizer.batch_decode(written, skip_special_tokens=True)
        ended = (written == end).any(dim=1).tolist()
        cut = [not done or len(ids) > longest for done, ids in zip(ended, whole, strict=True)]
        return [Translation(text, cut=short) for text, short in zip(texts, cut, strict=True)]


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class GumbelNoise:
    """Noise that makes the likeliest token a drawn one: the Gumbel-max way to sample.

    Each sentence has its own generator, so its draws do not depend on the batch it is in.
    """

    def __init__(self, sentences: Sequence[str], decoding: Decoding) -> None:
        """Give each sentence of a batch its generator."""
        self.temperature = decoding.temperature
        keys = [
            f"{decoding.seed}\x1f{sentence}".encode("utf-8", "surrogatepass")
            for sentence in sentences
        ]
        seeds = [
            int.from_bytes(hashlib.sha256(key).digest()[:8], "little", signed=True) for key in keys
        ]
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Add noise to the logits (b, v)."""
        uniform = torch.stack([torch.rand(scores.shape[1], generator=g) for g in self.generators])
        tiny = torch.finfo(torch.float32).tiny
        # Minus the logarithm of a uniform number is an exponential one; minus the logarithm of that, Gumbel's.
        exponential = uniform.clamp(min=tiny).log().neg().clamp(min=tiny)
        return scores / self.temperature - exponential.log().to(scores)


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


DirectionProgress = Callable[[str, int, int], None]
"""Called with the direction, how many sentences are done, and of how many."""


class TranslationReport(NamedTuple):
    """What came of a file of pairs."""

    rows: int
    distinct: int
    same: int
    """Sentences that came back unchanged: such a pair teaches what dropout does."""
    cut: int
    """Sentences whose translation, there or back, was still going on at the longest length."""
    record: Path


def write_back_translations(
    corpus: Corpus,
    output: Path,
    forward: Translator,
    backward: Translator,
    progress: DirectionProgress | None = None,
) -> TranslationReport:
    """Write a CSV file of ``anchor`` and ``positive``, a row for each row of the corpus, and a record beside it.

    A corpus without a column ``text`` gives the distinct sentences of all its columns. ``forward`` translates into the
    other language, ``backward`` back. Raises OutputError: the output is there, is no ``.csv``, or cannot be written;
    EncoderError: a model cannot be loaded.
    """
    record = check_output(output)
    report = progress or (lambda direction, done, total: None)
    sentences = list((corpus if "text" in corpus.columns else corpus.sentences()).column("text"))
    there = forward.translate(sentences, partial(report, "there"))
    back = backward.translate([t.text for t in there], partial(report, "back"))
    pairs = pd.DataFrame({"anchor": sentences, "positive": [t.text for t in back]}, dtype=object)
    cut = len({s for s, t, b in zip(sentences, there, back, strict=True) if t.cut or b.cut})
    same = len({s for s, b in zip(sentences, back, strict=True) if s == b.text})
    counts = {"rows": len(sentences), "distinct": len(set(sentences)), "same": same, "cut": cut}
    facts = {
        "schema": 1,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        **counts,
        "forward": forward.facts,
        "backward": backward.facts,
        "run": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": forward.device,
            "batch_size": forward.batch_size,
            "versions": {
                **versions(),
                **{package: metadata.version(package) for package in PACKAGES},
            },
        },
    }
    write_atomically(
        output, pairs.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace")
    )
    write_atomically(record, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
    return TranslationReport(**counts, record=record)


def check_output(output: Path) -> Path:
    """Return the place of the record beside a file of pairs that may be written; raises OutputError."""
    record = output.with_name(f"{output.name}.json")
    if output.suffix != ".csv":
        raise OutputError(f"{output}: pairs are written as .csv; name it {output.stem}.csv")
    for path in (output, record):
        if path.exists():
            raise OutputError(f"{path}: already exists; name another file, or remove it")
    return record

"""Pairs of a sentence and its back-translation by two Marian models.

They are the positives of a contrast with translations: the baseline of Kim et al. 2021 (SG-OPT),
https://aclanthology.org/2021.acl-long.197, after CERT (Fang and Xie 2020).
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
from stsbench.core.files import append_line, file_sha256, write_atomically
from stsbench.core.provenance import versions
from stsbench.data.corpora.corpus import Corpus
from stsbench.encoders.accelerator import resolve_device_name
from stsbench.encoders.backends import open_device
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.engine.embed import ProgressCallback
from stsbench.encoders.transformer.backbone import load_model, load_tokenizer

Mode = Literal["greedy", "sampling"]
VOCABULARY_FILES = ("source.spm", "target.spm", "vocab.json")
VOCABULARY_PACKAGES = ("sentencepiece", "sacremoses")
"""The packages that read Marian's vocabularies."""


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """The settings by which a translation is chosen."""

    mode: Mode = "greedy"
    """``greedy``: the likeliest token each time; ``sampling``: tokens drawn by their
    probability."""
    temperature: float = 1.0
    """Divides the logits before sampling."""
    seed: int = 0
    """The seed of sampling; a sentence's draws depend on it and on the sentence, not on its
    neighbours in a batch."""
    max_tokens: int = 128
    """The maximum number of tokens of a translation, and of a sentence that are translated."""

    def __post_init__(self) -> None:
        """Check the settings of decoding.

        Raises:
            UnknownName: There is no such mode of decoding.
            CardError: The temperature is not above 0, or ``max_tokens`` is below 1.
        """
        # The modes are greedy and sampling. Only the check: it raises UnknownName.
        look_up("decoding mode", self.mode, dict.fromkeys(get_args(Mode)))
        if not self.temperature > 0 or self.max_tokens < 1:
            raise CardError("decoding: temperature must be above 0 and max_tokens 1 or more")

    def record(self) -> dict[str, Any]:
        """Return by name the settings that can change a translation.

        Temperature and seed are omitted for greedy decoding, which uses neither.
        """
        samples = self.mode == "sampling"
        return {
            key: value
            for key, value in asdict(self).items()
            if samples or key not in ("temperature", "seed")
        }


class Translation(NamedTuple):
    """A translated sentence."""

    text: str
    cut: bool
    """Whether the sentence, or its translation, was longer than ``max_tokens``."""


class Translator:
    """One direction of translation, by ``generate`` of a Marian model of transformers.

    Every batch is appended to a file in the cache folder, named by the hash of model and decoding,
    so a stopped run resumes where it was, and no sentence is translated twice.
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
        """Find the files of a translation model; it is loaded when there is something to translate.

        Args:
            model: The folder of a checkpoint, or its name on the Hugging Face Hub.
            revision: The commit of the checkpoint on the Hub.
            decoding: The settings by which a translation is chosen; by default the likeliest token
                each time (greedy).
            batch_size: The number of sentences that are translated at once.
            device: The device to compute on; ``auto`` chooses one.

        Raises:
            StsbenchError: The packages that read Marian's vocabularies are not installed.
            CardError: The batch size is below 1.
            SourceError: The model is not available.
            EncoderError: The folder is no checkpoint of a Marian model.
        """
        # sentencepiece and sacremoses. Checked now, because the tokenizer that needs them is loaded
        # much later.
        for package in VOCABULARY_PACKAGES:
            if find_spec(package) is None:
                raise StsbenchError(
                    f"translation needs {package}; "
                    "install it with: pip install 'stsbench[translate]'"
                )
        if batch_size < 1:
            raise CardError(f"batch_size {batch_size}: must be 1 or more")
        self.model = model
        self.decoding = decoding or Decoding()
        self.batch_size = batch_size
        self.device = resolve_device_name(device)
        self.checkpoint = find_checkpoint(model, revision=revision, extra_names=VOCABULARY_FILES)
        folder = self.checkpoint.folder
        # source.spm, target.spm and vocab.json.
        missing_files = [name for name in VOCABULARY_FILES if not (folder / name).is_file()]
        if missing_files:
            raise EncoderError(
                f"{folder}: no {missing_files[0]}; is it a Marian translation model?"
            )

    @cached_property
    def record(self) -> dict[str, Any]:
        """What identifies the translations: model, revision, hash of its files, and decoding.

        It is written into the record beside a file of translated pairs.
        """
        folder = self.checkpoint.folder
        files = [
            *sorted(folder.glob("*.json")),
            *sorted(folder.glob("*.spm")),
            *self.checkpoint.weights,
        ]
        # A hash over the hashes of the configuration, the vocabularies and the weights.
        digest = _sha256_of_json({path.name: file_sha256(path) for path in files})
        return {
            "model": self.model,
            "revision": self.checkpoint.revision,
            "sha256": digest,
            # The settings that can change a translation.
            **self.decoding.record(),
        }

    @property
    def cache_path(self) -> Path:
        """The file of finished translations, named by a hash of the model's files and decoding."""
        # The record has the hash of the model's files; so its name and revision are not needed.
        content = {
            key: value for key, value in self.record.items() if key not in ("model", "revision")
        }
        return settings.cache_folder() / "translations" / f"{_sha256_of_json(content)[:32]}.jsonl"

    def translate(
        self, sentences: Sequence[str], progress: ProgressCallback = lambda *numbers: None
    ) -> list[Translation]:
        """Translate sentences, each distinct sentence once, and store the translations in a file.

        The longest sentences come first, so that a batch has sentences of similar length.

        Args:
            sentences: The sentences; those whose translation is in the file are not translated
                again.
            progress: Called after each new batch with the numbers of finished and of all distinct
                sentences; not called if no sentence is new.

        Returns:
            A translation per sentence, in their order.

        Raises:
            EncoderError: The model cannot be loaded or does not translate.
            OutputError: The file of translations cannot be written.
        """
        # By sentence: the translations of earlier runs, to which new ones are added below.
        translations = _load_translations(self.cache_path)
        # A sentence without a letter or digit is its own translation; a model would invent one.
        for sentence in sentences:
            if not any(map(str.isalnum, sentence)):
                translations[sentence] = Translation(sentence, cut=False)
        distinct = dict.fromkeys(sentences)
        missing = sorted(
            (sentence for sentence in distinct if sentence not in translations),
            key=len,
            reverse=True,
        )
        n_done = len(distinct) - len(missing)
        for start in range(0, len(missing), self.batch_size):
            batch = missing[start : start + self.batch_size]
            new_translations = dict(zip(batch, self.translate_batch(batch), strict=True))
            # One line of JSON per sentence; ``cut`` marks a sentence that was too long.
            rows = [
                {"text": text, "translation": translation.text, "cut": translation.cut}
                for text, translation in new_translations.items()
            ]
            append_line(self.cache_path, "\n".join(map(json.dumps, rows)))
            translations.update(new_translations)
            n_done += len(batch)
            progress(n_done, len(distinct))
        return [translations[sentence] for sentence in sentences]

    @cached_property
    def marian(self) -> tuple[Any, Any]:
        """The tokenizer and the translation model on its device, loaded at the first use.

        Raises:
            EncoderError: The checkpoint lacks weights.
            CardError: ``max_tokens`` is more than the model's longest input.
        """
        checkpoint = self.checkpoint
        max_tokens = self.decoding.max_tokens
        model, missing_weights = load_model(
            transformers.AutoModelForSeq2SeqLM, checkpoint, dtype="float32"
        )
        if missing_weights:
            raise EncoderError(
                f"{checkpoint.folder}: the weights lack '{missing_weights[0]}' "
                f"({len(missing_weights)} tensors in all)"
            )
        config = model.config
        if max_tokens > config.max_position_embeddings:
            raise CardError(
                f"max_tokens {max_tokens}: {checkpoint.folder} reads "
                f"{config.max_position_embeddings} at most"
            )
        # Replaces the checkpoint's own settings, which are often beam search with six beams.
        model.generation_config = transformers.GenerationConfig(
            pad_token_id=config.pad_token_id,
            eos_token_id=config.eos_token_id,
            decoder_start_token_id=config.decoder_start_token_id,
            # Marian's output begins with a padding token; any further one is forbidden.
            suppress_tokens=[config.pad_token_id],
        )
        return load_tokenizer(checkpoint), model.eval().to(open_device(self.device))

    def translate_batch(self, sentences: Sequence[str]) -> list[Translation]:
        """Translate sentences as one batch; stored translations are not used.

        Args:
            sentences: The sentences; one of more than ``max_tokens`` tokens is cut.

        Returns:
            The translation of each sentence, marked as cut if it or the sentence was too long.
        """
        tokenizer, model = self.marian
        max_tokens = self.decoding.max_tokens
        eos_token_id = model.generation_config.eos_token_id
        encoded = tokenizer(list(sentences), return_attention_mask=False, verbose=False)
        all_ids = encoded["input_ids"]
        # The limit holds for the sentence, and below for its translation. A cut sentence still ends
        # with the end token.
        read_ids = [
            ids if len(ids) <= max_tokens else [*ids[: max_tokens - 1], eos_token_id]
            for ids in all_ids
        ]
        batch = tokenizer.pad({"input_ids": read_ids}, return_tensors="pt").to(model.device)
        processors = []
        if self.decoding.mode == "sampling":
            # Noise on the logits: the likeliest token then is a draw by the probabilities.
            processors = [GumbelNoise(sentences, self.decoding)]
        with torch.inference_mode():
            output_ids = model.generate(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                max_new_tokens=max_tokens,
                logits_processor=transformers.LogitsProcessorList(processors),
            )
        texts = tokenizer.batch_decode(output_ids, skip_special_tokens=True)
        # A translation that does not end within ``max_tokens`` was cut.
        is_complete = (output_ids == eos_token_id).any(dim=1).tolist()
        translations = []
        for text, ids, complete in zip(texts, all_ids, is_complete, strict=True):
            is_cut = not complete or len(ids) > max_tokens
            translations.append(Translation(text, cut=is_cut))
        return translations


def _sha256_of_json(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class GumbelNoise:
    """Noise that makes the likeliest token a sampled one: the Gumbel-max trick.

    Each sentence has its own generator, so its draws do not depend on its batch.
    """

    def __init__(self, sentences: Sequence[str], decoding: Decoding) -> None:
        """Make a random generator for each sentence of a batch.

        It is seeded by the sentence and the seed of decoding: so the draws for a sentence do not
        depend on the batch that it is in.

        Args:
            sentences: The sentences of the batch.
            decoding: The settings of decoding, with the seed and the temperature.
        """
        self.temperature = decoding.temperature
        keys = [
            f"{decoding.seed}\x1f{sentence}".encode("utf-8", "surrogatepass")
            for sentence in sentences
        ]
        # The first 64 bits of the hash of seed and sentence.
        seeds = [
            int.from_bytes(hashlib.sha256(key).digest()[:8], "little", signed=True) for key in keys
        ]
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Add noise to the logits, so that the largest is a draw from their softmax (Gumbel-max).

        Args:
            input_ids: Not used; transformers passes the tokens so far.
            scores: The logits of the next token over the vocabulary, (b, v).

        Returns:
            The logits divided by the temperature, plus noise, (b, v).
        """
        uniform = torch.stack(
            [torch.rand(scores.shape[1], generator=generator) for generator in self.generators]
        )
        smallest = torch.finfo(torch.float32).tiny
        # If U is uniform, E = -log U has the exponential distribution, and -log E has Gumbel's.
        # Clamped twice, because the logarithm of 0 is infinite.
        exponential = uniform.clamp(min=smallest).log().neg().clamp(min=smallest)
        return scores / self.temperature - exponential.log().to(scores)


def _load_translations(path: Path) -> dict[str, Translation]:
    """Read the translations of a file by their sentence; empty if there is no file.

    The file is repaired too: a last line that a killed run left unfinished is removed from it.

    Args:
        path: The file: a line of JSON per sentence, with ``text``, ``translation`` and ``cut``.
    """
    if not path.is_file():
        return {}
    content = path.read_bytes()
    complete_lines = content[: content.rfind(b"\n") + 1]
    if len(complete_lines) < len(content):
        # Otherwise the next translation would be appended to the unfinished line.
        os.truncate(path, len(complete_lines))
    rows = [
        json.loads(line) for line in complete_lines.decode("utf-8", "surrogatepass").splitlines()
    ]
    return {row["text"]: Translation(row["translation"], cut=row["cut"]) for row in rows}


DirectionProgress = Callable[[str, int, int], None]
"""A function that is called with the direction, ``there`` or ``back``, and the numbers of finished
and of all sentences."""


class TranslationReport(NamedTuple):
    """The counts of a file of pairs, and its record."""

    rows: int
    distinct: int
    same: int
    """The number of sentences that came back unchanged: from such a pair only dropout is
    learned."""
    cut: int
    """The number of sentences that were cut at the longest length, there or back."""
    record: Path


def write_back_translations(
    corpus: Corpus,
    output: Path,
    forward: Translator,
    backward: Translator,
    progress: DirectionProgress | None = None,
) -> TranslationReport:
    """Translate a corpus into another language and back, and write pairs of sentences as CSV.

    A pair has the columns ``anchor``, the sentence, and ``positive``, its back-translation. There
    is one for each text of the column ``text``, or without that for each distinct sentence of all
    columns. A record of how the file was made is written beside it.

    Args:
        corpus: The corpus.
        output: The CSV file; the record is the file with ``.json`` after this name.
        forward: The translator into the other language.
        backward: The translator back.
        progress: Called with the direction (``there``, ``back``), and the numbers of finished and
            of all sentences; None to report nothing.

    Raises:
        OutputError: The output exists, is no ``.csv``, or cannot be written.
        EncoderError: A model cannot be loaded.
    """
    record_path = check_output(output)
    on_progress = progress or (lambda direction, done, total: None)
    text_corpus = corpus if "text" in corpus.columns else corpus.sentences()
    sentences = list(text_corpus.column("text"))
    forward_translations = forward.translate(sentences, partial(on_progress, "there"))
    foreign_texts = [translation.text for translation in forward_translations]
    backward_translations = backward.translate(foreign_texts, partial(on_progress, "back"))
    positives = [translation.text for translation in backward_translations]
    pairs = pd.DataFrame({"anchor": sentences, "positive": positives}, dtype=object)
    counts = _count_pairs(sentences, forward_translations, backward_translations)
    record = {
        "schema": 1,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        **counts,
        "forward": forward.record,
        "backward": backward.record,
        "run": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "device": forward.device,
            "batch_size": forward.batch_size,
            "versions": {
                **versions(),
                # And of the packages that read Marian's vocabularies.
                **{package: metadata.version(package) for package in VOCABULARY_PACKAGES},
            },
        },
    }
    write_atomically(
        output, pairs.to_csv(index=False, lineterminator="\n").encode("utf-8", "replace")
    )
    write_atomically(
        record_path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()
    )
    return TranslationReport(**counts, record=record_path)


def _count_pairs(
    sentences: Sequence[str],
    forward_translations: Sequence[Translation],
    backward_translations: Sequence[Translation],
) -> dict[str, int]:
    """Count the sentences of a file of back-translations.

    Args:
        sentences: The sentences.
        forward_translations: Their translations into the other language.
        backward_translations: The translations of these back.

    Returns:
        Four counts by name: ``rows``, all sentences; ``distinct``, the distinct ones; among the
        distinct ones ``same``, those that came back unchanged, and ``cut``, those that were too
        long in either direction.
    """
    cut_sentences = set()
    same_sentences = set()
    for sentence, forward, backward in zip(
        sentences, forward_translations, backward_translations, strict=True
    ):
        if forward.cut or backward.cut:
            cut_sentences.add(sentence)
        if sentence == backward.text:
            same_sentences.add(sentence)
    return {
        "rows": len(sentences),
        "distinct": len(set(sentences)),
        "same": len(same_sentences),
        "cut": len(cut_sentences),
    }


def check_output(output: Path) -> Path:
    """Check that a new file of pairs can be written, and return the path of the record beside it.

    Args:
        output: The file of pairs.

    Raises:
        OutputError: The file of pairs or its record exists, or the former is no ``.csv``.
    """
    record_path = output.with_name(f"{output.name}.json")
    if output.suffix != ".csv":
        raise OutputError(f"{output}: pairs are written as .csv; name it {output.stem}.csv")
    for path in (output, record_path):
        if path.exists():
            raise OutputError(f"{path}: already exists; name another file, or remove it")
    return record_path

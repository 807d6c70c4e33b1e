"""A tokenizer alone, for counting: its files are checked as a checkpoint's are, and no weights are fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stsbench.encoders.checkpoints.checkpoint import Checkpoint
from stsbench.encoders.transformer.opening import load_tokenizer
from stsbench.provenance.identity import fingerprint


class TokenCounter:
    """Counts the tokens of texts, without those that a tokenizer adds."""

    def __init__(self, model: str, *, revision: str = "unpinned") -> None:
        """Open the tokenizer of a folder or of a model on the Hub.

        Args:
            model: a checkpoint's folder or its name on the Hub.
            revision: its commit on the Hub.

        Raises:
            SourceError: it cannot be had.
            EncoderError: it cannot be loaded.
        """
        files = Checkpoint(folder=_folder(model, revision), revision=None, weights=())
        self._tokenizer = load_tokenizer(files)
        self.identity = fingerprint(files.digests(), files.libraries())

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        found = self._tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
        return [len(ids) for ids in found["input_ids"]]


def _folder(model: str, revision: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    from stsbench.data.hub import fetch_tokenizer

    return fetch_tokenizer(model, revision=revision, without="give a checkpoint's folder in a card of your own").path

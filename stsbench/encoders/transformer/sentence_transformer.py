"""Checkpoints of sentence-transformers as encoders, which that library runs.

A checkpoint that is only a transformer with one pooling is better run by our own engine;
:mod:`stsbench.encoders.described` finds that out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stsbench.core.errors import CardError, EncoderError, translate_errors
from stsbench.core.provenance import fingerprint
from stsbench.encoders.backends import (
    INT8,
    TorchBackend,
    is_padding_invariant,
    resolve_backend_class,
)
from stsbench.encoders.base import FloatArray, PositiveInt
from stsbench.encoders.checkpoint import SAFE_LOAD_OPTIONS, Checkpoint, locate_checkpoint
from stsbench.encoders.described import (
    class_addresses,
    find_prompt_text,
    library_file_hashes,
    read_modules,
)
from stsbench.encoders.metadata import check_sentences, replace_lone_surrogates
from stsbench.encoders.transformer.encoder import CheckpointEncoder, count_longer_texts

LIBRARY_CODE = 2
"""As ``CODE_VERSION``, for checkpoints that sentence-transformers runs."""
TEXTS_PER_BATCH = 32
"""The number of texts per batch in sentence-transformers."""
_MISSING_WEIGHT = re.compile(r"^(\S+) *\| *(?:\x1b\[\d+m)?MISSING", re.MULTILINE)
"""The lines of transformers' loading report that name missing weights."""


class SentenceTransformerEncoder(CheckpointEncoder):
    """An encoder that runs a checkpoint of sentence-transformers; code in it is never run.

    The model is loaded when the first sentence is embedded.

    Args:
        model: A checkpoint's folder or Hub id.
        name: The name in results; by default that of the model.
        revision: The commit of a model on the Hub.
        prompt_name: The name of a prompt in the checkpoint's files; by default the checkpoint's
            own, and ``""`` for none.
        prompt: A text before every sentence; by default that of the checkpoint's files, and ``""``
            for none.
        max_length: The maximum input in tokens; by default the checkpoint's.
        normalise: Scale embeddings to length 1, or do not; by default as the checkpoint does.
        dtype: The type of the numbers to compute in.
        device: The device to compute on.
        backend: ``torch``, ``onnx`` or ``openvino``.
        file: A runtime's own file in the checkpoint's folder, as for :class:`TransformerEncoder`.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_length: PositiveInt | None = None,
        normalise: bool | None = None,
        dtype: str = "float32",
        device: str = "auto",
        backend: str = "torch",
        file: str = "",
    ) -> None:
        """Find the checkpoint and check the parameters against it; no weights are loaded.

        The parameters are described with the class. None stands for the checkpoint's own value.

        Raises:
            CardError, UnknownName: A parameter is not valid for this checkpoint or backend.
            EncoderError: The checkpoint or a package cannot be used.
            SourceError: The checkpoint is not available.
        """
        self.name = name or model
        self.device = device
        self.max_length = max_length
        self.normalise = normalise
        backend_class = resolve_backend_class(backend, dtype=dtype, device=device)
        # The folder; for a model from the Hub also the commit of its files and the revision that
        # was asked for, else None. ``hub_files`` are the files that only this backend reads.
        self.root, self.revision, self.revision_asked = locate_checkpoint(
            model, revision=revision, extra_names=backend_class.hub_files(file)
        )
        # The steps of the checkpoint, each with the address of its class (``kind``) and its folder.
        self.modules = read_modules(self.root)
        first_module = self.modules[0]
        is_transformer = first_module.kind.endswith(".Transformer")
        if backend_class is not TorchBackend and not is_transformer:
            setting = f"dtype '{dtype}'" if dtype == INT8 else f"backend '{backend}'"
            raise CardError(
                f"{setting} runs transformers; {self.root} begins with a {first_module.kind}"
            )
        self.backend = backend_class(
            self.root / first_module.path, file=file, dtype=dtype, device=device
        )
        # An empty prompt that is given replaces the checkpoint's default one: find_prompt_text
        # returns that for no name (None) and no text, and an empty text for an empty name.
        if prompt == "" and prompt_name is None:
            prompt_name = ""
        self.prompt = find_prompt_text(self.root, prompt_name, prompt or "")

    @cached_property
    def fingerprint(self) -> str:
        """The hash of everything that can change an embedding.

        This includes the versions of the packages that compute it. ``LIBRARY_CODE`` is raised by
        hand with a change of the code that changes embeddings.
        """
        # The names of packages; the function `fingerprint` looks up their versions.
        libraries_of_each = [checkpoint.libraries() for checkpoint in self._transformers()]
        tokenizer_libraries = sorted(set(chain.from_iterable(libraries_of_each)))
        if not tokenizer_libraries:
            # Without a transformer one of the library's own tokenizers is used, and one of these
            # cuts text into words with NLTK.
            tokenizer_libraries = ["nltk"]
        return fingerprint(
            {
                "kind": "sentence_transformer",
                "code": LIBRARY_CODE,
                # Also among the libraries; here so that results of earlier versions still match.
                "library": version("sentence-transformers"),
                "files": library_file_hashes(self.root),
                "prompt": self.prompt,
                "max_length": self.max_length,
                "normalise": self.normalise,
                "dtype": self.backend.dtype,
                **self.backend.fingerprint_fields,
            },
            ["sentence-transformers", *tokenizer_libraries, *self.backend.libraries],
        )

    def _transformers(self) -> list[Checkpoint]:
        """Return the modules that are transformers, each as the checkpoint in its folder.

        A module has the address of its class, ``kind``, and its folder in the checkpoint, ``path``.
        It loads a transformer if the name of its class, one of sentence-transformers, ends so.
        """
        folders = [
            self.root / module.path
            for module in self.modules
            if module.kind.endswith("Transformer")
        ]
        return [Checkpoint(folder=folder) for folder in folders]

    @cached_property
    def network(self) -> Any:  # noqa: ANN401 - sentence_transformers is not typed for us
        """The ``SentenceTransformer``, loaded at the first access, which cuts texts at a length.

        If ``normalise`` is false, not None, its last modules that normalise are removed.

        Raises:
            CardError: The maximum length is not possible.
            EncoderError: The model cannot be loaded.
        """
        # ``load`` is called with a dtype and a device; ``state``, the hashes of the checkpoint's
        # files, names an exported model of a backend other than torch.
        network = self.backend.load_library_model(
            load=partial(_load_library_model, self.root), state=library_file_hashes(self.root)
        )
        if self.max_length is not None:
            self._set_max_length(network, self.max_length)
        # Then embeddings are those before the checkpoint's own normalisation.
        while self.normalise is False and type(network[-1]).__name__ == "Normalize":
            network.pop(-1)
        return network

    def _set_max_length(self, network: Any, max_length: int) -> None:  # noqa: ANN401 - see network
        """Set the number of tokens after which a loaded model cuts texts.

        Args:
            network: A ``SentenceTransformer``.
            max_length: The number of tokens at which sentences are cut.

        Raises:
            CardError: The model has fewer positions, cannot cut its input, or would cut all of it.
        """
        # The most tokens that each transformer can read; None if it has no such limit.
        positions = [transformer.positions() for transformer in self._transformers()]
        limit = min(filter(None, positions), default=max_length)
        if limit < max_length:
            raise CardError(f"max_length {max_length}: {self.root} has {limit} positions")
        # Tokenizers of other kinds, such as those that split at blanks, add no special tokens.
        count_special_tokens = getattr(network.tokenizer, "num_special_tokens_to_add", int)
        if max_length <= count_special_tokens():
            raise CardError(
                f"max_length {max_length} leaves nothing of a sentence beside the special tokens"
            )
        try:
            network.max_seq_length = max_length
        except AttributeError as error:
            raise CardError(
                f"max_length {max_length}: {self.root} reads any length, and cannot cut"
            ) from error

    def count_cut(self, sentences: Sequence[str]) -> int | None:
        """Return how many sentences, together with the prompt, have more tokens than the maximum.

        These are cut when they are embedded.

        Returns:
            0 if there is no maximum. None if there are sentences that may be too long, and no
            ``tokenizer.json`` to count their tokens with.
        """
        max_length = getattr(self.network, "max_seq_length", None)
        texts = [f"{self.prompt}{sentence}" for sentence in sentences]
        # The first module reads the text, so its folder has the tokenizer.
        tokenizer_folder = self.root / self.modules[0].path
        return count_longer_texts(texts, tokenizer_folder, max_length)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        check_sentences(sentences)
        if not len(sentences):
            return np.zeros((0, self.network.get_embedding_dimension() or 0), dtype=np.float32)
        texts = [replace_lone_surrogates(sentence) for sentence in sentences]
        return self._embed_by_length(texts) if self.depends_on_padding else self._embed(texts)

    @cached_property
    def depends_on_padding(self) -> bool:
        """Whether the embedding of a sentence depends on longer sentences in the same batch.

        It may for a CNN, which reads the padding beside a sentence. To find out, some texts are
        embedded together in one batch, and each alone.

        Raises:
            EncoderError: The modules of the checkpoint cannot run one after another.
        """
        texts = self._padding_probes()
        kinds = ", ".join(module.class_name for module in self.modules)
        problem = f"{self.root}: its modules ({kinds}) do not fit together"
        # The errors that a module raises if the module before it does not compute its input; they
        # become an EncoderError with this message.
        with translate_errors(
            problem, EncoderError, AttributeError, IndexError, RuntimeError, TypeError, ValueError
        ):
            try:
                together = self._embed(texts)
            except KeyError as error:
                cause = f"one needs {error}, which none before it makes"
                raise EncoderError(f"{problem}: {cause}") from error
        alone = np.concatenate([self._embed([text]) for text in texts])
        # Differences as small as rounding are none.
        return not is_padding_invariant(alone, together, self.backend.dtype)

    def _padding_probes(self) -> list[str]:
        """Return texts of 1 to 13 words and one of 40, to find out whether padding matters.

        The words are from all parts of the model's vocabulary; always the same ones.
        """
        tokenizer: Any = getattr(self.network, "tokenizer", None)
        vocabulary = sorted(tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else [])
        # Two characters that mark the beginning of a word in some vocabularies are removed.
        stripped = [token.lstrip("▁Ġ") for token in vocabulary]
        words = [word for word in stripped if word.isalpha()] or ["a"]
        n_most_words = 40
        # The words are taken at equal distances; a smaller vocabulary begins again.
        step = max(1, len(words) // n_most_words)
        spread_words = [words[i * step % len(words)] for i in range(n_most_words)]
        return [" ".join(spread_words[:n_words]) for n_words in (*range(1, 14), n_most_words)]

    def _embed_by_length(self, texts: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d), each computed only together with texts of the same length.

        So there is no padding, which would change the embeddings of some models.

        Args:
            texts: The texts, without the prompt. Their lengths are numbers of tokens.
        """
        lengths: list[int] = []
        for text in texts:
            mask = self.network.preprocess([text], prompt=self.prompt).get("attention_mask")
            # Without a mask the number of tokens is unknown. Such a text gets a negative number
            # that no other text has, and so is embedded alone.
            length = -len(lengths) - 1 if mask is None else int(mask.sum())
            lengths.append(length)
        embeddings = np.zeros(
            (len(texts), self.network.get_embedding_dimension() or 0), dtype=np.float32
        )
        for length in set(lengths):
            rows = [row for row, row_length in enumerate(lengths) if row_length == length]
            embeddings[rows] = self._embed([texts[row] for row in rows])
        return embeddings

    def _embed(self, texts: Sequence[str]) -> FloatArray:
        """Return the embeddings (n, d), float32, that sentence-transformers computes for texts."""
        embeddings = self.network.encode(
            list(texts),
            # Passed even if empty: by default the library would use the checkpoint's own prompt.
            prompt=self.prompt,
            batch_size=TEXTS_PER_BATCH,
            show_progress_bar=False,
            # If it is not true, embeddings are as the modules of the network return them.
            normalize_embeddings=self.normalise is True,
        )
        return np.ascontiguousarray(embeddings, dtype=np.float32)


def _load_library_model(folder: Path, *, dtype: str, device: str) -> Any:  # noqa: ANN401 - see network
    """Load a ``SentenceTransformer`` in evaluation mode; code in a checkpoint is never run.

    Args:
        folder: The checkpoint.
        dtype: The type of the numbers to compute in, a name of torch's.
        device: The device, a name of torch's.

    Raises:
        EncoderError: It cannot be loaded, lacks weights, or names a class of another package.
    """
    import torch

    from stsbench.encoders.transformer.backbone import refuse_empty_vocabulary, silence_libraries

    # Any error becomes an EncoderError; messages that the libraries log are collected in a list.
    with (
        translate_errors(f"{folder}: cannot be loaded", EncoderError),
        silence_libraries() as log_records,
    ):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.util import import_from_string

        # Each class that the checkpoint's files name, a module's or a word tokenizer's, must be
        # defined in sentence-transformers.
        for module in read_modules(folder):
            for address in class_addresses(folder, module):
                package = str(import_from_string(address).__module__)
                if not package.startswith("sentence_transformers."):
                    raise EncoderError(
                        f"{folder}: '{address}' is not a class of sentence-transformers; "
                        "it is never run"
                    )
        network = SentenceTransformer(
            str(folder),
            device=device,
            model_kwargs={"dtype": getattr(torch, dtype)},
            **SAFE_LOAD_OPTIONS,  # only from this machine, and without the checkpoint's code
        )
    # If weights are missing, transformers draws them at random and only logs their names, in lines
    # that _MISSING_WEIGHT finds.
    reported_keys = chain.from_iterable(
        _MISSING_WEIGHT.findall(record.getMessage()) for record in log_records
    )
    # A pooler's weights do not matter: this library pools the states of tokens itself.
    missing_keys = [key for key in reported_keys if "pooler" not in key]
    if missing_keys:
        raise EncoderError(
            f"{folder}: the weights lack '{missing_keys[0]}', which would then be random"
        )
    tokenizer = getattr(network, "tokenizer", None)
    if hasattr(tokenizer, "all_special_ids"):
        refuse_empty_vocabulary(tokenizer, folder)
    return network.to(getattr(torch, dtype)).eval()

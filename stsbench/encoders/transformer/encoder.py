"""Transformer checkpoints as encoders: any ``AutoModel`` with every pooling the papers used, and any of sentence-transformers.

What is a transformer with one pooling only is better run by our own engine, as :mod:`stsbench.encoders.described` finds out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from stsbench.core.errors import CardError, EncoderError, translate_errors
from stsbench.core.provenance import fingerprint
from stsbench.encoders.backends import TorchBackend, backend_kind, is_padding_invariant
from stsbench.encoders.base import DeviceMemory, Encoder, FloatArray, IndexArray, PositiveInt
from stsbench.encoders.checkpoint import (
    LOCAL_ONLY,
    Adapter,
    Checkpoint,
    find_checkpoint,
    locate_checkpoint,
)
from stsbench.encoders.described import (
    class_addresses,
    find_prompt,
    library_digests,
    read_modules,
    similarity_notes,
)
from stsbench.encoders.engine.embed import (
    TOKEN_BUDGET,
    Engine,
    ProgressCallback,
    StoredEncoder,
    embed_all,
)
from stsbench.encoders.engine.store import EmbeddingStore, Keys
from stsbench.encoders.metadata import check_sentences, valid_text
from stsbench.encoders.named import variant_name
from stsbench.encoders.tokens import TokenIds, plan_batches
from stsbench.encoders.transformer.pooling import (
    Pooling,
    Prompt,
    cut_to_fit,
    last_occurrences,
    second_copy_spans,
)

if TYPE_CHECKING:
    import torch

    from stsbench.encoders.transformer.backbone import Backbone


CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""


class _OfCheckpoint:
    backend: TorchBackend
    root: Path
    """Where the files lie that say how the checkpoint is run."""

    @property
    def dtype(self) -> str:
        return self.backend.precision

    @property
    def notes(self) -> list[str]:
        """What runs it, where that is not torch, and by what else than cosine its files compare."""
        return [*self.backend.notes, *similarity_notes(self.root)]

    @property
    def device_used(self) -> str | None:
        loaded = vars(self).get("backbone", vars(self).get("network"))
        return None if loaded is None else str(loaded.device)


class TransformerEncoder(_OfCheckpoint):
    """Embeds with a transformer checkpoint.

    The fingerprint needs the files' hashes only: a run whose embeddings are all in the store never loads the model.

    ``model`` is a checkpoint's folder or Hub id (at commit ``revision``), ``package`` an installed package that holds one, ``sha256``
    the hashes of files by name; ``max_length`` in tokens is the checkpoint's where it is left out. A ``prompt`` stands before every
    sentence, or that of the checkpoint's files under ``prompt_name``; of ``prompt_template`` the sentence takes the place of ``{}``,
    twice for echo embeddings; ``add_full_stop`` first ends sentences as PromptBERT's evaluation does. ``bidirectional`` lets each token
    of a decoder see those after it, ``adapters`` are LoRA's, merged into the weights in this order. ``file`` is a runtime's own in
    the checkpoint's folder, of ``backend`` ``onnx`` or ``openvino``; without one the usual, or one that is exported.
    """

    n_embeddings = 1
    """How many embeddings of a sentence lie side by side."""

    def __init__(
        self,
        model: str | None = None,
        *,
        name: str = "",
        revision: str = "unpinned",
        package: str | None = None,
        subfolder: str = "",
        sha256: Mapping[str, str] | None = None,
        pooling: str = "mean",
        max_length: int | None = None,
        normalise: bool = False,
        prompt: str = "",
        prompt_name: str = "",
        prompt_template: str = "",
        add_full_stop: bool = False,
        padding_side: Literal["left", "right"] = "right",
        bidirectional: bool = False,
        adapters: Sequence[str] = (),
        dtype: str = "float32",
        device: str = "auto",
        backend: str = "torch",
        file: str = "",
    ) -> None:
        """Find the checkpoint and check every choice against it."""
        self.name, self.device, self.pooling = (
            name or model or package or "",
            device,
            Pooling.parse(pooling),
        )
        kind = backend_kind(backend, dtype=dtype, device=device)
        if self.pooling.pools_mask_token and not prompt_template:
            raise CardError(
                "pooling 'mask' needs a prompt_template with the tokenizer's mask token"
            )
        self.checkpoint = find_checkpoint(
            model,
            revision=revision,
            package=package,
            subfolder=subfolder,
            sha256=sha256,
            also=kind.hub_files(file),
        )
        self.backend = kind(self.checkpoint.folder, file=file, dtype=dtype, device=device)
        # Above the subfolder of its transformer.
        above = len(PurePath(subfolder).parts)
        self.root = self.checkpoint.folder.parents[above - 1] if above else self.checkpoint.folder
        self.prompt = Prompt(
            find_prompt(self.root, prompt_name, prompt), prompt_template, add_full_stop
        )
        if self.pooling.pools_second_copy and self.prompt.n_copies != 2:
            raise CardError(
                "pooling 'echo' needs a prompt_template with two {} where the sentence goes"
            )
        self.bidirectional, self.adapters = bidirectional, [Adapter.find(one) for one in adapters]
        self.revision, self.revision_asked = (
            self.checkpoint.revision,
            self.checkpoint.requested_revision,
        )
        self.max_length = self.checkpoint.max_length() if max_length is None else max_length
        positions = self.checkpoint.positions()
        if self.max_length is not None and not 1 <= self.max_length <= (
            positions or self.max_length
        ):
            raise CardError(
                f"max_length {max_length}: give 1 to {positions or 'any number'}, the model's positions"
            )
        self.normalise, self.padding_side = normalise, padding_side

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return fingerprint(
            {
                "kind": "transformer",
                "code": CODE_VERSION,
                "files": self.checkpoint.digests(),
                "pooling": str(self.pooling),
                "max_length": self.max_length,
                "normalise": self.normalise,
                "template": self.prompt.fingerprint_fields(),
                "padding_side": self.padding_side,
                "dtype": self.backend.dtype,
                # Only where they are used: other encoders keep their fingerprints.
                **({"bidirectional": True} if self.bidirectional else {}),
                **({"adapters": [one.digests() for one in self.adapters]} if self.adapters else {}),
                **self.backend.fingerprint_fields,
            },
            [
                *self.checkpoint.libraries(),
                *(["peft"] if self.adapters else []),
                *self.backend.libraries,
            ],
        )

    @cached_property
    def backbone(self) -> Backbone:
        """The loaded model and tokenizer."""
        from stsbench.encoders.transformer.backbone import Backbone

        backbone = Backbone.load(
            self.checkpoint, self.backend, self.pooling, self.adapters, self.bidirectional
        )
        self.pooling.layer_indices(backbone.depth)
        if self.max_length is not None and self.max_length <= backbone.special_tokens:
            raise CardError(
                f"max_length {self.max_length} leaves nothing of a sentence beside the special tokens"
            )
        if self.pooling.pools_mask_token and backbone.mask_token is None:
            raise CardError(
                f"pooling 'mask': the tokenizer of {self.checkpoint.folder} has no mask token"
            )
        return backbone

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        if not len(sentences):
            return np.zeros((0, self.backbone.width), dtype=np.float32)
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence, prompt and special tokens included."""
        # What is pooled stands behind the sentence, which is then cut so that it stays.
        if self.prompt.n_copies == 2 or (
            self.prompt.template and str(self.pooling) == "last_token"
        ):
            sentences = cut_to_fit(self.backbone.tokenizer, self.prompt, sentences, self.max_length)
        tokens = self.backbone.tokenize(self.prompt.wrap(sentences), max_length=self.max_length)
        if self.pooling.pools_second_copy:
            return replace(
                tokens, spans=second_copy_spans(self.backbone.tokenizer, self.prompt, sentences)
            )
        return tokens

    def device_memory(self) -> DeviceMemory | None:
        """Return what its device has left for batches; None on a CPU."""
        import torch

        backbone = self.backbone
        if backbone.device.type != "cuda":
            return None
        name, free = (
            torch.cuda.get_device_name(backbone.device),
            torch.cuda.mem_get_info(backbone.device)[0],
        )
        # What torch holds for tensors that are gone is free too.
        unused = torch.cuda.memory_reserved(backbone.device) - torch.cuda.memory_allocated(
            backbone.device
        )
        # While a layer computes: all states that may be asked for, and some 24 of their widths of its own.
        a_token = (backbone.depth + 25) * backbone.width * backbone.model.dtype.itemsize
        return DeviceMemory(name, free + unused, a_token)

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch, zero for one without tokens."""
        import torch

        full = tokens.lengths[rows] > 0
        if not full.any():
            return np.zeros((len(rows), self.n_embeddings * self.backbone.width), dtype=np.float32)
        with torch.inference_mode():
            # A model's own head takes what stands first, padding or not.
            left = self.padding_side == "left" and not self.pooling.through_head
            batch = self.backbone.collate(tokens, rows[full], left=left)
            parts = [part.float() for part in self._pooled(batch, tokens, rows[full])]
            if self.normalise:
                parts = [torch.nn.functional.normalize(part, dim=-1) for part in parts]
            pooled = torch.cat(parts, dim=-1).cpu()
        # As wide as what is pooled: not all layers of all models are.
        embeddings = np.zeros((len(rows), pooled.shape[1]), dtype=np.float32)
        embeddings[full] = pooled
        return embeddings

    def _pooled(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: IndexArray
    ) -> list[torch.Tensor]:
        if self.pooling.through_head:
            return [self.backbone.pooler_output(batch)]
        states = self.backbone.hidden_states(batch, self.pooling.layer_indices(self.backbone.depth))
        return [self.pool(states, batch, self._chosen(batch, tokens, rows))]

    def pool(
        self,
        states: Sequence[torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Pool the states (b, t, h) that its pooling asks for, of a batch of the model's inputs, into embeddings (b, h)."""
        return self.pooling.pool(states, batch.get("attention_mask"), chosen)

    def _chosen(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: IndexArray
    ) -> torch.Tensor | None:
        """Mark the tokens that are pooled where those are not all, bool (b, t): each row's last mask token, or a span."""
        import torch

        ids = batch["input_ids"]
        if self.pooling.pools_mask_token:
            marked = last_occurrences(ids, self.backbone.mask_token)
            if not bool(marked.any(dim=1).all()):
                what = f"a sentence has no mask token left within {self.max_length} tokens"
                raise EncoderError(f"{self.name}: {what}; raise max_length")
            return marked
        if tokens.spans is None:
            return None
        spans = torch.from_numpy(tokens.spans[rows]).to(ids.device)
        places = torch.arange(ids.shape[1], device=spans.device)[None, :]
        if "attention_mask" in batch:
            # Padding may stand before the tokens.
            places = places - batch["attention_mask"].argmax(dim=1, keepdim=True)
        return (places >= spans[:, :1]) & (places < spans[:, 1:])

    def copy_from(self, base: TransformerEncoder) -> None:
        """Be as another, whose loaded model is shared."""
        vars(self).update(vars(base), backbone=base.backbone)
        vars(self).pop("fingerprint", None)


def embed_with_dropout(encoder: Encoder, sentences: Sequence[str], *, seed: int) -> FloatArray:
    """Return embeddings (n, d) with the model in training mode, every row under its own dropout mask.

    Raises EncoderError: the encoder is no transformer of ours, or its model drops nothing.
    """
    import torch

    inner = encoder.encoder if isinstance(encoder, StoredEncoder) else encoder
    if not isinstance(inner, TransformerEncoder):
        raise EncoderError(
            f"encoder '{encoder.name}' has no dropout that could be on while fitting; set dropout=false"
        )
    model = inner.backbone.model
    if not any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in model.modules()):
        raise EncoderError(
            f"the model of encoder '{encoder.name}' has no dropout; set dropout=false"
        )
    tokens = inner.tokenize(sentences)
    rows = np.zeros((len(sentences), inner.backbone.width), dtype=np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model.train()
        try:
            for batch in plan_batches(tokens.lengths, budget=TOKEN_BUDGET):
                rows[batch] = inner.embed_tokens(tokens, batch)
        finally:
            model.eval()
    return rows


def with_pooling(base: TransformerEncoder, pooling: Pooling) -> TransformerEncoder:
    """Return the same encoder under another pooling."""
    made = object.__new__(TransformerEncoder)
    made.copy_from(base)
    made.pooling, made.name = pooling, variant_name(base.name, {"pooling": str(pooling)})
    return made


class _SharedForward(TransformerEncoder):
    """A transformer whose embeddings (n, k * h) are those of k encoders made of it, side by side."""

    def __init__(self, base: TransformerEncoder, made: Sequence[TransformerEncoder]) -> None:
        self.copy_from(base)
        self.made, self.n_embeddings = made, len(made)
        vars(self)["fingerprint"] = None

    def _pooled(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: IndexArray
    ) -> list[torch.Tensor]:
        depth = self.backbone.depth
        states = self.backbone.hidden_states(batch, range(depth + 1))
        return [
            one.pool([states[at] for at in one.pooling.layer_indices(depth)], batch)
            for one in self.made
        ]


class _SplitShelf(EmbeddingStore):
    """Several shelves, filled together: embeddings (n, k * h) are cut into k parts of one size."""

    width = None

    def __init__(self, shelves: Sequence[EmbeddingStore]) -> None:
        super().__init__(None)
        self.shelves = shelves

    def find(self, keys: Keys) -> IndexArray:
        return np.min([shelf.find(keys) for shelf in self.shelves], axis=0)  # type: ignore[no-any-return]

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        for shelf, part in zip(
            self.shelves, np.split(embeddings, len(self.shelves), axis=1), strict=True
        ):
            new = shelf.find(keys) < 0
            if new.any():
                shelf.add(keys[new], np.ascontiguousarray(part[new]))

    def flush(self) -> None:
        for shelf in self.shelves:
            shelf.flush()


def embed_in_one_pass(
    base: TransformerEncoder,
    engines: Sequence[Engine],
    sentences: Sequence[str],
    *,
    progress: ProgressCallback = lambda done, total: None,
) -> None:
    """Embed what the shelves of some engines lack, whose encoders pool the states of ``base``, in one forward pass a sentence."""
    for engine in engines:
        if engine.store.monitor is not None and engine.store.folder is not None:
            engine.store.monitor.record_probes()
    made = cast(list[TransformerEncoder], [engine.encoder for engine in engines])
    shelf = _SplitShelf([engine.store for engine in engines])
    Engine(_SharedForward(base, made), shelf, on_progress=progress).prepare(sentences)


LIBRARY_CODE = 2
"""As CODE_VERSION, of what the library runs."""
BATCH = 32
_MISSING = re.compile(r"^(\S+) *\| *(?:\x1b\[\d+m)?MISSING", re.MULTILINE)


class SentenceTransformerEncoder(_OfCheckpoint):
    """Embeds with a sentence-transformers checkpoint, loaded at the first sentence; code of its own is never run."""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        prompt_name: str | None = None,
        prompt: str = "",
        max_length: PositiveInt | None = None,
        normalise: bool | None = None,
        dtype: str = "float32",
        device: str = "auto",
        backend: str = "torch",
        file: str = "",
    ) -> None:
        """Find the checkpoint, as :class:`TransformerEncoder` does, and check every choice against it.

        ``prompt_name``, ``normalise`` and ``max_length`` are by default the checkpoint's; ``""`` is no prompt.
        """
        self.name, self.device = name or model, device
        kind = backend_kind(backend, dtype=dtype, device=device)
        located = locate_checkpoint(model, revision=revision, also=kind.hub_files(file))
        self.root, self.revision, self.revision_asked = located
        self.modules = read_modules(self.root)
        first = self.modules[0]
        if kind is not TorchBackend and not first.kind.endswith(".Transformer"):
            raise CardError(
                f"backend '{backend}' runs transformers; {self.root} begins with a {first.kind}"
            )
        self.backend = kind(self.root / first.path, file=file, dtype=dtype, device=device)
        self.prompt = find_prompt(self.root, prompt_name, prompt)
        self.max_length, self.normalise = max_length, normalise

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        under = set(chain.from_iterable(one.libraries() for one in self._transformers()))
        return fingerprint(
            {
                "kind": "sentence_transformer",
                "code": LIBRARY_CODE,
                # Named beside the hash too; results made before that was done are found again.
                "library": version("sentence-transformers"),
                "files": library_digests(self.root),
                "prompt": self.prompt,
                "max_length": self.max_length,
                "normalise": self.normalise,
                "dtype": self.backend.dtype,
                **self.backend.fingerprint_fields,
            },
            # Of the library's tokenizers of words one parts text by NLTK.
            ["sentence-transformers", *(sorted(under) or ["nltk"]), *self.backend.libraries],
        )

    def _transformers(self) -> list[Checkpoint]:
        folders = [
            self.root / module.path
            for module in self.modules
            if module.kind.endswith("Transformer")
        ]
        return [Checkpoint(folder=folder) for folder in folders]

    @cached_property
    def network(self) -> Any:  # noqa: ANN401 - sentence_transformers is not typed for us
        """The loaded model."""
        network = self.backend.library(
            partial(_load_library, self.root), state=library_digests(self.root)
        )
        if self.max_length is not None:
            positions = [
                limit for checkpoint in self._transformers() if (limit := checkpoint.positions())
            ]
            if min(positions, default=self.max_length) < self.max_length:
                raise CardError(
                    f"max_length {self.max_length}: {self.root} has {min(positions)} positions"
                )
            try:
                network.max_seq_length = self.max_length
            except AttributeError as error:
                what = f"max_length {self.max_length}: {self.root} reads any length, and cannot cut"
                raise CardError(what) from error
        while self.normalise is False and type(network[-1]).__name__ == "Normalize":
            network.pop(-1)
        return network

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        check_sentences(sentences)
        if not len(sentences):
            return np.zeros((0, self.network.get_embedding_dimension() or 0), dtype=np.float32)
        texts = [valid_text(sentence) for sentence in sentences]
        return self._by_length(texts) if self.depends_on_padding else self._embed(texts)

    @cached_property
    def depends_on_padding(self) -> bool:
        """Whether embeddings depend on the longer sentences beside them: those of a CNN over a padding that is not zero, say."""
        tokenizer: Any = getattr(self.network, "tokenizer", None)
        known = sorted(tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else [])
        # Marks of a word's beginning are no part of it.
        words = [word for token in known if (word := token.lstrip("▁Ġ")).isalpha()] or ["a"]
        step, sizes = max(1, len(words) // 64), (*range(1, 14), 40)
        # Of words that the model knows, for sentence length alone to differ.
        texts = [
            " ".join(words[place * step % len(words)] for place in range(size)) for size in sizes
        ]
        kinds = ", ".join(module.kind.rpartition(".")[2] for module in self.modules)
        problem = f"{self.root}: its modules ({kinds}) do not fit together"
        raised = (AttributeError, IndexError, RuntimeError, TypeError, ValueError)
        with translate_errors(problem, EncoderError, *raised):
            try:
                together = self._embed(texts)
            except KeyError as error:
                cause = f"one needs {error}, which none before it makes"
                raise EncoderError(f"{problem}: {cause}") from error
        alone = np.concatenate([self._embed([text]) for text in texts])
        return not is_padding_invariant(alone, together, self.backend.dtype)

    def _by_length(self, texts: Sequence[str]) -> FloatArray:
        lengths: list[int] = []
        for text in texts:
            mask = self.network.preprocess([text], prompt=self.prompt).get("attention_mask")
            # What does not say how many tokens a text has embeds each text alone.
            lengths.append(int(mask.sum()) if mask is not None else -len(lengths) - 1)
        embeddings = np.zeros(
            (len(texts), self.network.get_embedding_dimension() or 0), dtype=np.float32
        )
        for length in set(lengths):
            rows = [row for row, found in enumerate(lengths) if found == length]
            embeddings[rows] = self._embed([texts[row] for row in rows])
        return embeddings

    def _embed(self, texts: Sequence[str]) -> FloatArray:
        embeddings = self.network.encode(
            list(texts),
            # Said even when empty: without a word the library would take the checkpoint's default.
            prompt=self.prompt,
            batch_size=BATCH,
            show_progress_bar=False,
            normalize_embeddings=self.normalise is True,
        )
        return np.ascontiguousarray(embeddings, dtype=np.float32)


def _load_library(folder: Path, *, dtype: str, device: str) -> Any:  # noqa: ANN401 - see network
    import torch

    from stsbench.encoders.transformer.backbone import check_vocabulary, silence_libraries

    with translate_errors(f"{folder}: cannot be loaded", EncoderError), silence_libraries() as said:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.util import import_from_string

        for address in chain.from_iterable(
            class_addresses(folder, module) for module in read_modules(folder)
        ):
            if not str(import_from_string(address).__module__).startswith("sentence_transformers."):
                raise EncoderError(
                    f"{folder}: '{address}' is not a class of sentence-transformers'; it is never run"
                )
        kept = {"dtype": getattr(torch, dtype)}
        network = SentenceTransformer(str(folder), device=device, model_kwargs=kept, **LOCAL_ONLY)
    lost = [
        key for one in said for key in _MISSING.findall(one.getMessage()) if "pooler" not in key
    ]
    if lost:
        raise EncoderError(f"{folder}: the weights lack '{lost[0]}', which would then be random")
    if hasattr(tokenizer := getattr(network, "tokenizer", None), "all_special_ids"):
        check_vocabulary(tokenizer, folder)
    return network.to(getattr(torch, dtype)).eval()

"""Transformer checkpoints as encoders: any ``AutoModel`` with each pooling that papers used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.provenance import fingerprint
from stsbench.encoders.accelerator import (
    device_product_name,
    fork_rng,
    free_memory_bytes,
    is_accelerator,
)
from stsbench.encoders.backends import RuntimeBackend, TorchBackend, resolve_backend_class
from stsbench.encoders.base import DeviceMemory, Encoder, FloatArray, IndexArray
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.described import find_prompt_text, similarity_notes
from stsbench.encoders.engine.embed import (
    TOKEN_BUDGET,
    Engine,
    ProgressCallback,
    StoredEncoder,
    embed_all,
)
from stsbench.encoders.engine.store import EmbeddingStore, Keys
from stsbench.encoders.metadata import replace_lone_surrogates
from stsbench.encoders.named import variant_name
from stsbench.encoders.tokens import TokenIds, plan_batches
from stsbench.encoders.transformer.pooling import Pooling, last_occurrences
from stsbench.encoders.transformer.prompt import Prompt, cut_to_fit, second_copy_spans
from stsbench.encoders.weights import Adapter

if TYPE_CHECKING:
    import torch

    from stsbench.encoders.transformer.backbone import Backbone


CODE_VERSION = 1
"""Raise it when a change here can change an embedding: stored embeddings are then not reused."""

MAX_SPECIAL_TOKENS = 8
"""The most tokens that a tokenizer is expected to add to a text."""


class CheckpointEncoder:
    """The metadata of an encoder whose files are a checkpoint."""

    backend: TorchBackend
    root: Path
    """The folder of the files that define how the checkpoint is run."""

    @property
    def dtype(self) -> str:
        """The type of the numbers that the model computes in."""
        return self.backend.precision

    @property
    def notes(self) -> list[str]:
        """The runtime if it is not torch, and the similarity that the files name besides cosine."""
        return [*self.backend.notes, *similarity_notes(self.root)]

    @property
    def device_used(self) -> str | None:
        """The device of the model; None if it is not loaded."""
        # Both are cached properties: looking them up by name does not load the model.
        model = vars(self).get("backbone", vars(self).get("network"))
        return None if model is None else str(model.device)

    def in_float32(self) -> Self:
        """Return a copy of this encoder that torch runs in float32 on the processor.

        Its model is loaded anew at the first access.
        """
        copied = copy(self)
        # file="": torch runs the checkpoint's weights, and no file of another runtime.
        copied.backend = TorchBackend(self.backend.folder, file="", dtype="float32", device="cpu")
        for name in list(vars(copied)):
            # Cached values, such as the model and the fingerprint, are of this encoder only.
            if isinstance(getattr(type(self), name, None), cached_property):
                delattr(copied, name)
        return copied


class TransformerEncoder(CheckpointEncoder):
    """An encoder that runs a transformer checkpoint.

    The fingerprint needs the files' hashes only: a run whose embeddings are all in the store never
    loads the model.

    Args:
        model: A checkpoint's folder or Hub id.
        name: The name in results; by default that of the model or package.
        revision: The commit of a model on the Hub.
        package: An installed package that holds a checkpoint, in place of ``model``.
        subfolder: The folder of the transformer within the checkpoint.
        sha256: The expected hashes of files, by name.
        pooling: The name of a pooling, for example ``mean`` or ``mean(1,-1)``.
        max_length: The maximum input in tokens; by default the checkpoint's.
        normalise: Scale embeddings to length 1.
        prompt: A text before every sentence.
        prompt_name: The name of a prompt in the checkpoint's files, in place of ``prompt``.
        prompt_template: A text in which the sentence replaces ``{}``, twice for echo embeddings.
        add_full_stop: End sentences as PromptBERT's evaluation does, before all else.
        padding_side: The side of the padding in a batch.
        bidirectional: Let each token of a decoder attend to those after it.
        adapters: LoRA adapters, which are merged into the weights in this order.
        dtype: The type of the numbers to compute in.
        device: The device to compute on.
        backend: ``torch``, ``onnx`` or ``openvino``.
        file: A runtime's own file in the checkpoint's folder. By default the usual one, or one that
            is exported.
    """

    n_embeddings = 1
    """The number of embeddings of a sentence that are concatenated."""

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
        """Find the checkpoint and check the parameters against it; no weights are loaded.

        The parameters are described with the class. An empty text or None stands for the
        checkpoint's own value.

        Raises:
            CardError, UnknownName: A parameter is not valid for this checkpoint or backend.
            EncoderError: The checkpoint, an adapter or a package cannot be used.
            SourceError: The checkpoint or an adapter is not available.
        """
        self.name = name or model or package or ""
        self.device = device
        self.pooling = Pooling.parse(pooling)
        self.normalise = normalise
        self.padding_side = padding_side
        self.bidirectional = bidirectional
        backend_class = resolve_backend_class(backend, dtype=dtype, device=device)
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
            extra_names=backend_class.hub_files(file),
        )
        self.revision = self.checkpoint.revision
        self.revision_asked = self.checkpoint.requested_revision
        folder = self.checkpoint.folder
        self.backend = backend_class(folder, file=file, dtype=dtype, device=device)
        # The files of the checkpoint lie above the subfolder of its transformer.
        subfolder_depth = len(PurePath(subfolder).parts)
        self.root = folder.parents[subfolder_depth - 1] if subfolder_depth else folder
        self.prompt = Prompt(
            prefix=find_prompt_text(self.root, prompt_name, prompt),
            template=prompt_template,
            add_full_stop=add_full_stop,
        )
        if self.pooling.pools_second_copy and self.prompt.n_copies != 2:
            raise CardError(
                "pooling 'echo' needs a prompt_template with two {} where the sentence goes"
            )
        self.adapters = [Adapter.find(adapter) for adapter in adapters]
        self.max_length = self._choose_max_length(max_length)

    def _choose_max_length(self, requested: int | None) -> int | None:
        """Return the number of tokens after which texts are cut.

        Args:
            requested: The number that the user asks for; None for that of the checkpoint's files.

        Returns:
            None if there is no limit: neither the user nor the files set one.

        Raises:
            CardError: The number is below 1, or larger than the model's number of positions.
        """
        # That of the files is the smallest of theirs and the model's number of positions.
        max_length = self.checkpoint.max_length() if requested is None else requested
        if max_length is None:
            return None
        # The largest number of tokens that the model can read; None or 0 if it has no such limit.
        positions = self.checkpoint.positions()
        is_too_long = positions is not None and 0 < positions < max_length
        if max_length < 1 or is_too_long:
            raise CardError(
                f"max_length {requested}: give 1 to {positions or 'any number'}, the model's "
                "positions"
            )
        return max_length

    @cached_property
    def fingerprint(self) -> str:
        """The hash of everything that can change an embedding.

        This includes the versions of the packages that compute it.
        """
        fields: dict[str, Any] = {
            "kind": "transformer",
            "code": CODE_VERSION,
            "files": self.checkpoint.file_hashes(),
            "pooling": str(self.pooling),
            "max_length": self.max_length,
            "normalise": self.normalise,
            "template": self.prompt.fingerprint_fields(),
            "padding_side": self.padding_side,
            "dtype": self.backend.dtype,
        }
        # Further fields only if they are used, so that other encoders keep their fingerprints.
        if self.bidirectional:
            fields["bidirectional"] = True
        if self.adapters:
            fields["adapters"] = [adapter.file_hashes() for adapter in self.adapters]
        # The names of packages; the function `fingerprint` looks up their versions.
        libraries = self.checkpoint.libraries()
        if self.adapters:
            libraries.append("peft")
        return fingerprint(
            # The backend's fields and packages: none for torch, but for other runtimes.
            {**fields, **self.backend.fingerprint_fields},
            [*libraries, *self.backend.libraries],
        )

    @cached_property
    def backbone(self) -> Backbone:
        """The model and its tokenizer, which are loaded and checked at the first access.

        Raises:
            CardError: The maximum length leaves no token of a sentence, or the pooling needs a mask
                token and there is none.
            EncoderError: The model cannot be loaded, or has too few layers for the pooling.
        """
        from stsbench.encoders.transformer.backbone import Backbone

        backbone = Backbone.load(
            self.checkpoint,
            self.backend,
            self.pooling,
            adapters=self.adapters,
            bidirectional=self.bidirectional,
        )
        # Called for its check only: raises if the model has too few layers to pool.
        self.pooling.layer_indices(backbone.depth)
        if self.max_length is not None and self.max_length <= backbone.n_special_tokens:
            raise CardError(
                f"max_length {self.max_length} leaves nothing of a sentence beside the special "
                "tokens"
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
        """Return the token ids of each sentence, prompt and special tokens included.

        If the prompt has two copies of the sentence and the pooling pools the second, the result
        also has ``spans``, (n, 2): the indices of the first token of that copy, and of the one
        after its last.
        """
        # Some poolings need tokens of the template that come after the sentence. The tokenizer
        # would cut these off, so it is the sentence that is cut.
        pools_last_token = str(self.pooling) == "last_token"
        has_two_copies = self.prompt.n_copies == 2
        if has_two_copies or (self.prompt.template and pools_last_token):
            # Without their prompt; cut at the end, so that each fits together with its prompt.
            sentences = cut_to_fit(self.backbone.tokenizer, self.prompt, sentences, self.max_length)
        tokens = self.backbone.tokenize(self.prompt.wrap(sentences), max_length=self.max_length)
        if not self.pooling.pools_second_copy:
            return tokens
        spans = second_copy_spans(self.backbone.tokenizer, self.prompt, sentences)
        return replace(tokens, spans=spans)

    def count_cut(self, sentences: Sequence[str]) -> int | None:
        """Return how many sentences, together with the prompt, have more tokens than the maximum.

        These are cut when they are embedded. The model is not loaded to count them.

        Returns:
            0 if there is no maximum. None if there are sentences that may be too long, and no
            ``tokenizer.json`` to count their tokens with.
        """
        return count_longer_texts(
            self.prompt.wrap(sentences), self.checkpoint.folder, self.max_length
        )

    def device_memory(self) -> DeviceMemory | None:
        """Return how much memory of the device is left for batches, and how much a token takes.

        Returns:
            The name of the device's product, its free memory in bytes, and about how many bytes
            one token of a batch takes. None on a CPU, or if torch cannot tell.
        """
        backbone = self.backbone
        free_bytes = free_memory_bytes(backbone.device) if is_accelerator(backbone.device) else None
        if free_bytes is None:
            return None
        # At the peak there are the states of all layers and of the word embeddings, and within a
        # layer about 24 vectors of the same width.
        n_states = backbone.depth + 1
        values_per_token = (n_states + 24) * backbone.width
        bytes_per_token = values_per_token * backbone.model.dtype.itemsize
        return DeviceMemory(
            device_product_name(backbone.device),
            free=free_bytes,
            per_token=bytes_per_token,
        )

    def processor_threads(self) -> int:
        """Return the number of threads on which torch computes embeddings on the processor.

        It is 1 if torch does not compute there: on a GPU, or if another runtime runs the model.
        """
        import torch

        is_runtime = isinstance(self.backend, RuntimeBackend)
        if is_runtime or is_accelerator(self.backbone.device):
            return 1
        return torch.get_num_threads()

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, d) of some tokenised sentences, computed as one batch.

        They are scaled to length 1 if ``self.normalise`` is set. The embedding of a sentence
        without tokens is zero. A subclass with several poolings joins the embeddings of all, each
        scaled by itself.

        Args:
            tokens: The tokens of all sentences.
            rows: The b sentences of the batch, as indices into ``tokens``.
        """
        import torch

        has_tokens = tokens.lengths[rows] > 0
        if not has_tokens.any():
            # The model is not run, which would show the size of an embedding. `n_embeddings` is the
            # number of poolings: 1, but for a subclass.
            d = self.n_embeddings * self.backbone.width
            return np.zeros((len(rows), d), dtype=np.float32)
        with torch.inference_mode():
            # A model's own head reads the first position, even if it is padding.
            pad_left = self.padding_side == "left" and not self.pooling.through_head
            # The model's inputs by name, (b, t) each, on its device.
            batch = self.backbone.collate(tokens, rows[has_tokens], pad_left=pad_left)
            # A list of one tensor (b, h), or of several in a subclass.
            parts = [part.float() for part in self._pool_batch(batch, tokens, rows[has_tokens])]
            if self.normalise:
                parts = [torch.nn.functional.normalize(part, dim=-1) for part in parts]
            pooled = torch.cat(parts, dim=-1).cpu()
        # In some models the pooled layer has another size than the last, so d is read here.
        d = pooled.shape[1]
        embeddings = np.zeros((len(rows), d), dtype=np.float32)
        embeddings[has_tokens] = pooled
        return embeddings

    def _pool_batch(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: IndexArray
    ) -> list[torch.Tensor]:
        """Run the model on a batch and pool its hidden states into embeddings.

        Args:
            batch: The inputs of the model by name for b sentences, (b, t) each.
            tokens: The token ids of all sentences.
            rows: The sentences of the batch, as indices into ``tokens``.

        Returns:
            A list of one tensor (b, h); a subclass returns several, one per pooling.
        """
        if self.pooling.through_head:
            # The first token's state after the model's own head.
            return [self.backbone.pooler_output(batch)]
        layers = self.pooling.layer_indices(self.backbone.depth)
        states = self.backbone.hidden_states(batch, layers)
        return [self.pool(states, batch, self._select_tokens(batch, tokens, rows))]

    def pool(
        self,
        states: Sequence[torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Pool the hidden states of a batch into embeddings (b, h).

        Args:
            states: The states (b, t, h) of each layer that is pooled.
            batch: The model's inputs by name; without ``attention_mask`` there is no padding.
            chosen: The tokens to pool, bool (b, t); None for those that the pooling chooses itself.
        """
        return self.pooling.pool(states, batch.get("attention_mask"), chosen)

    def _select_tokens(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: IndexArray
    ) -> torch.Tensor | None:
        """Return which tokens of a batch are pooled, if the prompt decides that.

        There are three cases. A pooling of the ``[MASK]`` token pools the last one of each row. If
        ``tokens.spans`` is set, the tokens of each sentence's span are pooled: the second copy of
        the sentence in its prompt. Otherwise the pooling chooses the tokens itself.

        Args:
            batch: The inputs of the model by name for b sentences, (b, t) each.
            tokens: The token ids of all sentences; ``spans`` is (n, 2) or None.
            rows: The sentences of the batch, as indices into ``tokens``.

        Returns:
            Bool (b, t); None if the pooling chooses the tokens itself.

        Raises:
            EncoderError: The mask token of a sentence was cut off.
        """
        import torch

        ids = batch["input_ids"]
        if self.pooling.pools_mask_token:
            # True at the last mask token of each row, if it has any.
            is_mask_token = last_occurrences(ids, self.backbone.mask_token)
            if not bool(is_mask_token.any(dim=1).all()):
                raise EncoderError(
                    f"{self.name}: a sentence has no mask token left within {self.max_length} "
                    "tokens; raise max_length"
                )
            return is_mask_token
        if tokens.spans is None:
            return None
        spans = torch.from_numpy(tokens.spans[rows]).to(ids.device)
        positions = torch.arange(ids.shape[1], device=spans.device)[None, :]
        if "attention_mask" in batch:
            # Spans count from a row's first token, before which there may be padding. argmax is
            # the position of the first 1 in the mask.
            positions = positions - batch["attention_mask"].argmax(dim=1, keepdim=True)
        return (positions >= spans[:, :1]) & (positions < spans[:, 1:])

    def copy_from(self, base: TransformerEncoder) -> None:
        """Set all attributes to those of another encoder, with which the loaded model is shared.

        The model is loaded now, if it is not loaded yet.
        """
        vars(self).update(vars(base), backbone=base.backbone)
        # The caller changes the copy, so its fingerprint is computed anew.
        vars(self).pop("fingerprint", None)


def embed_with_dropout(encoder: Encoder, sentences: Sequence[str], *, seed: int) -> FloatArray:
    """Return embeddings that are computed with dropout, as in training.

    The dropout of each sentence is drawn independently. The random numbers of the rest of the
    program do not change.

    Args:
        encoder: A ``TransformerEncoder``, or a ``StoredEncoder`` around one.
        sentences: The n sentences.
        seed: The seed of the dropout masks.

    Returns:
        The embeddings, (n, d).

    Raises:
        EncoderError: The encoder is no transformer of ours, or its model has no dropout.
    """
    import torch

    transformer = encoder.encoder if isinstance(encoder, StoredEncoder) else encoder
    if not isinstance(transformer, TransformerEncoder):
        raise EncoderError(
            f"encoder '{encoder.name}' has no dropout that could be on while fitting; "
            "set dropout=false"
        )
    model = transformer.backbone.model
    if not any(isinstance(module, torch.nn.Dropout) and module.p > 0 for module in model.modules()):
        raise EncoderError(
            f"the model of encoder '{encoder.name}' has no dropout; set dropout=false"
        )
    tokens = transformer.tokenize(sentences)
    embeddings = np.zeros((len(sentences), transformer.backbone.width), dtype=np.float32)
    # At the end of the block the state of torch's random numbers is restored.
    with fork_rng(transformer.backbone.device):
        torch.manual_seed(seed)
        model.train()
        try:
            for rows in plan_batches(tokens.lengths, budget=TOKEN_BUDGET):
                embeddings[rows] = transformer.embed_tokens(tokens, rows)
        finally:
            model.eval()
    return embeddings


def with_pooling(base: TransformerEncoder, pooling: Pooling) -> TransformerEncoder:
    """Return a copy of an encoder with another pooling, which shares its model."""
    encoder = object.__new__(TransformerEncoder)
    encoder.copy_from(base)
    encoder.pooling = pooling
    encoder.name = variant_name(base.name, {"pooling": str(pooling)})
    return encoder


class _SharedForward(TransformerEncoder):
    """A transformer whose embeddings (n, k * h) are those of k copies of it, concatenated."""

    def __init__(self, base: TransformerEncoder, encoders: Sequence[TransformerEncoder]) -> None:
        self.copy_from(base)
        self.encoders = encoders
        self.n_embeddings = len(encoders)
        # In place of the cached property: joined embeddings are of no use to any other run.
        vars(self)["fingerprint"] = None

    def _pool_batch(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: IndexArray
    ) -> list[torch.Tensor]:
        """Run the model once, and pool its hidden states for each of ``self.encoders``.

        These encoders differ from each other in their pooling only.

        Args:
            batch: The inputs of the model by name for b sentences, (b, t) each.
            tokens: Not used here; the base class finds the tokens to pool in them.
            rows: Not used here.

        Returns:
            The embeddings (b, h) of each encoder, in their order.
        """
        depth = self.backbone.depth
        # The word embeddings and the output of every layer; a pooling takes some of these, by
        # indices as of a list: -1 is the last layer.
        states = self.backbone.hidden_states(batch, range(depth + 1))
        embeddings = []
        for encoder in self.encoders:
            layers = encoder.pooling.layer_indices(depth)
            embeddings.append(encoder.pool([states[layer] for layer in layers], batch))
        return embeddings


class _SplitStore(EmbeddingStore):
    """Several stores that are filled together: embeddings (n, k * h) are cut into k equal parts."""

    width = None

    def __init__(self, stores: Sequence[EmbeddingStore]) -> None:
        super().__init__(None)
        self.stores = stores

    def find(self, keys: Keys) -> IndexArray:
        """Return -1 for each key (n,) that any store lacks, and some other number for the rest."""
        return np.min([store.find(keys) for store in self.stores], axis=0)  # type: ignore[no-any-return]

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add to each of the k stores the embeddings that it lacks.

        Args:
            keys: The keys of n texts: their hashes, (n,).
            embeddings: The embeddings for all stores, one after another in each row, (n, k * h).
        """
        parts = np.split(embeddings, len(self.stores), axis=1)
        for store, part in zip(self.stores, parts, strict=True):
            # -1 stands for a text that the store lacks.
            is_new = store.find(keys) < 0
            if is_new.any():
                store.add(keys[is_new], np.ascontiguousarray(part[is_new]))

    def flush(self) -> None:
        for store in self.stores:
            store.flush()


def embed_in_one_pass(
    base: TransformerEncoder,
    engines: Sequence[Engine],
    sentences: Sequence[str],
    *,
    progress: ProgressCallback = lambda done, total: None,
) -> None:
    """Embed sentences for several encoders that differ in their pooling only.

    The model runs once per sentence, and its hidden states are pooled for each encoder. Embeddings
    are computed for the sentences that a store lacks, and added to the stores of the engines.

    Args:
        base: The encoder whose model is run.
        engines: Engines, which have a store each, and whose encoders are copies of ``base`` with
            other poolings.
        sentences: The sentences to embed.
        progress: Called with the tokens that are embedded and their total.
    """
    # By the embeddings of a few fixed sentences, the probes, a later run checks that the encoder
    # still embeds alike. The engine made below passes embeddings on, and records no probes.
    for engine in engines:
        # No monitor: nothing checks this. No folder: embeddings stay in memory, for this run only.
        if engine.store.monitor is not None and engine.store.folder is not None:
            engine.store.monitor.record_probes()
    encoders = cast(list[TransformerEncoder], [engine.encoder for engine in engines])
    # What is added to it, the embeddings of all encoders side by side, goes to the engines' stores.
    store = _SplitStore([engine.store for engine in engines])
    Engine(_SharedForward(base, encoders), store, on_progress=progress).prepare(sentences)


def count_longer_texts(texts: Sequence[str], folder: Path, max_length: int | None) -> int | None:
    """Return how many texts have more tokens than a maximum.

    Args:
        texts: The texts, with their prompt.
        folder: The folder of the checkpoint, with its ``tokenizer.json``.
        max_length: The maximum number of tokens, special ones included; None for any number.

    Returns:
        0 without a maximum, or if all texts are short. None if there are longer texts, but no
        ``tokenizer.json`` to count their tokens with.
    """
    # But for special tokens, of which a tokenizer adds MAX_SPECIAL_TOKENS at most, each token has
    # one byte of the text at least: texts with fewer bytes than the maximum are short enough.
    long_texts = [
        text
        for text in texts
        if max_length and len(text.encode(errors="replace")) + MAX_SPECIAL_TOKENS > max_length
    ]
    if not long_texts:
        return 0
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encodings = tokenizer.encode_batch([replace_lone_surrogates(text) for text in long_texts])
    # There are long texts only if there is a maximum.
    return sum(len(encoding.ids) > (max_length or 0) for encoding in encodings)

"""Any ``AutoModel`` checkpoint as an encoder, with every pooling the papers used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.provenance import fingerprint
from stsbench.encoders.backends import backend_kind
from stsbench.encoders.base import DeviceMemory, Encoder, FloatArray, IndexArray, variant_name
from stsbench.encoders.checkpoint import Adapter, find_checkpoint
from stsbench.encoders.described import named_prompt, similarity_notes
from stsbench.encoders.engine.embed import TOKEN_BUDGET, Engine, Noticed, Progress, StoredEncoder, embed_all
from stsbench.encoders.engine.store import Keys, Shelf
from stsbench.encoders.engine.tokens import TokenIds, plan_batches
from stsbench.encoders.transformer.pooling import Pooling, last_of
from stsbench.encoders.transformer.prompt import Prompt, cut_to_fit, second_copies

if TYPE_CHECKING:
    import torch

    from stsbench.encoders.transformer.backbone import Backbone


CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""


class TransformerEncoder:
    """Embeds with a transformer checkpoint.

    Nothing heavy happens before the first sentence: the fingerprint needs the files' hashes
    only, so that a run whose embeddings are all in the store never loads the model.

    Args:
        model: a checkpoint folder or a Hub id.
        name: what results call the encoder.
        revision: the Hub commit; ``unpinned`` takes the newest.
        package: an installed package that holds the checkpoint, instead of ``model``.
        subfolder: the checkpoint's folder inside model or package.
        sha256: expected hashes by file name.
        pooling: a pooling's name, see :mod:`stsbench.encoders.transformer.pooling`.
        max_length: longest input in tokens; default what the checkpoint allows.
        normalise: scale embeddings to length 1 (cosine does not care, probes do).
        prompt: text put before every sentence.
        prompt_name: a prompt that the checkpoint's ``config_sentence_transformers.json`` has under this name, as
            ``query``, ``document`` or ``STS``, put before every sentence.
        prompt_template: text around every sentence, which goes where ``{}`` stands; where it stands twice, the sentence
            is given twice (echo embeddings).
        add_full_stop: put a full stop after a sentence that does not end in one of ``. ? " '``, before the
            prompt, as PromptBERT's evaluation does.
        padding_side: ``right`` or ``left``.
        bidirectional: let each token of a decoder see those after it too.
        adapters: LoRA adapters, folders or ``owner/name@commit`` of the Hub, merged into the weights in this order.
        dtype: ``float32``, ``bfloat16`` or ``float16``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        backend: what runs the network: ``torch``, ``onnx`` or ``openvino``.
        file: the runtime's file in the checkpoint's folder, as ``onnx/model_int8.onnx``; default the usual one where it
            is there, else one that is exported into the cache folder.
    """

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
        padding_side: str = "right",
        bidirectional: bool = False,
        adapters: Sequence[str] = (),
        dtype: str = "float32",
        device: str = "auto",
        backend: str = "torch",
        file: str = "",
    ) -> None:
        """Find the checkpoint and check every choice against it."""
        self.name = name or model or package or ""
        self.pooling = Pooling.parse(pooling)
        kind = backend_kind(backend, dtype=dtype, device=device)
        if padding_side not in ("left", "right"):
            raise CardError(f"padding_side '{padding_side}' is neither 'left' nor 'right'")
        if prompt and prompt_name:
            raise CardError("give 'prompt' or 'prompt_name', not both")
        if self.pooling.of_mask_token and not prompt_template:
            raise CardError("pooling 'mask' needs a prompt_template with the tokenizer's mask token")
        self.checkpoint = find_checkpoint(
            model, revision=revision, package=package, subfolder=subfolder, sha256=sha256, also=kind.on_hub(file)
        )
        self.backend = kind(self.checkpoint.folder, file=file, dtype=dtype, device=device)
        # The files that say how it is run lie above the subfolder of its transformer.
        above = len(PurePath(subfolder).parts)
        self._root = self.checkpoint.folder.parents[above - 1] if above else self.checkpoint.folder
        text = named_prompt(self._root, prompt_name) if prompt_name else prompt
        self.prompt = Prompt(text, prompt_template, add_full_stop)
        if self.pooling.of_second_copy and self.prompt.places != 2:
            raise CardError("pooling 'echo' needs a prompt_template with two {} where the sentence goes")
        self.bidirectional, self.adapters = bidirectional, [Adapter.find(one) for one in adapters]
        self.revision = self.checkpoint.revision
        self.max_length = self.checkpoint.allowed_length(max_length)
        self.normalise, self.padding_side = normalise, padding_side
        self.device = device

    @property
    def dtype(self) -> str:
        """The type of the network's numbers."""
        return self.backend.precision

    @property
    def notes(self) -> list[str]:
        """What runs the network, where that is not torch, and by what else than cosine its files compare."""
        return [*self.backend.notes, *similarity_notes(self._root)]

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
                "template": self.prompt.facts(),
                "padding_side": self.padding_side,
                "dtype": self.backend.dtype,
                # Only where they are used: other encoders keep their fingerprints.
                **({"bidirectional": True} if self.bidirectional else {}),
                **({"adapters": [one.digests() for one in self.adapters]} if self.adapters else {}),
                **self.backend.facts,
            },
            [*self.checkpoint.libraries(), *(["peft"] if self.adapters else []), *self.backend.libraries],
        )

    @cached_property
    def backbone(self) -> Backbone:
        """The loaded model and tokenizer."""
        from stsbench.encoders.transformer.backbone import Backbone

        backbone = Backbone.load(
            self.checkpoint,
            self.backend,
            pooling=self.pooling,
            adapters=self.adapters,
            bidirectional=self.bidirectional,
        )
        self.pooling.states(backbone.depth)
        if self.max_length is not None and self.max_length <= backbone.special_tokens:
            raise CardError(f"max_length {self.max_length} leaves nothing of a sentence beside the special tokens")
        if self.pooling.of_mask_token and backbone.mask_token is None:
            raise CardError(f"pooling 'mask': the tokenizer of {self.checkpoint.folder} has no mask token")
        return backbone

    @property
    def device_used(self) -> str | None:
        """The device the model is on; None where it was never loaded."""
        return str(self.backbone.device) if "backbone" in self.__dict__ else None

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        if not len(sentences):
            return np.zeros((0, self.backbone.width), dtype=np.float32)
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence, prompt and special tokens included."""
        if self._keeps_template:
            sentences = cut_to_fit(self.backbone.tokenizer, self.prompt, sentences, self.max_length)
        tokens = self.backbone.tokenize(self.prompt.around(sentences), max_length=self.max_length)
        if self.pooling.of_second_copy:
            return replace(tokens, spans=second_copies(self.backbone.tokenizer, self.prompt, sentences))
        return tokens

    def device_memory(self) -> DeviceMemory | None:
        """Return what its device has left for batches; None on a CPU."""
        return self.backbone.memory()

    @property
    def _keeps_template(self) -> bool:
        """Whether what is pooled stands behind the sentence, which is then cut so that it stays."""
        return self.prompt.places == 2 or (bool(self.prompt.template) and str(self.pooling) == "last_token")

    def hidden_states(self, batch: Mapping[str, Any], layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the hidden states (b, t, h) of these layers for a batch made by ``collate``."""
        return self.backbone.hidden_states(batch, layers)

    def embed_tokens(self, tokens: TokenIds, rows: np.ndarray[Any, np.dtype[np.int64]]) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch.

        A sentence without any token, as the empty one where there are no special tokens, is a
        zero vector.
        """
        import torch

        full = tokens.lengths[rows] > 0
        if not full.all():
            embeddings = np.zeros((len(rows), self.backbone.width), dtype=np.float32)
            if full.any():
                embeddings[full] = self.embed_tokens(tokens, rows[full])
            return embeddings
        with torch.inference_mode():
            # A model's own head takes what stands first, padding or not.
            left = self.padding_side == "left" and not self.pooling.through_head
            batch = self.backbone.collate(tokens, rows, left=left)
            if self.pooling.through_head:
                pooled = self.backbone.pooler_output(batch)
            else:
                states = self.backbone.hidden_states(batch, self.pooling.states(self.backbone.depth))
                chosen = self._chosen(batch, tokens, rows)
                pooled = self.pooling.pool(states, batch.get("attention_mask"), chosen)
            pooled = pooled.float()
            if self.normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
            array: FloatArray = pooled.cpu().numpy()
        return array

    def _chosen(
        self, batch: Mapping[str, Any], tokens: TokenIds, rows: np.ndarray[Any, np.dtype[np.int64]]
    ) -> torch.Tensor | None:
        """Mark the tokens that are pooled where those are not all, bool (b, t)."""
        if self.pooling.of_mask_token:
            return self._mask_token(batch["input_ids"])
        if tokens.spans is None:
            return None
        import torch

        spans = torch.from_numpy(tokens.spans[rows]).to(batch["input_ids"].device)
        places = torch.arange(batch["input_ids"].shape[1], device=spans.device)[None, :]
        if "attention_mask" in batch:
            # Padding may stand before the tokens.
            places = places - batch["attention_mask"].argmax(dim=1, keepdim=True)
        return (places >= spans[:, :1]) & (places < spans[:, 1:])

    def _mask_token(self, ids: torch.Tensor) -> torch.Tensor:
        """Mark each row's last mask token, bool (b, t)."""
        marked = last_of(ids, self.backbone.mask_token)
        if not bool(marked.any(dim=1).all()):
            raise EncoderError(
                f"{self.name}: a sentence has no mask token left within {self.max_length} tokens; raise max_length"
            )
        return marked


def embed_with_dropout(encoder: Encoder, sentences: Sequence[str], *, seed: int) -> FloatArray:
    """Return embeddings (n, d) with the model in training mode, every row under its own dropout mask.

    A sentence that comes twice is embedded twice.

    Raises:
        EncoderError: the encoder is no transformer of ours, or its model drops nothing.
    """
    import torch

    inner = encoder.encoder if isinstance(encoder, StoredEncoder) else encoder
    if not isinstance(inner, TransformerEncoder):
        raise EncoderError(f"encoder '{encoder.name}' has no dropout that could be on while fitting; set dropout=false")
    model = inner.backbone.model
    if not any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in model.modules()):
        raise EncoderError(f"the model of encoder '{encoder.name}' has no dropout; set dropout=false")
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


Pooled = Callable[["Sequence[torch.Tensor]", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""From the hidden states (b, t, h) of all layers, the token ids (b, t) and the mask (b, t), to embeddings (b, h)."""


def with_pooling(base: TransformerEncoder, pooling: Pooling) -> TransformerEncoder:
    """Return the same encoder under another pooling; the loaded model is shared."""
    made = copy(base)
    made.backbone = base.backbone
    made.pooling, made.name = pooling, variant_name(base.name, {"pooling": str(pooling)})
    vars(made).pop("fingerprint", None)
    return made


def pooled_by(pooling: Pooling) -> Pooled:
    """What a pooling makes of the states of all layers."""

    def pool(states: Sequence[torch.Tensor], ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # A batch without padding is pooled without a mask, as when it is embedded alone.
        whole = bool((mask != 0).all())
        return pooling.pool([states[at] for at in pooling.states(len(states) - 1)], None if whole else mask)

    return pool


class OnePass:
    """A transformer whose embeddings (n, k * h) are k poolings side by side."""

    fingerprint = None

    def __init__(self, base: TransformerEncoder, ways: Sequence[Pooled]) -> None:
        """Keep the transformer and the k ways to pool."""
        self.base, self.ways, self.name = base, ways, base.name

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, k * h)."""
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        return self.base.tokenize(sentences)

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, k * h) of some of the tokenised sentences as one batch."""
        import torch

        backbone = self.base.backbone
        found = np.zeros((len(rows), len(self.ways), backbone.width), dtype=np.float32)
        full = tokens.lengths[rows] > 0
        if full.any():
            with torch.inference_mode():
                batch = backbone.collate(tokens, rows[full], left=self.base.padding_side == "left")
                states = backbone.hidden_states(batch, range(backbone.depth + 1))
                mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
                for at, way in enumerate(self.ways):
                    pooled = way(states, batch["input_ids"], mask).float()
                    if self.base.normalise:
                        pooled = torch.nn.functional.normalize(pooled, dim=-1)
                    found[full, at] = pooled.cpu().numpy()
        return found.reshape(len(rows), -1)


class SplitShelf(Shelf):
    """Several shelves, filled together: embeddings (n, k * h) are cut into k parts of one size."""

    def __init__(self, shelves: Sequence[Shelf]) -> None:
        """Keep the shelves."""
        super().__init__(None)
        self.shelves = shelves

    @property
    def width(self) -> int | None:
        """Not known: nothing is kept here."""
        return None

    def find(self, keys: Keys) -> IndexArray:
        """Return -1 for each key that one of the shelves lacks, (n,)."""
        return np.min([shelf.find(keys) for shelf in self.shelves], axis=0)  # type: ignore[no-any-return]

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add each part to its shelf, where that lacks it."""
        for shelf, part in zip(self.shelves, np.split(embeddings, len(self.shelves), axis=1), strict=True):
            new = shelf.find(keys) < 0
            if new.any():
                shelf.add(keys[new], np.ascontiguousarray(part[new]))

    def flush(self) -> None:
        """Write all shelves."""
        for shelf in self.shelves:
            shelf.flush()


def fill(
    base: TransformerEncoder,
    ways: Sequence[Pooled],
    engines: Sequence[Engine],
    sentences: Sequence[str],
    *,
    progress: Progress | None = None,
    noticed: Noticed | None = None,
) -> None:
    """Embed what the shelves of some engines lack, all in one forward pass a sentence.

    Args:
        base: the transformer.
        ways: how its states are pooled.
        engines: for each way that of the encoder which pools so.
        sentences: what is embedded.
        progress: hears how far it is.
        noticed: hears what is no failure.
    """
    shelves = [engine.shelf for engine in engines]
    Engine(OnePass(base, ways), SplitShelf(shelves), progress=progress, noticed=noticed).prepare(sentences)
    for shelf in shelves:
        if shelf.watch is not None:
            shelf.watch.complete()

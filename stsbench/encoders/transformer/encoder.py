"""Any ``AutoModel`` checkpoint as an encoder, with every pooling the papers used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.encoders.checkpoints.checkpoint import find_checkpoint
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.runtimes.backends import backend_kind
from stsbench.encoders.seams import DeviceMemory, FloatArray
from stsbench.encoders.transformer.adapters import Adapter
from stsbench.encoders.transformer.modules import named_prompt
from stsbench.encoders.transformer.pooling import Pooling, last_of
from stsbench.encoders.transformer.prompt import Prompt
from stsbench.encoders.transformer.templates import cut_to_fit, second_copies
from stsbench.errors import CardError, EncoderError
from stsbench.provenance.identity import fingerprint

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
        text = named_prompt(self.checkpoint.folder, prompt_name) if prompt_name else prompt
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
        """What runs the network, where that is not torch."""
        return self.backend.notes

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

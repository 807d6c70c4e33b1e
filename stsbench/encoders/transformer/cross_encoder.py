"""Cross-encoders: a transformer reads two sentences at once and gives the pair a score.

They are what sentence-transformers calls so: classifiers of sequences with a single label, whose
output an activation may change. Tokens and batches are our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import format_repr
from stsbench.encoders.backends import backend_kind, move_to
from stsbench.encoders.base import DeviceMemory, FloatArray, IndexArray, PositiveInt
from stsbench.encoders.cached_files import read_optional_json
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.described import LIBRARY_CONFIG, count_labels, is_classifier
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.metadata import valid_text
from stsbench.encoders.network import Network
from stsbench.encoders.pairs import (
    ORDER_NOTES,
    Order,
    PairEncoder,
    join_pair,
    pair_scores,
    split_pairs,
)
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.encoder import (
    CheckpointEncoder,
    count_longer,
    measure_device_memory,
)

if TYPE_CHECKING:
    import torch

    from stsbench.encoders.transformer.backbone import Backbone

CODE_VERSION = 1
"""Raise it when a change here can change a score: stored scores are then not reused."""
Activation = Literal["Sigmoid", "Identity", "Tanh"]
"""The classes of torch that may change the output."""


class CrossEncoder(CheckpointEncoder, PairEncoder):
    """A pair scorer that runs a cross-encoder's checkpoint; code in it is never run.

    Args:
        model: A checkpoint's folder or Hub id.
        name: The name in results; by default that of the model.
        revision: The commit of a model on the Hub.
        max_length: The maximum input of both sentences in tokens; by default the checkpoint's.
        activation: The function of the output; by default the checkpoint's own, else ``Sigmoid``.
        order: ``given`` for the order of the data, ``both`` for the mean over both orders.
        dtype: The type of the numbers to compute in.
        device: The device to compute on.
    """

    prompt = ""

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        max_length: PositiveInt | None = None,
        activation: Activation | None = None,
        order: Order = "given",
        dtype: str = "float32",
        device: str = "auto",
    ) -> None:
        """Find the checkpoint and check every choice against it; nothing is loaded.

        The parameters are those of the class. None is the checkpoint's own value.

        Raises:
            CardError, UnknownName: A parameter is not valid for this checkpoint.
            EncoderError: The checkpoint is no cross-encoder, or cannot be used.
            SourceError: The checkpoint is not available.
        """
        self.name = name or model
        self.order = order
        self.device = device
        backend_class = backend_kind("torch", dtype=dtype, device=device)
        self.checkpoint = find_checkpoint(model, revision=revision)
        self.root = self.checkpoint.folder
        self.revision = self.checkpoint.revision
        self.revision_asked = self.checkpoint.requested_revision
        config = self.checkpoint.config()
        if not is_classifier(config):
            raise EncoderError(f"{self.root}: is no classifier of sequences, as cross-encoders are")
        if (n_labels := count_labels(config)) != 1:
            raise EncoderError(f"{self.root}: has {n_labels} labels; a pair scorer has one score")
        self.activation = activation or _read_activation(self.root, config)
        self.backend = backend_class(self.root, file="", dtype=dtype, device=device)
        self.max_length = max_length or self.checkpoint.max_length()
        positions = self.checkpoint.positions()
        if max_length is not None and max_length > (positions or max_length):
            raise CardError(f"max_length {max_length}: {self.root} has {positions} positions")

    @property
    def notes(self) -> list[str]:
        """The note that it scores pairs itself, with the order of the sentences."""
        return [ORDER_NOTES[self.order]]

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """The hash of everything that can change a score."""
        return fingerprint(
            {
                "kind": "cross_encoder",
                "code": CODE_VERSION,
                "files": self.checkpoint.digests(),
                "activation": self.activation,
                "max_length": self.max_length,
                "order": self.order,
                "dtype": self.backend.dtype,
            },
            self.checkpoint.libraries(),
        )

    @cached_property
    def backbone(self) -> Backbone:
        """The loaded model and tokenizer; EncoderError if they cannot be loaded."""
        import transformers

        from stsbench.encoders.transformer.backbone import Backbone, load_model, load_tokenizer

        device = self.backend.torch_device
        tokenizer = load_tokenizer(self.checkpoint)

        def load_in_torch(dtype: str) -> Any:  # noqa: ANN401 - transformers is untyped
            auto_class = transformers.AutoModelForSequenceClassification
            model, missing_keys = load_model(auto_class, self.checkpoint, dtype=dtype)
            if missing_keys:
                raise EncoderError(
                    f"{self.root}: the weights lack '{missing_keys[0]}', which would then be random"
                )
            return model.eval()

        network = Network(
            folder=self.root,
            state={"files": self.checkpoint.digests()},
            load=load_in_torch,
            tokenizer=tokenizer,
        )
        return Backbone(tokenizer, self.backend.load_model(network), device)

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the score of each pair, (n,)."""
        return pair_scores(self.encode(list(map(join_pair, first, second))))

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return the scores of joined pairs, (n, 1)."""
        return embed_all(self, texts) if len(texts) else np.zeros((0, 1), dtype=np.float32)

    def tokenize(self, texts: Sequence[str]) -> TokenIds:
        """Return the token ids of joined pairs, whose second sentences' types are marked.

        If both orders count, the tokens of the other order follow those of the given one; the span
        is where they are.
        """
        first, second = split_pairs(texts, self.name)
        given = self._tokenize_order(first, second)
        if self.order == "given":
            return TokenIds.from_lists(given)
        swapped = self._tokenize_order(second, first)
        tokens = TokenIds.from_lists([a + b for a, b in zip(given, swapped, strict=True)])
        starts = np.array(list(map(len, given)), dtype=np.int64)
        return replace(tokens, spans=np.stack([starts, tokens.lengths], axis=1))

    def _tokenize_order(self, first: Sequence[str], second: Sequence[str]) -> list[list[int]]:
        """Return the ids of pairs; those of type 1 are raised by the size of the vocabulary."""
        backbone = self.backbone
        encoded = backbone.tokenizer(
            list(map(valid_text, first)),
            list(map(valid_text, second)),
            truncation=self.max_length is not None,
            max_length=self.max_length,
            padding=False,
            return_attention_mask=False,
            verbose=False,
        )
        ids: list[list[int]] = encoded["input_ids"]
        backbone.check_ids(max(map(max, ids), default=0))
        types = encoded.get("token_type_ids")
        if types is None:
            return ids
        size = backbone.vocabulary_size
        return [
            [token + size * token_type for token, token_type in zip(*row, strict=True)]
            for row in zip(ids, types, strict=True)
        ]

    def count_cut(self, texts: Sequence[str]) -> int | None:
        """Return how many pairs are cut at the maximum length; None if it cannot be counted."""
        pairs = zip(*split_pairs(texts, self.name), strict=True)
        return count_longer(self.root, list(pairs), self.max_length)

    def device_memory(self) -> DeviceMemory | None:
        """Return the memory of its device that is left for batches; None on a CPU."""
        return measure_device_memory(self.backbone, int(self.backbone.model.config.hidden_size))

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the scores (b, 1) of some tokenised pairs, computed as one batch.

        Args:
            tokens: The tokens of all pairs.
            rows: The b pairs of the batch, as indices into ``tokens``.
        """
        if tokens.spans is None:
            return self._score_batch(tokens, rows)[:, None]
        # Each order becomes a row of its own.
        starts = tokens.offsets[:-1] + tokens.spans[:, 0]
        orders = TokenIds(tokens.ids, np.sort(np.concatenate([tokens.offsets, starts])))
        scores = self._score_batch(orders, np.concatenate([2 * rows, 2 * rows + 1]))
        return scores.reshape(2, -1).mean(axis=0)[:, None]

    def _score_batch(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the scores (b,) of some rows of tokens."""
        import torch

        backbone = self.backbone
        ids, mask = tokens.pad(rows, pad_token=backbone.pad_token)
        types, ids = np.divmod(ids, backbone.vocabulary_size)
        batch = {"input_ids": ids, "attention_mask": mask}
        if "token_type_ids" in backbone.tokenizer.model_input_names:
            batch["token_type_ids"] = types
        with torch.inference_mode():
            inputs = {name: move_to(backbone.device, array) for name, array in batch.items()}
            logits: torch.Tensor = backbone.model(**inputs).logits[:, 0].float()
            scores: FloatArray = getattr(torch.nn, self.activation)()(logits).cpu().numpy()
        return scores


def _read_activation(folder: Path, config: dict[str, Any]) -> Activation:
    """Return the activation that a checkpoint's files name, in any version of the library.

    Raises:
        EncoderError: It is another one than these, whose code is never run.
    """
    own_section = config.get("sentence_transformers")
    candidates = [
        own_section.get("activation_fn") if isinstance(own_section, dict) else None,
        config.get("sbert_ce_default_activation_function"),
        read_optional_json(folder / LIBRARY_CONFIG).get("activation_fn"),
    ]
    address = next(filter(None, candidates), "torch.nn.Sigmoid")
    package, _, name = str(address).rpartition(".")
    if name not in get_args(Activation) or not f"{package}.".startswith("torch.nn."):
        raise EncoderError(
            f"{folder}: activation {format_repr(address)} is not run here; give one of "
            f"{', '.join(get_args(Activation))}: `params=activation=Identity`"
        )
    return cast(Activation, name)

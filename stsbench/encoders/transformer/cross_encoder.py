"""Cross-encoders: a transformer reads two sentences at once and gives the pair a score.

They are what sentence-transformers calls so: classifiers of sequences with a single label, whose
output an activation may change. The batches are our own: with packed layers on a CPU they take half
the time of the library's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import format_repr
from stsbench.encoders.accelerator import is_accelerator
from stsbench.encoders.backends import INT8, resolve_backend_class
from stsbench.encoders.base import PositiveInt
from stsbench.encoders.cached_files import read_optional_json
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.described import LIBRARY_CONFIG_FILE, is_pair_classifier
from stsbench.encoders.engine.embed import TOKEN_BUDGET
from stsbench.encoders.metadata import replace_lone_surrogates
from stsbench.encoders.network import Network
from stsbench.encoders.pairs import Order, PairScorer
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.transformer.encoder import CheckpointEncoder

CODE_VERSION = 1
"""Raise it when a change here can change a score: stored scores are then not reused."""
GPU_TOKEN_BUDGET = 16 * TOKEN_BUDGET
"""The maximum number of tokens in a batch on a GPU."""
_ACTIVATION_ADDRESS = re.compile(r"torch\.nn\.[\w.]*\b(Sigmoid|Identity|Tanh)")
"""The addresses of activations that a checkpoint may name; the group is the class."""


class CrossEncoder(PairScorer, CheckpointEncoder):
    """A pair scorer that runs a cross-encoder's checkpoint; code in it is never run.

    Args:
        model: A checkpoint's folder or Hub id.
        name: The name in results; by default that of the model.
        revision: The commit of a model on the Hub.
        max_length: The maximum input of both sentences in tokens; by default the checkpoint's.
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
        order: Order = "given",
        dtype: str = "float32",
        device: str = "auto",
    ) -> None:
        """Find the checkpoint and check the parameters against it; no weights are loaded.

        Args:
            model: A checkpoint's folder or Hub id.
            name: The name in results; by default that of the model.
            revision: The commit of a model on the Hub.
            max_length: The most tokens of both sentences; None for the checkpoint's own number.
            order: ``given`` for the order of the data, ``both`` for the mean over both orders.
            dtype: The type of the numbers to compute in.
            device: The device to compute on.

        Raises:
            CardError: A parameter is not valid.
            EncoderError: The checkpoint is no cross-encoder, or cannot be used.
            SourceError: The checkpoint is not available.
        """
        self.name = name or model
        self.order = order
        self.device = device
        self.checkpoint = find_checkpoint(model, revision=revision)
        self.root = self.checkpoint.folder
        self.revision = self.checkpoint.revision
        self.revision_asked = self.checkpoint.requested_revision
        if not is_pair_classifier(self.checkpoint.config()):
            raise EncoderError(
                f"{self.root}: is no cross-encoder, a classifier of sequences with one label"
            )
        # The name of a class in torch.nn.
        self.activation = self._read_activation()
        if dtype == INT8:
            raise CardError(f"dtype '{INT8}' is not for cross-encoders; leave 'dtype' out")
        backend_class = resolve_backend_class("torch", dtype=dtype, device=device)
        self.backend = backend_class(self.root, file="", dtype=dtype, device=device)
        # The most tokens that the checkpoint's files allow; None if they set no limit.
        limit = self.checkpoint.max_length()
        if max_length is not None and limit is not None and max_length > limit:
            raise CardError(f"max_length {max_length}: {self.root} reads {limit} tokens of a pair")
        # None if there is no limit.
        self.max_length = max_length or limit

    def _read_activation(self) -> str:
        """Return the activation of the score, which the checkpoint's files may name.

        The name is under different keys in different versions of sentence-transformers. Without a
        name the library uses Sigmoid.

        Returns:
            The name of a class in ``torch.nn``: ``Sigmoid``, ``Identity`` or ``Tanh``.

        Raises:
            EncoderError: The files name any other class.
        """
        # config.json, and the file of sentence-transformers if there is one: its values count more.
        config = self.checkpoint.config() | read_optional_json(self.root / LIBRARY_CONFIG_FILE)
        library_settings = config.get("sentence_transformers")
        if isinstance(library_settings, dict):
            config |= library_settings
        keys = ("activation_fn", "sbert_ce_default_activation_function")
        # The first value that is set.
        address = next(filter(None, map(config.get, keys)), "torch.nn.Sigmoid")
        # An address within torch.nn that ends in one of the three names; the group is that name.
        match = _ACTIVATION_ADDRESS.fullmatch(str(address))
        if match is None:
            raise EncoderError(f"{self.root}: activation {format_repr(address)} is never run")
        return match[1]

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """The hash of everything that can change a score, and the versions of packages.

        ``order`` tells in which order a pair's sentences are read: ``given`` or ``both``. The
        version of the code is raised by hand if a change of the code can change a score.
        """
        return fingerprint(
            {
                "kind": "cross_encoder",
                "code": CODE_VERSION,
                # The sha256 of each file by its name.
                "files": self.checkpoint.file_hashes(),
                "max_length": self.max_length,
                "order": self.order,
                "dtype": self.backend.dtype,
            },
            # The names of the packages that read the tokenizer and the model.
            self.checkpoint.libraries(),
        )

    @cached_property
    def network(self) -> Any:  # noqa: ANN401 - transformers is untyped
        """The model, which is loaded at the first access, as a model of transformers.

        The attribute ``tokenizer`` is set at the same time.

        Raises:
            EncoderError: The model or the tokenizer cannot be loaded, or weights are missing.
            CardError: The number of tokens is too small for any text.
        """
        from transformers import AutoModelForSequenceClassification

        from stsbench.encoders.transformer.backbone import load_model, load_tokenizer

        self.tokenizer = load_tokenizer(self.checkpoint)
        n_special_tokens = self.tokenizer.num_special_tokens_to_add(pair=True)
        if self.max_length is not None and self.max_length <= n_special_tokens:
            raise CardError(
                f"max_length {self.max_length} leaves nothing of a pair beside the special tokens"
            )

        def load_in_torch(dtype: str) -> Any:  # noqa: ANN401
            """Load the checkpoint's model with numbers of this type, in evaluation mode.

            All its weights must be in the checkpoint.
            """
            model, missing_keys = load_model(
                AutoModelForSequenceClassification, self.checkpoint, dtype=dtype
            )
            if missing_keys:
                raise EncoderError(
                    f"{self.root}: the weights lack '{missing_keys[0]}', which would then be random"
                )
            return model.eval()

        # The backend puts the model on the device, and packs its layers on a CPU. It is torch,
        # which exports nothing and so needs no `state`.
        return self.backend.load_model(Network(folder=self.root, state={}, load=load_in_torch))

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the score of each pair, computed in batches of pairs of about the same length.

        Args:
            first: The first sentence of each of n pairs.
            second: The second sentence of each pair.

        Returns:
            The scores, (n,): the model's only output after ``self.activation``, a class of
            ``torch.nn`` by its name.
        """
        import torch

        device = self.network.device
        columns = (list(map(replace_lone_surrogates, sentences)) for sentences in (first, second))
        # By name, such as "input_ids", one list of numbers per pair.
        encoded = self.tokenizer(
            *columns, truncation=self.max_length is not None, max_length=self.max_length
        )
        # The number of tokens of each pair.
        lengths = np.array(list(map(len, encoded["input_ids"])), dtype=np.int64)
        budget = GPU_TOKEN_BUDGET if is_accelerator(device) else TOKEN_BUDGET
        scores = np.empty(len(lengths))
        # Each batch is the row numbers of pairs, of at most `budget` tokens with padding, or of one
        # longer pair.
        for rows in plan_batches(lengths, budget=budget):
            values = {name: [lists[row] for row in rows] for name, lists in encoded.items()}
            batch = self.tokenizer.pad(values, return_tensors="pt").to(device)
            with torch.inference_mode():
                logits = self.network(**batch).logits[:, 0].float()
                activation = getattr(torch.nn, self.activation)()
                scores[rows] = activation(logits).cpu()
        return scores

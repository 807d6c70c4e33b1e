"""A checkpoint's tokenizer and model, loaded from its folder alone and seen to be whole: token ids in, hidden states out.

Some models' states depend on padding, whatever the mask says: ConvBERT's convolutions read across a sentence's end, FNet transforms its
padding too, Nyströmformer's landmarks are means over it. In a batch with longer sentences such a model gives another embedding, and so
another score where other tasks are scored beside: each sentence is computed with others of its own length alone.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from logging.handlers import BufferingHandler
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from stsbench.core.errors import EncoderError, translate_errors
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import join_lines
from stsbench.encoders.backends import TorchBackend, is_padding_invariant, move_to
from stsbench.encoders.checkpoint import LOCAL_ONLY, Adapter, Checkpoint, read_shapes
from stsbench.encoders.metadata import valid_text
from stsbench.encoders.network import Network
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.pooling import Pooling

SLACK, SPARE = 2.0, 50_000_000
"""A model may have so many times the values of its weights, and so many more: tied ones are written once, a head may be missing."""


def load_tokenizer(checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - transformers is untyped
    """Load a checkpoint's tokenizer; raises EncoderError where it cannot be loaded, or knows no words."""
    with silence_libraries():
        tokenizer = _load(transformers.AutoTokenizer, checkpoint.folder)
    check_vocabulary(tokenizer, checkpoint.folder)
    return tokenizer


def load_model(
    kind: Any,  # noqa: ANN401
    checkpoint: Checkpoint,
    *,
    dtype: str,
    **options: Any,  # noqa: ANN401
) -> tuple[Any, list[str]]:  # noqa: ANN401
    """Load a checkpoint's weights into a model of a transformers ``Auto…`` class; raises EncoderError: they do not fit.

    Returns the model, and the names of the tensors that the checkpoint lacks.
    """
    folder = checkpoint.weights[0].parent
    with silence_libraries():
        _check_size(kind, folder, checkpoint.weights)
        # The loading info names sizes that do not match, refused below.
        checked = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        model, info = _load(kind, folder, dtype=getattr(torch, dtype), **checked, **options)
    wrong = sorted(
        f"'{key}' {tuple(found)}, not {tuple(due)}"
        for key, found, due in info.get("mismatched_keys") or []
    )
    if wrong:
        raise EncoderError(
            f"{checkpoint.folder}: the weights have {wrong[0]} ({len(wrong)} tensors in all)"
        )
    return model, sorted(info.get("missing_keys") or [])


def check_vocabulary(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401 - transformers is untyped
    """Refuse a tokenizer of special tokens alone, which transformers makes where the vocabulary's file is missing."""
    # The mark of a word's beginning may be among the words (T5).
    if len(tokenizer) - len(set(tokenizer.all_special_ids)) < 2:
        what = "the tokenizer knows no words"
        raise EncoderError(f"{folder}: {what}; tokenizer.json or the vocabulary's file is missing")


@contextmanager
def silence_libraries() -> Iterator[list[logging.LogRecord]]:
    """Keep the libraries from reporting on a load, which we check ourselves; gives what they would have said."""
    from transformers.utils import logging as transformers_logging

    notes = BufferingHandler(1 << 30)
    loggers = [
        transformers_logging.get_logger("transformers"),
        logging.getLogger("sentence_transformers"),
    ]
    before = [(logger.level, logger.propagate, logger.handlers) for logger in loggers]
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.WARNING)
        logger.propagate, logger.handlers = False, [notes]
    try:
        with warnings.catch_warnings():
            # Between transformers and tokenizers, whose versions are a user's to choose.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield notes.buffer
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate, logger.handlers = propagate, handlers
        if bars:
            transformers_logging.enable_progress_bar()


def _load(kind: Any, folder: Path, **options: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    try:
        return kind.from_pretrained(str(folder), **LOCAL_ONLY, **options)
    except BaseException as error:  # what others wrote makes transformers raise anything
        # The package tokenizers, written in Rust, panics on some broken files.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        what = "tokenizer" if kind is transformers.AutoTokenizer else "model"
        why = f"{'' if isinstance(error, OSError | ValueError) else f'{type(error).__name__}: '}{join_lines(error)[:300]}"
        raise EncoderError(f"{folder}: the {what} cannot be loaded: {why}") from error


def _check_size(kind: Any, folder: Path, weights: Sequence[Path]) -> None:  # noqa: ANN401 - transformers is untyped
    # Before any memory is asked for.
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), **LOCAL_ONLY)
        with torch.device("meta"):
            model = kind.from_config(config)
    except Exception:
        # It cannot be made at all: loading says why.
        return
    asked = sum(parameter.numel() for parameter in model.parameters())
    held = sum(prod(shape) for path in weights for shape in read_shapes(path).values())
    most = int(SLACK * held + SPARE)
    if asked > most:
        what = f"config.json asks for a model of {asked:,} values, its weights hold {held:,}"
        raise EncoderError(f"{folder}: {what}; the most that is read is {most:,}")


class TokenCounter:
    """Counts the tokens of texts, without those that a tokenizer adds."""

    def __init__(self, model: str, revision: str = "unpinned") -> None:
        """Open the tokenizer of a checkpoint's folder, or of a model on the Hub at a commit; raises SourceError, EncoderError."""
        folder = Path(model)
        if not folder.is_dir():
            from stsbench.data.hub.repository import fetch_tokenizer

            without = "give a checkpoint's folder in a card of your own"
            folder = fetch_tokenizer(model, revision=revision, offline_hint=without).path
        files = Checkpoint(folder=folder)
        self._tokenizer = load_tokenizer(files)
        self.identity = fingerprint(files.digests(), files.libraries())

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        found = self._tokenizer(
            list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False
        )
        return [len(ids) for ids in found["input_ids"]]


LENGTHS = (5, 12)
"""Of the two made sentences that tell, in tokens."""
ModelInputs = Mapping[str, torch.Tensor]


@torch.no_grad()
def depends_on_padding(model: Any, pad: int, device: torch.device) -> bool:  # noqa: ANN401 - transformers is untyped
    """Whether a model gives the tokens of a sentence other states beside a longer one than alone."""
    short, long = LENGTHS
    table = int(model.get_input_embeddings().num_embeddings)
    known = [number for number in range(max(table - long - 1, 0), table) if number != pad]
    ids = torch.tensor([(known * long)[:long]] * 2, device=device)
    mask = torch.arange(long, device=device) < torch.tensor(LENGTHS, device=device)[:, None]
    training = bool(getattr(model, "training", False))
    if training:
        model.eval()
    # In its own numbers: autocast rounds by more than what tells.
    with torch.autocast(device.type, enabled=False):
        alone = model(input_ids=ids[:1, :short]).last_hidden_state[0]
        beside = model(
            input_ids=ids.where(mask, pad), attention_mask=mask.long()
        ).last_hidden_state[0, :short]
    if training:
        model.train()
    dtype = str(alone.dtype).removeprefix("torch.")
    return not is_padding_invariant(
        alone.float().cpu().numpy(), beside.float().cpu().numpy(), dtype
    )


TOKENIZE_AT_ONCE = 8192
ENCODER_ALONE = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
    "switch_transformers": "SwitchTransformersEncoderModel",
}
"""The class of the encoder by type of model, if the encoder alone embeds and no decoder is loaded.

Sentence-T5 does so (Ni et al. 2022, arXiv 2108.08877).
"""


def model_class(model_type: object) -> Any:  # noqa: ANN401 - transformers is untyped
    """Return the class of transformers that loads what embeds of a model of this type."""
    if model_type not in ENCODER_ALONE:
        return transformers.AutoModel
    encoder = getattr(transformers, ENCODER_ALONE[str(model_type)])
    # transformers' own table lacks some of them.
    transformers.AutoModelForTextEncoding.register(encoder.config_class, encoder, exist_ok=True)
    return transformers.AutoModelForTextEncoding


class Backbone:
    """A transformer and its tokenizer: what embeds, and what is trained."""

    def __init__(self, tokenizer: Any, model: Any, device: torch.device) -> None:  # noqa: ANN401 - transformers
        """Take a loaded tokenizer and model; raises EncoderError where its configuration does not say its sizes."""
        self.tokenizer, self.model, self.device = tokenizer, model, device
        pad = tokenizer.pad_token_id
        self.pad_token = int(pad if pad is not None else tokenizer.eos_token_id or 0)
        self.mask_token = tokenizer.mask_token_id
        self.special_tokens = int(tokenizer.num_special_tokens_to_add())
        config = model.config
        try:
            self.depth = int(config.num_hidden_layers)
        except (AttributeError, TypeError, ValueError) as error:
            raise EncoderError(
                f"a model of type '{config.model_type}' does not say its layers"
            ) from error
        # RoBERTa and its kin number positions by the ids themselves, from where padding ends.
        embeddings = getattr(model, "embeddings", None)
        self._numbers_itself = hasattr(embeddings, "padding_idx") and not isinstance(
            embeddings, torch.nn.Embedding
        )
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        backend: TorchBackend,
        pooling: Pooling,
        adapters: Sequence[Adapter],
        bidirectional: bool,
    ) -> Backbone:
        """Load an ``AutoModel`` in evaluation mode, to be run by a backend, and its tokenizer.

        Raises EncoderError: weights or an adapter do not fit, there is no such device, or attention stays causal.
        """
        place, tokenizer = backend.torch_device, load_tokenizer(checkpoint)

        def make(dtype: str) -> Any:  # noqa: ANN401 - transformers
            kind = model_class(checkpoint.config().get("model_type"))
            model, missing = load_model(kind, checkpoint, dtype=dtype)
            # They would be random; a pooler's matter only where it is used.
            if lost := [key for key in missing if pooling.through_head or "pooler" not in key]:
                what = f"the weights lack '{lost[0]}' ({len(lost)} tensors in all)"
                if all("pooler" in key for key in lost):
                    what = "the checkpoint has no pooler weights, so its head would be random"
                    what += "; use pooling 'cls_before_pooler'"
                raise EncoderError(f"{checkpoint.folder}: {what}")
            for adapter in adapters:
                model = adapter.merge_into(model)
            model = model.eval()
            if bidirectional:
                _attend_both_ways(model)
            # As one whose decoder wants a beginning.
            what = f"{checkpoint.folder}: {type(model).__name__} does not run on the tokens of a sentence alone"
            with torch.inference_mode(), translate_errors(what, EncoderError):
                model(input_ids=torch.ones((1, 2), dtype=torch.long))
            return model

        changes = {"adapters": [one.digests() for one in adapters], "bidirectional": bidirectional}
        network = Network(
            folder=checkpoint.weights[0].parent,
            state={"files": checkpoint.digests(), **changes},
            load=make,
            layer_indices=pooling.layer_indices,
            through_head=pooling.through_head,
            tokenizer=tokenizer,
        )
        return cls(tokenizer, backend.model(network), place)

    @cached_property
    def width(self) -> int:
        """The size of a token's last state.

        It is not every model's ``hidden_size``: Reformer gives twice that, OPT may give less.
        """
        ids = torch.ones((1, 2), dtype=torch.long, device=self.device)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices=devices):
            return int(self.model(input_ids=ids).last_hidden_state.shape[-1])

    def tokenize(self, sentences: Sequence[str], *, max_length: int | None) -> TokenIds:
        """Return the token ids of each sentence with special tokens, cut at ``max_length`` tokens."""
        parts = []
        for start in range(0, len(sentences), TOKENIZE_AT_ONCE):
            encoded = self.tokenizer(
                [valid_text(sentence) for sentence in sentences[start : start + TOKENIZE_AT_ONCE]],
                truncation=max_length is not None,
                max_length=max_length,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            parts.append(TokenIds.from_lists(encoded["input_ids"]))
        tokens = TokenIds.join(parts)
        # Asked each time: training may add some.
        known = int(self.model.get_input_embeddings().num_embeddings)
        if len(tokens.ids) and tokens.ids.max() >= known:
            what = f"the tokenizer gives token {tokens.ids.max()}, the model knows {known}"
            raise EncoderError(f"{what}: not of one checkpoint")
        return tokens

    def collate(
        self, tokens: TokenIds, rows: npt.NDArray[np.int64], *, left: bool
    ) -> dict[str, torch.Tensor]:
        """Return model inputs (b, t); a batch without padding has no attention mask.

        Positions count tokens, never padding; of a model that takes none padding is on the right whatever was asked.
        """
        left = left and (self._numbers_itself or self._takes_positions)
        ids, mask = tokens.pad(rows, pad=self.pad_token, left=left)
        batch = {"input_ids": move_to(self.device, ids)}
        if not mask.all():
            batch["attention_mask"] = move_to(self.device, mask)
            if left and not self._numbers_itself:
                batch["position_ids"] = (batch["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        return batch

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        """The position ids (b, t) that it gives a batch padded on the right; raises EncoderError: it takes none."""
        if not self._takes_positions:
            raise EncoderError(
                f"{type(self.model).__name__} takes no positions; leave out what changes them"
            )
        if self._numbers_itself:
            return mask.cumsum(dim=1) * mask + int(self.model.embeddings.padding_idx)
        return torch.arange(mask.shape[1], device=mask.device).expand_as(mask)

    @cached_property
    def depends_on_padding(self) -> bool:
        """Whether the states of tokens depend on the padding beside them, mask or not: a convolution, a Fourier transform."""
        return depends_on_padding(self.model, self.pad_token, self.device)

    def hidden_states(self, batch: ModelInputs, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the hidden states (b, t, h) of these layers."""
        return self._unpadded(batch, lambda part: self.padded_states(part, layers))

    def pooler_output(self, batch: ModelInputs) -> torch.Tensor:
        """Return the first token through the model's own head (b, h)."""

        def pooled(part: ModelInputs) -> list[torch.Tensor]:
            output: torch.Tensor | None = getattr(self.model(**part), "pooler_output", None)
            if output is None:
                raise EncoderError(
                    f"{type(self.model).__name__} has no pooler; use pooling 'cls_before_pooler'"
                )
            return [output]

        return self._unpadded(batch, pooled)[0]

    def _unpadded(
        self, batch: ModelInputs, compute: Callable[[ModelInputs], list[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """What ``compute`` makes of a batch: states (b, t, h), or one vector a row (b, h).

        Where padding is minded it is given the ids of each length by themselves, and states of padding are zeros.
        """
        if "attention_mask" not in batch or not self.depends_on_padding:
            return compute(batch)
        ids, mask = batch["input_ids"], batch["attention_mask"] != 0
        lengths = mask.sum(dim=1)
        whole: list[torch.Tensor] = []
        for length in sorted(set(lengths.tolist())):
            rows = lengths == length
            found = compute({"input_ids": ids[rows][mask[rows]].view(-1, length)})
            whole = whole or [
                one.new_zeros((*mask.shape[: one.ndim - 1], one.shape[-1])) for one in found
            ]
            for every, one in zip(whole, found, strict=True):
                every[rows if one.ndim == 2 else mask & rows[:, None]] = (
                    one if one.ndim == 2 else one.flatten(0, 1)
                )
        return whole

    def padded_states(self, batch: ModelInputs, layers: Sequence[int]) -> list[torch.Tensor]:
        """The hidden states (b, t, h) of a batch as it stands, whether or not padding is minded."""
        if tuple(layers) == (-1,):
            return [self.model(**batch).last_hidden_state]
        states = self.model(**batch, output_hidden_states=True).hidden_states
        n_tokens = batch["input_ids"].shape[1]
        # Reformer pads within.
        selected = [states[layer][:, :n_tokens] for layer in layers]
        sizes = sorted({tuple(state.shape[1:]) for state in selected})
        if len(sizes) > 1:
            problem = f"the layers of {type(self.model).__name__} have the shapes "
            problem += " and ".join(map(str, sizes))
            raise EncoderError(f"{problem}; choose a pooling of one layer")
        return selected


def _attend_both_ways(model: Any) -> None:  # noqa: ANN401 - transformers is untyped
    # As transformers does where a configuration is not causal.
    model.config.is_causal = False
    for module in model.modules():
        if hasattr(module, "is_causal"):
            # What the kernels ask where no token is padding.
            module.is_causal = False
    ids = torch.tensor([[1, 2, 3], [1, 2, 4]], device=model.device)
    with torch.inference_mode():
        first, second = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[
            :, 0
        ]
    if torch.equal(first, second):
        raise EncoderError(
            f"{type(model).__name__} cannot attend both ways here; leave 'bidirectional' out"
        )

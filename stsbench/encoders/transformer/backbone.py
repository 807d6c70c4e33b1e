"""A checkpoint's tokenizer and model: token ids in, hidden states out.

They are loaded from the checkpoint's folder alone, and checked to be complete.

Some models' states depend on padding, whatever the mask is: ConvBERT's convolutions read across a
sentence's end, FNet transforms its padding too, and Nyströmformer's landmarks are means over it. In
a batch with longer sentences such a model gives another embedding, and so another score if further
tasks are scored in the same run. So it computes a sentence together with those of its length only.
"""

from __future__ import annotations

import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import transformers

from stsbench.core.errors import EncoderError, translate_errors
from stsbench.core.provenance import fingerprint
from stsbench.core.wording import as_one_line
from stsbench.encoders.accelerator import fork_rng, move_to
from stsbench.encoders.backends import TorchBackend, is_padding_invariant
from stsbench.encoders.checkpoint import SAFE_LOAD_OPTIONS, Checkpoint
from stsbench.encoders.network import Network
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.flat import attach_cpu_masks
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.encoders.transformer.token_ids import make_token_ids
from stsbench.encoders.weights import Adapter, refuse_oversized_model


def load_tokenizer(checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - transformers is untyped
    """Load a checkpoint's tokenizer, of transformers.

    Raises:
        EncoderError: It cannot be loaded, or has no words.
    """
    # No messages of the libraries about the load.
    with silence_libraries():
        tokenizer = _load_pretrained(transformers.AutoTokenizer, checkpoint.folder)
    refuse_empty_vocabulary(tokenizer, checkpoint.folder)
    return tokenizer


class LoadedModel(NamedTuple):
    """A model of transformers, and what its checkpoint lacks."""

    model: Any
    missing_keys: list[str]
    """The names of the tensors that the checkpoint lacks, sorted."""


def load_model(
    auto_class: Any,  # noqa: ANN401 - transformers is untyped
    checkpoint: Checkpoint,
    *,
    dtype: str,
    **options: Any,  # noqa: ANN401 - of from_pretrained
) -> LoadedModel:
    """Load a checkpoint's weights into a model of a transformers ``Auto…`` class.

    Args:
        auto_class: The ``Auto…`` class, for example ``AutoModel``.
        checkpoint: The checkpoint; its ``weights`` are the paths of the files with weights, which
            are all in one folder.
        dtype: The type of the numbers, for example ``float32``.
        options: Further options of ``from_pretrained``.

    Returns:
        The model, and the sorted names of the tensors that it has and the checkpoint lacks.

    Raises:
        EncoderError: The weights cannot be loaded, have other shapes than the model, or are far
            smaller than it.
    """
    folder = checkpoint.weights[0].parent
    with silence_libraries(), refuse_oversized_model(folder, checkpoint.weights):
        # With these options tensors of other shapes are no error of transformers, but are listed
        # in the loading info. They are refused below.
        model, loading_info = _load_pretrained(
            auto_class,
            folder,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    mismatches = sorted(
        f"'{key}' {tuple(shape)}, not {tuple(expected_shape)}"
        for key, shape, expected_shape in loading_info.get("mismatched_keys") or []
    )
    if mismatches:
        raise EncoderError(
            f"{checkpoint.folder}: the weights have {mismatches[0]} "
            f"({len(mismatches)} tensors in all)"
        )
    return LoadedModel(model, sorted(loading_info.get("missing_keys") or []))


def refuse_empty_vocabulary(tokenizer: Any, folder: Path) -> None:  # noqa: ANN401 - transformers is untyped
    """Raise an error if a tokenizer has special tokens only.

    Transformers makes such a tokenizer if the vocabulary's file is missing.

    Args:
        tokenizer: A tokenizer of transformers, whose length is the number of its tokens.
        folder: The folder that it was loaded from, for the message.

    Raises:
        EncoderError: The tokenizer has no words.
    """
    # The character that marks a word's beginning may be the only other token (T5).
    if len(tokenizer) - len(set(tokenizer.all_special_ids)) < 2:
        raise EncoderError(
            f"{folder}: the tokenizer knows no words; "
            "tokenizer.json or the vocabulary's file is missing"
        )


@contextmanager
def silence_libraries() -> Iterator[list[logging.LogRecord]]:
    """Collect the messages that transformers and sentence-transformers log within the block.

    They are not printed, and there are no progress bars. At the end the settings are restored.

    Yields:
        The list to which the messages are added, from warnings on.
    """
    from transformers.utils import logging as transformers_logging

    # The capacity is never reached, so the handler keeps all records in its ``buffer``.
    handler = BufferingHandler(1 << 30)
    loggers = [
        transformers_logging.get_logger("transformers"),
        logging.getLogger("sentence_transformers"),
    ]
    old_settings = [(logger.level, logger.propagate, logger.handlers) for logger in loggers]
    has_progress_bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.WARNING)
        logger.propagate = False
        logger.handlers = [handler]
    try:
        with warnings.catch_warnings():
            # Transformers may call functions that tokenizers has deprecated; nothing that a user
            # could change.
            warnings.simplefilter("ignore", DeprecationWarning)
            yield handler.buffer
    finally:
        for logger, (level, propagate, handlers) in zip(loggers, old_settings, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate
            logger.handlers = handlers
        if has_progress_bar:
            transformers_logging.enable_progress_bar()


def _load_pretrained(library_class: Any, folder: Path, **options: Any) -> Any:  # noqa: ANN401 - transformers is untyped
    """Return what ``from_pretrained`` of a class of transformers loads from a folder.

    Nothing is downloaded, and no code in the folder is run.

    Args:
        library_class: A class of transformers, for example ``AutoTokenizer``.
        folder: The folder of the checkpoint.
        options: Further options of ``from_pretrained``.

    Raises:
        EncoderError: The loading failed, whatever error it raised.
    """
    try:
        return library_class.from_pretrained(str(folder), **SAFE_LOAD_OPTIONS, **options)
    except EncoderError:  # of `refuse_oversized_model`, in whose block the caller may be
        raise
    except BaseException as error:  # a broken file makes transformers raise anything
        # The package tokenizers, written in Rust, panics on some broken files.
        is_panic = type(error).__name__ == "PanicException"
        is_error = isinstance(error, Exception) or is_panic
        if not is_error:  # a keyboard interrupt, for example
            raise
        subject = "tokenizer" if library_class is transformers.AutoTokenizer else "model"
        # The messages of these two types are clear without the name of the type.
        is_clear = isinstance(error, OSError | ValueError)
        error_type = "" if is_clear else f"{type(error).__name__}: "
        raise EncoderError(
            f"{folder}: the {subject} cannot be loaded: {error_type}{as_one_line(error)[:300]}"
        ) from error


class TokenCounter:
    """A function that counts the tokens of texts, without those that a tokenizer adds."""

    def __init__(self, model: str, revision: str = "unpinned") -> None:
        """Load the tokenizer by whose tokens texts are counted.

        Args:
            model: A checkpoint's folder, or the id of a model on the Hub.
            revision: The commit of a model on the Hub, or ``unpinned`` for its newest one.

        Raises:
            SourceError: The tokenizer is not available.
            EncoderError: The tokenizer cannot be loaded.
        """
        folder = Path(model)
        if not folder.is_dir():
            from stsbench.data.hub.checkpoints import fetch_tokenizer

            # Downloads the files of the tokenizer, unless they have been downloaded before.
            folder = fetch_tokenizer(
                model,
                revision=revision,
                offline_hint="give a checkpoint's folder in a card of your own",
            ).path
        checkpoint = Checkpoint(folder=folder)
        self._tokenizer = load_tokenizer(checkpoint)
        # A hash of the files, and of the versions of the packages that read them.
        self.fingerprint = fingerprint(checkpoint.file_hashes(), checkpoint.libraries())

    def __call__(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        tokens = make_token_ids(self._tokenizer, texts, add_special_tokens=False)
        lengths: list[int] = tokens.lengths.tolist()
        return lengths


PADDING_TEST_LENGTHS = (5, 12)
"""The lengths in tokens of the two sentences that show whether padding changes states."""
ModelInputs = Mapping[str, torch.Tensor]
"""The inputs of a model of transformers, each (b, t), by name."""


@torch.no_grad()
def depends_on_padding(model: Any, pad: int, device: torch.device) -> bool:  # noqa: ANN401 - transformers is untyped
    """Return whether padding changes the hidden states that a model gives a sentence.

    Some models let padding into the sentence, whatever the attention mask is. This is tried out: a
    short sentence is run alone, and padded in a batch with a longer one. A difference by rounding
    does not count.

    Args:
        model: A model of transformers. It is run in evaluation mode and left in its own mode.
        pad: The id of the padding token.
        device: The device of the model.
    """
    short, long = PADDING_TEST_LENGTHS
    vocabulary_size = int(model.get_input_embeddings().num_embeddings)
    # The last ids of the vocabulary: one more than needed, as the padding id may be among them.
    first_token = max(vocabulary_size - long - 1, 0)
    tokens = [token for token in range(first_token, vocabulary_size) if token != pad]
    # The tokens repeat if the vocabulary has fewer.
    long_sentence = (tokens * long)[:long]
    ids = torch.tensor([long_sentence, long_sentence], device=device)
    # The first row is the short sentence, of which the rest is padding.
    lengths = torch.tensor(PADDING_TEST_LENGTHS, device=device)
    is_token = torch.arange(long, device=device) < lengths[:, None]
    is_training = bool(getattr(model, "training", False))
    if is_training:
        model.eval()
    # In the model's own type: the rounding of autocast would hide the difference.
    with torch.autocast(device.type, enabled=False):
        alone = model(input_ids=ids[:1, :short]).last_hidden_state[0]
        padded_ids = ids.where(is_token, pad)
        states = model(input_ids=padded_ids, attention_mask=is_token.long()).last_hidden_state
        padded = states[0, :short]
    if is_training:
        model.train()
    dtype = str(alone.dtype).removeprefix("torch.")
    return not is_padding_invariant(
        alone.float().cpu().numpy(), padded.float().cpu().numpy(), dtype
    )


CLASSES_OF_ENCODERS_ALONE = {
    "t5": "T5EncoderModel",
    "mt5": "MT5EncoderModel",
    "umt5": "UMT5EncoderModel",
    "longt5": "LongT5EncoderModel",
    "switch_transformers": "SwitchTransformersEncoderModel",
}
"""The class of the encoder by type of model, if the encoder alone embeds and no decoder is loaded.

Sentence-T5 does so (Ni et al. 2022, arXiv 2108.08877).
"""


def choose_auto_class(model_type: object) -> Any:  # noqa: ANN401 - transformers is untyped
    """Return the ``Auto…`` class of transformers that loads the part of a model that embeds.

    For most models this is ``AutoModel``. Of models such as T5, only the encoder embeds, and the
    decoder is not loaded. The class of such an encoder is first added to the table of
    ``AutoModelForTextEncoding``, which lacks some.

    Args:
        model_type: The ``model_type`` of the checkpoint's configuration.
    """
    # By type of model, the name of the class of its encoder, such as T5EncoderModel.
    if model_type not in CLASSES_OF_ENCODERS_ALONE:
        return transformers.AutoModel
    encoder_class = getattr(transformers, CLASSES_OF_ENCODERS_ALONE[str(model_type)])
    transformers.AutoModelForTextEncoding.register(
        encoder_class.config_class, encoder_class, exist_ok=True
    )
    return transformers.AutoModelForTextEncoding


class Backbone:
    """A transformer and its tokenizer, to embed with or to train.

    Attributes:
        tokenizer: The tokenizer, of transformers.
        model: The model, of transformers or a runtime.
        device: The device of the model.
        pad_token: The id of the padding token.
        mask_token: The id of the ``[MASK]`` token; None if there is none.
        n_special_tokens: The number of special tokens that are added to a sentence.
        depth: The number of layers.
    """

    def __init__(self, tokenizer: Any, model: Any, device: torch.device) -> None:  # noqa: ANN401 - transformers
        """Store a tokenizer, a model and its device, and read from them what embedding needs.

        This is the ids of special tokens, the number of layers, and how positions are computed.

        Raises:
            EncoderError: The model's configuration lacks the number of layers.
        """
        self.tokenizer = tokenizer
        self.model = model
        self.device = device
        # A tokenizer without a padding token pads with the token for the end, or with id 0.
        pad_token = tokenizer.pad_token_id
        if pad_token is None:
            pad_token = tokenizer.eos_token_id or 0
        self.pad_token = int(pad_token)
        self.mask_token = tokenizer.mask_token_id
        self.n_special_tokens = int(tokenizer.num_special_tokens_to_add())
        config = model.config
        try:
            self.depth = int(config.num_hidden_layers)
        except (AttributeError, TypeError, ValueError) as error:
            raise EncoderError(
                f"a model of type '{config.model_type}' does not say its layers"
            ) from error
        # RoBERTa and similar models compute positions from the token ids. One can tell by the
        # attribute `padding_idx` of their module `embeddings`. If that module is just a table of
        # word vectors, it has the attribute too, but computes no positions.
        embeddings = getattr(model, "embeddings", None)
        is_bare_table = isinstance(embeddings, torch.nn.Embedding)
        self._computes_positions = hasattr(embeddings, "padding_idx") and not is_bare_table
        self._accepts_positions = "position_ids" in inspect.signature(model.forward).parameters

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        backend: TorchBackend,
        pooling: Pooling,
        adapters: Sequence[Adapter],
        bidirectional: bool,
    ) -> Backbone:
        """Load a checkpoint's tokenizer, and its model in evaluation mode.

        Args:
            checkpoint: The checkpoint.
            backend: What runs the model: torch, or another runtime such as ONNX Runtime.
            pooling: The pooling, which decides what the model must output: hidden states of some
                layers, or the output of the model's own head.
            adapters: LoRA adapters to merge into the weights, in this order.
            bidirectional: Let each token of a decoder attend to those after it.

        Raises:
            EncoderError: Weights or an adapter do not fit, there is no such device, attention stays
                causal, or the model needs further inputs than tokens.
        """
        # First, because a missing device is reported before anything is loaded.
        device = backend.torch_device
        tokenizer = load_tokenizer(checkpoint)

        def load_in_torch(dtype: str) -> Any:  # noqa: ANN401 - transformers
            """Load the checkpoint's model in torch, with ``adapters`` merged into its weights."""
            auto_class = choose_auto_class(checkpoint.config().get("model_type"))
            model, missing_keys = load_model(auto_class, checkpoint, dtype=dtype)
            _refuse_missing_weights(checkpoint.folder, missing_keys, pooling)
            for adapter in adapters:
                model = adapter.merge_into(model)
            model = model.eval()
            if bidirectional:
                _make_bidirectional(model)
            # Try it on two tokens: a model with a decoder, for example, needs further inputs.
            name = type(model).__name__
            problem = f"{checkpoint.folder}: {name} does not run on the tokens of a sentence alone"
            with torch.inference_mode(), translate_errors(problem, EncoderError):
                model(input_ids=torch.ones((1, 2), dtype=torch.long))
            return model

        # The backend loads the model in torch by this, or exports it: both are called the same way.
        network = Network(
            folder=checkpoint.weights[0].parent,
            state={  # all that can change its numbers: an export is found again by this
                "files": checkpoint.file_hashes(),
                "adapters": [adapter.file_hashes() for adapter in adapters],
                "bidirectional": bidirectional,
            },
            load=load_in_torch,
            layer_indices=pooling.layer_indices,
            through_head=pooling.through_head,
            tokenizer=tokenizer,
        )
        return cls(tokenizer, backend.load_model(network), device)

    @cached_property
    def width(self) -> int:
        """The size of a token's hidden state of the last layer.

        For some models it is not ``hidden_size``: Reformer's is twice that, OPT's may be smaller.
        """
        # Two tokens are run to see it. The state of the random numbers that a model may draw is
        # restored, so that a training draws the same ones in any case.
        ids = torch.ones((1, 2), dtype=torch.long, device=self.device)
        with torch.no_grad(), fork_rng(self.device):
            return int(self.model(input_ids=ids).last_hidden_state.shape[-1])

    def tokenize(self, sentences: Sequence[str], *, max_length: int | None) -> TokenIds:
        """Return the token ids of each sentence, special tokens included.

        Args:
            sentences: The sentences.
            max_length: The number of tokens after which a sentence is cut; None to cut none.

        Raises:
            EncoderError: A token id is beyond the model's vocabulary.
        """
        tokens = make_token_ids(self.tokenizer, sentences, max_length=max_length)
        # Read at each call, because training may add tokens to the model.
        vocabulary_size = int(self.model.get_input_embeddings().num_embeddings)
        if len(tokens.ids) and tokens.ids.max() >= vocabulary_size:
            raise EncoderError(
                f"the tokenizer gives token {tokens.ids.max()}, the model knows "
                f"{vocabulary_size}: not of one checkpoint"
            )
        return tokens

    def collate(
        self, tokens: TokenIds, rows: npt.NDArray[np.int64], *, pad_left: bool
    ) -> dict[str, torch.Tensor]:
        """Return the inputs of the model for some sentences, as one batch on its device.

        Args:
            tokens: The token ids of all sentences.
            rows: The indices of the sentences of the batch, (b,).
            pad_left: Put the padding on the left, unless the model neither computes positions from
                the ids nor accepts positions as an input.

        Returns:
            Tensors (b, t) by name: ``input_ids``; ``attention_mask`` if there is padding; and
            ``position_ids``, which count tokens and not padding, if there is padding on the left
            and the model does not compute positions from the ids.
        """
        pad_left = pad_left and (self._computes_positions or self._accepts_positions)
        ids, mask = tokens.pad(rows, pad_token=self.pad_token, pad_left=pad_left)
        batch = {"input_ids": move_to(self.device, ids)}
        if not mask.all():
            batch["attention_mask"] = move_to(self.device, mask)
            # For code that reads lengths without waiting for a GPU.
            attach_cpu_masks(batch, {"attention_mask": torch.from_numpy(mask)})
            if pad_left and not self._computes_positions:
                batch["position_ids"] = (batch["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
        return batch

    def positions(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the position ids (b, t) that the model itself gives a batch padded on the right.

        Args:
            mask: 1 at tokens and 0 at padding, (b, t).

        Raises:
            EncoderError: The model does not accept position ids as an input.
        """
        if not self._accepts_positions:
            raise EncoderError(
                f"{type(self.model).__name__} takes no positions; leave out what changes them"
            )
        # RoBERTa and similar models compute positions from the ids: the first token has the id of
        # the padding token plus 1, and padding has that id itself.
        if self._computes_positions:
            return mask.cumsum(dim=1) * mask + int(self.model.embeddings.padding_idx)
        return torch.arange(mask.shape[1], device=mask.device).expand_as(mask)

    @cached_property
    def depends_on_padding(self) -> bool:
        """Whether states depend on the padding beside them, mask or not: of convolutions, say."""
        return depends_on_padding(self.model, self.pad_token, self.device)

    def hidden_states(self, batch: ModelInputs, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the hidden states (b, t, h) of these layers."""
        return self._compute_by_length(batch, compute=lambda part: self.padded_states(part, layers))

    def pooler_output(self, batch: ModelInputs) -> torch.Tensor:
        """Return the state of the first token after the model's own head, its pooler: (b, h).

        Args:
            batch: The model's inputs by name, each (b, t).

        Raises:
            EncoderError: The model has no head.
        """

        def run_head(part: ModelInputs) -> list[torch.Tensor]:
            """Run the model on some inputs; return a list of its head's output, (b, h)."""
            output: torch.Tensor | None = getattr(self.model(**part), "pooler_output", None)
            if output is None:
                raise EncoderError(
                    f"{type(self.model).__name__} has no pooler; use pooling 'cls_before_pooler'"
                )
            return [output]

        return self._compute_by_length(batch, run_head)[0]

    def _compute_by_length(
        self, batch: ModelInputs, compute: Callable[[ModelInputs], list[torch.Tensor]]
    ) -> list[torch.Tensor]:
        """Compute the outputs of a model for a batch, in parts if padding changes its states.

        Then the sentences of each length are a part without padding, and the states at padding are
        zeros.

        Args:
            batch: The model's inputs by name, each (b, t); without a mask there is no padding. Each
                sentence has a token.
            compute: Runs the model on the inputs of some sentences, and returns a list of outputs:
                hidden states (b, t, h), or one vector per sentence (b, h).

        Returns:
            The same list of outputs, for all sentences of the batch in their order.
        """
        if "attention_mask" not in batch or not self.depends_on_padding:
            return compute(batch)
        ids = batch["input_ids"]
        is_token = batch["attention_mask"] != 0
        lengths = is_token.sum(dim=1)
        outputs: list[torch.Tensor] = []
        for length in sorted(set(lengths.tolist())):
            has_length = lengths == length
            ids_without_padding = ids[has_length][is_token[has_length]].view(-1, length)
            part_outputs = compute({"input_ids": ids_without_padding})  # no padding needs no mask
            if not outputs:
                # Only now is the size h of each output known.
                for part in part_outputs:
                    # (b, t) for states, (b,) for one vector per sentence.
                    leading_shape = is_token.shape[: part.ndim - 1]
                    outputs.append(part.new_zeros((*leading_shape, part.shape[-1])))
            for output, part in zip(outputs, part_outputs, strict=True):
                if part.ndim == 2:
                    output[has_length] = part
                else:
                    output[is_token & has_length[:, None]] = part.flatten(0, 1)
        return outputs

    def padded_states(self, batch: ModelInputs, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return hidden states of a batch, those at padding included.

        Args:
            batch: The model's inputs by name, each (b, t).
            layers: The indices of the states: 0 is the word embeddings, -1 the last layer.

        Returns:
            The states of each of these layers, (b, t, h).

        Raises:
            EncoderError: The layers have states of different shapes.
        """
        # The model outputs the last layer's states in any case; those of all need more memory.
        if tuple(layers) == (-1,):
            return [self.model(**batch).last_hidden_state]
        states = self.model(**batch, output_hidden_states=True).hidden_states
        n_tokens = batch["input_ids"].shape[1]
        # Reformer adds padding of its own, which is removed.
        selected = [states[layer][:, :n_tokens] for layer in layers]
        shapes = sorted({tuple(state.shape[1:]) for state in selected})
        if len(shapes) > 1:
            raise EncoderError(
                f"the layers of {type(self.model).__name__} have the shapes "
                f"{' and '.join(map(str, shapes))}; choose a pooling of one layer"
            )
        return selected


def _refuse_missing_weights(folder: Path, missing_keys: Sequence[str], pooling: Pooling) -> None:
    """Raise an error if weights are missing that would be random and change embeddings.

    Args:
        folder: The checkpoint's folder, for the message.
        missing_keys: The names of all weights that the model has and the checkpoint lacks.
        pooling: The pooling; with ``through_head`` it uses the model's own head, the pooler.

    Raises:
        EncoderError: Such weights are missing.
    """
    # The weights of a pooler do not matter if the pooling does not use it.
    lost_keys = [key for key in missing_keys if pooling.through_head or "pooler" not in key]
    if not lost_keys:
        return
    if all("pooler" in key for key in lost_keys):
        raise EncoderError(
            f"{folder}: the checkpoint has no pooler weights, so its head would be random; "
            "use pooling 'cls_before_pooler'"
        )
    raise EncoderError(
        f"{folder}: the weights lack '{lost_keys[0]}' ({len(lost_keys)} tensors in all)"
    )


def _make_bidirectional(model: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Let each token of a decoder attend to those after it too, and check that it does.

    By default the attention of a decoder is causal: a token attends only to those before it.

    Args:
        model: A model of transformers, which is changed in place.

    Raises:
        EncoderError: Its attention stays causal.
    """
    # Transformers reads this setting when it makes the attention mask.
    model.config.is_causal = False
    for module in model.modules():
        if hasattr(module, "is_causal"):
            # The attention kernels read it if there is no mask, that is, no padding.
            module.is_causal = False
    ids = torch.tensor([[1, 2, 3], [1, 2, 4]], device=model.device)
    with torch.inference_mode():
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    # The two sentences differ in their last token only. If their first tokens have equal states,
    # the first token does not attend to the last.
    first_states = states[:, 0]
    if torch.equal(first_states[0], first_states[1]):
        raise EncoderError(
            f"{type(model).__name__} cannot attend both ways here; leave 'bidirectional' out"
        )

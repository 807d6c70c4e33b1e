"""Models that compute no padding: the tokens of a batch's sentences go through laid end to end.

A linear layer, a norm and an activation do not depend on where sentences begin. Attention gets a
layout with the ends of the sentences, which is made once per batch from lengths that the CPU knows,
so that no layer finds the padding again or waits for an accelerator. The states return to their
positions in the padded batch, and pooling reads them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import ceil, sqrt
from typing import Any, Protocol

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import is_flash_attn_2_available

from stsbench.core.wording import as_one_line
from stsbench.encoders.accelerator import has_flash_attention, is_accelerator, move_to

PROBE_LENGTH = 6
"""The longest sentence of the batch by which a model is tested first, in tokens."""
TORCH_ATTENTION = "sdpa"
"""The name in transformers of torch's own attention."""
FLAT_ATTENTION = "stsbench_flat"
"""The name in transformers of attention over a layout; without one it is torch's."""
CPU_MASK_ATTRIBUTE = "on_host"
"""The attribute of a mask on an accelerator with the same mask on the CPU."""


class SegmentAttention(Protocol):
    """Attention of each sentence's own tokens in a flat batch of N tokens."""

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        layout: TokenLayout,
        *,
        scale: float,
        dropout: float,
        causal: bool,
        window: int | None,
    ) -> torch.Tensor:
        """Compute attention for sentences laid end to end, N tokens in all.

        Each token attends only to those of its own sentence.

        Args:
            query: The queries, (N, h, d), of h heads.
            key: The keys, (N, k, d), of k heads; h is a multiple of k.
            value: The values, (N, k, d).
            layout: Where the sentences are among the tokens.
            scale: The factor of the products of queries and keys.
            dropout: The rate at which attention weights are dropped.
            causal: Whether a token attends to no token after it.
            window: A token attends to those less than this number away; None for all.

        Returns:
            softmax(scale Q K^T) V of each sentence, (N, h, d).

        Raises:
            ValueError: It cannot be computed in this way; the model is then run with padding.
        """


def round_up_for_reuse(count: int) -> int:
    """Round a number of rows up, by at most 3%, so that few different numbers occur.

    Torch then reuses the memory of earlier batches, and what it has prepared to multiply matrices
    of the same shape.
    """
    # A power of two, such that there are 32 to 64 steps up to the count.
    step = 1 << max(count.bit_length() - 6, 0)
    return ceil(count / step) * step


def attach_cpu_masks(moved: Mapping[str, Any], batch: Mapping[str, Any]) -> None:
    """Store with each attention mask on an accelerator the same mask on the CPU.

    Later code reads the lengths of sentences from that copy, without waiting for the accelerator.

    Args:
        moved: The inputs of a model by name, on the accelerator; each may also be a mapping of
            such inputs. The copies become an attribute of the masks in it.
        batch: The same inputs on the CPU.
    """
    for name, value in batch.items():
        if isinstance(value, Mapping):
            attach_cpu_masks(moved[name], value)
        elif name == "attention_mask" and moved[name] is not value:
            # Not the same tensor, so it has been moved to another device.
            setattr(moved[name], CPU_MASK_ATTRIBUTE, value)


class TokenLayout:
    """The positions of the tokens of a padded batch when its sentences are laid end to end.

    The longest sentence is first.

    Attributes:
        shape: The shape of the padded batch, (b, t).
        lengths: The falling lengths of the sentences on the CPU, (b,).
        size: The number of tokens N of the flat batch.
        cu_seqlens: The first token of each sentence and the end, int32 (b + 1,). Tokens after the
            sentences are one sentence more.
        max_length: The number of tokens of the longest of these.
        attention: The attention to compute with it.
        plans: What an attention computes once per batch, by the number of its heads.
    """

    def __init__(self, mask: torch.Tensor, attention: SegmentAttention) -> None:
        """Compute where the tokens of a padded batch are if its sentences are laid end to end.

        The sentences are sorted by length, the longest first.

        Args:
            mask: The attention mask of the padded batch, (b, t), not 0 at tokens. If it is on an
                accelerator and has no copy on the CPU, this waits for the accelerator.
            attention: The function that computes attention with this layout; only stored.
        """
        # The copy on the CPU is an attribute of the mask, see :func:`attach_cpu_masks`.
        is_token = getattr(mask, CPU_MASK_ATTRIBUTE, mask).cpu() != 0
        lengths, order = is_token.sum(dim=1).sort(descending=True, stable=True)
        self.lengths: torch.Tensor = lengths  # on the CPU
        self.shape = mask.shape
        # The position of each token in the flattened padded batch of b * t positions, sentence by
        # sentence: (n_tokens,).
        positions = torch.arange(mask.numel()).view(mask.shape)
        token_positions = positions[order][is_token[order]]
        n_tokens = len(token_positions)
        # On a CPU the first token is repeated at the end, until the number of tokens, at most 3%
        # more, is one of few: then memory is reused.
        n_fill = 0 if is_accelerator(mask.device) else round_up_for_reuse(n_tokens) - n_tokens
        self.size = n_tokens + n_fill
        joined_positions = torch.cat([token_positions, token_positions[:1].expand(n_fill)])
        self._joined_positions = move_to(mask.device, joined_positions.numpy())
        self._token_positions = self._joined_positions[:n_tokens]
        # The repeated tokens are one more sentence for the attention. The 0 is for the sums below.
        fill_lengths = [n_fill] if n_fill else []
        segment_lengths = torch.tensor([0, *lengths.tolist(), *fill_lengths])
        self.max_length = int(segment_lengths.max())
        # The index of each sentence's first token, and then the number of all tokens. The package
        # flash-attn calls this cu_seqlens.
        ends = segment_lengths.cumsum(dim=0).int()
        self.cu_seqlens = move_to(mask.device, ends.numpy())
        self.attention = attention
        # For the attention: whatever it computes once per batch, by the number of its heads.
        self.plans: dict[int, Any] = {}

    def remove_padding(self, values: torch.Tensor) -> torch.Tensor:
        """Return the values (b, t, …) at the tokens, end to end (1, N, …).

        On a CPU, after the last token the first is repeated, up to a length that recurs.
        """
        return values.flatten(0, 1).index_select(0, self._joined_positions)[None]

    def restore_padding(self, values: torch.Tensor) -> torch.Tensor:
        """Return values (1, N, …) in their positions in the batch (b, t, …), zeros at padding."""
        zeros = values.new_zeros((self.shape.numel(), *values.shape[2:]))
        padded = zeros.index_copy(0, self._token_positions, values[0, : len(self._token_positions)])
        return padded.view(*self.shape, *values.shape[2:])


def find_attention(device: torch.device) -> SegmentAttention | None:
    """Return the attention over flat batches on a device; None if there is none."""
    return attend_on_gpu if has_flash_attention(device) else None


def attend_on_gpu(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: TokenLayout,
    *,
    scale: float,
    dropout: float,
    causal: bool,
    window: int | None,
) -> torch.Tensor:
    """Compute attention on a GPU, (N, h, d), for sentences laid end to end, N tokens in all.

    Each token attends only to those of its own sentence. In half precision the package flash-attn
    computes it, if it is installed; otherwise the kernel that torch uses for nested tensors. Making
    such tensors would cost the CPU milliseconds per layer.

    The arguments are those of :class:`SegmentAttention`: queries (N, h, d), keys and values
    (N, k, d), the sentences, the factor of the products, the rate of dropped weights, whether a
    token attends to none after it, and how near tokens must be; ValueError if torch cannot.
    """
    # Where each sentence begins, and the longest length: for the queries and for the keys.
    segments = (layout.cu_seqlens, layout.cu_seqlens, layout.max_length, layout.max_length)
    if query.dtype in (torch.bfloat16, torch.float16) and is_flash_attn_2_available():
        from flash_attn import flash_attn_varlen_func

        # The number of tokens to either side; -1 for all.
        reach = -1 if window is None else window - 1
        attended: torch.Tensor = flash_attn_varlen_func(
            query,
            key,
            value,
            *segments,
            dropout_p=dropout,
            softmax_scale=scale,
            causal=causal,
            window_size=(reach, reach),
            deterministic=torch.are_deterministic_algorithms_enabled(),
        )
        return attended
    if window is not None:
        raise ValueError("its attention has a window, which needs flash-attn and half precision")
    # This kernel needs as many heads of keys as of queries, several of which may share one.
    repeats = query.shape[1] // key.shape[1]
    if repeats > 1:
        key, value = (tensor.repeat_interleave(repeats, dim=1) for tensor in (key, value))
    outputs = torch.ops.aten._efficient_attention_forward(
        query[None],
        key[None],
        value[None],
        None,  # no bias
        *segments,
        dropout,
        int(causal),  # the kind of mask: 0 for none, 1 for a causal one
        torch.is_grad_enabled(),  # whether to keep what the gradient needs
        scale=scale,
    )
    result: torch.Tensor = outputs[0][0]  # the first output, for a batch of one
    return result


class UnpaddedForward:
    """The forward of a model of transformers, without computing padding."""

    JOINED_INPUTS = ("input_ids", "position_ids", "token_type_ids")
    """The inputs that have a number for each token."""
    SUPPORTED_INPUTS = frozenset(
        {*JOINED_INPUTS, "attention_mask", "output_hidden_states", "return_dict"}
    )

    def __init__(self, model: PreTrainedModel, attention: SegmentAttention) -> None:
        """Store a model and its own forward, which computes padding.

        Args:
            model: A model of transformers.
            attention: Computes the attention of sentences that are laid end to end.
        """
        self._model = model
        self._padded_forward = model.forward
        self._attention = attention
        self.padding = False
        """Whether to compute padding too."""
        self.layout: TokenLayout | None = None
        """The layout of the batch that is being computed; None between batches."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:  # noqa: ANN401 - transformers is untyped
        """Run the model on the tokens of a padded batch, without computing its padding.

        The tokens of all sentences go through the model as one row of N tokens. An attention of
        ours lets each token attend to those of its own sentence only, by the layout.

        The model's own forward, with padding, is used if ``self.padding`` is set, if there is no
        mask, or if there are inputs that are not supported here.

        Args:
            args: The token ids, (b, t), or nothing; with more the model's own forward is used.
            inputs: The inputs of the model by name; those that are None are ignored. Supported are
                ``JOINED_INPUTS``, which have a number for each token: its id, position and type;
                and ``attention_mask``, ``output_hidden_states`` and ``return_dict``.

        Returns:
            The model's output with states (b, t, h), which are zeros at padding.
        """
        inputs = {name: value for name, value in inputs.items() if value is not None}
        if len(args) == 1:
            inputs["input_ids"], args = args[0], ()
        # These operators compare sets of names.
        has_required = {"input_ids", "attention_mask"} <= inputs.keys()
        is_supported = has_required and inputs.keys() <= self.SUPPORTED_INPUTS
        if args or not is_supported or self.padding:
            return self._padded_forward(*args, **inputs)
        ids = inputs["input_ids"]
        if "position_ids" not in inputs:
            inputs["position_ids"] = _default_positions(self._model, ids)
        layout = TokenLayout(inputs["attention_mask"], self._attention)
        # Other code reads it while the model computes this batch.
        self.layout = layout
        for name in inputs.keys() & set(self.JOINED_INPUTS):
            inputs[name] = layout.remove_padding(inputs[name])  # (b, t) to (1, N)
        # A mask that hides nothing. With four dimensions transformers uses it as it is; otherwise
        # it would look for sentences in the positions, which waits for an accelerator.
        inputs["attention_mask"] = ids.new_ones((1, 1, 1, 1), dtype=torch.bool)
        try:
            output = self._padded_forward(**inputs, layout=layout)
        finally:
            self.layout = None
        states = getattr(output, "hidden_states", None)
        if states is not None:
            states = tuple(layout.restore_padding(state) for state in states)
        last_state = layout.restore_padding(output.last_hidden_state)
        # The pooler reads the first token of each sentence, which it finds in a padded batch only.
        pooler = getattr(self._model, "pooler", None)
        return BaseModelOutputWithPooling(
            last_hidden_state=last_state,
            pooler_output=None if pooler is None else pooler(last_state),
            hidden_states=states,
        )


def try_omitting_padding(
    model: PreTrainedModel,
    attention: SegmentAttention,
    *,
    precision: torch.dtype | None = None,
    for_training: bool = False,
) -> str:
    """Make a model compute no padding, if its hidden states stay the same.

    Its forward and its attention are replaced. The states of a small batch are computed before and
    after; they are equal for models like BERT and RoBERTa. If they differ, or the new forward
    fails, the model is set back as it was.

    Args:
        model: A model of transformers without a head, changed in place.
        attention: The attention to compute with.
        precision: The type in which matrices will be multiplied, under autocast, if it is not that
            of the weights.
        for_training: Whether gradients are compared too.

    Returns:
        An empty text if the model computes no padding now; otherwise the reason why it still does.
    """
    name = type(model).__name__
    if omits_padding(model):
        return ""
    if model.config._attn_implementation != TORCH_ATTENTION:
        return f"{name} has an attention of its own ('{model.config._attn_implementation}')"
    dtypes = {model.dtype, precision or model.dtype}
    reason = ""
    try:
        # Functions that return a vector: all hidden states of the small batch, or the length of
        # each parameter's gradient.
        probes = [torch.no_grad()(_compute_states)]
        if for_training:
            probes.append(_probe_gradients)
        padded = [probe(model, dtype) for dtype in dtypes for probe in probes]
        # FLAT_ATTENTION is the name of :func:`_attend`, TORCH_ATTENTION that of transformers' own.
        model.set_attn_implementation(FLAT_ATTENTION)
        model.forward = UnpaddedForward(model, attention)
        flat = [probe(model, dtype) for dtype in dtypes for probe in probes]
        # The type of each tensor in the two lists, which decides how far rounding may move it.
        precisions = [dtype for dtype in dtypes for _ in probes]
        if not all(map(_differs_by_rounding, flat, padded, precisions)):
            reason = f"{name} mixes up sentences that are laid end to end"
    except Exception as error:  # whatever another architecture, or a kernel, raises
        reason = f"{name}: {as_one_line(error)[:200]}"
    if reason:
        # Without this attribute of the object, its class's own forward is used again.
        vars(model).pop("forward", None)
        model.set_attn_implementation(TORCH_ATTENTION)
    return reason


def omits_padding(model: PreTrainedModel) -> bool:
    """Return whether a model computes no padding."""
    return isinstance(model.forward, UnpaddedForward) and not model.forward.padding


@contextmanager
def padding_computed(model: PreTrainedModel) -> Iterator[None]:
    """Let a model compute its padding too within the block, for code that needs those states.

    Nothing changes for a model that computes padding anyway.
    """
    forward = model.forward
    if not isinstance(forward, UnpaddedForward):
        yield
        return
    forward.padding = True
    try:
        yield
    finally:
        forward.padding = False


def layout_of(model: PreTrainedModel) -> TokenLayout | None:
    """Return the layout of the batch that a model is computing; None if it is padded."""
    return model.forward.layout if isinstance(model.forward, UnpaddedForward) else None


@contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """Set a module of torch to evaluation mode, without dropout, within the block.

    At its end the mode of each submodule, training or evaluation, is restored.
    """
    modes = [(submodule, submodule.training) for submodule in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for submodule, training in modes:
            submodule.training = training


@torch.enable_grad()
def _probe_gradients(model: PreTrainedModel, precision: torch.dtype) -> torch.Tensor:
    """Return the length of the gradient of each trained parameter on a synthetic batch, (params,).

    The loss is the sum of the squares of all hidden states of the batch. The length is 0 for a
    parameter without a gradient.

    Args:
        model: A model of transformers.
        precision: The type in which matrices are multiplied.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        return torch.zeros(0)
    loss = _compute_states(model, precision).float().square().sum()
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    lengths = [
        torch.zeros(()) if gradient is None else gradient.float().norm().cpu()
        for gradient in gradients
    ]
    return torch.stack(lengths)


def _compute_states(model: PreTrainedModel, precision: torch.dtype) -> torch.Tensor:
    """Return all hidden states of a synthetic batch as one vector, without those at padding.

    There is no dropout. The batch has three sentences of 4, 6 and 1 tokens: code that mixes up
    sentences, or expects them in the order of length, gives other states.

    Args:
        model: A model of transformers.
        precision: The type in which matrices are multiplied.

    Returns:
        The states of each layer, and then the output of the model's pooler if it has one, in the
        type of the model's weights: (values,).
    """
    device = model.device
    lengths = torch.tensor([PROBE_LENGTH - 2, PROBE_LENGTH, 1])
    host_mask = torch.arange(PROBE_LENGTH) < lengths[:, None]
    mask = host_mask.to(device)
    vocabulary_size = model.get_input_embeddings().num_embeddings
    # Any ids will do, if they differ: (3, PROBE_LENGTH).
    ids = torch.arange(3, 3 + mask.numel()).view(mask.shape) % vocabulary_size
    with (
        evaluation_mode(model),
        torch.autocast(device.type, precision, enabled=precision != model.dtype),
    ):
        output = model(
            input_ids=ids.to(device), attention_mask=mask.long(), output_hidden_states=True
        )
    values = [state[mask].flatten() for state in output.hidden_states]
    pooler_output = getattr(output, "pooler_output", None)
    if pooler_output is not None:
        values.append(pooler_output.flatten())
    return torch.cat([value.to(model.dtype) for value in values])


def _differs_by_rounding(
    states: torch.Tensor, expected: torch.Tensor, precision: torch.dtype
) -> bool:
    """Return whether two vectors (values,) differ by no more than rounding in a type of numbers."""
    largest = float(expected.abs().max()) if len(expected) else 0.0
    tolerance = sqrt(torch.finfo(precision).eps) * largest
    return torch.allclose(states, expected, rtol=0, atol=tolerance)


def _default_positions(model: Any, ids: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - transformers is untyped
    """Return the positions (b, t) that a model itself would assign to a batch.

    Most models count from 0. RoBERTa and similar models have an attribute ``padding_idx``, the id
    of the padding token. They count tokens from ``padding_idx + 1`` on, and give padding the
    position ``padding_idx``.

    Args:
        model: A model of transformers.
        ids: The token ids of the batch, (b, t).
    """
    embeddings = getattr(model, "embeddings", None)
    padding_id = getattr(embeddings, "padding_idx", None)
    if padding_id is None:
        return torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    is_token = (ids != padding_id).long()
    positions: torch.Tensor = is_token.cumsum(dim=1) * is_token + padding_id
    return positions


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    layout: TokenLayout | None = None,
    **options: Any,  # noqa: ANN401 - transformers is untyped
) -> tuple[torch.Tensor, None]:
    """Compute the attention of a layer; transformers calls it in place of its own.

    There are two cases. Without a layout the batch is padded, and torch's own attention is
    computed. With one, the N tokens of all sentences are a single row, and the function
    ``layout.attention`` lets each token attend to those of its own sentence only.

    Args:
        module: The layer's attention.
        query: The queries (1, h, N, d).
        key: The keys (1, k, N, d).
        value: The values (1, k, N, d).
        mask: The attention mask; with a layout it may have one element, which hides nothing.
        layout: Where the sentences are in the row of tokens; None for a padded batch. It is an
            argument of the model's forward, which transformers passes on to each layer.
        options: Further arguments of transformers: ``scaling``, ``dropout``, ``sliding_window``.

    Returns:
        The result (1, N, h, d), and None in place of the attention's weights.

    Raises:
        ValueError: There is a layout, and the layer changes the products of queries and keys.
    """
    if layout is None:
        padded: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, mask, **options
        )
        return padded
    has_bias = mask is not None and mask.numel() > 1
    # Some models limit the products by a "softcap", or add sinks ("s_aux") to them.
    changes_products = any(options.get(name) is not None for name in ("softcap", "s_aux"))
    if has_bias or changes_products:
        raise ValueError("its attention adds to the products of queries and keys")
    # None if transformers passes none: then the layer's own setting, and the usual scale, count.
    causal = options.get("is_causal")
    scale = options.get("scaling")
    # Each argument from (1, h, N, d) to (N, h, d).
    result = layout.attention(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        layout,
        scale=query.shape[-1] ** -0.5 if scale is None else scale,
        dropout=options.get("dropout", 0.0),
        causal=getattr(module, "is_causal", True) if causal is None else causal,
        window=options.get("sliding_window"),
    )
    return result[None], None


AttentionInterface.register(FLAT_ATTENTION, _attend)
AttentionMaskInterface.register(FLAT_ATTENTION, AttentionMaskInterface()[TORCH_ATTENTION])

"""What a student starts from: a checkpoint's weights, or its configuration alone, with some fields replaced."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import transformers

from stsbench.encoders.checkpoints.checkpoint import Checkpoint
from stsbench.encoders.transformer.opening import load_model
from stsbench.errors import CardError, EncoderError


def _model_kind(*, language_model: bool) -> Any:  # noqa: ANN401 - transformers is untyped
    return transformers.AutoModelForMaskedLM if language_model else transformers.AutoModel


def load_start(
    checkpoint: Checkpoint, settings: Mapping[str, float], *, language_model: bool, fresh_head: bool
) -> tuple[Any, list[str]]:
    """A checkpoint's model, and the weights that it lacks and may lack."""
    kind = _model_kind(language_model=language_model)
    whole, missing = load_model(kind, checkpoint, dtype="float32", **settings)
    body = f"{whole.base_model_prefix}." if fresh_head and language_model else ""
    lost = [key for key in missing if "pooler" not in key and key.startswith(body)]
    if lost:
        what = "its head as a language model, " if language_model else ""
        raise EncoderError(f"{checkpoint.folder}: the weights lack {what}'{lost[0]}' ({len(lost)} tensors in all)")
    return whole, missing


DROPOUT = re.compile(r"(?!classifier|summary|pooler|qa|seq_classif)\w*(dropout(_prob|_rate)?|pdrop)")
"""What configurations call the dropouts of a model's body: BERT's ``hidden_dropout_prob``, GPT-2's ``resid_pdrop``,
ModernBERT's ``mlp_dropout``; those of heads for other tasks are not among them."""


def dropouts(config: Mapping[str, Any]) -> dict[str, float]:
    """The dropouts that a configuration names, each a rate."""
    named = {name: rate for name, rate in config.items() if DROPOUT.fullmatch(name)}
    return {name: float(rate) for name, rate in named.items() if type(rate) in (int, float)}


def dropout_settings(checkpoint: Checkpoint, dropout: float | None) -> dict[str, float]:
    """The dropout fields of a checkpoint's configuration, with new values."""
    if dropout is None:
        return {}
    if not 0 <= dropout < 1:
        raise CardError(f"dropout {dropout}: give at least 0 and less than 1")
    known = dropouts(checkpoint.config())
    if not known:
        usual = "hidden_dropout_prob, attention_dropout and the like"
        raise EncoderError(f"{checkpoint.folder}/config.json: names no dropout ({usual}) to replace")
    return dict.fromkeys(known, dropout)


def depth_settings(checkpoint: Checkpoint, layers: int | None) -> dict[str, int]:
    """The field of a checkpoint's configuration that says how many layers there are, with a new value."""
    if layers is None:
        return {}
    name = next((field for field in ("num_hidden_layers", "n_layers") if field in checkpoint.config()), None)
    if name is None or not 1 <= layers <= checkpoint.config()[name]:
        there = "says not how many" if name is None else f"has {checkpoint.config()[name]}"
        raise EncoderError(f"{checkpoint.folder}: cannot keep {layers} layers, its configuration {there}")
    return {name: layers}


def fresh_model(checkpoint: Checkpoint, settings: Mapping[str, float], *, language_model: bool) -> Any:  # noqa: ANN401
    """A model of a checkpoint's configuration, with new values in some fields and fresh weights."""
    config = transformers.AutoConfig.from_pretrained(
        str(checkpoint.folder), local_files_only=True, trust_remote_code=False, **settings
    )
    return _model_kind(language_model=language_model).from_config(config)

"""A trained student as a folder that stsbench, transformers and sentence-transformers load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from stsbench.encoders.checkpoints.saved import write_saved
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.encoders.transformer.prompt import Prompt
from stsbench.errors import OutputError
from stsbench.files.whole import write_whole
from stsbench.training.student import Student


def save_student(
    student: Student,
    folder: Path,
    between: Sequence[Any] = (),
    *,
    language_model: bool = False,
    prompt: Prompt | None = None,
) -> None:
    """Write configuration, weights, tokenizer, and the pooling in both libraries' words.

    Args:
        student: what is written.
        folder: where to.
        between: modules of sentence-transformers between transformer and pooling; with any of them
            it is that library which runs the folder.
        language_model: write the head of the student's language model too.
        prompt: the template that sentences are embedded in, by its mask token; in place of ``between``. That library
            has no text after a sentence: there, sentences must come in the template, or they are zero vectors.
    """
    if prompt is not None:
        between = [_mask_token_alone(student)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        whole = student.language_model if language_model else student.model
        config = student.model.config
        config.architectures = [type(whole).__name__]
        config.save_pretrained(str(folder))
        student.backbone.tokenizer.save_pretrained(str(folder))
        _save_modules(student, folder, between)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    weights = _language_model_weights(student) if language_model else _weights(student)
    write_whole(folder / "model.safetensors", save(weights, {"format": "pt"}))
    if between and prompt is None:
        write_saved(folder, "sentence_transformer", {})
        return
    params: dict[str, Any] = {"pooling": str(student.test_pooling)}
    if prompt is not None:
        params |= {"prompt_template": prompt.template, "add_full_stop": prompt.add_full_stop}
    if (length := student.checkpoint.max_length()) is not None:
        params["max_length"] = length
    write_saved(folder, "transformer", params)


def _weights(student: Student) -> dict[str, torch.Tensor]:
    """The transformer's weights; the head, where tests use it, as its pooler."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in student.model.state_dict().items()}
    if student.head is not None and student.test_pooling.through_head:
        head = student.head.linear.state_dict()
        weights.update({f"pooler.dense.{name}": tensor.detach().cpu().contiguous() for name, tensor in head.items()})
    return weights


def _language_model_weights(student: Student) -> dict[str, torch.Tensor]:
    """The weights of transformer and language model head, those that are tied once."""
    model: Any = student.language_model
    weights: dict[str, torch.Tensor] = {}
    places = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in places:
            places.add(tensor.data_ptr())
            weights[name] = tensor.detach().cpu().contiguous()
    return weights


def _mask_token_alone(student: Student) -> Any:  # noqa: ANN401 - a module of the library's
    """Weights of tokens by which a mean is the mask token's state."""
    from sentence_transformers.sentence_transformer.modules import WordWeights

    size = student.model.get_input_embeddings().num_embeddings
    mask = str(student.backbone.tokenizer.mask_token_id)
    return WordWeights([str(number) for number in range(size)], {mask: 1.0}, unknown_word_weight=0.0)


def _save_modules(student: Student, folder: Path, between: Sequence[Any]) -> None:
    """Write ``modules.json`` and the modules' configurations, as sentence-transformers lays them out."""
    from sentence_transformers.sentence_transformer import modules

    pooling: Pooling = student.test_pooling
    width = student.backbone.width
    for step in between:
        width = step.get_embedding_dimension() if hasattr(step, "get_embedding_dimension") else width
    several = [] if pooling.layers == (-1,) else [_layer_mean(pooling.layers, student)]
    # Tokens but the mask's weigh nothing in the mean.
    mode = "mean" if pooling.of_mask_token else pooling.library
    steps: list[Any] = [*between, *several, modules.Pooling(width, pooling_mode=mode)]
    if pooling.through_head and student.head is not None:
        dense = modules.Dense(width, width, activation_function=torch.nn.Tanh())
        dense.linear.load_state_dict(student.head.linear.state_dict())
        steps.append(dense)
    kinds = [type(step).__name__ for step in steps]
    listed = [("", "Transformer"), *((f"{number}_{kind}", kind) for number, kind in enumerate(kinds, 1))]
    for (path, _), step in zip(listed[1:], steps, strict=True):
        (folder / path).mkdir(exist_ok=True)
        step.save(str(folder / path))
    # Only then does the library's transformer hand on more than its last layer.
    config = {"output_hidden_states": True} if several else {}
    _write_module_list(folder, listed, max_length=student.checkpoint.max_length(), config=config)


def _layer_mean(layers: Sequence[int], student: Student) -> Any:  # noqa: ANN401 - a module of the library's
    """The library's mean over layers, of these alone."""
    from sentence_transformers.sentence_transformer import modules

    depth = student.backbone.depth
    counted = [layer % (depth + 1) for layer in layers]
    weights = torch.zeros(depth + 1 - min(counted))
    for layer in counted:
        weights[layer - min(counted)] += 1
    return modules.WeightedLayerPooling(
        student.backbone.width,
        num_hidden_layers=depth,
        layer_start=min(counted),
        layer_weights=torch.nn.Parameter(weights, requires_grad=False),
    )


def _write_module_list(
    folder: Path, listed: list[tuple[str, str]], *, max_length: int | None, config: dict[str, Any]
) -> None:
    # These addresses are understood by every version of the library.
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(listed)
    ]
    write_whole(folder / "modules.json", (json.dumps(entries, indent=1) + "\n").encode())
    own = {"max_seq_length": max_length, "do_lower_case": False, **({"config_args": config} if config else {})}
    write_whole(folder / "sentence_bert_config.json", (json.dumps(own, indent=1) + "\n").encode())

"""Saves a student as a folder that stsbench, transformers and sentence-transformers load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from stsbench.core.errors import OutputError
from stsbench.core.files import write_atomically
from stsbench.encoders.described import write_saved
from stsbench.encoders.transformer.prompt import Prompt
from stsbench.training.student import Student


def save_student(
    student: Student,
    folder: Path,
    middle_modules: Sequence[Any] = (),
    *,
    language_model: bool = False,
    prompt: Prompt | None = None,
) -> None:
    """Write a trained encoder as a folder that several libraries load.

    stsbench, transformers and sentence-transformers load it. The pooling, how an embedding is made
    of the hidden states of tokens, is written in the formats of both stsbench and
    sentence-transformers; it is ``student.test_pooling``, since training may pool otherwise.

    Args:
        student: The trained encoder.
        folder: The folder to write.
        middle_modules: Modules of sentence-transformers between transformer and pooling; with any
            of them stsbench runs the folder with that library.
        language_model: Write the head of the student's language model too.
        prompt: The template in which sentences are embedded, with a mask token whose state is the
            embedding; None if there is none. sentence-transformers adds no text after a sentence:
            users of that library must put sentences into the template themselves, or get zero
            vectors.

    Raises:
        OutputError: The folder cannot be written.
    """
    saved_model: Any = student.language_model if language_model else student.model
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config = student.model.config
        config.architectures = [type(saved_model).__name__]
        config.save_pretrained(str(folder))
        student.backbone.tokenizer.save_pretrained(str(folder))
        _save_modules(student, folder, middle_modules)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    weights = _distinct_weights(saved_model)
    head = None if language_model else student.head
    if head is not None and student.test_pooling.through_head:
        # Pooling ``cls``: its head is saved as the transformer's pooler, which loaded encoders use.
        weights |= {
            f"pooler.dense.{name}": tensor for name, tensor in head.linear.state_dict().items()
        }
    cpu_weights = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    write_atomically(folder / "model.safetensors", save(cpu_weights, {"format": "pt"}))
    # stsbench.json, by which stsbench loads the folder: the kind of encoder and its parameters.
    if middle_modules:
        write_saved(folder, kind="sentence_transformer", params={})
        return
    params: dict[str, Any] = {"pooling": str(student.test_pooling)}
    if prompt is not None:
        params |= {"prompt_template": prompt.template, "add_full_stop": prompt.add_full_stop}
    max_length = student.checkpoint.max_length()
    if max_length is not None:
        params["max_length"] = max_length
    write_saved(folder, kind="transformer", params=params)


def _distinct_weights(model: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401
    """Return the weights of a model by name; a tensor with several names by the first of them.

    Such tensors (tied weights) are stored once, since the format of safetensors forbids two names
    for one tensor.

    Args:
        model: A model of transformers.
    """
    weights = model.state_dict()
    # Tied weights have one address in memory. In a dict later entries replace earlier ones, so in
    # reversed order the first name of each address remains.
    first_names = {tensor.data_ptr(): name for name, tensor in reversed(weights.items())}
    return {
        name: tensor for name, tensor in weights.items() if first_names[tensor.data_ptr()] == name
    }


def _save_modules(student: Student, folder: Path, middle_modules: Sequence[Any]) -> None:
    """Write the files by which sentence-transformers runs a trained encoder.

    The library passes sentences through the modules that ``modules.json`` lists: the transformer,
    the ``middle_modules``, a pooling of hidden states, and for pooling ``cls`` the head as a dense
    layer. Each but the transformer gets a folder; the transformer's configuration is written too.

    Args:
        student: The trained encoder; ``test_pooling`` says how its hidden states are pooled.
        folder: The folder to write.
        middle_modules: Modules of the library before the pooling; none if that is ``mask``.
    """
    from sentence_transformers.sentence_transformer import modules

    pooling = student.test_pooling
    uses_earlier_layers = pooling.layers != (-1,)
    # The dimensions of the hidden states behind the transformer, and behind the middle modules.
    width = student.backbone.width
    for module in middle_modules:
        if hasattr(module, "get_embedding_dimension"):
            width = module.get_embedding_dimension()
    saved_modules = list(middle_modules)
    # The library's name of the pooling, such as ``mean`` or ``cls``.
    pooling_mode = pooling.library
    if pooling.pools_mask_token:
        # The library has no such pooling: a weighted mean, in which only the mask token has weight.
        saved_modules = [_mask_token_module(student)]
        pooling_mode = "mean"
    if uses_earlier_layers:
        saved_modules.append(_layer_mean_module(student, pooling.layers))
    saved_modules.append(modules.Pooling(width, pooling_mode=pooling_mode))
    if pooling.through_head and student.head is not None:
        dense = modules.Dense(width, width, activation_function=torch.nn.Tanh())
        dense.linear.load_state_dict(student.head.linear.state_dict())
        saved_modules.append(dense)
    # The older package of the classes, which old and new versions of the library can import.
    package = "sentence_transformers.models"
    entries = [{"idx": 0, "name": "0", "path": "", "type": f"{package}.Transformer"}]
    for index, module in enumerate(saved_modules, 1):
        class_name = type(module).__name__
        path = folder / f"{index}_{class_name}"
        path.mkdir(exist_ok=True)
        module.save(str(path))
        entries.append(
            {
                "idx": index,
                "name": str(index),
                "path": path.name,
                "type": f"{package}.{class_name}",
            }
        )
    transformer_config: dict[str, Any] = {
        "max_seq_length": student.checkpoint.max_length(),
        "do_lower_case": False,
    }
    if uses_earlier_layers:
        # Without this the library's transformer returns the last layer only.
        transformer_config["config_args"] = {"output_hidden_states": True}
    for name, content in (("modules", entries), ("sentence_bert_config", transformer_config)):
        write_atomically(folder / f"{name}.json", (json.dumps(content, indent=1) + "\n").encode())


def _mask_token_module(student: Student) -> Any:  # noqa: ANN401
    """Return a module of sentence-transformers that gives weight to the mask token alone.

    A mean over tokens with these weights is the state of the mask token.

    Args:
        student: The trained encoder, for its vocabulary and the id of its mask token.
    """
    from sentence_transformers.sentence_transformer import modules

    vocabulary_size = student.model.get_input_embeddings().num_embeddings
    # The module names tokens by text; only their ids matter.
    vocabulary = [str(token_id) for token_id in range(vocabulary_size)]
    word_weights = {str(student.backbone.tokenizer.mask_token_id): 1.0}
    return modules.WordWeights(vocabulary, word_weights, unknown_word_weight=0.0)


def _layer_mean_module(student: Student, layers: Sequence[int]) -> Any:  # noqa: ANN401
    """Return a module of sentence-transformers that averages the hidden states of some layers.

    Args:
        student: The trained encoder, for its width and number of layers.
        layers: The indices of hidden states: 0 is the embedding output, -1 the last layer.
    """
    from sentence_transformers.sentence_transformer import modules

    depth = student.backbone.depth
    # Negative indices count from the last layer; the library knows none.
    averaged_layers = [layer % (depth + 1) for layer in layers]
    first_layer = min(averaged_layers)
    # The library has a weight for each layer from ``layer_start`` to the last of the model: 0 for
    # those that are not averaged. It divides by the sum of the weights.
    weights = torch.zeros(depth + 1 - first_layer)
    for layer in averaged_layers:
        weights[layer - first_layer] += 1
    return modules.WeightedLayerPooling(
        student.backbone.width,
        num_hidden_layers=depth,
        layer_start=first_layer,
        layer_weights=torch.nn.Parameter(weights, requires_grad=False),
    )

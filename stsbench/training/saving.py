"""A trained student as a folder that stsbench, transformers and sentence-transformers load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from stsbench.encoders.pooling import Pooling
from stsbench.encoders.saved import write_saved
from stsbench.errors import OutputError
from stsbench.files import write_whole
from stsbench.training.student import Student

_LIBRARY_POOLINGS = {
    "cls": "cls",
    "cls_before_pooler": "cls",
    "mean": "mean",
    "max": "max",
    "last_token": "lasttoken",
}


def save_student(student: Student, folder: Path, between: Sequence[Any] = (), *, language_model: bool = False) -> None:
    """Write configuration, weights, tokenizer, and the pooling in both libraries' words.

    Poolings over several layers have no module in sentence-transformers; such a folder
    has no ``modules.json``, and that library would take it for another pooling.

    Args:
        student: what is written.
        folder: where to.
        between: modules of sentence-transformers between transformer and pooling; with any of them
            it is that library which runs the folder.
        language_model: write the head of the student's language model too.
    """
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
    if between:
        write_saved(folder, "sentence_transformer", {})
        return
    params: dict[str, Any] = {"pooling": str(student.test_pooling)}
    if (length := student.checkpoint.max_length()) is not None:
        params["max_length"] = length
    write_saved(folder, "transformer", params)


def _weights(student: Student) -> dict[str, torch.Tensor]:
    """The transformer's weights; the head, where tests use it, as its pooler."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in student.model.state_dict().items()}
    if student.head is not None and student.test_pooling.kind == "cls":
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


def _save_modules(student: Student, folder: Path, between: Sequence[Any]) -> None:
    """Write ``modules.json`` and the modules' configurations, as sentence-transformers lays them out."""
    from sentence_transformers.sentence_transformer import modules

    pooling: Pooling = student.test_pooling
    if pooling.layers != (-1,) or pooling.kind not in _LIBRARY_POOLINGS:
        return
    width = student.backbone.width
    for step in between:
        width = step.get_embedding_dimension() if hasattr(step, "get_embedding_dimension") else width
    steps: list[Any] = [*between, modules.Pooling(width, pooling_mode=_LIBRARY_POOLINGS[pooling.kind])]
    if pooling.kind == "cls" and student.head is not None:
        dense = modules.Dense(width, width, activation_function=torch.nn.Tanh())
        dense.linear.load_state_dict(student.head.linear.state_dict())
        steps.append(dense)
    kinds = [type(step).__name__ for step in steps]
    listed = [("", "Transformer"), *((f"{number}_{kind}", kind) for number, kind in enumerate(kinds, 1))]
    for (path, _), step in zip(listed[1:], steps, strict=True):
        (folder / path).mkdir(exist_ok=True)
        step.save(str(folder / path))
    _write_module_list(folder, listed, max_length=student.checkpoint.max_length())


def _write_module_list(folder: Path, listed: list[tuple[str, str]], *, max_length: int | None) -> None:
    # These addresses are understood by every version of the library.
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (path, kind) in enumerate(listed)
    ]
    write_whole(folder / "modules.json", (json.dumps(entries, indent=1) + "\n").encode())
    own = {"max_seq_length": max_length, "do_lower_case": False}
    write_whole(folder / "sentence_bert_config.json", (json.dumps(own, indent=1) + "\n").encode())

"""What a checkpoint's own files tell of how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.encoders.checkpoints.saved import read_saved
from stsbench.encoders.transformer.modules import named_prompt, plain_transformer_params, prompts_for_sts
from stsbench.encoders.words.model2vec import is_model2vec


class Told(NamedTuple):
    """A kind of encoder, its parameters beside ``model``, and which files tell them."""

    kind: str
    params: dict[str, Any]
    is_saved: bool = False
    """Whether ``stsbench.json`` tells all."""
    has_modules: bool = False
    """Whether sentence-transformers' files do; without either, a bare transformer tells no pooling."""
    for_sts: str = ""
    """The name of a prompt for STS that the files have and that is not their default; empty where there is none."""

    def beside(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that stand beside those which a user gives: a prompt chosen by its name takes the default's place."""
        return {key: value for key, value in self.params.items() if key != "prompt" or "prompt_name" not in given}


def told_by_files(folder: Path) -> Told:
    """Return what a checkpoint's folder tells.

    Raises:
        EncoderError: a file that tells it is broken. UnknownName: it names a kind that no folder holds.
    """
    if (saved := read_saved(folder)) is not None:
        return Told(saved.kind, dict(saved.params), is_saved=True)
    if is_model2vec(folder):
        return Told("model2vec", {}, has_modules=True)
    plain = plain_transformer_params(folder)
    has_modules = (folder / "modules.json").is_file()
    kind = "sentence_transformer" if has_modules and plain is None else "transformer"
    for_sts = next((name for name in prompts_for_sts(folder) if named_prompt(folder, name)), "")
    default = not for_sts or named_prompt(folder, None) == named_prompt(folder, for_sts)
    return Told(kind, plain or {}, has_modules=has_modules, for_sts="" if default else for_sts)

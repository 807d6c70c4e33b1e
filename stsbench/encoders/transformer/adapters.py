"""LoRA adapters (Hu et al. 2021, arXiv 2106.09685) in peft's format, merged into a checkpoint's weights. No code of theirs is run."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stsbench.data.verify import file_digest
from stsbench.encoders.checkpoints.checkpoint import read_json
from stsbench.errors import EncoderError, one_line, shown

ON_THIS_MACHINE = "give the adapter's folder on this machine"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """One adapter's folder."""

    folder: Path

    @classmethod
    def find(cls, name: str) -> Adapter:
        """Find a folder, or ``owner/name@commit`` of the Hub, and check that it is an adapter that we can merge.

        Raises:
            SourceError: it cannot be had. EncoderError: it is none, or peft is not installed.
        """
        folder = Path(name) if Path(name).is_dir() else _fetched(name)
        for file in (CONFIG, WEIGHTS):
            if not (folder / file).is_file():
                raise EncoderError(f"{folder}: no {file}; is it the folder of a LoRA adapter?")
        kind = read_json(folder / CONFIG).get("peft_type")
        if kind != "LORA":
            raise EncoderError(f"{folder / CONFIG}: peft_type is {shown(kind)}; only LORA is merged")
        if find_spec("peft") is None:
            raise EncoderError(f"the adapter '{name}' needs peft, which is not installed: pip install 'stsbench[peft]'")
        return cls(folder)

    def digests(self) -> dict[str, str]:
        """The sha256 of the files that decide an embedding."""
        return {name: file_digest(self.folder / name) for name in (CONFIG, WEIGHTS)}

    def merged_into(self, model: Any) -> Any:  # noqa: ANN401 - transformers
        """Return the model with the adapter's changes added to its weights.

        Raises:
            EncoderError: the adapter is not of this model.
        """
        import peft
        from safetensors.torch import load_file

        try:
            # Made from the file alone: no class that it names is looked for.
            config = peft.LoraConfig.from_pretrained(str(self.folder))
            config.inference_mode, config.auto_mapping = True, None
            tensors = load_file(self.folder / WEIGHTS)
            with warnings.catch_warnings():
                # Between peft and transformers, whose versions are a user's to choose.
                warnings.simplefilter("ignore")
                wrapped = peft.PeftModel(model, config)
                result = peft.set_peft_model_state_dict(wrapped, _named_as(model, tensors))
        except Exception as error:  # what a broken file makes the library raise
            raise EncoderError(f"{self.folder}: the adapter cannot be loaded: {one_line(error)[:300]}") from error
        lost = [key for key in result.missing_keys if "lora_" in key] + list(result.unexpected_keys)
        if lost:
            raise EncoderError(
                f"{self.folder}: the adapter is of another model: '{lost[0]}' ({len(lost)} tensors in all)"
            )
        return wrapped.merge_and_unload()


def _fetched(name: str) -> Path:
    """The folder of the two files of an adapter on the Hub; raises SourceError."""
    from stsbench.data.hub import fetch_file

    model, _, revision = name.partition("@")
    config = fetch_file(model, CONFIG, revision=revision or "unpinned", kind="model", without=ON_THIS_MACHINE)
    return fetch_file(model, WEIGHTS, revision=config.commit, kind="model", without=ON_THIS_MACHINE).path.parent


def _named_as(model: Any, tensors: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - transformers
    """The tensors as they are named over a model without its head, whichever of the two the adapter was trained over."""
    head = f"base_model.model.{model.base_model_prefix}."
    return {key.replace(head, "base_model.model.", 1): value for key, value in tensors.items()}

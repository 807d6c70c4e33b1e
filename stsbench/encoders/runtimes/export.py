"""A network of torch as an ONNX file in the cache folder, which each runtime reads; a checkpoint's folder is not written to."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from stsbench import settings
from stsbench.encoders.checkpoints.sealed import is_sealed, seal
from stsbench.encoders.runtimes.files import RuntimeFile
from stsbench.encoders.runtimes.network import CODE_VERSION, Network
from stsbench.errors import EncoderError, OutputError, one_line
from stsbench.files.whole import scratch_beside

FILE = "model.onnx"
EXAMPLE = (2, 9)
"""Sentences and tokens of the example by which torch follows the network; any others may come afterwards."""


def exported(network: Network) -> RuntimeFile:
    """Export a network, or find it exported; a file that was damaged since is exported again.

    Raises:
        EncoderError: torch cannot follow what the network does. OutputError: the cache folder cannot be written.
    """
    made_by = {name: version(name) for name in ("torch", "transformers", "onnxscript")}
    asked = network.outputs(network.config().num_hidden_layers)
    facts = json.dumps([CODE_VERSION, network.state, asked, made_by], sort_keys=True)
    target = settings.cache_folder() / "exported" / hashlib.sha256(facts.encode()).hexdigest()
    if not is_sealed(target):
        _write(target, network)
    return RuntimeFile(target, FILE)


def _write(target: Path, network: Network) -> None:
    model = network.make("float32")
    scratch = scratch_beside(target)
    try:
        scratch.mkdir(parents=True)
        _export(model, network, scratch / FILE)
        seal(scratch)
        # Where another process was faster, its folder is as good as ours and may be in use.
        if not is_sealed(target):
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)
    except OSError as error:
        if not is_sealed(target):
            raise OutputError(f"{target}: {error.strerror}; free some space or set STSBENCH_CACHE elsewhere") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _export(model: Any, network: Network, path: Path) -> None:  # noqa: ANN401 - transformers
    depth = model.config.num_hidden_layers
    ids = torch.arange(EXAMPLE[0] * EXAMPLE[1]).reshape(EXAMPLE) % model.get_input_embeddings().num_embeddings
    mask = torch.ones_like(ids)
    mask[1, EXAMPLE[1] // 2 :] = 0
    sizes = {0: torch.export.Dim("sentences"), 1: torch.export.Dim("tokens")}
    try:
        with quiet():
            torch.onnx.export(
                _Asked(model, network.earlier(depth), through_head=network.through_head),
                (ids, mask),
                path,
                dynamo=True,
                verbose=False,
                external_data=True,
                input_names=["input_ids", "attention_mask"],
                output_names=network.outputs(depth),
                dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
            )
    except OSError:
        raise
    except Exception as error:  # whatever a network makes torch's exporter raise
        why = one_line(error)[:300]
        raise EncoderError(f"{network.folder}: torch cannot export it to ONNX: {why}; leave 'backend' out") from error


class _Asked(torch.nn.Module):
    """A network that returns what is asked for, and no more."""

    def __init__(self, model: Any, earlier: list[int], *, through_head: bool) -> None:  # noqa: ANN401 - transformers
        super().__init__()
        self.model, self.earlier, self.through_head = model, earlier, through_head

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(input_ids=input_ids, attention_mask=attention_mask, output_hidden_states=bool(self.earlier))
        head = [found.pooler_output] if self.through_head else []
        return (found.last_hidden_state, *head, *(found.hidden_states[layer] for layer in self.earlier))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep libraries from reporting on what they export or quantise."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        # Some versions of onnxscript say on stdout what they have done; NNCF draws bars there.
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)

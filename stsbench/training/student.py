"""The student: a transformer with its tokenizer and pooling while it is trained, what it starts from, and how it is saved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import transformers
from safetensors.torch import save
from torch.utils.hooks import RemovableHandle

from stsbench.core.cards import BaseSection, StudentSection
from stsbench.core.errors import CardError, EncoderError, OutputError
from stsbench.core.files import write_atomically
from stsbench.encoders.backends import open_device
from stsbench.encoders.base import FloatArray
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.described import write_saved
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.backbone import Backbone, load_model, load_tokenizer
from stsbench.encoders.transformer.pooling import POOLINGS, FirstTokenPooling, Pooling, Prompt
from stsbench.training.loop.on_cpu import (
    Tokens,
    by_length,
    evaluating,
    is_unpadded,
    layout_of,
    padding_computed,
)

DROPOUT = re.compile(
    r"(?!classifier|summary|pooler|qa|seq_classif)\w*(dropout(_prob|_rate)?|pdrop)"
)
"""What configurations call the dropouts of a model's body: BERT's ``hidden_dropout_prob``, GPT-2's ``resid_pdrop``,
ModernBERT's ``mlp_dropout``; those of heads for other tasks are not among them."""
Transform = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Embedding output (b, t, h) and mask (b, t) to what the first layer sees instead."""


def dropouts(config: Mapping[str, Any]) -> dict[str, float]:
    """The dropouts that a configuration names, each a rate."""
    named = {name: rate for name, rate in config.items() if DROPOUT.fullmatch(name)}
    return {name: float(rate) for name, rate in named.items() if type(rate) in (int, float)}


def _new_settings(
    checkpoint: Checkpoint, dropout: float | None, layers: int | None
) -> dict[str, float]:
    """The fields of a checkpoint's configuration that get new values: every dropout, and how many layers there are."""
    config, settings = checkpoint.config(), dict[str, float]()
    if dropout is not None:
        if not (known := dropouts(config)):
            usual = "hidden_dropout_prob, attention_dropout and the like"
            raise EncoderError(
                f"{checkpoint.folder}/config.json: names no dropout ({usual}) to replace"
            )
        settings |= dict.fromkeys(known, dropout)
    if layers is not None:
        name = next((field for field in ("num_hidden_layers", "n_layers") if field in config), None)
        if name is None or not 1 <= layers <= config[name]:
            there = "says not how many" if name is None else f"has {config[name]}"
            raise EncoderError(
                f"{checkpoint.folder}: cannot keep {layers} layers, its configuration {there}"
            )
        settings[name] = layers
    return settings


def fresh_layers(model: Any, *widths: int, bias: bool = True) -> list[torch.nn.Linear]:  # noqa: ANN401
    """Make linear layers between these widths with weights drawn as a transformer's own."""
    layers = [torch.nn.Linear(*pair, bias=bias) for pair in zip(widths, widths[1:], strict=False)]
    for layer in layers:
        torch.nn.init.normal_(layer.weight, std=getattr(model.config, "initializer_range", 0.02))
        if bias:
            torch.nn.init.zeros_(layer.bias)
    return layers


class PoolerHead(torch.nn.Module):
    """A linear layer and tanh over the first token: BERT's pooler, SimCSE's MLP."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - transformers is untyped
        """Make a fresh one for a transformer."""
        super().__init__()
        (self.linear,) = fresh_layers(model, model.config.hidden_size, model.config.hidden_size)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """(b, h) to (b, h)."""
        return torch.tanh(self.linear(state))


class Student(torch.nn.Module):
    """A backbone with the pooling it is trained under, and the one it is tested under.

    Pooling ``cls`` goes through a head of the student's own, a linear layer and tanh (SimCSE's
    MLP, section 6.3 of arXiv 2104.08821); saved, it is the transformer's pooler.

    It starts from a checkpoint, or from its configuration with fresh weights. Its dropout replaces every dropout of the
    configuration; its head is that of ``cls``, fresh or the checkpoint's pooler. With ``language_model`` the
    checkpoint's masked language model head is there too. Where weights are chosen, embeddings are made by
    ``validation_pooling``, by default as in tests. Inputs are cut at ``max_length`` tokens, special tokens included.
    Raises EncoderError where the checkpoint lacks what is asked for.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        facts: StudentSection = StudentSection(),  # noqa: B008 - nothing changes it
        start: BaseSection = BaseSection(),  # noqa: B008
        *,
        validation_pooling: str = "",
        language_model: bool = False,
        device: str = "auto",
    ) -> None:
        """Load what is to be trained."""
        super().__init__()
        limit, max_length = checkpoint.max_length(), facts.max_length
        if max_length is not None and not 3 <= max_length <= (limit or max_length):
            raise CardError(
                f"max_length {max_length}: give 3 to {limit or 'any number'}, the checkpoint's limit"
            )
        self.checkpoint, self.max_length = checkpoint, max_length or limit
        tested = facts.test_pooling or facts.pooling
        self.poolings = [
            Pooling.parse(name) for name in (facts.pooling, tested, validation_pooling or tested)
        ]
        for one in self.poolings:
            if not one.library and not one.of_mask_token:
                known = [kind.name for kind in POOLINGS.values() if kind.library]
                raise CardError(
                    f"pooling '{one}' cannot be trained under; choose one of {', '.join(known)}"
                )
        self.pooling, self.test_pooling, self.validation_pooling = self.poolings
        self.chunk: int | None = None
        """While training, so many texts go through the model at a time; None: the whole batch."""
        self.compiled = False
        place = open_device(device)
        whole, missing = self._start(
            _new_settings(checkpoint, facts.dropout, start.layers), start, language_model
        )
        self.language_model = whole.to(place) if language_model else None
        self.model: Any = whole.base_model.to(place)
        self.backbone = Backbone(load_tokenizer(checkpoint), self.model, place)
        self.head: PoolerHead | None = None
        if any(one.through_head for one in self.poolings):
            self.head = self._make_head(missing, fresh=facts.head == "fresh").to(place)
        for one in self.poolings:
            one.states(self.backbone.depth)
        # A pooler that is no part of the head is not trained, and its gradient would be missed by other ranks.
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = None

    def _start(
        self, settings: Mapping[str, float], start: BaseSection, language_model: bool
    ) -> tuple[Any, list[str]]:
        """A model to start from, and the weights that its checkpoint lacks and may lack."""
        folder = self.checkpoint.folder
        kind: Any = transformers.AutoModelForMaskedLM if language_model else transformers.AutoModel
        if start.from_scratch:
            options = {"local_files_only": True, "trust_remote_code": False, **settings}
            return kind.from_config(
                transformers.AutoConfig.from_pretrained(str(folder), **options)
            ), []
        whole, missing = load_model(kind, self.checkpoint, dtype="float32", **settings)
        body = f"{whole.base_model_prefix}." if start.fresh_language_head and language_model else ""
        if lost := [key for key in missing if "pooler" not in key and key.startswith(body)]:
            what = "its head as a language model, " if language_model else ""
            raise EncoderError(
                f"{folder}: the weights lack {what}'{lost[0]}' ({len(lost)} tensors in all)"
            )
        return whole, missing

    def _make_head(self, missing: Sequence[str], *, fresh: bool) -> PoolerHead:
        model = self.model
        made = PoolerHead(model)
        if not fresh:
            pooler: Any = getattr(model, "pooler", None)
            if not hasattr(pooler, "dense") or any("pooler" in key for key in missing):
                raise EncoderError(
                    f"{self.checkpoint.folder}: has no pooler to start from; use head = 'fresh'"
                )
            made.linear.load_state_dict(pooler.dense.state_dict())
        if self.test_pooling.through_head:
            with torch.device("meta"):
                plain: Any = transformers.AutoModel.from_config(model.config)
            if not hasattr(getattr(plain, "pooler", None), "dense"):
                what = f"pooling 'cls': {type(plain).__name__} has no pooler to save the head as"
                raise EncoderError(
                    f"{what}; use it in training alone, with test_pooling = 'cls_before_pooler'"
                )
        return made

    def need_pooling(self, name: str, why: str) -> None:
        """Raise CardError where it is trained, validated or tested under another pooling than a method needs."""
        if {str(one) for one in self.poolings} != {name}:
            raise CardError(f"{why}: each pooling must be '{name}'")

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return cast(torch.device, next(self.model.parameters()).device)

    def tokenize(self, texts: Sequence[str], *, max_length: int | None = None) -> TokenIds:
        """Return the token ids of each text, special tokens included."""
        return self.backbone.tokenize(texts, max_length=max_length or self.max_length)

    def collate(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> dict[str, torch.Tensor]:
        """Return model inputs (b, t) of some of the tokenised texts, padded on the right, on the CPU."""
        ids, mask = tokens.padded(rows, pad=self.backbone.pad_token)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def by_length(
        self,
        tokens: Tokens,
        compute: Callable[[Tokens], torch.Tensor],
        model: Any = None,  # noqa: ANN401
    ) -> torch.Tensor:  # noqa: ANN401
        """As :func:`stsbench.training.loop.on_cpu.by_length`, in the student's chunks; ``model`` is what leaves padding out, if it does."""
        return by_length(
            tokens, compute, chunk=self.chunk, unpadded=model is not None and is_unpadded(model)
        )

    def embed(
        self,
        tokens: Tokens,
        *,
        transform: Transform | None = None,
        pooling: Pooling | None = None,
        generator: torch.Generator | None = None,
        dropout: bool = True,
    ) -> torch.Tensor:
        """Embed a batch, (b, t) each, under the training pooling or another: to (b, h).

        On a CPU the batch is run without its padding, or in parts of like length, so that little of it is padding: the
        loss over the whole batch stays what it is. So it does in chunks. ``transform`` changes the embedding output,
        and draws from ``generator``; without ``dropout`` there is none in training either.
        """

        def compute(part: Tokens) -> torch.Tensor:
            with nullcontext() if dropout else evaluating(self):
                states = self.hidden_states(part, self.layers(pooling), transform=transform)
                return self.pooled(states, part["attention_mask"], pooling)

        chunk = self.chunk if torch.is_grad_enabled() else None
        return by_length(
            tokens, compute, chunk=chunk, generator=generator, unpadded=is_unpadded(self.model)
        )

    def layers(self, pooling: Pooling | None = None) -> tuple[int, ...]:
        """The hidden states that a pooling takes, by default the training's."""
        return (pooling or self.pooling).states(self.backbone.depth)

    def pooled(
        self, states: Sequence[torch.Tensor], mask: torch.Tensor, pooling: Pooling | None = None
    ) -> torch.Tensor:
        """Pool hidden states (b, t, h) of :meth:`layers` into embeddings (b, h)."""
        pooling = pooling or self.pooling
        if self.head is None or not pooling.through_head:
            return pooling.pool(states, mask)
        # The head stands on the first token of the last layer.
        embeddings: torch.Tensor = self.head(FirstTokenPooling().pool(states, mask))
        return embeddings

    def hidden_states(
        self,
        tokens: Tokens,
        layers: Sequence[int],
        *,
        transform: Transform | None = None,
        padding: bool = False,
    ) -> list[torch.Tensor]:
        """Return the hidden states (b, t, h) of these layers, 0 being the embedding output, which ``transform`` changes first.

        Where ``padding`` is asked for, the states there count too; otherwise they may be anything.
        """
        if transform is None and not padding:
            return self.backbone.hidden_states(tokens, layers)
        changed = (
            nullcontext()
            if transform is None
            else self._embedding_hook(transform, tokens["attention_mask"])
        )
        with changed, padding_computed(self.model) if padding else nullcontext():
            return self.backbone.padded_states(tokens, layers)

    def _embedding_hook(self, transform: Transform, mask: torch.Tensor) -> RemovableHandle:
        if self.compiled:
            raise CardError(
                "[training] compile: the method changes what is computed within the model; leave it out"
            )
        embeddings = getattr(self.model, "embeddings", None)
        if embeddings is None:
            raise EncoderError(
                f"{type(self.model).__name__} has no module 'embeddings' to change the output of"
            )

        def change(module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
            layout = layout_of(self.model)
            return (
                transform(output, mask)
                if layout is None
                else layout.join(transform(layout.spread(output), mask))
            )

        handle: RemovableHandle = embeddings.register_forward_hook(change)
        return handle

    def encoder(self, name: str = "student") -> StudentEncoder:
        """The student as validation sees it, as it is now."""
        return StudentEncoder(self, name)


class StudentEncoder:
    """A student as an encoder: evaluation mode, the pooling of validation, no gradients."""

    fingerprint: str | None = None

    def __init__(
        self,
        student: Student,
        name: str = "student",
        *,
        embed: Callable[[Tokens], torch.Tensor] | None = None,
        width: int | None = None,
        around: Callable[[Sequence[str]], Sequence[str]] = lambda sentences: sentences,
    ) -> None:
        """Keep the student; its weights are never copied.

        ``embed`` takes a batch (b, t) to (b, width) in another way than the student, ``around`` puts sentences in a template.
        """
        self.student, self.name, self.width, self.around = (
            student,
            name,
            width or student.backbone.width,
            around,
        )
        self.embed = embed or (
            lambda tokens: student.embed(tokens, pooling=student.validation_pooling)
        )

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        if not len(sentences):
            return np.zeros((0, self.width), dtype=np.float32)
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        # Training may cut; a test sentence is read whole.
        return self.student.tokenize(
            self.around(sentences), max_length=self.student.checkpoint.max_length()
        )

    def embed_tokens(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""
        student = self.student
        with evaluating(student), torch.inference_mode():
            batch = {
                name: values.to(student.device)
                for name, values in student.collate(tokens, rows).items()
            }
            embeddings: FloatArray = self.embed(batch).float().cpu().numpy()
        return embeddings


def save_student(
    student: Student,
    folder: Path,
    between: Sequence[Any] = (),
    *,
    language_model: bool = False,
    prompt: Prompt | None = None,
) -> None:
    """Write a folder that stsbench, transformers and sentence-transformers load, with the pooling in both libraries' words.

    ``between`` are modules of sentence-transformers between transformer and pooling; with any of them it is that
    library which runs the folder. ``language_model`` writes the head of the student's language model too. ``prompt`` is
    the template that sentences are embedded in, by its mask token. That library has no text after a sentence: there,
    sentences must come in the template, or they are zero vectors.
    """
    whole: Any = student.language_model if language_model else student.model
    try:
        folder.mkdir(parents=True, exist_ok=True)
        config = student.model.config
        config.architectures = [type(whole).__name__]
        config.save_pretrained(str(folder))
        student.backbone.tokenizer.save_pretrained(str(folder))
        _save_modules(student, folder, between)
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    # Tied weights once; the head, where tests use it, as the transformer's pooler.
    once = {tensor.data_ptr(): name for name, tensor in reversed(whole.state_dict().items())}
    weights = {
        name: tensor
        for name, tensor in whole.state_dict().items()
        if once[tensor.data_ptr()] == name
    }
    if student.head is not None and student.test_pooling.through_head and not language_model:
        weights |= {
            f"pooler.dense.{name}": tensor
            for name, tensor in student.head.linear.state_dict().items()
        }
    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    write_atomically(folder / "model.safetensors", save(ready, {"format": "pt"}))
    if between:
        write_saved(folder, "sentence_transformer", {})
        return
    params: dict[str, Any] = {"pooling": str(student.test_pooling)}
    if prompt is not None:
        params |= {"prompt_template": prompt.template, "add_full_stop": prompt.add_full_stop}
    if (length := student.checkpoint.max_length()) is not None:
        params["max_length"] = length
    write_saved(folder, "transformer", params)


def _save_modules(student: Student, folder: Path, between: Sequence[Any]) -> None:
    """Write ``modules.json`` and the modules' configurations, as sentence-transformers lays them out."""
    from sentence_transformers.sentence_transformer import modules

    pooling, depth, width = student.test_pooling, student.backbone.depth, student.backbone.width
    steps, mode = list(between), pooling.library
    for step in between:
        width = (
            step.get_embedding_dimension() if hasattr(step, "get_embedding_dimension") else width
        )
    if pooling.of_mask_token:
        # Tokens but the mask's weigh nothing in the mean.
        vocabulary = [
            str(number) for number in range(student.model.get_input_embeddings().num_embeddings)
        ]
        alone = {str(student.backbone.tokenizer.mask_token_id): 1.0}
        steps, mode = [modules.WordWeights(vocabulary, alone, unknown_word_weight=0.0)], "mean"
    if pooling.layers != (-1,):
        # The library's mean over layers, of these alone.
        counted = [layer % (depth + 1) for layer in pooling.layers]
        weights = torch.zeros(depth + 1 - min(counted))
        for layer in counted:
            weights[layer - min(counted)] += 1
        options = {
            "layer_start": min(counted),
            "layer_weights": torch.nn.Parameter(weights, requires_grad=False),
        }
        steps.append(
            modules.WeightedLayerPooling(student.backbone.width, num_hidden_layers=depth, **options)
        )
    steps.append(modules.Pooling(width, pooling_mode=mode))
    if pooling.through_head and student.head is not None:
        dense = modules.Dense(width, width, activation_function=torch.nn.Tanh())
        dense.linear.load_state_dict(student.head.linear.state_dict())
        steps.append(dense)
    # These addresses are understood by every version of the library.
    of_library = "sentence_transformers.models"
    entries = [{"idx": 0, "name": "0", "path": "", "type": f"{of_library}.Transformer"}]
    for number, step in enumerate(steps, 1):
        kind = type(step).__name__
        path = folder / f"{number}_{kind}"
        path.mkdir(exist_ok=True)
        step.save(str(path))
        entries.append(
            {"idx": number, "name": str(number), "path": path.name, "type": f"{of_library}.{kind}"}
        )
    own: dict[str, Any] = {
        "max_seq_length": student.checkpoint.max_length(),
        "do_lower_case": False,
    }
    if pooling.layers != (-1,):
        # Only then does the library's transformer pass more than its last layer.
        own["config_args"] = {"output_hidden_states": True}
    for name, content in (("modules", entries), ("sentence_bert_config", own)):
        write_atomically(folder / f"{name}.json", (json.dumps(content, indent=1) + "\n").encode())

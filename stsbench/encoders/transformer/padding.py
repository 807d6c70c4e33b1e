"""Models whose states depend on padding, whatever the mask says: each sentence is computed with others of its length alone.

ConvBERT's convolutions read across a sentence's end, FNet transforms its padding too, Nyströmformer's landmarks are means over it. In a
batch with longer sentences such a model gives another embedding, and so another score where other tasks are scored beside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import sqrt
from typing import Any

import torch

LENGTHS = (5, 12)
"""Of the two made sentences that tell, in tokens."""
ModelInputs = Mapping[str, torch.Tensor]


@torch.no_grad()
def padding_matters(model: Any, pad: int, device: torch.device) -> bool:  # noqa: ANN401 - transformers is untyped
    """Whether a model gives the tokens of a sentence other states beside a longer one than alone."""
    short, long = LENGTHS
    table = int(model.get_input_embeddings().num_embeddings)
    known = [number for number in range(max(table - long - 1, 0), table) if number != pad]
    ids = torch.tensor([(known * long)[:long]] * 2, device=device)
    mask = torch.arange(long, device=device) < torch.tensor(LENGTHS, device=device)[:, None]
    training = bool(getattr(model, "training", False))
    if training:
        model.eval()
    alone = model(input_ids=ids[:1, :short]).last_hidden_state[0]
    beside = model(input_ids=ids.where(mask, pad), attention_mask=mask.long()).last_hidden_state[0, :short]
    if training:
        model.train()
    far = (alone - beside).abs().max()
    return bool(far > sqrt(torch.finfo(alone.dtype).eps) * alone.abs().max())


def by_lengths(batch: ModelInputs) -> Iterator[tuple[torch.Tensor, ModelInputs]]:
    """The rows (b,) of each length in a batch padded on one side, with their ids (b', t') without padding."""
    ids, mask = batch["input_ids"], batch["attention_mask"] != 0
    lengths = mask.sum(dim=1)
    for length in sorted(set(lengths.tolist())):
        rows = lengths == length
        yield rows, {"input_ids": ids[rows][mask[rows]].view(-1, length)}


def states_by_length(
    batch: ModelInputs, compute: Callable[[ModelInputs], Sequence[torch.Tensor]]
) -> list[torch.Tensor]:
    """The states (b, t, h) that rows of each length have by themselves, zeros at padding.

    Args:
        batch: ``input_ids`` and ``attention_mask``, (b, t) each, padded on one side.
        compute: from ids (b', t') without padding to states (b', t', h).
    """
    mask = batch["attention_mask"] != 0
    whole: list[torch.Tensor] = []
    for rows, part in by_lengths(batch):
        found = compute(part)
        whole = whole or [state.new_zeros((*mask.shape, state.shape[-1])) for state in found]
        for all_states, states in zip(whole, found, strict=True):
            all_states[mask & rows[:, None]] = states.flatten(0, 1)
    return whole

"""The two linear maps into one space, their loss, and how they are trained.

After SentEval's ``senteval/tools/ranking.py`` at 5d6dc11; Kiros et al. (arXiv 1411.2539), section 3.2,
give the loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stsbench.encoders.seams import IndexArray
from stsbench.errors import EncoderError
from stsbench.evaluators.retrieval.protocols import RetrievalProtocol
from stsbench.evaluators.retrieval.ranks import Ranks, rank_fold, summed_recall
from stsbench.evaluators.retrieval.rows import PlacedRows


class Linear(NamedTuple):
    """A linear map with a bias onto the unit sphere: ``weight`` (p, size), ``bias`` (p,)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows (..., size) to unit vectors (..., p)."""
        mapped = functional.linear(rows, self.weight, self.bias)
        return mapped / mapped.pow(2).sum(dim=-1, keepdim=True).sqrt()

    def frozen(self) -> Linear:
        """A copy that no longer changes."""
        return Linear(self.weight.detach().clone(), self.bias.detach().clone())


class Maps(NamedTuple):
    """The maps of image features and of caption embeddings."""

    images: Linear
    captions: Linear

    def frozen(self) -> Maps:
        """A copy that no longer changes."""
        return Maps(self.images.frozen(), self.captions.frozen())


class CaptionSide(NamedTuple):
    """One split: features of images (i, f), embeddings of captions (n, d), the image of each caption (n,)."""

    images: PlacedRows
    captions: PlacedRows
    image_of_caption: IndexArray


class TrainedMaps(NamedTuple):
    """The maps at their best check, the sum of recalls there, and the epochs trained in all."""

    maps: Maps
    recall: float
    epochs: int


def starting_maps(image_size: int, caption_size: int, projection: int, *, seed: int, device: str) -> Maps:
    """The first weights that torch draws for the toolkit: the images' map, then the captions'."""
    generator = torch.Generator().manual_seed(seed)
    maps = []
    for size in (image_size, caption_size):
        weight = torch.empty(projection, size)
        torch.nn.init.kaiming_uniform_(weight, a=5**0.5, generator=generator)
        bias = torch.empty(projection).uniform_(-(size**-0.5), size**-0.5, generator=generator)
        maps.append(Linear(weight.to(device).requires_grad_(), bias.to(device).requires_grad_()))
    return Maps(*maps)


def ranking_loss(
    images: Tensor, captions: Tensor, other_images: Tensor, other_captions: Tensor, margin: float
) -> Tensor:
    """How far the right partner fails to lead each contrast by the margin, summed.

    Args:
        images: unit vectors (b, p), each of the image of the same row of ``captions``.
        captions: unit vectors (b, p).
        other_images: unit vectors (b, k, p), contrasts to the image of each caption.
        other_captions: unit vectors (b, k, p), contrasts to the caption of each image.
        margin: of the hinge.
    """
    right = (images * captions).sum(dim=1, keepdim=True)  # (b, 1)
    wrong_captions = torch.einsum("bp,bkp->bk", images, other_captions)
    wrong_images = torch.einsum("bp,bkp->bk", captions, other_images)
    return (margin - right + wrong_captions).clamp(min=0).sum() + (margin - right + wrong_images).clamp(min=0).sum()


def draw_outside(rng: np.random.RandomState, order: IndexArray, start: int, stop: int, size: int) -> IndexArray:
    """Draw from the order (n,), with replacement, items outside the batch [start, stop).

    The draws of ``numpy.random.choice`` over the order without the batch, which is not built.
    """
    drawn = rng.randint(0, len(order) - (stop - start), size)
    drawn[drawn >= start] += stop - start
    return order[drawn]


def train_maps(
    train: CaptionSide, validation: CaptionSide, protocol: RetrievalProtocol, *, seed: int, device: str
) -> TrainedMaps:
    """Train until the sum of recalls on the validation split has failed to improve too often."""
    maps = starting_maps(train.images.shape[1], train.captions.shape[1], protocol.projection, seed=seed, device=device)
    optimiser = torch.optim.Adam([*maps.images, *maps.captions], lr=protocol.learning_rate)
    rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
    best, kept, failures, epochs = -1.0, maps.frozen(), 0, 0
    # The toolkit tests before each epoch: the last one comes after max_epochs, not at it.
    while failures <= protocol.tenacity and epochs <= protocol.max_epochs:
        _train_epoch(maps, optimiser, train, protocol, rng)
        epochs += 1
        recall = summed_recall(rank_folds(maps, validation, protocol))
        if recall > best:
            best, kept = recall, maps.frozen()
        else:
            failures += 1
    return TrainedMaps(kept, best, epochs)


def _train_epoch(
    maps: Maps,
    optimiser: torch.optim.Optimizer,
    train: CaptionSide,
    protocol: RetrievalProtocol,
    rng: np.random.RandomState,
) -> None:
    n, k = len(train.image_of_caption), protocol.contrasts
    order = rng.permutation(n)
    for start in range(0, n, protocol.batch_size):
        stop = min(start + protocol.batch_size, n)
        # Contrasts are drawn as captions, then their images taken: the right image may be among them.
        other_images, other_captions = (draw_outside(rng, order, start, stop, k * (stop - start)) for _ in range(2))
        loss = ranking_loss(
            maps.images(train.images.take(train.image_of_caption[order[start:stop]])),
            maps.captions(train.captions.take(order[start:stop])),
            maps.images(train.images.take(train.image_of_caption[other_images])).view(stop - start, k, -1),
            maps.captions(train.captions.take(other_captions)).view(stop - start, k, -1),
            protocol.margin,
        )
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()


@torch.no_grad()
def rank_folds(maps: Maps, side: CaptionSide, protocol: RetrievalProtocol) -> list[Ranks]:
    """Rank images and captions within each fold; a fold's captions follow each other, image by image.

    Raises:
        EncoderError: the maps have left the range of numbers.
    """
    size, per_image = protocol.fold_images, protocol.captions_per_image
    folds = []
    for start in range(0, protocol.folds * size, size):
        images = maps.images(side.images.take(np.arange(start, start + size)))
        captions = maps.captions(side.captions.take(np.arange(start * per_image, (start + size) * per_image)))
        _check_lengths(images, captions)
        folds.append(rank_fold((images @ captions.T).cpu().numpy()))
    return folds


def _check_lengths(*vectors: Tensor) -> None:
    """Refuse vectors (n, p) that are not of length 1: NaN and overflow would pass for ranks."""
    for side in vectors:
        if not bool(((side.norm(dim=1) - 1).abs() < 1e-3).all()):
            raise EncoderError("the trained maps give no finite numbers: the embeddings are too large to train on")

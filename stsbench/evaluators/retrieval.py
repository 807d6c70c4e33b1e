"""Image-caption retrieval: SentEval's COCO task, scored by two linear maps of frozen embeddings into one space.

Source: SentEval (arXiv 1803.05449), ``senteval/rank.py`` and ``senteval/tools/ranking.py`` at 5d6dc11; Kiros et al.
(arXiv 1411.2539), section 3.2, give the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import CaptionSplit, Split
from stsbench.encoders.base import Embed, EmbeddingRows, FloatArray, IndexArray
from stsbench.evaluators.base import (
    ItemColumns,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Scores,
    inspect_embeddings,
    require_splits,
)
from stsbench.evaluators.probe.items import first_weights
from stsbench.evaluators.probe.minibatch import TrainedClassifier
from stsbench.numbers.statistics import IMAGE_INTERVAL_METHOD, ItemDependence, share_interval

if TYPE_CHECKING:
    from torch import Tensor

DEPTHS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class RetrievalProtocol:
    """SentEval's ranking model.

    The score, ``mean_recall``, is the mean of six recalls: of the first 1, 5 and 10, image to text and
    text to image. The toolkit reports the six apart; their mean is DeCLUTR's.

    Recalls are taken within ``folds`` times ``fold_images`` images and averaged. A check follows each epoch, the last
    after the first beyond ``max_epochs``; training ends at check ``tenacity + 1`` without a better sum of recalls,
    counted in all, never reset. Each caption of a batch is ranked against ``contrasts`` images and as many captions
    from outside it; the hinge is summed. With seed ``s`` it is the toolkit's run with its seed at ``base_seed + s``.
    """

    name: str
    metric: Literal["mean_recall"] = "mean_recall"
    base_seed: NonNegativeInt = 1111
    projection: PositiveInt = 1000
    margin: PositiveFloat = 0.2
    contrasts: PositiveInt = 30
    optimiser: Literal["adam"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    batch_size: PositiveInt = 128
    max_epochs: NonNegativeInt = 20
    tenacity: NonNegativeInt = 3
    folds: PositiveInt = 5
    fold_images: PositiveInt = 1000
    captions_per_image: PositiveInt = 5


PROTOCOLS = {"senteval": RetrievalProtocol(name="senteval")}


class RetrievalEvaluator:
    """Scores how well captions find their image and images their captions, both mapped into one space.

    The toolkit's eight progress scorings an epoch, which decide nothing, are left out.
    """

    PROTOCOLS: ClassVar[Mapping[str, RetrievalProtocol]] = PROTOCOLS

    def __init__(
        self, protocol: RetrievalProtocol, *, device: str | None = None, memory: int = 4 << 30
    ) -> None:
        """Set up the evaluator.

        The device is torch's; default a GPU where there is one, for SentEval's data are hours of CPU. ``memory`` is how many bytes
        of the training split's image features and embeddings are held on it; larger ones are gathered batch by batch.
        """
        self.protocol, self.device, self.memory = protocol, device, memory

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train on ``train``, choose on ``validation``, score ``test``; seed 0 is the published run.

        Raises DataError: other splits, too few images or captions, or not in their images' order; EncoderError:
        embeddings too large to train on.
        """
        import torch

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        found_splits = require_splits(splits, CaptionSplit, "retrieval", "captions of images")
        _check(found_splits, self.protocol)
        sides, looks = {}, []
        for name, split in found_splits.items():
            view = embed(split.captions)
            looks.append(inspect_embeddings(view))
            # Only those of the training split are worth holding.
            hold = (
                name == "train"
                and 4 * (split.image_features.size + view.shape[0] * view.shape[1]) <= self.memory
            )
            images, captions = (
                IndexedRows(rows, device, hold=hold) for rows in (split.image_features, view)
            )
            sides[name] = CaptionSide(images, captions, split.image_of_caption)
        trained = train_maps(
            sides["train"],
            sides["validation"],
            self.protocol,
            seed=self.protocol.base_seed + seed,
            device=device,
        )
        ranks = np.concatenate(rank_folds(trained.weights, sides["test"], self.protocol))
        columns = zip(self._columns(), np.ascontiguousarray(ranks.T), strict=True)
        found = self.recompute({"recall": recall_of_images(ranks), **dict(columns)})
        zeros, notes = sum(look.zero_vectors for look in looks), list[str]()
        if zeros:
            notes.append(f"{zeros} captions have a zero vector as embedding")
        if all(look.is_constant for look in looks):
            notes.append(
                "every caption of a split has the same embedding: only chance is left to find its image"
            )
        scores = {**found.scores, "dev_mean_recall": trained.accuracy / 600}
        return replace(found, scores=scores, zero_vectors=zeros, notes=tuple(notes))

    def _columns(self) -> list[str]:
        return [
            "i2t_rank",
            *(f"t2i_rank_{at + 1}" for at in range(self.protocol.captions_per_image)),
        ]

    def recompute(self, items: ItemColumns) -> Scores:
        """Make the recalls within folds of images from the ranks of each image and of its captions.

        Raises DataError: a column of ranks is missing, or ``recall`` is not what the ranks make.
        """
        if missing := [name for name in self._columns() if name not in items]:
            raise DataError(f"lacks the column '{missing[0]}'")
        ranks = np.stack([np.asarray(items[name]) for name in self._columns()], axis=1)
        recall, size = recall_of_images(ranks), self.protocol.fold_images
        if not np.allclose(recall, np.asarray(items["recall"]), rtol=0, atol=1e-9):
            raise DataError("column 'recall' is not what the ranks make")
        scores = mean_scores([ranks[at : at + size] for at in range(0, len(ranks), size)])
        recalls = [value for name, value in scores.items() if ".recall@" in name]
        score = sum(recalls) / len(recalls)
        return Scores(
            score=score,
            scores={"mean_recall": score, **scores},
            interval=share_interval(recall, ItemDependence.without_shared(len(recall))),
            interval_method=IMAGE_INTERVAL_METHOD,
            per_item=items,
            n=len(recall),
        )


def _check(splits: Mapping[str, CaptionSplit], protocol: RetrievalProtocol) -> None:
    if (count := splits["train"].n) <= protocol.batch_size:
        raise DataError(
            f"split 'train' has {count} captions: more than a batch of {protocol.batch_size} are needed"
        )
    images, per_image = protocol.folds * protocol.fold_images, protocol.captions_per_image
    in_order = np.repeat(np.arange(images), per_image)
    for name in ("validation", "test"):
        split = splits[name]
        if len(split.image_features) < images:
            needed = f"{protocol.folds} folds of {protocol.fold_images}"
            raise DataError(
                f"split '{name}' has {len(split.image_features)} images, {needed} are needed"
            )
        if not np.array_equal(split.image_of_caption[: len(in_order)], in_order):
            raise DataError(
                f"split '{name}' does not hold {per_image} captions of each image in turn"
            )


# Ranks (i, 1 + c) say where the right answer came, from 0: for each image the best of its captions, then for each caption its image.


def rank_fold(similarity: FloatArray) -> IndexArray:
    """Rank one fold, (i, 1 + c), given the similarity (i, i * c) of its images and captions, c captions an image in turn."""
    images, captions = similarity.shape
    per_image = captions // images
    own = np.take_along_axis(similarity, np.arange(captions).reshape(images, per_image), axis=1)
    # Of an image's captions the most similar ranks first; of equals the last.
    best = per_image - 1 - own[:, ::-1].argmax(axis=1)
    i2t = ranks_of(similarity, np.arange(0, captions, per_image) + best)
    t2i = ranks_of(np.ascontiguousarray(similarity.T), np.repeat(np.arange(images), per_image))
    return np.column_stack([i2t, t2i.reshape(images, per_image)])


def ranks_of(similarity: FloatArray, target: IndexArray) -> IndexArray:
    """The rank from 0 of one candidate a query: similarity (q, n), target (q,) -> (q,).

    Candidates of equal similarity rank by their place, the last first: the order of a stable sort read
    from its end. The toolkit reads an unstable sort from its end, whose ties are left to chance; to count
    only what is strictly better would give an encoder whose embeddings are all the same a full score.
    """
    own = np.take_along_axis(similarity, target[:, None], axis=1)
    tied_after = (similarity == own) & (np.arange(similarity.shape[1]) > target[:, None])
    return np.asarray(np.count_nonzero((similarity > own) | tied_after, axis=1))


SCORE_NAMES = [
    f"{way}.{name}"
    for way in ("i2t", "t2i")
    for name in (*(f"recall@{k}" for k in DEPTHS), "median_rank")
]


def fold_scores(ranks: IndexArray) -> list[float]:
    """``MEASURES``: recall in points of the first 1, 5 and 10, and the median rank from 1, of both directions as the toolkit has them."""
    found = list[float]()
    for own in (ranks[:, 0], ranks[:, 1:]):
        found += [100.0 * int((own < depth).sum()) / own.size for depth in DEPTHS]
        found.append(float(np.floor(np.median(own)) + 1))
    return found


def summed_recall(folds: Sequence[IndexArray]) -> float:
    """The sum of the six recalls in points, averaged over folds: what chooses the weights.

    Sums in the toolkit's order, for two epochs are compared by ``>``.
    """
    total = 0.0
    for i1, i5, i10, _, t1, t5, t10, _ in map(fold_scores, folds):
        total += (i1 + i5 + i10 + t1 + t5 + t10) / len(folds)
    return total


def mean_scores(folds: Sequence[IndexArray]) -> dict[str, float]:
    """Recalls in [0, 1] and median ranks of both directions, averaged over folds."""
    means = zip(
        SCORE_NAMES, np.mean([fold_scores(ranks) for ranks in folds], axis=0).tolist(), strict=True
    )
    return {name: value / 100 if ".recall@" in name else value for name, value in means}


def recall_of_images(ranks: IndexArray) -> npt.NDArray[np.float64]:
    """What each image gives to the mean recall, (i,): the mean over depths and both directions."""
    i2t = np.mean([ranks[:, 0] < depth for depth in DEPTHS], axis=0)
    t2i = np.mean([(ranks[:, 1:] < depth).mean(axis=1) for depth in DEPTHS], axis=0)
    return np.asarray((i2t + t2i) / 2)


def project_to_unit(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map rows (..., size) by a weight (p, size) and a bias (p,) to unit vectors (..., p)."""
    from torch.nn import functional

    mapped = functional.linear(rows, weight, bias)
    return mapped / mapped.pow(2).sum(dim=-1, keepdim=True).sqrt()


Maps = Sequence["Tensor"]
"""Weight (p, f) and bias (p,) of the map of image features, then weight (p, d) and bias (p,) of that of embeddings."""


class CaptionSide(NamedTuple):
    """One split: features of images (i, f), embeddings of captions (n, d), the image of each caption (n,)."""

    images: IndexedRows
    captions: IndexedRows
    image_of_caption: IndexArray


def ranking_loss(
    images: Tensor, captions: Tensor, other_images: Tensor, other_captions: Tensor, margin: float
) -> Tensor:
    """How far the right partner fails to lead each contrast by the margin, summed.

    All are unit vectors: ``images`` and ``captions`` (b, p) row by row; ``other_images`` (b, k, p) contrasts to the
    image of each caption, ``other_captions`` (b, k, p) to the caption of each image.
    """
    import torch

    right = (images * captions).sum(dim=1, keepdim=True)  # (b, 1)
    wrong_captions = torch.einsum("bp,bkp->bk", images, other_captions)
    wrong_images = torch.einsum("bp,bkp->bk", captions, other_images)
    return (margin - right + wrong_captions).clamp(min=0).sum() + (
        margin - right + wrong_images
    ).clamp(min=0).sum()


def draw_outside(
    rng: np.random.RandomState, order: IndexArray, start: int, inside: int, size: int
) -> IndexArray:
    """Draw from the order (n,), with replacement, items outside the batch of so many inside that begins at ``start``.

    The draws of ``numpy.random.choice`` over the order without the batch, which is not built.
    """
    drawn = rng.randint(0, len(order) - inside, size)
    drawn[drawn >= start] += inside
    return order[drawn]


def train_maps(
    train: CaptionSide,
    validation: CaptionSide,
    protocol: RetrievalProtocol,
    *,
    seed: int,
    device: str,
) -> TrainedClassifier:
    """Train until the sum of recalls on the validation split has failed to improve too often."""
    import torch

    sizes = train.images.shape[1], train.captions.shape[1]
    tensors, _ = first_weights(seed, *((size, protocol.projection) for size in sizes))
    maps = [tensor.to(device).requires_grad_() for tensor in tensors]
    optimiser = torch.optim.Adam(maps, lr=protocol.learning_rate)
    rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
    found, failures, epochs = TrainedClassifier(), 0, 0
    # The toolkit tests before each epoch: the last one comes after max_epochs, not at it.
    while failures <= protocol.tenacity and epochs <= protocol.max_epochs:
        order = rng.permutation(len(train.image_of_caption))
        for start in range(0, len(order), protocol.batch_size):
            batch = order[start : start + protocol.batch_size]
            # Contrasts are drawn as captions, then their images taken: the right image may be among them.
            drawn = [
                draw_outside(rng, order, start, len(batch), protocol.contrasts * len(batch))
                for _ in range(2)
            ]
            images, other_images = (
                project_to_unit(train.images.take(train.image_of_caption[at]), *maps[:2])
                for at in (batch, drawn[0])
            )
            captions, other_captions = (
                project_to_unit(train.captions.take(at), *maps[2:]) for at in (batch, drawn[1])
            )
            others = [
                rows.view(len(batch), protocol.contrasts, -1)
                for rows in (other_images, other_captions)
            ]
            optimiser.zero_grad()
            torch.autograd.backward(
                ranking_loss(images, captions, others[0], others[1], protocol.margin)
            )
            optimiser.step()
        epochs += 1
        recall = summed_recall(rank_folds(maps, validation, protocol))
        if recall > found.accuracy:
            found.weights, found.accuracy = [tensor.detach().clone() for tensor in maps], recall
        else:
            failures += 1
    return replace(found, epochs=epochs)


def rank_folds(maps: Maps, side: CaptionSide, protocol: RetrievalProtocol) -> list[IndexArray]:
    """Rank images and captions within each fold; a fold's captions follow each other, image by image.

    Raises EncoderError: the maps have left the range of numbers.
    """
    maps = [tensor.detach() for tensor in maps]
    size, per_image = protocol.fold_images, protocol.captions_per_image
    folds = []
    for start in range(0, protocol.folds * size, size):
        images = project_to_unit(side.images.take(np.arange(start, start + size)), *maps[:2])
        rows = side.captions.take(np.arange(start * per_image, (start + size) * per_image))
        captions = project_to_unit(rows, *maps[2:])
        # NaN and overflow would pass for ranks.
        if not all(
            bool(((side.norm(dim=1) - 1).abs() < 1e-3).all()) for side in (images, captions)
        ):
            raise EncoderError(
                "the trained maps give no finite numbers: the embeddings are too large to train on"
            )
        folds.append(rank_fold((images @ captions.T).cpu().numpy()))
    return folds


class IndexedRows:
    """Rows (n, size) to be taken by index: held on the device as a whole, or copied there batch by batch."""

    def __init__(self, source: EmbeddingRows, device: str, *, hold: bool) -> None:
        """Take an array or a view of embeddings; with ``hold``, all of it is brought to the device now."""
        import torch

        self.shape, self.device, self._source = source.shape, device, source
        self._held = (
            torch.from_numpy(np.require(source, np.float32, ["C", "W"])).to(device)
            if hold
            else None
        )

    def take(self, indices: IndexArray) -> Tensor:
        """The rows of these indices, (len(indices), size), on the device."""
        import torch

        if self._held is not None:
            return self._held[torch.from_numpy(indices).to(self.device)]
        rows = (
            self._source[indices]
            if isinstance(self._source, np.ndarray)
            else self._source.take(indices)
        )
        return torch.from_numpy(np.array(rows, dtype=np.float32)).to(self.device)

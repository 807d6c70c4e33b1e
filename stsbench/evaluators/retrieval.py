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
from stsbench.encoders.base import Embed, Embeddings, FloatArray, IndexArray
from stsbench.evaluators.seams import Count, FromZero, Inspected, Items, Positive, Scores, by_name, inspect
from stsbench.numbers.statistics import IMAGE_METHOD, Sharing, share_interval

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DEPTHS = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class RetrievalProtocol:
    """SentEval's ranking model.

    The score, ``mean_recall``, is the mean of six recalls: of the first 1, 5 and 10, image to text and
    text to image. The toolkit reports the six apart; their mean is DeCLUTR's.

    Recalls are taken within ``folds`` times ``fold_images`` images and averaged. A check comes after each
    epoch, the last one after the first beyond ``max_epochs``; training ends at check ``tenacity + 1``
    without a better sum of recalls, counted in all and never reset. Each caption of a batch is ranked
    against ``contrasts`` images and ``contrasts`` captions drawn from outside the batch; the hinge is
    summed. An evaluation with seed ``s`` is the toolkit's run with its seed set to ``base_seed + s``.
    """

    name: str
    metric: Literal["mean_recall"] = "mean_recall"
    base_seed: FromZero = 1111
    projection: Count = 1000
    margin: Positive = 0.2
    contrasts: Count = 30
    optimiser: Literal["adam"] = "adam"
    learning_rate: Positive = 1e-3
    batch_size: Count = 128
    max_epochs: FromZero = 20
    tenacity: FromZero = 3
    folds: Count = 5
    fold_images: Count = 1000
    captions_per_image: Count = 5


PROTOCOLS: dict[str, RetrievalProtocol] = by_name(RetrievalProtocol(name="senteval"))


class RetrievalEvaluator:
    """Scores how well captions find their image and images their captions, both mapped into one space.

    The toolkit's eight progress scorings an epoch, which decide nothing, are left out.
    """

    PROTOCOLS: ClassVar[Mapping[str, RetrievalProtocol]] = PROTOCOLS

    def __init__(self, protocol: RetrievalProtocol, *, device: str | None = None, memory: int = 4 << 30) -> None:
        """Set up the evaluator.

        Args:
            protocol: how the maps are trained, chosen and scored.
            device: a torch device; default: a GPU where there is one, for SentEval's data are hours of CPU.
            memory: bytes of a split's image features and embeddings held on the device, or in memory on the
                CPU; what is larger is gathered batch by batch.
        """
        self.protocol, self.device, self.memory = protocol, device, memory

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train on ``train``, choose on ``validation``, score ``test``.

        Args:
            splits: three CaptionSplits of these names.
            embed: sentences to embeddings.
            seed: 0 is the published run.

        Raises:
            DataError: other splits, too few images or captions, or not in their images' order.
            EncoderError: embeddings of a wrong shape, or not finite, or too large to train on.
        """
        import torch

        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        sides, looks = [], list[Inspected]()
        for name, split in _checked_splits(splits, self.protocol).items():
            view = embed(split.captions)
            looks.append(inspect(view, split.captions))
            # Only those of the training split are worth holding.
            memory = self.memory if name == "train" else 0
            images, captions = place_rows([split.image_features, view], device, memory)
            sides.append(CaptionSide(images, captions, split.image_of_caption))
        train, validation, test = sides
        trained = train_maps(train, validation, self.protocol, seed=self.protocol.base_seed + seed, device=device)
        ranks = join(rank_folds(trained.maps, test, self.protocol))
        items = {
            "recall": recall_of_images(ranks),
            "i2t_rank": ranks.i2t,
            **{f"t2i_rank_{at + 1}": np.ascontiguousarray(column) for at, column in enumerate(ranks.t2i.T)},
        }
        found = self.recompute(items)
        zeros, notes = sum(look.zeros for look in looks), list[str]()
        if zeros:
            notes.append(f"{zeros} captions have a zero vector as embedding")
        if all(look.constant for look in looks):
            notes.append("every caption of a split has the same embedding: only chance is left to find its image")
        scores = {**found.scores, "dev_mean_recall": trained.recall / 600}
        return replace(found, scores=scores, zero_vectors=zeros, notes=tuple(notes))

    def recompute(self, items: Items) -> Scores:
        """Make the recalls within folds of images from the ranks of each image and of its captions.

        Raises:
            DataError: a column of ranks is missing, or ``recall`` is not what the ranks make.
        """
        names = ["i2t_rank", *(f"t2i_rank_{at + 1}" for at in range(self.protocol.captions_per_image))]
        if missing := [name for name in names if name not in items]:
            raise DataError(f"lacks the column '{missing[0]}'")
        i2t, *t2i = (np.asarray(items[name]) for name in names)
        ranks, size = Ranks(i2t, np.stack(t2i, axis=1)), self.protocol.fold_images
        recall = recall_of_images(ranks)
        if not np.allclose(recall, np.asarray(items["recall"]), rtol=0, atol=1e-9):
            raise DataError("column 'recall' is not what the ranks make")
        scores = mean_scores([Ranks(i2t[at : at + size], ranks.t2i[at : at + size]) for at in range(0, len(i2t), size)])
        recalls = [value for name, value in scores.items() if ".recall@" in name]
        score = sum(recalls) / len(recalls)
        return Scores(
            score=score,
            scores={"mean_recall": score, **scores},
            interval=share_interval(recall, Sharing.none(len(recall))),
            interval_method=IMAGE_METHOD,
            per_item=items,
            n=len(recall),
        )


def _checked_splits(splits: Mapping[str, Split], protocol: RetrievalProtocol) -> dict[str, CaptionSplit]:
    """The splits in the order train, validation, test.

    Raises:
        DataError: other splits, too few images or captions, or not in their images' order.
    """
    if set(splits) != {"train", "validation", "test"}:
        raise DataError(f"retrieval needs the splits train, validation and test; it has {sorted(splits)}")
    checked = {}
    for name in ("train", "validation", "test"):
        split = splits[name]
        if not isinstance(split, CaptionSplit):
            raise DataError("the evaluator 'retrieval' scores captions of images")
        checked[name] = split
    if checked["train"].n <= protocol.batch_size:
        raise DataError(
            f"split 'train' has {checked['train'].n} captions: more than a batch of {protocol.batch_size} are needed"
        )
    images, per_image = protocol.folds * protocol.fold_images, protocol.captions_per_image
    in_order = np.repeat(np.arange(images), per_image)
    for name in ("validation", "test"):
        split = checked[name]
        if len(split.image_features) < images:
            needed = f"{protocol.folds} folds of {protocol.fold_images}"
            raise DataError(f"split '{name}' has {len(split.image_features)} images, {needed} are needed")
        if not np.array_equal(split.image_of_caption[: len(in_order)], in_order):
            raise DataError(f"split '{name}' does not hold {per_image} captions of each image in turn")
    return checked


class Ranks(NamedTuple):
    """Where the right answer came, from 0: ``i2t`` (i,), the best of an image's captions; ``t2i`` (i, c)."""

    i2t: IndexArray
    t2i: IndexArray


def rank_fold(similarity: FloatArray) -> Ranks:
    """Rank one fold, given the similarity (i, i * c) of its images and captions, c captions an image in turn."""
    images, captions = similarity.shape
    per_image = captions // images
    own = np.take_along_axis(similarity, np.arange(captions).reshape(images, per_image), axis=1)
    # Of an image's captions the most similar ranks first; of equals the last.
    best = per_image - 1 - own[:, ::-1].argmax(axis=1)
    i2t = ranks_of(similarity, np.arange(0, captions, per_image) + best)
    t2i = ranks_of(np.ascontiguousarray(similarity.T), np.repeat(np.arange(images), per_image))
    return Ranks(i2t, t2i.reshape(images, per_image))


def ranks_of(similarity: FloatArray, target: IndexArray) -> IndexArray:
    """The rank from 0 of one candidate a query: similarity (q, n), target (q,) -> (q,).

    Candidates of equal similarity rank by their place, the last first: the order of a stable sort read
    from its end. The toolkit reads an unstable sort from its end, whose ties are left to chance; to count
    only what is strictly better would give an encoder whose embeddings are all the same a full score.
    """
    own = np.take_along_axis(similarity, target[:, None], axis=1)
    tied_after = (similarity == own) & (np.arange(similarity.shape[1]) > target[:, None])
    ranks: IndexArray = np.count_nonzero((similarity > own) | tied_after, axis=1)
    return ranks


def join(folds: Sequence[Ranks]) -> Ranks:
    """The ranks of all folds in one."""
    return Ranks(np.concatenate([fold.i2t for fold in folds]), np.concatenate([fold.t2i for fold in folds]))


def fold_scores(ranks: IndexArray) -> list[float]:
    """Recall in points of the first 1, 5 and 10, and the median rank from 1, as the toolkit computes them."""
    recalls = [100.0 * int((ranks < depth).sum()) / ranks.size for depth in DEPTHS]
    return [*recalls, float(np.floor(np.median(ranks)) + 1)]


def summed_recall(folds: Sequence[Ranks]) -> float:
    """The sum of the six recalls in points, averaged over folds: what chooses the weights.

    Sums in the toolkit's order, for two epochs are compared by ``>``.
    """
    total = 0.0
    for fold in folds:
        (i1, i5, i10, _), (t1, t5, t10, _) = fold_scores(fold.i2t), fold_scores(fold.t2i)
        total += (i1 + i5 + i10 + t1 + t5 + t10) / len(folds)
    return total


def mean_scores(folds: Sequence[Ranks]) -> dict[str, float]:
    """Recalls in [0, 1] and median ranks of both directions, averaged over folds."""
    scores: dict[str, float] = {}
    for direction in ("i2t", "t2i"):
        table = np.array([fold_scores(getattr(fold, direction)) for fold in folds])
        *recalls, median = table.mean(axis=0).tolist()
        scores |= {f"{direction}.recall@{depth}": r / 100 for depth, r in zip(DEPTHS, recalls, strict=True)}
        scores[f"{direction}.median_rank"] = median
    return scores


def recall_of_images(ranks: Ranks) -> npt.NDArray[np.float64]:
    """What each image gives to the mean recall, (i,): the mean over depths and both directions."""
    i2t = np.mean([ranks.i2t < depth for depth in DEPTHS], axis=0)
    t2i = np.mean([(ranks.t2i < depth).mean(axis=1) for depth in DEPTHS], axis=0)
    return np.asarray((i2t + t2i) / 2)


class Linear(NamedTuple):
    """A linear map with a bias onto the unit sphere: ``weight`` (p, size), ``bias`` (p,)."""

    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        """Map rows (..., size) to unit vectors (..., p)."""
        from torch.nn import functional

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
    import torch

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
    import torch

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
    import torch

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
    import torch

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


def rank_folds(maps: Maps, side: CaptionSide, protocol: RetrievalProtocol) -> list[Ranks]:
    """Rank images and captions within each fold; a fold's captions follow each other, image by image.

    Raises:
        EncoderError: the maps have left the range of numbers.
    """
    maps = maps.frozen()
    size, per_image = protocol.fold_images, protocol.captions_per_image
    folds = []
    for start in range(0, protocol.folds * size, size):
        images = maps.images(side.images.take(np.arange(start, start + size)))
        captions = maps.captions(side.captions.take(np.arange(start * per_image, (start + size) * per_image)))
        # NaN and overflow would pass for ranks.
        if not all(bool(((side.norm(dim=1) - 1).abs() < 1e-3).all()) for side in (images, captions)):
            raise EncoderError("the trained maps give no finite numbers: the embeddings are too large to train on")
        folds.append(rank_fold((images @ captions.T).cpu().numpy()))
    return folds


class PlacedRows:
    """Rows (n, size) to be taken by index: held on the device as a whole, or copied there batch by batch."""

    def __init__(self, source: FloatArray | Embeddings, device: str, *, hold: bool) -> None:
        """Take an array or a view of embeddings; with ``hold``, all of it is brought to the device now."""
        import torch

        self.shape: tuple[int, int] = (source.shape[0], source.shape[1])
        self.device = device
        self._source = np.asarray(source, dtype=np.float32) if hold else source
        self._held: torch.Tensor | None = None
        if hold and device != "cpu":
            self._held = torch.from_numpy(np.array(self._source)).to(device)

    def take(self, indices: IndexArray) -> torch.Tensor:
        """The rows of these indices, (len(indices), size), on the device."""
        import torch

        if self._held is not None:
            return self._held[torch.from_numpy(indices).to(self.device)]
        rows = self._source[indices] if isinstance(self._source, np.ndarray) else self._source.take(indices)
        return torch.from_numpy(np.array(rows, dtype=np.float32)).to(self.device)


def place_rows(sources: Sequence[FloatArray | Embeddings], device: str, memory: int) -> list[PlacedRows]:
    """Make rows of these, in turn held as long as they fit into this many bytes."""
    placed = []
    for source in sources:
        size = 4 * source.shape[0] * source.shape[1]
        placed.append(PlacedRows(source, device, hold=size <= memory))
        memory -= size if size <= memory else 0
    return placed

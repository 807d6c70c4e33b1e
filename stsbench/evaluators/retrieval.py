"""Image-caption retrieval: SentEval's COCO task.

Two linear maps, of image features and of frozen embeddings, lead into one space.

Source: SentEval (arXiv 1803.05449), ``senteval/rank.py`` and ``senteval/tools/ranking.py`` at
5d6dc11; Kiros et al. (arXiv 1411.2539), section 3.2, give the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import CaptionSplit, Split
from stsbench.encoders.accelerator import resolve_device_name
from stsbench.encoders.base import Embed, EmbeddingRows, FloatArray, IndexArray
from stsbench.evaluators.base import (
    BaseSeed,
    ItemColumns,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Scores,
    inspect_embeddings,
    require_splits,
)
from stsbench.evaluators.probe.items import first_weights
from stsbench.evaluators.probe.minibatch import TrainedWeights
from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import IMAGE_INTERVAL_METHOD, share_interval

if TYPE_CHECKING:
    from torch import Tensor

RECALL_DEPTHS = (1, 5, 10)
"""Recalls count the right answers among this many first ones."""


@dataclass(frozen=True, kw_only=True)
class RetrievalProtocol:
    """SentEval's ranking model.

    The score, ``mean_recall``, is the mean of six recalls: of the first 1, 5 and 10, image to text
    and text to image. The toolkit reports the six separately; their mean is DeCLUTR's.

    Recalls are computed within ``folds`` times ``fold_images`` images and averaged. There is a
    check after each epoch; the last one is the first after ``max_epochs``. Training ends at the
    check that is number ``tenacity + 1`` without a better sum of recalls; these are counted in all
    and never reset. Each caption of a batch is ranked against ``contrasts`` images and as many
    captions from outside it; the hinge loss is summed. With seed ``s`` it is the toolkit's run with
    its seed set to ``base_seed + s``.
    """

    name: str
    metric: Literal["mean_recall"] = "mean_recall"
    base_seed: BaseSeed = 1111
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
    """Scores how well captions find their image and images their captions.

    Both are mapped into one space. The toolkit's eight progress scores per epoch, which decide
    nothing, are omitted.
    """

    PROTOCOLS: ClassVar[Mapping[str, RetrievalProtocol]] = PROTOCOLS

    def __init__(
        self, protocol: RetrievalProtocol, *, device: str | None = None, memory: int = 4 << 30
    ) -> None:
        """Store the settings.

        Args:
            protocol: How the maps are trained and scored.
            device: A device of torch, such as ``cpu``. None chooses a GPU if there is one, because
                SentEval's data take hours on a CPU.
            memory: The maximum number of bytes of the training split's image features and
                embeddings on the device, by default 4 GiB; larger ones are copied there batch by
                batch.
        """
        self.protocol = protocol
        self.device = device
        self.memory = memory

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Train maps of images and captions on ``train``, and return the mean recall on ``test``.

        The epoch whose maps are used is chosen on ``validation``; its recall is in ``scores`` too.

        Args:
            splits: These three splits, images with captions.
            embed: Embeds captions.
            seed: Added to the protocol's ``base_seed``; 0 is the run of SentEval's toolkit.

        Raises:
            DataError: The splits are others, have too few images or captions, or captions that are
                not in the order of their images.
            EncoderError: The embeddings are too large to train on: the maps give NaN.
        """
        device = self.device or resolve_device_name("auto")
        caption_splits = require_splits(
            splits, CaptionSplit, evaluator="retrieval", scored_items="captions of images"
        )
        _check_sizes(caption_splits, self.protocol)
        rows_by_split = {}
        checks = []
        for name, split in caption_splits.items():
            embeddings = embed(split.captions)
            checks.append(inspect_embeddings(embeddings))
            n_values = split.image_features.size + embeddings.shape[0] * embeddings.shape[1]
            bytes_per_float32 = 4
            # Held on the device? Only the training split is read often enough to be worth it.
            hold = name == "train" and bytes_per_float32 * n_values <= self.memory
            rows_by_split[name] = ImagesAndCaptions(
                images=IndexedRows(split.image_features, device, hold=hold),
                captions=IndexedRows(embeddings, device, hold=hold),
                image_of_caption=split.image_of_caption,
            )
        trained = train_maps(
            rows_by_split["train"],
            rows_by_split["validation"],
            self.protocol,
            seed=self.protocol.base_seed + seed,
            device=device,
        )
        # A row per image: the rank of its best caption, then its ranks for each of its captions.
        ranks = np.concatenate(rank_folds(trained.weights, rows_by_split["test"], self.protocol))
        rank_columns = zip(self._rank_columns(), np.ascontiguousarray(ranks.T), strict=True)
        result = self.recompute({"recall": recall_of_images(ranks), **dict(rank_columns)})
        zero_vectors = sum(check.zero_vectors for check in checks)
        notes = []
        if zero_vectors:
            notes.append(f"{zero_vectors} captions have a zero vector as embedding")
        if all(check.is_constant for check in checks):
            notes.append(
                "every caption of a split has the same embedding: "
                "only chance is left to find its image"
            )
        # For these maps, the field "accuracy" holds the sum of six recalls in points (0 to 600).
        development_recall = trained.accuracy / (6 * 100)
        scores = {**result.scores, "dev_mean_recall": development_recall}
        return replace(result, scores=scores, zero_vectors=zero_vectors, notes=tuple(notes))

    def _rank_columns(self) -> list[str]:
        """Return the names of the per-item columns of ranks.

        First ``i2t_rank`` (image to text): the rank of an image's best caption. Then, for each
        caption of the image, ``t2i_rank_1`` and so on (text to image): the rank of the image for
        this caption.
        """
        n_captions = self.protocol.captions_per_image
        return ["i2t_rank", *(f"t2i_rank_{number}" for number in range(1, n_captions + 1))]

    def recompute(self, items: ItemColumns) -> Scores:
        """Compute the recalls within folds of images from the ranks of each image and its captions.

        A recall is the share of queries whose right answer is among the first 1, 5 or 10. A fold is
        a set of images that are ranked among themselves.

        Args:
            items: Columns with a row per image: ``i2t_rank``, ``t2i_rank_1`` and so on, ranks from
                0 as :meth:`_rank_columns` names them; and ``recall``, the image's mean recall.

        Returns:
            The score, ``mean_recall``: the mean of six recalls, from image to text and from text to
            image. ``scores`` also has each recall and the median ranks.

        Raises:
            DataError: A column of ranks is missing, or ``recall`` differs from that of the ranks.
        """
        missing_columns = [name for name in self._rank_columns() if name not in items]
        if missing_columns:
            raise DataError(f"lacks the column '{missing_columns[0]}'")
        ranks = np.stack([np.asarray(items[name]) for name in self._rank_columns()], axis=1)
        recall = recall_of_images(ranks)
        if not np.allclose(recall, np.asarray(items["recall"]), rtol=0, atol=1e-9):
            raise DataError("column 'recall' is not what the ranks make")
        # Images are in the order of the split: a fold is this many that follow each other.
        size = self.protocol.fold_images
        folds = [ranks[start : start + size] for start in range(0, len(ranks), size)]
        # By name, recalls in [0, 1]: i2t.recall@1, ..., t2i.recall@10, and the two median ranks.
        scores = mean_scores(folds)
        recalls = [value for name, value in scores.items() if ".recall@" in name]
        score = sum(recalls) / len(recalls)
        # The interval counts images as independent of each other.
        return Scores(
            score=score,
            scores={"mean_recall": score, **scores},
            interval=share_interval(recall, ItemDependence.without_shared(len(recall))),
            interval_method=IMAGE_INTERVAL_METHOD,
            per_item=items,
            n=len(recall),
        )


def _check_sizes(splits: Mapping[str, CaptionSplit], protocol: RetrievalProtocol) -> None:
    """Check that the splits are large enough, and their captions in the order of images.

    In training each batch needs captions outside it to contrast with. The images of validation and
    test are divided into folds, which must be full.

    Args:
        splits: The splits train, validation and test.
        protocol: Gives the sizes of batch and folds.

    Raises:
        DataError: A split is too small, or the captions of an image do not follow each other.
    """
    n_captions = splits["train"].n
    if n_captions <= protocol.batch_size:
        raise DataError(
            f"split 'train' has {n_captions} captions: "
            f"more than a batch of {protocol.batch_size} are needed"
        )
    n_images = protocol.folds * protocol.fold_images
    captions_per_image = protocol.captions_per_image
    # The image of each caption if captions are in order: 0, 0, ..., 1, 1, ...
    expected_images = np.repeat(np.arange(n_images), captions_per_image)
    for name in ("validation", "test"):
        split = splits[name]
        if len(split.image_features) < n_images:
            needed = f"{protocol.folds} folds of {protocol.fold_images}"
            raise DataError(
                f"split '{name}' has {len(split.image_features)} images, {needed} are needed"
            )
        if not np.array_equal(split.image_of_caption[: len(expected_images)], expected_images):
            raise DataError(
                f"split '{name}' does not hold {captions_per_image} captions of each image in turn"
            )


def rank_fold(similarity: FloatArray) -> IndexArray:
    """Rank captions for each image, and images for each caption, by their similarity.

    Args:
        similarity: The similarity of i images and i * c captions, (i, i * c); the c captions of an
            image follow each other.

    Returns:
        Ranks from 0, (i, 1 + c), a row per image. Column 0 is the rank of its best own caption
        among all captions. The others are, for each of its own captions, the rank of the image
        among all images.
    """
    n_images, n_captions = similarity.shape
    per_image = n_captions // n_images
    captions_of_image = np.arange(n_captions).reshape(n_images, per_image)
    similarity_to_own_captions = np.take_along_axis(similarity, captions_of_image, axis=1)  # (i, c)
    # An image's best caption is the most similar one, and of equally similar ones the last, as in
    # target_ranks. argmax takes the first of equals, so the captions are reversed for it.
    best_from_end = similarity_to_own_captions[:, ::-1].argmax(axis=1)
    best_caption = captions_of_image[:, 0] + per_image - 1 - best_from_end
    image_of_caption = np.repeat(np.arange(n_images), per_image)
    best_caption_ranks = target_ranks(similarity, best_caption)
    image_ranks = target_ranks(np.ascontiguousarray(similarity.T), image_of_caption)
    return np.column_stack([best_caption_ranks, image_ranks.reshape(n_images, per_image)])


def target_ranks(similarity: FloatArray, target: IndexArray) -> IndexArray:
    """Return the rank from 0 of the right candidate of each query, (q,).

    The most similar candidate has rank 0. Of equally similar candidates, the one with the highest
    index comes first. SentEval's toolkit leaves such ties to chance, by a sort that is not stable.
    Ranks that count only more similar candidates would be 0 if all embeddings were the same, and
    such an encoder would get the full score.

    Args:
        similarity: The similarity of each query and candidate, (q, n).
        target: The index of each query's right candidate, (q,).
    """
    target_similarity = np.take_along_axis(similarity, target[:, None], axis=1)
    is_after_target = np.arange(similarity.shape[1]) > target[:, None]
    is_before = (similarity > target_similarity) | (
        (similarity == target_similarity) & is_after_target
    )
    return np.asarray(np.count_nonzero(is_before, axis=1))


SCORE_NAMES = [
    f"{direction}.{name}"
    for direction in ("i2t", "t2i")
    for name in (*(f"recall@{depth}" for depth in RECALL_DEPTHS), "median_rank")
]
"""The scores of a fold: image to text, then text to image."""


def fold_scores(ranks: IndexArray) -> list[float]:
    """Return the eight scores of one fold of images, as SentEval's toolkit computes them.

    Args:
        ranks: Ranks from 0, as :func:`rank_fold` returns them: a row per image. Column 0 is the
            rank of its best caption, the others are the ranks of the image for its captions.

    Returns:
        In the order of ``SCORE_NAMES``: three recalls and the median rank from image to text, then
        the same four from text to image. Recalls are in points: 100 times the share of ranks
        among the first 1, 5 and 10. Median ranks count from 1 and are rounded down.
    """
    best_caption_ranks, image_ranks = ranks[:, 0], ranks[:, 1:]
    scores = list[float]()
    # Image to text, then text to image.
    for direction_ranks in (best_caption_ranks, image_ranks):
        for depth in RECALL_DEPTHS:
            scores.append(100.0 * int((direction_ranks < depth).sum()) / direction_ranks.size)
        scores.append(float(np.floor(np.median(direction_ranks)) + 1))
    return scores


def summed_recall(folds: Sequence[IndexArray]) -> float:
    """Return the sum of the six recalls in points, averaged over folds.

    Training computes it after each epoch on the validation split, and keeps the maps of the epoch
    where it is highest. The terms are added in the order of SentEval's toolkit, so that rounding
    does not change which of two epochs is better.

    Args:
        folds: The ranks of each fold, as :func:`rank_fold` returns them: a row for each image, with
            one column for image to text and one for each of its captions.
    """
    total = 0.0
    # i1, i5, i10: recalls of image to text at these depths; t1, t5, t10: of text to image.
    # The median rank behind each three is left out.
    for i1, i5, i10, _, t1, t5, t10, _ in map(fold_scores, folds):
        total += (i1 + i5 + i10 + t1 + t5 + t10) / len(folds)
    return total


def mean_scores(folds: Sequence[IndexArray]) -> dict[str, float]:
    """Return recalls and median ranks, averaged over folds.

    Args:
        folds: The ranks of each fold, as :func:`rank_fold` returns them: a row per image, with one
            column for image to text, then one column for each of its captions.

    Returns:
        The scores by name, such as ``i2t.recall@5``, in [0, 1], and ``t2i.median_rank``.
    """
    # fold_scores returns eight numbers in the order of SCORE_NAMES; its recalls are in points.
    means = np.mean([fold_scores(ranks) for ranks in folds], axis=0).tolist()
    return {
        name: mean / 100 if ".recall@" in name else mean
        for name, mean in zip(SCORE_NAMES, means, strict=True)
    }


def recall_of_images(ranks: IndexArray) -> npt.NDArray[np.float64]:
    """Return the mean recall of each image, in [0, 1], (images,).

    It is the mean over the depths 1, 5 and 10 and over both directions, image to text and text to
    image. The mean over all images is the score, so these values give its interval.

    Args:
        ranks: Ranks from 0, as :func:`rank_fold` returns them: a row per image. Column 0 is the
            rank of its best caption, the others are the ranks of the image for its captions.
    """
    best_caption_ranks, image_ranks = ranks[:, 0], ranks[:, 1:]
    image_to_text = np.mean([best_caption_ranks < depth for depth in RECALL_DEPTHS], axis=0)
    text_to_image = np.mean([(image_ranks < depth).mean(axis=1) for depth in RECALL_DEPTHS], axis=0)
    return np.asarray((image_to_text + text_to_image) / 2)


def project_to_unit(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Map rows linearly, and scale each to length 1.

    Args:
        rows: Image features or embeddings of captions, (..., size).
        weight: The map's weight, (p, size).
        bias: The map's bias, (p,).

    Returns:
        Unit vectors, (..., p); a row that is mapped to zero becomes NaN.
    """
    from torch.nn import functional

    mapped = functional.linear(rows, weight, bias)
    return mapped / mapped.pow(2).sum(dim=-1, keepdim=True).sqrt()


Maps = Sequence["Tensor"]
"""Two linear maps as four tensors, in this order.

They are the weight (p, f) and bias (p,) for image features, then the weight (p, d) and bias (p,)
for embeddings of captions.
"""


class ImagesAndCaptions(NamedTuple):
    """The images and captions of one split."""

    images: IndexedRows
    """Features of images, (i, f)."""
    captions: IndexedRows
    """Embeddings of captions, (n, d)."""
    image_of_caption: IndexArray
    """The index of each caption's image, (n,)."""


def ranking_loss(
    images: Tensor, captions: Tensor, other_images: Tensor, other_captions: Tensor, margin: float
) -> Tensor:
    """Compute the ranking loss of a batch: each image and its caption against wrong ones.

    The similarity s of an image and its caption should exceed that of the image with wrong
    captions, and of the caption with wrong images, by the margin. What it lacks is summed:
    max(0, margin - s(image, caption) + s(wrong pair)). This is the hinge loss of Kiros et al.
    (arXiv 1411.2539), section 3.2.

    Args:
        images: Unit vectors of b images, (b, p).
        captions: The unit vector of the caption of each image, (b, p).
        other_images: For each caption k wrong images, (b, k, p).
        other_captions: For each image k wrong captions, (b, k, p).
        margin: The required difference of similarities.

    Returns:
        The sum over the batch and over wrong pairs, a scalar.
    """
    import torch

    # Dot products of unit vectors are cosines.
    similarity = (images * captions).sum(dim=1, keepdim=True)  # (b, 1)
    similarity_to_captions = torch.einsum("bp,bkp->bk", images, other_captions)
    similarity_to_images = torch.einsum("bp,bkp->bk", captions, other_images)
    caption_loss = (margin - similarity + similarity_to_captions).clamp(min=0).sum()
    image_loss = (margin - similarity + similarity_to_images).clamp(min=0).sum()
    return caption_loss + image_loss


def draw_outside(
    rng: np.random.RandomState, order: IndexArray, start: int, batch_size: int, size: int
) -> IndexArray:
    """Draw items outside a batch at random, with replacement.

    The result is that of ``numpy.random.choice`` on the order with the batch cut out, but that
    array is not built.

    Args:
        rng: The generator.
        order: The indices of all items, (n,), in the order in which batches are taken.
        start: The position in the order at which the batch begins.
        batch_size: The number of items of the batch.
        size: The number of items to draw.

    Returns:
        The indices of the drawn items, (size,).
    """
    positions = rng.randint(0, len(order) - batch_size, size)
    # Positions count without the batch. Those behind it are moved on by its size.
    positions[positions >= start] += batch_size
    return order[positions]


def train_maps(
    train: ImagesAndCaptions,
    validation: ImagesAndCaptions,
    protocol: RetrievalProtocol,
    *,
    seed: int,
    device: str,
) -> TrainedWeights:
    """Train a linear map of images and one of captions into one space, by the ranking loss.

    Training ends when the sum of recalls on the validation split has failed to improve ``tenacity +
    1`` times in all (the count is never reset, as in SentEval's ``ranking.py``), or after the
    epochs.

    Args:
        train: The images and captions to learn from.
        validation: The images and captions whose recalls choose the epoch.
        protocol: The settings of training.
        seed: The seed of the first weights, the orders and the contrasts.
        device: A device of torch.

    Returns:
        The weight and the bias of both maps at the best epoch, and as ``accuracy`` the sum of six
        recalls in points at that epoch.
    """
    import torch

    sizes = (train.images.shape[1], train.captions.shape[1])
    # Weight (projection, size) and bias of each map; the returned generator is not needed.
    tensors, _ = first_weights(seed, *((size, protocol.projection) for size in sizes))
    # Weight and bias of the images' map, then weight and bias of the captions' map.
    maps = [tensor.to(device).requires_grad_() for tensor in tensors]
    optimiser = torch.optim.Adam(maps, lr=protocol.learning_rate)
    rng = np.random.RandomState(seed)  # noqa: NPY002 - the toolkit's generator
    best = TrainedWeights()
    failures = 0
    epochs = 0
    # At most max_epochs + 1 epochs, as in SentEval's toolkit; ``best.accuracy`` starts at -inf.
    while failures <= protocol.tenacity and epochs <= protocol.max_epochs:
        order = rng.permutation(len(train.image_of_caption))
        for start in range(0, len(order), protocol.batch_size):
            optimiser.zero_grad()
            loss = _batch_loss(train, maps, protocol, rng, order, start)
            torch.autograd.backward(loss)
            optimiser.step()
        epochs += 1
        recall = summed_recall(rank_folds(maps, validation, protocol))
        if recall > best.accuracy:
            best.weights = [tensor.detach().clone() for tensor in maps]
            best.accuracy = recall
        else:
            failures += 1
    return replace(best, epochs=epochs)


def _batch_loss(
    train: ImagesAndCaptions,
    maps: Maps,
    protocol: RetrievalProtocol,
    rng: np.random.RandomState,
    order: IndexArray,
    start: int,
) -> Tensor:
    """Return the ranking loss of one batch of captions with their images, a scalar.

    Args:
        train: The images and captions to learn from.
        maps: The maps being trained: weight and bias for images, weight and bias for captions.
        protocol: Gives the batch size, the contrasts per caption and the margin.
        rng: The generator that draws the contrasts: wrong images and wrong captions.
        order: The indices of all captions in the order of the epoch, (n,).
        start: The position in the order at which the batch begins.
    """
    image_weight, image_bias, caption_weight, caption_bias = maps
    batch = order[start : start + protocol.batch_size]
    # A wrong image is drawn as a caption outside the batch, whose image is used. As in SentEval it
    # may by chance be the right one, by another of that image's captions.
    n_contrasts = protocol.contrasts * len(batch)
    image_contrasts = draw_outside(rng, order, start, batch_size=len(batch), size=n_contrasts)
    caption_contrasts = draw_outside(rng, order, start, batch_size=len(batch), size=n_contrasts)

    def project_images_of(caption_indices: IndexArray) -> Tensor:
        features = train.images.take(train.image_of_caption[caption_indices])
        return project_to_unit(features, image_weight, image_bias)

    def project_captions(caption_indices: IndexArray) -> Tensor:
        embeddings = train.captions.take(caption_indices)
        return project_to_unit(embeddings, caption_weight, caption_bias)

    images, other_images = project_images_of(batch), project_images_of(image_contrasts)
    captions, other_captions = project_captions(batch), project_captions(caption_contrasts)
    return ranking_loss(
        images,
        captions,
        other_images=other_images.view(len(batch), protocol.contrasts, -1),
        other_captions=other_captions.view(len(batch), protocol.contrasts, -1),
        margin=protocol.margin,
    )


def rank_folds(
    maps: Maps, split: ImagesAndCaptions, protocol: RetrievalProtocol
) -> list[IndexArray]:
    """Rank images and captions within each fold, by the similarity of their unit vectors.

    Args:
        maps: Weight and bias of the map of images, then weight and bias of the map of captions.
        split: The images and captions; the captions of each image follow each other.
        protocol: Gives the number of folds, the images per fold and the captions per image.

    Returns:
        An array per fold, as :func:`rank_fold` returns it: a row per image, with the rank of its
        best caption, then the rank of the image for each of its captions. The best rank is 0.

    Raises:
        EncoderError: The trained maps give NaN or infinite numbers.
    """
    image_weight, image_bias, caption_weight, caption_bias = (tensor.detach() for tensor in maps)
    size = protocol.fold_images
    per_image = protocol.captions_per_image
    ranks_by_fold = []
    for start in range(0, protocol.folds * size, size):
        image_indices = np.arange(start, start + size)
        caption_indices = np.arange(start * per_image, (start + size) * per_image)
        images = project_to_unit(split.images.take(image_indices), image_weight, image_bias)
        captions = project_to_unit(
            split.captions.take(caption_indices), caption_weight, caption_bias
        )
        # NaN is no unit vector; compared like a number, it would give ranks without meaning.
        if not (_are_unit_vectors(images) and _are_unit_vectors(captions)):
            raise EncoderError(
                "the trained maps give no finite numbers: the embeddings are too large to train on"
            )
        ranks_by_fold.append(rank_fold((images @ captions.T).cpu().numpy()))
    return ranks_by_fold


def _are_unit_vectors(rows: Tensor) -> bool:
    """Return whether all rows have length 1 within 0.001; NaN has not."""
    return bool(((rows.norm(dim=1) - 1).abs() < 1e-3).all())


class IndexedRows:
    """Rows (n, size) that are read by index.

    They are all on the device, or copied there batch by batch.
    """

    def __init__(self, source: EmbeddingRows, device: str, *, hold: bool) -> None:
        """Store the rows, image features or embeddings.

        Args:
            source: An array, or embeddings that are read from a file, (n, size).
            device: A device of torch, such as ``cpu`` or ``cuda``.
            hold: Copy all rows to the device now; otherwise each batch is copied when it is taken.
        """
        import torch

        self.shape = source.shape
        self.device = device
        self._source = source
        """All rows, (n, size)."""
        self._on_device = None
        """All rows on the device; None if each batch is copied there."""
        if hold:
            # Torch needs an array that is contiguous and writable.
            array = np.require(source, np.float32, ["C", "W"])
            self._on_device = torch.from_numpy(array).to(device)

    def take(self, indices: IndexArray) -> Tensor:
        """Return the rows of these indices on the device, float32 (len(indices), size)."""
        import torch

        if self._on_device is not None:
            return self._on_device[torch.from_numpy(indices).to(self.device)]
        if isinstance(self._source, np.ndarray):
            rows = self._source[indices]
        else:
            # Embeddings in a file: only these rows are read.
            rows = self._source.take(indices)
        return torch.from_numpy(np.array(rows, dtype=np.float32)).to(self.device)

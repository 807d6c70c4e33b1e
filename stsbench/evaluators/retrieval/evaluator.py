"""The evaluator of image-caption retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from stsbench.data.splits import CaptionSplit, Split
from stsbench.encoders.seams import Embed
from stsbench.errors import DataError
from stsbench.evaluators.retrieval.protocols import PROTOCOLS, RetrievalProtocol
from stsbench.evaluators.retrieval.ranks import Ranks, join, mean_scores, recall_of_images
from stsbench.evaluators.retrieval.rows import Inspected, inspect, place_rows
from stsbench.evaluators.seams import Scores
from stsbench.numbers.intervals import IMAGE_METHOD, share_interval
from stsbench.numbers.sharing import Sharing

if TYPE_CHECKING:
    from stsbench.evaluators.retrieval.maps import CaptionSide


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
        from stsbench.evaluators.retrieval.maps import rank_folds, train_maps

        device = self.device or _default_device()
        captions = check_splits(splits, self.protocol)
        (train, *rest), looks = self._sides(captions, embed, device)
        trained = train_maps(train, rest[0], self.protocol, seed=self.protocol.base_seed + seed, device=device)
        folds = rank_folds(trained.maps, rest[1], self.protocol)
        return make_retrieval_scores(folds, dev_recall=trained.recall / 600, looks=looks)

    def _sides(
        self, splits: Mapping[str, CaptionSplit], embed: Embed, device: str
    ) -> tuple[list[CaptionSide], list[Inspected]]:
        """The splits' features and embeddings; only those of ``train`` are worth holding."""
        from stsbench.evaluators.retrieval.maps import CaptionSide

        sides, looks = [], []
        for name, split in splits.items():
            view = embed(split.captions)
            looks.append(inspect(view, split.captions))
            memory = self.memory if name == "train" else 0
            images, captions = place_rows([split.image_features, view], device, memory)
            sides.append(CaptionSide(images, captions, split.image_of_caption))
        return sides, looks


def _default_device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def check_splits(splits: Mapping[str, Split], protocol: RetrievalProtocol) -> dict[str, CaptionSplit]:
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


def make_retrieval_scores(folds: list[Ranks], *, dev_recall: float, looks: list[Inspected]) -> Scores:
    """Put ranks into numbers; the items are the test images, each with its captions.

    Args:
        folds: ranks of the test folds.
        dev_recall: mean of the six recalls on the validation split, in [0, 1].
        looks: what was seen of each split's embeddings.
    """
    scores = mean_scores(folds)
    recalls = [value for name, value in scores.items() if ".recall@" in name]
    score = sum(recalls) / len(recalls)
    ranks = join(folds)
    per_image = recall_of_images(ranks)
    return Scores(
        score=score,
        scores={"mean_recall": score, **scores, "dev_mean_recall": dev_recall},
        interval=share_interval(per_image, Sharing.none(len(per_image))),
        interval_method=IMAGE_METHOD,
        per_item={
            "recall": per_image,
            "i2t_rank": ranks.i2t,
            **{f"t2i_rank_{at + 1}": np.ascontiguousarray(column) for at, column in enumerate(ranks.t2i.T)},
        },
        n=len(per_image),
        zero_vectors=sum(look.zeros for look in looks),
        notes=_notes(looks),
    )


def _notes(looks: list[Inspected]) -> tuple[str, ...]:
    notes = []
    zeros = sum(look.zeros for look in looks)
    if zeros:
        notes.append(f"{zeros} captions have a zero vector as embedding")
    if all(look.constant for look in looks):
        notes.append("every caption of a split has the same embedding: only chance is left to find its image")
    return tuple(notes)

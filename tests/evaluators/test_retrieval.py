from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import CaptionSplit, LabelledSplit
from stsbench.evaluators.registry import EVALUATORS
from stsbench.evaluators.retrieval import (
    PROTOCOLS,
    ImagesAndCaptions,
    IndexedRows,
    RetrievalEvaluator,
    RetrievalProtocol,
    draw_outside,
    mean_scores,
    rank_fold,
    rank_folds,
    ranking_loss,
    recall_of_images,
    summed_recall,
    train_maps,
)
from tests.evaluators.probe.helpers import Embedder, View

FloatArray = npt.NDArray[np.float32]
unit = partial(torch.nn.functional.normalize, dim=-1)
SIZES: dict[str, Any] = {
    "projection": 12,
    "batch_size": 16,
    "contrasts": 4,
    "folds": 2,
    "fold_images": 15,
}
SMALL = replace(PROTOCOLS["senteval"], **SIZES, max_epochs=5, learning_rate=0.01)


def make_task() -> tuple[dict[str, CaptionSplit], Embedder]:
    rng = np.random.default_rng(7)
    seen, said = rng.normal(size=(3, 8)), rng.normal(size=(3, 6))
    splits: dict[str, CaptionSplit] = {}
    vectors: dict[str, FloatArray] = {}
    for name, n in (("train", 21), ("validation", 30), ("test", 32)):
        hidden = rng.normal(size=(n, 3))
        image_of_caption = np.repeat(np.arange(n), 5)
        features = (hidden @ seen + 0.8 * rng.normal(size=(n, 8))).astype(np.float32)
        rows = (hidden[image_of_caption] @ said + 0.8 * rng.normal(size=(5 * n, 6))).astype(
            np.float32
        )
        captions = [f"{name} {at}" for at in range(5 * n)]
        vectors.update(zip(captions, rows, strict=True))
        splits[name] = CaptionSplit(
            captions=captions, image_features=features, image_of_caption=image_of_caption
        )
    return splits, Embedder(vectors)


def sides_of(splits: dict[str, CaptionSplit], embed: Embedder) -> dict[str, ImagesAndCaptions]:
    sides = {}
    for name, split in splits.items():
        images, captions = (
            IndexedRows(rows, "cpu", hold=False)
            for rows in (split.image_features, embed(split.captions))
        )
        sides[name] = ImagesAndCaptions(images, captions, split.image_of_caption)
    return sides


def loop_loss(
    images: Any, captions: Any, other_images: Any, other_captions: Any, margin: float
) -> torch.Tensor:
    """Every image against its contrasting captions, every caption against its contrasting images."""
    total = zero = torch.zeros((), dtype=images.dtype)
    for image, caption, wrong_images, wrong_captions in zip(
        images, captions, other_images, other_captions, strict=True
    ):
        for wrong in wrong_captions:
            total = total + max(zero, margin - image @ caption + image @ wrong)
        for wrong in wrong_images:
            total = total + max(zero, margin - caption @ image + caption @ wrong)
    return total


class LoopModel:
    """The toolkit's ranking model in plain torch: seeds, draws and sums as it has them."""

    def __init__(
        self, image_size: int, caption_size: int, protocol: RetrievalProtocol, seed: int
    ) -> None:
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        self.protocol = protocol
        self.images = torch.nn.Linear(image_size, protocol.projection)
        self.captions = torch.nn.Linear(caption_size, protocol.projection)
        weights = [*self.images.parameters(), *self.captions.parameters()]
        self.optimiser = torch.optim.Adam(weights, lr=protocol.learning_rate)

    def train_epoch(
        self, images: torch.Tensor, captions: torch.Tensor
    ) -> None:  # an image for each caption
        size, k = self.protocol.batch_size, self.protocol.contrasts
        order = list(np.random.permutation(len(captions)))  # noqa: NPY002
        for start in range(0, len(captions), size):
            batch, outside = order[start : start + size], order[:start] + order[start + size :]
            other_images = np.random.choice(outside, k * len(batch))  # noqa: NPY002
            other_captions = np.random.choice(outside, k * len(batch))  # noqa: NPY002
            loss = loop_loss(
                unit(self.images(images[batch])),
                unit(self.captions(captions[batch])),
                unit(self.images(images[other_images])).view(len(batch), k, -1),
                unit(self.captions(captions[other_captions])).view(len(batch), k, -1),
                self.protocol.margin,
            )
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()

    def recalls(self, images: torch.Tensor, captions: torch.Tensor) -> list[list[float]]:
        """Of each fold: R@1, R@5, R@10 and the median rank, image to text, then text to image."""
        found = []
        for fold in range(self.protocol.folds):
            some = slice(
                5 * self.protocol.fold_images * fold, 5 * self.protocol.fold_images * (fold + 1)
            )
            with torch.no_grad():
                x, y = (
                    unit(self.images(images[some])).numpy(),
                    unit(self.captions(captions[some])).numpy(),
                )
            found.append(loop_recalls(x[::5] @ y.T))
        return found


def loop_ranks(similarity: FloatArray) -> tuple[list[int], list[int]]:
    i2t, t2i = [], []
    for image in range(len(similarity)):
        order = np.argsort(similarity[image], kind="stable")[::-1].tolist()
        i2t.append(min(order.index(5 * image + j) for j in range(5)))
    for caption in range(similarity.shape[1]):
        order = np.argsort(similarity[:, caption], kind="stable")[::-1].tolist()
        t2i.append(order.index(caption // 5))
    return i2t, t2i


def loop_recalls(similarity: FloatArray) -> list[float]:
    found: list[float] = []
    for ranks in loop_ranks(similarity):
        found += [100 * sum(rank < depth for rank in ranks) / len(ranks) for depth in (1, 5, 10)]
        found.append(np.floor(np.median(ranks)) + 1)
    return found


def test_loss_and_its_gradient_are_those_of_the_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 7), (5, 7), (5, 3, 7), (5, 3, 7)]
    vectors = [
        unit(torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
        for shape in shapes
    ]
    a, b, c, d = vectors
    ours, loops = ranking_loss(a, b, c, d, 0.2), loop_loss(a, b, c, d, 0.2)
    torch.testing.assert_close(ours, loops)
    for one, other in zip(
        torch.autograd.grad(ours, vectors), torch.autograd.grad(loops, vectors), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_contrasts_are_numpy_s_choice_of_what_is_outside_the_batch() -> None:
    order = np.random.default_rng(0).permutation(50)
    for start, stop in ((0, 16), (16, 32), (48, 50)):
        wanted = np.random.RandomState(3).choice(list(order[:start]) + list(order[stop:]), 64)  # noqa: NPY002
        found = draw_outside(np.random.RandomState(3), order, start, stop - start, 64)  # noqa: NPY002
        np.testing.assert_array_equal(found, wanted)
        assert not set(found) & set(order[start:stop])


@pytest.mark.parametrize("levels", [3, 40, 10**6])  # few levels of similarity make many ties
def test_ranks_are_those_of_a_sort(levels: int) -> None:
    similarity = np.random.default_rng(levels).integers(0, levels, size=(9, 45)).astype(np.float32)
    i2t, t2i = loop_ranks(similarity)
    ranks = rank_fold(similarity)
    assert ranks[:, 0].tolist() == i2t
    assert ranks[:, 1:].ravel().tolist() == t2i


def test_equal_similarities_are_chance() -> None:
    scores = mean_scores([rank_fold(np.ones((1000, 5000), dtype=np.float32))])
    assert [scores[f"t2i.recall@{depth}"] for depth in (1, 5, 10)] == [0.001, 0.005, 0.01]
    assert scores["i2t.recall@1"] == 0.001


def test_scores_of_ranks_told_by_hand() -> None:
    ranks = [np.array([[0, 0, 1], [7, 4, 12]]), np.array([[2, 0, 0], [3, 0, 0]])]
    assert mean_scores(ranks) == {
        "i2t.recall@1": (0.5 + 0) / 2,
        "i2t.recall@5": (0.5 + 1) / 2,
        "i2t.recall@10": 1.0,
        "i2t.median_rank": (4 + 3) / 2,  # floor(3.5) + 1 and floor(2.5) + 1
        "t2i.recall@1": (0.25 + 1) / 2,
        "t2i.recall@5": (0.75 + 1) / 2,
        "t2i.recall@10": (0.75 + 1) / 2,
        "t2i.median_rank": (3 + 1) / 2,
    }
    assert summed_recall(ranks) == pytest.approx(100 * (0.25 + 0.75 + 1 + 0.625 + 0.875 + 0.875))
    assert recall_of_images(ranks[0]).tolist() == pytest.approx(
        [(1 + 1) / 2 - 1 / 12, (1 / 3 + 1 / 3) / 2]
    )


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"tenacity": 0, "max_epochs": 30},
        {"tenacity": 2, "max_epochs": 30},
        {"max_epochs": 0},
        {"batch_size": 100},
    ],
)
def test_training_is_that_of_the_literal_loops(changed: dict[str, Any]) -> None:
    splits, embed = make_task()
    protocol = replace(SMALL, **changed)
    sides = sides_of(splits, embed)
    trained = train_maps(sides["train"], sides["validation"], protocol, seed=5, device="cpu")

    data = {}
    for name, split in splits.items():
        images = torch.from_numpy(split.image_features[split.image_of_caption])
        data[name] = images, torch.from_numpy(np.asarray(embed(split.captions)))
    model = LoopModel(8, 6, protocol, 5)
    best, failures, epochs, kept = -1.0, 0, 0, model
    while failures <= protocol.tenacity and epochs <= protocol.max_epochs:
        model.train_epoch(*data["train"])
        epochs += 1
        recall = (
            sum(sum(fold[:3] + fold[4:7]) for fold in model.recalls(*data["validation"]))
            / protocol.folds
        )
        if recall > best:
            best, kept = recall, copy.deepcopy(model)
        else:
            failures += 1
    assert trained.epochs == epochs
    assert trained.accuracy == pytest.approx(best)
    torch.testing.assert_close(
        trained.weights[0], kept.images.weight.detach(), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(
        trained.weights[2], kept.captions.weight.detach(), rtol=1e-4, atol=1e-5
    )
    ours = mean_scores(rank_folds(trained.weights, sides["test"], protocol))
    loops = np.mean(kept.recalls(*data["test"]), axis=0)
    assert list(ours.values()) == pytest.approx(list(loops / [100, 100, 100, 1, 100, 100, 100, 1]))


def test_scores_of_a_task() -> None:
    splits, embed = make_task()
    scores = RetrievalEvaluator(SMALL, device="cpu")(splits, embed, seed=0)
    recalls = [
        value
        for name, value in scores.scores.items()
        if name[:4] in ("i2t.", "t2i.") and "recall" in name
    ]
    assert scores.score == scores.scores["mean_recall"] == pytest.approx(np.mean(recalls))
    assert (
        0.15
        < scores.score
        == pytest.approx(np.mean(np.asarray(scores.per_item["recall"], dtype=float)))
    )
    assert scores.interval[0] < scores.score < scores.interval[1]
    assert scores.n == 30  # two of 32 images are in no fold
    assert {len(column) for column in scores.per_item.values()} == {30}
    sides = sides_of(splits, embed)
    trained = train_maps(sides["train"], sides["validation"], SMALL, seed=1111, device="cpu")
    # Six recalls in points.
    assert scores.scores["dev_mean_recall"] == pytest.approx(trained.accuracy / 600)
    assert not scores.notes

    again, other = (
        RetrievalEvaluator(SMALL, device="cpu")(splits, embed, seed=seed) for seed in (0, 1)
    )
    assert (
        (again.scores, again.interval)
        == (scores.scores, scores.interval)
        != (other.scores, other.interval)
    )


def test_embeddings_are_gathered_batch_by_batch_where_memory_is_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stsbench.encoders.base.ROWS_AT_ONCE", 32)
    splits, embed = make_task()
    views: list[View] = []

    def watched(sentences: Any) -> View:
        views.append(embed(sentences))
        return views[-1]

    held = RetrievalEvaluator(SMALL, device="cpu")(splits, embed, seed=0)
    as_on_a_gpu = RetrievalEvaluator(SMALL, device="cpu:0")(splits, embed, seed=0)
    gathered = RetrievalEvaluator(SMALL, device="cpu", memory=0)(splits, watched, seed=0)
    assert gathered.scores == held.scores == as_on_a_gpu.scores
    assert (
        max(view.most_taken for view in views) == 5 * SMALL.fold_images
    )  # a batch's contrasts are 64


@pytest.mark.parametrize(("memory", "held"), [(1 << 20, ["train"]), (0, [])])
def test_only_the_training_split_is_held_on_the_device(
    monkeypatch: pytest.MonkeyPatch, memory: int, held: list[str]
) -> None:
    splits, embed = make_task()
    name_by_rows = {splits[name].image_features.shape[0]: name for name in splits}
    split_names = []

    class WatchedRows(IndexedRows):
        def __init__(self, source: Any, device: str, *, hold: bool) -> None:
            super().__init__(source, device, hold=hold)
            if hold and source.shape[0] in name_by_rows:
                split_names.append(name_by_rows[source.shape[0]])

    monkeypatch.setattr("stsbench.evaluators.retrieval.IndexedRows", WatchedRows)
    brief = replace(SMALL, max_epochs=0)
    RetrievalEvaluator(brief, device="cpu", memory=memory)(splits, embed, seed=0)
    assert split_names == held


def test_a_device_that_is_named_is_used_though_there_is_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits, embed = make_task()
    brief = replace(SMALL, max_epochs=0)
    alone = RetrievalEvaluator(brief, device="cpu")(splits, embed, seed=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert RetrievalEvaluator(brief, device="cpu")(splits, embed, seed=0).scores == alone.scores


def test_without_a_device_the_one_that_is_there_is_used() -> None:
    splits, embed = make_task()
    on_cpu, anywhere = (
        RetrievalEvaluator(SMALL, device=device)(splits, embed, seed=0) for device in ("cpu", None)
    )
    assert anywhere.score == pytest.approx(on_cpu.score, abs=0.02)


def test_an_encoder_that_tells_nothing_is_chance_with_a_note() -> None:
    splits, embed = make_task()
    same = Embedder({text: np.zeros_like(row) for text, row in embed.vectors.items()})
    scores = RetrievalEvaluator(SMALL, device="cpu")(splits, same, seed=0)
    assert scores.scores["t2i.recall@1"] == pytest.approx(1 / 15)
    assert scores.zero_vectors == 415
    assert any("only chance" in note for note in scores.notes)


def test_what_is_of_no_use_is_an_error() -> None:
    splits, embed = make_task()
    labelled = LabelledSplit(sentences=["a"], labels=np.zeros(1, np.int64))
    turned = replace(splits["test"], image_of_caption=splits["test"].image_of_caption[::-1].copy())
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({"test": splits["test"]}, {}, "train, validation and test"),
        ({**splits, "train": labelled}, {}, "captions of images"),
        (splits, {"batch_size": 200}, "more than a batch of 200"),
        (splits, {"fold_images": 16}, "'validation' has 30 images, 2 folds of 16 are needed"),
        ({**splits, "test": turned}, {}, "'test' does not hold 5 captions of each image in turn"),
    ]
    for given, changed, said in cases:
        with pytest.raises(DataError, match=said):
            RetrievalEvaluator(replace(SMALL, **changed), device="cpu")(given, embed, seed=0)
    huge = Embedder({key: row * np.float32(1e37) for key, row in embed.vectors.items()})
    with pytest.raises(EncoderError, match="too large"):
        RetrievalEvaluator(SMALL, device="cpu")(splits, huge, seed=0)


def test_published_protocol() -> None:
    p = PROTOCOLS["senteval"]
    assert (p.projection, p.margin, p.contrasts, p.batch_size, p.max_epochs, p.tenacity) == (
        1000,
        0.2,
        30,
        128,
        20,
        3,
    )
    assert (p.folds, p.fold_images, p.captions_per_image, p.base_seed) == (5, 1000, 5, 1111)
    assert EVALUATORS.load("retrieval") is RetrievalEvaluator

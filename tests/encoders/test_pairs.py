"""Pair scorers: cross-encoders, functions of two sentences and files of scores beside encoders."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import save_file
from scipy.stats import spearmanr
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

import stsbench
from stsbench.core.errors import CardError, StsbenchError
from stsbench.data.splits import ContrastSplit, PairSplit
from stsbench.encoders.engine import embed as engine
from stsbench.encoders.load import load_named
from stsbench.encoders.pairs import join_pair, join_pairs_of_items, pair_scores
from stsbench.encoders.transformer.cross_encoder import CrossEncoder
from stsbench.evaluators.contrast import ContrastEvaluator
from stsbench.results.signature import format_signature
from tests.encoders.served.server import serving
from tests.own_tasks import evaluate, place

__all__ = ["place"]
WORDS = "a dog runs in the park and it rains on mats".split()


def draw_sentences(seed: int, n: int = 90) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 40))) for _ in range(n)]


def save_cross_encoder(folder: Path, tokenizer: Path, *, n_labels: int = 1) -> Path:
    """Save a random BERT with a label, as transformers does."""
    torch.manual_seed(3)
    words = AutoTokenizer.from_pretrained(tokenizer)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, num_labels=n_labels,
        initializer_range=0.2,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_cross_encoder(tmp_path_factory.mktemp("cross") / "bare", bert)


@pytest.fixture(scope="module")
def library(folder: Path) -> Any:
    import sentence_transformers

    return sentence_transformers.CrossEncoder(str(folder), device="cpu")


def overlap(first: str, second: str) -> float:
    """Return the share of the words of two sentences that both have."""
    words = [set(first.split()), set(second.split())]
    return len(words[0] & words[1]) / len(words[0] | words[1])


def skewed(first: str, second: str) -> float:
    """Return a score that depends on the order, and by less than float32 holds on the length."""
    return len(first) / (1 + len(second)) + 1e-9 * len(second)


def test_a_cross_encoder_scores_as_the_library_does(folder, library, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "TOKEN_BUDGET", 200)
    first, second = draw_sentences(1), draw_sentences(2)
    expected = library.predict(list(zip(first, second, strict=True)), show_progress_bar=False)
    swapped = library.predict(list(zip(second, first, strict=True)), show_progress_bar=False)
    assert np.ptp(expected) > 0.05 and np.abs(expected - swapped).max() > 0.01
    library.save_pretrained(str(tmp_path / "library"), create_model_card=False)
    for path in (folder, tmp_path / "library"):
        encoder = load_named(str(path)).encoder
        assert isinstance(encoder, CrossEncoder) and encoder.activation == "Sigmoid"
        np.testing.assert_allclose(encoder.score_pairs(first, second), expected, atol=1e-6)
    texts = list(map(join_pair, first, second))
    both = CrossEncoder(str(folder), order="both")
    np.testing.assert_allclose(
        pair_scores(both.encode(texts)), (expected.astype(float) + swapped) / 2, atol=1e-6
    )
    given = CrossEncoder(str(folder))
    assert given.fingerprint != both.fingerprint
    assert given.fingerprint == CrossEncoder(str(folder), device="cpu").fingerprint


@pytest.mark.parametrize("activation", ["torch.nn.modules.linear.Identity", "torch.nn.Tanh"])
def test_the_activation_is_the_checkpoints(folder, tmp_path, activation):
    import sentence_transformers

    config = json.loads((folder / "config.json").read_text())
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "config.json").unlink()
    config["sentence_transformers"] = {"activation_fn": activation}
    (tmp_path / "config.json").write_text(json.dumps(config))
    theirs = sentence_transformers.CrossEncoder(str(tmp_path), device="cpu")
    expected = theirs.predict([("a dog", "the park"), ("it", "rains on mats")])
    scores = CrossEncoder(str(tmp_path)).score_pairs(["a dog", "it"], ["the park", "rains on mats"])
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    config["sentence_transformers"] = {"activation_fn": "torch.hub.Sigmoid"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(StsbenchError, match=r"activation 'torch.hub.Sigmoid' is never run"):
        CrossEncoder(str(tmp_path))


def test_a_checkpoint_that_scores_no_pairs_is_refused_in_one_line(bert, tmp_path, folder):
    with pytest.raises(StsbenchError, match="is no cross-encoder"):
        CrossEncoder(str(bert))
    with pytest.raises(StsbenchError, match="is no cross-encoder"):
        CrossEncoder(str(save_cross_encoder(tmp_path / "three", bert, n_labels=3)))
    with pytest.raises(CardError, match="not one of given, both"):
        load_named(str(folder), params={"order": "other"})
    with pytest.raises(CardError, match="scorers of pairs"):
        load_named(str(folder), params={"dimensions": 2})
    config = tmp_path / "lacking"
    save_cross_encoder(config, bert)
    weights = BertForSequenceClassification.from_pretrained(config).state_dict()
    save_file(
        {k: v for k, v in weights.items() if "classifier" not in k}, config / "model.safetensors"
    )
    with pytest.raises(StsbenchError, match=r"lack 'classifier.bias', which would then be random"):
        CrossEncoder(str(config)).score_pairs(["a"], ["b"])


@pytest.mark.parametrize("order", ["given", "both"])
@pytest.mark.parametrize("batch_size", [None, 7])
def test_a_function_scores_as_a_literal_loop(place, order, batch_size):
    sizes = []

    def in_lists(first: list[str], second: list[str]) -> list[float]:
        sizes.append(len(first))
        return list(map(skewed, first, second))

    function: Callable[..., Any] = skewed if batch_size is None else in_lists
    task = "pets"
    (result,) = stsbench.evaluate_pairs(
        function, task, order=order, batch_size=batch_size, name="mine",
        data=place / "data", catalogue=stsbench.Catalogue([place / "cards"]),
    )  # fmt: skip
    split = stsbench.load_task(
        task, data=place / "data", catalogue=stsbench.Catalogue([place / "cards"])
    ).load("test")
    assert isinstance(split, PairSplit)
    expected = []
    for first, second in zip(*split.sides, strict=True):
        score = skewed(first, second)
        expected.append(score if order == "given" else (score + skewed(second, first)) / 2)
    np.testing.assert_allclose(result.per_item["similarity"], expected, rtol=1e-13)
    assert result.score == pytest.approx(spearmanr(expected, split.gold)[0], abs=1e-12)
    assert result.protocol["similarity"] is None
    assert "euclidean" not in result.per_item
    (note,) = result.notes
    assert note.endswith("both orders of the sentences" if order == "both" else "of the data")
    n_distinct = len(set(zip(*split.sides, strict=True)))
    assert result.run["dimensions"] is None and result.run["encoded"] == n_distinct
    assert not sizes or max(sizes) == 7


def test_a_users_class_and_a_cross_encoder_in_memory(place, library, folder):
    class Overlap(stsbench.PairScorer):
        name = "overlap"
        notes = ["mine"]

        def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> list[float]:
            return list(map(overlap, first, second))

    (own,) = evaluate(place, Overlap(), "pets")
    options = {"data": place / "data", "catalogue": stsbench.Catalogue([place / "cards"])}
    (function,) = stsbench.evaluate_pairs(overlap, "pets", **options)
    assert (own.score, own.encoder, own.notes) == (function.score, "overlap", ["mine"])
    with pytest.raises(StsbenchError, match="has its own batches"):
        stsbench.evaluate_pairs(Overlap(), "pets", order="both", **options)
    (in_memory,) = evaluate(place, library, "pets")
    (also,) = stsbench.evaluate_pairs(library, "pets", batch_size=4, **options)
    (of_folder,) = evaluate(place, str(folder), "pets")
    assert in_memory.encoder == "CrossEncoder" and in_memory.fingerprint is None
    assert of_folder.run["dtype"] == "float32" and of_folder.run["device"] == "cpu"
    for result in (also, of_folder):
        np.testing.assert_allclose(
            result.per_item["similarity"], in_memory.per_item["similarity"], atol=1e-6
        )


def test_what_is_no_score_is_one_line(place):
    options = {"data": place / "data", "catalogue": stsbench.Catalogue([place / "cards"])}
    for function, message in (
        (lambda first, second: np.nan, "returned NaN or infinity for pair .* of 30"),
        (lambda first, second: 1e300, "returned NaN or infinity for pair .* of 30"),
        (lambda first, second: [1, 2], "'lambda' returned an array of shape .2,., not a number$"),
        (lambda first, second: "x", "encoder 'lambda' returned a str that is not a number$"),
        (lambda first, second: None, "'lambda' returned a NoneType that is not a number$"),
        (lambda first, second: 0.5, "every pair of the task has the same similarity"),
    ):
        with pytest.raises(StsbenchError, match=message) as caught:
            stsbench.evaluate_pairs(function, "pets", **options)
        assert "\n" not in str(caught.value)
    in_batches: list[tuple[Callable[..., object], str]] = [
        (lambda first, second: None, "a NoneType that is not an array .8,. of a number for each"),
        (lambda first, second: 1.0, "an array of shape .., not an array .8,. of a number for each"),
        (lambda first, second: [1.0] * 7, "an array of shape .7,., not an array .8,. of a number"),
    ]
    for batch_function, message in in_batches:
        with pytest.raises(StsbenchError, match=f"encoder 'lambda' returned {message}"):
            stsbench.evaluate_pairs(batch_function, "pets", batch_size=8, **options)
    with pytest.raises(StsbenchError, match="'x' scores no pairs"):
        stsbench.evaluate_pairs("x", "pets", **options)


def test_a_pair_scorer_has_no_embeddings(place, folder):
    encoder = stsbench.load_encoder(str(folder))
    no_lists: list[Any] = [5, iter([join_pair("a dog", "a cat")])]
    for no_list in no_lists:
        with pytest.raises(StsbenchError, match="encode takes a list of sentences"):
            encoder.encode(no_list)
    with pytest.raises(StsbenchError, match="scores pairs of sentences and has no embeddings"):
        encoder.encode(["a dog"])
    with pytest.raises(StsbenchError, match="which are needed for quickstart-probe"):
        stsbench.evaluate_pairs(overlap, "quickstart-probe")
    with pytest.raises(StsbenchError, match="which are needed for pets"):
        evaluate(place, encoder, "pets", protocol="simcse(similarity=dot)")
    results = stsbench.evaluate(encoder, "quickstart-en,quickstart-probe", on_error="skip")
    assert [result.task for result in results] == ["quickstart-en"]
    (failure,) = results.failures
    assert "needed for quickstart-probe" in str(failure.error)


def test_scores_are_comparable_with_cosines_alone(place, folder):
    cross = evaluate(place, str(folder), "pets,plants")
    cosine = evaluate(place, "minilm", "pets,plants")
    dot = evaluate(place, "minilm", "pets,plants", protocol="simcse(similarity=dot)")
    compared, _, _ = format_signature(cross[:1]).partition(" || ")
    assert "similarity" not in compared and format_signature(cosine[:1]).startswith(
        compared.partition(" | ")[0]
    )
    comparison = stsbench.compare(cosine, cross)
    assert len(comparison.differences) == 3
    assert all(difference.p is not None for difference in comparison.differences)
    with pytest.raises(StsbenchError, match="'similarity' differs: none against 'dot'"):
        stsbench.compare(cross, dot)
    board = stsbench.leaderboard([*cosine, *cross], suite="mine", ranks=True,
                                 catalogue=stsbench.Catalogue([place / "cards"]))  # fmt: skip
    (table,) = board.tables
    assert "bare‖" in board.to_markdown()
    assert "‖ scores pairs itself; no embeddings" in board.to_markdown()
    assert len({row.signature.partition(" | ")[0] for row in table.rows()}) == 1


def test_a_contrast_task_from_scores_of_pairs():
    rng = np.random.default_rng(4)
    columns = [[f"{side} {item}" for item in range(40)] for side in "apnm"]
    split = ContrastSplit(anchors=columns[0], positives=columns[1], negatives=columns[2:])
    scores = {pair: rng.normal() for texts in join_pairs_of_items(split.sides) for pair in texts}
    evaluator = ContrastEvaluator(
        protocol=type(ContrastEvaluator.PROTOCOLS["contrast"])(name="contrast", similarity=None)
    )

    def embed(texts: Sequence[str]) -> Any:
        return np.array([[scores[text]] for text in texts], dtype=np.float32)

    found = evaluator({"test": split}, embed, seed=0)
    expected = np.mean([
        all(scores[join_pair(a, p)] > scores[join_pair(a, other)] for other in (n, m))
        for a, p, n, m in zip(*columns, strict=True)
    ])  # fmt: skip
    assert found.score == expected
    assert evaluator.recompute(found.per_item).score == expected


# Files of scores.


@pytest.fixture
def scores(place: Path, monkeypatch: pytest.MonkeyPatch) -> npt.NDArray[np.float64]:
    """The scores of the pairs of ``pets``, in files of each kind in the current folder."""
    monkeypatch.chdir(place)
    split = stsbench.load_task(
        "pets", data=place / "data", catalogue=stsbench.Catalogue([place / "cards"])
    ).load("test")
    assert isinstance(split, PairSplit)
    values = np.array(list(map(skewed, *split.sides)))
    first, second = (list(side) for side in split.sides)
    np.save("order.npy", values)
    np.savez("order.npz", values.reshape(-1, 1))
    save_file({"scores": torch.tensor(values, dtype=torch.float32)}, "order.safetensors")
    Path("order.csv").write_text("score\n" + "".join(f"{value}\n" for value in values.tolist()))
    np.savez("texts.npz", similarity=values[::-1], s1=first[::-1], s2=second[::-1])
    table = {"sentence1": first[::-1], "sentence2": second[::-1], "similarity": values[::-1]}
    parquet.write_table(pa.table(table), "texts.parquet")
    rows = list(zip(*table.values(), strict=True))
    Path("texts.tsv").write_text(
        "\t".join(table) + "\n" + "".join(f"{a}\t{b}\t{value}\n" for a, b, value in rows)
    )
    Path("texts.jsonl").write_text(
        "".join(json.dumps(dict(zip(table, row, strict=True))) + "\n" for row in rows)
    )
    return values


@pytest.mark.parametrize(
    "name",
    [
        "order.npy", "order.npz", "order.safetensors", "order.csv",
        "texts.npz", "texts.parquet", "texts.tsv", "texts.jsonl",
    ],
)  # fmt: skip
def test_each_kind_of_file_gives_its_scores(place, scores, name):
    (result,) = evaluate(place, f"similarities:{name}", "pets")
    tolerance = 1e-6 if name == "order.safetensors" else 1e-13
    np.testing.assert_allclose(result.per_item["similarity"], scores, rtol=tolerance)
    assert result.encoder == name
    (note,) = result.notes
    assert note.startswith(f"scores of pairs from the file {name} (sha256 ")
    if name.startswith("order"):
        with pytest.raises(StsbenchError, match="for one task, not for 2"):
            evaluate(place, f"similarities:{name}", "pets,plants")
        with pytest.raises(StsbenchError, match="has 30 scores for 20 pairs"):
            evaluate(place, f"similarities:{name}", "plants")
    else:
        with pytest.raises(StsbenchError, match="lacks 20 of 20 pairs, the first is pair 1 of 20"):
            evaluate(place, f"similarities:{name}", "plants")


def with_nan(values: npt.NDArray[np.float64]) -> None:
    np.save("bad.npy", np.where(np.arange(len(values)) == 3, np.nan, values))


def with_a_word(values: npt.NDArray[np.float64]) -> None:
    Path("bad.csv").write_text("score\n0.5\nhigh\n")


def without_a_score(values: npt.NDArray[np.float64]) -> None:
    Path("bad.jsonl").write_text('{"s1": "a", "s2": "b"}\n')


def with_two_scores_of_a_pair(values: npt.NDArray[np.float64]) -> None:
    rows = [("a", "b", 0.1), ("a", "c", 0.9), ("a", "b", 0.2)]
    lines = [json.dumps(dict(zip(("s1", "s2", "score"), row, strict=True))) for row in rows]
    Path("bad.jsonl").write_text("\n".join(lines))


def with_fewer_sentences(values: npt.NDArray[np.float64]) -> None:
    np.savez("bad.npz", score=values, s1=np.array(["a"]), s2=np.array(["b"]))


def with_more_second_sentences(values: npt.NDArray[np.float64]) -> None:
    texts = [f"a {row}" for row in range(len(values) + 1)]
    np.savez("bad.npz", score=values, sentence1=texts[1:], sentence2=texts)


def with_one_sentence_of_a_pair(values: npt.NDArray[np.float64]) -> None:
    texts = [f"a {row}" for row in range(len(values))]
    np.savez("bad.npz", score=values, sentence1=texts, sentence=texts)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (with_nan, "1 of 30 scores are NaN or infinity, the first in row 4"),
        (with_a_word, "'similarity' has no numbers: could not convert string to float: 'high'"),
        (without_a_score, "has s1, s2; it must have one 'similarity'"),
        (with_two_scores_of_a_pair, "rows 1 and 3 have one text and different numbers"),
        (with_fewer_sentences, "has 30 scores for 1 pairs"),
        (with_more_second_sentences, "sentence1, sentence2 are no two columns of sentences of the"),
        (with_one_sentence_of_a_pair, "sentence are no two columns of sentences of the same"),
        (lambda values: None, "there is no file 'bad.npy'"),
    ],
)
def test_what_is_wrong_with_a_file_of_scores_is_one_line(place, scores, write, message):
    write(scores)
    (path,) = list(Path().glob("bad.*")) or [Path("bad.npy")]
    with pytest.raises(StsbenchError, match=message) as caught:
        evaluate(place, f"similarities:{path}", "pets")
    assert "\n" not in str(caught.value)


# A client of a server on the loopback interface.


class HttpClient:
    """A client as openai's, which posts to ``/v1/embeddings``."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.embeddings = self

    def create(self, *, model: str, input: Sequence[str]) -> Any:  # noqa: A002 - as openai
        body = json.dumps({"model": model, "input": list(input)}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/embeddings", body, headers)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read(), object_hook=lambda fields: SimpleNamespace(**fields))


def test_a_client_of_a_real_server_is_scored_as_the_kind_for_servers(place):
    with serving() as server:
        (result,) = evaluate(place, (HttpClient(server.url), "m"), "pets", batch_size=10)
        assert max(map(len, server.answered)) == 10
        (same,) = evaluate(place, lambda texts: server.rows(texts, server.size), "pets")
    assert result.score == pytest.approx(same.score, abs=1e-12)


@pytest.mark.parametrize(
    ("max_length", "message"),
    [(2, "leaves nothing of a pair"), (3, "leaves nothing of a pair"), (10_000, "reads 40 tokens")],
)
def test_a_length_that_a_cross_encoder_cannot_have_is_refused(folder, max_length, message):
    with pytest.raises(CardError, match=message):
        _ = CrossEncoder(str(folder), max_length=max_length, device="cpu").network

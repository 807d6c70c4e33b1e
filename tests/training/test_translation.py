"""Translation with a Marian model made here: greedy and sampled, kept as it comes, in any batches the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stsbench.core.errors import CardError, EncoderError, SourceError, StsbenchError, UnknownName
from stsbench.data.corpora.corpus import load_corpus
from stsbench.training import translation
from stsbench.training.translation import Decoding, Translation, Translator, write_back_translations
from tests import hub_server
from tests.training.marian import LINES, make_marian

pytest.importorskip("sentencepiece", reason="needs sentencepiece (extra translate)")
pytest.importorskip("sacremoses", reason="needs sacremoses (extra translate)")

SHORT = Decoding(max_tokens=21)
DRAWN = Decoding(mode="sampling", max_tokens=21, seed=5)
hub = hub_server.hub


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("marian")
    return [str(make_marian(root / name, seed=seed)) for seed, name in enumerate(("there", "back"))]


def counted(monkeypatch: pytest.MonkeyPatch, *, fails_at: int = -1) -> list[list[str]]:
    """The batches that models are given from now on; the one of this number is interrupted."""
    seen: list[list[str]] = []
    real = Translator.translate_batch

    def translate(self: Any, sentences: Sequence[str]) -> list[Translation]:
        if len(seen) == fails_at:
            raise KeyboardInterrupt
        seen.append(list(sentences))
        return real(self, sentences)

    monkeypatch.setattr(Translator, "translate_batch", translate)
    return seen


def test_greedy_is_the_likeliest_token_each_time(models):
    translator = Translator(models[0], decoding=SHORT)
    tokenizer, model = translator.marian
    for line in LINES[:3]:
        ids = tokenizer(line, return_tensors="pt")["input_ids"]
        pad, end = model.config.pad_token_id, model.config.eos_token_id
        written = [pad]
        while len(written) <= 21 and written[-1] != end:
            with torch.no_grad():
                logits = model(input_ids=ids, decoder_input_ids=torch.tensor([written])).logits[
                    0, -1
                ]
            logits[pad] = -torch.inf
            written.append(int(logits.argmax()))
        expected = tokenizer.decode(written, skip_special_tokens=True)
        assert translator.translate([line]) == [Translation(expected, cut=written[-1] != end)]


def test_noise_draws_tokens_by_their_probability():
    scores = torch.tensor([[0.0, 1.0, 2.0, -torch.inf]])
    for temperature in (1.0, 0.5):
        ways = (
            Decoding(mode="sampling", seed=seed, temperature=temperature) for seed in range(4000)
        )
        drawn = [int(translation.GumbelNoise(["a"], way)(scores, scores).argmax()) for way in ways]
        shares = np.bincount(drawn, minlength=4) / 4000
        np.testing.assert_allclose(shares, torch.softmax(scores[0] / temperature, 0), atol=0.025)


def test_draws_depend_on_the_seed_and_the_sentence_not_on_the_batch_or_the_order(models):
    one, three = (Translator(models[0], decoding=DRAWN, batch_size=size) for size in (1, 3))
    made = [*map(one.translate_batch, [[line] for line in LINES[:4]])]
    assert three.translate_batch(LINES[3::-1]) == [translation for (translation,) in made[::-1]]
    other = Translator(models[0], decoding=Decoding(mode="sampling", max_tokens=21, seed=6))
    assert other.translate_batch(LINES[:4]) != three.translate_batch(LINES[:4])


def test_each_sentence_is_translated_once(models, monkeypatch):
    seen = counted(monkeypatch)
    heard: list[tuple[int, int]] = []
    translator = Translator(models[0], decoding=SHORT, batch_size=2)
    made = translator.translate(
        [LINES[0], LINES[1], LINES[0], "...", LINES[2]], lambda *at: heard.append(at)
    )
    # Long ones first; without letters there is nothing to translate.
    assert seen == [[LINES[2], LINES[1]], [LINES[0]]]
    assert heard == [(3, 4), (4, 4)]
    assert made[0] == made[2] and made[3] == Translation("...", cut=False)
    assert Translator(models[0], decoding=SHORT).translate(LINES[:3]) == [made[0], made[1], made[4]]
    assert len(seen) == 2
    # Another model, or the same with other settings, is another matter.
    Translator(models[1], decoding=SHORT).translate(LINES[:1])
    Translator(models[0], decoding=DRAWN).translate(LINES[:1])
    assert len(seen) == 4


def test_a_stopped_run_goes_on(models, monkeypatch, tmp_path):
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "whole"))
    whole = Translator(models[0], decoding=DRAWN, batch_size=2).translate(LINES)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "stopped"))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        counted(patch, fails_at=2)
        Translator(models[0], decoding=DRAWN, batch_size=2).translate(LINES)
    translator = Translator(models[0], decoding=DRAWN, batch_size=2)
    assert len(translator.cache_path.read_text().splitlines()) == 4
    # Killed in the midst of a line.
    with translator.cache_path.open("a") as stream:
        stream.write('{"text": "half a li')
    seen = counted(monkeypatch)
    assert translator.translate(LINES) == whole
    assert sum(map(len, seen)) == 2
    assert all(json.loads(line) for line in translator.cache_path.read_text().splitlines())


def test_a_sentence_that_is_too_long_is_read_in_part_and_says_so(models, monkeypatch):
    translator = Translator(models[0], decoding=Decoding(max_tokens=6))
    lengths: list[int] = []

    def generate(*, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
        lengths.append(input_ids.shape[1])
        assert input_ids[0, -1] == 0
        return torch.tensor([[44, 5, 0]])

    monkeypatch.setattr(translator.marian[1], "generate", generate)
    assert [translator.translate_batch([text])[0].cut for text in (LINES[0], "dog")] == [
        True,
        False,
    ]
    assert lengths[0] == 6 > lengths[1]
    with pytest.raises(CardError, match="max_tokens 65: .* 64 "):
        Translator(models[0], decoding=Decoding(max_tokens=65)).translate(LINES[:1])


def test_pairs_and_their_record(models, tmp_path):
    (tmp_path / "in.txt").write_text(
        "\n".join([*LINES, LINES[0], 'with "quotes", and commas']) + "\n"
    )
    corpus = load_corpus(tmp_path / "in.txt")
    there, back = (Translator(model, decoding=SHORT) for model in models)
    heard: set[tuple[str, int]] = set()
    output = tmp_path / "out" / "pairs.csv"
    written = write_back_translations(
        corpus, output, there, back, lambda way, _, total: heard.add((way, total))
    )
    assert (written.rows, written.distinct) == (8, 7)
    pairs = load_corpus(output)
    assert list(pairs.column("anchor")) == list(corpus.column("text"))
    expected = back.translate([one.text for one in there.translate(list(corpus.column("text")))])
    assert list(pairs.column("positive")) == [one.text or " " for one in expected]
    assert {way for way, _ in heard} == {"there", "back"}
    record = json.loads(written.record.read_text())
    assert written.record == tmp_path / "out" / "pairs.csv.json"
    assert record["corpus_sha256"] == corpus.sha256
    assert (
        record["forward"] == there.record
        and record["backward"]["sha256"] != record["forward"]["sha256"]
    )
    assert (record["forward"]["mode"], record["rows"], record["cut"]) == ("greedy", 8, written.cut)
    assert record["run"]["versions"]["sentencepiece"]


def test_a_corpus_of_pairs_gives_its_sentences_and_odd_ones_are_counted(
    models, tmp_path, monkeypatch
):
    (tmp_path / "in.csv").write_text(f"sent0,sent1\n{LINES[0]},{LINES[1]}\n{LINES[0]},{LINES[2]}\n")

    def translate(self: Any, sentences: Sequence[str]) -> list[Translation]:
        return [
            Translation(s if s == LINES[0] else s.upper(), cut=s == LINES[1]) for s in sentences
        ]

    monkeypatch.setattr(Translator, "translate_batch", translate)
    there, back = (Translator(model, decoding=SHORT) for model in models)
    written = write_back_translations(
        load_corpus(tmp_path / "in.csv"), tmp_path / "out.csv", there, back
    )
    assert list(load_corpus(tmp_path / "out.csv").column("anchor")) == LINES[:3]
    assert (written.rows, written.distinct, written.same, written.cut) == (3, 3, 1, 1)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        (
            {"mode": "greed"},
            UnknownName,
            "unknown decoding mode 'greed'; did you mean 'greedy'",
        ),
        (
            {"temperature": 0},
            CardError,
            "temperature must be above 0 and max_tokens 1 or more",
        ),
    ],
)
def test_a_decoding_that_cannot_be_is_one_line(params, error, message):
    with pytest.raises(error, match=message):
        Decoding(**params)


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ({"model": "./none"}, SourceError, "checkpoint folder './none' does not exist"),
        ({"batch_size": 0}, CardError, "batch_size 0: must be 1 or more"),
    ],
)
def test_a_translator_that_cannot_be_is_one_line(models, params, error, message):
    with pytest.raises(error, match=message):
        Translator(**{"model": models[0], **params})


def test_mistakes_are_one_line(models, tmp_path, monkeypatch):
    broken = Path(make_marian(tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(EncoderError, match="broken"):
        Translator(str(broken)).translate(["a dog"])
    monkeypatch.setattr(translation, "find_spec", lambda name: None)
    with pytest.raises(
        StsbenchError, match="needs sentencepiece; install it with: pip install 'stsbench.tr"
    ):
        Translator(models[0])


def test_a_model_from_the_hub_as_most_are_published(hub, models, tmp_path):
    files = {path.name: path.read_bytes() for path in Path(models[0]).iterdir()}
    del files["model.safetensors"]
    torch.save(load_file(Path(models[0]) / "model.safetensors"), tmp_path / "pytorch_model.bin")
    files["pytorch_model.bin"] = (tmp_path / "pytorch_model.bin").read_bytes()
    commit = hub.add(
        "model", "owner/opus", {**files, "tf_model.h5": b"no", "README.md": b"no"}
    ).commit
    translator = Translator("owner/opus", decoding=SHORT)
    assert translator.record["revision"] == commit
    assert translator.translate(LINES[:2]) == Translator(models[0], decoding=SHORT).translate(
        LINES[:2]
    )
    assert not hub.gets("tf_model.h5")

import json
import os
import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.data import hub
from stsbench.encoders.modules import digests
from stsbench.encoders.seams import Encoder
from stsbench.encoders.sentence_transformer import SentenceTransformerEncoder, plain_transformer_params
from stsbench.encoders.transformer import TransformerEncoder
from stsbench.errors import CardError, EncoderError, SourceError, UnknownName

SENTENCES = [
    "a dog runs",
    "",
    "😀 שלום עולם dog",
    "the cat sat on the mat , and the dog ran",
    "http://x.org/dog.jpg",
    "dog cat " * 400,
    "A DOG runs",
    *(f"the dog ran {i} times" for i in range(30)),
]
WORDS = ["a", "the", "dog", "cat", "runs", "ran", "sat", "on", "mat", "and", "times", ",", "##s", "q", ":"]
MEAN = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain BERT with 2 layers of 16, random weights and 64 positions."""
    from transformers import BertConfig, BertModel, BertTokenizer

    folder = tmp_path_factory.mktemp("bert")
    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    BertTokenizer(vocab=vocab, model_max_length=64).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def save(folder: Path, *modules: Any, **options: Any) -> Path:
    from sentence_transformers import SentenceTransformer

    safe = options.pop("safe_serialization", True)
    SentenceTransformer(modules=list(modules), device="cpu", **options).save(str(folder), safe_serialization=safe)
    return folder


def word_embeddings() -> Any:
    from sentence_transformers.sentence_transformer.modules import WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    tokenizer = WhitespaceTokenizer(["PADDING", *WORDS], stop_words=[","])
    weights = np.random.default_rng(0).normal(size=(len(WORDS) + 1, 8)).astype(np.float32)
    weights[0] = 0
    return WordEmbeddings(tokenizer, weights)


@pytest.fixture(scope="session")
def saved(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """One saved checkpoint of each make, by what is special in it."""
    from sentence_transformers.sentence_transformer import modules as m

    root = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    prompts = {"query": "q : ", "plain": "the "}
    return {
        "dense": save(root / "dense", m.Transformer(str(bert)), m.Pooling(16, "mean"), m.Dense(16, 4), m.Normalize()),
        "two poolings": save(root / "two", m.Transformer(str(bert)), m.Pooling(16, ("cls", "max")), prompts=prompts),
        "words": save(root / "words", word_embeddings(), m.Pooling(8, "mean"), m.Dense(8, 4)),
        "lstm": save(root / "lstm", word_embeddings(), m.LSTM(8, 6), m.Pooling(12, "max")),
        "cnn": save(root / "cnn", word_embeddings(), m.CNN(8, 6), m.Pooling(18, "max"), safe_serialization=False),
        "prompted": save(
            root / "prompted",
            m.Transformer(str(bert)),
            m.Pooling(16, "mean", include_prompt=False),
            prompts=prompts,
            default_prompt_name="query",
        ),
    }


MAKES = {"dense": 4, "two poolings": 32, "words": 4, "lstm": 12, "cnn": 18, "prompted": 16}


@pytest.fixture
def dense(saved: Mapping[str, Path], tmp_path: Path) -> Path:
    """A copy of the checkpoint with a dense layer, to be damaged."""
    return Path(shutil.copytree(saved["dense"], tmp_path / "dense"))


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


# --- what is computed ---


@pytest.mark.parametrize("make", MAKES)
def test_embeddings_are_the_librarys(saved, capfd, make):
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformerEncoder(str(saved[make]))
    embeddings = encoder.encode(SENTENCES)
    assert isinstance(encoder, Encoder)
    assert embeddings.shape == (len(SENTENCES), MAKES[make])
    assert embeddings.dtype == np.float32
    # The library's largest of no value at all is -inf, which the engine refuses with the sentence.
    assert np.isfinite(np.delete(embeddings, 1, axis=0)).all()
    assert np.isfinite(embeddings).all() == (make not in ("lstm", "cnn"))
    assert encoder.encode([]).shape == (0, MAKES[make])
    assert encoder.encode(tuple(SENTENCES)).tobytes() == embeddings.tobytes()
    # Nothing is said to the user.
    assert capfd.readouterr() == ("", "")
    library = SentenceTransformer(str(saved[make]), device="cpu", local_files_only=True)
    np.testing.assert_allclose(embeddings, library.encode(SENTENCES, show_progress_bar=False), atol=1e-6)


@pytest.mark.parametrize("make", MAKES)
def test_order_and_neighbours_do_not_matter(saved, make):
    encoder = SentenceTransformerEncoder(str(saved[make]))
    together = encoder.encode(SENTENCES)
    np.testing.assert_allclose(encoder.encode(SENTENCES[::-1])[::-1], together, atol=1e-5)
    alone = np.concatenate([encoder.encode([sentence]) for sentence in SENTENCES[:7]])
    np.testing.assert_allclose(alone, together[:7], atol=1e-5)
    again = SentenceTransformerEncoder(str(saved[make]))
    assert again.encode(SENTENCES).tobytes() == together.tobytes()
    assert again.fingerprint == encoder.fingerprint


def test_prompts(saved):
    def embed(make: str, sentences: list[str], **params: Any) -> Any:
        return SentenceTransformerEncoder(str(saved[make]), **params).encode(sentences)

    plain = embed("two poolings", ["dog"])
    asked = embed("two poolings", ["q : dog"])
    assert not np.allclose(plain, asked)
    np.testing.assert_allclose(embed("two poolings", ["dog"], prompt="q : "), asked, atol=1e-6)
    np.testing.assert_allclose(embed("two poolings", ["dog"], prompt_name="query"), asked, atol=1e-6)
    # A default prompt is put before, and can be left out.
    default = embed("prompted", ["dog"])
    np.testing.assert_allclose(embed("prompted", ["dog"], prompt_name="query"), default, atol=1e-6)
    assert not np.allclose(embed("prompted", ["dog"], prompt_name=""), default)
    with pytest.raises(UnknownName, match=r"unknown prompt of .* 'qery'; did you mean 'query'"):
        embed("two poolings", [], prompt_name="qery")
    with pytest.raises(CardError, match="not both"):
        embed("two poolings", [], prompt_name="query", prompt="q")


def test_max_length_cuts(saved):
    long, short = "dog cat sat on the mat", "dog cat"
    for make in ("dense", "words"):
        encoder = SentenceTransformerEncoder(str(saved[make]), max_length=4 if make == "dense" else 2)
        np.testing.assert_allclose(encoder.encode([long]), encoder.encode([short]), atol=1e-6)
    with pytest.raises(CardError, match="max_length 65: .* has 64 positions"):
        SentenceTransformerEncoder(str(saved["dense"]), max_length=65).encode(["dog"])
    with pytest.raises(CardError, match="max_length 0"):
        SentenceTransformerEncoder(str(saved["dense"]), max_length=0)


def test_normalise(saved):
    def lengths(make: str, normalise: bool | None) -> Any:
        return np.linalg.norm(
            SentenceTransformerEncoder(str(saved[make]), normalise=normalise).encode(SENTENCES), axis=1
        )

    np.testing.assert_allclose(lengths("dense", None), 1, atol=1e-6)
    assert not np.allclose(lengths("dense", False), 1)
    np.testing.assert_allclose(lengths("two poolings", True), 1, atol=1e-6)
    assert not np.allclose(lengths("two poolings", None), 1)


@pytest.mark.parametrize("make", ["dense", "words"])
def test_half_precision_is_a_choice(saved, make):
    exact = SentenceTransformerEncoder(str(saved[make])).encode(SENTENCES)
    rough = SentenceTransformerEncoder(str(saved[make]), dtype="bfloat16")
    assert {p.dtype for p in rough.network.parameters()} == {torch.bfloat16}
    assert rough.encode(SENTENCES).dtype == np.float32
    np.testing.assert_allclose(rough.encode(SENTENCES), exact, atol=0.1)
    assert not np.array_equal(rough.encode(SENTENCES), exact)
    with pytest.raises(CardError, match="unknown dtype 'float23'; did you mean"):
        SentenceTransformerEncoder(str(saved[make]), dtype="float23")


# --- what it is ---


def test_fingerprint_changes_with_what_decides_embeddings(saved, dense):
    def of(folder: Path = dense, **params: Any) -> str:
        return SentenceTransformerEncoder(str(folder), **params).fingerprint

    original = of()
    choices: list[dict[str, Any]] = [{"prompt": "q"}, {"max_length": 8}, {"normalise": False}, {"dtype": "bfloat16"}]
    assert len({original, *(of(**choice) for choice in choices), *(of(path) for path in saved.values())}) == 10
    assert of(saved["dense"]) == of(name="another", device="cpu") == original
    (dense / "README.md").write_text("Another text.")
    (dense / "onnx").mkdir()
    (dense / "onnx" / "config.json").write_text("{}")
    (dense / "pytorch_model.bin").write_bytes(b"not read beside safetensors")
    (dense / "training_args.bin").write_bytes(b"not read")
    assert of() == original
    seen = {original}
    for name in sorted(digests(saved["dense"])):
        path = dense / name
        content = path.read_bytes()
        path.write_bytes(content.replace(b"}", b" }", 1) if path.suffix == ".json" else content + b" ")
        seen.add(of())
        path.write_bytes(content)
    assert len(seen) == len(digests(saved["dense"])) + 1 >= 9
    assert {"model.safetensors", "2_Dense/model.safetensors", "tokenizer.json"} <= set(digests(dense))
    assert "1_CNN/pytorch_model.bin" in digests(saved["cnn"])


def test_nothing_is_loaded_for_a_fingerprint(saved):
    encoder = SentenceTransformerEncoder(str(saved["dense"]), name="mine")
    assert len(encoder.fingerprint) == 64
    assert (encoder.name, encoder.revision) == ("mine", None)
    assert "network" not in vars(encoder)


def test_a_hub_checkpoint_comes_with_all_its_modules(saved, monkeypatch):
    def fetch(repo, *, revision):
        assert (repo, revision) == ("owner/words", "unpinned")
        return hub.HubFolder(saved["words"], "c" * 40)

    monkeypatch.setattr(hub, "fetch_checkpoint", fetch)
    encoder = SentenceTransformerEncoder("owner/words")
    assert (encoder.name, encoder.revision) == ("owner/words", "c" * 40)
    assert encoder.encode(["dog"]).shape == (1, 4)


# --- what is refused ---


def test_code_of_the_checkpoint_is_never_run(dense):
    (dense / "evil.py").write_text("raise SystemExit('ran')")
    modules = json.loads((dense / "modules.json").read_text())
    modules[2]["type"] = "evil.Dense"
    (dense / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EncoderError, match=r"asks for code outside sentence-transformers \('evil.Dense'\)"):
        SentenceTransformerEncoder(str(dense))
    assert plain_transformer_params(dense) is None


def test_code_named_deeper_down_is_never_run(saved, tmp_path, dense):
    change(dense / "2_Dense" / "config.json", activation_function="os.system")
    with pytest.raises(EncoderError, match="activation 'os.system' is not torch's"):
        SentenceTransformerEncoder(str(dense))
    words = Path(shutil.copytree(saved["words"], tmp_path / "words"))
    (words / "evil.py").write_text("raise SystemExit('ran')")
    change(words / "wordembedding_config.json", tokenizer_class="evil.Tokenizer")
    with pytest.raises(EncoderError, match="cannot be loaded: .*not part of Sentence Transformers"):
        SentenceTransformerEncoder(str(words)).encode(["dog"])


class Payload:
    """Runs code when unpickled."""

    def __reduce__(self):
        return (os.mkdir, (str(Path(os.environ["PAYLOAD"])),))


@pytest.mark.parametrize("at", ["1_CNN", "."])
def test_a_pickle_is_never_run(saved, tmp_path, monkeypatch, at):
    monkeypatch.setenv("PAYLOAD", str(tmp_path / "ran"))
    folder = Path(shutil.copytree(saved["cnn"], tmp_path / "cnn"))
    (folder / at / "pytorch_model.bin").write_bytes(pickle.dumps({"emb_layer.weight": Payload()}))
    with pytest.raises(EncoderError, match="cannot be loaded") as caught:
        SentenceTransformerEncoder(str(folder)).encode(["dog"])
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no modules.json": (lambda d: (d / "modules.json").unlink(), "is for the encoder kind 'transformer'"),
    "no list": (lambda d: (d / "modules.json").write_text('{"a": 1}'), "is no list of modules"),
    "empty list": (lambda d: (d / "modules.json").write_text("[]"), "lists no modules"),
    "broken JSON": (lambda d: (d / "modules.json").write_text("[{"), "is no list of modules"),
    "outside": (
        lambda d: (d / "modules.json").write_text('[{"type": "sentence_transformers.X", "path": "../x"}]'),
        "leads out of the checkpoint",
    ),
    "another family": (
        lambda d: change(d / "config_sentence_transformers.json", model_type="SparseEncoder"),
        "is a SparseEncoder",
    ),
    "adapter": (lambda d: (d / "adapter_config.json").write_text("{}"), "is an adapter"),
    "no weights": (lambda d: (d / "model.safetensors").unlink(), "cannot be loaded"),
    "cut weights": (lambda d: os.truncate(d / "model.safetensors", 5000), "cannot be loaded"),
    "no dense weights": (lambda d: (d / "2_Dense" / "model.safetensors").unlink(), "cannot be loaded"),
    "no default prompt": (
        lambda d: change(d / "config_sentence_transformers.json", default_prompt_name="x"),
        "unknown prompt",
    ),
}


@pytest.mark.parametrize("case", BREAKS)
def test_a_broken_checkpoint_is_one_clear_line(dense, case):
    damage, message = BREAKS[case]
    damage(dense)
    with pytest.raises((EncoderError, UnknownName), match=message) as caught:
        SentenceTransformerEncoder(str(dense)).encode(["dog"])
    assert "\n" not in str(caught.value)
    assert str(dense) in str(caught.value)


def test_a_missing_weight_is_not_made_up(dense, monkeypatch):
    from safetensors.torch import load_file, save_file

    weights = load_file(dense / "model.safetensors")
    del weights["encoder.layer.1.output.dense.weight"]
    save_file(weights, dense / "model.safetensors", {"format": "pt"})
    with pytest.raises(EncoderError, match=r"the weights lack 'encoder.layer.1.output.dense.weight'"):
        SentenceTransformerEncoder(str(dense)).encode(["dog"])


@pytest.mark.parametrize("model", ["/no/such/folder", "./none", "~/no such"])
def test_a_missing_folder_is_one_clear_line(model):
    with pytest.raises(SourceError, match=f"checkpoint folder '{model}' does not exist"):
        SentenceTransformerEncoder(model)


# --- plain transformers, for our own engine ---


def plain(
    bert: Path,
    folder: Path,
    *,
    pooling: Mapping[str, Any],
    own: Mapping[str, Any],
    normalise: bool,
    prompt: str,
    at: str,
) -> Path:
    """Write a checkpoint as the library's versions before 5.4 did."""
    shutil.copytree(bert, folder / at)
    kinds = [("Transformer", at), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] if normalise else [])]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / at / "sentence_bert_config.json").write_text(json.dumps(own))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    if prompt:
        config = {"prompts": {"sts": prompt}, "default_prompt_name": "sts"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    return folder


def old(mode: str) -> dict[str, Any]:
    return {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": False, f"pooling_mode_{mode}": True}


PLAIN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "old mean": ({"pooling": old("mean_tokens")}, {"pooling": "mean", "normalise": False}),
    "old cls": ({"pooling": old("cls_token")}, {"pooling": "cls_before_pooler", "normalise": False}),
    "old max": ({"pooling": old("max_tokens")}, {"pooling": "max", "normalise": False}),
    "old last": ({"pooling": old("lasttoken")}, {"pooling": "last_token", "normalise": False}),
    "no mode": ({"pooling": {"word_embedding_dimension": 16}}, {"pooling": "mean", "normalise": False}),
    "new mode": (
        {"pooling": {"embedding_dimension": 16, "pooling_mode": "max", "include_prompt": True}},
        {"pooling": "max", "normalise": False},
    ),
    "new list": (
        {"pooling": {"embedding_dimension": 16, "pooling_mode": ["cls"]}},
        {"pooling": "cls_before_pooler", "normalise": False},
    ),
    "cut": (
        {"own": {"max_seq_length": 7, "do_lower_case": False}},
        {"pooling": "mean", "normalise": False, "max_length": 7},
    ),
    "no limit": ({"own": {"max_seq_length": None, "model_args": {}}}, {"pooling": "mean", "normalise": False}),
    "normalised": ({"normalise": True}, {"pooling": "mean", "normalise": True}),
    "prompted": ({"prompt": "q : "}, {"pooling": "mean", "normalise": False, "prompt": "q : "}),
    "in a folder": (
        {"at": "0_Transformer"},
        {"pooling": "mean", "normalise": False, "subfolder": "0_Transformer"},
    ),
}
DEFAULTS: dict[str, Any] = {"pooling": MEAN, "own": {}, "normalise": False, "prompt": "", "at": ""}


@pytest.mark.parametrize("case", PLAIN)
def test_our_engine_gives_what_the_library_gives(bert, tmp_path, case):
    made, expected = PLAIN[case]
    folder = plain(bert, tmp_path / "model", **{**DEFAULTS, **made})
    params = plain_transformer_params(folder)
    assert params == expected
    ours = TransformerEncoder(str(folder), **(params or {}), device="cpu").encode(SENTENCES)
    theirs = SentenceTransformerEncoder(str(folder), device="cpu").encode(SENTENCES)
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


@pytest.mark.parametrize("normalise", [False, True])
def test_checkpoints_saved_today_are_seen_through(bert, tmp_path, normalise):
    from sentence_transformers.sentence_transformer import modules as m

    steps = [m.Transformer(str(bert), max_seq_length=9), m.Pooling(16, "cls"), *([m.Normalize()] if normalise else [])]
    folder = save(tmp_path / "model", *steps)
    params = plain_transformer_params(folder)
    assert params == {"pooling": "cls_before_pooler", "normalise": normalise}
    ours = TransformerEncoder(str(folder), **params).encode(SENTENCES)
    np.testing.assert_allclose(ours, SentenceTransformerEncoder(str(folder)).encode(SENTENCES), atol=2e-6)


def test_left_padding_is_passed_on(bert, tmp_path):
    folder = plain(bert, tmp_path / "model", **DEFAULTS)
    change(folder / "tokenizer_config.json", padding_side="left")
    assert plain_transformer_params(folder) == {"pooling": "mean", "normalise": False, "padding_side": "left"}


NOT_PLAIN: dict[str, dict[str, Any]] = {
    "two modes": {"pooling": {**MEAN, "pooling_mode_max_tokens": True}},
    "two new modes": {"pooling": {"embedding_dimension": 16, "pooling_mode": ["mean", "max"]}},
    "root of length": {"pooling": old("mean_sqrt_len_tokens")},
    "weighted": {"pooling": {"embedding_dimension": 16, "pooling_mode": "weightedmean"}},
    "prompt left out": {"pooling": {**MEAN, "include_prompt": False}, "prompt": "q : "},
    "unknown pooling key": {"pooling": {**MEAN, "window": 3}},
    "lower case": {"own": {"do_lower_case": True}},
    "another output": {"own": {"module_output_name": "sentence_embedding"}},
    "own arguments": {"own": {"model_args": {"attn_implementation": "eager"}}},
    "own processing": {"own": {"processing_kwargs": {"text": {"padding": "max_length"}}}},
}


@pytest.mark.parametrize("case", NOT_PLAIN)
def test_what_only_the_library_does_is_left_to_it(bert, tmp_path, case):
    assert plain_transformer_params(plain(bert, tmp_path / "model", **{**DEFAULTS, **NOT_PLAIN[case]})) is None


@pytest.mark.parametrize("change_to", [{"is_encoder_decoder": True}, {"model_type": "t5"}, {"vision_config": {}}])
def test_other_architectures_are_left_to_the_library(bert, tmp_path, change_to):
    folder = plain(bert, tmp_path / "model", **DEFAULTS)
    change(folder / "config.json", **change_to)
    assert plain_transformer_params(folder) is None


def test_other_checkpoints_are_not_plain(saved, bert, dense):
    assert plain_transformer_params(bert) is None
    assert [make for make, folder in saved.items() if plain_transformer_params(folder)] == []
    (dense / "modules.json").write_text("[{")
    with pytest.raises(EncoderError, match="is no list of modules"):
        plain_transformer_params(dense)

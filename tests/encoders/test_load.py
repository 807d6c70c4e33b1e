"""From a name to an encoder: what makes it, what it is called, and what its results say of it."""

from pathlib import Path

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, SourceError
from stsbench.core.files import file_sha256
from stsbench.encoders.kinds import find_requirement, is_factory
from stsbench.encoders.load import load_named
from stsbench.encoders.named import NamedEncoder, find_named, variant_name
from stsbench.encoders.runs import TrainedRun
from tests.encoders.fakes import Plain
from tests.hub_server import unplug


def test_a_card_without_a_checkpoint_says_where_to_get_one():
    with pytest.raises(SourceError, match="'consert-bert-base' ") as caught:
        load_named("consert-bert-base")
    assert "--set model=FOLDER" in caught.value.hint


def test_a_folder_whose_files_the_card_knows_is_the_cards_own_encoder(tmp_path, tiny):
    card = tmp_path / "mine.toml"
    digest = file_sha256(tiny["bert"] / "model.safetensors")
    head = "\n".join(f'{key} = "x"' for key in ("name", "method", "backbone", "paper", "license"))
    text = f'{head}\nkind = "transformer"\nsupervision = "none"\noverlap = "none"\n'
    card.write_text(f'{text}[params.sha256]\n"model.safetensors" = "{digest}"\n')
    with pytest.raises(
        SourceError, match="^the card of 'mine' names no checkpoint to fetch"
    ) as caught:
        load_named(str(card))
    assert "`params=model=FOLDER`" in caught.value.hint
    folder = str(tiny["bert"])
    assert load_named(str(card), params={"model": folder}).name == "mine"
    assert (
        load_named(str(card), params={"model": folder, "pooling": "max"}).name == "mine+pooling=max"
    )
    with pytest.raises(EncoderError, match="its card names"):
        load_named(str(card), params={"model": str(tiny["roberta"])})
    # Without hashes any folder would pass for the card's own.
    card.write_text(text)
    assert load_named(str(card), params={"model": folder}).name == f"mine+model={tiny['bert'].name}"


def test_the_revision_of_a_card_is_not_that_of_another_checkpoint(monkeypatch):
    unplug(monkeypatch)
    revision = Catalogue().encoder("arctic-embed-xs").params["revision"]
    with pytest.raises(SourceError, match=revision[:12]):
        load_named("arctic-embed-xs")
    with pytest.raises(SourceError, match=r"'of/mine' \(revision main\)"):
        load_named("arctic-embed-xs", params={"model": "of/mine"})


class Fitted(Plain):
    def fit_texts(self, sentences: list[str]) -> Plain:
        return self


class FromWeights(Plain):
    needs = "checkpoint"


class Unclear(Plain):
    needs = "weights"


def make_fitted() -> Fitted:
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        ("transformer", "checkpoint"),
        ("openai", "server"),
        ("flow", "texts"),
        ("words", "nothing"),
        ("tests.encoders.fakes:Plain", "nothing"),
        ("tests.encoders.test_load:Fitted", "texts"),
        ("tests.encoders.test_load:make_fitted", "texts"),
        ("tests.encoders.test_load:FromWeights", "checkpoint"),
        ("no.such.module:Encoder", "nothing"),
    ],
)
def test_a_kind_declares_what_its_encoders_need(kind, needs):
    assert find_requirement(kind) == needs


def test_a_kind_of_a_user_that_needs_a_checkpoint_asks_for_one(tmp_path):
    head = "\n".join(f'{key} = "x"' for key in ("name", "method", "backbone", "paper", "license"))
    text = f'{head}\nsupervision = "none"\noverlap = "none"\nkind = "tests.encoders.test_load:'
    (tmp_path / "mine.toml").write_text(f'{text}FromWeights"\n')
    with pytest.raises(SourceError, match="'mine' names no"):
        load_named(str(tmp_path / "mine.toml"))
    (tmp_path / "mine.toml").write_text(f'{text}Unclear"\n')
    with pytest.raises(EncoderError, match="must be one of checkpoint, server, texts, nothing; it"):
        load_named(str(tmp_path / "mine.toml"))


def test_what_may_make_an_encoder_is_told_without_calling_it():
    def made() -> Plain:
        raise AssertionError

    def counted() -> int:
        raise AssertionError

    assert [is_factory(one) for one in (Plain, Plain(), made)] == [True, True, True]
    assert [is_factory(one) for one in (int, 3, counted, __import__("os").getcwd)] == [
        False,
        False,
        False,
        False,
    ]


def test_a_changed_parameter_changes_the_name():
    assert (
        variant_name("minilm", {"pooling": "max", "dtype": "bfloat16"})
        == "minilm+dtype=bfloat16+pooling=max"
    )
    assert variant_name("minilm", {"device": "cpu"}) == "minilm"
    assert variant_name("flow", {"seed": 3}, excluded=["seed"]) == "flow"
    # In which folder of this machine a file lies is no part of a name.
    places: list[object] = ["/home/me/x.txt", "~/x.txt", "C:\\\\me\\\\x.txt", "x.txt"]
    assert {variant_name("glove", {"file": place}) for place in places} == {"glove+file=x.txt"}
    assert variant_name("a", {"files": ["/tmp/b.txt", "c/d.txt"]}) == "a+files=['b.txt', 'c/d.txt']"


def test_an_encoder_with_a_cards_name_is_called_by_its_class():
    catalogue, encoder = Catalogue(), Plain()
    assert find_named(encoder, catalogue).name == "plain"
    encoder.name = "minilm"
    assert find_named(encoder, catalogue).name == "tests.encoders.fakes:Plain"


@pytest.mark.parametrize(
    ("recorded", "saw_task", "expected", "claimed"),
    [
        ("none", False, "none", "unknown"),
        ("none", True, "text", "unknown"),
        ("text", False, "text", "text"),
        ("gold", True, "gold", "gold"),
        ("unknown", False, "unknown", "unknown"),
    ],
)
def test_overlap_is_the_worst_of_training_and_fitting(recorded, saw_task, expected, claimed):
    run = TrainedRun(folder=Path(), recipe="mine", seed=0, overlap={"stsb": recorded})
    assert (
        NamedEncoder(name="mine", encoder=Plain(), run=run, fitted_on_task=saw_task).overlap_with(
            "stsb"
        )
        == expected
    )
    # A record beside a folder is believed where it speaks against it.
    assert (
        NamedEncoder(name="mine", encoder=Plain(), claimed_run=run).overlap_with("stsb") == claimed
    )

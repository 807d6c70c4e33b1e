"""What tables say of encoders beside scores: sizes, years, papers and models."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

from stsbench.boards.published.encoder_facts import read_encoder_facts
from stsbench.boards.published.rows import list_tables, look_up_published_row
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.filters import read_languages
from stsbench.boards.tables.table import EncoderTraits
from stsbench.boards.tables.traits import hub_address, read_traits
from stsbench.core.catalogue import Catalogue

LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
SMALL = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
XLMR = {**ROBERTA, "vocab_size": 250002}
ALBERT = {
    "embedding_size": 128,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}
BUILT: dict[str, tuple[str, dict[str, int]]] = {
    "ALBERT-base": ("albert", {"num_hidden_layers": 12, **ALBERT}),
    "BERT-base": ("bert", {}),
    "BERT-large": ("bert", LARGE),
    "BERT-small": ("bert", {**SMALL, "num_hidden_layers": 12}),
    "DistilBERT": ("distilbert", {}),
    "DistilRoBERTa-base": ("roberta", {**ROBERTA, "num_hidden_layers": 6}),
    "DistilmBERT": ("distilbert", {"vocab_size": 119547}),
    "LaBSE": ("bert", {"vocab_size": 501153}),
    "MPNet-base": ("mpnet", {"vocab_size": 30527, "max_position_embeddings": 514}),
    "MiniLM-L4": ("bert", {**SMALL, "num_hidden_layers": 4}),
    "RoBERTa-base": ("roberta", ROBERTA),
    "RoBERTa-large": ("roberta", {**ROBERTA, **LARGE}),
    "T5-base": ("t5", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}),
    "XLM-R-base": ("roberta", XLMR),
    "ModernBERT-base": ("modernbert", {}),
    "XLM-R-large": ("roberta", {**XLMR, **LARGE}),
    "XLM-R-large (8192 tokens)": ("roberta", {**XLMR, "max_position_embeddings": 8194, **LARGE}),
    "mBERT": ("bert", {"vocab_size": 119547}),
    "mMiniLM": ("bert", {**SMALL, "num_hidden_layers": 12, "vocab_size": 250037}),
}


@pytest.mark.parametrize("backbone", BUILT)
def test_a_backbone_has_as_many_parameters_as_transformers_builds(backbone):
    kind, sizes = BUILT[backbone]
    with torch.device("meta"):
        made = AutoModelForTextEncoding if kind == "t5" else AutoModel
        network = made.from_config(AutoConfig.for_model(kind, **sizes))
    assert (
        sum(one.numel() for one in network.parameters())
        == read_encoder_facts()["parameters"][backbone]
    )


def test_an_encoder_is_what_its_card_says():
    catalogue = Catalogue()
    assert read_traits(catalogue, catalogue.encoder("simcse-bert-base")) == EncoderTraits(
        method="SimCSE",
        backbone="BERT-base",
        supervision="none",
        parameters=109_482_240,
        year=2021,
        paper="https://arxiv.org/abs/2104.08821",
        model="https://huggingface.co/princeton-nlp/unsup-simcse-bert-base-uncased",
        languages=("eng",),
        license="MIT",
        is_open=True,
    )
    assert read_traits(catalogue) == EncoderTraits()


@pytest.mark.parametrize(
    ("name", "year"),
    [
        ("glove-6b", 2014),
        ("ct-bert-base", 2021),
        ("use-large", 2018),
        ("esimcse-bert-base", 2022),
        ("clear-base", 2020),
    ],
)
def test_the_year_is_that_of_the_work(name, year):
    catalogue = Catalogue()
    assert read_traits(catalogue, catalogue.encoder(name)).year == year


def test_the_year_of_an_old_address_is_of_its_own_century():
    catalogue = Catalogue()
    card = catalogue.encoder("glove-6b")
    for address, year in (("P98-1001", 1998), ("W97-0301", 1997), ("W04-0301", 2004)):
        old = msgspec.structs.replace(card, paper=f"https://aclanthology.org/{address}")
        assert read_traits(catalogue, old).year == year


def test_an_encoder_made_of_another_has_its_size():
    catalogue = Catalogue()
    minilm = catalogue.encoder("minilm").parameters
    assert (
        read_traits(catalogue, catalogue.encoder("minilm-whitening")).parameters
        == minilm
        == 22_713_216
    )
    # The recipe's backbone is another card.
    recipe = catalogue.find_encoder("bt-small", next(iter(catalogue.digests("bt-small"))))
    assert recipe is not None and recipe.backbone == "minilm-l4-mlm"
    assert (
        read_traits(catalogue, recipe).parameters == read_encoder_facts()["parameters"]["MiniLM-L4"]
    )


def test_another_network_under_a_cards_name_has_neither_its_size_nor_its_page():
    catalogue = Catalogue()
    card = catalogue.encoder("simcse-bert-base")
    same = read_traits(catalogue, msgspec.structs.replace(card, name=f"{card.name}+pooling=mean"))
    other = read_traits(
        catalogue, msgspec.structs.replace(card, name=f"{card.name}+model=a/b+pooling=mean")
    )
    assert same.parameters and same.model and same.languages and same.license and same.is_open
    assert (other.parameters, other.model, other.license) == (None, "", "")
    assert (other.languages, other.is_open) == ((), None)


@pytest.mark.parametrize(
    ("name", "language", "license_name", "is_open"),
    [
        ("bge-m3", "deu", "MIT", True),
        ("text-embedding-3-large", "", "proprietary", False),
        ("clear-base", "eng", "", None),
        ("bert-base-flow", "eng", "Apache-2.0", None),
    ],
)
def test_what_boards_choose_by_is_on_the_card(name, language, license_name, is_open):
    catalogue = Catalogue()
    traits = read_traits(catalogue, catalogue.encoder(name))
    assert language in traits.languages or not (language or traits.languages)
    assert (traits.license, traits.is_open) == (license_name, is_open)


def test_languages_of_cards_have_names():
    catalogue = Catalogue()
    unnamed = {
        code
        for name in catalogue.paths("baselines")
        for code in read_traits(catalogue, catalogue.encoder(name)).languages
        if code not in read_languages()
    }
    assert unnamed == set()


def test_a_published_row_without_a_card_is_of_its_source():
    catalogue = Catalogue()
    source = look_up_published_row("sgopt/table-1/BERT-base SG-OPT")
    found = read_traits(catalogue, None, source)
    assert (found.year, found.paper, found.model) == (
        2021,
        "https://aclanthology.org/2021.acl-long.197",
        "",
    )
    assert found.parameters == 109_482_240
    # What was taken over is of the work it was taken from.
    assert (
        read_traits(catalogue, None, look_up_published_row("consert/table-2/IS-BERT-base-NLI")).year
        == 2020
    )


def test_only_what_browsers_open_is_an_address(tmp_path, monkeypatch):
    catalogue = Catalogue()
    card = msgspec.structs.replace(
        catalogue.encoder("simcse-bert-base"), paper="javascript:x()", hub=""
    )
    assert read_traits(catalogue, card).paper == ""
    assert (
        hub_address("a/b") == "https://huggingface.co/a/b"
        and hub_address("../a/b") == hub_address("a b/c") == ""
    )
    monkeypatch.chdir(tmp_path)
    Path("runs/mine").mkdir(parents=True)
    local = msgspec.structs.replace(card, params={"model": "runs/mine"})
    assert read_traits(catalogue, local).model == ""


def test_every_card_has_a_paper_and_its_year():
    catalogue = Catalogue()
    found = {
        name: read_traits(catalogue, catalogue.encoder(name))
        for name in catalogue.paths("baselines")
    }
    assert [
        name for name, one in found.items() if not (one.year and one.paper.startswith("https://"))
    ] == []
    assert {one.year for one in found.values()} <= set(range(2013, 2027))


def test_methods_and_backbones_have_one_spelling_each():
    rows = [row for name in list_tables() for row in build_table(name).rows()]
    for trait in ("method", "backbone"):
        names = {getattr(row.traits, trait) for row in rows}
        folded = [re.sub(r"[\W_]", "", name).casefold() for name in names]
        assert len(set(folded)) == len(names), sorted(names)
    # An encoder with a card is called by its network.
    card = Catalogue().encoder("minilm-l4-mlm")
    assert (
        read_traits(Catalogue(), msgspec.structs.replace(card, backbone="minilm-l4-mlm")).backbone
        == card.backbone
    )

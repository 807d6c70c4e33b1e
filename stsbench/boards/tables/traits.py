"""What an encoder is: its method, backbone, size and year, from its card and published rows."""

from __future__ import annotations

import re
from pathlib import Path

from stsbench.boards.published.encoder_facts import count_parameters, read_encoder_facts
from stsbench.boards.published.rows import Paper, PublishedRow, read_sources
from stsbench.boards.tables.filters import find_language
from stsbench.boards.tables.table import EncoderTraits
from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import UnknownName
from stsbench.core.names import replaces_network

ADDRESS = re.compile(r"https?://[^\s,]+")
YEAR_IN_ADDRESS = re.compile(
    r"arxiv\.org/abs/(?=\d{4}\.)(\d\d)|aclanthology\.org/(?:20(?=\d\d\.)|[A-Z](?=\d\d-))(\d\d)"
)
"""Its groups are the last two digits of the year, in addresses of arXiv and of the ACL."""
HUB_SITE = "https://huggingface.co/"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def read_traits(
    catalogue: Catalogue,
    card: EncoderCard | None = None,
    published: PublishedRow | None = None,
) -> EncoderTraits:
    """Return facts about an encoder: its method, size, year, paper, languages, licence and others.

    Facts that are not known are empty or None. All are, if it has no card and no published row.

    Args:
        catalogue: The cards, in which its backbone (the network it is built on) is looked up.
        card: The encoder's card; None if it has none. Its paper comes before that of the row.
        published: A published row of the encoder; None if it has none. Its method, backbone and
            supervision come before those of the card.
    """
    described = published or card
    if described is None:
        return EncoderTraits()
    # The paper that the row was quoted from, else the one that the row is in.
    source = read_sources().papers[published.quoted or published.paper] if published else None
    card_paper = _find_address(card.paper) if card else ""
    # A user may replace the card's network by a parameter behind its name: "minilm+model=…". Facts
    # of the card's own network do not hold then.
    has_other_network = card is not None and replaces_network(card.name)
    n_parameters = None
    if not has_other_network:
        n_parameters = count_parameters(catalogue, card, described.backbone)
    backbone = described.backbone
    if backbone in catalogue.paths("baselines"):
        # An encoder with a card is called by its network, so that a backbone has one spelling.
        backbone = catalogue.encoder(backbone).backbone or backbone
    traits = EncoderTraits(
        method=described.method,
        backbone=backbone,
        supervision=described.supervision,
        parameters=n_parameters,
        # Of the card, else of the card's paper, else of the row's.
        year=_find_year(card, card_paper, source),
        paper=card_paper or (source.url if source else ""),
    )
    if card is None or has_other_network:
        return traits
    return traits._replace(
        model=_model_address(card),
        languages=_list_languages(card),
        license="" if card.license == "unknown" else card.license,
        is_open=_has_open_weights(card),
    )


def _list_languages(card: EncoderCard) -> tuple[str, ...]:
    """Return the languages in an encoder's card as codes of three letters.

    The card may have codes of two letters. A code that is not known is returned as it is.
    """
    codes = []
    for code in card.languages:
        try:
            codes.append(find_language(code))
        except UnknownName:
            codes.append(code)
    return tuple(codes)


def _has_open_weights(card: EncoderCard) -> bool | None:
    """Return whether the weights of a card can be had; None if it does not say it."""
    if card.license == "proprietary":
        return False
    return True if card.reproducible == "weights" and card.license else None


def _find_year(card: EncoderCard | None, card_paper: str, source: Paper | None) -> int | None:
    """Return the year of an encoder's card, else of its paper, else of the source, or None."""
    if card and card.year:
        return card.year
    if card_paper:
        return _year_of_address(card_paper)
    return source.year if source else None


def _find_address(text: str) -> str:
    """Return the first web address in a text; empty if there is none."""
    match = ADDRESS.search(text)
    return match[0] if match else ""


def _year_of_address(address: str) -> int | None:
    """Return the year of the work at an address on the web; None if it is unknown.

    It is the year that our lists of works have, or else the one that the address itself has, as
    those of arXiv and of the ACL Anthology do.
    """
    years = {paper.url: paper.year for paper in read_sources().papers.values()}
    years |= read_encoder_facts()["years"]
    if address in years:
        return years[address]
    # Its groups are the last two digits of the year: of arXiv, and of the ACL.
    match = YEAR_IN_ADDRESS.search(address)
    if match is None:
        return None
    two_digits = match[1] or match[2]
    return int(f"{20 if two_digits < '60' else 19}{two_digits}")


def _model_address(card: EncoderCard) -> str:
    """Return the web address of a card's model; empty if it is local or has none."""
    model = card.hub or card.params.get("model", "")
    if not isinstance(model, str) or Path(model).exists():
        return ""
    return hub_address(model) or _find_address(model)


def hub_address(model: str) -> str:
    """Return the Hub's page of an id ``organisation/name``; empty if it is no such id."""
    return HUB_SITE + model if HUB_ID.fullmatch(model) else ""

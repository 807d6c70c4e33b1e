"""No row of the four papers' tables is missing from the registry: each is an encoder's, a recipe's, or is listed here."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stsbench.boards.published import published_rows, read_table_card
from stsbench.core.catalogue import Catalogue
from tests.made import card_of

CATALOGUE = Catalogue()
PAPERS = ("sgopt", "simcse", "consert", "declutr")
TRAINERS = Path(__file__).parents[2] / "trainers"
TRAINING = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")

SYSTEMS = "a system of the shared task itself: its scores alone were published"
FIGURE = "read off a figure: 'stsbench run --set pooling=…' measures any layer and pooling"
ONE_VALUE = "a paper's recipe with one value replaced"
NOT_HERE = "a combination that no method here has"
ENSEMBLE = "two encoders' similarities added: no encoder of its own"

NO_ENCODER = {
    "sgopt/table-2/UMCC-DLSI-run2": SYSTEMS,
    "sgopt/table-3/Cosine baseline": SYSTEMS,
    "sgopt/table-3/ENCU": SYSTEMS,
    "sgopt/figure-1/(CLS|Mean|Max) layer \\d+ .read off.": FIGURE,
    "sgopt/page-ensemble/BERT-base BT . SG": ENSEMBLE,
    "sgopt/table-5/(tau|lambda) [\\d.]+": ONE_VALUE,
    "sgopt/table-5/without projection head": ONE_VALUE,
    "sgopt/figure-domain-shift/SG-OPT, NLI instead of STS-B": ONE_VALUE,
    "simcse/table-7/contradiction.neutral alpha 1.0": NOT_HERE,
    "simcse/table-[1-47]/.*": ONE_VALUE,
    "simcse/table-6/.*": ONE_VALUE,
    "simcse/table-d\\.[12]/.*": ONE_VALUE,
    "simcse/section-4/SimCSE-BERT-base .sup.., two encoders": NOT_HERE,
    "consert/table-4/batch \\d+": ONE_VALUE,
    "consert/section-5/ConSERT-base, no augmentation": ONE_VALUE,
}
"""Rows that no card claims, as patterns, and why. Most are scores on a development split."""

ABLATION_CARDS = [tomllib.loads(path.read_text()) for path in (TRAINERS / "tables").glob("*.toml")]
ABLATIONS = {
    *(f"{card.paper}/{card.table}" for card in (read_table_card(c["table"]) for c in ABLATION_CARDS if "table" in c)),
    *(row["published"].rpartition("/")[0] for card in ABLATION_CARDS for row in card["rows"] if "published" in row),
}
"""The tables that 'stsbench reproduce' prints."""
COMMANDS = {"sgopt/figure-domain-shift": "SG, trained on NLI"}
"""What docs/training.md calls the rows of others."""


def claims() -> Iterator[tuple[str, str]]:
    """Each claimed row with the name, of an encoder's card or a recipe, that claims it."""
    for name in [*CATALOGUE.paths("baselines"), *CATALOGUE.paths("trainers")]:
        known = CATALOGUE.known_encoder(name, card_of(name))
        assert known is not None
        yield from ((key, name) for key in known.published)


ROWS = {key: row for key, row in published_rows().items() if row.paper in PAPERS}
CLAIMED = {key for key, _ in claims()}


def reason(key: str) -> str:
    return next((why for pattern, why in NO_ENCODER.items() if re.fullmatch(pattern, key)), "")


@pytest.mark.parametrize("key", ROWS)
def test_a_row_is_claimed_or_listed(key):
    assert key in CLAIMED or reason(key), f"no card and no recipe claims '{key}'"


def test_what_is_listed_is_needed():
    for pattern in NO_ENCODER:
        assert [key for key in ROWS if re.fullmatch(pattern, key) and key not in CLAIMED], pattern


def test_ablations_have_their_command():
    tables = {f"{row.paper}/{row.table}" for key, row in ROWS.items() if reason(key) == ONE_VALUE}
    assert tables - ABLATIONS == set(COMMANDS)
    for table, words in COMMANDS.items():
        lines = [line for line in TRAINING.splitlines() if line.startswith("| ") and words in line.split("|")[1]]
        assert any("--set" in line or "--data" in line for line in lines), table


@pytest.mark.parametrize("name", sorted({*CATALOGUE.paths("baselines")} & {*CATALOGUE.paths("trainers")}))
def test_rows_of_a_card_and_of_a_recipe_of_the_same_name_are_found_under_it(name):
    known = CATALOGUE.known_encoder(name, card_of(name))
    assert known is not None
    assert {*CATALOGUE.encoder(name).published, *CATALOGUE.recipe(name).published} == set(known.published)
    assert len(known.published) == len(set(known.published))

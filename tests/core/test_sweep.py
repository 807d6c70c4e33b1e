"""Cards of sweeps: read strictly, ranges among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.core.cards import Range, SweepCard
from stsbench.core.catalogue import read_card
from stsbench.core.errors import CardError

CARD = """
name = "Rates"
recipes = ["little"]
seeds = [1, 2]

[values]
temperature = [0.05, 0.1]
learning_rate = {from = 1e-5, to = 1e-3, log = true}
"""


def read(folder: Path, text: str) -> SweepCard:
    path = folder / "rates.toml"
    path.write_text(text)
    return read_card(path, SweepCard)


def test_a_card_is_read_with_lists_and_ranges(tmp_path):
    card = read(tmp_path, CARD)
    assert card.values == {"temperature": [0.05, 0.1], "learning_rate": Range(low=1e-5, high=1e-3, log=True)}
    assert (card.search, card.decide.task, card.decide.split) == ("grid", "stsb", "validation")
    assert read(tmp_path, CARD.replace("seeds = [1, 2]", "")).seeds == [0]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("seeds =", "seed =", "unknown key 'seed'; did you mean 'seeds'"),
        ("log = true", "logg = true", "unknown key 'logg' in .*did you mean 'log'"),
        ("[values]", "[valeus]", "unknown key 'valeus'; did you mean 'values'"),
        ("from = 1e-5", "from = 1e-2", "the first must be below the second"),
        ("from = 1e-5", "from = 0.0", "what is drawn over the logarithm is above 0"),
        ("log = true", "log = true, step = 0.1", "step and log: give one of them"),
        ("[1, 2]", "[2, 2]", "one stands there twice"),
        ("[values]", "[set]\ntemperature = 1.0\n[values]", "'temperature' is in \\[values\\] and in \\[set\\]"),
        ('["little"]', "[]", "key 'recipes'"),
        ("[0.05, 0.1]", "[]", "key 'values"),
        ("from = 1e-5", "from = nan", "nan and inf are not allowed"),
    ],
)
def test_a_card_that_contradicts_itself_is_refused(tmp_path, before, after, says):
    with pytest.raises(CardError, match=says):
        read(tmp_path, CARD.replace(before, after))


def test_the_card_of_the_documentation_is_one(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    card = read(tmp_path, text.partition("```toml\n")[2].partition("```")[0])
    assert (card.search, card.budget.settings, len(card.seeds)) == ("random", 20, 3)


def test_ranges_in_steps():
    assert Range(low=16, high=64, step=16).points() == [16, 32, 48, 64]
    assert Range(low=1, high=3).points() == [1, 2, 3]
    assert Range(low=0.1, high=0.5, step=0.1).points() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [type(one) for one in Range(low=0, high=1, step=0.5).points()] == [float] * 3


def test_numbers_have_four_digits_and_stay_inside():
    assert Range(low=0.0, high=1.0).number(0.123456) == 0.1235
    assert Range(low=0.0, high=0.12344).number(0.12344) == 0.1234
    assert Range(low=0.123456, high=1.0).number(0.1234561) == 0.1235
    assert Range(low=0.12344, high=1.0).number(0.12344) == 0.12344
    assert Range(low=8, high=64, log=True).number(11.7) == 12

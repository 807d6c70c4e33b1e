"""Cards read strictly: every mistake is one line naming file, key and the nearest right name; what decides is in their hashes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stsbench.core.cards import EncoderCard, SweepCard, TaskCard, ValueRange, task_digest
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import CardError
from stsbench.core.toml import StrictRecord, convert, parse_toml
from tests.core.cards import ENCODER, TASK

SOURCE = '[local]\nreader = "semeval"\n[local.files]\ntest = [{path = "a"}]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TASK + 'evaluater = "sts"',
            "unknown key 'evaluater' in [splits[...]]; did you mean 'evaluator'?",
        ),
        ('evaluater = "sts"\n' + TASK, "unknown key 'evaluater'; did you mean 'evaluator'?"),
        (TASK + "[locl]\n", "unknown key 'locl'; did you mean 'local'?"),
        (
            TASK + SOURCE.replace("path", "paht"),
            "unknown key 'paht' in [local.files[...][0]]; did you mean 'path'?",
        ),
        (TASK.replace('name = "Mine"', ""), "key 'name' is missing"),
        (TASK + '[local]\nreader = "semeval"', "key 'files' is missing in [local]"),
        (
            TASK.replace("n = 2", 'n = "2"'),
            "key 'splits[...].n': expected a whole number, got text",
        ),
        (
            TASK.replace("n = 2", "n = true"),
            "key 'splits[...].n': expected a whole number, got true or false",
        ),
        (TASK.replace('["en"]', '"en"'), "key 'languages': expected a list, got text"),
        ("gold_range = [0, 1, 2]\n" + TASK, "key 'gold_range': expected a list of length 2"),
        (TASK.replace("license", "name"), "not valid TOML: Cannot overwrite a value (at line 6, "),
        (
            TASK + "[splits.test]\nn = 3",
            "not valid TOML: Cannot declare ('splits', 'test') twice (at line 9, ",
        ),
        (TASK + "note = unquoted", "not valid TOML: Invalid value (at line 9, column 8)"),
        (TASK + "[", "not valid TOML: "),
        (TASK + "n = " + "9" * 5000, "not valid TOML: Exceeds the limit"),
        (TASK + "n = " + "[" * 5000, "not valid TOML: maximum recursion depth exceeded"),
        (TASK.replace("Mine", "M\xefne").encode("latin-1"), "not valid UTF-8 (byte 10)"),
        (TASK.encode() + b"\x00", "not valid TOML: "),
        ("", "key 'name' is missing"),
    ],
)
def test_a_mistake_in_a_task_card_is_one_line(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    assert refusal(path, text, TaskCard).startswith(f"{path}: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            ENCODER.replace('"none"\noverlap', '"nlp"\noverlap'),
            "key 'supervision': 'nlp' is not one of none, nli, sts, pairs, translation; did you mean 'nli'",
        ),
        (ENCODER.replace("license", "licence"), "unknown key 'licence'; did you mean 'license'?"),
        (ENCODER + "params = 3", "key 'params': expected a table, got a whole number"),
    ],
)
def test_a_mistake_in_an_encoder_card_is_one_line(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    assert refusal(path, text, EncoderCard).startswith(f"{path}: {message}")


def refusal(path: Path, text: str | bytes, record: type) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CardError) as caught:
        read_card(path, record)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_card_that_cannot_be_opened(tmp_path):
    with pytest.raises(CardError, match=f"^{tmp_path}: cannot be read: Is a directory$"):
        parse_toml(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mean = nan", "key 'mean': nan and inf are not allowed"),
        ("[params]\nrates = [1.0, -inf]", "key 'params.rates': nan and inf are not allowed"),
        ("[[rows]]\nshare = inf", "key 'rows.share': nan and inf are not allowed"),
    ],
)
def test_numbers_without_end_are_no_facts(tmp_path, text, says):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(CardError) as caught:
        convert(parse_toml(tmp_path / "a.toml"), StrictRecord, where="a.toml")
    assert str(caught.value).startswith(f"a.toml: {says}")


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
    assert card.values == {
        "temperature": [0.05, 0.1],
        "learning_rate": ValueRange(low=1e-5, high=1e-3, log=True),
    }
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
        (
            "[values]",
            "[set]\ntemperature = 1.0\n[values]",
            "'temperature' is in \\[values\\] and in \\[set\\]",
        ),
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
    assert ValueRange(low=16, high=64, step=16).points() == [16, 32, 48, 64]
    assert ValueRange(low=1, high=3).points() == [1, 2, 3]
    assert ValueRange(low=0.1, high=0.5, step=0.1).points() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert [type(one) for one in ValueRange(low=0, high=1, step=0.5).points()] == [float] * 3


def test_numbers_have_four_digits_and_stay_inside():
    assert ValueRange(low=0.0, high=1.0).round_number(0.123456) == 0.1235
    assert ValueRange(low=0.0, high=0.12344).round_number(0.12344) == 0.1234
    assert ValueRange(low=0.123456, high=1.0).round_number(0.1234561) == 0.1235
    assert ValueRange(low=0.12344, high=1.0).round_number(0.12344) == 0.12344
    assert ValueRange(low=8, high=64, log=True).round_number(11.7) == 12


TASK_CARD = Catalogue().task("sts12")


@pytest.mark.parametrize(
    "key, value", [("note", "another"), ("name", "STS of 2012"), ("hub", None), ("paper", "print")]
)
def test_what_describes_a_task_may_be_edited(key, value):
    assert task_digest(msgspec.structs.replace(TASK_CARD, **{key: value})) == task_digest(TASK_CARD)


@pytest.mark.parametrize(
    "key, value",
    [("evaluator", "relatedness"), ("options", {"protocol": "x"}), ("score_split", "train")],
)
def test_what_decides_a_score_makes_another_hash(key, value):
    splits = {**TASK_CARD.splits, "train": TASK_CARD.splits["test"]}
    assert task_digest(
        msgspec.structs.replace(TASK_CARD, splits=splits, **{key: value})
    ) != task_digest(TASK_CARD)

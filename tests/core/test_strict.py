"""TOML read strictly: every mistake is one line naming file, key and the nearest right name."""

from pathlib import Path

import pytest

from stsbench.core.cards import EncoderCard, Record, TaskCard, convert, parse_toml
from stsbench.core.catalogue import read_card
from stsbench.core.errors import CardError
from tests.core.test_catalogue import ENCODER, TASK

SOURCE = '[local]\nreader = "semeval"\n[local.files]\ntest = [{path = "a"}]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TASK + 'evaluater = "sts"', "unknown key 'evaluater' in [splits[...]]; did you mean 'evaluator'?"),
        ('evaluater = "sts"\n' + TASK, "unknown key 'evaluater'; did you mean 'evaluator'?"),
        (TASK + "[locl]\n", "unknown key 'locl'; did you mean 'local'?"),
        (TASK + SOURCE.replace("path", "paht"), "unknown key 'paht' in [local.files[...][0]]; did you mean 'path'?"),
        (TASK.replace('name = "Mine"', ""), "key 'name' is missing"),
        (TASK + '[local]\nreader = "semeval"', "key 'files' is missing in [local]"),
        (TASK.replace("n = 2", 'n = "2"'), "key 'splits[...].n': expected a whole number, got text"),
        (TASK.replace("n = 2", "n = true"), "key 'splits[...].n': expected a whole number, got true or false"),
        (TASK.replace('["en"]', '"en"'), "key 'languages': expected a list, got text"),
        ("gold_range = [0, 1, 2]\n" + TASK, "key 'gold_range': expected a list of length 2"),
        (TASK.replace("license", "name"), "not valid TOML: Cannot overwrite a value (at line 6, "),
        (TASK + "[splits.test]\nn = 3", "not valid TOML: Cannot declare ('splits', 'test') twice (at line 9, "),
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
    """The one line that a card of this text is refused with."""
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
        convert(parse_toml(tmp_path / "a.toml"), Record, where="a.toml")
    assert str(caught.value).startswith(f"a.toml: {says}")

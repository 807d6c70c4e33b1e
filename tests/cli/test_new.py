"""``stsbench new``: what it prints last runs at once; every mistake is one line, and nothing is written over."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests import hub_server
from tests.hub_files import jsonl

hub = hub_server.hub

ROWS = "s1,s2,score\n" + "".join(f'"a cat, {at}",the dog {at * at},{at % 6}.0\n' for at in range(12))
REVIEWS = "text\tlabel\n" + "".join(f"{word} {at}\t{word}\n" for at in range(12) for word in ("good", "bad"))


def last(out: str) -> list[str]:
    program, *words = shlex.split(out.splitlines()[-1])
    assert program == "stsbench"
    return words


@pytest.mark.parametrize(("name", "content"), [("pairs.csv", ROWS), ("my reviews.tsv", REVIEWS)])
def test_a_task_runs_at_once(stsbench, name, content):
    Path(name).write_text(content)
    out = stsbench.fine("new", "task", name)
    assert "unsure: English is assumed" in out
    assert Path(f"cards/tasks/{Path(name).stem.replace(' ', '-')}.toml").is_file()
    assert '"score": ' in stsbench.fine(*last(out), "--encoder", "own_encoders:Hashed", "--json")


def test_a_task_of_the_hub_runs_at_once(stsbench, hub):
    rows = [{"a": f"a cat {at}", "b": f"the dog {at * at}", "score": at % 6 * 0.9} for at in range(12)]
    hub.add("dataset", "owner/My_Pairs", {"tr.jsonl": jsonl(rows, zipped=False)})
    out = stsbench.fine("new", "task", "--hub", "owner/My_Pairs")
    assert out.startswith("cards/tasks/my_pairs.toml: pairs with scores (train 12) from the columns a, b, score")
    done = stsbench(*last(out), "--encoder", "own_encoders:Hashed", "--json")
    assert (done.code, json.loads(done.out)["results"][0]["n"]) == (0, 12), done.err


def test_a_card_is_not_written_over_without_force(stsbench):
    Path("pairs.csv").write_text(ROWS)
    stsbench.fine("new", "task", "pairs.csv", "--out", "mine/tasks")
    card = Path("mine/tasks/pairs.toml")
    card.write_text(card.read_text() + "# edited\n")
    refused = stsbench.refused("new", "task", "pairs.csv", "--out", "mine")
    assert refused.startswith("mine/tasks/pairs.toml exists; --force")
    assert card.read_text().endswith("# edited\n")
    assert last(stsbench.fine("new", "task", "pairs.csv", "--out", "mine", "--force"))[-1] == "mine"
    assert not card.read_text().endswith("# edited\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--columns", "gold"], "--columns 'gold': give what it holds and its name, such as gold=score"),
        (["--columns", "golt=w"], "unknown role in --columns 'golt'; did you mean 'gold'?; known: sentence1, sentence2, sentence, gold, label"),
        (["--columns", "gold=u,gold=w"], "--columns gold is given twice"),
        (["--columns", "gold=scor"], "pairs.csv: no column 'scor' (has s1, s2, score); did you mean 'score'?"),
        (["--name", "stsb"], "the name 'stsb' is taken by "),
        (["--name", "a/b"], "'a/b' cannot be the name of a card"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(stsbench, given, message):
    Path("pairs.csv").write_text(ROWS)
    assert stsbench.refused("new", "task", "pairs.csv", *given).startswith(message)
    assert not Path("cards").exists()


def test_an_encoder_runs_at_once(stsbench, bert):
    out = stsbench.fine("new", "encoder", bert, "--name", "mine")
    words = last(out)
    assert words == ["run", "-e", "mine", "-t", "quickstart", "--cards", "cards"]
    done = stsbench(*["quickstart-en" if word == "quickstart" else word for word in words])
    assert done.code == 0, done.err


def test_a_method_trains_at_once(stsbench, masked_lm):
    out = stsbench.fine("new", "method", "some_idea")
    words = last(out)
    assert words == ["train", "some_idea", "--base", "minilm", "--cards", "cards"]
    done = stsbench(*[masked_lm if word == "minilm" else word for word in words])
    assert done.code == 0, done.err
    assert done.out.endswith("score it: stsbench run some_idea --cards cards\n")
    scored = stsbench(*last(done.out.replace("score it: ", "")), "-t", "quickstart-en")
    assert scored.code == 0, scored.err
    assert (
        stsbench.refused("new", "method", "some_idea")
        == "some_idea.py exists; --force writes it again, another name leaves it as it is"
    )

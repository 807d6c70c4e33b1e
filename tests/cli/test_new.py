"""``stsbench new``: what it prints last runs at once; every mistake is one line, and nothing is written over."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from stsbench.core.files import file_sha256
from tests import hub_server
from tests.hub_files import jsonl

ROOT = Path(__file__).parents[2]

hub = hub_server.hub

ROWS = "s1,s2,score\n" + "".join(
    f'"a cat, {at}",the dog {at * at},{at % 6}.0\n' for at in range(12)
)
REVIEWS = "text\tlabel\n" + "".join(
    f"{word} {at}\t{word}\n" for at in range(12) for word in ("good", "bad")
)


def last(out: str) -> list[str]:
    program, *words = shlex.split(out.splitlines()[-1])
    assert program == "stsbench"
    return words


@pytest.mark.parametrize(("name", "content"), [("pairs.csv", ROWS), ("my reviews.tsv", REVIEWS)])
def test_a_task_runs_at_once(stsbench, name, content):
    Path(name).write_text(content)
    out = stsbench.fine("new", "task", name)
    assert "unsure: English " in out
    assert Path(f"cards/tasks/{Path(name).stem.replace(' ', '-')}.toml").is_file()
    assert '"score": ' in stsbench.fine(*last(out), "--encoder", "own_encoders:Hashed", "--json")


def test_scores_that_are_no_numbers_are_named_and_are_classes_only_where_the_user_says_so(stsbench):
    scores = ["1.5", "NaN", "80%", "4.0", "0x3", "2", "", "4.0", *["1.5", "2", "4.0", "1.5"] * 4]
    rows = "".join(f"a cat {at},the dog {at},{score}\n" for at, score in enumerate(scores))
    for header in ("s1,s2,score", "u,v,w"):
        Path("pairs.csv").write_text(f"{header}\n{rows}")
        refused = stsbench.refused("new", "task", "pairs.csv")
        assert (
            "pairs.csv: line 3: 'NaN', line 4: '80%', line 6: '0x3'" in refused
            and "--labels" in refused
        )
        assert not Path("cards").exists()
    # No number at all where scores are by their name.
    Path("pairs.csv").write_text(
        "s1,s2,score\n" + "".join(f"a cat {at},the dog {at},{at % 3}0%\n" for at in range(30))
    )
    assert "line 20: '00%', line 21: '10%' and 10 more" in stsbench.refused(
        "new", "task", "pairs.csv"
    )
    Path("pairs.csv").write_text(f"s1,s2,score\n{rows}".replace(",\n", ",2\n"))
    assert "named" not in stsbench.fine("new", "task", "pairs.csv", "--labels", "--name", "one")
    stsbench.fine("new", "task", "pairs.csv", "--columns", "label=score", "--name", "two")
    cards = [Path("cards/tasks", f"{name}.toml").read_text() for name in ("one", "two")]
    assert all('classes = ["0x3", "1.5", "2", "4.0", "80%", "NaN"]' in card for card in cards)
    both = stsbench.refused("new", "task", "pairs.csv", "--columns", "gold=score", "--labels")
    assert both == "--labels and gold in --columns contradict each other; leave out one of them"


def test_rows_with_too_many_or_too_few_cells_are_all_named(stsbench):
    rows = (
        ROWS.replace('"a cat, 3"', "a cat, 3")
        .replace("the dog 25", "the, dog")
        .replace("the dog 49,", "")
    )
    Path("pairs.csv").write_text(rows)
    named = "pairs.csv: line 5: 4 fields, line 7: 4 fields, line 9: 2 fields, expected 3; put a cell that holds ',' in"
    assert stsbench.refused("new", "task", "pairs.csv").startswith(named)
    assert not Path("cards").exists()
    # Without a header too, and in every file.
    Path("train.csv").write_text(rows.partition("\n")[2])
    Path("test.csv").write_text(rows.partition("\n")[2])
    refused = stsbench.refused("new", "task", ".")
    assert "train.csv: line 4: 4 fields" in refused and "test.csv: line 4: 4 fields" in refused
    # As in a card that says the file's hash.
    Path("pairs.csv").write_text(ROWS)
    run = last(stsbench.fine("new", "task", "pairs.csv"))
    card, digest = Path("cards/tasks/pairs.toml"), file_sha256(Path("pairs.csv"))
    Path("pairs.csv").write_text(
        rows.replace("the, dog", "the dog").replace(",4.0\n", ",the cat,4.0\n", 1)
    )
    card.write_text(card.read_text().replace(digest, file_sha256(Path("pairs.csv"))))
    assert "pairs.csv: line 5: 4 fields, line 6: 4 fields, line 9: 2 fields" in stsbench.refused(
        *run, "-e", "minilm"
    )


def test_a_task_of_the_hub_runs_at_once(stsbench, hub):
    rows = [
        {"a": f"a cat {at}", "b": f"the dog {at * at}", "score": at % 6 * 0.9} for at in range(12)
    ]
    hub.add("dataset", "owner/My_Pairs", {"tr.jsonl": jsonl(rows, zipped=False)})
    out = stsbench.fine("new", "task", "--hub", "owner/My_Pairs")
    assert out.startswith(
        "cards/tasks/my_pairs.toml: pairs with scores (train 12) from the columns a, b, score"
    )
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
        (["--language", "english"], "--language 'english': is no code of a language; such as en,de"),
        (["--name", "a/b"], "'a/b' cannot be the name of a card"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(stsbench, given, message):
    Path("pairs.csv").write_text(ROWS)
    assert stsbench.refused("new", "task", "pairs.csv", *given).startswith(message)
    assert not Path("cards").exists()


@pytest.mark.parametrize(
    ("rows", "sentences"),
    [
        ("a cat sat here\nthe dog ran off\nno sun today\n", "column 1"),
        ("a cat sat here;the dog ran\nno sun today;we go home\n", "column 1 and column 2"),
        ("text\na cat sat here\nthe dog ran off\n", "'text'"),
        ("text1,text2\na cat sat here,the dog ran\nno sun,we go home\n", "'text1' and 'text2'"),
    ],
)  # fmt: skip
def test_sentences_without_scores_need_a_column_more(stsbench, rows, sentences):
    Path("pairs.csv").write_text(rows)
    assert stsbench.refused("new", "task", "pairs.csv") == (
        "pairs.csv: a column with a score (how similar people find the two sentences, on any "
        f"scale) or a label is needed beside {sentences}; add one"
    )
    assert not Path("cards").exists()


def test_the_projects_own_folder_of_cards_is_read_once(stsbench):
    # A contributor writes a card into a clone: no card there is taken by itself.
    Path("pairs.csv").write_text(ROWS)
    again = stsbench.refused("new", "task", "pairs.csv", "--out", ROOT, "--name", "stsb")
    assert again.startswith(f"{ROOT}/tasks/stsb.toml exists; --force writes it again")
    assert "taken" not in stsbench.refused("new", "encoder", "nowhere", "--out", ROOT)
    assert stsbench.json("list", "suites", "--cards", ROOT) == stsbench.json("list", "suites")


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
    # It needs no data, and so does the command that scores it.
    assert done.out.endswith("score it: stsbench run some_idea --tasks quickstart --cards cards\n")
    scored = stsbench(*last(done.out.replace("score it: ", "")), "-t", "quickstart-en")
    assert scored.code == 0, scored.err
    assert "'stsbench train some_idea --cards cards'" in stsbench.fine(
        "show", "some_idea", "--cards", "cards"
    )
    # The second class of the module trains on plain sentences, by two dropout masks.
    recipe = Path("cards/trainers/some_idea.toml")
    text = recipe.read_text().replace("some_idea:SomeIdea", "some_idea:SomeIdeaOfText")
    recipe.with_stem("of_text").write_text(text.replace('"some_idea.csv"', '"text.txt"'))
    Path("text.txt").write_text("\n".join(f"sentence number {n}" for n in range(16)) + "\n")
    of_text = stsbench("train", "of_text", "--base", masked_lm, "--cards", "cards")
    assert of_text.code == 0, of_text.err
    assert (
        stsbench.refused("new", "method", "some_idea")
        == "some_idea.py exists; --force writes it again, another name leaves it as it is"
    )

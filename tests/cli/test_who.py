"""Who is who: results are a card's by its hash, folders are told apart, and every name printed can be given back."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stsbench.api.calls import evaluate
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.encoders.load import load_named
from stsbench.encoders.runs import TrainedRun, read_trained_runs
from stsbench.results.folder import read_states, write_result
from stsbench.results.groups import group_by_encoder
from tests import hub_server
from tests.cli.commands import ENCODER, QUICK, Command, make_own, one_line, write
from tests.hub_files import tiny_bert, write_bert
from tests.hub_server import Hub
from tests.made import card_of, make_result

hub = hub_server.hub
CATALOGUE = Catalogue()
SMALL = ("--tasks", "quickstart-es-en")


def names(stsbench: Command, *run: str | Path) -> list[str]:
    code, out, err = stsbench("run", *SMALL, *run, "--json")
    assert code == 0, err
    return [result["encoder"] for result in json.loads(out)["results"]]


# --- a card's name ---


def test_a_folder_with_a_cards_name_is_called_otherwise_and_fills_no_table(stsbench, tmp_path):
    fake = write_bert(tmp_path / "fakes" / "simcse-bert-base")
    assert names(stsbench, "--encoder", fake) == ["fakes/simcse-bert-base"]
    (result,) = read_states(tmp_path / "results").results
    assert result.encoder_card is None
    assert "no result has a published score" in stsbench.refused(
        "check", "results", "--against", "published"
    )


def test_an_encoder_of_a_programs_own_with_a_cards_name_is_called_by_its_class(own):
    from own_encoders import Hashed  # type: ignore[import-not-found]

    (result,) = evaluate(Hashed(name="minilm"), "quickstart-en", store=None)
    assert result.encoder == "own_encoders:Hashed"
    (result,) = evaluate(Hashed(name="mine"), "quickstart-en", store=None)
    assert result.encoder == "mine"


def test_a_card_file_with_another_cards_name_is_called_by_its_place(stsbench, tmp_path):
    card = write(tmp_path / "mine" / "minilm.toml", ENCODER)
    assert names(stsbench, "--encoder", card) == ["mine/minilm"]


@pytest.mark.parametrize("digest", [None, "0" * 64, "card of another"])
def test_results_without_a_cards_hash_are_not_its(stsbench, tmp_path, digest):
    other = card_of("minilm") if digest == "card of another" else digest
    tasks = CATALOGUE.suites()["sts"].tasks
    for task in tasks:
        made = make_result("simcse-bert-base", task, 0.9, encoder_card=other, fingerprint="fake")
        write_result(made, tmp_path / "results")
    assert "no result has a published score" in stsbench.refused(
        "check", "results", "--against", "published"
    )
    out = stsbench.fine("leaderboard", "--suite", "sts", "--format", "csv")
    assert "simcse-bert-base (not the card's)" in out
    refused = stsbench.refused("leaderboard", "--table", "simcse-5", "--show", "measured")
    assert "nothing to show as 'measured'" in refused
    # Beside the card's own results they are another row; each can be named.
    for task in tasks:
        write_result(make_result("simcse-bert-base", task, 0.5, eval_seed=1), tmp_path / "results")
    board = stsbench.fine("leaderboard", "--suite", "sts", "--format", "csv")
    assert "90.0" in board and "50.0" in board and "70.0" not in board
    alone = stsbench.fine(
        "leaderboard", "-e", "simcse-bert-base (not the card's)", "--format", "csv"
    )
    assert "90.0" in alone and "50.0" not in alone
    alone = stsbench.fine("leaderboard", "-e", "simcse-bert-base", "--format", "csv")
    assert "50.0" in alone and "90.0" not in alone
    code, table, err = stsbench(
        "leaderboard", "--table", "simcse-5", "--show", "measured", "--format", "csv"
    )
    assert code == 0 and "50.0" in table and "90.0" not in table and "70.0" not in table
    assert "(not the card's)" in one_line(err) and "'simcse-5'" in one_line(err)


def edited(tmp_path: Path, **changes: str) -> Catalogue:
    """The user's card ``mine`` with values put in place of others."""
    own = make_own(tmp_path)
    text = (own.cards / "baselines" / "mine.toml").read_text()
    for old, new in changes.items():
        text = re.sub(rf"^{old} = .*$", new, text, flags=re.MULTILINE)
    write(own.cards / "baselines" / "mine.toml", text)
    return Catalogue([own.cards])


@pytest.mark.parametrize(
    ("changes", "is_its"),
    [
        ({"name": 'name = "Another"\nnote = "what it is"\npublished = ["a/b/c"]'}, True),
        ({"license": "# nothing of a comment\nlicense = 'MIT'"}, True),
        ({"kind": 'kind = "own_encoders:Bug"'}, False),
        ({"overlap": 'overlap = "gold"'}, False),
        ({"license": 'license = "mine"\n[params]\nsize = 3'}, False),
    ],
    ids=str,
)
def test_what_a_card_describes_may_be_edited_and_what_it_decides_not(tmp_path, changes, is_its):
    (digest,) = edited(tmp_path / "before").digests("mine")
    after = edited(tmp_path / "after", **changes)
    assert (after.find_encoder("mine", digest) is not None) == is_its
    assert (digest in after.digests("mine")) == is_its


def test_a_card_over_another_changes_with_it(tmp_path):
    def digest(size: int, where: Path) -> str:
        own = make_own(where)
        write(own.cards / "baselines" / "mine.toml", f"{ENCODER}[params]\nsize = {size}\n")
        over = ENCODER.replace("own_encoders:Hashed", "whitening") + '[params]\nbase = "mine"\n'
        write(own.cards / "baselines" / "over.toml", over)
        (found,) = Catalogue([own.cards]).digests("over")
        return found

    assert digest(3, tmp_path / "a") == digest(3, tmp_path / "b") != digest(4, tmp_path / "c")


# --- runs ---


def run_record(**changes: Any) -> dict[str, Any]:
    card = msgspec.to_builtins(CATALOGUE.recipe("simcse-small"))
    return {
        "recipe": "simcse-small",
        "seed": 1,
        "card": card,
        "overlap": {"quickstart-en": "none"},
        **changes,
    }


def run_of(name: str, seed: int = 1, **changes: Any) -> Path:
    record = run_record(recipe=name, seed=seed, **changes)
    return write_bert(
        Path("runs") / name / f"seed{seed}",
        stsbench__json={"kind": "transformer"},
        run__json=record,
    )


def test_a_folder_of_runs_does_not_stand_for_a_card_that_is_no_recipe(stsbench, tmp_path):
    write(make_own(tmp_path).cards / "baselines" / "mine.toml", ENCODER)
    run_of("mine", seed=0)
    (name,) = names(stsbench, "--encoder", "mine", "--cards", tmp_path / "cards")
    (result,) = read_states(tmp_path / "results").results
    # The card's class, not the trained folder.
    assert (
        name == "mine" and result.fingerprint and result.train_seed is None and result.encoder_card
    )
    run_of("minilm", seed=0)
    assert load_named("minilm").run is None


def test_a_recipes_run_carries_its_hash_and_seeds_from_another_start_are_another_encoder(
    stsbench, tmp_path
):
    run_of("simcse-small", 1)
    run_of("simcse-small", 2, base_files={"weights": "a"})
    one, two = load_named("simcse-small@1"), load_named("simcse-small@2")
    assert one.card_digest and two.card_digest and one.card_digest != two.card_digest
    for known in (one, two):
        assert CATALOGUE.find_encoder("simcse-small", known.card_digest) is not None
    results = [
        make_result(
            "simcse-small",
            train_seed=one.train_seed,
            encoder_card=known.card_digest,
            fingerprint=str(at),
        )
        for at, known in enumerate((one, two))
    ]
    assert [len(runs.results) for runs in group_by_encoder(results)] == [1, 1]


def test_a_run_of_another_recipe_is_not_the_recipes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    card = msgspec.to_builtins(CATALOGUE.recipe("sg-small"))
    run_of("simcse-small", 1, card=card)
    known = load_named("simcse-small")
    assert CATALOGUE.find_encoder("simcse-small", known.card_digest) is None
    named = CATALOGUE.recipe("simcse-bert-base")
    run_of(
        "simcse-bert-base",
        0,
        card=msgspec.to_builtins(named),
        given_base="somewhere",
        base_files={"weights": "x"},
    )
    known = load_named("simcse-bert-base")
    assert CATALOGUE.find_encoder("simcse-bert-base", known.card_digest) is None


def test_a_record_that_lies_where_anothers_is_looked_for_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_bert(Path("runs/simcse-small/seed2"), run__json=run_record())
    with pytest.raises(
        StsbenchError,
        match="is of recipe 'simcse-small', seed 1, but is in the folder of .* seed 2;",
    ):
        read_trained_runs("simcse-small")


def test_a_record_beside_a_folder_is_believed_against_it_alone(stsbench, tmp_path):
    for overlap, believed in (("none", "unknown"), ("text", "text"), ("gold", "gold")):
        place = write_bert(
            tmp_path / overlap,
            stsbench__json={"kind": "transformer"},
            run__json=run_record(overlap={"quickstart-en": overlap}),
        )
        known = load_named(str(place))
        assert (known.name, known.overlap_with("quickstart-en"), known.train_seed) == (
            overlap,
            believed,
            None,
        )


ODD: list[Any] = [None, 3, -1, 1.5, "x", [], [1], {}, {"a": 1}, True, 10**400]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(value)[:10])
@pytest.mark.parametrize(
    "key",
    [
        "recipe",
        "seed",
        "card",
        "overlap",
        "base_files",
        "corpus",
        "chosen",
        "curve",
        "steps",
        "run",
        "given_base",
    ],
)
def test_a_record_may_be_of_any_types(tmp_path, key, value):
    write(tmp_path / "run.json", json.dumps(run_record(**{key: value})))
    try:
        run = TrainedRun.read(tmp_path)
        assert (
            run.overlap_with("sts12") in ("none", "text", "gold", "unknown")
            and len(run.digest) > 64
        )
    except StsbenchError as error:
        assert str(error).startswith(f"{tmp_path}/run.json")


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"", b"\xff", b"[]", b'"x"'], ids=lambda c: str(c[:8])
)
def test_a_record_may_be_any_bytes(tmp_path, content):
    write(tmp_path / "run.json", content)
    with pytest.raises(StsbenchError, match="is not the record of a training run"):
        TrainedRun.read(tmp_path)


# --- bases ---


@pytest.mark.parametrize("kind", ["whitening", "flow", "token_removal"])
def test_an_encoder_over_itself_is_refused(stsbench, tmp_path, kind):
    own = make_own(tmp_path)
    card = (
        ENCODER.replace("own_encoders:Hashed", kind)
        + "[params]\n"
        + ("k = 1\n" if kind == "token_removal" else "")
    )
    write(own.cards / "baselines" / "a.toml", f'{card}base = "a"\n')
    write(own.cards / "baselines" / "b.toml", f'{card}base = "c"\n')
    write(own.cards / "baselines" / "c.toml", f'{card}base = "b"\n')
    write(own.cards / "baselines" / "d.toml", f'{card}base = "{own.cards}/baselines/d.toml"\n')
    for name in "abcd":
        error = stsbench.refused("run", *QUICK, "--encoder", name, "--cards", own.cards)
        assert "is itself fitted on texts; name an encoder that is not" in error
    over = ("--encoder", "minilm-whitening", "--set", "base=minilm-whitening")
    assert "is itself fitted on texts" in stsbench.refused("run", *QUICK, *over)


# --- folders that end alike ---


def test_folders_that_end_alike_are_told_apart_and_not_averaged(stsbench, tmp_path):
    one, two = (
        write_bert(tmp_path / "runA" / "final"),
        write_bert(tmp_path / "runB" / "final", hidden=32),
    )
    assert names(stsbench, "--encoder", f"{one},{two}") == ["runA/final", "runB/final"]
    out = stsbench.fine("run", *SMALL, "--encoder", f"{one},{two}", "--fresh")
    assert "±" not in out and "runA/final" in out and "runB/final" in out
    board = stsbench.fine("leaderboard", "--suite", "quickstart", "--format", "csv")
    assert board.count("\nQuickstart,,,run") == 2
    found = stsbench.json("compare", "runA/final", "runB/final")
    assert found["differences"][0]["seeds"] == [1, 1]


def test_a_folder_is_told_apart_from_what_the_results_hold_of_another(stsbench, tmp_path):
    one, two = (
        write_bert(tmp_path / "runA" / "final"),
        write_bert(tmp_path / "runB" / "final", hidden=32),
    )
    assert names(stsbench, "--encoder", one) == ["final"]
    code, out, err = stsbench("run", *SMALL, "--encoder", two, "--json")
    assert (code, json.loads(out)["results"][0]["encoder"]) == (0, "runB/final")
    assert "its results are called 'runB/final', for 'final' is another encoder's name" in err
    # Each keeps its name from then on.
    assert names(stsbench, "--encoder", one) == ["final"]
    assert names(stsbench, "--encoder", two) == ["runB/final"]


def test_a_folder_keeps_its_name_when_it_is_trained_again(stsbench, tmp_path):
    one = write_bert(tmp_path / "final")
    assert names(stsbench, "--encoder", one) == ["final"]
    write_bert(tmp_path / "final", hidden=32)
    assert names(stsbench, "--encoder", one) == ["final"]
    _, board, err = stsbench("leaderboard", "--suite", "quickstart", "--format", "csv")
    assert board.count("measured") == 1 and "1 result of an older state left out: 'final [" in err


def test_a_name_without_results_suggests_those_there_are(stsbench, tmp_path):
    write_bert(tmp_path / "models" / "minilm-l4-mlm")
    cards = tmp_path / "cards" / "tasks"
    cards.mkdir(parents=True)
    for name in ("models/minilm-l4-mlm", "minilm+pooling=max"):
        write_result(make_result(name), tmp_path / "results")
    known = ("--cards", "cards")
    # A checkpoint in a folder is not the card of that name.
    refused = stsbench.refused("compare", "minilm+pooling=max", "minilm-l4-mlm", *known)
    assert refused.endswith("'minilm-l4-mlm'; did you mean 'models/minilm-l4-mlm'?")
    # The command is to be copied: it has the cards that the user gave, and no task without a card.
    write_result(make_result("minilm+pooling=max", "mine"), tmp_path / "results")
    refused = stsbench.refused("compare", "minilm+pooling=max", "glove-6b", *known)
    assert refused.endswith("to fill it: stsbench run glove-6b --tasks sts12 --cards cards")
    refused = stsbench.refused("compare", "minilm+pooling=max", "sg-small", *known)
    assert refused.endswith("to fill it: stsbench run sg-small --tasks sts12 --cards cards")
    # Its card names no checkpoint, so that the command would fail.
    refused = stsbench.refused("compare", "minilm+pooling=max", "infersent1", *known)
    assert refused.endswith("of encoder 'infersent1'; its card names no checkpoint to fetch")
    refused = stsbench.refused("compare", "minilm+pooling=max", "glove-6b", "--tasks", "stsb")
    assert refused.endswith("to fill it: stsbench run glove-6b --tasks stsb")
    refused = stsbench.refused("compare", "minilm+pooling=max", "minilm+poolin=max")
    assert "did you mean 'minilm+pooling=max'?" in refused and "--cards" not in refused
    refused = stsbench.refused("compare", "minilm+pooling=max", "my_module:Mine")
    assert refused.endswith("results has results of minilm+pooling=max, models/minilm-l4-mlm")


def test_versions_can_be_named(stsbench, tmp_path):
    for score, version in ((0.4, "5.3.0"), (0.5, "5.23.0")):
        state = f"{'a' * 64} by tokenizers 0.22.1, transformers {version}"
        write_result(make_result("mine", score=score, fingerprint=state), tmp_path / "results")
    board = stsbench("leaderboard", "--suite", "sts", "--format", "csv")
    assert (
        "measured,50.0" in board.out
        and "mine [" not in board.out
        and "'mine [transformers 5.3.0]' (1)" in board.err
    )
    name = "mine [transformers 5.3.0]"
    alone = stsbench.fine("leaderboard", "-e", name, "--format", "csv")
    assert "measured,40.0" in alone and "measured,50.0" not in alone
    assert stsbench.json("lock", "--out", "one.json", "-e", name)["cells"] == 1
    found = stsbench(
        "check", "results", "--against", "one.json", "-e", name, "--against-encoder", name
    )
    assert found.code == 0 and "1 cell: 1 fine" in found.out


# --- Hub ids ---


def test_a_hub_id_that_a_card_describes_gets_the_card(stsbench, hub: Hub, tmp_path):
    repo = hub.add("model", "owner/bert", tiny_bert())
    cards = make_own(tmp_path).cards
    card = (
        ENCODER.replace("own_encoders:Hashed", "transformer") + '[params]\nmodel = "owner/bert"\n'
    )
    write(
        cards / "baselines" / "carded.toml",
        f'{card}pooling = "cls_before_pooler"\nrevision = "{repo.commit}"\n',
    )
    code, out, err = stsbench("run", *SMALL, "--encoder", "owner/bert", "--cards", cards, "--json")
    (result,) = json.loads(out)["results"]
    assert code == 0 and result["encoder"] == "carded" and not result["notes"]
    assert (
        err == "stsbench: owner/bert is the checkpoint of the card 'carded': evaluated as it says\n"
    )
    # Two cards of one checkpoint: neither is taken, both are offered.
    write(cards / "baselines" / "second.toml", card)
    code, out, err = stsbench("run", *SMALL, "--encoder", "owner/bert", "--cards", cards, "--json")
    assert json.loads(out)["results"][0]["encoder"] == "owner/bert" and "carded, second" in err


def test_what_no_file_says_of_a_checkpoint_is_in_the_notes(stsbench, tmp_path, hub: Hub):
    note = "no card and no sentence-transformers files say how to run it; "
    (result,) = stsbench.json("run", *SMALL, "--encoder", write_bert(tmp_path / "bare"))["results"]
    assert result["notes"][0] == f"{note}assumed: pooling mean, normalise no, prompt none"
    hub.add("model", "princeton-nlp/unsup-simcse-tiny", tiny_bert())
    (result,) = stsbench.json("run", *SMALL, "--encoder", "princeton-nlp/unsup-simcse-tiny")[
        "results"
    ]
    assert "from the documentation of its family" in result["notes"][0]
    assert "pooling cls_before_pooler" in result["notes"][0]
    given = ("--set", "pooling=mean", "--set", "prompt=''")
    (result,) = stsbench.json(
        "run", *SMALL, "--encoder", "princeton-nlp/unsup-simcse-tiny", *given
    )["results"]
    assert not any("say how it is run" in one for one in result["notes"])


def test_the_families_are_those_of_our_cards():
    from stsbench.encoders.described import find_family

    told = 0
    for name in CATALOGUE.paths("baselines"):
        params = CATALOGUE.encoder(name).params
        family = find_family(str(params.get("model", "")), CATALOGUE)
        if family.source:
            told += 1
            wanted = {"pooling": "mean", "normalise": False, "prompt": "", **params}
            assert all(
                wanted[key] == getattr(family, key) for key in ("pooling", "normalise", "prompt")
            ), name
    assert told > 15 and not find_family("owner/name", CATALOGUE).source

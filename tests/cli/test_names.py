"""Every name that a command prints can be given back to every command that takes an encoder."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import stsbench as package
from stsbench.api.names import NameResolver
from stsbench.api.selection import select_results
from stsbench.boards.published.rows import list_rows, list_tables, read_table_card
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.recipes.train_plan import read_recipe
from stsbench.results.folder import ResultFolder, read_states, write_result
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import Result
from tests.cli.commands import QUICK, make_own
from tests.made import make_result

CATALOGUE = Catalogue()
NAMES = NameResolver(CATALOGUE)
STS = CATALOGUE.suites()["sts"].tasks
VIEWS = "consert-small+views=['none', 'none']"
OTHER = "simcse-bert-base (not the card's)"
GIVEN = {
    "simcse-bert-base": "0.51",
    "SimCSE-BERT-base": "0.51",
    "SimCSE-BERT-base†": "0.51",
    "princeton-nlp/unsup-simcse-bert-base-uncased": "0.51",
    OTHER: "0.52",
    f"{OTHER} [fake]": "0.52",
    "minilm+pooling=max": "0.53",
    "all-MiniLM-L6-v2+pooling=max": "0.53",
    VIEWS: "0.54",
    "ConSERT, unsupervised, small+views=['none', 'none']": "0.54",
    f"{VIEWS}@2": None,
    "runA/final [aaaaaa]": "0.55",
    "runA/final[bbbbbb]": "0.56",
    "runA--final [bbbbbb]": "0.56",
    "sbert-small@2": "0.58",
    "SBERT, small": "0.575",
    "own, of mine": "0.59",
}
"""Names as a user may give them back, and the score of the results that are meant: the mean of seeds, or none at all."""


def held() -> list[Result]:
    """Results of cards, recipes, folders and others, each with its own score."""
    made: list[tuple[str, float, dict[str, Any]]] = [
        ("simcse-bert-base", 0.51, {}),
        ("simcse-bert-base", 0.52, {"encoder_card": None, "fingerprint": "fake", "eval_seed": 1}),
        ("minilm+pooling=max", 0.53, {}),
        (VIEWS, 0.54, {"train_seed": 0}),
        ("runA/final", 0.55, {"fingerprint": "aaaaaaaa"}),
        ("runA/final", 0.56, {"fingerprint": "bbbbbbbb", "eval_seed": 1}),
        ("sbert-small", 0.57, {"train_seed": 1, "fingerprint": "1"}),
        ("sbert-small", 0.58, {"train_seed": 2, "fingerprint": "2"}),
        ("own, of mine", 0.59, {}),
    ]
    return [make_result(name, task, score, **facts) for name, score, facts in made for task in STS]


ENCODERS = EncoderDirectory(ResultFolder(held(), []), CATALOGUE)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    for result in held():
        write_result(result, folder)
    return folder


@pytest.fixture
def results(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "results"))


@pytest.mark.parametrize(("name", "score"), GIVEN.items())
def test_a_name_chooses_the_same_results_in_every_command_that_reads_some(
    stsbench, results, tmp_path, name, score
):
    if score is None:
        for command in (["leaderboard"], ["lock"], ["export", "--format", "model-index"]):
            # A recipe without results is known; other names are not.
            unknown = f"unknown encoder '{name}'"
            without_results = f"has no results of encoder '{name}'"
            error = stsbench.refused(*command, "-e", name)
            assert error.startswith(unknown) or without_results in error
        return
    board = list(
        csv.DictReader(io.StringIO(stsbench.fine("leaderboard", "-e", name, "--format", "csv")))
    )
    assert [row["average"] for row in board] == [f"{100 * float(score):.1f}"]
    count = len(STS) * (1 + (name == "SBERT, small"))
    assert stsbench.json("lock", "-e", name, "--out", "one.json")["cells"] == count
    for old in ("results", "one.json"):
        found = stsbench.json(
            "check", "results", "-e", name, "--against", old, "--against-encoder", name
        )
        assert (
            found["exit"] == 0 and len([v for v in found["verdicts"] if v["task"] in STS]) == count
        )
    index = stsbench.json("export", "--format", "model-index", "-e", name)
    values = {m["value"] for r in index[0]["results"] for m in r["metrics"]}
    assert any(value == pytest.approx(float(score)) for value in values)
    pair = (name, "minilm+pooling=max" if "pooling" not in name else "own, of mine")
    told = stsbench.refused("compare", *pair)
    assert "no per-item columns of" in told, "the encoders were found"
    with pytest.raises(StsbenchError) as raised, pytest.warns(UserWarning, match="not verified: "):
        package.compare(*pair)
    # The remedy is a command here and a call there.
    problem, _, _ = str(raised.value).partition("; ")
    assert told.startswith(problem)


def test_a_name_with_commas_is_one_among_others(stsbench, results):
    names = f"minilm+pooling=max,{VIEWS},SBERT, small,own, of mine"
    with pytest.raises(UnknownName, match="unknown encoder 'own'"):
        select_results(["own", "of yours"], ENCODERS, CATALOGUE, Path("results"))
    board = csv.DictReader(
        io.StringIO(stsbench.fine("leaderboard", "--format", "csv", "-e", names))
    )
    assert [row["row"] for row in board] == [
        "own, of mine",
        "sbert-small",
        VIEWS,
        "minilm+pooling=max",
    ]
    assert NAMES.join_parts(["SBERT", "small", "SBERT", "small", "minilm"]) == [
        "SBERT, small",
        "SBERT, small",
        "minilm",
    ]


def count_calls(function: Callable[[], object]) -> int:
    """How many functions are called, those written in C among them."""
    counts: Counter[str] = Counter()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: counts.update([event]))
    try:
        function()
    finally:
        sys.setprofile(before)
    return counts["call"] + counts["c_call"]


def test_a_list_of_many_names_is_read_in_linear_time():
    names = [f"mine:Class+seed={seed}" for seed in range(200)]
    ten, twenty = (count_calls(partial(NAMES.resolve_specs, names[:count])) for count in (10, 20))
    assert twenty <= 2 * ten
    assert count_calls(partial(NAMES.resolve_specs, names)) <= 20 * ten
    assert NAMES.join_parts([*names, "SBERT", "small"]) == [*names, "SBERT, small"]


def test_a_title_with_a_comma_and_changes_ends_before_the_next_name():
    parts = ["SBERT", "small+seed=1", "minilm", "SBERT", "small"]
    assert NAMES.join_parts(parts) == ["SBERT, small+seed=1", "minilm", "SBERT, small"]


def test_a_truth_value_in_a_name_is_written_as_toml_or_as_results_print_it(stsbench, results):
    write_result(make_result("minilm+normalise=False+pooling=max", "sts12", 0.6), results)
    for name in ("minilm+normalise=False+pooling=max", "minilm+pooling=max+normalise=false"):
        chosen = select_results(
            [name], EncoderDirectory(read_states(results), CATALOGUE), CATALOGUE, results
        )
        assert [result.score for result in chosen] == [0.6]
    out = stsbench.json(
        "run", "-e", "minilm+normalise=false,minilm+normalise=true", *QUICK, "--dry-run"
    )
    assert [forecast["name"] for forecast in out["encoders"]] == [
        "minilm+normalise=False",
        "minilm+normalise=True",
    ]


def printed(stsbench: Any, *command: str) -> set[tuple[str, str]]:
    """What a board or table calls the encoders that were measured, and their cards' names."""
    rows = csv.DictReader(io.StringIO(stsbench("leaderboard", *command, "--format", "csv").out))
    return {
        (r["row"], r["encoder"])
        for r in rows
        if r["side"] == "measured" and r["row"] != "majority class"
    }


def test_what_boards_and_tables_print_chooses_the_encoder_that_it_is_of(stsbench, results):
    boards = [
        ("--suite", "sts"),
        ("--suite", "sts", "--show", "merged"),
        ("--table", "sts"),
        ("--table", "simcse-5"),
    ]
    found = set().union(*(printed(stsbench, *one) for one in boards))
    assert {name for name, _ in found} >= {
        "SimCSE-BERT-base",
        "simcse-bert-base",
        OTHER,
        VIEWS,
        "runA/final [aaaaaa]",
    }
    for name, encoder in found:
        chosen = select_results([name], ENCODERS, CATALOGUE, Path("results"))
        assert {result.encoder for result in chosen} == {encoder}, name


def test_every_row_of_every_table_is_accepted_or_refused_with_what_to_give():
    labels = {
        facts.label or facts.row
        for name in list_tables()
        for group in read_table_card(name).groups
        for facts in list_rows(group)
    }
    accepted = refused = 0
    for label in labels:
        try:
            assert NAMES.resolve_specs([label])[0] in NAMES.ids, label
            accepted += 1
        except StsbenchError as error:
            told = str(error)
            assert "no card is of" in told or any(f"'{name}'" in told for name in NAMES.ids), told
            refused += 1
    assert accepted > 100 and refused > 10


@pytest.mark.parametrize("kind", ["baselines", "trainers"])
def test_every_title_is_its_encoders_name(kind):
    for name in CATALOGUE.paths(kind):
        title = (CATALOGUE.encoder(name) if kind == "baselines" else CATALOGUE.recipe(name)).name
        parts = title.split(", ")
        assert NAMES.resolve_specs([*parts, "minilm"]) == list(dict.fromkeys([name, "minilm"])), (
            title
        )
        assert NAMES.resolve_specs([*parts[:-1], f"{parts[-1]}+seed=1"]) == [f"{name}+seed=1"]
        with pytest.raises(StsbenchError, match=rf"names results, .*; give '{re.escape(name)}'$"):
            NAMES.resolve_spec(f"{title} [3f2a1b, transformers 5.3.0]")


LOADED = ("run", "timing", "show", "train", "convert", "base")


def load(stsbench: Any, command: str, name: str) -> str:
    """The line in which a command that loads an encoder refuses a name."""
    words = {
        "run": ("run", *QUICK, "-e", name),
        "timing": ("timing", "-e", name, "--tasks", "quickstart-en"),
        "show": ("show", name),
        "train": ("train", name, "--device", "cuda"),
        "convert": ("convert", "expand", name, "out"),
        "base": ("train", "little", "--cards", "mine", "--base", name),
    }[command]
    return str(stsbench.refused(*words))


@pytest.mark.parametrize("command", LOADED)
@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "runA/final [aaaaaa]",
            "'runA/final [aaaaaa]' names results, not what made them; give 'runA/final'",
        ),
        (OTHER, f"'{OTHER}' names results, not what made them; give 'simcse-bert-base'"),
        ("SimCSE-BERT-base [1234]", "names results, not what made them; give 'simcse-bert-base'"),
        (
            "No tuning, CLS",
            "is a row of papers' tables of several encoders; give 'bert-base-cls' or 'bert-large-cls'",
        ),
        ("InferSent", "give 'infersent1' or 'infersent2'"),
        (
            "SimCSE-BERT-base",
            "'SimCSE-BERT-base' is a row of papers' tables of several encoders; give 'simcse-bert-ba",
        ),
        ("USE", "'USE' is a row of papers' tables of several encoders; give 'use-large'"),
        (
            "runA/final",
            "'runA/final' is what results calls an encoder that no known card has; give the folder of its card (--cards DIR), or the encoder's folder, its class or",
        ),
        ("runA--final", "'runA--final' is a folder of results; give 'runA/final'"),
    ],
)
@pytest.mark.usefixtures("cards", "results")
def test_a_name_that_loads_nothing_is_refused_with_what_to_give(stsbench, command, name, says):
    assert says in load(stsbench, command, name)


@pytest.mark.parametrize("command", LOADED)
@pytest.mark.usefixtures("cards")
def test_a_title_is_taken_for_its_encoder(stsbench, command):
    title = {"train": "FastSent+AE, small", "convert": "Skip-Thoughts, small"}.get(
        command, "FastSent"
    )
    if command == "show":
        assert stsbench.json("show", title)["id"] == "fastsent"
    else:
        refused = load(stsbench, command, title)
        assert "unknown" not in refused and title not in refused, refused


def test_a_title_runs_and_its_results_carry_the_id(stsbench, tmp_path):
    own = make_own(tmp_path)
    card = own.cards / "baselines" / "mine.toml"
    card.write_text(card.read_text().replace('name = "Mine"', 'name = "Mine, hashed"'))
    for name in ("Mine, hashed", "mine", "Mine, hashed+size=7"):
        code, out, err = stsbench(
            "run", "-e", f"own_encoders:Hashed,{name}", *QUICK, "--cards", own.cards, "--json"
        )
        assert code == 0, err
        found = {result["encoder"] for result in json.loads(out)["results"]}
        assert found == {"hashed", name.replace("Mine, hashed", "mine")}
    assert "both replace 'size'" in stsbench.refused(
        "run", "-e", "mine+size=7", "--set", "size=8", *QUICK, "--cards", own.cards
    )
    assert len(read_states(tmp_path / "results").results) == 3


def test_a_recipes_name_with_its_changes_trains_them(stsbench, tmp_path):
    told = stsbench.refused("train", "simcse-small+temperature=0.1", "--set", "temperature=0.2")
    assert told.startswith(
        "simcse-small+temperature=0.1: its name and --set both replace 'temperature'"
    )
    assert "did you mean 'simcse-small'" in stsbench.refused("train", "simcse-small@3")
    assert read_recipe(VIEWS, CATALOGUE) == read_recipe(
        "consert-small", CATALOGUE, params={"views": ["none", "none"]}
    )

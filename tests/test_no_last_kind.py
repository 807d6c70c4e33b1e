"""A name that is in no table is an error that offers the nearest; nothing stands for "all the others"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stsbench
from stsbench.core.errors import StsbenchError
from stsbench.core.parameters import check_params
from stsbench.training.methods.after_simcse import DiffCSE, ESimCSE, RankCSE
from stsbench.training.methods.denoising import TSDAE
from stsbench.training.methods.own_encoders import ISBERT, PromptBERT
from stsbench.training.methods.sbert import AnglE, SBERTTriplets
from stsbench.training.methods.simcse import SimCSE, SimCSEPositives
from stsbench.training.methods.two_models import SelfGuided
from stsbench.training.methods.views import CLEAR, ConSERT
from tests.cli.commands import Command


def offers(message: str, names: str) -> bool:
    """Whether the wrong name is told, and the right one offered."""
    wrong, _, right = names.partition("|")
    asked, _, offered = message.partition("; did you mean ")
    return message.startswith("unknown ") and wrong in asked and (not right or right in offered)


COMMANDS = [
    ("analyze spectrm -e letters", "spectrm|spectrum"),
    ("analyze spectrum --out a.jsn", "jsn|json"),
    ("run --on rai", "rai|ray"),
    ("sweep heat.toml --base minilm --on rai", "rai|ray"),
    ("train simcse-small --on rai", "rai|ray"),
    ("leaderboard --suite stss", "stss|sts"),
    ("compare a b --format latx", "latx|latex"),
    ("check results --against results --rule statistica", "statistica|statistical"),
    ("convert infersnt a b", "infersnt|infersent"),
    ("data fetch stsbb", "stsbb|stsb"),
    ("export --format mteeb", "mteeb|mteb"),
    ("list tasks --language jaa", "jaa|ja"),
    ("list task", "task|tasks"),
    ("show stsbb", "stsbb|stsb"),
    ("new task a.csv --columns golt=x", "golt|gold"),
    ("run minilm --variants dimension=2", "dimension|dimensions"),
    ("export --format mteb -e leters", "leters|letters"),
    ("run minilm -t quickstart-en --protocol simcce", "simcce|simcse"),
    ("check results --against results --tolerance hlf=1", "hlf|half"),
    ("leaderboard --show mesured", "mesured|measured"),
    ("leaderboard --format markdwn", "markdwn|markdown"),
    ("train simcse-smal", "simcse-smal|simcse-small"),
    ("reproduce simcse-3", "simcse-3|simcse-table-3"),
    ("timing --format jsn", "jsn|json"),
    ("leaderboard --table simcse-55", "simcse-55|simcse-5"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a result of an encoder called "letters"."""
    folder = tmp_path_factory.mktemp("place")
    stsbench.evaluate("tests.made_up:Encoder", "quickstart-en", store=None).save(folder / "results")
    return folder


@pytest.mark.parametrize(("line", "names"), COMMANDS)
def test_a_command_takes_no_name_that_is_in_no_table(
    line: str, names: str, place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    assert offers(Command(capsys).refused(*line.split(" ")), names)


METHODS_TAKE: list[tuple[Any, dict[str, Any], str]] = [
    (AnglE, {"positives": "releasd"}, "releasd|released"),
    (AnglE, {"doubled_texts": "dropp"}, "dropp|drop"),
    (SimCSE, {"loss": "symetric"}, "symetric|symmetric"),
    (SimCSE, {"views": "pair"}, "pair|pairs"),
    (SimCSE, {"mlm_weight": 0.1, "mlm_decoder": "tie"}, "tie|tied"),
    (SimCSEPositives, {"positive": "crob"}, "crob|crop"),
    (ESimCSE, {"variant": "release"}, "release|released"),
    (DiffCSE, {"variant": "papers"}, "papers|paper"),
    (SelfGuided, {"variant": "opt4"}, "opt4|opt"),
    (ISBERT, {"activation": "relo"}, "relo|relu"),
    (ConSERT, {"objective": "joined"}, "joined|joint"),
    (ConSERT, {"sides": "men"}, "men|mean"),
    (PromptBERT, {"validation": "relased"}, "relased|released"),
    (RankCSE, {"teachers": ["minilm"], "ranking": "listmll"}, "listmll|listmle"),
    (TSDAE, {"decoder": "tide"}, "tide|tied"),
    (TSDAE, {"words": "whitespce"}, "whitespce|whitespace"),
    (SBERTTriplets, {"views": "triplet"}, "triplet|triplets"),
    (CLEAR, {"first": "reordr"}, "reordr|reorder"),
    (CLEAR, {"first": "reorder", "second": "reorder", "projection": "mlpp"}, "mlpp|mlp"),
]


@pytest.mark.parametrize(("method", "params", "names"), METHODS_TAKE)
def test_a_method_takes_no_name_that_it_does_not_know(
    method: Any, params: dict[str, Any], names: str
) -> None:
    wrong, right = names.split("|")
    with pytest.raises(StsbenchError, match=f"'{wrong}' is not one of .*; did you mean '{right}"):
        check_params(method, {"student": None, **params}, where="[params]")

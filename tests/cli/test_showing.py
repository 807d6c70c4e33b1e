"""``show`` of what is no card: tables, protocols and training runs, and the curves of these."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import Command
from tests.cli.little_recipe import cards

__all__ = ["cards"]


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
def trained(stsbench: Command, cards: Path, masked_lm: Path) -> Path:
    """The folder with cards of a recipe that was trained with two seeds, and once under a name of its own."""
    for more in (["--seeds", "1,2"], ["--name", "ours"]):
        done = stsbench("train", "little", "--cards", cards, "--base", masked_lm, *more)
        assert done.code == 0, done.err
    return cards


def test_runs_are_shown_by_recipe_name_and_folder_and_drawn(stsbench, trained):
    assert [one["folder"] for one in stsbench.json("show", "little", "--cards", trained)["trained"]] == [
        "runs/little/seed1",
        "runs/little/seed2",
    ]
    ours = stsbench.json("show", "ours", "--cards", trained)
    assert ours["card"] == "run" and [one["folder"] for one in ours["trained"]] == ["runs/ours/seed0"]
    by_folder = stsbench.json("show", "runs/ours/seed0", "--cards", trained)
    assert by_folder["trained"] == ours["trained"] and by_folder["training"]["steps"] == 12
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    assert stsbench.fine("show", "little,ours", "--curve", "c.svg") == "wrote c.svg\n"
    drawn = Path("c.svg").read_text()
    assert all(
        text in drawn for text in ("little seed 1", "little seed 2", "ours seed 0", "quickstart-en test", "loss")
    )
    assert stsbench.fine("show", "ours", "--curve", "c.png") == "wrote c.png\n" and Path("c.png").stat().st_size > 1000


def test_what_has_no_curve_is_one_line(stsbench):
    assert stsbench.refused("show", "nobody", "--curve", "c.svg").startswith("there are no runs of 'nobody'")
    assert (
        stsbench.refused("show", "x", "--curve", "c.bmp")
        == "--curve 'c.bmp': give a file that ends in .svg, .png, .pdf"
    )


def test_curves_that_no_axis_can_show_together_and_names_without_runs_are_refused(stsbench, trained):
    recipe = trained / "trainers" / "little.toml"
    other = recipe.read_text().replace('task = "quickstart-en"', 'task = "quickstart-es-en"')
    (trained / "trainers" / "other.toml").write_text(other)
    base = next(Path("runs").glob("little/seed1"))
    assert stsbench("train", "other", "--cards", trained, "--base", base, "--set", "steps=4").code == 0
    both = stsbench.refused("show", "little,other+steps=4", "--curve", "c.svg")
    assert both.startswith("these runs were validated on quickstart-en test and quickstart-es-en test")
    lost = stsbench.refused("show", "little,other", "--curve", "c.svg")
    assert lost == "there are no runs of 'other'; did you mean 'other+steps=4'?; 'stsbench train' makes them"

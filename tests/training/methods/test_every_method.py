"""What every method does: it learns, a run that was cut off ends as an undisturbed one, its folder opens as it was trained."""

import pytest

from stsbench.training.loop import loop
from tests.training.methods.every_method import CASES, made
from tests.training.methods.runs import reopened_apart, whole_and_resumed
from tests.training.students import run_facts


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_undisturbed_one_and_its_folder_opens(masked_lm, tmp_path, case):
    whole, resumed = whole_and_resumed(lambda: made(masked_lm, case, dropout=0.1), tmp_path, 20)
    assert resumed.same_as(whole)
    assert reopened_apart(resumed.learner, tmp_path / "saved") < 1e-5


@pytest.mark.parametrize(
    "case", ["consert, joint", "cosent", "declutr", "esimcse", "mixcse", "mlm", "promptbert", "simcse++", "tsdae"]
)
def test_training_lowers_the_loss(masked_lm, tmp_path, case):
    training = {"steps": 40, "learning_rate": 3e-3}
    run = run_facts(tmp_path, 20, training=training, selection={"every": 10})
    curve = loop.train_learner(made(masked_lm, case), run).curve
    assert curve[-1]["loss"] < curve[0]["loss"] - 0.01

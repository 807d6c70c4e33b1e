from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stsbench
from stsbench.core.errors import DataError, StsbenchError, UnknownName
from stsbench.results.folder import write_result
from stsbench.results.record import items_path
from tests.cli.little_recipe import cards
from tests.encoders.fakes import Neighbourly, Plain

__all__ = ["cards"]

ROOT = Path(stsbench.__file__).parent.parent
HEAVY = ["torch", "transformers", "sentence_transformers", "datasets", "numpy", "scipy", "sklearn", "pandas",
         "pyarrow", "numba", "rich", "typer", "msgspec", "huggingface_hub", "matplotlib"]  # fmt: skip


public: Any = stsbench
"""For calls that types refuse."""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_importing_the_package_imports_nothing_heavy():
    loaded = set(run("import stsbench, sys; stsbench.__version__; print(*sys.modules)").split())
    assert not loaded & set(HEAVY)
    assert {name for name in loaded if name.startswith("stsbench")} == {"stsbench"}


def test_no_public_name_needs_torch():
    code = """
import stsbench, sys
for name in stsbench.__all__:
    getattr(stsbench, name)
    print(*(f"{name} imports {heavy}" for heavy in ("torch", "transformers", "sentence_transformers") if heavy in sys.modules))
"""
    assert run(code).split() == []


MARKDOWN = ["--results", "results/project", "--format", "markdown"]


@pytest.mark.parametrize(
    "arguments", [["--suite", "sts", *MARKDOWN], ["--table", "simcse-5", *MARKDOWN]]
)
def test_tables_without_ranks_import_no_scipy(arguments):
    code = f"""
import sys
from stsbench.cli.main import main
main(["leaderboard", *{arguments}])
print(*sorted(sys.modules), file=sys.stderr)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout
    assert not {"scipy", "torch", "sklearn", "pandas"} & set(done.stderr.split())


def test_the_public_names():
    names = """Catalogue Encoder PairScorer Result Results StsbenchError StsbenchEvaluator Task __version__ compare evaluate evaluate_pairs iterate leaderboard
        load_encoder load_task read_results train""".split()
    assert stsbench.__all__ == dir(stsbench) == sorted(names)
    for name in stsbench.__all__:
        assert getattr(stsbench, name) is not None
    with pytest.raises(AttributeError, match="'stsbench' .* 'evalute'"):
        _ = stsbench.evalute


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: public.evaluate("minilm", 7), "a Task or a list of them; it is 7"),
        (lambda: public.evaluate("minilm", []), "no task is named; give tasks or suites"),
        (
            lambda: public.evaluate(42, "quickstart"),
            "42 is not an encoder; give a name, an object with name",
        ),
        (lambda: public.evaluate("", "quickstart"), "no encoder is given"),
        (lambda: public.evaluate({"mine": "minilm"}, "quickstart"), "'minilm' is a name already"),
        (
            lambda: public.iterate("minilm", 7),
            "iterate: tasks must be a name, a Task or a list of them; it is 7",
        ),
        (
            lambda: public.evaluate("minilm", "quickstrat"),
            "unknown task or suite 'quickstrat'; did you mean",
        ),
        (
            lambda: public.evaluate("minilmm", "quickstart"),
            "unknown encoder 'minilmm'; did you mean 'minilm'",
        ),
        (
            lambda: public.evaluate("minilm", "stsb", seed="a"),
            "evaluate: seed must be a whole number from 0 to",
        ),
        (
            lambda: public.evaluate("minilm", "stsb", store=3),
            "evaluate: store must be a path, 'default' or None",
        ),
        (
            lambda: public.evaluate("minilm", "stsb", catalogue="mine"),
            "evaluate: catalogue must be a Catalogue, such as stsbench.Catalogue('DIR'); it is 'mine'",
        ),
        (
            lambda: public.leaderboard(mteb="a" * 300),
            f"'{'a' * 300}': the name is too long for this system",
        ),
        (
            lambda: public.read_results("a" * 300),
            f"'{'a' * 300}': the name is too long for this system",
        ),
        (
            lambda: public.load_encoder(None),
            "load_encoder: name must be a name or a path; it is None",
        ),
        (
            lambda: public.load_encoder("minilm", params=["a"]),
            "load_encoder: params must be a dict of values by",
        ),
        (lambda: public.load_task(None), "load_task: name must be a name; it is None"),
        (
            lambda: public.load_task("quickstart-en").load(3),
            "Task.load: split must be a name; it is 3",
        ),
        (
            lambda: public.load_task("quickstart-en").texts(3),
            "Task.texts: splits must be a name or a list of names",
        ),
        (
            lambda: public.Catalogue(3),
            "Catalogue: folders must be a path or a list of paths; it is 3",
        ),
        (lambda: public.Catalogue("nowhere"), "cards folder 'nowhere' does not exist"),
        (lambda: public.read_results(None), "read_results: folder must be a path; it is None"),
        (
            lambda: public.Results([3]),
            "Results: 3 is not a Result; give what evaluate or read_results returns",
        ),
        (lambda: public.Results(5), "Results: results must be a sequence of Result; it is 5"),
        (lambda: public.Results().save(3), "Results.save: folder must be a path; it is 3"),
        (lambda: public.Results().compare(), "compare needs at least two encoders"),
        (lambda: public.Results().plot(), "there are no scores to draw"),
        (lambda: public.compare(), "compare needs at least two encoders"),
        (
            lambda: public.compare(3, 4),
            "compare: 3 is neither Results nor the name or folder of an encoder",
        ),
        (
            lambda: public.compare("minilm", "mpnet", results="nowhere"),
            "results folder 'nowhere' does not exist",
        ),
        (
            lambda: public.leaderboard(3),
            "leaderboard: results must be Results or a results folder; it is 3",
        ),
        (lambda: public.leaderboard(suite="stts"), "unknown suite 'stts'; did you mean 'sts'"),
        (
            lambda: public.leaderboard(table="simcse-5", suite="sts"),
            "suite and protocol have no effect beside table",
        ),
        (lambda: public.leaderboard(show="mesured"), "unknown show 'mesured'"),
        (lambda: public.leaderboard(exact=1), "leaderboard: exact must be True or False; it is 1"),
        (lambda: public.leaderboard([]), "no results for suite 'sts'"),
        (lambda: public.read_results("nowhere"), "results folder 'nowhere' does not exist"),
        (lambda: public.read_results(on_error="skipp"), "unknown on_error 'skipp'"),
        (lambda: public.train(3), "train: recipe must be a name or a path; it is 3"),
        (lambda: public.train("simcse-smal"), "unknown recipe 'simcse-smal'"),
        (lambda: public.train("simcse-small", params={"temprature": 1}), "temprature"),
        (
            lambda: public.train("simcse-small", on_step=3),
            "train: on_step must be a function; it is 3",
        ),
    ],
)
def test_a_mistake_is_one_line_at_the_call(call, message):
    with pytest.raises(stsbench.StsbenchError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_results_that_a_run_has_written_are_read_and_checked(tmp_path):
    for result in stsbench.evaluate(Plain(), "quickstart-en,quickstart-es-en", store=None):
        write_result(result, tmp_path)
    found = stsbench.read_results(tmp_path)
    assert [result.task for result in found] == ["quickstart-en", "quickstart-es-en"]
    assert isinstance(found, stsbench.Results)
    assert list(stsbench.read_results(str(tmp_path / "plain"))) == list(found)
    for path in (tmp_path / "plain").glob("*.json"):
        path.write_text(path.read_text().replace('"score": ', '"score": 0.123, "was": '))
    with pytest.raises(
        DataError,
        match=r"plain/quickstart-en.* \(and 1 files more\); on_error='skip' leaves such files",
    ):
        stsbench.read_results(tmp_path)
    with pytest.warns(
        UserWarning, match=r"plain/quickstart-(en|es-en)\.test\..*a result file"
    ) as notices:
        assert len(stsbench.read_results(tmp_path, on_error="skip")) == 0
    assert len(notices) == 2


def test_a_score_that_its_items_do_not_make_is_no_result(tmp_path):
    (result,) = stsbench.evaluate(Plain(), "quickstart-en", store=None)
    path = write_result(result, tmp_path)
    (other,) = stsbench.evaluate(Plain(d=3), "quickstart-en", store=None)
    items_path(path).write_bytes(items_path(write_result(other, tmp_path / "other")).read_bytes())
    with pytest.raises(DataError, match="items.parquet: is not what"):
        stsbench.read_results(tmp_path)


def test_train_returns_the_encoder_that_its_name_finds(cards, masked_lm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps: list[int] = []
    mine = stsbench.Catalogue(cards)
    options: dict[str, Any] = {"base": masked_lm, "params": {"steps": 4}, "catalogue": mine}
    encoder = stsbench.train(
        "little", seed=3, on_step=lambda progress: steps.append(progress.step), **options
    )
    assert steps[-1] == 4
    assert (tmp_path / "runs" / "little+steps=4" / "seed3" / "run.json").is_file()
    (result,) = stsbench.evaluate(encoder, "quickstart-en", catalogue=mine)
    (same,) = stsbench.evaluate("little+steps=4@3", "quickstart-en", catalogue=mine)
    assert (result.encoder, result.train_seed, result.score) == ("little+steps=4", 3, same.score)
    assert result.encoder_card == same.encoder_card is not None
    # What is trained is not trained again, and is the same.
    again = stsbench.train("little", seed=3, on_step=lambda progress: steps.append(-1), **options)
    assert again.fingerprint == encoder.fingerprint and -1 not in steps


def test_a_stopped_run_says_the_call_that_finishes_it(cards, masked_lm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises((KeyboardInterrupt, stsbench.StsbenchError)):
        stsbench.train(
            "little",
            base=masked_lm,
            params={"steps": 4},
            out="elsewhere",
            on_step=stop,
            catalogue=stsbench.Catalogue(cards),
        )
    (folder,) = (tmp_path / "elsewhere" / "little+steps=4").iterdir()
    call = f"stsbench.train('little', seed=0, params={{'steps': 4}}, base='{masked_lm}', out='elsewhere')"
    with pytest.raises(stsbench.StsbenchError) as caught:
        stsbench.load_encoder(folder)
    assert f"to finish it: {call}" in str(caught.value)


def test_the_signatures_that_people_rely_on():
    parameters = inspect.signature(stsbench.evaluate).parameters
    assert list(parameters) == list(inspect.signature(stsbench.iterate).parameters)
    assert list(parameters)[:2] == ["encoder", "tasks"]
    defaults = {
        name: parameters[name].default for name in ("protocol", "data", "seed", "store", "on_error")
    }
    assert defaults == {
        "protocol": None,
        "data": None,
        "seed": 0,
        "store": "default",
        "on_error": "raise",
    }
    keyword = {name for name, p in parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keyword == set(parameters) - {"encoder", "tasks"}
    assert list(inspect.signature(stsbench.load_task).parameters)[0] == "name"
    assert list(inspect.signature(stsbench.load_encoder).parameters)[0] == "name"


def test_load_task():
    task = stsbench.load_task("quickstart-en")
    assert isinstance(task, stsbench.Task)
    split = task.load("test")
    assert split.n == 300
    texts = task.texts(["test"])
    assert len(texts) == len(set(texts)) <= 600
    assert set(texts) == set(split.texts())
    assert task.texts(with_ungraded=True)[: len(texts)] == texts
    with pytest.raises(UnknownName, match="mean 'quickstart-") as caught:
        stsbench.load_task("quickstart")
    assert (caught.value.kind, caught.value.name) == ("task", "quickstart")
    with pytest.raises(UnknownName, match="mean 'test'") as caught:
        task.load("tests")
    assert caught.value.name == "tests"


def test_evaluate_an_encoder_of_ones_own(tmp_path):
    encoder = Plain()
    assert isinstance(encoder, stsbench.Encoder)
    results = stsbench.evaluate(
        encoder, ["quickstart-en", "quickstart-es-en"], store=tmp_path, seed=1
    )
    assert isinstance(results, Sequence)
    first, second = results
    assert isinstance(first, stsbench.Result)
    assert (first.task, second.task) == ("quickstart-en", "quickstart-es-en")
    assert (first.encoder, first.eval_seed, first.n) == ("plain", 1, 300)
    assert -1 <= first.interval[0] <= first.score <= first.interval[1] <= 1
    # A token encoder of one's own has its batches planned.
    (third,) = stsbench.evaluate(Neighbourly(), "quickstart-en", store=None)
    assert third.score != first.score


def test_one_of_several_encoders_that_breaks_is_skipped_and_kept_as_a_failure():
    def broken(sentences: list[str]) -> Any:
        return [1 / 0 for _ in sentences]

    def lengths(sentences: list[str]) -> Any:
        return np.array([[len(text), 1.0] for text in sentences])

    found = public.evaluate(
        {"broken": broken, "lengths": lengths}, "quickstart-en", on_error="skip", store=None
    )
    assert [one.encoder for one in found] == ["lengths"]
    assert "broken" in str(found.failures[0]) and "division by zero" in str(found.failures[0])
    with pytest.raises(ZeroDivisionError):
        public.evaluate({"broken": broken, "lengths": lengths}, "quickstart-en", store=None)


def test_wrong_arguments_of_the_interface_are_one_line():
    with pytest.raises(StsbenchError, match="evaluate 'protocl'.* 'protocol'"):
        public.evaluate("minilm", "quickstart-en", protocl="simcse")
    with pytest.raises(StsbenchError, match="Results are taken by index"):
        public.Results([])["minilm"]

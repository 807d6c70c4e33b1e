"""The table that ``stsbench run`` prints: baselines, seeds put together, subsets and classes."""

from __future__ import annotations

import statistics

from stsbench.cli.scores import print_scores
from stsbench.core.catalogue import Catalogue
from stsbench.results.folder import read_states
from tests.cli.commands import HASHED
from tests.made import make_result
from tests.own_tasks import VALIDATED, write_data

PROBE = ("--tasks", "quickstart-probe", "--protocol", "senteval-fast")


def test_several_seeds_are_one_line_with_their_deviation(stsbench, tmp_path):
    lines = stsbench.fine("run", *HASHED, *PROBE, "--seeds", "0,1,2").splitlines()
    scores = [r.score for r in read_states(tmp_path / "results").results]
    assert len(scores) == 3 and len(set(scores)) > 1
    shown = next(line.split() for line in lines if line.startswith("quickstart-probe"))
    assert shown[1] == f"{100 * statistics.fmean(scores):.2f}±{100 * statistics.stdev(scores):.2f}"
    low, high = map(float, shown[3].split("–"))
    assert [shown[2], *shown[4:]] == ["25.00", "120", "senteval-fast"]
    assert low < 100 * statistics.fmean(scores) < high
    assert "of means, Student's t over items and seeds" in " ".join(lines)
    assert "±: deviation over the seeds 0, 1, 2" in lines


def test_verbose_shows_seeds_and_a_report_of_each_class(stsbench, tmp_path):
    lines = stsbench.fine("run", *HASHED, *PROBE, "--seeds", "0,1", "--verbose").splitlines()
    assert max(map(len, lines)) <= 80
    results = sorted(read_states(tmp_path / "results").results, key=lambda r: r.eval_seed)
    for seed, result in enumerate(results):
        line = next(line.split() for line in lines if line.startswith(f"  seed {seed}"))
        assert line[2:] == [f"{100 * result.score:.2f}", "–".join(f"{100 * end:.2f}" for end in result.interval)]
    at = lines.index("classes of quickstart-probe, mean of 2 seeds")
    assert lines[at + 2].split() == ["class", "precision", "recall", "F1", "n"]
    report = [line.split() for line in lines[at + 4 : at + 8]]
    assert [row[0] for row in report] == ["cooking", "money", "sport", "weather"]
    for name, *shown, n in report:
        classes = [result.per_subset[name] for result in results]
        means = [statistics.fmean(one[what] for one in classes) for what in ("precision", "recall", "f1")]
        assert (shown, n) == ([f"{100 * mean:.2f}" for mean in means], "30")


def test_the_mean_of_a_suite_has_a_deviation_and_a_baseline(stsbench, tmp_path, capsys):
    scores = {("a", 0): 0.5, ("b", 0): 0.7, ("a", 1): 0.6, ("b", 1): 0.9}
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "cards" / "tasks" / "suites.toml").write_text('[both]\nname = "Both"\ntasks = ["a", "b"]\n')
    results = [
        make_result("own", task, score, eval_seed=seed, scores={"majority": {"a": 0.25, "b": 0.35}[task]})
        for (task, seed), score in scores.items()
    ]
    print_scores(results, Catalogue([tmp_path / "cards"]), verbose=False)
    lines = capsys.readouterr().out.splitlines()
    # Seed by seed: 60 and 75, so 67.5 and their deviation 15 / sqrt(2).
    assert next(line.split() for line in lines if line.startswith("mean of Both"))[3:] == ["67.50±10.61", "30.00"]
    why = (
        "no per-item columns of own on a (and 3 more results), which intervals of means need; run: stsbench run --fresh"
    )
    assert f"{why} own --tasks a,b --seeds 0,1" in lines


def test_scores_of_another_split_than_a_board_has_are_listed(stsbench, tmp_path):
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "cards" / "tasks" / "pets.toml").write_text(VALIDATED.format(task="pets", n=30))
    write_data(tmp_path, "pets", 30)
    write_data(tmp_path, "pets-validation", 4)
    both = ("--encoder", "own_encoders:Hashed,own_encoders:ready", "--tasks", "pets", "--data", str(tmp_path))
    out = stsbench.fine("run", *both, "--cards", str(tmp_path / "cards"), "--split", "validation")
    assert [line.split()[:3] for line in out.splitlines() if "(validation)" in line] == [
        ["hashed", "pets", "(validation)"],
        ["ready-made", "pets", "(validation)"],
    ]

"""``stsbench run``: what it prints and keeps, how it ends when something fails, its tables of scores and of variants."""

from __future__ import annotations

import json
import os
import re
import statistics
import tomllib
from pathlib import Path

import pytest

from stsbench.cli.option_values import parse_assignments, parse_seeds
from stsbench.cli.run import merge_rows
from stsbench.cli.scores import print_scores
from stsbench.cli.variants import expand_variants, print_variants
from stsbench.core.catalogue import Catalogue, card_folder
from stsbench.core.errors import StsbenchError
from stsbench.results.folder import read_states
from tests.cli.commands import HASHED, QUICK, Command, made_by, make_own, one_line
from tests.hub_server import unplug
from tests.made import make_result
from tests.own_tasks import VALIDATED, write_data

BOTH = ("--tasks", "quickstart-en,quickstart-es-en")


def test_a_run_prints_a_table_and_keeps_results(stsbench, tmp_path):
    lines = stsbench.fine("run", *HASHED, *BOTH).splitlines()
    assert lines[0] == "hashed"
    assert lines[2].split() == ["task", "score", "95%", "interval", "n", "protocol"]
    assert lines[4].split()[0::3] == ["quickstart-en", "300"]
    method = "Fisher's z, by shared sentences or by chains of them, whichever is wider"
    legend = " ".join(line.strip() for line in lines[7:-1])
    tasks = "quickstart-en+quickstart-es-en"
    assert legend.startswith(f"scores are times 100; 95% interval: {method} signature:")
    assert f" | tasks:{tasks} | split:test | n:400 | " in legend
    assert legend.endswith("similarity:cosine || prompt:? | dtype:? | version:0.1.0 | cut:?")
    assert lines[-1] == "Results: results/hashed/"
    # The tasks in another order have the same signature.
    reversed_tasks = ",".join(reversed(tasks.split("+")))
    again = " ".join(stsbench.fine("run", *HASHED, "-t", reversed_tasks).split())
    assert legend[legend.index("signature:") :] in again
    results = read_states(tmp_path / "results").results
    assert [r.task for r in results] == ["quickstart-en", "quickstart-es-en"]
    shown = f"{100 * results[0].score:.2f}"
    assert lines[4].split()[1] == shown
    low, high = results[0].interval
    assert lines[4].split()[2] == f"{100 * low:.2f}–{100 * high:.2f}"


def test_a_run_says_which_tasks_are_in_other_languages_than_its_encoder(stsbench):
    run = stsbench("run", "--dry-run")
    notice = "minilm is made for en; other languages are in quickstart-es-en (es)"
    assert one_line(run.err).count(notice) == 1
    # Nothing is known of the languages of a class, or of another network under the card's name.
    assert "made for" not in stsbench("run", *HASHED, *BOTH, "--dry-run").err
    other = stsbench("run", "minilm", "--set", "file=x.safetensors", *BOTH, "--dry-run").err
    assert "made for" not in other
    assert "made for" not in stsbench("run", "minilm", "-t", "quickstart-en", "--dry-run").err


def test_the_same_command_scores_nothing_again(stsbench, tmp_path):
    first = stsbench.fine("run", *HASHED, *QUICK)
    (path,) = (tmp_path / "results" / "hashed").glob("*.json")
    before = path.stat().st_mtime_ns
    assert stsbench.fine("run", *HASHED, *QUICK) == first
    assert path.stat().st_mtime_ns == before
    assert stsbench.fine("run", *HASHED, *QUICK, "--fresh") == first
    assert path.stat().st_mtime_ns > before
    one, again = json.loads(path.read_text()), stsbench.json("run", *HASHED, *QUICK)["results"][0]
    signature = again.pop("signature")
    assert one == again
    assert signature.startswith("signature:") and f"data:{one['data'][:12]} | " in signature


def test_a_bare_score_is_one_number_alone(stsbench, tmp_path):
    assert re.fullmatch(r"\d\d\.\d\d\n", stsbench.fine("run", "minilm", *QUICK, "-b"))
    (result,) = read_states(tmp_path / "results").results
    printed = stsbench.fine("run", "minilm", *QUICK, "-b")
    assert printed == f"{100 * result.score:.2f}\n"
    for several in (
        ("minilm", *BOTH),
        ("minilm,hashed", *QUICK),
        ("minilm", "--tasks", "quickstart"),
    ):
        code, out, err = stsbench("run", *several, "-b", "--results", tmp_path / "none")
        assert (code, out) == (2, "")
        assert "-b prints one number; give one encoder, and one task or a suite with a mean" in err
        assert not (tmp_path / "none").exists()
    assert "--bare" in stsbench("run", "minilm", *QUICK, "-b", "--json")[2]


def test_seeds_protocols_and_parameters_make_cells_of_their_own(stsbench, tmp_path):
    run = ["run", *HASHED, *QUICK]
    stsbench.fine(*run, "--seeds", "0,1")
    stsbench.fine(*run, "--protocol", "wmean")
    stsbench.fine(*run, "--set", "size=16")
    results = read_states(tmp_path / "results").results
    assert sorted((r.encoder, r.protocol["name"], r.eval_seed) for r in results) == [
        ("hashed", "simcse", 0),
        ("hashed", "simcse", 1),
        ("hashed", "wmean", 0),
        ("hashed+size=16", "simcse", 0),
    ]


# Failures.


def test_a_run_goes_on_past_an_encoder_that_fails(stsbench, tmp_path):
    code, out, err = stsbench("run", "--encoder", "own_encoders:Broken,own_encoders:Hashed", *QUICK)
    assert code == 2
    assert one_line(err).startswith(
        "hashed: encoder 'hashed' returned NaN or infinity for sentence "
    )
    assert "quickstart-en" in out
    assert len(read_states(tmp_path / "results").results) == 1


def test_a_run_goes_on_past_an_encoder_that_does_not_exist(stsbench):
    code, out, err = stsbench("run", "--encoder", "minilmm,own_encoders:Hashed", *QUICK, "--json")
    assert code == 2
    assert one_line(err).startswith("unknown encoder 'minilmm'; did you mean 'minilm'")
    assert json.loads(out)["failures"] == [one_line(err)]
    assert len(json.loads(out)["results"]) == 1


def test_data_that_cannot_be_had_are_told_once_for_all_encoders_and_seeds(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.data / "mine" / "gs.txt").unlink()
    run = [
        "run",
        "--encoder",
        "mine,own_encoders:Hashed",
        "--tasks",
        "both",
        "--seeds",
        "0,1",
        *own.options(),
    ]
    code, out, err = stsbench(*run)
    assert code == 2
    assert one_line(err).startswith("semeval: no data for semeval (test): it is local only; ")
    assert "data/mine/gs.txt" in one_line(err)
    assert [line.split()[0] for line in out.splitlines() if "±0" in line] == ["hashed", "mine"]


def test_a_bug_in_a_users_encoder_keeps_its_traceback(stsbench, tmp_path, own):
    alone = stsbench("run", "--encoder", "own_encoders:Bug", *QUICK)
    assert (alone.code, alone.out) == (3, "")
    assert "\nZeroDivisionError: " in alone.err
    assert alone.err.splitlines()[-1].startswith(
        "stsbench: this is a bug, in stsbench or in your own code"
    )
    code, out, err = stsbench("run", "--encoder", "own_encoders:Bug,own_encoders:Hashed", *QUICK)
    assert code == 3
    # None of our own frames stand before the user's.
    for printed in (alone.err, err):
        frames = [line for line in printed.splitlines() if line.lstrip().startswith('File "')]
        assert len(frames) == 1 and "own_encoders.py" in frames[0]
    assert "Traceback" in err and err.splitlines()[-1].startswith("stsbench: hashed: ")
    assert "quickstart-en" in out


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "own_encoders:Nope",
            "encoder kind 'own_encoders:Nope': module 'own_encoders' has no 'Nope'",
        ),
        (
            "no_such_module:Nope",
            "encoder kind 'no_such_module:Nope': no module named 'no_such_module'; is it installe",
        ),
        (
            "own_encoders:Nameless",
            "encoder 'own_encoders:Nameless': Nameless has no 'name'; an encoder needs name, ",
        ),
        (
            "own_encoders:NUMBER",
            "encoder kind 'own_encoders:NUMBER' is of type int; give a class with encode",
        ),
        (
            "own_encoders:np",
            "encoder kind 'own_encoders:np' is of type module; give a class with enc",
        ),
        (
            ":Hashed",
            "encoder kind ':Hashed' is not the address of an object; give package.module:Name",
        ),
        ("gone.toml", "card 'gone.toml' does not exist"),
        ("./gone", "checkpoint folder './gone' does not exist"),
        ("x" * 290, "unknown encoder 'xxx"),
    ],
)
def test_what_is_no_encoder_is_one_line(stsbench, spec, message):
    refused = stsbench.refused("run", *QUICK, "--encoder", spec)
    assert refused.removeprefix(f"{spec}: ").startswith(message)


def test_set_on_a_card_names_the_card_and_on_what_is_made_is_refused(stsbench, tmp_path):
    own = make_own(tmp_path)
    run = ["run", "--tasks", "table", *own.options(), "--set", "sise=3", "--encoder"]
    message = f"mine: {own.cards}/baselines/mine.toml: [params] and --set: unknown key 'sise'; did you mean 'size'?; known: size, name"
    assert stsbench.refused(*run, "mine") == message
    assert "is made already; it takes no parameters (sise)" in stsbench.refused(
        *run, "own_encoders:ready"
    )


def test_assignments_are_toml_or_text():
    found = parse_assignments(
        ["a=1", "b=true", "c=cls", "d='x,y'", "e=[1, 2]", "f=a=b", "g=", "h=" + "9" * 5000]
    )
    assert found == {
        "a": 1,
        "b": True,
        "c": "cls",
        "d": "x,y",
        "e": [1, 2],
        "f": "a=b",
        "g": "",
        "h": "9" * 5000,
    }
    # Nothing that was typed is lost behind a value.
    for value in ("1 # 2", "1\nb=2", "1, b = 2", "1,"):
        assert parse_assignments([f"a={value}"]) == {"a": value}
    assert parse_seeds("0, 2,1") == [0, 2, 1]
    with pytest.raises(StsbenchError):
        parse_seeds("1;2")


@pytest.mark.parametrize("option", ["--results", "--store"])
@pytest.mark.parametrize("below", ["file/results", "/proc/nothing/results"])
def test_a_folder_that_cannot_be_written_is_one_line(stsbench, tmp_path, option, below):
    # Tests may run as root, whom no permission stops: a folder below a file stops all.
    (tmp_path / "file").write_text("in the way")
    error = stsbench.refused("run", *QUICK, *HASHED, option, below)
    assert below.split("/results")[0] in error
    assert "cannot be" in error


def test_a_full_disk_is_one_line(stsbench, monkeypatch):
    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = stsbench.refused("run", *QUICK, *HASHED)
    assert "the disk is full; free some space and run again" in message


# What a run would do.


def test_a_dry_run_shows_what_is_done_and_missing(stsbench, tmp_path):
    run = ["run", *HASHED, *BOTH, "--dry-run"]
    lines = stsbench.fine(*run, "--seeds", "0,1").splitlines()
    assert lines[0].split() == ["encoder", "task", "protocol", "done", "missing"]
    assert lines[2].split() == ["hashed", "quickstart-en", "simcse", "seeds", "0,1"]
    assert "0 of 4 scores are done, 4 are missing" in lines
    assert (
        re.fullmatch(r"hashed +800 +[\d.]+ s +–", lines[-3].strip())
        and lines[-2] == "–: not measured yet"
    )
    assert re.fullmatch(
        r"In all about [\d.]+ s and what is not measured, by one worker on this machine", lines[-1]
    )
    assert not (tmp_path / "results").exists()
    stsbench.fine("run", *HASHED, *QUICK)
    lines = stsbench.fine(*run, "--seeds", "0,1").splitlines()
    assert lines[2].split() == ["hashed", "quickstart-en", "simcse", "seed", "0", "seed", "1"]
    assert f"1 of 4 scores are done (in results, made by {made_by()}), 3 are missing" in lines
    assert stsbench.fine("run", *HASHED, *QUICK, "--dry-run").endswith(
        f", made by {made_by()}), 0 are missing\n"
    )
    ready = stsbench.fine(
        "run", "--encoder", "own_encoders:ready", *QUICK, "--dry-run"
    ).splitlines()[-2]
    assert re.fullmatch(r"ready-made +\d+ +[\d.]+ s +[\d.]+ s *", ready)


def test_a_forecast_counts_the_sentences_of_an_encoder_and_its_variants_once(stsbench):
    variants = "own_encoders:Hashed,own_encoders:Hashed+dimensions=8"
    found = stsbench.json("run", variants, *QUICK, "--dry-run")
    assert [encoder["to_embed"] for encoder in found["encoders"]] == [600, 0]


def test_a_dry_run_as_json_and_its_failures(stsbench):
    code, out, err = stsbench(
        "run", "--encoder", "minilmm,own_encoders:Hashed", *QUICK, "--dry-run", "--json"
    )
    assert code == 2 and one_line(err).startswith("unknown encoder 'minilmm'")
    found = json.loads(out)
    assert found["failures"] == [one_line(err)]
    (hashed,) = found["encoders"]
    cell = {
        "encoder": "own_encoders:Hashed",
        "task": "quickstart-en",
        "protocol": "simcse",
        "seed": 0,
    }
    assert (hashed["name"], hashed["done"], hashed["missing"], hashed["seconds"]) == (
        "hashed",
        [],
        [cell],
        None,
    )


# Names.


def test_a_name_of_ones_own_is_what_results_tables_and_the_next_commands_have(stsbench, tmp_path):
    out = stsbench.fine("run", *HASHED, *QUICK, "--name", "ours")
    assert out.splitlines()[0] == "ours"
    (result,) = read_states(tmp_path / "results").results
    assert result.encoder == "ours" and (tmp_path / "results" / "ours").is_dir()
    stsbench.fine("run", "own_encoders:ready,own_encoders:Hashed", *QUICK, "--name", "first,second")
    assert {r.encoder for r in read_states(tmp_path / "results").results} == {
        "ours",
        "first",
        "second",
    }
    assert "| second |" in stsbench.fine(
        "leaderboard", "--suite", "quickstart", "--format", "markdown"
    )
    assert (
        stsbench.json("run", *HASHED, *QUICK, "--name", "ours")["results"][0]["run"] == result.run
    )


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
        assert line[2:] == [
            f"{100 * result.score:.2f}",
            "–".join(f"{100 * end:.2f}" for end in result.interval),
            "120",
        ]
    at = lines.index("classes of quickstart-probe, mean of 2 seeds")
    assert lines[at + 2].split() == ["class", "precision", "recall", "F1", "n"]
    report = [line.split() for line in lines[at + 4 : at + 8]]
    assert [row[0] for row in report] == ["cooking", "money", "sport", "weather"]
    for name, *shown, n in report:
        classes = [result.per_subset[name] for result in results]
        means = [
            statistics.fmean(one[what] for one in classes) for what in ("precision", "recall", "f1")
        ]
        assert (shown, n) == ([f"{100 * mean:.2f}" for mean in means], "30")


def test_the_line_of_a_seed_is_no_mean(capsys):
    # The mean over seeds has no interval, for no result has columns; each seed has its own.
    results = [make_result("own", "sts12", 0.5 + seed / 10, eval_seed=seed) for seed in (0, 1)]
    print_scores(results, Catalogue(), verbose=True)
    printed = " ".join(capsys.readouterr().out.split())
    assert "seed 1 60.00 50.00–70.00" in printed and "which intervals of means need" in printed
    assert "of means," not in printed


def test_the_mean_of_a_suite_has_a_deviation_and_a_baseline(stsbench, tmp_path, capsys):
    scores = {("a", 0): 0.5, ("b", 0): 0.7, ("a", 1): 0.6, ("b", 1): 0.9}
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "cards" / "tasks" / "suites.toml").write_text(
        '[both]\nname = "Both"\ntasks = ["a", "b"]\n'
    )
    results = [
        make_result(
            "own", task, score, eval_seed=seed, scores={"majority": {"a": 0.25, "b": 0.35}[task]}
        )
        for (task, seed), score in scores.items()
    ]
    print_scores(results, Catalogue([tmp_path / "cards"]), verbose=False)
    lines = capsys.readouterr().out.splitlines()
    # Seed by seed: 60 and 75, so 67.5 and their deviation 15 / sqrt(2).
    assert next(line.split() for line in lines if line.startswith("mean of Both"))[3:] == [
        "67.50±10.61",
        "30.00",
    ]
    why = "no per-item columns of own on a (and 3 more results), which intervals of means need; run: stsbench run --fresh"
    assert f"{why} own --tasks a,b --seeds 0,1" in lines


def test_scores_of_another_split_than_a_board_has_are_listed(stsbench, tmp_path):
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "cards" / "tasks" / "pets.toml").write_text(VALIDATED.format(task="pets", n=30))
    write_data(tmp_path, "pets", 30)
    write_data(tmp_path, "pets-validation", 4)
    both = (
        "--encoder",
        "own_encoders:Hashed,own_encoders:ready",
        "--tasks",
        "pets",
        "--data",
        str(tmp_path),
    )
    out = stsbench.fine("run", *both, "--cards", str(tmp_path / "cards"), "--split", "validation")
    assert [line.split()[:3] for line in out.splitlines() if "(validation)" in line] == [
        ["hashed", "pets", "(validation)"],
        ["ready-made", "pets", "(validation)"],
    ]


LISTS = ("--variants", "embeddings=float32,int8,binary", "--variants", "dimensions=32,16")
TEXTS = ("--set", "calibration=quickstart-probe.train")


def rows_of(table: str) -> dict[tuple[str, str], list[str]]:
    """The cells of each line that begins with a type, by type and dimensions."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()]
    return {
        (line[0], line[1]): line[2:] for line in lines if line[0] in ("float32", "int8", "binary")
    }


def test_a_table_of_variants_by_their_bytes(stsbench: Command):
    out = stsbench.fine("run", *HASHED, *QUICK, *LISTS, *TEXTS)
    rows = rows_of(out)
    assert [(key, cells[0]) for key, cells in rows.items()] == [
        (("float32", "32"), "128"),
        (("float32", "16"), "64"),
        (("int8", "32"), "32"),
        (("int8", "16"), "16"),
        (("binary", "32"), "4"),
        (("binary", "16"), "2"),
    ]
    scores = {
        (r.run["vector_bytes"], r.run["dimensions"]): r.score
        for r in read_states(Path("results")).results
    }
    assert {cells[1] for cells in rows.values()} == {
        f"{100 * score:.2f}" for score in scores.values()
    }
    # The largest is what the others differ from.
    assert len(rows["float32", "32"]) == 2
    difference, interval = rows["int8", "32"][2:]
    low, high = map(float, interval.split(" to "))
    assert low < float(difference) < high
    assert float(difference) == pytest.approx(100 * (scores[32, 32] - scores[128, 32]), abs=0.006)
    assert "hashed: quickstart-en, protocol simcse, similarity cosine" in out
    # Again from the results that are there.
    assert rows_of(stsbench.fine("run", *HASHED, *QUICK, *LISTS, *TEXTS)) == rows


def test_the_figure(stsbench: Command):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    out = stsbench.fine(
        "run", *HASHED, *QUICK, "--variants", "dimensions=32,16", "--plot", "sizes.svg"
    )
    assert "wrote sizes.svg" in out
    drawn = Path("sizes.svg").read_text(encoding="utf-8")
    assert "bytes of an embedding" in drawn
    assert "hashed, protocol simcse, similarity cosine" in drawn


def test_tasks_of_other_protocols_have_tables_of_their_own(stsbench: Command):
    out = stsbench.fine(
        "run",
        *HASHED,
        "--tasks",
        "quickstart-en,quickstart-probe",
        "--variants",
        "dimensions=32,16",
    )
    assert "hashed: quickstart-en, " in out
    assert re.search(r"hashed: quickstart-probe, protocol \w+\n", out)
    code, _, err = stsbench(
        "run",
        *HASHED,
        "--tasks",
        "quickstart-en,quickstart-probe",
        "--variants",
        "dimensions=32,16",
        "--plot",
        "a.svg",
    )
    assert code == 2
    assert "--plot draws one encoder under one protocol, here are 2 tables" in err


def test_variants_without_a_common_task_have_no_figure():
    results = [
        make_result(encoder="hashed+dimensions=32", task="quickstart-en"),
        make_result(encoder="hashed+dimensions=16", task="quickstart-es-en"),
    ]
    with pytest.raises(StsbenchError, match="no task is scored for all variants"):
        print_variants(results, Catalogue(), Path("sizes.svg"))


def test_without_the_texts_of_ranges_the_other_types_are_scored(
    stsbench: Command, monkeypatch: pytest.MonkeyPatch
):
    unplug(monkeypatch)
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    code, out, err = stsbench("run", *HASHED, *QUICK, *LISTS)
    assert code == 2
    assert [key[0] for key in rows_of(out)] == ["float32"] * 2 + ["binary"] * 2
    failures = [line for line in err.splitlines() if line.startswith("stsbench: ")]
    for failure, size in zip(failures, (32, 16), strict=True):
        name = f"hashed+dimensions={size}+embeddings=int8"
        assert failure.startswith(
            f"stsbench: {name}: int8 and uint8 take their ranges from 'stsb.train': no data for stsb (train): "
        )
        assert failure.endswith(
            "; give these data, --data DIR, or take others: for all encoders by --set "
            f"calibration=target, for one by its name, {name}+calibration=target"
        )
    assert stsbench.progress[0] == "4 encoders x 1 task, 0 of 4 cells known"
    assert stsbench.progress[-1].startswith("4 scored, 0 known, 2 failed in ")
    assert rows_of(stsbench.fine("run", *HASHED, *QUICK, *LISTS, "--set", "calibration=target"))


def test_what_is_missing_is_told_apart_for_tasks_and_encoders(
    stsbench: Command, monkeypatch: pytest.MonkeyPatch
):
    unplug(monkeypatch)
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    tasks = ("--tasks", "biosses,sts12,sts22-en,quickstart-en")
    code, _, err = stsbench("run", *HASHED, "-e", "minilm-l4-mlm", *tasks)
    first, encoder, others = err.splitlines()
    assert code == 2 and first.startswith("stsbench: biosses: no data for biosses (test): ")
    assert encoder.startswith(
        "stsbench: minilm-l4-mlm: the card of 'minilm-l4-mlm' names no checkpoint to fetch; "
    )
    assert others == (
        "stsbench: no data either: sts12, sts22-en; pass --data DIR (or set STSBENCH_DATA) with "
        "the files of sts12, which 'stsbench show TASK' lists"
    )


def test_texts_of_ranges_go_to_integers_alone():
    specs, params = expand_variants(
        ["a"], ["embeddings=float32,int8,binary"], {"calibration": "t", "pooling": "cls"}
    )
    assert specs == ["a", "a+calibration=t+embeddings=int8", "a+embeddings=binary"]
    assert params == {"pooling": "cls"}


SIZES = {"tr": 60, "va": 24, "te": 30}
SPLITS = {"train": 60, "validation": 24, "test": 30}
TENSES = ("PAST", "PRES")
CLASSES = ("entailment", "neutral", "contradiction")


def probing_lines() -> list[str]:
    """Lines of SentEval's probing files: tag, label, sentence; the tags in blocks."""
    return [
        f"{tag}\t{TENSES[i % 2]}\tThey {('walked', 'walk')[i % 2]} {'on ' * (i % 5)}."
        for tag, n in SIZES.items()
        for i in range(n)
    ]


def card_of(task: str, folder: Path, rows: dict[str, int]) -> None:
    """The project's card of a task, with the counts of a small made file in place of the real ones."""
    text = (card_folder("tasks") / f"{task}.toml").read_text(encoding="utf-8")
    for split, card in tomllib.loads(text)["splits"].items():
        text = text.replace(
            f"[splits.{split}]\nn = {card['n']}", f"[splits.{split}]\nn = {SPLITS[split]}"
        )
    for real, made in rows.items():
        text = text.replace(f"rows = {real}", f"rows = {made}")
    (folder / "tasks").mkdir(parents=True, exist_ok=True)
    (folder / "tasks" / f"my-{task}.toml").write_text(text, encoding="utf-8")


@pytest.fixture
def run(stsbench, tmp_path):
    """What runs a made task: files in ``data``, cards in ``cards``."""
    card_of("tense", tmp_path / "cards", {"120000": 114})
    card_of("snli", tmp_path / "cards", {"549367": 60, "9842": 24, "9824": 30})
    (tmp_path / "data" / "probing").mkdir(parents=True)
    (tmp_path / "data" / "downstream" / "SNLI").mkdir(parents=True)
    return ("run", *HASHED, "--data", "data", "--cards", "cards", "--tasks")


def write_snli(folder: Path) -> None:
    for name, (split, n) in {
        "train": ("train", 60),
        "validation": ("dev", 24),
        "test": ("test", 30),
    }.items():
        (folder / f"s1.{split}").write_text(
            "".join(f"A man walks {name} {i} .\n" for i in range(n))
        )
        (folder / f"s2.{split}").write_text(
            "".join(f"A man {('walks', 'runs', 'sits')[i % 3]} .\n" for i in range(n))
        )
        (folder / f"labels.{split}").write_text("".join(f"{CLASSES[i % 3]}\n" for i in range(n)))


def test_a_probing_file_is_scored(stsbench, run, tmp_path):
    (tmp_path / "data" / "probing" / "past_present.txt").write_text(
        "\n".join(probing_lines()) + "\n"
    )
    lines = stsbench.fine(*run, "my-tense", "--verbose").splitlines()
    (result,) = read_states(tmp_path / "results").results
    # The word that tells the tense is in every sentence.
    assert (result.n, result.score, result.scores["majority"]) == (30, 1.0, 0.5)
    assert list(result.per_subset) == ["PAST", "PRES"]
    assert any(line.split()[:2] == ["my-tense", "100.00"] for line in lines)
    assert any(line.split() == ["PAST", "100.00", "100.00", "100.00", "15"] for line in lines)


def test_snli_is_scored_as_its_card_says(stsbench, run, tmp_path):
    write_snli(tmp_path / "data" / "downstream" / "SNLI")
    stsbench.fine(*run, "my-snli")
    (result,) = read_states(tmp_path / "results").results
    assert (result.n, list(result.per_subset)) == (30, list(CLASSES))
    assert {key: result.protocol[key] for key in ("epoch_size", "max_epochs", "weight_decays")} == {
        "epoch_size": 1,
        "max_epochs": 15,
        "weight_decays": [1e-9],
    }
    assert result.scores["majority"] == pytest.approx(1 / 3)


def test_available_are_all_tasks_whose_data_are_here(stsbench, monkeypatch):
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    forecast = stsbench.json("run", "minilm", "--tasks", "available", "--dry-run")
    tasks = {cell["task"] for cell in forecast["encoders"][0]["missing"]}
    assert tasks == {name for name in Catalogue().paths("tasks") if Catalogue().task(name).package}


def test_a_forecast_of_many_tasks_is_a_page():
    rows = [["minilm", f"t{number}", "simcse", "", "0"] for number in range(30)]
    rows.append(["minilm", "t99", "simcse", "0", ""])
    assert merge_rows(rows) == [["minilm", "30 tasks", "simcse", "", "0"], rows[-1]]
    assert merge_rows(rows[:9]) == rows[:9]


def test_a_list_in_a_pipe_is_not_padded(stsbench, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = stsbench.fine("list", "suites").splitlines()
    assert lines[0].split("\t") == ["suite", "name", "tasks"]
    assert all(line.count("\t") == 2 and "  " not in line for line in lines)

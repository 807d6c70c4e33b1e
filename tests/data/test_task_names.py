"""Tasks by the names of MTEB, of the papers and of SentEval, in any case."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path

import pytest

import stsbench as package
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchNotice, UnknownName
from stsbench.data.mteb.facts import list_matched_tasks
from stsbench.data.task import expand_names
from stsbench.data.task_names import find_task_or_suite_ids
from tests.cli.commands import Command
from tests.cli.conftest import own, stsbench

__all__ = ["own", "stsbench"]
CATALOGUE = Catalogue()
PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("STSBenchmark", ["stsb-raw"]),
        ("stsbenchmark", ["stsb-raw"]),
        ("STS Benchmark", ["stsb-raw"]),
        ("STSBenchmark.v2", ["stsb-raw-v2"]),
        ("STS12", ["sts12"]),
        ("STS-B", ["stsb"]),
        ("BIOSSES", ["biosses"]),
        ("STSES", ["stses"]),
        ("STS22.v2", ["sts22"]),
        ("MTEB(eng, v2)", ["mteb-eng-v2-sts"]),
        ("SICKEntailment", ["sicke"]),
        ("Length", ["length"]),
        ("no such task", []),
        ("", []),
    ],
)
def test_a_name_in_any_case_stands_for_its_task(name, ids):
    assert find_task_or_suite_ids(name, CATALOGUE) == ids


@pytest.mark.parametrize(
    ("name", "ids", "of_mteb"),
    [
        ("SICK-R", ["sickr"], "sickr-mteb"),
        ("STS17", ["sts17"], "sts17-mteb"),
        ("STSB", ["stsb"], "cmteb-stsb"),
    ],
)
def test_a_name_that_mteb_gives_to_other_data_is_ours_and_says_so(name, ids, of_mteb):
    with pytest.warns(StsbenchNotice, match=f"^'{name}' is {ids[0]}; MTEB's {name} is {of_mteb}$"):
        assert find_task_or_suite_ids(name, CATALOGUE) == ids


def test_every_name_of_mteb_is_accepted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StsbenchNotice)
        for task in list_matched_tasks(CATALOGUE).values():
            assert expand_names(task.mteb_task, CATALOGUE), task.mteb_task


def test_the_page_gives_the_names_that_commands_take():
    rows = re.findall(r"^\| (?:MTEB|SentEval) `([^`]+)` \| `([^`]+)` \|", PAGE, re.M)
    assert len(rows) >= 12
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StsbenchNotice)
        for theirs, ours in rows:
            matched = list_matched_tasks(CATALOGUE).get(ours)
            is_name_of_mteb = matched is not None and matched.mteb_task == theirs
            assert is_name_of_mteb or find_task_or_suite_ids(theirs, CATALOGUE) in (
                [ours],
                ["stsb-raw"],
            ), theirs


def test_python_takes_them_too():
    assert package.load_task("STSBenchmark").name == "stsb-raw"
    with pytest.raises(UnknownName, match="did you mean 'STSBenchmark'"):
        package.load_task("STSBenchmrk")
    with pytest.raises(UnknownName, match="'STS22.v2'.*it is 18 tasks; choose one: sts22-en, "):
        package.load_task("STS22.v2")


def test_commands_take_them_and_say_what_is_unclear(stsbench: Command):
    assert stsbench("show", "STSBenchmark").out.startswith("stsb-raw: task\n")
    shown = stsbench("show", "SICK-R")
    assert shown.out.startswith("sickr: task\n")
    assert shown.err.count("'SICK-R' is sickr; MTEB's SICK-R is sickr-mteb") == 1
    fields = json.loads(stsbench("show", "sts17-en-en", "--json").out)
    assert fields["in MTEB"] == "STS17 en-en"
    dry = stsbench("run", "minilm", "--tasks", "Quickstart English", "--dry-run")
    assert "quickstart-en" in dry.out
    refused = stsbench("run", "STSBenchmark")
    assert refused.code == 2 and "is a task or a suite" in refused.err

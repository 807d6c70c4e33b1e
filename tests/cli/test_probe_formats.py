"""Probing and SNLI tasks from files in their exact formats, as a user runs them; wrong files are one line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from stsbench.core.catalogue import card_folder
from stsbench.results.folder import read_states
from tests.cli.commands import HASHED

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
        text = text.replace(f"[splits.{split}]\nn = {card['n']}", f"[splits.{split}]\nn = {SPLITS[split]}")
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
    for name, (split, n) in {"train": ("train", 60), "validation": ("dev", 24), "test": ("test", 30)}.items():
        (folder / f"s1.{split}").write_text("".join(f"A man walks {name} {i} .\n" for i in range(n)))
        (folder / f"s2.{split}").write_text("".join(f"A man {('walks', 'runs', 'sits')[i % 3]} .\n" for i in range(n)))
        (folder / f"labels.{split}").write_text("".join(f"{CLASSES[i % 3]}\n" for i in range(n)))


def test_a_probing_file_is_scored(stsbench, run, tmp_path):
    (tmp_path / "data" / "probing" / "past_present.txt").write_text("\n".join(probing_lines()) + "\n")
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

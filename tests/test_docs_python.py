"""The snippets of docs/python.md, run one after the other as they stand."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

import stsbench
from tests.cli.little_recipe import cards
from tests.encoders.made_checkpoints import save

__all__ = ["cards"]
TEXT = (Path(__file__).parents[1] / "docs" / "python.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.S | re.M)


@pytest.fixture
def place(
    tmp_path: Path, cards: Path, masked_lm: Path, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A folder with a user's cards and two checkpoints."""
    monkeypatch.chdir(tmp_path)
    cards.rename("my_cards")
    Path("FOLDER").symlink_to(masked_lm)
    save(Path("MODEL"), Transformer(str(bert)), Pooling(16, "mean"))
    return tmp_path


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
def test_every_snippet_runs(place, capsys):
    names: dict[str, Any] = {}
    drawn = find_spec("matplotlib") is not None
    for snippet in SNIPPETS:
        if ".plot()" in snippet and not drawn:
            continue
        exec(compile(snippet, "docs/python.md", "exec"), names)  # noqa: S102 - our own page
    said = capsys.readouterr().out
    assert names["embeddings"].shape == (2, 384)
    assert (names["whitened"].shape, names["z"].shape) == ((len(names["x"]), 16), names["x"].shape)
    assert "(384,) (384, 16)" in said
    assert re.search(r"^quickstart-es-en: 0\.\d{4}, 95% interval ", said, re.M)
    assert (names["of_class"].encoder, names["of_function"].encoder, names["named"].encoder) == (
        "letters",
        "lengths",
        "lengths-v2",
    )
    assert names["of_function"].score == names["named"].score
    assert names["of_pairs"].score == names["in_batches"].score == names["both_orders"].score
    assert "little+temperature=0.1 1 unknown" in said
    assert str(names["several"]) == "<Results, 4 results: 2 encoders (minilm, letters) on 2 tasks>"
    assert names["by_name"].encoders == ["short", "long"]
    assert [file.exists() for file in names["files"]] == [True] * 4
    assert names["best"].encoder == "minilm"
    assert "letters is better than minilm" not in said and "minilm is better than letters" in said
    assert list(names["mixed"].encoders) == ["lengths", "my_results/minilm"]
    assert "SimCSE" in said and len(names["numbers"]) > 10
    assert Path("scores.pdf").exists() == Path("differences.svg").exists() == drawn
    assert "unknown encoder 'minilmm'" in said


def test_the_page_names_every_public_name():
    table = re.findall(r"^\| (`.+?`) \|", TEXT.partition("\n## ")[0], re.M)
    named = {name for cell in table for name in re.findall(r"`(\w+)", cell)}
    assert named == set(stsbench.__all__) - {"__version__"}

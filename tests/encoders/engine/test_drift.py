"""Stored embeddings are set aside where versions or machine have changed and embeddings with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from stsbench.bench.embedder import open_store
from stsbench.core import provenance as machine
from stsbench.encoders.engine import drift
from stsbench.encoders.engine.drift import MAX_DRIFT, METADATA_FILE, PROBE_SENTENCES
from stsbench.encoders.engine.embed import Engine
from stsbench.results.folder import read_states
from tests.cli.commands import Command, write
from tests.encoders.fakes import Array, Plain

TEXTS = ["one text", "another", "a third"]


class Sampled(Plain):
    """As Plain, and every embedding moved by a share of its length."""

    def __init__(self, share: float = 0.0, dtype: str = "float32") -> None:
        super().__init__()
        self.share, self.dtype = share, dtype

    def encode(self, sentences: Sequence[str]) -> Array:
        return super().encode(sentences) * np.float32(1 + self.share)


def use(folder: Path, encoder: Plain) -> tuple[str, int]:
    """What is said when an encoder is used on a store, and how many of its texts it embeds."""
    shelf = open_store(folder, encoder)
    engine = Engine(encoder, shelf)
    engine(TEXTS)
    assert shelf.monitor is not None
    return shelf.monitor.message, engine.count_encoded(TEXTS)


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {**machine.versions(), "torch": "99.0"}
    monkeypatch.setattr(machine, "versions", lambda: found)


@pytest.mark.parametrize("change", ["versions", "processor", "code_hashes"])
def test_what_rounds_differently_is_kept_and_not_asked_again(tmp_path, monkeypatch, change):
    use(tmp_path, Sampled())
    place = drift if change == "code_hashes" else machine
    monkeypatch.setattr(
        place, change, lambda *_: {"torch": "99.0"} if change == "versions" else "another"
    )
    moved = Sampled(1e-6)
    assert use(tmp_path, moved) == ("", 0)
    assert (moved.calls, sorted(moved.sampled)) == ([], sorted(PROBE_SENTENCES))
    again = Sampled(1e-6)
    use(tmp_path, again)
    assert not again.calls and not again.sampled


@pytest.mark.usefixtures("upgrade")
@pytest.mark.parametrize(("dtype", "bound"), MAX_DRIFT.items())
def test_the_bound_is_that_of_the_type(tmp_path, monkeypatch, dtype, bound):
    with monkeypatch.context() as before:
        before.setattr(machine, "versions", lambda: {"torch": "98.0"})
        use(tmp_path, Sampled(dtype=dtype))
    assert use(tmp_path, Sampled(0.9 * bound, dtype)) == ("", 0)
    (record,) = tmp_path.glob(f"*/{METADATA_FILE}")
    record.write_text(record.read_text().replace('"torch":"99.0"', '"torch":"97.0"'))
    notice, encoded = use(tmp_path, Sampled(1.5 * bound, dtype))
    assert "archived" in notice and encoded == 3


@pytest.mark.usefixtures("upgrade")
def test_what_moved_is_set_aside_and_made_anew(tmp_path, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(machine, "versions", lambda: {"torch": "98.0"})
        use(tmp_path, Sampled())
        (stored,) = (path.read_bytes() for path in tmp_path.glob("*/*.npy"))
    notice, encoded = use(tmp_path, Sampled(0.5))
    assert notice.startswith(
        "stored embeddings of 'plain' are archived, and everything is embedded and scored again: samples moved by 0.5 of"
    )
    assert (encoded, "\n" in notice) == (3, False)
    # Nothing is deleted, and nothing of it served.
    (aside,) = tmp_path.glob("*.aside-*")
    assert [path.read_bytes() for path in aside.glob("*.npy")] == [stored]
    shelf = open_store(tmp_path, Sampled(0.5))
    served = Engine(Sampled(0.5), shelf)(TEXTS).take(np.arange(3))
    np.testing.assert_allclose(served, 1.5 * Plain().encode(TEXTS), rtol=1e-6)
    assert use(tmp_path, Sampled(0.5)) == ("", 0)


def test_after_a_kill_what_another_environment_embeds_is_not_taken_for_this_ones(
    tmp_path, monkeypatch
):
    def use_with(version: str, encoder: Plain) -> tuple[str, int]:
        with monkeypatch.context() as patch:
            patch.setattr(machine, "versions", lambda: {"torch": version})
            return use(tmp_path, encoder)

    use_with("98.0", Sampled())
    # A run that is killed before it writes a block leaves its samples alone.
    for block in tmp_path.glob("*/*.npy"):
        block.unlink()
    assert use_with("99.0", Sampled(0.5)) == ("", 3)
    notice, n_encoded = use_with("98.0", Sampled())
    assert "archived" in notice and n_encoded == 3


@pytest.mark.parametrize("damage", ["", "{}", "[" * 5000])
def test_without_samples_nothing_is_served(tmp_path, damage):
    use(tmp_path, Sampled())
    (record,) = tmp_path.glob(f"*/{METADATA_FILE}")
    record.write_text(damage)
    notice, encoded = use(tmp_path, Sampled())
    assert ("samples are lost" in notice, encoded) == (True, 3)


OWN = """
import numpy as np


class Own:
    name, fingerprint = "own", "constant"

    def encode(self, sentences):
        return np.array([[len(s) + 1, s.count(" "), FACTOR] for s in sentences], np.float32)
"""


@pytest.mark.parametrize(
    "package",
    ["has __init__", "has none", ""],
    ids=["in a package", "of a namespace", "in a folder"],
)
@pytest.mark.parametrize(
    "statement", ["from {0}helper import FACTOR", "import {1}helper as h; FACTOR = h.FACTOR"]
)
def test_a_module_that_a_class_imports_from_its_own_package_is_watched(
    tmp_path, monkeypatch, package, statement
):
    name = f"watched_{package.replace(' ', '')}_{len(statement)}".lower()
    folder = tmp_path / name if package else tmp_path
    helper = folder / ("helper.py" if package else f"{name}_helper.py")
    line = statement.format("." if package else f"{name}_", f"{name}." if package else f"{name}_")
    write(folder / "__init__.py", "") if package == "has __init__" else None
    write(folder / ("own.py" if package else f"{name}.py"), line + OWN)
    write(helper, "import json\nFACTOR = 1")
    monkeypatch.syspath_prepend(tmp_path)
    kind = __import__("importlib").import_module(f"{name}.own" if package else name).Own
    before = drift.read_environment(kind())["code"]
    assert drift.read_environment(kind())["code"] == before
    write(tmp_path / "other.py", "FACTOR = 2")
    assert drift.read_environment(kind())["code"] == before
    write(helper, "import json\nFACTOR = 60")
    assert drift.read_environment(kind())["code"] != before


def test_classes_without_a_file_have_no_code_to_watch():
    encoder, encoder.base = (type(name, (Plain,), {"__module__": "typed"})() for name in "ab")
    assert "code" not in drift.read_environment(encoder)


def test_a_class_that_changed_under_one_fingerprint_is_scored_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    stsbench = Command(capsys)
    scores: list[tuple[float, int, str]] = []
    # Each of another size: Python takes a module of the same second and size for unchanged.
    for module, factor in (("drifting_a", "1"), ("drifting_a", "1.0"), ("drifting_a", "60")):
        write(tmp_path / f"{module}.py", OWN.replace("FACTOR", factor) + "#" * 5 * len(scores))
        monkeypatch.delitem(__import__("sys").modules, module, raising=False)
        __import__("importlib").invalidate_caches()
        code, _, err = stsbench("run", "--encoder", f"{module}:Own", "--tasks", "quickstart-en")
        assert code == 0
        (result,) = read_states(tmp_path / "results").results
        scores.append((result.score, result.run["encoded"], result.run.get("set_aside", "")))
    assert scores[0] == scores[1] and scores[0][2] == ""
    assert scores[2][0] != scores[0][0] and scores[2][1] == scores[0][1]
    assert "samples moved" in scores[2][2]
    assert err == f"stsbench: {scores[2][2]}\n"

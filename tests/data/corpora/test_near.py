"""Near-duplicates: those that counting out all pairs finds, and no others."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys

import pytest

from stsbench import settings
from stsbench.data.corpora.load import load_corpus
from stsbench.data.corpora.near import HASHES, NearIndex, bands, shingles
from stsbench.data.corpora.overlap import text_key
from stsbench.data.task import load_task
from stsbench.errors import StsbenchError

WORDS = "a an the man woman dog cat child guitar piano river street plays runs sleeps rides cuts holds red small old".split()


def jaccard(one: bytes, other: bytes) -> float:
    first, second = shingles(one), shingles(other)
    return len(first & second) / len(first | second)


def test_pairs_are_those_of_a_slow_count():
    pytest.importorskip("rensa")
    rng = random.Random(1)
    ours = [" ".join(rng.choices(WORDS, k=9)) for _ in range(300)]
    theirs = [" ".join(word if rng.random() > 0.1 else rng.choice(WORDS) for word in one.split()) for one in ours]
    keys, others = ([text_key(one) for one in side] for side in (ours, theirs))
    slow = {key for key in keys if any(jaccard(key, other) >= 0.8 for other in others)}
    assert 50 < len(slow) < 290
    found = NearIndex(keys, 0.8).alike(others)
    assert found.keys() <= slow and len(found) >= 0.97 * len(slow)
    assert all(jaccard(key, other) >= 0.8 for key, other in found.items())


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_nearly_all_at_the_threshold(threshold):
    n = bands(threshold)
    rows = HASHES // n
    assert n * rows == HASHES
    assert 1 - (1 - threshold**rows) ** n >= 0.99


def test_shingles_are_of_letters_in_every_script():
    assert shingles(b"abcd") == {"abc", "bcd"}
    assert shingles("猫犬".encode()) == {"猫犬"}


def test_without_rensa_and_beyond_reason_it_is_refused(monkeypatch):
    with pytest.raises(StsbenchError, match="0.3 is no similarity between 0.5 and 1"):
        NearIndex([b"a"], 0.3)
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(StsbenchError, match=r"need rensa; run: pip install 'stsbench\[overlap\]'"):
        NearIndex([b"a"], 0.8)


@pytest.mark.slow
@pytest.mark.data
def test_a_million_sentences_take_minutes_and_less_than_two_gigabytes(tmp_path):
    pytest.importorskip("rensa")
    if settings.corpora_folder() is None:
        pytest.skip("STSBENCH_CORPORA names no folder of real training text")
    rng, texts = random.Random(1), load_task("sts15").load("test").texts()
    edited = [" ".join(word if rng.random() > 0.1 else "zebra" for word in text.split()) for text in texts]
    near = {a for a, b in zip(texts, edited, strict=True) if a != b and jaccard(text_key(a), text_key(b)) >= 0.8}
    lines = [*load_corpus("wiki_sentences", limit=1_000_000 - len(edited)).column("text"), *edited]
    (tmp_path / "made.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code = (
        "import resource, sys; from stsbench.cli import main; main(sys.argv[1:]);"
        "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime, used.ru_maxrss)"
    )
    asked = ["data", "overlap", "made.txt", "--near", "0.8", "--out", "held.csv"]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code, *asked], cwd=tmp_path, env=path, capture_output=True, text=True)
    seconds, kilobytes = map(float, done.stdout.splitlines()[-1].split())
    assert seconds < 300 and kilobytes < 2e6
    with (tmp_path / "held.csv").open(newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["task"] == "sts15"]
    held = {row[f"sentence{side}"] for row in rows for side in (1, 2) if row[("first", "second")[side - 1]]}
    assert len(near) > 500 and len(near & held) >= 0.97 * len(near)

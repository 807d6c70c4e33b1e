"""``stsbench data verify`` and ``stsbench data fetch``."""

from __future__ import annotations

import pytest

from tests.cli.commands import GOLD, make_own

VERDICT = "OK"


def test_verify_the_packaged_tasks(stsbench):
    rows = stsbench.json("data", "verify")
    assert [(row["task"], row["split"], row["rows"]) for row in rows] == [
        ("quickstart-en", "test", 300),
        ("quickstart-es-en", "test", 100),
        ("quickstart-probe", "train", 240),
        ("quickstart-probe", "test", 120),
    ]
    assert {row["verdict"] for row in rows} == {VERDICT}
    out = stsbench.fine("data", "verify")
    assert out.endswith("\n4 of 4 splits match their cards (counts, characters, means, sha256)\n")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({"gs_txt": GOLD.replace("2\n", "1\n")}, "gs.txt: differs from the file that its card names"),
        ({"gs_txt": GOLD.replace("\n", "\r\n")}, "its line ends are CRLF"),
    ],
)
def test_verify_a_broken_folder_names_the_fault_and_goes_on(stsbench, tmp_path, files, verdict):
    own = make_own(tmp_path, **files)
    code, out, err = stsbench("data", "verify", *own.options())
    assert (code, err) == (2, "")
    assert "5 of 6 splits match their cards" in out
    code, out, err = stsbench("data", "verify", "both", *own.options(), "--json")
    assert (code, err) == (2, "")
    assert verdict in out and out.count(VERDICT) == 1


def test_verify_tells_a_missing_file(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.data / "mine" / "gs.txt").unlink()
    code, out, _ = stsbench("data", "verify", *own.options(), "--json")
    assert code == 2
    assert f"{own.data}/mine/gs.txt: is missing" in out


def test_fetch_says_what_is_there(stsbench, tmp_path):
    own = make_own(tmp_path)
    assert stsbench.fine("data", "fetch", "both", "quickstart-en", *own.options()) == (
        "semeval: test 4 rows (local)\ntable: test 4 rows (local)\nquickstart-en: test 300 rows (package)\n"
    )


def test_fetch_goes_on_past_what_cannot_be_had(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.data / "mine" / "gs.txt").unlink()
    code, out, err = stsbench("data", "fetch", "both", "length", *own.options())
    assert code == 2
    assert out == "table: test 4 rows (local)\n"
    assert err.startswith("stsbench: no data for semeval (test): it is local only; pass --data DIR")
    assert err.endswith("(and 1 more not available)\n") and err.count("\n") == 1


def test_make_says_where_to_and_what_cannot_be_made(stsbench, tmp_path):
    assert "give --corpora DIR (or set STSBENCH_CORPORA)" in stsbench.refused("data", "make", "wiki1m_head")
    error = stsbench.refused("data", "make", "caption_pairs", "--corpora", tmp_path)
    assert error.startswith("corpus 'caption_pairs' is not made by a command: ")

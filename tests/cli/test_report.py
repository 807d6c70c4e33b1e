"""``stsbench report``: one page of what can be had, and a line for what cannot."""

from __future__ import annotations

import pytest

from tests.cli.commands import HASHED

QUICK = ("--tasks", "quickstart-en", "--suite", "quickstart", "--no-store")


def test_a_page_of_results_and_figures(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    stsbench.fine("run", *HASHED, "--tasks", "quickstart-en")
    code, out, err = stsbench("report", *HASHED, *QUICK, "--figures", "similarity,layers", "--title", "Mine")
    assert (code, out) == (0, "wrote report.html\n"), err
    text = (tmp_path / "report.html").read_text()
    assert "<title>Mine</title>" in text and 'id="figure-similarity"' in text and 'id="figure-layers"' not in text
    assert '<table id="t1"' in text, err
    assert (
        "layers: encoder 'hashed' has no layers" in err and "layers: encoder &#x27;hashed&#x27; has no layers" in text
    )


def test_where_there_is_nothing_no_page_is_written(stsbench, tmp_path):
    code, out, err = stsbench("report", *HASHED, *QUICK, "--figures", "layers")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("there is nothing to report of these encoders; the lines above say why")
    assert not (tmp_path / "report.html").exists()

from __future__ import annotations

import inspect
import io
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import stsbench
from stsbench.api import progress_display as progress
from stsbench.bench.progress import RunCallbacks
from stsbench.core.errors import SourceError, StsbenchError
from tests.api.notebook import page_of
from tests.encoders.fakes import Plain
from tests.own_tasks import evaluate, place

__all__ = ["place"]


class Page:
    """What a notebook shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, forms: dict[str, str], *, raw: bool, display_id: bool) -> Page:
        assert display_id
        self.update(forms, raw=raw)
        return self

    def update(self, forms: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(forms.get("text/html", "") + forms["text/plain"])


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Page:
    """As if this were the Python of a notebook."""
    page, shell, display = Page(), ModuleType("IPython"), ModuleType("IPython.display")
    vars(shell)["get_ipython"] = lambda: SimpleNamespace(kernel=object())
    vars(display)["display"] = page.display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "PICTURE_SECONDS", 0)
    return page


def test_what_failed_is_in_the_results(place):
    (place / "data" / "pets.tsv").unlink()
    told: list[str] = []
    listener = RunCallbacks(on_failure=lambda what, error: told.append(what))
    options: dict[str, Any] = {
        "data": place / "data",
        "catalogue": stsbench.Catalogue(place / "cards"),
    }
    encoder = Plain()
    with pytest.raises(SourceError, match="data for pets") as caught:
        stsbench.evaluate(encoder, "pets,plants", **options)
    # A traceback prints it below the message.
    assert caught.value.__notes__ == ["failed: pets"]
    assert encoder.calls == []
    results = stsbench.evaluate(
        encoder, "pets,plants", on_error="skip", callbacks=listener, **options
    )
    assert [result.task for result in results] == ["plants"]
    assert [failure.what for failure in results.failures] == told == ["pets"]
    assert str(results.failures[0]).startswith("pets: no data for pets (test)")
    assert "1 failed" in repr(results) and "failed: pets: no data" in page_of(results)


def test_its_arguments_are_those_of_the_stream():
    mine, streams = inspect.signature(stsbench.evaluate), inspect.signature(stsbench.iterate)
    assert (mine.parameters, mine.return_annotation) == (streams.parameters, "Results")
    with pytest.raises(StsbenchError, match="^evaluate: seed must "):
        stsbench.evaluate("minilm", "quickstart-en", seed=-1)
    with pytest.raises(TypeError, match=r"^evaluate\(\) .* 'tasks'"):
        stsbench.evaluate("minilm")  # type: ignore[call-arg]


def test_a_terminal_shows_how_it_goes(place, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    evaluate(place, Plain())
    assert "scoring plants" in screen.getvalue() or "embedding" in screen.getvalue()
    before = screen.getvalue()
    evaluate(place, Plain("other"), listener=RunCallbacks())
    assert screen.getvalue() == before


def test_a_notebook_shows_what_is_there_so_far(place, notebook):
    results = evaluate(place, Plain(), "pets,plants,stones")
    assert notebook.shown[0] == notebook.shown[-1] == ""
    scoring = [page for page in notebook.shown if "scoring stones" in page]
    assert len(scoring) == 1
    assert (
        f"{100 * results[0].score:.2f}" in scoring[0]
        and f"{100 * results[2].score:.2f}" not in scoring[0]
    )
    assert "embedding: 0 of " in notebook.shown[1] and "<table>" not in notebook.shown[1]

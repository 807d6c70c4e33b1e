"""BibTeX of what results rest on, from the facts in cards."""

from __future__ import annotations

import re

from stsbench.boards.exports.bibtex import cite_results
from stsbench.boards.published.rows import read_sources
from stsbench.core.catalogue import Catalogue
from stsbench.evaluators.registry import all_protocols
from tests.core.cards import TASK, write
from tests.made import make_result

CATALOGUE = Catalogue()


def entries_of(text: str) -> dict[str, str]:
    """The entries by key, each with the comment above it."""
    return {
        match[2]: match[0]
        for match in re.finditer(r"(%[^\n]*)\n@\w+\{([^,]+),\n(.*?)\n\}", text, re.S)
    }


def test_tasks_encoders_and_protocols_are_cited_once_with_the_tool():
    results = [make_result("simcse-bert-base", task, 0.5) for task in ("sts12", "stsb", "biosses")]
    entries = entries_of(cite_results(results, CATALOGUE))
    assert list(entries) == ["agirre2012", "cer2017", "sogancioglu2017", "gao2021", "stsbench"]
    assert entries["agirre2012"].startswith("% task sts12\n")
    assert "encoder simcse-bert-base" in entries["gao2021"].splitlines()[0] or (
        "protocol simcse" in entries["gao2021"].splitlines()[0]
    )
    assert "author = {Gao and Yao and Chen}" in entries["gao2021"]
    assert "eprint = {2104.08821}" in entries["gao2021"]
    assert "doi = {10.1093/bioinformatics/btx238}" in entries["sogancioglu2017"]
    assert "version = {" in entries["stsbench"]


def test_an_address_in_a_sentence_ends_before_its_punctuation(tmp_path):
    papers = ("(Doe et al. 2022, https://example.org/a)", "Roe 2023, https://example.org/b.")
    for task, paper in zip(("pets", "plants"), papers, strict=True):
        card = TASK.replace('paper = "none"', f'paper = "{paper}"')
        write(tmp_path / "tasks" / f"{task}.toml", card)
    results = [make_result("mine", task, 0.5) for task in ("pets", "plants")]
    entries = entries_of(cite_results(results, Catalogue([tmp_path])))
    assert list(entries)[:2] == ["doe2022", "roe2023"]
    assert "author = {Doe and others}" in entries["doe2022"]
    assert "url = {https://example.org/a}" in entries["doe2022"]


def test_every_task_has_an_entry_with_braces_that_fit_and_a_key_of_its_own():
    results = [make_result("minilm", task, 0.5) for task in CATALOGUE.paths("tasks")]
    text = cite_results(results, CATALOGUE)
    entries = entries_of(text)
    assert len(entries) == text.count("\n@") > 50
    for entry in entries.values():
        fields = entry.partition("\n")[2]
        assert fields.count("{") == fields.count("}")
    assert "its card gives no authors" in entries["all-minilm-l6-v2"]
    assert "key = {all-minilm-l6-v2}" in entries["all-minilm-l6-v2"]
    # Styles without addresses print the title at least.
    title = "{{huggingface.co/sentence-transformers/all-MiniLM-L6-v2}}"
    assert f"title = {title}" in entries["all-minilm-l6-v2"]
    assert "title = {{Learning Question Classifiers}}" in text
    # Each entry prints something in any style.
    assert all("title = {" in entry or "author = {" in entry for entry in entries.values())


def test_a_work_has_one_entry_in_our_lists():
    sources = read_sources()
    urls = [work.url for work in sources.works.values()]
    assert len(urls) == len(set(urls))
    assert not set(urls) & {paper.url for paper in sources.papers.values()}
    cited = "".join(CATALOGUE.encoder(name).paper for name in CATALOGUE.paths("baselines"))
    cited += "".join(CATALOGUE.task(name).paper for name in CATALOGUE.paths("tasks"))
    assert all(work.url in cited for work in sources.works.values())


def test_protocols_that_are_cited_exist():
    sources = read_sources()
    assert set(sources.protocols) <= set(all_protocols())
    assert set(sources.protocols.values()) <= set(sources.papers)

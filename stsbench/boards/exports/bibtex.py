"""BibTeX of all that results rest on: tasks, encoders, protocols and this tool.

Entries are made of facts in cards and in our list of papers. A card that gives an address alone
makes an entry without authors, whose title is the address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stsbench.boards.published.rows import read_sources
from stsbench.boards.tables.traits import ADDRESS
from stsbench.core import provenance
from stsbench.core.catalogue import Catalogue
from stsbench.results.groups import group_by_encoder
from stsbench.results.record import Result

AUTHORS_AND_YEAR = re.compile(
    r"(?P<authors>[^,].*?) (?P<year>(?:19|20)\d\d)(?:, (?P<title>.+?))?,?\s*$"
)
LATEX_SPECIAL = re.compile(r"([&%$#_{}])")


class Work(NamedTuple):
    """A work that is cited; a field is empty if no card gives it."""

    url: str
    authors: str = ""
    """As BibTeX has them: names with ``and`` between, ``others`` for the rest."""
    year: str = ""
    title: str = ""


def cite_results(results: Sequence[Result], catalogue: Catalogue) -> str:
    """Return a BibTeX file of the works to cite for results, and an entry of stsbench itself.

    The works are the sources of the tasks, encoders and protocols (ways of scoring) of the results.
    A comment above each entry says which of these it is the source of. Of a work whose authors and
    title are not known, the entry has the address as title. A first comment names what has no known
    source.

    Args:
        results: The results, at least one.
        catalogue: The cards of tasks and encoders, which name their sources.
    """
    works = _read_works(catalogue)
    unsourced = find_unsourced(results, catalogue)
    # Address of a work -> what it is the source of, such as "task stsb".
    uses_by_url: dict[str, list[str]] = {}
    for use, text in _iterate_sources(results, catalogue):
        # ADDRESS matches addresses on the web.
        for address in ADDRESS.findall(text or ""):
            uses_by_url.setdefault(_strip_address(address), []).append(use)
    entries = [f"% no source known: {', '.join(unsourced)}"] if unsourced else []
    keys: set[str] = set()
    for url, uses in uses_by_url.items():
        work = works.get(url, Work(url))
        # Such as ``cer2017``, with another letter or the address if the key is taken.
        key = _make_citation_key(work, keys)
        keys.add(key)
        comment = ", ".join(dict.fromkeys(uses))
        if not work.authors:
            comment += "; its card gives no authors or title"
        entries.append(_format_entry(key, _bibtex_fields(work), comment))
    # The git commit that stsbench runs from; None if it is an installed package.
    commit, _ = provenance.commit()
    stsbench_fields = {
        "title": "{stsbench}",
        "version": provenance.version_of("stsbench"),
        "note": f"commit {commit[:12]}" if commit else "",
    }
    entries.append(_format_entry("stsbench", stsbench_fields, comment="the scores"))
    return "\n\n".join(entries) + "\n"


def find_unsourced(results: Sequence[Result], catalogue: Catalogue) -> list[str]:
    """Return the tasks, encoders and protocols of results whose source no card or list gives.

    For example ``["task quickstart-en", "encoder mine (no card)"]``.
    """
    sources = _iterate_sources(results, catalogue)
    return [
        use if text is not None else f"{use} (no card)"
        for use, text in sources
        if not ADDRESS.search(text or "")
    ]


def _iterate_sources(
    results: Sequence[Result], catalogue: Catalogue
) -> Iterator[tuple[str, str | None]]:
    """Yield each task, encoder and protocol of results with the text that names its source.

    For example ``("task stsb", "Cer et al. 2017, https://aclanthology.org/S17-2001")``; the text of
    a protocol is an address alone, or empty if our file of sources does not have it. A task or
    encoder without a card has None.

    Args:
        results: The results.
        catalogue: The cards of tasks and encoders.
    """
    task_ids = catalogue.paths("tasks")
    for task in dict.fromkeys(result.task for result in results):
        yield f"task {task}", catalogue.task(task).paper if task in task_ids else None
    # A group is an encoder; its card is None if the results are of no card.
    for group in group_by_encoder(results, catalogue):
        yield f"encoder {group.name}", group.card.paper if group.card else None
    sources = read_sources()
    for protocol in dict.fromkeys(str(result.protocol["name"]) for result in results):
        paper = sources.protocols.get(protocol)
        yield f"protocol {protocol}", sources.papers[paper].url if paper else ""


def _read_works(catalogue: Catalogue) -> Mapping[str, Work]:
    """Return the authors, year and title of works by their addresses.

    They are read from our lists of papers and other works, and then from the texts by which cards
    name papers, such as ``Cer et al. 2017, https://…``, one or more with semicolons between. The
    first counts. Authors are as BibTeX has them, ``Cer and others``.
    """
    sources = read_sources()
    works = {
        paper.url: Work(paper.url, _join_authors(paper.authors), str(paper.year), paper.title)
        for paper in (*sources.papers.values(), *sources.works.values())
    }
    for text in _iterate_card_papers(catalogue):
        for paper_text in text.split(";"):
            address = ADDRESS.search(paper_text)
            if address is None:
                continue
            url = _strip_address(address[0])
            # Authors, year and perhaps a title are before the address; without authors and year
            # there is no match.
            match = AUTHORS_AND_YEAR.match(paper_text[: address.start()].strip().lstrip("("))
            if match and url not in works:
                authors = _join_authors(match["authors"])
                works[url] = Work(url, authors, match["year"], match["title"] or "")
    return works


def _strip_address(address: str) -> str:
    """Return an address without the punctuation of the text that it stands in."""
    return address.rstrip(";.)")


def _iterate_card_papers(catalogue: Catalogue) -> Iterator[str]:
    yield from (catalogue.task(name).paper for name in catalogue.paths("tasks"))
    yield from (catalogue.recipe(name).paper for name in catalogue.paths("trainers"))
    yield from (catalogue.encoder(name).paper for name in catalogue.paths("baselines"))


def _join_authors(text: str) -> str:
    """Return names as BibTeX has them, of ``Gao, Yao, Chen`` or ``Yan et al.``."""
    return text.replace(" et al.", " and others").replace(", ", " and ")


def _make_citation_key(work: Work, taken_keys: Iterable[str]) -> str:
    """Return a key that is not taken: ``cer2017``, or one of the address."""
    surname = re.sub(r"[^a-z]", "", work.authors.partition(" and ")[0].casefold())
    address_part = re.sub(r"[^A-Za-z0-9]+", "-", work.url.rstrip("/").rpartition("/")[2])
    stem = f"{surname}{work.year}" if surname else address_part.strip("-").lower()
    suffixes = ("", *"bcdefghijklmnopqrstuvwxyz", address_part)
    return next(f"{stem}{suffix}" for suffix in suffixes if f"{stem}{suffix}" not in taken_keys)


def _bibtex_fields(work: Work) -> dict[str, str]:
    """Return the fields of a work's BibTeX entry, by name; those that are unknown are empty."""
    # Styles that print no address would print nothing of a work that has nothing else.
    title = work.title or ("" if work.authors else work.url.partition("://")[2])
    fields = {
        # With backslashes before the characters that LaTeX reserves.
        "author": _escape(work.authors),
        # The braces around it make BibTeX keep capital letters.
        "title": f"{{{_escape(title)}}}" if title else "",
        "year": work.year,
        "url": work.url,
    }
    if "doi.org/" in work.url:
        fields["doi"] = work.url.partition("doi.org/")[2]
    if "arxiv.org/abs/" in work.url:
        fields |= {"eprint": work.url.partition("/abs/")[2], "archiveprefix": "arXiv"}
    return fields


def _escape(text: str) -> str:
    return LATEX_SPECIAL.sub(r"\\\1", text)


def _format_entry(key: str, fields: Mapping[str, str], comment: str) -> str:
    """Return an entry with its fields that are not empty, below a comment."""
    # BibTeX sorts an entry without authors by its field "key".
    sort_field = {} if fields.get("author") else {"key": key}
    all_fields = {**fields, **sort_field}
    lines = [f"  {name} = {{{value}}}" for name, value in all_fields.items() if value]
    return f"% {comment}\n@misc{{{key},\n" + ",\n".join(lines) + "\n}"

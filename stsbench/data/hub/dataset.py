"""A whole dataset of the Hub: every split and column at one commit, and what its page says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.cards.facts import HubSource
from stsbench.data.hub.failures import explained
from stsbench.data.hub.files import address_of
from stsbench.data.hub.listing import look_up
from stsbench.data.hub.pairs import Unreadable, fetch_folder, opened, read_splits
from stsbench.data.hub.quiet import quiet_hub
from stsbench.errors import SourceError


class HubDataset(NamedTuple):
    """What a dataset holds: columns by split, as the Hub calls both; and what its README names."""

    commit: str
    tables: Mapping[str, Mapping[str, Sequence[Any]]]
    languages: Sequence[str]
    license: str


def read_dataset(source: HubSource) -> HubDataset:
    """Fetch and read all splits of a dataset; of a source, its repository, revision and configuration count.

    Files are JSON, CSV or parquet; a script is never run.

    Raises:
        SourceError: it cannot be had, or cannot be read.
        DataError: it has several configurations and none is named, or is not laid out as a dataset.
    """
    address = address_of(source.repo, revision=source.revision, kind="dataset")
    listing = look_up(address, without="")
    folder = fetch_folder(address, source.config, listing, without="", progress=False)
    try:
        with explained(address, ""), opened(folder, source.config, str(address)) as builder:
            names = [str(name) for name in builder.config.data_files or {}]
            tables = {name: read_splits(builder, [name], f"{address}, split '{name}'").to_dict() for name in names}
    except Unreadable as error:
        raise SourceError(f"{error}; it is broken on the Hub itself, see {address.page}") from error
    said: dict[str, Any] = {}
    if "README.md" in listing.files:
        from huggingface_hub import DatasetCard

        with quiet_hub():
            said = DatasetCard.load(folder / "README.md").data.to_dict()
    return HubDataset(listing.commit, tables, _texts(said.get("language")), ", ".join(_texts(said.get("license"))))


def _texts(value: object) -> list[str]:
    """A text or a list of texts, as a README may have either."""
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str) and one]

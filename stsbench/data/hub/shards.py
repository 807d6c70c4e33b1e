"""The parquet files of a dataset's training split, on the Hub or in a folder, in order and one at a time.

A dataset may be larger than the disk: what was fetched for one use leaves the cache after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from stsbench.data.hub.failures import Address
from stsbench.data.hub.files import address_of, fetch_listed, forget
from stsbench.data.hub.listing import Listing, look_up
from stsbench.data.verify import file_digest
from stsbench.errors import SourceError

SPLITS = frozenset({"train", "validation", "valid", "dev", "test"})
"""What of a file's name tells its split."""


class Shards(NamedTuple):
    """The files, and where they are had."""

    where: str
    """The dataset, for messages."""
    digests: Mapping[str, str]
    """A hash of each file's bytes by its name, in the order of the dataset's rows."""
    folder: Path | None = None
    address: Address | None = None
    listing: Listing | None = None

    @contextmanager
    def open(self, name: str) -> Iterator[Path]:
        """Give a file's place, whole and checked; in the Hub's cache it stays only if it was there before.

        Raises:
            SourceError: it cannot be had.
        """
        if self.address is None or self.listing is None:
            yield Path(self.folder or "", name)
            return
        # Another commit's copy is the same file.
        kept = _blob(self.address, self.digests[name]).exists()
        path = fetch_listed(self.address.at(name), self.listing, without="", progress=False)
        try:
            yield path
        finally:
            if not kept:
                forget(path)


def _blob(address: Address, digest: str) -> Path:
    """Where the Hub's cache keeps a file's bytes; the folder of all where nobody tells their hash."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = repo_folder_name(repo_id=address.repo, repo_type=address.kind)
    return Path(constants.HF_HUB_CACHE, folder, "blobs", digest)


def find_shards(dataset: str, *, revision: str) -> Shards:
    """Find the files of a dataset: a folder, or a name on the Hub.

    Raises:
        SourceError: there is no such dataset, or it has no parquet file for training.
    """
    if Path(dataset).is_dir():
        folder = Path(dataset)
        found = _of_training([path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet")])
        shards = Shards(f"dataset '{dataset}'", {name: file_digest(folder / name) for name in found}, folder)
    else:
        address = address_of(dataset, revision=revision, kind="dataset")
        listing = look_up(address, without="")
        listing.check_whole(address)
        digests = {name: listing.files[name] for name in _of_training(listing.files)}
        shards = Shards(str(address), digests, address=address, listing=listing)
    if not shards.digests:
        raise SourceError(f"{shards.where}: has no parquet file for training; nothing else is read here")
    return shards


def _of_training(names: Iterable[str]) -> list[str]:
    """The parquet files for training, as their names tell; all where no name tells a split."""
    parts = {name: set(re.split(r"[/._-]", name)) for name in sorted(names) if name.endswith(".parquet")}
    split = [name for name, words in parts.items() if words & SPLITS]
    return [name for name in parts if "train" in parts[name]] if split else list(parts)

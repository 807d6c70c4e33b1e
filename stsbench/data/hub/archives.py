"""Evaluation data that the Hub holds as one tar file: fetched, checked, unpacked once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath

from stsbench import settings
from stsbench.cards.facts import HubSource
from stsbench.data.hub.failures import Address, explained
from stsbench.data.hub.files import HubFolder, address_of, fetch_file
from stsbench.data.hub.listing import look_up
from stsbench.data.hub.unpacking import unpack_archive
from stsbench.files.whole import scratch_beside


def fetch_archive(source: HubSource, *, without: str | None = None, progress: bool = False) -> HubFolder:
    """Fetch a dataset's archive and return the folder it is unpacked in, and the archive's commit.

    The folder is named after the archive's hash and appears only when it is whole; once it
    is there, neither the archive nor, for a pinned revision, the network is needed again.

    Raises:
        SourceError: the archive cannot be had, is damaged, or holds what no data archive needs.
    """
    address = address_of(source.repo, revision=source.revision, kind="dataset").at(source.archive)
    listing = look_up(address.at(""), without=without)
    listed = listing.files.get(source.archive, "")
    folder = _folder(source.archive, listed)
    if listed and folder.is_dir():
        return HubFolder(folder, listing.commit)
    fetched = fetch_file(
        source.repo, source.archive, revision=source.revision, kind="dataset", without=without, progress=progress
    )
    folder = _folder(source.archive, listed or fetched.sha256)
    if not folder.is_dir():
        with explained(address, without):
            _unpack_whole(fetched.path, folder, address)
    return HubFolder(folder, fetched.commit)


def _folder(archive: str, digest: str) -> Path:
    name = PurePosixPath(archive).name.split(".")[0]
    return settings.cache_folder() / "archives" / f"{name}-{digest[:12]}"


def _unpack_whole(archive: Path, folder: Path, address: Address) -> None:
    """Unpack beside the folder's place, then move there in one step: a killed run leaves no half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = scratch_beside(folder)
    draft.mkdir()
    try:
        unpack_archive(archive, draft, where=str(address))
        _sync(draft)
        try:
            draft.replace(folder)
        except OSError:
            # Another run was faster: its folder is as good, for the name holds the hash.
            if not folder.is_dir():
                raise
        _sync_folder(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Force everything below a folder to the disk, before its name says that it is whole."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        else:
            _sync_folder(path)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

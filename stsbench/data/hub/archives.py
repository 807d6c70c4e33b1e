"""Evaluation data that the Hub holds as one tar file: fetched, checked, unpacked once and within bounds.

A plain tar file alone: what it holds is then no more than its bytes. Links in it are left out.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import Self

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import SourceError
from stsbench.core.files import MOST_BYTES, file_digest, scratch_beside
from stsbench.data.hub.failures import detail, explained
from stsbench.data.hub.repository import HubFolder, open_repository, path_within

MOST_MEMBERS = 20_000
MOST_HEADER = 64 << 10
"""The bytes of a record that may stand before a member: its long name and others."""


def fetch_archive(source: HubSource) -> HubFolder:
    """Fetch a dataset's archive and return the folder it is unpacked in, and the archive's commit.

    The folder is named after the archive's hash and appears only when it is whole; once it
    is there, neither the archive nor, for a pinned revision, the network is needed again.

    Raises:
        SourceError: the archive cannot be had, is damaged, or holds what no data archive needs.
    """
    repository = open_repository(source.repo, revision=source.revision, kind="dataset", without="")
    address = repository.address.at(source.archive)
    digest = repository.listing.files.get(source.archive) or file_digest(repository.fetch(source.archive))
    name = f"{PurePosixPath(source.archive).name.split('.')[0]}-{digest[:12]}"
    folder = settings.cache_folder() / "archives" / name
    if not folder.is_dir():
        archive = repository.fetch(source.archive)
        with explained(address, ""):
            _unpack_whole(archive, folder, str(address))
    return HubFolder(folder, repository.commit)


def _unpack_whole(archive: Path, folder: Path, where: str) -> None:
    """Unpack beside the folder's place, then move there in one step: a killed run leaves no half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = scratch_beside(folder)
    draft.mkdir()
    try:
        unpack_archive(archive, draft, where=where)
        # On the disk before its name says that it is whole.
        for path in filter(Path.is_file, draft.rglob("*")):
            with path.open("rb") as stream:
                os.fsync(stream.fileno())
        try:
            draft.replace(folder)
        except OSError:
            # Another run was faster: its folder is as good, for the name holds the hash.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


HEADERS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip


class Refused(Exception):
    """An archive holds what no data archive needs."""


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """Refuse a record before memory for it is asked for."""
        found = super().frombuf(buf, encoding, errors)
        if found.size > MOST_HEADER and found.type in HEADERS:
            raise Refused(f"a header in it asks for more than {MOST_HEADER >> 10} KiB")
        return found


# Of headers that hold no numbers where numbers belong, or one another, tarfile makes errors of many kinds.
_DAMAGED = (tarfile.TarError, EOFError, ValueError, LookupError, ArithmeticError, RecursionError,
            FileExistsError, IsADirectoryError, NotADirectoryError)  # fmt: skip


def unpack_archive(archive: Path, into: Path, *, where: str) -> None:
    """Unpack a plain tar file; raises SourceError."""
    count = size = 0
    try:
        with tarfile.open(archive, "r:", tarinfo=_Member) as tar:
            while (member := tar.next()) is not None:
                # None is kept: headers' records would add up.
                tar.members.clear()  # type: ignore[attr-defined]
                count, size = count + 1, size + member.size
                _check(member, count, size)
                if not (member.issym() or member.islnk()):
                    tar.extract(member, into, set_attrs=False, filter="data")
    except Refused as error:
        raise SourceError(f"{where}: refused to unpack: {error}; use another archive") from error
    except _DAMAGED as error:
        why = f"damaged archive, or no plain tar file: {detail(error)}"
        raise SourceError(f"{where}: {why}; remove {archive} and run again") from error


def _check(member: tarfile.TarInfo, count: int, size: int) -> None:
    name = ascii(member.name)[:80]
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()) or member.issparse():
        raise Refused(f"{name} is a device or a sparse file")
    if path_within(member.name) is None:
        raise Refused(f"{name} leads outside the folder, or is not a file name")
    if member.size < 0 or count > MOST_MEMBERS or size > MOST_BYTES:
        raise Refused(f"it holds more than {MOST_MEMBERS} files or {MOST_BYTES >> 30} GiB")

"""Evaluation data that the Hub holds as one tar file: fetched, checked, unpacked once and within bounds.

Disk, memory and time are those of what an archive holds, whatever it claims to hold.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import SourceError
from stsbench.core.files import MOST_BYTES, Readable, bounded, check_parquet, chunks, scratch_beside
from stsbench.data.hub.failures import detail, explained
from stsbench.data.hub.repository import HubFolder, open_repository, path_within
from stsbench.data.verify import file_digest

MOST_MEMBERS = 20_000
MOST_HEADER = 64 << 10
"""The bytes that may stand before a member's own, its long name and other records among them."""
MOST_LZMA_MEMORY = 256 << 20
_CHUNK = 16 << 10


def fetch_archive(source: HubSource, *, without: str | None = None) -> HubFolder:
    """Fetch a dataset's archive and return the folder it is unpacked in, and the archive's commit.

    The folder is named after the archive's hash and appears only when it is whole; once it
    is there, neither the archive nor, for a pinned revision, the network is needed again.

    Raises:
        SourceError: the archive cannot be had, is damaged, or holds what no data archive needs.
    """
    repository = open_repository(source.repo, revision=source.revision, kind="dataset", without=without)
    address = repository.address.at(source.archive)
    archive, digest = None, repository.listing.files.get(source.archive, "")
    if not digest:
        archive = repository.fetch(source.archive)
        digest = file_digest(archive)
    name = f"{PurePosixPath(source.archive).name.split('.')[0]}-{digest[:12]}"
    folder = settings.cache_folder() / "archives" / name
    if not folder.is_dir():
        archive = archive or repository.fetch(source.archive)
        with explained(address, without):
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
        for path in draft.rglob("*"):
            if path.is_file():
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


class Refused(Exception):
    """An archive holds what no data archive needs."""


_DAMAGED = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    # One name for a file and a folder.
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    # What tarfile makes of headers that hold no numbers where numbers belong, or one another.
    ValueError,
    LookupError,
    ArithmeticError,
    RecursionError,
)


def unpack_archive(archive: Path, into: Path, *, where: str) -> None:
    """Unpack a tar file, plain or compressed by gzip, bzip2 or xz; a link inside it becomes a copy of what it leads to.

    A link that leads to nothing in the archive is left out.

    Raises:
        SourceError: a member or link outside the folder, a device, too much of it, or a damaged file.
    """
    try:
        with archive.open("rb") as raw:
            _unpack(_Stream(_decompressed(raw)), into)
    except Refused as error:
        raise SourceError(f"{where}: refused to unpack: {error}; use another archive") from error
    except (*_DAMAGED, OSError) as error:
        # Of bytes that are no gzip or bzip2 the modules raise an OSError without a number.
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, _DAMAGED):
            raise
        most = f" (or takes more than {MOST_LZMA_MEMORY >> 20} MiB to decompress)"
        more = most if isinstance(error, lzma.LZMAError) else ""
        raise SourceError(f"{where}: damaged archive: {detail(error)}; remove {archive} and run again{more}") from error


def check_unpacked_size(path: Path, *, where: str) -> None:
    """Refuse a file that compression made small and that holds more than any data set does.

    What is damaged passes: its reader says what is wrong with it.

    Raises:
        SourceError: it holds far more than its own size.
    """
    import pyarrow as pa

    with path.open("rb") as raw, suppress(EOFError, zlib.error, lzma.LZMAError, OSError, pa.ArrowException):
        if raw.read(4) == b"PAR1":
            check_parquet(path, path, where=where)
        raw.seek(0)
        if (stream := _decompressed(raw)) is not raw:
            for _ in bounded(chunks(stream), path, where=where):
                pass


class _Stream:
    """The bytes of an archive in their order; ``left`` of them may be read before the next grant."""

    def __init__(self, source: Readable) -> None:
        self.source, self.at, self.left = source, 0, 0

    def read(self, size: int = -1) -> bytes:
        """Read; what a header claims to need is refused before memory is taken for it."""
        if not 0 <= size <= self.left:
            raise Refused(f"a header in it asks for more than {MOST_HEADER >> 10} KiB")
        data = self.source.read(size)
        self.at += len(data)
        self.left -= size
        return data

    def seek(self, place: int) -> int:
        """Skip forward; nothing in a tar file lies behind."""
        if place < self.at:
            raise tarfile.ReadError("a member of negative size")
        while self.at < place and (data := self.source.read(min(_CHUNK, place - self.at))):
            self.at += len(data)
        return self.at

    def tell(self) -> int:
        return self.at

    def close(self) -> None:
        """Leave the file to its owner."""


class _Xz(io.RawIOBase):
    """What xz compressed, in bounded memory: a file may ask for a dictionary of gigabytes."""

    def __init__(self, raw: IO[bytes]) -> None:
        self.raw, self.decompressor = raw, lzma.LZMADecompressor(memlimit=MOST_LZMA_MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self.decompressor.eof:
            compressed = self.raw.read(_CHUNK) if self.decompressor.needs_input else b""
            if self.decompressor.needs_input and not compressed:
                raise EOFError("it ends too early")
            if data := self.decompressor.decompress(compressed, max_length=len(buffer)):
                buffer[: len(data)] = data
                return len(data)
        return 0


_COMPRESSED: tuple[tuple[bytes, Callable[[IO[bytes]], Readable]], ...] = (
    (b"\x1f\x8b", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\x00", lambda raw: io.BufferedReader(_Xz(raw))),
)


def _decompressed(raw: IO[bytes]) -> Readable:
    head = raw.read(6)
    raw.seek(0)
    return next((opened(raw) for magic, opened in _COMPRESSED if head.startswith(magic)), raw)


def _unpack(stream: _Stream, into: Path) -> None:
    count, size, links = 0, 0, {}
    for tar, member in _members(stream):
        count, size = count + 1, size + member.size
        _check(member, count, size)
        if member.issym() or member.islnk():
            links[posixpath.normpath(member.name)] = _target(member)
        else:
            stream.left = member.size
            tar.extract(member, into, set_attrs=False, filter="data")
    # Copies take the place of links, those last that lead to other links.
    while ready := [place for place, target in links.items() if (into / target).exists()]:
        for place in ready:
            source = into / links.pop(place)
            if (into / place).is_relative_to(source):
                raise Refused(f"{ascii(place)[:80]} is a link to a folder that holds it")
            behind = [source, *source.rglob("*")]
            count, size = count + len(behind), size + sum(path.stat().st_size for path in behind if path.is_file())
            if count > MOST_MEMBERS or size > MOST_BYTES:
                most = f"{MOST_MEMBERS} files or {MOST_BYTES >> 30} GiB"
                raise Refused(f"with what its links lead to it holds more than {most}")
            (into / place).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, into / place, copy_function=shutil.copyfile, dirs_exist_ok=True)
            else:
                shutil.copyfile(source, into / place)


def _members(stream: _Stream) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """The members one after the other, none kept: a header's records would add up."""
    stream.left = MOST_HEADER
    with tarfile.TarFile(fileobj=stream, copybufsize=_CHUNK) as tar:  # type: ignore[arg-type]
        while (member := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]
            tar.pax_headers = {}
            yield tar, member
            stream.left = MOST_HEADER


def _check(member: tarfile.TarInfo, count: int, size: int) -> None:
    name = ascii(member.name)[:80]
    if not (member.isfile() or member.isdir() or member.issym() or member.islnk()) or member.issparse():
        raise Refused(f"{name} is a device or a sparse file")
    if path_within(member.name) is None:
        raise Refused(f"{name} leads outside the folder, or is not a file name")
    if member.size < 0:
        raise Refused(f"{name} has a negative size")
    if count > MOST_MEMBERS:
        raise Refused(f"it holds more than {MOST_MEMBERS} files")
    if size > MOST_BYTES:
        raise Refused(f"it unpacks to more than {MOST_BYTES >> 30} GiB")


def _target(link: tarfile.TarInfo) -> str:
    """The path in the archive that a link leads to: a symbolic one starts at its folder, a hard one at the top."""
    start = posixpath.dirname(link.name) if link.issym() else ""
    target = posixpath.normpath(posixpath.join(start, link.linkname))
    if path_within(target) is None:
        raise Refused(f"{ascii(link.name)[:80]} is a link that leads outside the archive")
    return target

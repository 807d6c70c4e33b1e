"""Archives from a Hub on the loopback interface: unpacked once, whole, and only where they may."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_
from hypothesis import strategies as st

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import SourceError
from stsbench.data.hub import archives, fetch_archive
from tests import hub_server
from tests.hub_files import sha256, tar
from tests.hub_server import Hub

hub = hub_server.hub

SOURCE = HubSource(repo="owner/data", revision="unpinned", splits={}, archive="sets/senteval.tar")
MEMBERS = {"downstream/STS/gold.txt": b"5.0\n", "downstream/MR/pos.txt": b"good\n"}


def serve(hub: Hub, data: bytes) -> str:
    return hub.add("dataset", "owner/data", {"sets/senteval.tar": data, "corpus.bin": b"not wanted"}).commit


def refused() -> str:
    """The one line that a fetch ends in; nothing is left of what was unpacked till then."""
    with pytest.raises(SourceError) as caught:
        fetch_archive(SOURCE)
    assert "\n" not in str(caught.value)
    folder = settings.cache_folder() / "archives"
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


def test_an_archive_is_fetched_and_unpacked_once(hub: Hub):
    data = tar(MEMBERS)
    serve(hub, data)
    folder = fetch_archive(SOURCE).path
    assert folder.name == f"senteval-{sha256(data)[:12]}"
    assert {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()} == MEMBERS
    assert [p.name for p in folder.parent.iterdir()] == [folder.name], "no draft is left"
    assert os.access(folder, os.R_OK | os.X_OK) and folder.stat().st_mode & 0o077, "others may read the cache"
    assert not hub.gets("corpus.bin")
    before = folder.stat().st_mtime_ns
    assert fetch_archive(SOURCE).path == folder and folder.stat().st_mtime_ns == before
    assert len(hub.gets("senteval.tar")) == 1


def test_once_unpacked_no_network_is_needed(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    serve(hub, tar(MEMBERS))
    folder = fetch_archive(SOURCE).path
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch_archive(SOURCE).path == folder


def test_another_archive_gets_another_folder(hub: Hub):
    serve(hub, tar(MEMBERS))
    first = fetch_archive(SOURCE).path
    serve(hub, tar({"x.txt": b"x"}))
    assert fetch_archive(SOURCE).path != first and first.is_dir()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (member("../outside.txt"), "leads outside"),
        (member("a/../../outside.txt"), "leads outside"),
        (member("/tmp/outside.txt"), "leads outside"),
        (member("a\\..\\..\\outside.txt"), "leads outside"),
        (member("C:/outside.txt"), "leads outside"),
        (member("x" * 256), "is not a file name"),
        (member("/".join("x" * 200 for _ in range(6))), "is not a file name"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), "'link' is a link that leads outside the archive"),
        (member("link", tarfile.SYMTYPE, "../x"), "leads outside the archive"),
        (member("a/b/link", tarfile.SYMTYPE, "../../../x"), "leads outside the archive"),
        (member("a/link", tarfile.LNKTYPE, "../x"), "leads outside the archive"),
        (member("a/link", tarfile.LNKTYPE, "C:\\x"), "leads outside the archive"),
        (member("downstream/MR/all", tarfile.SYMTYPE, ".."), "is a link to a folder that holds it"),
        (member("null", tarfile.CHRTYPE), "'null' is a device or a sparse file"),
        (member("pipe", tarfile.FIFOTYPE), "is a device or a sparse file"),
        (member("holes", tarfile.GNUTYPE_SPARSE, size=512), "is a device or a sparse file"),
        (member("bomb", size=3 << 30), "unpacks to more than 2 GiB"),
    ],
)
def test_what_no_data_archive_needs_is_refused(hub: Hub, bad: tarfile.TarInfo, expected: str, tmp_path: Path):
    serve(hub, tar(MEMBERS, bad))
    text = refused()
    assert expected in text and "file 'sets/senteval.tar' of dataset 'owner/data'" in text
    assert not list(tmp_path.rglob("outside.txt"))


def test_too_many_files_are_refused(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archives, "MOST_MEMBERS", 1)
    serve(hub, tar(MEMBERS))
    assert "more than 1 files" in refused()


LINKS = {
    "downstream/gold.txt": (tarfile.SYMTYPE, "STS/gold.txt"),
    "downstream/MR/up.txt": (tarfile.SYMTYPE, "../STS/./gold.txt"),
    "first.txt": (tarfile.SYMTYPE, "second.txt"),
    "second.txt": (tarfile.LNKTYPE, "downstream/MR/pos.txt"),
    "folder": (tarfile.SYMTYPE, "downstream/STS"),
    "through.txt": (tarfile.SYMTYPE, "folder/gold.txt"),
    "nothing.txt": (tarfile.SYMTYPE, "nowhere.txt"),
    "round.txt": (tarfile.SYMTYPE, "round.txt"),
}


def test_links_that_stay_inside_become_copies(hub: Hub):
    links = [member(name, kind, target) for name, (kind, target) in LINKS.items()]
    serve(hub, tar(MEMBERS, *links))
    folder = fetch_archive(SOURCE).path
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    gold, good = MEMBERS["downstream/STS/gold.txt"], MEMBERS["downstream/MR/pos.txt"]
    copies = {"downstream/gold.txt": gold, "downstream/MR/up.txt": gold, "first.txt": good, "second.txt": good}
    assert found == {**MEMBERS, **copies, "folder/gold.txt": gold, "through.txt": gold}
    assert not any(p.is_symlink() for p in folder.rglob("*"))


def test_links_count_with_what_they_lead_to(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    """Each folder links twice to the one before: 2 ** 30 files from thirty links."""
    doubled = [member(f"d{at}/{side}", tarfile.SYMTYPE, f"../d{at - 1}") for at in range(1, 30) for side in "ab"]
    serve(hub, tar({"d0/x.txt": b"x"}, *doubled))
    monkeypatch.setattr(archives, "MOST_MEMBERS", 200)
    assert "with what its links lead to it holds more than 200 files" in refused()


@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_archive(hub: Hub, packed: Callable[[bytes], bytes]):
    serve(hub, packed(tar(MEMBERS)))
    assert (fetch_archive(SOURCE).path / "downstream" / "STS" / "gold.txt").read_bytes() == b"5.0\n"
    serve(hub, packed(tar(MEMBERS))[:90])
    with pytest.raises(SourceError, match="damaged archive"):
        fetch_archive(SOURCE)


def records(size: int) -> bytes:
    """A tar file whose one member has a header of so many bytes before it, as POSIX allows."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("x.txt")
        info.pax_headers = {"comment": "x" * size}
        archive.addfile(info)
    return stream.getvalue()


def test_long_headers_are_refused_and_short_ones_are_not(hub: Hub):
    serve(hub, records(60_000))
    assert (fetch_archive(SOURCE).path / "x.txt").is_file()
    serve(hub, records(70_000))
    with pytest.raises(SourceError, match="a header in it asks for more than 64 KiB"):
        fetch_archive(SOURCE)


def sparse_chain(blocks: int) -> bytes:
    """A sparse file's header that goes on and on."""
    info = member("x", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT)
    head = bytearray(info)
    head[482] = 1
    head[148:156] = b"        "
    head[148:156] = b"%06o\0 " % sum(head)
    more = bytearray(512)
    more[504] = 1
    return bytes(head) + bytes(more) * blocks


def test_a_header_in_many_pieces_is_refused_too(hub: Hub):
    serve(hub, sparse_chain(1000))
    assert "a header in it asks for more than 64 KiB" in refused()
    serve(hub, b"".join(tarfile.TarInfo.create_pax_global_header({f"key{at}": "x"}) for at in range(2000)))
    assert "a header in it asks for more than 64 KiB" in refused()


BOMB = """
import resource, sys
from pathlib import Path
import stsbench.data.hub.archives as archives
from stsbench.core.errors import SourceError
into = Path(sys.argv[2])
into.mkdir()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    archives.unpack_archive(Path(sys.argv[1]), into, where="it")
except SourceError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


def huge(kind: bytes, size: int) -> bytes:
    """The header of a member of so many bytes: the rest is zeros."""
    return member("x.txt", kind, size=size).tobuf(tarfile.GNU_FORMAT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("packed", "kind", "why"),
    [
        *((packed, tarfile.XHDTYPE, "a header in it asks for more than 64 KiB") for packed in ("gz", "xz", "bz2")),
        ("gz", tarfile.XGLTYPE, "a header in it asks for more than 64 KiB"),
        ("gz", tarfile.GNUTYPE_LONGNAME, "a header in it asks for more than 64 KiB"),
        ("gz", tarfile.REGTYPE, "it unpacks to more than 2 GiB"),
    ],
)
def test_a_bomb_takes_no_memory(tmp_path: Path, kind: bytes, why: str, packed: str):
    """A file of 1 MB that says a header, or a member, is of gigabytes."""
    size = 3 << 30 if kind == tarfile.REGTYPE else 1 << 30
    opened = {"gz": gzip.open, "xz": partial(lzma.open, preset=0), "bz2": bz2.open}[packed]
    with opened(tmp_path / "bomb", "wb") as stream:  # type: ignore[operator]
        stream.write(huge(kind, size))
        for _ in range(80):
            stream.write(bytes(1 << 20))
    arguments = [sys.executable, "-c", BOMB, str(tmp_path / "bomb"), str(tmp_path / "into")]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
    kilobytes, _, said = run.stdout.partition(" ")
    assert why in said, run.stderr
    assert int(kilobytes) < 30_000, "KiB of memory more than before"


def test_xz_asks_for_no_dictionary_of_gigabytes(tmp_path: Path):
    (tmp_path / "x.tar.xz").write_bytes(_with_dictionary(lzma.compress(tar(MEMBERS), preset=0)))
    with pytest.raises(SourceError, match=r"takes more than 256 MiB to decompress"):
        archives.unpack_archive(tmp_path / "x.tar.xz", tmp_path / "into", where="it")


def _with_dictionary(packed: bytes) -> bytes:
    """The same xz file, saying that it needs a dictionary of 1.5 GiB: a byte of the first block's header, and its checksum."""
    start = 12
    size = (packed[start] + 1) * 4
    block = bytearray(packed[start : start + size])
    place = block.index(b"\x21\x01") + 2
    block[place] = 37
    block[-4:] = zlib.crc32(bytes(block[:-4])).to_bytes(4, "little")
    return packed[:start] + bytes(block) + packed[start + size :]


def test_one_name_for_a_file_and_a_folder(hub: Hub):
    serve(hub, tar({"x": b"x"}, member("x/y.txt")))
    assert "damaged archive" in refused()


@given(st.data())
@settings_(max_examples=150, deadline=None)
def test_whatever_the_bytes_unpacking_ends_in_one_line(data: st.DataObject):
    whole = bytearray(tar(MEMBERS, member("l", tarfile.SYMTYPE, "downstream")))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, 4 * 512))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as scratch:
        archive, into = Path(scratch, "x.tar"), Path(scratch, "into")
        archive.write_bytes(bytes(whole))
        into.mkdir()
        with suppress(SourceError):
            archives.unpack_archive(archive, into, where="it")
        assert {p.name for p in Path(scratch).iterdir()} == {"x.tar", "into"}


@pytest.mark.parametrize("data", [tar({"x": b"y" * 20_000})[:9_000], b"no tar at all", b""])
def test_a_damaged_archive(hub: Hub, data: bytes):
    serve(hub, data)
    assert "damaged archive" in refused()


def test_an_archive_that_is_not_there(hub: Hub):
    hub.add("dataset", "owner/data", {"senteval.tgz": b""})
    assert "there is no such file" in refused()


def test_a_run_that_was_faster_is_as_good(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    serve(hub, tar(MEMBERS))

    def unpacked_twice(handle: int) -> None:
        for draft in settings.cache_folder().glob("archives/*.partial"):
            final = draft.with_name(draft.name.rsplit(".", 2)[0])
            final.mkdir(exist_ok=True)
            (final / "theirs.txt").touch()

    monkeypatch.setattr(os, "fsync", unpacked_twice)
    assert (fetch_archive(SOURCE).path / "theirs.txt").is_file()

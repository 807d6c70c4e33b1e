"""Archives from a Hub on the loopback interface: unpacked once, whole, and only where they may."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings as settings_, strategies as st

from stsbench.core import settings
from stsbench.core.cards import HubSource
from stsbench.core.errors import SourceError
from stsbench.data.hub import rows as archives
from stsbench.data.hub.rows import fetch_archive
from tests import hub_server
from tests.hub_files import sha256, tar
from tests.hub_server import Hub

hub = hub_server.hub
SOURCE = HubSource(repo="owner/data", revision="unpinned", splits={}, archive="sets/senteval.tar")
MEMBERS = {"downstream/STS/gold.txt": b"5.0\n", "downstream/MR/pos.txt": b"good\n"}


def serve(hub: Hub, data: bytes) -> str:
    return hub.add(
        "dataset", "owner/data", {"sets/senteval.tar": data, "corpus.bin": b"not wanted"}
    ).commit


def refused() -> str:
    """The one line that a fetch ends in; nothing is left of what was unpacked till then."""
    with pytest.raises(SourceError) as caught:
        fetch_archive(SOURCE)
    assert "\n" not in str(caught.value)
    folder = settings.cache_folder() / "archives"
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def test_an_archive_is_fetched_and_unpacked_once(hub: Hub, monkeypatch: pytest.MonkeyPatch):
    data = tar(MEMBERS)
    serve(hub, data)
    folder = fetch_archive(SOURCE).path
    assert folder.name == f"senteval-{sha256(data)[:12]}"
    assert contents(folder) == MEMBERS
    assert [p.name for p in folder.parent.iterdir()] == [folder.name], "no draft is left"
    assert os.access(folder, os.R_OK | os.X_OK) and folder.stat().st_mode & 0o077, (
        "others may read the cache"
    )
    assert not hub.gets("corpus.bin")
    before = folder.stat().st_mtime_ns
    assert fetch_archive(SOURCE).path == folder and folder.stat().st_mtime_ns == before
    assert len(hub.gets("senteval.tar")) == 1
    serve(hub, tar({"x.txt": b"x"}))
    other = fetch_archive(SOURCE).path
    assert other != folder and folder.is_dir()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert fetch_archive(SOURCE).path == other, "once unpacked, no network is needed"


def member(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.mark.parametrize("name", ["../outside.txt", "a/../../outside.txt"])
def test_what_leads_outside_is_refused(hub: Hub, name: str, tmp_path: Path):
    serve(hub, tar(MEMBERS, member(name)))
    text = refused()
    assert re.match(
        r"file 'sets/senteval.tar' of dataset 'owner/data'.*: refused to unpack: .*outside", text
    )
    assert not list(tmp_path.rglob("outside.txt"))


@pytest.mark.parametrize("name", ["x" * 256, "/".join("x" * 200 for _ in range(30))])
def test_what_no_file_can_be_called(hub: Hub, name: str):
    serve(hub, tar(MEMBERS, member(name)))
    assert "File name too long" in refused()


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE])
def test_devices_and_sparse_files_are_left_out(hub: Hub, kind: bytes):
    serve(hub, tar(MEMBERS, member("odd", kind)))
    assert contents(fetch_archive(SOURCE).path) == MEMBERS


def test_a_hash_that_is_a_path_names_no_folder(hub: Hub, tmp_path: Path):
    serve(hub, tar(MEMBERS))
    info = hub.repos["dataset", "owner/data"].info()
    info["siblings"][0]["lfs"]["sha256"] = "/../../../up"
    hub.fail("/api/", body=json.dumps(info).encode())
    assert (
        fetch_archive(SOURCE).path.parent == settings.cache_folder() / "archives"
        and not (tmp_path / "up").exists()
    )


def test_an_absolute_name_is_taken_below_the_folder(hub: Hub):
    serve(hub, tar(MEMBERS, member("/tmp/inside.txt")))
    assert contents(fetch_archive(SOURCE).path) == {**MEMBERS, "tmp/inside.txt": b""}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../x", "downstream/MR/pos.txt", ".", "downstream"]
)
def test_links_are_left_out_and_nothing_goes_through_them(hub: Hub, kind: bytes, target: str):
    serve(hub, tar(MEMBERS, member("link", kind, target), member("link/x.txt")))
    folder = fetch_archive(SOURCE).path
    assert contents(folder) == {**MEMBERS, "link/x.txt": b""}
    assert not any(p.is_symlink() for p in folder.rglob("*"))


def test_a_name_in_a_record_is_read(hub: Hub):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = member("ü" * 90 + ".txt")
        info.mode, info.pax_headers = 0o400, {"comment": "x" * 60_000, "mtime": "1e300"}
        archive.addfile(info)
    serve(hub, stream.getvalue())
    folder = fetch_archive(SOURCE).path
    assert contents(folder) == {"ü" * 90 + ".txt": b""}
    assert next(folder.iterdir()).stat().st_mode & 0o277, (
        "of whoever unpacks it, and others may read it"
    )


def negative(kind: bytes) -> bytes:
    """A header that says that the next one is itself."""
    header = bytearray(member("x", kind).tobuf())
    header[124:136] = b"\xff" * 10 + b"\xfe\x00"
    header[148:156] = b"%06o\0 " % (256 + sum(header[:148]) + sum(header[156:]))
    return bytes(header)


GLOBAL = b"".join(tarfile.TarInfo.create_pax_global_header({f"key{at}": "x"}) for at in range(2000))
DAMAGED = {
    "cut": tar({"x": b"y" * 20_000})[:9_000],
    "text": b"no tar at all",
    "empty": b"",
    "compressed": gzip.compress(tar(MEMBERS)),
    "a file and a folder": tar({"x": b"x"}, member("x/y.txt")),
    "a header in many pieces": GLOBAL,
    "a header of 200,000 bytes": tarfile.TarInfo.create_pax_global_header({"key": "x" * 200_000})
    + tar(MEMBERS),
    **{
        f"a negative size, {kind!r}": tar(MEMBERS)[:1024] + negative(kind)
        for kind in (b"0", b"7", b"S", b"Z")
    },
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_archive(hub: Hub, case: str):
    serve(hub, DAMAGED[case])
    assert "damaged archive, or no plain tar file" in refused()


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

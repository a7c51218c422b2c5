"""Taking one file out of an archive that nobody vouches for."""

import gzip
import io
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path

import pytest

from reprolora import archives
from reprolora.archives import extract_member
from reprolora.errors import UserError
from running import contents

DATA = b"id\ttext\n" * 3000


def tar(path: Path, *entries: tuple[tarfile.TarInfo | str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for entry, body in entries:
            entry = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return path


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def zipped(path: Path, *entries: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a doubled name
        for name, body in entries:
            archive.writestr(name, body)
    return path


def extract(archive: Path, *members: str) -> bytes:
    """The member's content, or an error after which the output folder is as empty as it was."""
    output = archive.parent / "out" / "data"
    output.parent.mkdir(exist_ok=True)
    extract_member(archive, members, output)
    return output.read_bytes()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar(tmp_path, mode):
    assert extract(tar(tmp_path / "a", ("x/other", b"no"), ("./x/data.tsv", DATA), mode=mode), "x/data.tsv") == DATA


def test_zip(tmp_path):
    assert extract(zipped(tmp_path / "a", ("x/other", b"no"), ("x/data.tsv", DATA)), "x/data.tsv") == DATA


def test_nested(tmp_path):
    inner = tar(tmp_path / "inner", ("deep/data.tsv", DATA))
    innermost = zipped(tmp_path / "zip", ("a/inner.tar.gz", inner.read_bytes()))
    outer = tar(tmp_path / "outer", ("b/inner.zip", innermost.read_bytes()), mode="w")
    assert extract(outer, "b/inner.zip", "a/inner.tar.gz", "deep/data.tsv") == DATA


@pytest.mark.parametrize("member", ["/etc/passwd", "../x", "x/../../y", "", ".", "x\\..\\y"])
def test_unsafe_paths_are_refused_though_the_archive_has_them(tmp_path, member):
    for archive in (tar(tmp_path / "t", (member or "x", DATA)), zipped(tmp_path / "z", (member or "x", DATA))):
        with pytest.raises(UserError, match="not a path inside an archive"):
            extract(archive, member)
    assert contents(tmp_path) == ["t", "z"]


def test_unsafe_neighbours_do_no_harm(tmp_path):
    archive = tar(tmp_path / "a", ("../evil", b"x"), (f"{tmp_path}/evil", b"x"), ("data.tsv", DATA))
    assert extract(archive, "data.tsv") == DATA
    assert contents(tmp_path) == ["a", "out/data"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_only_ordinary_files_are_taken(tmp_path, kind):
    (tmp_path / "secret").write_text("secret")
    archive = tar(tmp_path / "a", (special("data.tsv", kind, str(tmp_path / "secret")), b""))
    with pytest.raises(UserError, match="a folder, a link or a device"):
        extract(archive, "data.tsv")


def test_symbolic_link_in_a_zip_is_refused(tmp_path):
    entry = zipfile.ZipInfo("data.tsv")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(UserError, match="a folder or a link"):
        extract(tmp_path / "a", "data.tsv")


def test_a_name_that_occurs_twice_is_refused(tmp_path):
    for archive in (
        tar(tmp_path / "t", ("data.tsv", DATA), ("./data.tsv", b"other")),
        zipped(tmp_path / "z", ("data.tsv", DATA), ("data.tsv", b"other")),
    ):
        with pytest.raises(UserError, match="2 times"):
            extract(archive, "data.tsv")


def test_missing_member_is_told_with_its_neighbours(tmp_path):
    with pytest.raises(UserError, match=r"no member x/date\.tsv \(near it: x/data\.tsv"):
        extract(tar(tmp_path / "a", ("x/data.tsv", DATA)), "x/date.tsv")


def test_more_than_the_disk_holds_is_refused_before_it_is_unpacked(tmp_path):
    archive = zipped(tmp_path / "a", ("data.tsv", DATA))
    content = bytearray(archive.read_bytes())
    # Both records of the one member claim 3 GiB, and this disk is said to have 1 GiB.
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", content, content.index(signature) + offset, 3 << 30)
    archive.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            archives.shutil, "disk_usage", lambda _: archives.shutil._ntuple_diskusage(2 << 30, 1 << 30, 1 << 30)
        )
        with pytest.raises(UserError, match=f"unpacks to {3 << 30} bytes"):
            extract(archive, "data.tsv")
    assert contents(tmp_path / "out") == []


def test_damaged_archives(tmp_path):
    whole = tar(tmp_path / "whole", ("data.tsv", DATA)).read_bytes()
    cut_tar = gzip.compress(tar(tmp_path / "plain", ("data.tsv", DATA), mode="w").read_bytes()[:2000])
    flipped = bytearray(zipped(tmp_path / "zip", ("data.tsv", DATA)).read_bytes())
    flipped[40] ^= 0xFF
    cases = {
        "cut": whole[:-20],
        "cut_inside": cut_tar,
        "flipped": bytes(flipped),
        "text": b"not an archive",
        "empty": b"",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="damaged"):
            extract(tmp_path / name, "data.tsv")


def test_encrypted_zip(tmp_path):
    archive = zipped(tmp_path / "a", ("data.tsv", DATA))
    content = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1  # the flag that says so
    archive.write_bytes(content)
    with pytest.raises(UserError, match="encrypted"):
        extract(archive, "data.tsv")

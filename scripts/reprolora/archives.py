"""Taking files out of an archive without trusting the archive."""

import difflib
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

from reprolora.errors import UserError

CHUNK = 1 << 20
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    NotImplementedError,
    RuntimeError,
)


def extract_member(archive: Path, members: Sequence[str], output: Path) -> None:
    """Copy one file out of a zip or tar archive to `output`.

    `members` is the file's path in the archive; of several, each but the last is an archive inside the one before. No
    path in an archive ever becomes a path on disk: the one file is read as a stream and written to `output`.
    """
    with archive.open("rb") as stream:
        _extract(stream, str(archive), members, output)


def _extract(stream: IO[bytes], name: str, members: Sequence[str], output: Path) -> None:
    member, *rest = members
    inner_name = f"{name}[{member}]"
    try:
        with _open_member(stream, name, member) as (inner, size):
            if rest:
                _extract(inner, inner_name, rest, output)
            else:
                _copy(inner, inner_name, size, output)
    except DAMAGED as error:
        raise UserError(f"{name}: damaged or encrypted archive ({error}); fetch it again") from error
    except OSError as error:
        if error.errno is not None:  # the disk's own trouble; a damaged gzip or bzip2 stream has no errno
            raise
        raise UserError(f"{name}: damaged archive ({error}); fetch it again") from error


def read_folder(archive: Path, folder: str) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Path below `folder`, size and opener of each file that an archive has there, in order of the paths.

    A file is opened as a stream and stays in the archive; links and devices are left out. The openers work while the
    iterator is being read.
    """
    _refuse_unsafe(str(archive), folder or ".", "folder")
    try:
        if tarfile.is_tarfile(archive):
            with tarfile.open(archive, mode="r:*") as opened:
                entries = [(entry.name, entry.size, entry) for entry in opened if entry.isreg()]
                yield from _in_folder(archive, folder, entries, opened.extractfile)
        elif zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                entries = [
                    (entry.filename, entry.file_size, entry)
                    for entry in opened.infolist()
                    if not entry.is_dir() and not stat.S_ISLNK(entry.external_attr >> 16)
                ]
                yield from _in_folder(archive, folder, entries, opened.open)
        else:
            raise UserError(f"{archive}: neither a folder nor a zip or tar archive; check the source")
    except DAMAGED as error:
        raise UserError(f"{archive}: damaged or encrypted archive ({error}); fetch it again") from error


def _in_folder(archive: Path, folder: str, entries: list[tuple[str, int, Any]], opening: Callable[[Any], IO[bytes]]):
    root = PurePosixPath(folder)
    below = [(PurePosixPath(path), size, entry) for path, size, entry in entries]
    found = [(path.relative_to(root), size, entry) for path, size, entry in below if path.is_relative_to(root)]
    found = [(path, size, entry) for path, size, entry in found if not any(p.startswith(".") for p in path.parts)]
    if not found:
        near = difflib.get_close_matches(folder, {str(path.parent) for path, *_ in below}, n=3, cutoff=0.3)
        raise UserError(f"{archive}: no files in {folder!r} (near it: {', '.join(near) or 'none'}); correct `member`")
    for path, size, entry in sorted(found, key=lambda one: str(one[0])):
        yield str(path), size, lambda entry=entry: opening(entry)


def _copy(stream: IO[bytes], name: str, size: int, output: Path) -> None:
    free = shutil.disk_usage(output.parent).free
    if size > free:
        raise UserError(f"{name}: unpacks to {size} bytes, but {output.parent} has {free} free; free some space")
    with output.open("wb") as target:
        shutil.copyfileobj(stream, target, CHUNK)
    if output.stat().st_size != size:
        raise UserError(f"{name}: damaged archive (it ends before the file does); fetch it again")


@contextmanager
def _open_member(stream: IO[bytes], name: str, member: str) -> Iterator[tuple[IO[bytes], int]]:
    """One member as a stream, with the size that the archive says it has."""
    _refuse_unsafe(name, member)
    # Tar first: an uncompressed tar whose last member is a zip would pass for a zip.
    if tarfile.is_tarfile(stream):
        stream.seek(0)
        with tarfile.open(fileobj=stream, mode="r:*") as archive:
            entry = _find(name, member, [(entry.name, entry) for entry in archive])
            if not entry.isreg():
                raise UserError(f"{name}: {member} is a folder, a link or a device; name a file in the archive")
            with archive.extractfile(entry) as inner:
                yield inner, entry.size
        return
    stream.seek(0)
    if not zipfile.is_zipfile(stream):
        raise UserError(f"{name}: neither a zip nor a tar archive, or damaged; check `member` and the source")
    stream.seek(0)
    with zipfile.ZipFile(stream) as archive:
        entry = _find(name, member, [(entry.filename, entry) for entry in archive.infolist()])
        # The upper half of the external attributes is the Unix mode, if a Unix tool made the archive.
        if entry.is_dir() or stat.S_ISLNK(entry.external_attr >> 16):
            raise UserError(f"{name}: {member} is a folder or a link; name a file in the archive")
        with archive.open(entry) as inner:
            yield inner, entry.file_size


def _refuse_unsafe(name: str, member: str, what: str = "folder/file.txt") -> None:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member or not (path.parts or what == "folder"):
        raise UserError(f"{name}: {member!r} is not a path inside an archive; write it like {what}")


def _find(name: str, member: str, entries: list[tuple[str, Any]]) -> Any:
    wanted = PurePosixPath(member)  # drops a leading ./ and doubled slashes, on both sides
    found = [entry for path, entry in entries if PurePosixPath(path) == wanted]
    if len(found) > 1:
        raise UserError(f"{name}: holds {member} {len(found)} times, so which is meant is unclear; repack the archive")
    if not found:
        near = difflib.get_close_matches(member, [path for path, _ in entries], n=3, cutoff=0.3)
        hint = f"near it: {', '.join(near)}" if near else f"it has {len(entries)} others"
        raise UserError(f"{name}: no member {member} ({hint}); correct `member`")
    return found[0]

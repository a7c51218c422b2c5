"""The raw files of a dataset as the rules hand them over, `PART=FILE`, opened for reading."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reprolora.archives import extract_member
from reprolora.errors import UserError
from reprolora.files import sha256_of
from reprolora.sources import check_sha256, member_path, parse_source
from reprolora.tables import DataFile

PART_SETS = (("all",), ("train", "test"), ("train", "validation", "test"))


def parts_of(arguments: Sequence[str]) -> dict[str, Path]:
    """The file of each part, in the order in which the rows are written."""
    files = {part: Path(path) for part, _, path in (argument.partition("=") for argument in arguments)}
    for parts in PART_SETS:
        if set(files) == set(parts):
            break
    else:
        raise UserError(
            f"--raw has the parts {', '.join(files)}; a dataset has either `all`, or `train`, `test` and perhaps "
            "`validation`"
        )
    for part, path in files.items():
        if not path.is_file():
            raise UserError(f"{path}: no such file; check the source of `{part}` in the dataset catalogue")
    return {part: files[part] for part in parts}


@contextmanager
def open_raw(path: Path, file: Mapping[str, Any]) -> Iterator[DataFile]:
    """The data file of a catalogue's `file`. What was fetched is that itself; a user's own may still be an archive."""
    member = []
    if parse_source(file["source"]).kind == "file":
        check_sha256(path, file.get("sha256"), str(path))
        member = member_path(file.get("member"))
    if not member:
        yield DataFile(path, str(path))
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        extract_member(path, member, data)
        yield DataFile(data, f"{path}[{' > '.join(member)}]")


def describe_raw(files: Mapping[str, Path], settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Where each part came from, and the checksum of the file that was read."""
    return {
        part: {
            "source": settings[part]["source"],
            "member": settings[part].get("member"),
            "sha256": settings[part].get("sha256"),
            "raw_sha256": sha256_of(path),
        }
        for part, path in files.items()
    }

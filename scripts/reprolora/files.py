"""Reading and writing files so that a reader never sees half of one, and equal content means equal bytes."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from reprolora.errors import UserError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, renamed to `path` when the block ends well and removed when it does not."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with naming(path):
            yield temporary
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Put `path` into an OSError that names no file, as that of a failed write does, so that a full disk is named."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def write_text(path: str | Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any) -> None:
    """Write indented JSON with sorted keys; NaN and infinity are refused with a ValueError."""
    write_text(path, json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: str | Path) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON ({error.msg}); remove the file and run again") from error


def write_jsonl(path: str | Path, rows: Iterable[dict]) -> None:
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")


def read_jsonl(path: str | Path) -> Iterator[dict]:
    """Read a file that `write_jsonl` made. (A user's own data goes through `reprolora.rows`, which names bad rows.)"""
    with Path(path).open(encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def sha256_of(path: str | Path) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

"""Reading a user's data file (JSONL, CSV, TSV or Parquet) record by record, so that a bad place can be named."""

import csv
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprolora.errors import UserError

DELIMITERS = {"csv": ",", "tsv": "\t"}
LONGEST_FIELD = 1 << 30  # Python's own limit, 128 KiB, is shorter than some documents
PARQUET_BATCH = 10_000


@dataclass(frozen=True)
class Record:
    """One record: where it is (`FILE:LINE`, or `FILE: row N` of a Parquet file), and its values by column."""

    place: str
    values: dict[str | int, Any]


@dataclass(frozen=True)
class DataFile:
    """A data file and the name that messages call it by: its path, unless it was taken out of an archive."""

    path: Path
    name: str


def read_records(
    file: DataFile, file_format: str, columns: list[str | int], header: bool, quoting: bool
) -> Iterator[Record]:
    """Give every record's values of `columns`, which are names, or 1-based positions in a CSV or TSV file.

    `quoting` says whether quotes group a CSV or TSV field; if not, they are text like any other. Blank lines are
    skipped. A file that cannot be read so is a UserError that names the line.
    """
    if file_format in DELIMITERS:
        return _read_delimited(file, DELIMITERS[file_format], columns, header, quoting)
    for column in columns:
        if isinstance(column, int):
            raise UserError(
                f"{file.name}: column {column} is a position, but {file_format} columns have names; give the name"
            )
    return _read_parquet(file, columns) if file_format == "parquet" else _read_jsonl(file, columns)


def _lines(file: DataFile) -> Iterator[tuple[str, str]]:
    """The lines with their line ends, each with its place. UTF-8 with or without a byte order mark, nothing else."""
    start = 0
    with file.path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            place = f"{file.name}:{number}"
            try:
                yield place, line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{place}: not UTF-8: byte {start + error.start} of the file is 0x{line[error.start]:02x}; "
                    "convert the file to UTF-8 (for example with iconv)"
                ) from error
            start += len(line)


def _read_jsonl(file: DataFile, columns: list[str]) -> Iterator[Record]:
    for place, line in _lines(file):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{place}: broken line, not JSON ({error}); mend or remove it") from error
        if not isinstance(values, dict):
            raise UserError(f'{place}: broken line, not a JSON object; write one like {{"text": ..., "label": ...}}')
        for column in columns:
            if column not in values:
                raise _missing(place, column, list(values))
        yield Record(place, values)


def _read_delimited(
    file: DataFile, delimiter: str, columns: list[str | int], header: bool, quoting: bool
) -> Iterator[Record]:
    rows = _quoted_rows(file, delimiter) if quoting else _plain_rows(file, delimiter)
    first_place, first = next(rows, (None, []))
    positions = {column: _position(first_place, column, first, header) for column in columns} if first else {}
    for place, fields in rows if header else itertools.chain([(first_place, first)] if first else [], rows):
        if len(fields) != len(first):
            raise UserError(
                f"{place}: broken line, {len(fields)} fields where {first_place} has {len(first)}; mend or remove it"
            )
        yield Record(place, {column: fields[position] for column, position in positions.items()})


def _position(place: str, column: str | int, first: list[str], header: bool) -> int:
    """Where a column is, from 0, by what the file's first line says."""
    if isinstance(column, int):
        if not 1 <= column <= len(first):
            raise UserError(f"{place}: no column {column}, the line has {len(first)}; correct the dataset's `columns`")
        return column - 1
    if not header:
        raise UserError(f"{place}: column {column!r} is a name, but `header` is false; give its position, from 1")
    if first.count(column) > 1:
        raise UserError(f"{place}: column {column!r} occurs {first.count(column)} times in the header; rename one")
    if column not in first:
        raise _missing(place, column, first)
    return first.index(column)


def _quoted_rows(file: DataFile, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.reader((line for _, line in _lines(file)), delimiter=delimiter, strict=True)
    while True:
        place = f"{file.name}:{reader.line_num + 1}"  # a quoted field can hold line ends; a row is where it starts
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(f"{place}: broken line or quotes ({error}); mend it, or set `quoting: false`") from error
        if fields:
            yield place, fields


def _plain_rows(file: DataFile, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    for place, line in _lines(file):
        line = line.rstrip("\r\n")
        if "\r" in line:
            raise UserError(f"{place}: a carriage return within the line; end lines with LF or CR LF")
        if line:
            yield place, line.split(delimiter)


def _read_parquet(file: DataFile, columns: list[str]) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file.path)
        for column in columns:
            if column not in table.schema_arrow.names:
                raise _missing(file.name, column, table.schema_arrow.names)
        number = 0
        for batch in table.iter_batches(batch_size=PARQUET_BATCH, columns=columns):
            for values in batch.to_pylist():
                number += 1
                yield Record(f"{file.name}: row {number}", values)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{file.name}: not a readable Parquet file ({error}); check `format` and the file") from error


def _missing(place: str, column: str, names: list[str]) -> UserError:
    return UserError(
        f"{place}: no column {column!r}; there are {', '.join(map(repr, names)) or 'none'}; "
        "correct the dataset's `columns`"
    )

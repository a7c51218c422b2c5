"""A dataset's rows: id, text and label of each record, checked, under the dataset's own label names."""

import difflib
import json
import math
from collections import Counter
from typing import Any

from reprolora.errors import UserError
from reprolora.tables import DataFile, Record, read_records


def read_rows(file: DataFile, part: str, settings: dict[str, Any]) -> list[dict[str, str]]:
    """Read one file of a dataset as `{"id", "text", "label", "part"}` rows in file order.

    `settings` are the dataset's `format`, `header`, `quoting`, `columns`, `labels`, and `label_thresholds` or
    `label_names` if it has them. The first thing wrong ends the reading with a UserError that names file, line and
    column.
    """
    columns = settings["columns"]
    wanted = [columns[role] for role in ("id", "text", "label") if columns.get(role) is not None]
    rows: list[dict[str, str]] = []
    seen: dict[str, str] = {}
    for record in read_records(file, settings["format"], wanted, settings["header"], settings["quoting"]):
        if columns.get("id") is None:
            # Files of fixed splits are numbered apart, and a row's id must tell them apart.
            identity = str(len(rows) + 1) if part == "all" else f"{part}-{len(rows) + 1}"
        else:
            identity = _identity(record, columns["id"])
        if identity in seen:
            raise UserError(
                f"{record.place}: column {columns['id']!r}: id {identity!r} was used in {seen[identity]} already; "
                "make ids unique, or leave `columns.id` out to number the rows"
            )
        seen[identity] = record.place
        text = _text(record, columns["text"])
        rows.append({"id": identity, "text": text, "label": _label(record, columns["label"], settings), "part": part})
    if not rows:
        raise UserError(f"{file.name}: no rows; check the file and the dataset's `format` and `header`")
    return rows


def check_classes(rows: list[dict[str, str]], names: str) -> None:
    """Raise UserError if the rows to learn from are all of one class."""
    labels = {row["label"] for row in rows}
    if len(labels) == 1:
        raise UserError(
            f"{names}: only one class, {labels.pop()!r}, in all {len(rows)} rows; "
            "there is nothing to tell apart: check the label column and `labels`"
        )


def count_labels(rows: list[dict[str, str]], labels: list[str]) -> dict[str, int]:
    """How many rows each label has, labels without rows included."""
    counts = Counter(row["label"] for row in rows)
    return {label: counts[label] for label in labels}


def _identity(record: Record, column: str | int) -> str:
    value = record.values[column]
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UserError(
            f"{record.place}: column {column!r}: the id is {_shown(value)}; it must be text or a whole number"
        )
    return _encodable(str(value), record, column)


def _text(record: Record, column: str | int) -> str:
    value = record.values[column]
    if not isinstance(value, str):
        raise UserError(f"{record.place}: column {column!r} holds {_shown(value)}, not text; mend or remove the row")
    if not value.strip():
        raise UserError(f"{record.place}: column {column!r}: empty text; mend or remove the row")
    return _encodable(value, record, column)


def _encodable(value: str, record: Record, column: str | int) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"{record.place}: column {column!r}: half of a surrogate pair at character {error.start}; mend the text"
        ) from error
    return value


def _label(record: Record, column: str | int, settings: dict[str, Any]) -> str:
    value = record.values[column]
    if value is None or value == "":
        raise UserError(f"{record.place}: column {column!r}: no label; mend or remove the row")
    if settings.get("label_thresholds"):
        return _label_of_number(record, column, value, settings["label_thresholds"])
    written = value if isinstance(value, str) else json.dumps(value, default=str)
    names, labels = settings.get("label_names"), settings["labels"]
    label = names.get(written) if names else written
    if label not in labels:
        known = list(names or labels)
        near = difflib.get_close_matches(written, known, n=1)
        raise UserError(
            f"{record.place}: column {column!r}: unknown label {written!r}"
            + (f", did you mean {near[0]!r}?" if near else f"; known are {', '.join(map(repr, known))}")
            + "; mend the row, or add it to the dataset's `labels` or `label_names`"
        )
    return label


def _label_of_number(record: Record, column: str | int, value: Any, thresholds: dict[str, dict[str, float]]) -> str:
    """The one label whose bounds hold the number; the label without bounds takes what no other does."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"{record.place}: column {column!r} holds {_shown(value)}, not a number that `label_thresholds` could sort"
        )
    holding = [label for label, bounds in thresholds.items() if bounds and _within(number, bounds)]
    holding = holding or [label for label, bounds in thresholds.items() if not bounds]
    if len(holding) != 1:
        raise UserError(
            f"{record.place}: column {column!r}: {number} belongs to {' and '.join(holding) or 'no label'}; "
            "correct the dataset's `label_thresholds`"
        )
    return holding[0]


def _within(number: float, bounds: dict[str, float]) -> bool:
    return bounds.get("at_least", -math.inf) <= number <= bounds.get("at_most", math.inf)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else text[:40] + "..."

"""What a reviewer decided about pairs: the file that the review page exports, or the spreadsheet."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprolora.errors import UserError

WORDS = {word[:length]: word for word in ("accept", "reject", "edit") for length in (1, len(word))}


@dataclass(frozen=True)
class Decision:
    """`verdict` is accept, reject or edit; the texts are those of an edit."""

    verdict: str
    instruction: str = ""
    output: str = ""


def read_decisions(path: Path | None) -> dict[str, Decision]:
    """The decisions by the pairs' ids, from JSON or CSV; none if there is no such file (yet).

    Raises:
        UserError: names the file and the row that cannot be understood.
    """
    if path is None or not path.is_file():
        return {}
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8; save the spreadsheet as CSV UTF-8") from None
    rows = _json_rows(path, text) if text.lstrip().startswith(("{", "[")) else _csv_rows(path, text)
    decisions: dict[str, Decision] = {}
    for number, row in rows:
        place = f"{path}: row {number}"
        word = str(row.get("decision") or "").strip().casefold()
        if not word:
            continue
        if word not in WORDS:
            raise UserError(f"{place}: decision {row['decision']!r} is none of accept, reject and edit; correct it")
        if not row.get("id"):
            raise UserError(f"{place}: no id; export the decisions again")
        decision = Decision(WORDS[word], row.get("edited_instruction") or "", row.get("edited_output") or "")
        if decision.verdict == "edit" and not (decision.instruction.strip() and decision.output.strip()):
            raise UserError(f"{place}: an edit without edited_instruction and edited_output; fill them in")
        if decisions.setdefault(row["id"], decision) != decision:
            raise UserError(f"{place}: id {row['id']} is decided twice, and not in the same way; remove one")
    return decisions


def rejected_pairs(path: Path | None) -> set[str]:
    """The ids of the pairs that a decisions file rejects."""
    return {identity for identity, decision in read_decisions(path).items() if decision.verdict == "reject"}


def _json_rows(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    try:
        content = json.loads(text)
        rows = content["decisions"] if isinstance(content, dict) else content
    except (ValueError, KeyError) as error:
        raise UserError(f"{path}: not what the review page exports ({error!r}); export it again") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: not a list of decisions; export it again")
    return list(enumerate(rows, 1))


def _csv_rows(path: Path, text: str) -> list[tuple[int, dict[str, Any]]]:
    csv.field_size_limit(1 << 30)
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)  # spreadsheets save CSV with what their country separates lists by
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    if not {"id", "decision"} <= set(reader.fieldnames or ()):
        raise UserError(f"{path}: no columns id and decision; fill in the review's sample.csv")
    return [(number, row) for number, row in enumerate(reader, 2)]

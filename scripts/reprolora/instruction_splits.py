"""Splitting instructions into train, validation and test without holding them in memory.

What a row is assigned to depends on its group and the seed alone, never on its place in the file: groups are ordered by
a seeded hash, the test split takes the first, the validation split the next. Rows with the same instruction and input
(but for case and white space) are never spread over two splits: they are one group, or, where groups are documents or
chunks, the lesser split yields them.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reprolora.errors import UserError
from reprolora.splits import SPLITS, normalised

PARTS = ("all", *SPLITS)
LEFT_OUT = -1
EXAMPLES = 5


@dataclass(frozen=True)
class Index:
    """Of each row in the file: where its line is, its part, and hashes. All of shape (rows,).

    `group` is what stays together, `instruction` tells equal instructions, `words` those of the same words in whatever
    order, `order` is the row's place among those of its group.
    """

    offset: np.ndarray
    part: np.ndarray
    group: np.ndarray
    instruction: np.ndarray
    words: np.ndarray
    order: np.ndarray


def index_rows(path: Path, group: str, seed: int) -> Index:
    """Read the rows once; `group` is pair, chunk or document."""
    columns = {name: array("Q") for name in ("offset", "part", "group", "instruction", "words", "order")}
    offset = 0
    with path.open("rb") as stream:
        for line in stream:
            row = json.loads(line)
            # A conversation is known by how it begins.
            first = row["history"][0][0] if row.get("history") else row["instruction"]
            instruction = _hash(seed, normalised(f"{first}\n{row['input']}"))
            key = instruction if group == "pair" else _hash(seed, row[group])
            for name, value in (
                ("offset", offset),
                ("part", PARTS.index(row["part"])),
                ("group", key),
                ("instruction", instruction),
                ("words", _hash(seed, near_key(f"{first} {row['input']}"))),
                ("order", _hash(seed, line[line.index(b'"instruction"') :])),
            ):
                columns[name].append(value)
            offset += len(line)
    return Index(**{name: np.frombuffer(column, np.uint64) for name, column in columns.items()})


def near_key(text: str) -> str:
    """What two questions share that are nearly the same: their words, in whatever order, case and punctuation."""
    return " ".join(sorted(set(re.findall(r"\w+", text.casefold()))))


def assign(index: Index, settings: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, int]]:
    """The number of each row's split in `SPLITS`, or `LEFT_OUT`; and how many rows yielded to which split.

    Raises:
        UserError: the fractions are not there, or a split gets no row.
    """
    split = np.full(len(index.offset), LEFT_OUT, np.int8)
    parts = set(np.unique(index.part).tolist())
    for number, name in enumerate(SPLITS):
        split[index.part == PARTS.index(name)] = number
    train, validation, test = range(3)
    if parts == {0}:
        shares = {name: settings[name] for name in SPLITS}
        if not all(shares.values()) or abs(sum(shares.values()) - 1) > 1e-9:
            raise UserError("split: give `train`, `validation` and `test` as fractions that add up to 1")
        split[:] = train
        _take(index, split, test, shares["test"] * len(split))
        _take(index, split, validation, shares["validation"] * len(split))
    elif PARTS.index("validation") not in parts:
        if not settings["validation"]:
            raise UserError("split: give `validation`, the fraction of train to use; the data has no validation rows")
        _take(index, split, validation, settings["validation"] * int((split == train).sum()))
    removed = {}
    for lesser, greater in ((validation, test), (train, test), (train, validation)):
        leaking = (split == lesser) & np.isin(index.instruction, index.instruction[split == greater])
        removed[f"{SPLITS[lesser]}_in_{SPLITS[greater]}"] = int(leaking.sum())
        split[leaking] = LEFT_OUT
    for number, name in enumerate(SPLITS):
        if not (split == number).any():
            raise UserError(
                f"split: {name} gets no rows: {len(split)} rows in {len(np.unique(index.group))} groups are too few; "
                "give more rows, or a finer `group`"
            )
    return split, removed


def _take(index: Index, split: np.ndarray, to: int, size: float) -> None:
    """Move about `size` rows of train to another split, whole groups in the order of their hashes."""
    groups, counts = np.unique(index.group[split == 0], return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)[:-1]])
    chosen = groups[before < round(size)]
    split[(split == 0) & np.isin(index.group, chosen)] = to


def ordered(index: Index, split: np.ndarray, number: int, limit: int | None) -> np.ndarray:
    """The rows of a split in the order in which they are written, at most `limit`."""
    rows = np.flatnonzero(split == number)
    return rows[np.lexsort((index.order[rows], index.group[rows]))][:limit]


def near_duplicates(index: Index, rows: Mapping[str, np.ndarray]) -> dict[str, list[tuple[int, int]]]:
    """For validation and test, the rows that train has nearly the same instruction as, each with the train row."""
    train = rows["train"]
    words, first = np.unique(index.words[train], return_index=True)
    found = {}
    for name in ("validation", "test"):
        place = np.searchsorted(words, index.words[rows[name]]).clip(max=len(words) - 1)
        same = words[place] == index.words[rows[name]]
        found[name] = list(zip(rows[name][same].tolist(), train[first[place[same]]].tolist(), strict=True))
    return found


def read_at(path: Path, index: Index, rows: np.ndarray) -> Iterator[dict[str, Any]]:
    """The rows at these places, without their part."""
    with path.open("rb") as stream:
        for offset in index.offset[rows].tolist():
            stream.seek(offset)
            row = json.loads(stream.readline())
            del row["part"]
            yield row


def _hash(seed: int, text: str | bytes) -> int:
    data = text.encode() if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(b"%d\n%b" % (seed, data), digest_size=8).digest(), "big")

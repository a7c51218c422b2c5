"""Splitting a dataset's rows into train, validation and test.

What a row is assigned to depends on its text and the seed alone, never on its place in the file: rows are ordered by a
seeded hash of their text. Rows whose texts are equal but for case and white space are one group, which is never spread
over two splits. The test split is chosen first and the validation split second, so that what is asked of train changes
neither, and a smaller limit gives a subset of what a larger one gives.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprolora.errors import UserError

Row = dict[str, str]
SPLITS = ("train", "validation", "test")
CHOSEN_FIRST = ("test", "validation", "train")


@dataclass
class Splits:
    """The rows of each split, and what happened on the way."""

    rows: dict[str, list[Row]]
    before_limits: dict[str, dict[str, int]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)  # rows taken out because another split has their text


def normalised(text: str) -> str:
    """The text as far as case and white space do not matter; equal means duplicate."""
    return " ".join(text.casefold().split())


def split_rows(parts: Mapping[str, list[Row]], labels: Sequence[str], settings: Mapping[str, Any]) -> Splits:
    """Split a dataset with the one part `all` by fractions, or take the splits that it comes with.

    `settings` are the experiment's `split` section: `seed`, the fractions `train`, `validation`, `test`, and `limits`.
    """
    seed = settings["seed"]
    if "all" in parts:
        splits = Splits(_by_fractions(parts["all"], labels, settings, seed))
        fixed = ()
    else:
        splits = _given(parts, labels, settings, seed)
        fixed = tuple(parts)
    splits.rows = {split: _ordered(splits.rows[split], seed) for split in SPLITS}
    splits.before_limits = {split: _count(rows, labels) for split, rows in splits.rows.items()}
    limits = settings["limits"]
    splits.rows = {split: _limited(rows, labels, limits[split]) for split, rows in splits.rows.items()}
    _require_classes(splits, labels, fixed)
    return splits


def summarize(splits: Splits, parts: Mapping[str, list[Row]], labels: Sequence[str], seed: int) -> dict[str, Any]:
    """The counts that belong beside the splits."""
    groups = _groups(row for rows in parts.values() for row in rows)
    several = [rows for rows in groups.values() if len(rows) > 1]
    counts = {split: _count(rows, labels) for split, rows in splits.rows.items()}
    return {
        "seed": seed,
        "fixed": sorted(set(parts) - {"all"}),
        "rows": {split: len(rows) for split, rows in splits.rows.items()},
        "counts": counts,
        "before_limits": splits.before_limits,
        "absent_classes": {split: [label for label in labels if not counts[split][label]] for split in SPLITS},
        "duplicates": {
            "groups": len(several),
            "rows": sum(len(rows) for rows in several),
            "groups_with_conflicting_labels": sum(len({row["label"] for row in rows}) > 1 for rows in several),
            "removed": splits.removed,
        },
    }


def _by_fractions(
    rows: list[Row], labels: Sequence[str], settings: Mapping[str, Any], seed: int
) -> dict[str, list[Row]]:
    fractions = {split: settings[split] for split in SPLITS}
    if any(fraction is None or fraction <= 0 for fraction in fractions.values()):
        raise UserError(
            "split: give `train`, `validation` and `test` as fractions above 0; the dataset comes without splits"
        )
    if abs(sum(fractions.values()) - 1) > 1e-9:
        raise UserError(
            f"split: train, validation and test add up to {sum(fractions.values()):g}, not to 1; "
            "to use fewer rows, set `limits`"
        )
    test, rest = _cut(rows, labels, fractions["test"] * len(rows), seed)
    validation, train = _cut(rest, labels, fractions["validation"] * len(rows), seed)
    return {"train": train, "validation": validation, "test": test}


def _given(parts: Mapping[str, list[Row]], labels: Sequence[str], settings: Mapping[str, Any], seed: int) -> Splits:
    """The dataset's own splits, less what would leak: test is never changed, validation yields to it, train to both."""
    splits = Splits({split: list(parts[split]) for split in SPLITS if split in parts})
    for lesser, greater in (("validation", "test"), ("train", "test"), ("train", "validation")):
        if lesser in splits.rows and greater in splits.rows:
            taken = {normalised(row["text"]) for row in splits.rows[greater]}
            kept = [row for row in splits.rows[lesser] if normalised(row["text"]) not in taken]
            splits.removed[f"{lesser}_in_{greater}"] = len(splits.rows[lesser]) - len(kept)
            splits.rows[lesser] = kept
    if "validation" not in parts:
        fraction = settings["validation"]
        if not fraction or not 0 < fraction < 1:
            raise UserError(
                "split: the dataset comes without a validation split; give `validation`, the fraction of train to use"
            )
        train = splits.rows["train"]
        splits.rows["validation"], splits.rows["train"] = _cut(train, labels, fraction * len(train), seed)
    return splits


def _cut(rows: list[Row], labels: Sequence[str], size: float, seed: int) -> tuple[list[Row], list[Row]]:
    """About `size` rows with the labels in proportion, and the others; groups of duplicates stay whole."""
    wanted = {label: max(share, 1) for label, share in _shares(_count(rows, labels), round(size)).items()}
    strata: dict[str, list[list[Row]]] = defaultdict(list)
    groups = _groups(rows)
    for key in sorted(groups, key=lambda key: _rank(key, seed)):
        # A group with conflicting labels counts as its commonest label, of two as common the first in `labels`.
        counts = _count(groups[key], labels)
        strata[max(labels, key=counts.__getitem__)].append(groups[key])
    chosen, others = [], []
    for label in labels:
        taken = 0
        for group in strata[label]:
            (chosen if taken < wanted[label] else others).extend(group)
            taken += len(group)
    return chosen, others


def _shares(counts: Mapping[str, int], size: int) -> dict[str, int]:
    """`size` divided over the labels in proportion to their counts, by largest remainder, at least 1 where possible."""
    total = sum(counts.values())
    exact = {label: count * size / total if total else 0.0 for label, count in counts.items()}
    shares = {label: int(share) for label, share in exact.items()}
    by_remainder = sorted(counts, key=lambda label: shares[label] - exact[label])  # stable: ties in label order
    for label in by_remainder[: size - sum(shares.values())]:
        shares[label] += 1
    for label, count in counts.items():
        richest = max(shares, key=shares.__getitem__)
        if count and not shares[label] and shares[richest] > 1:
            shares[label], shares[richest] = 1, shares[richest] - 1
    return shares


def _limited(rows: list[Row], labels: Sequence[str], limit: int | None) -> list[Row]:
    """The first `limit` of ordered rows with the labels in proportion."""
    if limit is None or len(rows) <= limit:
        return rows
    left = _shares(_count(rows, labels), limit)
    kept = []
    for row in rows:
        if left[row["label"]]:
            left[row["label"]] -= 1
            kept.append(row)
    return kept


def _require_classes(splits: Splits, labels: Sequence[str], fixed: Sequence[str]) -> None:
    """A class that a split has no row of is an error, unless the data came with that test or validation split so."""
    for split in CHOSEN_FIRST:
        counts = _count(splits.rows[split], labels)
        for label in labels:
            before = splits.before_limits[split][label]
            if counts[label] or (not before and split in fixed and split != "train"):
                continue
            rows = ", ".join(f"{name} {splits.before_limits[name][label]}" for name in SPLITS)
            raise UserError(
                f"split: class {label!r} has too few rows: {split} gets none"
                f"{' within its limit' if before else ''} (rows with duplicates kept together: {rows}); "
                "add rows of it, take it out of the data and `labels`, or raise the fraction or limit"
            )


def draw_rows(rows: Sequence[Row], size: int, seed: int) -> list[Row]:
    """`size` rows with the labels in proportion, one of each at least; those of a smaller size are among them.

    The rows of a label are spread evenly over one order, the first of each label at its head, and the order is cut off.
    """
    counts = Counter(row["label"] for row in rows)
    if not len(counts) <= size <= len(rows):
        raise UserError(f"{size} training rows are asked for, but it takes {len(counts)} to {len(rows)}; change `rows`")
    places: Counter[str] = Counter()
    order = []
    for number, row in enumerate(_ordered(list(rows), seed)):
        order.append((places[row["label"]] / counts[row["label"]], number, row))
        places[row["label"]] += 1
    return [row for *_, row in sorted(order, key=lambda item: item[:2])[:size]]


def _groups(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[normalised(row["text"])].append(row)
    return groups


def _ordered(rows: list[Row], seed: int) -> list[Row]:
    return sorted(rows, key=lambda row: (_rank(normalised(row["text"]), seed), row["text"], row["label"], row["id"]))


def _rank(key: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\n{key}".encode()).digest()


def _count(rows: Iterable[Row], labels: Sequence[str]) -> dict[str, int]:
    counts = Counter(row["label"] for row in rows)
    return {label: counts[label] for label in labels}

"""Split a dataset's rows into train, validation and test.

Reads the rows that prepare_dataset wrote; writes one JSONL file for each split ({"id", "text", "label"}) and a summary
with counts for each label before and after limits, and of duplicates. The same seed gives the same splits whatever the
order of the rows.
"""

import argparse
import json
import logging
from collections import defaultdict
from pathlib import Path

from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_json, write_jsonl
from reprolora.splits import SPLITS, split_rows, summarize


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, required=True, help="the rows to split")
    parser.add_argument("--settings", type=json.loads, required=True, help='JSON: {"split", "labels"}')
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=Path, required=True, help=f"the {split} rows to write")
    parser.add_argument("--summary", type=Path, required=True, help="the counts to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings, labels = args.settings["split"], args.settings["labels"]
    parts: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in read_jsonl(args.rows):
        parts[row.pop("part")].append(row)
    splits = split_rows(parts, labels, settings)
    summary = summarize(splits, parts, labels, settings["seed"])
    for name, count in summary["duplicates"]["removed"].items():
        if count:
            lesser, greater = name.split("_in_")
            logging.warning("removed %d rows from %s because %s has the same text", count, lesser, greater)
    for split, absent in summary["absent_classes"].items():
        if absent:
            logging.warning("%s has no rows of %s; scores on it say nothing about them", split, ", ".join(absent))
    for split in SPLITS:
        write_jsonl(getattr(args, split), splits.rows[split])
    write_json(args.summary, summary)


if __name__ == "__main__":
    run_script(main)

"""Split instructions into train, validation and test.

Reads the rows that check_review or prepare_instructions wrote; writes one JSONL file for each split and a summary with
the counts, the rows that were left out because another split has their instruction, and nearly equal instructions on
both sides of a split. The same seed gives the same splits whatever the order of the rows.
"""

import argparse
import json
import logging
from pathlib import Path

import numpy as np

from reprolora.errors import run_script
from reprolora.files import write_json, write_jsonl
from reprolora.instruction_splits import EXAMPLES, assign, index_rows, near_duplicates, ordered, read_at
from reprolora.splits import SPLITS


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, required=True, help="the rows to split")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: the experiment's `split`")
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=Path, required=True, help=f"the {split} rows to write")
    parser.add_argument("--summary", type=Path, required=True, help="the counts to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = args.settings
    index = index_rows(args.rows, settings["group"], settings["seed"])
    split, removed = assign(index, settings)
    rows = {name: ordered(index, split, number, settings["limits"][name]) for number, name in enumerate(SPLITS)}
    for name, count in removed.items():
        if count:
            lesser, greater = name.split("_in_")
            logging.warning("left %d rows out of %s because %s has the same instruction", count, lesser, greater)
    near = near_duplicates(index, rows)
    for name in SPLITS:
        write_jsonl(getattr(args, name), read_at(args.rows, index, rows[name]))
    write_json(
        args.summary,
        {
            "seed": settings["seed"],
            "group": settings["group"],
            "rows": {name: len(places) for name, places in rows.items()},
            "before_limits": {name: int((split == number).sum()) for number, name in enumerate(SPLITS)},
            "groups": {name: len(np.unique(index.group[places])) for name, places in rows.items()},
            "removed": removed,
            "near_duplicates": {
                name: {
                    "rows": len(pairs),
                    "examples": [
                        [row["instruction"] for row in read_at(args.rows, index, np.array(pair))]
                        for pair in pairs[:EXAMPLES]
                    ],
                }
                for name, pairs in near.items()
            },
        },
    )


if __name__ == "__main__":
    run_script(main)

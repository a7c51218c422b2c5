"""Stop before anything is trained if too many test rows are nearly the same as a row that is learned from.

Reads the rows of every split; writes how many test rows leaked. Above the limit it writes nothing, and says so with
examples in one line.
"""

import argparse
import json
from pathlib import Path

from reprolora import leakage
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_json
from reprolora.splits import SPLITS


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=Path, required=True, help=f"the {split} rows (JSONL)")
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: experiment, audit")
    parser.add_argument("--output", type=Path, required=True, help="the count to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    limits = args.settings["audit"]
    splits = {split: list(read_jsonl(getattr(args, split))) for split in SPLITS}
    pairs = leakage.near_duplicates(splits, limits["near_duplicate_similarity"], of=["test"])
    found = leakage.summarize_leakage(pairs, len(splits["test"]), limits)
    leakage.check_leakage(pairs, found, args.settings["experiment"])
    write_json(args.output, found)


if __name__ == "__main__":
    run_script(main)

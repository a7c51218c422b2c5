"""Audit a split: class balance, lengths, near duplicates within and across splits, labels that may be wrong.

Reads the rows of every split. Writes audit.json with the counts, and two tables for people to read: for each row that
has one, its most similar near duplicate in each split; and the rows whose label is the most doubtful.
"""

import argparse
import json
from pathlib import Path

from threadpoolctl import threadpool_limits

from reprolora import audit, leakage
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_json, write_text
from reprolora.splits import SPLITS


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=Path, required=True, help=f"the {split} rows (JSONL)")
    parser.add_argument(
        "--settings", type=json.loads, required=True, help="JSON: experiment, labels, audit, split_seed"
    )
    parser.add_argument("--audit", type=Path, required=True, help="the counts to write (JSON)")
    parser.add_argument("--near-duplicates", type=Path, required=True, help="the pairs to write (CSV)")
    parser.add_argument("--label-suspects", type=Path, required=True, help="the doubtful labels to write (CSV)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    labels, limits = args.settings["labels"], args.settings["audit"]
    splits = {split: list(read_jsonl(getattr(args, split))) for split in SPLITS}
    pairs = leakage.near_duplicates(splits, limits["near_duplicate_similarity"])
    found = leakage.summarize_leakage(pairs, len(splits["test"]), limits)
    leakage.check_leakage(pairs, found, args.settings["experiment"])
    # The rule asks for one thread; and with one, the sums have one order.
    with threadpool_limits(limits=1):
        counts, suspects = audit.label_suspects(splits, args.settings["split_seed"])
    write_text(args.near_duplicates, pairs.to_csv(index=False, lineterminator="\n"))
    write_text(args.label_suspects, suspects.to_csv(index=False, lineterminator="\n"))
    content = {
        "labels": labels,  # in the order of the dataset, which the counts lose
        "splits": {split: audit.describe(rows, labels) for split, rows in splits.items()},
        "near_duplicates": audit.count_pairs(pairs),
        "contradicting": int((pairs["label"] != pairs["other_label"]).sum()),
        "leakage": found,
        "label_suspects": counts,
    }
    write_json(args.audit, content)


if __name__ == "__main__":
    run_script(main)

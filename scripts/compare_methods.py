"""Compare every pair of an experiment's arms on the rows that all of them answered.

Reads the metrics.json of every arm and the predictions.jsonl beside it; writes a CSV with, for each pair, the
differences in accuracy and macro-F1 with paired bootstrap intervals, McNemar's exact test with Holm's correction,
Cohen's h, the smallest difference that the test could have shown, whether the two are equivalent within the
experiment's margin, and all that in a sentence. Several seeds of a method are pooled (rows of level `method`), and
compared one by one as well (level `seed`).
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from reprolora.arms import read_all_runs
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.statistics import columns, compare_runs


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: margin")
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    runs = read_all_runs(args.metrics)
    table = compare_runs(runs, **args.settings) if runs else pd.DataFrame(columns=columns(["accuracy", "macro_f1"]))
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

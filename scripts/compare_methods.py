"""Compare every pair of an experiment's arms on the rows that all of them answered.

Reads the metrics.json and predictions.jsonl of every arm, given in the same order; writes a CSV with, for each pair,
the differences in accuracy and macro-F1 with paired bootstrap intervals, McNemar's exact test with Holm's correction,
Cohen's h, the smallest difference that the test could have shown, and all that in a sentence. Several seeds of a
method are pooled (rows of level `method`), and compared one by one as well (level `seed`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reprolora.arms import check_same_rows, read_runs
from reprolora.errors import UserError, run_script
from reprolora.files import write_text
from reprolora.statistics import COLUMNS, compare_runs


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--predictions", type=Path, nargs="*", default=[], help="its predictions.jsonl")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def comparison_table(metrics: Sequence[Path], predictions: Sequence[Path]) -> pd.DataFrame:
    """The table; without rows when there are no two arms to compare."""
    if len(metrics) != len(predictions):
        raise UserError(
            f"--metrics has {len(metrics)} files and --predictions {len(predictions)}; give one for each arm"
        )
    runs, files = [], []
    for metrics_file, predictions_file in zip(metrics, predictions, strict=True):
        for run in read_runs(metrics_file, predictions_file):
            runs.append(run)
            files.append(predictions_file)
    if not runs:
        return pd.DataFrame(columns=COLUMNS)
    check_same_rows(runs, files)
    return compare_runs(runs)


def main() -> None:
    args = parse_args()
    table = comparison_table(args.metrics, args.predictions)
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

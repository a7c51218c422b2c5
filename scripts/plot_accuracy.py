"""Draw the accuracy and macro-F1 of each arm with their 95 % intervals.

Reads tables/metrics.csv; writes the figure as PNG and SVG, and the numbers that are drawn as CSV.
"""

import argparse
from pathlib import Path

import pandas as pd

from reprolora.arms import arm_names, read_table
from reprolora.errors import UserError, run_script
from reprolora.figures import draw_accuracy, save, save_table

COLUMNS = ["split", "n", "accuracy", "accuracy_low", "accuracy_high", "macro_f1", "macro_f1_low", "macro_f1_high"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, required=True, help="the table of metrics (CSV)")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def accuracy_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """What is drawn: the arms that have scores, with their names."""
    scored = metrics[metrics["accuracy"].notna()].reset_index(drop=True)
    return scored.assign(name=arm_names(scored))[["name", "model", "method", "seed", "mode", *COLUMNS]]


def main() -> None:
    args = parse_args()
    table = accuracy_table(read_table(args.metrics))
    if table.empty:
        raise UserError(f"{args.metrics}: every arm failed, so there is nothing to draw; its status column says where")
    save_table(table, args.csv)
    save(draw_accuracy(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

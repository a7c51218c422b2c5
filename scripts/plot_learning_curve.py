"""Draw accuracy and macro-F1 over the number of training rows, with their 95 % intervals.

Reads the metrics.json of the curve's points and of the arms on all training rows, the predictions.jsonl beside each,
and the split's summary.json, which says how many rows are all. Writes the figure as PNG and SVG, and the numbers that
are drawn as CSV.
"""

import argparse
from pathlib import Path

from reprolora.arms import read_all_runs, read_arms
from reprolora.errors import run_script
from reprolora.figures import save, save_table
from reprolora.files import read_json
from reprolora.learning_curve import draw_learning_curve, learning_curve_table


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="+", required=True, help="metrics.json of each arm")
    parser.add_argument("--split", type=Path, required=True, help="the split's summary.json")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    table = learning_curve_table(
        read_arms(args.metrics), read_all_runs(args.metrics), read_json(args.split)["rows"]["train"]
    )
    save_table(table, args.csv)
    save(draw_learning_curve(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

"""Draw domain accuracy, text scores and loss of each method with 95 % intervals, and a dot for each of several seeds.

Reads tables/metrics.csv and tables/metrics_pooled.csv of an instruction experiment; writes the figure as PNG and SVG,
and the numbers that are drawn as CSV.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from reprolora.answer_figures import MEASURES, draw_answers
from reprolora.arms import ALL_SEEDS, CONTENDER, arm_names, read_table
from reprolora.errors import UserError, run_script
from reprolora.figures import save, save_table

SCORES = [f"{measure}{end}" for measure in MEASURES for end in ("", "_low", "_high")]
COLUMNS = ["name", *CONTENDER, "seed", "split", "n", "n_choices", "documents", "chance", *SCORES]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: distractors")
    parser.add_argument("--metrics", type=Path, required=True, help="the table of metrics (CSV)")
    parser.add_argument("--pooled", type=Path, required=True, help="the table of metrics with pooled seeds (CSV)")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def scores_table(metrics: pd.DataFrame, pooled: pd.DataFrame, distractors: int) -> pd.DataFrame:
    """What is drawn: each method with its seeds pooled (seed `all`), and where there are several, their own scores."""
    methods = pooled.assign(seed=ALL_SEEDS)
    methods["name"] = arm_names(methods)
    several = methods.loc[methods["seeds"] > 1, [*CONTENDER, "name"]]
    table = pd.concat([methods, metrics.merge(several, on=CONTENDER)], ignore_index=True)
    return table.assign(chance=round(1 / (1 + distractors), 6))[COLUMNS]


def main() -> None:
    args = parse_args()
    table = scores_table(read_table(args.metrics), read_table(args.pooled), **args.settings)
    if table.empty:
        raise UserError(f"{args.metrics}: every arm failed, so there is nothing to draw; its status column says where")
    save_table(table, args.csv)
    save(draw_answers(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

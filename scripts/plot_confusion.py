"""Draw the confusion matrix of each arm, row by row as shares of the true class, with the counts.

Reads every arm's metrics.json; writes the figure as PNG and SVG, and the numbers that are drawn as CSV.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from reprolora.arms import KEY, arm_names, read_arms
from reprolora.errors import run_script
from reprolora.figures import draw_confusion, save, save_table
from reprolora.rounding import DIGITS


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="+", required=True, help="metrics.json of each arm")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def confusion_table(metrics: Sequence[dict]) -> pd.DataFrame:
    """One row for each cell of each arm's matrix; the counts of several seeds are added up."""
    scored = [(content["arm"], mode, scores) for content in metrics for mode, scores in content["modes"].items()]
    arms = pd.DataFrame([{key: arm[key] for key in KEY} | {"mode": mode} for arm, mode, _ in scored])
    arms["name"] = arm_names(arms, drop=["seed"])
    tables = []
    for name, group in arms.groupby("name", sort=False):
        confusions = [scored[index][2]["confusion"] for index in group.index]
        matrix = np.sum([confusion["matrix"] for confusion in confusions], axis=0)
        rows = np.maximum(1, matrix.sum(axis=1, keepdims=True))
        table = pd.DataFrame(matrix, index=confusions[0]["labels"], columns=confusions[0]["predicted"])
        table = table.rename_axis("label").melt(var_name="predicted", value_name="count", ignore_index=False)
        table = table.reset_index().assign(share=(matrix / rows).round(DIGITS).T.ravel())
        first = group.iloc[0]
        arm = {"name": name, "model": first["model"], "method": first["method"], "mode": first["mode"]}
        accuracy = round(float(np.trace(matrix) / matrix.sum()), DIGITS)
        tables.append(pd.DataFrame([arm | {"seeds": len(group), "accuracy": accuracy}]).join(table, how="cross"))
    return pd.concat(tables, ignore_index=True)


def main() -> None:
    args = parse_args()
    table = confusion_table(read_arms(args.metrics))
    save_table(table, args.csv)
    save(draw_confusion(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

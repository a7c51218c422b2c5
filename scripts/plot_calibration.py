"""Draw how well each arm's confidence says how often it is right.

Reads every arm's metrics.json; writes the figure as PNG and SVG, and the numbers that are drawn as CSV. Arms that give
no probabilities are left out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reprolora.arms import KEY, arm_names, read_arms
from reprolora.errors import UserError, run_script
from reprolora.figures import draw_calibration, save, save_table

COLUMNS = ["name", "model", "method", "mode", "seeds", "ece", "low", "high", "n", "share", "confidence", "accuracy"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="+", required=True, help="metrics.json of each arm")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def calibration_table(metrics: Sequence[dict]) -> pd.DataFrame:
    """One row for each bin of each arm; the answers of several seeds are put together, their errors averaged."""
    scored = [
        (content["arm"], mode, scores["calibration"])
        for content in metrics
        for mode, scores in content["modes"].items()
        if "calibration" in scores
    ]
    if not scored:
        return pd.DataFrame(columns=COLUMNS)
    arms = pd.DataFrame([{key: arm[key] for key in KEY} | {"mode": mode} for arm, mode, _ in scored])
    arms["name"] = arm_names(arms, drop=["seed"])
    tables = []
    for name, group in arms.groupby("name", sort=False):
        found = [scored[index][2] for index in group.index]
        bins = pd.concat([pd.DataFrame(calibration["bins"]) for calibration in found])
        # An empty bin has no means; among those that are summed it counts for nothing.
        sums = bins.assign(**{key: bins[key].astype(float).fillna(0) * bins["n"] for key in ("confidence", "accuracy")})
        table = sums.groupby(["low", "high"], sort=False).sum().reset_index()
        filled = table["n"].where(table["n"] > 0)
        table = table.assign(
            share=table["n"] / table["n"].sum(),
            confidence=table["confidence"] / filled,
            accuracy=table["accuracy"] / filled,
        ).round(6)
        arm = {"name": name, **group.iloc[0][["model", "method", "mode"]]}
        ece = round(sum(calibration["ece"] for calibration in found) / len(found), 6)
        tables.append(table.assign(**arm, seeds=len(group), ece=ece))
    return pd.concat(tables, ignore_index=True)[COLUMNS]


def main() -> None:
    args = parse_args()
    table = calibration_table(read_arms(args.metrics))
    if table.empty:
        raise UserError("no arm gives probabilities, so there is nothing to draw; add `likelihood` to evaluation.modes")
    save_table(table, args.csv)
    save(draw_calibration(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

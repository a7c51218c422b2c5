"""Draw the peak memory and the time of each trained arm, for loading, training and evaluating apart.

Reads tables/resources.csv; writes the figure as PNG and SVG, and the numbers that are drawn as CSV.
"""

import argparse
from pathlib import Path

import pandas as pd

from reprolora.arms import KEY, arm_names, read_table
from reprolora.errors import UserError, run_script
from reprolora.figures import draw_resources, save, save_table

PHASES = {
    "memory": {
        "model_bytes": "base weights alone",
        "train_load_peak_bytes": "load to train",
        "train_peak_bytes": "train",
        "evaluate_load_peak_bytes": "load to evaluate",
        "evaluate_peak_bytes": "evaluate",
    },
    "time": {
        "train_load_seconds": "load to train",
        "train_seconds": "train",
        "evaluate_load_seconds": "load to evaluate",
        "evaluate_seconds": "evaluate",
    },
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resources", type=Path, required=True, help="the table of resources (CSV)")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def phases_table(resources: pd.DataFrame) -> pd.DataFrame:
    """One row for each arm that trained an adapter, quantity and phase, in bytes or seconds."""
    trained = resources[resources["adapter_bytes"].notna()].reset_index(drop=True)
    trained = trained.assign(name=arm_names(trained, drop=["seed"]))
    rows = [
        {"name": arm["name"], **{key: arm[key] for key in KEY}, "quantity": quantity, "phase": phase,
         "value": arm[column]}
        for arm in trained.to_dict("records")
        for quantity, columns in PHASES.items()
        for column, phase in columns.items()
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=["name", *KEY, "quantity", "phase", "value"])


def main() -> None:
    args = parse_args()
    table = phases_table(read_table(args.resources))
    if table.empty:
        raise UserError(f"{args.resources}: no arm trained an adapter, so there is nothing to draw")
    save_table(table, args.csv)
    save(draw_resources(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

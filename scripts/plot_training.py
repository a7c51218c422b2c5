"""Draw the training loss, the validation loss and the learning rate over the steps of each trained arm.

Reads every trained arm's training_log.jsonl and the training.json beside it; writes the figure as PNG and SVG, and the
numbers that are drawn as CSV.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reprolora.arms import KEY, arm_names, read_arms
from reprolora.errors import run_script
from reprolora.figures import draw_training, save, save_table
from reprolora.files import read_jsonl

COLUMNS = ["step", "epoch", "loss", "validation_loss", "learning_rate"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=Path, nargs="+", required=True, help="training_log.jsonl of each trained arm")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def training_table(trainings: Sequence[dict], logs: Sequence[Sequence[dict]]) -> pd.DataFrame:
    """One row for each record of each arm's log; `best` marks the validation whose adapter was kept."""
    arms = pd.DataFrame([{key: training["arm"][key] for key in KEY} for training in trainings])
    tables = []
    for name, arm, training, records in zip(
        arm_names(arms, drop=["seed"]), arms.to_dict("records"), trainings, logs, strict=True
    ):
        table = pd.DataFrame(records).reindex(columns=COLUMNS)
        table["best"] = (table["step"] == training["best_step"]) & table["validation_loss"].notna()
        for column, value in reversed({"name": name, **arm}.items()):
            table.insert(0, column, value)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def main() -> None:
    args = parse_args()
    trainings = read_arms(file.with_name("training.json") for file in args.logs)
    table = training_table(trainings, [list(read_jsonl(file)) for file in args.logs])
    save_table(table, args.csv)
    save(draw_training(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

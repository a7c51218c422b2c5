"""Select, for each model and method that a sweep varies, the candidate with the best validation loss.

Reads the training.json of every candidate that was trained and the failure.json of every one that failed. Writes
tables/sweep.csv: a row for each candidate and seed, with the mean over the seeds by which one candidate is selected.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reprolora.arms import read_arms
from reprolora.errors import UserError, run_script
from reprolora.files import write_text

GROUP = ["model", "method"]
COLUMNS = [
    *GROUP,
    "candidate",
    "seed",
    "validation_loss",
    "mean_validation_loss",
    "selected",
    "trainable_parameters",
    "train_rows",
    "best_step",
    "status",
]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--training", type=Path, nargs="*", default=[], help="training.json of each trained candidate")
    parser.add_argument("--failures", type=Path, nargs="*", default=[], help="failure.json of each failed candidate")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def sweep_table(trainings: Sequence[dict], failures: Sequence[dict]) -> pd.DataFrame:
    """The table, models and methods in the order of the trainings, of each the best candidate first.

    The loss is that of the adapter which the training kept. A candidate that failed with one of the seeds has no mean
    and is not selected. Of equal means the smaller adapter wins, then the first name.
    """
    rows = [
        {
            **_key(training["arm"]),
            "validation_loss": training["best_validation_loss"],
            "trainable_parameters": training["actual"]["trainable_parameters"],
            "train_rows": training["train_rows"],
            "best_step": training["best_step"],
            "status": "ok",
        }
        for training in trainings
    ]
    rows += [{**_key(failure["arm"]), "status": f"failed in {failure['stage']}"} for failure in failures]
    integers = dict.fromkeys(("trainable_parameters", "train_rows", "best_step"), "Int64")
    table = pd.DataFrame(rows, columns=COLUMNS).astype(integers)
    losses = table.groupby([*GROUP, "candidate"])["validation_loss"]
    means = losses.transform(lambda values: values.mean(skipna=False))
    table = table.assign(mean_validation_loss=means, sweep=table.groupby(GROUP, sort=False).ngroup())
    table = table.sort_values(["sweep", "mean_validation_loss", "trainable_parameters", "candidate", "seed"])
    best = table.dropna(subset="mean_validation_loss").groupby("sweep")["candidate"].first()
    table["selected"] = table["candidate"] == table["sweep"].map(best)
    return table[COLUMNS]


def _key(arm: dict) -> dict:
    return {"model": arm["model"], "method": arm["method"], "candidate": arm["variant"], "seed": arm["seed"]}


def main() -> None:
    args = parse_args()
    trainings = read_arms(args.training)
    for file, training in zip(args.training, trainings, strict=True):
        if training["best_validation_loss"] is None:
            raise UserError(f"{file}: no validation loss was measured; raise training.epochs or evaluations_per_epoch")
    table = sweep_table(trainings, read_arms(args.failures))
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

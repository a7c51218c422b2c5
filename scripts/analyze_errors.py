"""Collect what the arms of an experiment get wrong, for people to look at.

Reads the metrics.json of every arm and the predictions.jsonl beside it. Writes four tables: the worst
mistakes of each arm, the rows to which arms give different answers, the accuracy for each class and length, and the
calibration of the arms that give probabilities. The seeds of a method are put together, except in the calibration.
"""

import argparse
from pathlib import Path

import pandas as pd

from reprolora.arms import predictions_of, read_all_runs, read_arms
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_text
from reprolora.mistakes import (
    BREAKDOWN,
    DISAGREEMENTS,
    MISTAKES,
    breakdown_table,
    calibration_table,
    contenders,
    disagreements_table,
    mistakes_table,
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    for table in ("mistakes", "disagreements", "breakdown", "calibration"):
        parser.add_argument(f"--{table}", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    runs = read_all_runs(args.metrics)
    tables = {
        "mistakes": pd.DataFrame(columns=MISTAKES),
        "disagreements": pd.DataFrame(columns=[*DISAGREEMENTS, "text"]),
        "breakdown": pd.DataFrame(columns=BREAKDOWN),
    }
    if runs:
        text_of = {row["id"]: row["text"] for row in read_jsonl(predictions_of(args.metrics[0]))}
        texts = [text_of[identity] for identity in runs[0].ids]
        found = contenders(runs)
        tables = {
            "mistakes": mistakes_table(found, runs[0], texts),
            "disagreements": disagreements_table(found, runs[0], texts),
            "breakdown": breakdown_table(found, runs[0], texts),
        }
    tables["calibration"] = calibration_table(read_arms(args.metrics))
    for name, table in tables.items():
        write_text(getattr(args, name), table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

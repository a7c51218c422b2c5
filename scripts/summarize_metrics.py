"""Collect the metrics of an experiment's arms in one table: a row for each arm and mode, failed arms last.

Reads the metrics.json of every arm that was evaluated and the failure.json of every arm that failed; writes a CSV.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reprolora.arms import KEY, read_arms
from reprolora.errors import run_script
from reprolora.files import write_text

SCORES = [
    "n",
    "accuracy",
    "accuracy_low",
    "accuracy_high",
    "macro_f1",
    "macro_f1_low",
    "macro_f1_high",
    "weighted_f1",
    "invalid_rate",
]
COLUMNS = [*KEY, "mode", "split", *SCORES, "status"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--failures", type=Path, nargs="*", default=[], help="failure.json of each failed arm")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def metrics_table(metrics: Sequence[dict], failures: Sequence[dict]) -> pd.DataFrame:
    """The table; a failed arm has a row without scores, whose status says where it failed."""
    rows = [
        {
            **{key: content["arm"][key] for key in KEY},
            "mode": mode,
            "split": content["split"],
            **{key: scores[key] for key in SCORES},
            "status": "ok",
        }
        for content in metrics
        for mode, scores in content["modes"].items()
    ]
    rows += [
        {**{key: content["arm"][key] for key in KEY}, "status": f"failed in {content['stage']}"} for content in failures
    ]
    return pd.DataFrame(rows, columns=COLUMNS).astype({"n": "Int64"})


def main() -> None:
    args = parse_args()
    table = metrics_table(read_arms(args.metrics), read_arms(args.failures))
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

"""Collect the metrics of an experiment's arms in two tables.

Reads the metrics.json of every arm that was evaluated, the predictions.jsonl beside it, and the failure.json of every
arm that failed. Writes two CSV files: one row for each arm and mode, failed arms last; and one row for each method with
its seeds pooled, which has the mean and the standard deviation over seeds and the 95 % interval of the hierarchical
bootstrap. An arm without other seeds keeps its own intervals there.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from reprolora.arms import CONTENDER, KEY, Run, failed_rows, group_runs, identity, read_all_runs, read_arms
from reprolora.bootstrap import pooled_estimates
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.rounding import DIGITS

MEASURES = ["accuracy", "macro_f1"]
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
COLUMNS = [*KEY, "mode", "split", "split_seed", *SCORES, "status"]
POOLED_COLUMNS = [
    *CONTENDER,
    "seeds",
    "split",
    "split_seed",
    "n",
    *(f"{measure}{part}" for measure in MEASURES for part in ("", "_sd", "_low", "_high")),
    "weighted_f1",
    "invalid_rate",
]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--failures", type=Path, nargs="*", default=[], help="failure.json of each failed arm")
    parser.add_argument("--output", type=Path, required=True, help="the table of arms to write (CSV)")
    parser.add_argument("--pooled", type=Path, required=True, help="the table with pooled seeds to write (CSV)")
    return parser.parse_args()


def metrics_table(metrics: Sequence[dict], failures: Sequence[dict]) -> pd.DataFrame:
    """The table of arms; a failed arm has a row without scores, whose status says where it failed."""
    rows = [
        {
            **identity(content),
            "mode": mode,
            "split": content["split"],
            **{key: scores[key] for key in SCORES},
            "status": "ok",
        }
        for content in metrics
        for mode, scores in content["modes"].items()
    ]
    return pd.DataFrame(rows + failed_rows(failures), columns=COLUMNS).astype({"n": "Int64"})


def pooled_table(table: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """One row for each model, method and mode of the table of arms; `runs` has the answers of those with several seeds.

    `accuracy` and `macro_f1` are means over seeds, and `_sd` their standard deviations, empty for a single seed.
    """
    arms = table[table["status"] == "ok"]
    groups = arms.groupby(CONTENDER, sort=False)
    pooled = groups.first()
    pooled["seeds"] = groups.size()
    means = [*MEASURES, "weighted_f1", "invalid_rate"]
    pooled[means] = groups[means].mean().round(DIGITS)
    pooled[[f"{measure}_sd" for measure in MEASURES]] = groups[MEASURES].std().round(DIGITS)
    several = set(pooled.index[pooled["seeds"] > 1])
    chosen = [run for run in runs if (run.model, run.method, run.mode) in several]
    members = group_runs(chosen)
    if members:
        for measure, estimates in pooled_estimates(chosen, list(members.values())).items():
            for end in ("low", "high"):
                pooled.loc[list(members), f"{measure}_{end}"] = getattr(estimates, end).clip(0, 1).round(DIGITS)
    return pooled.reset_index()[POOLED_COLUMNS]


def main() -> None:
    args = parse_args()
    table = metrics_table(read_arms(args.metrics), read_arms(args.failures))
    several_seeds = table.duplicated(CONTENDER).any()
    runs = read_all_runs(args.metrics) if several_seeds else []
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))
    write_text(args.pooled, pooled_table(table, runs).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

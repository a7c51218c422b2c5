"""Collect the scores of an instruction experiment's arms in two tables.

Reads the metrics.json of every arm that was evaluated and the predictions.jsonl beside it, and the failure.json of
every arm that failed. Writes two CSV files: one row for each arm, failed arms last; and one row for each method with
its seeds pooled. Scores have 95 % intervals over the documents that the rows are from, where that is known, or else
over rows: Wilson's for domain accuracy and exact match of one arm, the (hierarchical) bootstrap for the rest.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.answer_runs import MODE, Answers, read_all_answers
from reprolora.answer_statistics import SCORES, intervals, score_answers
from reprolora.arms import CONTENDER, KEY, failed_rows, group_runs, identity, read_arms
from reprolora.bootstrap import Scores, pool_seeds
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.rounding import DIGITS

COUNTS = ["n", "n_choices", "documents"]
COLUMNS = [
    *KEY,
    "mode",
    "split",
    "split_seed",
    *COUNTS,
    *(f"{score}{end}" for score in SCORES for end in ("", "_low", "_high")),
    "finished",
    "status",
]
POOLED_COLUMNS = [
    *CONTENDER,
    "seeds",
    "split",
    "split_seed",
    *COUNTS,
    *(f"{score}{part}" for score in SCORES for part in ("", "_sd", "_low", "_high")),
    "finished",
]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: by_document")
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--failures", type=Path, nargs="*", default=[], help="failure.json of each failed arm")
    parser.add_argument("--output", type=Path, required=True, help="the table of arms to write (CSV)")
    parser.add_argument("--pooled", type=Path, required=True, help="the table with pooled seeds to write (CSV)")
    return parser.parse_args()


def arms_table(
    metrics: Sequence[dict[str, Any]], runs: Sequence[Answers], scores: Scores | None, failures: Sequence[dict]
) -> pd.DataFrame:
    """The table of arms; a failed arm has a row without scores, whose status says where it failed."""
    rows = [
        {
            **identity(content),
            "mode": MODE,
            "split": content["split"],
            "n": len(run.ids),
            "n_choices": int(run.has_choice.sum()),
            "documents": len(set(run.documents)),
            "finished": run.finished.mean(),
            "status": "ok",
        }
        for content, run in zip(metrics, runs, strict=True)
    ]
    table = pd.DataFrame(rows).assign(**(intervals(scores, len(runs[0].ids)) if scores else {}))
    table = pd.concat([table, pd.DataFrame(failed_rows(failures))]) if failures else table
    return table.reindex(columns=COLUMNS).round(DIGITS).astype(dict.fromkeys(COUNTS, "Int64"))


def pooled_table(table: pd.DataFrame, runs: Sequence[Answers], scores: Scores | None) -> pd.DataFrame:
    """One row for each method; `_sd` is the standard deviation over its seeds, empty for a single seed.

    A method of one seed keeps that arm's own intervals.
    """
    groups = table[table["status"] == "ok"].groupby(CONTENDER, sort=False)
    pooled = groups.first()
    pooled["seeds"] = groups.size()
    pooled["finished"] = groups["finished"].mean()
    pooled[[f"{score}_sd" for score in SCORES]] = groups[list(SCORES)].std()
    members = {name: group for name, group in group_runs(runs).items() if len(group) > 1}
    if members:
        columns = intervals(pool_seeds(scores, list(members.values())), len(runs[0].ids))
        for name, values in columns.items():
            pooled.loc[list(members), name] = values
    return pooled.reset_index()[POOLED_COLUMNS].round(DIGITS)


def main() -> None:
    args = parse_args()
    runs = read_all_answers(args.metrics)
    scores = score_answers(runs, **args.settings) if runs else None
    table = arms_table(read_arms(args.metrics), runs, scores, read_arms(args.failures))
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))
    write_text(args.pooled, pooled_table(table, runs, scores).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

"""Compare every pair of an instruction experiment's arms on the rows that all of them answered.

Reads the metrics.json of every arm and the predictions.jsonl beside it; writes a CSV with, for each pair, the
differences of all scores with paired bootstrap intervals, an exact test of the difference in domain accuracy with
Holm's correction (McNemar's, or its like for rows that come from documents), Cohen's h, the smallest difference that
the test could have shown, whether the two are equivalent within the experiment's margin, and all that in a sentence.
Several seeds of a method are pooled (rows of level `method`), and compared one by one as well (level `seed`).
"""

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd

from reprolora.answer_runs import read_all_answers
from reprolora.answer_statistics import MEASURES, score_answers
from reprolora.errors import run_script
from reprolora.files import write_text
from reprolora.statistics import OF_MEASURE, columns, compare_scores


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", type=json.loads, required=True, help="JSON: by_document, margin")
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    runs, table = read_all_answers(args.metrics), pd.DataFrame(columns=columns(MEASURES))
    if runs:
        scores = score_answers(runs, by_document=args.settings["by_document"])
        table = compare_scores(runs, scores, margin=args.settings["margin"])
        # Another model's tokens are others, and so is a loss per token.
        others = table["model_a"] != table["model_b"]
        table.loc[others, [f"loss_{part}" for part in OF_MEASURE if part.startswith("difference")]] = np.nan
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

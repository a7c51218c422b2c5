"""Draw how each document's answers changed by fine-tuning: ROUGE-L and loss before and after.

Reads the metrics.json of every arm of an instruction experiment and the predictions.jsonl beside it; writes the
figure as PNG and SVG, and the numbers that are drawn as CSV. Seeds of a method are averaged. Where the rows are not
known to be from documents, each row is drawn by itself.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from reprolora.answer_figures import draw_changes
from reprolora.answer_runs import Answers, read_all_answers
from reprolora.arms import ALL_SEEDS, arm_names, group_runs
from reprolora.errors import UserError, run_script
from reprolora.figures import save, save_table
from reprolora.rounding import DIGITS

COLUMNS = ["name", "model", "method", "unit", "n", "rouge_l_before", "rouge_l_after", "loss_before", "loss_after"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--settings", type=json.loads, required=True, help="JSON: before (the methods that do not train), by_document"
    )
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def by_unit(runs: Sequence[Answers], by_document: bool) -> pd.DataFrame:
    """ROUGE-L and the loss per token of each document, or else of each row, averaged over the runs."""
    parts = []
    for run in runs:
        rows = pd.DataFrame(
            {
                "unit": run.documents if by_document else run.ids,
                "n": 1,
                "rouge_l": run.scores["rouge_l"],
                "nats": run.loss,
                "tokens": run.tokens,
            }
        )
        sums = rows.groupby("unit", sort=False).sum()
        parts.append(sums.assign(rouge_l=sums["rouge_l"] / sums["n"], loss=sums["nats"] / sums["tokens"]))
    return sum(parts)[["n", "rouge_l", "loss"]] / len(parts)


def changes_table(runs: Sequence[Answers], before: Sequence[str], by_document: bool) -> pd.DataFrame:
    """One row for each method that was trained and document: its scores, and those of the same model before."""
    groups = group_runs(runs)
    trained = [key for key in groups if key[1] not in before]
    names = arm_names(pd.DataFrame(trained, columns=["model", "method", "mode"]).assign(seed=ALL_SEEDS))
    tables = []
    for name, (model, method, mode) in zip(names, trained, strict=True):
        first = next((groups[key] for key in groups if key[0] == model and key[1] in before), None)
        if first is None:
            continue
        old, new = (
            by_unit([runs[k] for k in members], by_document) for members in (first, groups[model, method, mode])
        )
        scores = ["rouge_l", "loss"]
        joined = old[scores].add_suffix("_before").join(new[scores].add_suffix("_after")).join(old["n"]).reset_index()
        tables.append(joined.assign(name=name, model=model, method=method, n=np.rint(joined["n"]).astype(int)))
    return pd.concat(tables, ignore_index=True)[COLUMNS].round(DIGITS) if tables else pd.DataFrame(columns=COLUMNS)


def main() -> None:
    args = parse_args()
    table = changes_table(read_all_answers(args.metrics), **args.settings)
    if table.empty:
        raise UserError("--metrics: no adapter with the same model before fine-tuning, so there is no change to draw")
    save_table(table, args.csv)
    save(draw_changes(table, args.settings["by_document"]), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

"""Put the answers of an instruction experiment's arms side by side: before fine-tuning, and after.

Reads the metrics.json of every arm and the predictions.jsonl beside it; writes a CSV with one row for each test row:
the instruction, its input and the reference, and of each arm the answer and its scores. Arms before fine-tuning come
first.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.answer_runs import TEXT_SCORES, column_of, read_all_answers
from reprolora.arms import KEY, arm_names, predictions_of
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_text

ROW = ["id", "document", "instruction", "input", "reference"]
OF_ARM = ["answer", "finished", "correct", *TEXT_SCORES, "loss"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--settings", type=json.loads, required=True, help="JSON: before, the methods that do not train"
    )
    parser.add_argument("--metrics", type=Path, nargs="*", default=[], help="metrics.json of each evaluated arm")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def of_arm(row: dict[str, Any]) -> list[Any]:
    """What one arm said to a row, by OF_ARM; the loss is that of the reference, per token."""
    loss = round(row["reference_loss"] / row["reference_tokens"], 6)
    return [row["answer"], row["finished"], row["correct"], *(row["scores"][name] for name in TEXT_SCORES), loss]


def answers_table(files: Sequence[Path], names: Sequence[str]) -> pd.DataFrame:
    """The table; the columns of an arm are called `answer of NAME` and so on."""
    columns: dict[str, list] = {name: [] for name in ROW}
    for number, (file, name) in enumerate(zip(files, names, strict=True)):
        rows = list(read_jsonl(file))
        if number == 0:
            columns = {key: [row[key] for row in rows] for key in ROW}
        said = zip(*map(of_arm, rows), strict=True)
        columns |= {column_of(what, name): list(values) for what, values in zip(OF_ARM, said, strict=True)}
    return pd.DataFrame(columns)


def main() -> None:
    args = parse_args()
    arms = read_all_answers(args.metrics)
    table = pd.DataFrame([{key: getattr(arm, key) for key in KEY} for arm in arms], columns=KEY)
    named = sorted(
        zip(arms, arm_names(table), args.metrics, strict=True),
        key=lambda it: it[0].method not in args.settings["before"],
    )
    answers = answers_table([predictions_of(file) for _, _, file in named], [name for _, name, _ in named])
    write_text(args.output, answers.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

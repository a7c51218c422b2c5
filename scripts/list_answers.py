"""Put the answers of an instruction experiment's arms side by side: before fine-tuning, and after.

Reads predictions.jsonl (and metrics.json, which says the arm) in the folder of every arm; writes a CSV with one row for
each test row: the instruction, its input and the reference, and of each arm the answer and its scores. Arms before
fine-tuning come first.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.answer_runs import TEXT_SCORES, column_of, read_all_answers
from reprolora.arms import KEY, arm_names
from reprolora.errors import run_script
from reprolora.files import read_jsonl, write_text

ROW = ["id", "document", "instruction", "input", "reference"]
OF_ARM = ["answer", "finished", "correct", *TEXT_SCORES, "loss"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--settings", type=json.loads, required=True, help="JSON: before, the methods that do not train"
    )
    parser.add_argument("--arms", type=Path, nargs="*", default=[], help="folder of each evaluated arm")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def of_arm(row: dict[str, Any]) -> list[Any]:
    """What one arm said to a row, by OF_ARM; the loss is that of the reference, per token."""
    loss = round(row["reference_loss"] / row["reference_tokens"], 6)
    return [row["answer"], row["finished"], row["correct"], *(row["scores"][name] for name in TEXT_SCORES), loss]


def answers_table(folders: Sequence[Path], names: Sequence[str]) -> pd.DataFrame:
    """The table; the columns of an arm are called `answer of NAME` and so on."""
    columns: dict[str, list] = {name: [] for name in ROW}
    for number, (folder, name) in enumerate(zip(folders, names, strict=True)):
        rows = list(read_jsonl(folder / "predictions.jsonl"))
        if number == 0:
            columns = {key: [row[key] for row in rows] for key in ROW}
        said = zip(*map(of_arm, rows), strict=True)
        columns |= {column_of(what, name): list(values) for what, values in zip(OF_ARM, said, strict=True)}
    return pd.DataFrame(columns)


def main() -> None:
    args = parse_args()
    arms = read_all_answers(args.arms)
    table = pd.DataFrame([{key: getattr(arm, key) for key in KEY} for arm in arms], columns=KEY)
    named = sorted(
        zip(arms, arm_names(table), args.arms, strict=True), key=lambda it: it[0].method not in args.settings["before"]
    )
    answers = answers_table([folder for _, _, folder in named], [name for _, name, _ in named])
    write_text(args.output, answers.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

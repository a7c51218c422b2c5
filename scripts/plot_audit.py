"""Draw the class balance of each split, and how long its rows are.

Reads the split's audit.json and the prompts.json of each model; writes the figure as PNG and SVG, and the numbers that
are drawn as CSV. Lengths are in tokens of each model; without a model, in characters.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.errors import run_script
from reprolora.figures import draw_audit, save, save_table
from reprolora.files import read_json
from reprolora.splits import SPLITS

COLUMNS = ["quantity", "model", "split", "label", "low", "high", "count", "share"]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audit", type=Path, required=True, help="the split's audit.json")
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], help="prompts.json in each model's folder")
    parser.add_argument("--png", type=Path, required=True, help="the figure to write")
    parser.add_argument("--svg", type=Path, required=True, help="the figure to write")
    parser.add_argument("--csv", type=Path, required=True, help="the data of the figure, to write")
    return parser.parse_args()


def audit_table(audit: Mapping[str, Any], prompts: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    """What is drawn: a row for each class and for each bin of lengths, of each split. `prompts` are by model."""
    rows = [
        {"quantity": "class", "split": split, "label": label, "count": count, "share": count / counts["rows"]}
        for split, counts in ((split, audit["splits"][split]) for split in SPLITS)
        for label, count in ((label, counts["labels"][label]) for label in audit["labels"])
    ]
    histograms = {
        ("tokens", model): {split: counts["histogram"] for split, counts in content["splits"].items()}
        for model, content in prompts.items()
    } or {("characters", None): {split: it["characters"]["histogram"] for split, it in audit["splits"].items()}}
    rows += [
        {
            **{"quantity": quantity, "model": model, "split": split},
            **{"low": low, "high": high, "count": count, "share": count / sum(bins["counts"])},
        }
        for (quantity, model), splits in histograms.items()
        for split, bins in ((split, splits[split]) for split in SPLITS)
        for low, high, count in zip(bins["edges"][:-1], bins["edges"][1:], bins["counts"], strict=True)
    ]
    return pd.DataFrame(rows, columns=COLUMNS).round({"share": 6})


def main() -> None:
    args = parse_args()
    prompts = {file.parent.name: read_json(file) for file in args.prompts}
    table = audit_table(read_json(args.audit), prompts)
    save_table(table, args.csv)
    save(draw_audit(table), args.png, args.svg)


if __name__ == "__main__":
    run_script(main)

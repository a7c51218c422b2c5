"""Collect what each arm of an experiment took: time, peak memory, energy, sizes and cost, one row for each arm.

Reads resources_evaluate.json of every arm that was evaluated and resources_train.json of every arm that was trained,
and beside them metrics.json and training.json, which say the arm. Writes a CSV. Loading, training and evaluating are
apart: each has its own time and its own peak.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reprolora.arms import KEY, read_arms
from reprolora.errors import run_script
from reprolora.files import read_json, write_text

MEASURES = ["seconds", "peak_bytes", "reserved_bytes", "energy_kwh"]
SECONDS = ["train_load_seconds", "train_seconds", "evaluate_load_seconds", "evaluate_seconds"]
COLUMNS = [
    *KEY,
    "device",
    "threads",
    "trainable_parameters",
    "base_parameters",
    "model_bytes",
    "adapter_bytes",
    *(f"train_load_{measure}" for measure in MEASURES),
    *(f"train_{measure}" for measure in MEASURES),
    "train_examples",
    "train_tokens",
    "train_examples_per_second",
    "seconds_per_step",
    *(f"evaluate_load_{measure}" for measure in MEASURES),
    *(f"evaluate_{measure}" for measure in MEASURES),
    "evaluate_examples",
    "evaluate_examples_per_second",
    "total_seconds",
    "energy_kwh",
    "energy_basis",
    "price_per_hour",
    "cost_usd",
]
WHOLE = [name for name in COLUMNS if name.endswith(("bytes", "parameters", "examples", "tokens", "threads"))]
ARM = tuple[str, str, int]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--evaluate", type=Path, nargs="*", default=[], help="resources_evaluate.json of each arm")
    parser.add_argument("--train", type=Path, nargs="*", default=[], help="resources_train.json of each trained arm")
    parser.add_argument("--price-per-hour", type=float, required=True, help="what the machine costs an hour, in USD")
    parser.add_argument("--output", type=Path, required=True, help="the table to write (CSV)")
    return parser.parse_args()


def evaluation_columns(resources: dict[str, Any]) -> dict[str, Any]:
    """What evaluating took; a classical baseline is fitted in the same process, which is its training."""
    return {
        **{key: resources[key] for key in ("device", "threads")},
        **{f"evaluate_load_{m}": resources.get(f"load_{m}") for m in MEASURES},
        **{f"evaluate_{m}": resources.get(f"evaluate_{m}") for m in MEASURES},
        **{f"train_{m}": resources[f"train_{m}"] for m in MEASURES if f"train_{m}" in resources},
        "energy_basis": resources.get("energy_basis"),
        "evaluate_examples": resources["examples"],
        "evaluate_examples_per_second": resources["examples_per_second"],
    }


def training_columns(training: dict[str, Any], resources: dict[str, Any]) -> dict[str, Any]:
    """What training took, and the sizes of what was trained."""
    return {
        **{key: training["actual"][key] for key in ("trainable_parameters", "base_parameters")},
        **{key: resources[key] for key in ("device", "threads", "model_bytes", "adapter_bytes", "seconds_per_step")},
        **{f"train_load_{m}": resources.get(f"load_{m}") for m in MEASURES},
        **{f"train_{m}": resources.get(f"train_{m}") for m in MEASURES},
        "train_examples": resources["examples"],
        "train_tokens": resources["tokens"],
        "train_examples_per_second": resources["examples_per_second"],
    }


def resources_table(rows: dict[ARM, dict[str, Any]], price_per_hour: float) -> pd.DataFrame:
    """The table, with the total time, its cost and the total energy added; that is missing when a phase's is."""
    table = pd.DataFrame([dict(zip(KEY, arm, strict=True)) | row for arm, row in rows.items()], columns=COLUMNS)
    table["total_seconds"] = table[SECONDS].astype(float).sum(axis=1)
    energy = [name.replace("seconds", "energy_kwh") for name in SECONDS]
    whole = (table[energy].notna().to_numpy() == table[SECONDS].notna().to_numpy()).all(axis=1)
    table["energy_kwh"] = table[energy].astype(float).sum(axis=1).where(whole)
    table["price_per_hour"] = price_per_hour
    table["cost_usd"] = table["total_seconds"] / 3600 * price_per_hour
    floats = [name for name in COLUMNS if name.endswith(("seconds", "per_second", "per_step", "usd"))]
    table[floats] = table[floats].astype(float).round(6)
    energy.append("energy_kwh")
    table[energy] = table[energy].astype(float).round(9)
    return table.astype({name: "Int64" for name in WHOLE})


def beside(files: Sequence[Path], name: str) -> Iterator[tuple[ARM, dict, dict]]:
    """Of each file of resources the arm, the content of the file `name` beside it, which says the arm, and its own."""
    for file, content in zip(files, read_arms(file.with_name(name) for file in files), strict=True):
        yield tuple(content["arm"][key] for key in KEY), content, read_json(file)


def main() -> None:
    args = parse_args()
    rows: dict[ARM, dict[str, Any]] = {}
    for arm, _, resources in beside(args.evaluate, "metrics.json"):
        rows[arm] = evaluation_columns(resources)
    for arm, training, resources in beside(args.train, "training.json"):
        rows[arm] = rows.get(arm, {}) | training_columns(training, resources)
    table = resources_table(rows, args.price_per_hour)
    write_text(args.output, table.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    run_script(main)

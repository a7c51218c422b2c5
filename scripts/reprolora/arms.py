"""Which arm a file belongs to, and what an arm is called where people read it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reprolora.errors import UserError
from reprolora.files import read_json, read_jsonl, sha256_of
from reprolora.labels import INVALID

# The model's name in arms that have no language model.
CLASSICAL = "classical"
KEY = ["model", "method", "seed"]
# What is compared: an arm with all its seeds, in one mode.
CONTENDER = ["model", "method", "mode"]
# The seed of a row in which all seeds of a method are pooled.
ALL_SEEDS = "all"

# How the words of a method's name are written; a word that is not here stays as the configuration has it.
SPELLING = {
    "lora": "LoRA",
    "qlora": "QLoRA",
    "rslora": "rsLoRA",
    "loraplus": "LoRA+",
    "dora": "DoRA",
    "qdora": "QDoRA",
    "pissa": "PiSSA",
    "ia3": "IA3",
    "nf4": "NF4",
    "fp4": "FP4",
    "tfidf": "TF-IDF",
    "8bit": "8-bit",
    "full": "full fine-tuning",
    "prompt-tuning": "prompt tuning",
    "qlora-single": "QLoRA without double quantization",
    "majority": "majority class",
}


@dataclass(frozen=True)
class Answered:
    """One arm in one mode; the arms of a method that differ in the seed alone are pooled (`group_runs`)."""

    model: str
    method: str
    seed: int
    mode: str


@dataclass(frozen=True)
class Run(Answered):
    """The answers of one arm in one mode, as positions in `label_names` (INVALID comes after the last)."""

    label_names: tuple[str, ...]
    ids: tuple[str, ...]
    labels: np.ndarray
    predictions: np.ndarray
    probabilities: np.ndarray | None = None  # of each label, shape (rows, labels); none in a mode without any


def predictions_of(metrics_file: str | Path) -> Path:
    """The answers of an arm, which lie beside its metrics.json."""
    return Path(metrics_file).with_name("predictions.jsonl")


def read_predictions(metrics_file: str | Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The content of an arm's metrics.json and the rows of its answers.

    Raises:
        UserError: the answers beside metrics.json are not those that it was made of.
    """
    metrics, predictions_file = read_json(metrics_file), predictions_of(metrics_file)
    if not predictions_file.is_file() or sha256_of(predictions_file) != metrics["predictions_sha256"]:
        raise UserError(
            f"{predictions_file}: not the answers that {metrics_file} was made of; remove both files and run again"
        )
    return metrics, list(read_jsonl(predictions_file))


def read_runs(metrics_file: str | Path) -> list[Run]:
    """The runs of one arm, one for each mode in which it was evaluated."""
    metrics, predictions = read_predictions(metrics_file)
    rows_of_mode: dict[str, list[dict]] = {mode: [] for mode in metrics["modes"]}
    for row in predictions:
        rows_of_mode[row["mode"]].append(row)
    runs = []
    for mode, rows in rows_of_mode.items():
        scores = metrics["modes"][mode]
        position = {name: k for k, name in enumerate([*scores["confusion"]["labels"], INVALID])}
        labels = np.array([position[row["label"]] for row in rows])
        predictions = np.array([position[row["prediction"]] for row in rows])
        runs.append(
            Run(
                *(metrics["arm"][key] for key in KEY),
                mode,
                tuple(scores["confusion"]["labels"]),
                tuple(row["id"] for row in rows),
                labels,
                predictions,
                _probabilities(rows, scores["confusion"]["labels"]),
            )
        )
    return runs


def _probabilities(rows: Sequence[dict], label_names: Sequence[str]) -> np.ndarray | None:
    if not rows or rows[0]["probabilities"] is None:
        return None
    return np.array([[row["probabilities"][name] for name in label_names] for row in rows], dtype=np.float32)


def read_all_runs(metrics_files: Iterable[str | Path]) -> list[Run]:
    """The runs of all arms; refused unless all answered the same rows."""
    runs, files = [], []
    for metrics_file in metrics_files:
        for run in read_runs(metrics_file):
            runs.append(run)
            files.append(predictions_of(metrics_file))
    if runs:
        check_same_rows(runs, files)
    return runs


def group_runs(runs: Sequence[Answered]) -> dict[tuple[str, str, str], list[int]]:
    """The positions of the runs of each contender (model, method, mode), which are its seeds, in order."""
    groups: dict[tuple[str, str, str], list[int]] = {}
    for position, run in enumerate(runs):
        groups.setdefault((run.model, run.method, run.mode), []).append(position)
    return groups


def check_same_rows(runs: Sequence[Run], files: Sequence[str | Path]) -> None:
    """Refuse runs that did not answer the same rows in the same order; `files` names where each came from."""
    first = runs[0]
    for run, file in zip(runs, files, strict=True):
        if run.label_names != first.label_names:
            raise UserError(f"{file}: its labels are {run.label_names}, those of {files[0]} {first.label_names}")
        if len(run.ids) != len(first.ids):
            raise UserError(
                f"{file}: {len(run.ids)} rows, but {files[0]} has {len(first.ids)}; arms are compared on the same "
                "rows, so remove the older of the two and run again"
            )
        for ours, theirs, label, other in zip(run.ids, first.ids, run.labels, first.labels, strict=True):
            if ours != theirs or label != other:
                what = f"row {ours!r} where {files[0]} has {theirs!r}" if ours != theirs else f"row {ours!r}: its label"
                raise UserError(
                    f"{file}: {what} differs from {files[0]}; arms are compared on the same rows, so remove the "
                    "older of the two and run again"
                )


def method_name(method: str) -> str:
    """A method's name as a paper writes it."""
    return SPELLING.get(method) or "-".join(SPELLING.get(word, word) for word in method.split("-"))


def arm_names(arms: pd.DataFrame, *, drop: Iterable[str] = ()) -> list[str]:
    """Short names that tell the arms of a table apart: model, seed and mode are said only where they differ.

    The table has the columns model, method and seed, and may have mode; `drop` names columns to leave unsaid.
    """
    models = set(arms["model"]) - {CLASSICAL}
    seeds = arms.groupby(["model", "method"])["seed"].nunique()
    modes = arms.groupby(KEY, dropna=False)["mode"].nunique() if "mode" in arms else None
    names = []
    for arm in arms.to_dict("records"):
        name = method_name(arm["method"])
        details = []
        if len(models) > 1 and arm["model"] != CLASSICAL and "model" not in drop:
            details.append(arm["model"])
        if seeds[arm["model"], arm["method"]] > 1 and "seed" not in drop:
            details.append(f"seed {arm['seed']}")
        if modes is not None and modes[tuple(arm[key] for key in KEY)] > 1 and "mode" not in drop:
            details.append(arm["mode"])
        names.append(name + (f" ({', '.join(details)})" if details else ""))
    return names


def read_arms(files: Iterable[str | Path]) -> list[dict[str, Any]]:
    """The content of files that say their arm (metrics.json, training.json, failure.json), each with its `arm`."""
    contents = []
    for file in files:
        content = read_json(file)
        if not isinstance(content, dict) or "arm" not in content:
            raise UserError(f"{file}: it does not say which arm it belongs to; remove it and run again")
        contents.append(content)
    return contents


def identity(content: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a table of metrics that say which arm a file's content belongs to."""
    return {key: content["arm"][key] for key in [*KEY, "split_seed"]}


def failed_rows(failures: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of failed arms in a table of metrics: no scores, and a status that says where each failed."""
    return [identity(failure) | {"status": f"failed in {failure['stage']}"} for failure in failures]


def read_table(file: str | Path) -> pd.DataFrame:
    """A table of results. Empty fields are missing values; a method may be called `NA`, and a model `7`."""
    names = [f"{key}{side}" for key in ("model", "method") for side in ("", "_a", "_b")]
    return pd.read_csv(file, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(names, str))


def read_texts(file: str | Path) -> pd.DataFrame:
    """A table with texts in it, in which `NA` or `null` is a text like any other; all columns are texts."""
    return pd.read_csv(file, keep_default_na=False, dtype=str)
